// The conformance test of HTTP/2, with libraries that Go 1.19 (Debian 12) can build.
module balanza/h2spec

go 1.19

require (
	github.com/fatih/color v1.13.0
	github.com/spf13/cobra v1.5.0
	github.com/summerwind/h2spec v2.2.1+incompatible
	golang.org/x/net v0.10.0
)

require (
	github.com/inconshreveable/mousetrap v1.0.0 // indirect
	github.com/mattn/go-colorable v0.1.9 // indirect
	github.com/mattn/go-isatty v0.0.14 // indirect
	github.com/spf13/pflag v1.0.5 // indirect
	golang.org/x/sys v0.8.0 // indirect
	golang.org/x/text v0.9.0 // indirect
)
