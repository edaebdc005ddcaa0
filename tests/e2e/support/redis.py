"""Debian's Redis, and as much of its protocol as the tests need."""

import shutil
import socket
import subprocess
import tempfile

from .balancer import wait_for
from .ports import free_port

PROGRAM = shutil.which("redis-server")


class Redis:
    """A server that keeps nothing."""

    def __init__(self):
        self.port = free_port()
        self.server = f"127.0.0.1:{self.port}"
        self.dir = tempfile.mkdtemp(prefix="redis-")
        self.process = subprocess.Popen(
            [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir,
             "--appendonly", "no"], stdout=subprocess.DEVNULL)
        wait_for(self._listening, what="Redis")

    def _listening(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Client:
    """A connection to a Redis, or to what stands before it."""

    def __init__(self, port, source="127.0.0.1"):
        self.sock = socket.create_connection(("127.0.0.1", port), 30, source_address=(source, 0))
        self.file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()

    def __call__(self, *words):
        """The answer to a command; ConnectionError when the connection ends."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.sock.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self._answer()

    def _answer(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection has ended")
        kind, value = line[:1], line[1:-2]
        if kind == b"$":
            length = int(value)
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if kind == b":":
            return int(value)
        if kind == b"-":
            raise RuntimeError(value.decode())
        return value
