"""A client of HTTP/2, by Python's h2: in clear with prior knowledge, or over TLS."""

import socket

import h2.config
import h2.connection
import h2.events
import h2.settings

from .messages import Ended, Message
from .origin import upstream


class Reset(Exception):
    """The server has ended the stream; `code` says why, `message` is what came of the response."""

    def __init__(self, code, message=None):
        super().__init__(f"stream reset with {code!r}")
        self.code, self.message = code, message


class Connection(h2.connection.H2Connection):
    """One that goes on after a GOAWAY, as long as requests are to be answered."""

    def _receive_goaway_frame(self, frame):
        event = h2.events.ConnectionTerminated()
        event.error_code, event.last_stream_id = frame.error_code, frame.last_stream_id
        return [], [event]


class Http2Client:
    """One connection. Sends whatever it is told, also what is not valid; `window` is that of each stream."""

    def __init__(self, port, *, tls=None, name="a.test", timeout=30, window=65_535, source=None):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout, source and (source, 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.sock = tls.wrap_socket(self.sock, server_hostname=name)
            assert self.sock.selected_alpn_protocol() == "h2", self.sock.selected_alpn_protocol()
        self.begin("https" if tls else "http", window)
        self.flush()

    @classmethod
    def on(cls, sock):
        """One on a socket that is connected, in clear. The preface goes with the first request."""
        self = cls.__new__(cls)
        self.sock = sock
        self.begin("http", 65_535)
        return self

    def begin(self, scheme, window):
        """Prepares the preface."""
        config = h2.config.H2Configuration(header_encoding="latin-1", validate_outbound_headers=False,
                                           normalize_outbound_headers=False)
        self.h2 = Connection(config)
        self.scheme = scheme
        # Events that were read and not asked for yet, by stream; those of the connection are under 0.
        self.events = {}
        self.goaway = None
        self.ended = False
        self.h2.local_settings = h2.settings.Settings(initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.initiate_connection()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())
        return self

    def send_raw(self, data):
        self.sock.sendall(data)
        return self

    def request(self, method="GET", target="/", *, host="example.test", headers=(), body=b"", end=True, length=True):
        """Begins a request and returns its stream. Without `end` the body goes on; without `length` it has none."""
        fields = [(":method", method), (":scheme", self.scheme), (":path", target)]
        if host is not None:
            fields.insert(2, (":authority", host))
        fields += [(name.lower(), value) for name, value in (headers.items() if isinstance(headers, dict) else headers)]
        if body and length:
            fields.append(("content-length", str(len(body))))
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, fields, end_stream=end and not body)
        self.flush()
        if body:
            self.send(stream, body, end)
        return stream

    def send(self, stream, body, end=True):
        """Sends a part of a body as the windows allow."""
        while body:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room == 0:
                if any(isinstance(event, (h2.events.StreamReset, h2.events.StreamEnded))
                       for event in self.events.get(stream, [])):
                    return self
                self.read()
                continue
            piece, body = body[:room], body[room:]
            self.h2.send_data(stream, piece, end_stream=end and not body)
            self.flush()
        return self

    def read(self, acknowledge=True):
        """Reads once and sorts the events; False at the end of the connection."""
        data = self.sock.recv(65_536)
        if not data:
            self.ended = True
            return False
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = event
            if isinstance(event, h2.events.DataReceived) and acknowledge and event.flow_controlled_length:
                try:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                except h2.exceptions.StreamClosedError:
                    pass
            self.events.setdefault(getattr(event, "stream_id", 0) or 0, []).append(event)
        try:
            self.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass
        return True

    def response(self, stream, *, head_only=False):
        """The response on a stream; with `head_only` what follows the head is left to be read."""
        message, interim = None, []
        while True:
            events = self.take(stream)
            while events:
                event = events.pop(0)
                if isinstance(event, h2.events.InformationalResponseReceived):
                    interim.append(_head(event.headers))
                elif isinstance(event, h2.events.ResponseReceived):
                    message = _head(event.headers)
                    message.interim = interim
                    if head_only:
                        # What came with the head is for those who read on.
                        self.events[stream] = events
                        return message
                elif isinstance(event, h2.events.DataReceived):
                    message.body += event.data
                elif isinstance(event, h2.events.TrailersReceived):
                    message.trailers = [(str(name), str(value)) for name, value in event.headers]
                elif isinstance(event, h2.events.StreamReset):
                    raise Reset(event.error_code, message)
                elif isinstance(event, h2.events.StreamEnded):
                    return message
            if not self.read():
                if self.goaway and self.goaway.last_stream_id is not None and self.goaway.last_stream_id < stream:
                    raise Reset(self.goaway.error_code)
                raise Ended(message.body if message else b"", message)

    def take(self, stream):
        """The events of a stream that were read."""
        return self.events.pop(stream, [])

    def get(self, target="/", method="GET", **options):
        """A request and its response."""
        return self.response(self.request(method, target, **options))

    def to_end(self):
        """Reads until the server closes, and returns why, if it said so: the code of its GOAWAY."""
        try:
            while self.read():
                pass
        except ConnectionResetError:
            self.ended = True
        return self.goaway and self.goaway.error_code


def _head(fields):
    pairs = [(str(name), str(value)) for name, value in fields]
    status = dict(pairs)[":status"]
    return Message(f"HTTP/2.0 {status} ", [pair for pair in pairs if pair[0] != ":status"], b"", framing="stream")


def get(port, target="/", method="GET", *, tls=None, **options):
    """One request on a connection of its own."""
    with Http2Client(port, tls=tls) as client:
        return client.get(target, method, **options)


def server(location, more="", listen=""):
    """A server with one location."""
    return f"server {{ listen 127.0.0.1:PORT {listen}; http2 on; {more} location / {{ {location} }} }}\n"


def proxied(one, more=""):
    """A server that passes requests to `one`."""
    return upstream([one], name="u") + server(f"proxy_pass http://u; {more}")
