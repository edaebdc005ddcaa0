"""A server of HTTP/2, by Python's h2: it answers as it is told, also against the protocol."""

import contextlib
import socket
import threading

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from . import origin
from .ports import free_port


class Stream:
    """A request, and the way to answer it."""

    def __init__(self, connection, number, fields):
        self.connection = connection
        self.number = number
        self.fields = [(str(name), str(value)) for name, value in fields]
        self.body = b""
        self.trailers = None
        self.reset_code = None
        self.ended = threading.Event()
        self.changed = threading.Condition()
        self.pieces = []

    def __getitem__(self, name):
        return next((value for other, value in self.fields if other == name), None)

    @property
    def path(self):
        return self[":path"]

    def head(self, status=200, headers=(), end=False):
        fields = [(":status", str(status))] + [(name, str(value)) for name, value in headers]
        self.connection.act(lambda it: it.send_headers(self.number, fields, end_stream=end))

    def data(self, data=b"", end=True):
        while True:
            with self.connection.lock:
                room = min(self.connection.h2.local_flow_control_window(self.number),
                           self.connection.h2.max_outbound_frame_size)
            piece, data = data[:room], data[room:]
            if piece or not data:
                self.connection.act(lambda it: it.send_data(self.number, piece, end_stream=end and not data))
            if not data:
                return
            if room == 0:
                self.connection.windows.wait(0.02)
                self.connection.windows.clear()

    def end(self, trailers):
        self.connection.act(lambda it: it.send_headers(self.number, trailers, end_stream=True))

    def answer(self, body=b"", status=200, headers=(), trailers=()):
        self.head(status, headers, end=not body and not trailers)
        if body:
            self.data(body, end=not trailers)
        if trailers:
            self.end(trailers)

    def reset(self, code):
        self.connection.act(lambda it: it.reset_stream(self.number, code))


class Connection:
    def __init__(self, server, sock):
        self.server, self.sock = server, sock
        self.lock = threading.RLock()
        self.windows = threading.Event()
        self.streams = {}
        self.goaway_sent = False
        config = h2.config.H2Configuration(client_side=False, header_encoding="latin-1", validate_outbound_headers=False,
                                           normalize_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        if server.settings:
            self.h2.local_settings = h2.settings.Settings(client=False, initial_values=server.settings)
        if server.greets:
            self.act(lambda it: it.initiate_connection())

    def act(self, what):
        with self.lock:
            try:
                what(self.h2)
                self.flush()
            except h2.exceptions.StreamClosedError:
                pass

    def flush(self):
        """Sends what is there. The client may have closed the connection; what it sent before counts all the same."""
        data = self.h2.data_to_send()
        if data:
            with contextlib.suppress(OSError):
                self.sock.sendall(data)

    def raw(self, data):
        with self.lock:
            self.sock.sendall(data)

    def goaway(self, last, code=0):
        """Says that no request after `last` was looked at; what goes on is answered."""
        self.raw(b"\0\0\x08\x07\0\0\0\0\0" + last.to_bytes(4, "big") + code.to_bytes(4, "big"))

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def run(self):
        try:
            while data := self.sock.recv(65_536):
                with self.lock:
                    events = self.h2.receive_data(data)
                    self.flush()
                for event in events:
                    self.take(event)
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            with self.server.lock:
                self.server.open -= 1
            for stream in self.streams.values():
                stream.ended.set()

    def take(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.RequestReceived):
            stream = self.streams[event.stream_id] = Stream(self, event.stream_id, event.headers)
            with self.server.lock:
                self.server.requests.append(stream)
                self.server.in_flight += 1
                self.server.most_in_flight = max(self.server.most_in_flight, self.server.in_flight)
            if self.server.early:
                threading.Thread(target=self.answer, args=(stream,), daemon=True).start()
        elif isinstance(event, h2.events.DataReceived):
            stream.body += event.data
            with stream.changed:
                stream.pieces.append(event.data)
                stream.changed.notify_all()
            if event.flow_controlled_length:
                self.act(lambda it: it.acknowledge_received_data(event.flow_controlled_length, event.stream_id))
        elif isinstance(event, h2.events.TrailersReceived):
            stream.trailers = [(str(name), str(value)) for name, value in event.headers]
        elif isinstance(event, h2.events.StreamReset) and stream:
            stream.reset_code = event.error_code
            stream.ended.set()
        elif isinstance(event, h2.events.WindowUpdated):
            self.windows.set()
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended.set()
            if not self.server.early:
                threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    def answer(self, stream):
        try:
            self.server.handler(stream)
        except h2.exceptions.ProtocolError:
            pass
        finally:
            with self.server.lock:
                self.server.in_flight -= 1


class Http2Server:
    """`handler(stream)` runs in a thread for each request: when the request is complete, or with `early` when its head is."""

    def __init__(self, handler=b"ok\n", *, tls=None, early=False, settings=None, greets=True):
        self.handler = handler if callable(handler) else lambda stream: stream.answer(handler)
        self.tls, self.early, self.greets = tls, early, greets
        self.settings = settings and {getattr(h2.settings.SettingCodes, name): value for name, value in settings.items()}
        self.lock = threading.Lock()
        self.requests, self.connections = [], []
        self.open = self.in_flight = self.most_in_flight = 0
        self.port = free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()
        origin.started.append(self)

    @property
    def server(self):
        return f"127.0.0.1:{self.port}"

    @property
    def last(self):
        return self.requests[-1]

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            with self.lock:
                self.open += 1
            connection = Connection(self, sock)
        except OSError:
            return
        self.connections.append(connection)
        connection.run()

    def stop(self):
        # A close alone does not wake a thread that waits in accept.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for connection in self.connections:
            connection.close()


def upstream(servers, *, name="group", head=""):
    """An upstream of these servers."""
    lines = "".join(f"server {one.server};" for one in servers)
    return f"upstream {name} {{ {head} {lines} }}\n"
