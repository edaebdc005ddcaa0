module balanza.test/client

go 1.24.2

require github.com/nginx/nginx-plus-go-client/v3 v3.0.1

require golang.org/x/sync v0.17.0 // indirect
