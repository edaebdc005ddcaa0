"""A collector of spans: OTLP over HTTP/1.1, by Python's http.server and OpenTelemetry's own messages."""

import http.server
import ssl
import threading
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from . import origin
from .collector import Spans
from .ports import free_port


class HttpCollector(Spans):
    """Keeps what it is sent. `gate` holds requests until it is set; `reject` is how many spans of each it refuses;
    `answers` are what it says to the next requests in place of success: status, fields and body. `idle` is after how many
    seconds it closes a connection without requests; `closed` counts the connections that have ended, `answered` the requests that
    have their answers."""

    def __init__(self, *, port=None, tls=None, idle=None):
        super().__init__()
        self.port, self.answers = port or free_port(), []
        self.closed = self.answered = 0
        # Of each request: its line, its fields, its connection and when it came.
        self.lines, self.fields, self.connections, self.times = [], [], [], []
        self.alpn = None
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version, timeout = "HTTP/1.1", idle

            def do_POST(self):
                collector.take(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def shutdown_request(self, request):
                super().shutdown_request(request)
                collector.closed += 1

            def handle_error(self, *_):
                pass

        self.http = Server(("127.0.0.1", self.port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            context.set_alpn_protocols(["h2", "http/1.1"])
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        origin.started.append(self)

    @property
    def server(self):
        return f"http://127.0.0.1:{self.port}"

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.times.append(time.monotonic())
        self.lines.append(handler.requestline)
        self.fields.append(dict(handler.headers))
        self.connections.append(handler.client_address)
        if isinstance(handler.connection, ssl.SSLSocket):
            self.alpn = handler.connection.selected_alpn_protocol()
        self.gate.wait(60)
        status, fields, answer = self.answers.pop(0) if self.answers else (200, {}, None)
        if answer is None:
            answer = b""
            if status == 200:
                self.requests.append(ExportTraceServiceRequest.FromString(body))
                answer = self.response(ExportTraceServiceResponse()).SerializeToString()
                fields = {"Content-Type": "application/x-protobuf", **fields}
        handler.send_response(status)
        for name, value in {**fields, "Content-Length": len(answer)}.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        handler.wfile.write(answer)
        self.answered += 1

    def stop(self):
        self.gate.set()
        self.http.shutdown()
        self.http.server_close()
