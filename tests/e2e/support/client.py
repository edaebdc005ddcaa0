"""A raw HTTP/1.1 client: sends the bytes it is told and reads what comes."""

import socket
import struct

from .messages import Reader, read_response
from .over_http2 import CHOSEN, over_http2


class Client:
    """One connection."""

    def __init__(self, port, *, source=None, timeout=30, unix=None, receive_buffer=None):
        if unix:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout)
            self.sock.connect(str(unix))
        else:
            self.sock = socket.socket()
            self.sock.settimeout(timeout)
            if receive_buffer:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if source:
                self.sock.bind((source, 0))
            self.sock.connect(("127.0.0.1", port))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(self.sock)

    def use(self, sock):
        """Goes on with another socket, which is the same one encrypted."""
        self.sock, self.reader = sock, Reader(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        return self

    def request(self, method="GET", target="/", *, host="example.test", headers=(), body=b"", version="HTTP/1.1"):
        """Sends a request; a body gets its Content-Length."""
        lines = [f"{method} {target} {version}"]
        if host is not None:
            lines.append(f"Host: {host}")
        lines += [f"{name}: {value}" for name, value in (headers.items() if isinstance(headers, dict) else headers)]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def response(self, method="GET"):
        """Reads the next response; None when the connection was closed instead."""
        return read_response(self.reader, method)

    def get(self, target="/", method="GET", **options):
        """A request and its response."""
        return self.request(method, target, **options).response(method)

    def answered(self, seconds):
        """Whether something comes within this time, or the end."""
        before = self.sock.gettimeout()
        self.sock.settimeout(seconds)
        try:
            return bool(self.reader.buffer) or self.reader.fill() or True
        except TimeoutError:
            return False
        finally:
            self.sock.settimeout(before)

    def rest(self):
        """Everything until the connection ends."""
        return self.reader.to_end()

    def closed(self):
        """Whether the peer closed, with nothing more to read."""
        try:
            return self.reader.to_end() == b""
        except TimeoutError:
            return False

    def finish(self):
        """Ends the sending direction."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


if CHOSEN:
    Client = over_http2(Client)


def get(port, target="/", method="GET", *, source=None, timeout=30, **options):
    """One request on a connection of its own."""
    with Client(port, source=source, timeout=timeout) as client:
        return client.get(target, method, **options)


def get_if_room(port, target="/"):
    """As `get`; None when the balancer has no connection left and closes this one."""
    try:
        return get(port, target)
    except ConnectionError:
        return None


def exchange(port, data, method="GET", timeout=30):
    """Sends raw bytes on a connection of its own and reads one response."""
    with Client(port, timeout=timeout) as client:
        return client.send(data).response(method)
