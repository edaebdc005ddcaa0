"""A scriptable raw server: records exactly the bytes it gets, answers exactly the bytes it is told."""

import socket
import struct
import threading
import time

from .messages import Ended, Reader, read_request
from .ports import free_port

# Every server of the running test, to be ended with it.
started = []


def answer(body=b"", status="200 OK", headers=(), *, length=True, version="HTTP/1.1"):
    """A response's bytes."""
    body = body.encode() if isinstance(body, str) else body
    lines = [f"{version} {status}", *(f"{name}: {value}" for name, value in headers)]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def ending(data):
    """A handler that sends this and closes the connection."""
    def handler(_request, connection):
        connection.send(data)
        connection.close()
    return handler


class Connection:
    """One accepted connection. Handlers send through it; `seen` has all that it received."""

    def __init__(self, sock, origin):
        self.sock, self.origin = sock, origin
        self.reader = Reader(sock)
        self.encrypted, self.thread = False, None
        self.open = True
        self.requests = 0

    def encrypt(self, tls):
        """Speaks TLS from now on."""
        self.encrypted, self.thread = True, threading.current_thread()
        self.sock = tls.wrap_socket(self.sock, server_side=True)
        self.reader = Reader(self.sock)

    @property
    def seen(self):
        return bytes(self.reader.seen)

    def send(self, data):
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def slowly(self, data, pause=0.002, step=1):
        """Sends in small pieces."""
        for start in range(0, len(data), step):
            self.send(data[start:start + step])
            time.sleep(pause)

    def close(self):
        self.open = False
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        # OpenSSL in the thread that serves would still write to the descriptor, whoever has it then.
        if not self.encrypted or threading.current_thread() is self.thread:
            self.sock.close()

    def reset(self):
        self.open = False
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # The reading thread may hold the file open; SHUT_RD lets the close below take effect.
        self.sock.close()


class Origin:
    """Listens on a free port. `handler(request, connection)` is called for each request and returns the bytes to
    answer, or None when it dealt with the connection itself. With `raw=True` it is `handler(connection)`, called once
    for each connection. A handler that is bytes or a string is the answer itself (a string: its body). `tls` is the
    SSLContext of a server that speaks TLS."""

    def __init__(self, handler="ok\n", *, raw=False, port=None, address="127.0.0.1", unix=None, backlog=256,
                 tls=None):
        self.raw, self.tls = raw, tls
        if isinstance(handler, str):
            handler = answer(handler)
        self.handler = (lambda *_: handler) if isinstance(handler, bytes) else handler
        self.port, self.address, self.unix, self.backlog = port or free_port(), address, unix, backlog
        self.lock = threading.Lock()
        self.requests, self.connections = [], []
        self.errors = []
        self.in_flight = self.most_in_flight = 0
        self.listening = False
        self.listen()
        started.append(self)

    @property
    def server(self):
        """Its address, as configurations write it."""
        return f"unix:{self.unix}" if self.unix else f"{self.address}:{self.port}"

    @property
    def count(self):
        return len(self.requests)

    @property
    def last(self):
        return self.requests[-1]

    def listen(self):
        """Starts to accept (again)."""
        if self.unix:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(str(self.unix))
        else:
            self.socket = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((self.address, self.port))
        self.socket.listen(self.backlog)
        self.listening = True
        threading.Thread(target=self._accept, args=(self.socket,), daemon=True).start()

    def stop(self):
        """Stops listening and closes every connection."""
        if self.listening:
            self.listening = False
            # A close alone does not wake a thread that waits in accept.
            self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
        self.hang_up()

    def hang_up(self):
        """Closes every open connection."""
        for connection in list(self.connections):
            if connection.open:
                connection.close()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            if not self.unix:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, self)
            with self.lock:
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.tls:
                connection.encrypt(self.tls)
            if self.raw:
                self.handler(connection)
                return
            while connection.open and (request := read_request(connection.reader)):
                connection.requests += 1
                with self.lock:
                    self.requests.append(request)
                    self.in_flight += 1
                    self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    data = self.handler(request, connection)
                finally:
                    with self.lock:
                        self.in_flight -= 1
                if data is not None:
                    connection.send(data)
        except (OSError, Ended, ValueError) as error:
            with self.lock:
                self.errors.append(error)
        finally:
            if connection.open or connection.encrypted:
                connection.close()


def named(count, handler=None, *, first=0):
    """Several servers that answer with their own index."""
    return [Origin(handler or answer(str(index))) for index in range(first, first + count)]


def upstream(servers, *, name="group", parameters=(), head=""):
    """An upstream block of these servers; `parameters` are one string for each, `head` comes first."""
    parameters = list(parameters) or [""] * len(servers)
    lines = "".join(f"  server {one.server} {more};\n" for one, more in zip(servers, parameters, strict=True))
    return f"upstream {name} {{\n  {head}\n{lines}}}\n"


def proxy(servers, *, location="", server="", head="", parameters=(), http=""):
    """An http block's inside with one server that passes everything to a group of these servers."""
    return (f"{http}\n{upstream(servers, head=head, parameters=parameters)}"
            f"server {{\n listen 127.0.0.1:PORT;\n{server}\n"
            f" location / {{ proxy_pass http://group; {location} }}\n}}\n")
