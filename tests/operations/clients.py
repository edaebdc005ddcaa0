"""The clients of the day: a steady open load of several kinds, in one thread with an event loop of its own.

Nothing is repeated: a connection that ends under a request, or before the answer, is a failure and stands in the ledger.
"""

import asyncio
import collections
import hashlib
import os
import random
import threading
import time

import channels
from http2 import Multiplexed

# Shares of the rate. The sessions (`websocket`, `line`) and `datagram` have rates of their own.
SHARES = {"kept": 0.42, "new": 0.14, "name": 0.10, "post": 0.10, "upload": 0.02, "tls": 0.06, "http2": 0.16}
# More than a connection's input buffer holds.
UPLOAD = 300_000
SESSIONS = 4
TIMEOUT = 30
# A client closes connections that were idle for so long, before the balancer's keepalive_timeout does.
IDLE = 20


class Broken(Exception):
    """The connection has ended under a request."""


class Connection:
    """A connection of HTTP/1.1, perhaps over TLS."""

    def __init__(self, reader, writer, opened):
        self.reader, self.writer, self.opened = reader, writer, opened
        self.used = time.monotonic()

    @classmethod
    async def open(cls, port, sent, **tls):
        """One for a request. What ends it while it is opened, in its handshake perhaps, happens to the request."""
        # The kernel may open it long before a busy client notices.
        sent.opened = time.monotonic()
        return cls(*await asyncio.open_connection("127.0.0.1", port, **tls), sent.opened)

    async def exchange(self, method, target, ident, body=b""):
        """Status, fields and body of the answer."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        self.writer.write(f"{method} {target} HTTP/1.1\r\nHost: day.test\r\nX-Id: {ident}\r\n{length}\r\n".encode() + body)
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            start, *lines = head.decode("latin-1").split("\r\n")
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            content = await self.reader.readexactly(int(fields.get("content-length", 0)))
        except asyncio.IncompleteReadError as error:
            raise Broken(f"ended after {len(error.partial)} bytes") from None
        self.used = time.monotonic()
        return int(start.split(" ")[1]), fields, content

    @property
    def usable(self):
        return not self.reader.at_eof() and time.monotonic() - self.used < IDLE

    def close(self):
        self.writer.close()


def expected(ident, body, content):
    """What is wrong with an answer; its server."""
    words = content.decode("latin-1").split(" ", 2)
    if len(words) < 3 or words[1] != ident:
        return "", f"the answer of another request: {content[:60]!r}"
    if words[2][:40] != hashlib.sha1(body).hexdigest():
        return words[0], "a body that is not what was sent"
    return words[0], ""


class Load(threading.Thread):
    """Sends `rate()` requests a second until it is ended. `tls()` is a client's context."""

    def __init__(self, ledger, ports, rate, tls, datagrams=10):
        super().__init__(daemon=True)
        self.ledger, self.ports, self.rate, self.tls, self.datagrams = ledger, ports, rate, tls, datagrams
        self.random, self.ending = random.Random(24), threading.Event()
        self.idle, self.tasks = collections.deque(), set()
        self.closed_idle = 0
        # Of each handshake when its client began, and the serial number that it saw.
        self.certificates = []

    def run(self):
        asyncio.run(self.main())

    def end(self):
        """Begins nothing new and waits for what is in flight."""
        self.ending.set()
        self.join(TIMEOUT + 10)

    async def main(self):
        self.http2 = Multiplexed(self.ledger, self.ports["tls"], self.tls)
        own = [self.arrivals(), self.send_datagrams()]
        own += [channels.websocket(self, self.ports["http"]) for _ in range(SESSIONS)]
        own += [channels.lines(self, self.ports["lines"]) for _ in range(SESSIONS)]
        await asyncio.gather(*own)
        while self.tasks:
            await asyncio.wait(self.tasks)
        for connection in self.idle:
            connection.close()
        self.http2.close()

    def begin(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def arrivals(self):
        due = time.monotonic()
        kinds, shares = list(SHARES), list(SHARES.values())
        while not self.ending.is_set():
            # Arrivals that a busy machine has missed are not caught up with in one go.
            due = max(due + self.random.expovariate(self.rate()), time.monotonic() - 0.5)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            kind, = self.random.choices(kinds, shares)
            self.begin(self.http2.get(self.target()) if kind == "http2" else self.one(kind))

    def target(self, path="/"):
        # Some take a while, so that there are requests in flight whatever happens.
        pause = self.random.choice((100, 300, 800)) if self.random.random() < 0.08 else 0
        return f"{path}?size={self.random.randrange(100, 12_000)}&pause={pause}"

    async def one(self, kind):
        sent = self.ledger.begin(kind)
        body = b""
        if kind in ("post", "upload"):
            body = self.random.randbytes(self.random.randrange(100, 4000) if kind == "post" else UPLOAD)
        target = self.target({"name": "/name", "upload": "/upload"}.get(kind, "/"))
        server, connection = "", None
        try:
            async with asyncio.timeout(TIMEOUT):
                connection = await self.connection(sent)
                sent.opened = connection.opened
                status, fields, content = await connection.exchange("POST" if body else "GET", target, sent.id, body)
            if status == 200:
                server, problem = expected(sent.id, body, content)
            else:
                server, problem = fields.get("x-server", ""), f"status {status}"
            closes = fields.get("connection") == "close" or kind in ("new", "tls")
        except (Broken, OSError, TimeoutError) as error:
            problem, closes = f"{type(error).__name__}: {error}", True
        self.ledger.end(sent, server, problem)
        if connection and closes:
            connection.close()
        elif connection:
            self.idle.append(connection)

    async def connection(self, sent):
        if sent.kind == "new":
            return await Connection.open(self.ports["http"], sent)
        if sent.kind == "tls":
            made = await Connection.open(self.ports["tls"], sent, ssl=self.tls(), server_hostname="a.test")
            self.certificates.append((made.opened, made.writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]))
            return made
        while self.idle:
            connection = self.idle.pop()
            if connection.usable:
                return connection
            # At the end that the balancer has made between two requests; the others were idle for long.
            self.closed_idle += connection.reader.at_eof()
            connection.close()
        return await Connection.open(self.ports["http"], sent)

    async def send_datagrams(self):
        while not self.ending.is_set():
            self.begin(channels.datagram(self, self.ports["datagrams"]))
            await asyncio.sleep(1 / self.datagrams)

    def pause(self, seconds):
        """Between two messages of a session."""
        return asyncio.sleep(seconds * self.random.uniform(0.5, 1.5))

    def key(self):
        return os.urandom(16)
