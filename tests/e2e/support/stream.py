"""TCP servers that say who they are, and balancers whose `stream` block is under test."""

import socket
import struct
import threading

from .balancer import KIND, Balancer, wait_for
from .ports import free_port


class TcpServer:
    """Runs `handle(sock)` in a thread for each connection; `name` is what the default handler greets with, before it
    sends back whatever comes."""

    def __init__(self, name="", handle=None, port=None, backlog=128, path=None):
        self.name, self.handle, self.path = name, handle or self.echo, path
        if path:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.bind(str(path))
            path.chmod(0o777)
        else:
            self.sock = socket.socket()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind(("127.0.0.1", port or free_port()))
            self.port = self.sock.getsockname()[1]
        self.sock.listen(backlog)
        self.lock, self.open, self.count = threading.Lock(), set(), 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def server(self):
        """Its address for a configuration."""
        return f"unix:{self.path}" if self.path else f"127.0.0.1:{self.port}"

    def _accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            with self.lock:
                self.count += 1
                self.open.add(sock)
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock):
        try:
            self.handle(sock)
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(sock)
            sock.close()

    def echo(self, sock):
        if self.name:
            sock.sendall(self.name.encode() + b"\n")
        while data := sock.recv(65536):
            sock.sendall(data)

    def stop(self):
        """Listens no more and breaks what is open."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
        with self.lock:
            for sock in self.open:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Session:
    """A client's connection."""

    def __init__(self, port, source=None, path=None):
        if path:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(30)
            self.sock.connect(str(path))
        else:
            self.sock = socket.create_connection(("127.0.0.1", port), 30, source_address=(source, 0) if source else None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def line(self):
        """A line without its end, b"" at the end of the stream."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                byte = self.sock.recv(1)
            except ConnectionResetError:
                byte = b""
            if not byte:
                return line
            line += byte
        return line[:-1]

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                break
            data += piece
        return data

    def rest(self):
        """Everything up to the end of the stream."""
        data = bytearray()
        try:
            while piece := self.sock.recv(65536):
                data += piece
        except ConnectionResetError:
            pass
        return bytes(data)

    def end(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.close()


FORMAT = ("log_format session '$status $bytes_received $bytes_sent $upstream_addr|$upstream_bytes_sent|"
          "$upstream_bytes_received|$upstream_connect_time|$upstream_first_byte_time|$upstream_session_time|"
          "$session_time $protocol $remote_addr';\naccess_log logs/stream.log session;")


class Streaming:
    """A balancer with a stream block, in which SPORT is the port to connect to. The http block beside it says when the
    balancer is up without a trace in the stream."""

    def __init__(self, stream, *, kind=KIND, log=FORMAT, **options):
        self.stream_port = free_port()
        self.options = {"main": "", "workers": 1, "events": "worker_connections 4096;", **options}
        self.log = log
        self.one = Balancer(text=self.text(stream), kind=kind)

    def text(self, stream):
        settings = self.options
        return (f"worker_processes {settings['workers']};\n{settings['main']}\nevents {{ {settings['events']} }}\n"
                "http { access_log off; server { listen 127.0.0.1:PORT; return 204; } }\n"
                f"stream {{\n{self.log}\n{stream}\n}}\n").replace("SPORT", str(self.stream_port))

    def reload(self, stream):
        self.one.reload(text=self.text(stream))

    def connect(self, source=None):
        return Session(self.stream_port, source)

    def ask(self, first=b"", source=None):
        """The name of the server that a session comes to; "" when it comes to none."""
        with self.connect(source) as session:
            if first:
                session.send(first)
            return session.line().decode()

    def lines(self, count):
        """The lines of the session log, each divided: status, received, sent, upstream, protocol, client."""
        return [line.split(" ") for line in self.one.wait_log(count, "stream.log")]


SERVER = "server { listen 127.0.0.1:SPORT; proxy_pass %s; %s }"


def names(streaming, count, first=b"", source=None):
    """What the servers of so many sessions, one after the other, greet with."""
    return [streaming.ask(first, source) for _ in range(count)]


def connection_request(*cookies, version=3):
    """The first packet of a Remote Desktop client (MS-RDPBCGR 2.2.1.1)."""
    lines = b"".join(b"Cookie: %s\r\n" % cookie.encode() for cookie in cookies)
    rest = b"\xe0\0\0\0\0\0" + lines + b"\x01\x00\x08\x00\x03\x00\x00\x00"
    return struct.pack(">BBHB", version, 0, 5 + len(rest), len(rest)) + rest


def upstream(servers, method="", parameters=""):
    """A server on SPORT and an upstream with these servers."""
    list_of_servers = " ".join(f"server {server.server} {parameters};" for server in servers)
    return (f"upstream u {{ {method} {list_of_servers} }}\n"
            "server { listen 127.0.0.1:SPORT; proxy_pass u; }")


def wait_count(server, count):
    wait_for(lambda: server.count >= count, what=f"{count} connections at {server.name}")
