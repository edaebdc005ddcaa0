"""A small HTTP server for interfaces that tests play: JSON answers, streams of lines, blocking queries."""

import http.server
import json
import os
import select
import socket
import socketserver
import threading
import urllib.parse

from .ports import free_port


class Api:
    """Serves `handle(request)` on a port, a Unix-domain socket (`path`) or with TLS (`tls`, a context). A request has
    `path`, `query` (the last value of each name), `queries` (all values), `headers` and `json`; it is answered by
    `request.answer(value, status, headers)`, or by `request.stream()` and `request.line(value)`."""

    def __init__(self, handle, *, path=None, tls=None):
        self.handle, self.path, self.tls = handle, path, tls
        self.port = None if path else free_port()
        self.url = f"unix:{path}" if path else f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.requests = []
        self.server = None
        self.start()

    def start(self):
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                split = urllib.parse.urlsplit(self.path)
                self.queries = urllib.parse.parse_qs(split.query, keep_blank_values=True)
                self.query = {name: values[-1] for name, values in self.queries.items()}
                self.path = split.path
                length = int(self.headers.get("Content-Length", 0))
                self.json = json.loads(self.rfile.read(length)) if length else None
                self.close_connection = True
                self.begun = False
                api.requests.append((self.path, self.query))
                try:
                    api.handle(self)
                    if self.begun:
                        self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    pass

            do_POST = do_GET

            def answer(self, value, status=200, headers=()):
                text = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                for name, field in dict(headers).items():
                    self.send_header(name, str(field))
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def stream(self):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.begun = True

            def line(self, value):
                text = json.dumps(value).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                self.wfile.flush()

            def ended(self):
                """Whether the other end, or the test, has closed the connection."""
                if api.server is None:
                    return True
                # A client sends nothing after its request, so the socket is readable only at the end, with TLS as well.
                end = select.poll()
                end.register(self.connection, select.POLLIN)
                return bool(end.poll(0))

            def log_message(self, *_):
                pass

            def address_string(self):
                return "client"

        class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
            allow_reuse_address, daemon_threads = True, True
            request_queue_size = 128

            def get_request(inner):
                client, address = inner.socket.accept()
                api.connections.append(client)
                return (api.tls.wrap_socket(client, server_side=True) if api.tls else client), address

            def handle_error(inner, *_):
                pass

        if self.path:
            Server.address_family = socket.AF_UNIX
            if os.path.exists(self.path):
                os.unlink(self.path)
        self.connections = []
        self.server = Server(self.path or ("127.0.0.1", self.port), Handler)
        if self.path:
            os.chmod(self.path, 0o777)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def stop(self):
        """Ends the server and all connections."""
        server, self.server = self.server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
