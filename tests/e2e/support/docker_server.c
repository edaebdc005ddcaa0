/* A server for containers without anything else in them: `server NAME [PORT]` answers every request with its name, and 500
   to /check after a /fail until a /pass; `server check PORT` is a health check, which asks for /check. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    int port = argc > 2 ? atoi(argv[2]) : 8000, on = 1, failing = 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (!strcmp(argv[1], "check")) {
        char answer[16] = "";
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const char *request = "GET /check HTTP/1.1\r\n\r\n";
        if (connect(listener, (void *)&address, sizeof address) || write(listener, request, strlen(request)) < 0)
            return 1;
        return read(listener, answer, 15) < 12 || strncmp(answer + 9, "200", 3);
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 99))
        return 1;
    for (;;) {
        int client = accept(listener, 0, 0);
        char request[4096] = "", answer[256];
        if (read(client, request, sizeof request - 1) > 0) {
            if (strstr(request, "GET /fail "))
                failing = 1;
            if (strstr(request, "GET /pass "))
                failing = 0;
            int status = failing && strstr(request, "GET /check ") ? 500 : 200;
            int length = snprintf(answer, sizeof answer, "HTTP/1.1 %d OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                                  status, strlen(argv[1]), argv[1]);
            if (write(client, answer, length) < 0)
                break;
        }
        close(client);
    }
    return 1;
}
