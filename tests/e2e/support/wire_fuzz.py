"""Random HTTP/1.1 traffic in both directions, with a proof that no answer goes to another request.

Every request has an id of its own, with a checksum, and servers answer with the ids of what they were asked. So whatever
clients and servers garble, an id that arrives at a client and is valid is one that was sent, and must be its own.
Everything that is sent depends on the seed and on the number of the connection only.
"""

import random
import re
import socket
import threading
import time
import zlib

from .messages import Ended, Reader, read_request, read_response

ID = re.compile(rb"id([0-9a-f]{6})-([0-9a-f]{2})-([0-9a-f]{8})")
# The number of an id that is only in a body: it must never be asked for.
INSIDE = 0xFF


class Foreign(AssertionError):
    """An answer went to another request, or an intact request was not answered as it must be."""


def make_id(seed, connection, number):
    text = f"id{connection:06x}-{number:02x}"
    return f"{text}-{zlib.crc32(f'{seed} {text}'.encode()):08x}".encode()


def ids(seed, data):
    """The valid ids in these bytes, as pairs of connection and number. A garbled one is not valid."""
    found = ((int(match[1], 16), int(match[2], 16), match[0]) for match in ID.finditer(data))
    return [(connection, number) for connection, number, text in found if make_id(seed, connection, number) == text]


# What is put in, exchanged or repeated: what framing depends on, and its usual disguises.
TOKENS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"\r\n\r\n", b"\n\n", b"0\r\n\r\n", b"\xff", b"\x80",
    b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length: +5\r\n",
    b"Content-Length: 18446744073709551617\r\n", b"Content-Length: 5 5\r\n", b"Content-Length : 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: chunked, chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n", b"Transfer-Encoding\t: chunked\r\n",
    b"Transfer_Encoding: chunked\r\n", b" Transfer-Encoding: chunked\r\n", b"X: y\r\n Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive, Content-Length\r\n", b"Connection: upgrade\r\n",
    b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"Host: b\r\n", b"Trailer: Content-Length\r\n",
    b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"GET ", b"HEAD ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"0", b"00000000000000005\r\n", b"5;a=b\r\n", b"-1\r\n",
    b"ffffffffffffffff\r\n", b"5\r\nhello\r\n",
]


def mutate(rng, data):
    """The same bytes with one to three changes."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 16)))
        change = rng.randrange(7)
        if change == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del data[at:end]
        elif change == 2:
            data[at:at] = data[at:end]
        elif change == 3:
            # A line is the unit of heads and of chunks.
            lines = bytes(data).split(b"\r\n")
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
            data[:] = b"\r\n".join(lines)
        elif change == 4:
            lines = bytes(data).split(b"\r\n")
            lines.insert(rng.randrange(min(len(lines), 6) + 1), rng.choice(TOKENS).rstrip(b"\r\n"))
            data[:] = b"\r\n".join(lines)
        elif change == 5:
            del data[at:]
        else:
            data[at:end] = rng.choice(TOKENS)
    return bytes(data)


def chunked(rng, body):
    """The body in chunks of random sizes, some with extensions, and sometimes a trailer."""
    data = b""
    while body:
        size = rng.randint(1, len(body))
        data += b"%x%s\r\n%s\r\n" % (size, rng.choice((b"", b"", b";a=b")), body[:size])
        body = body[size:]
    return data + b"0\r\n" + rng.choice((b"", b"X-Trailer: t\r\n")) + b"\r\n"


def request(rng, seed, connection, number, place):
    """An intact request: its method, its bytes and the checksum of its body."""
    own = make_id(seed, connection, number)
    method = rng.choice((b"GET", b"GET", b"HEAD", b"POST", b"PUT"))
    head = b"%s /%s/%s HTTP/1.1\r\nHost: fuzz.test\r\nX-Id: %s\r\n" % (method, place, own, own)
    body = b""
    if method in (b"POST", b"PUT"):
        inner = b"GET /%s/%s HTTP/1.1\r\nHost: fuzz.test\r\n\r\n" % (place, make_id(seed, connection, INSIDE))
        body = rng.choice((inner, inner + inner, b"x" * rng.randint(0, 3000), b"0\r\n\r\n" + inner))
        if rng.random() < 0.5:
            return method, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(rng, body), zlib.crc32(body)
        head += b"Content-Length: %d\r\n" % len(body)
    return method, head + b"\r\n" + body, zlib.crc32(body)


def response(rng, message, own, echo):
    """An intact answer to a request, and whether the connection ends after it."""
    head = b"X-Id: %s\r\n" % own
    before = rng.choice((b"", b"", b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"))
    if message.method == "HEAD":
        return before + b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (head, len(echo)), False
    way = rng.randrange(4)
    if way == 0:
        return before + b"HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n" % head + chunked(rng, echo), False
    if way == 1:
        return before + b"HTTP/1.1 200 OK\r\n%sConnection: close\r\n\r\n" % head + echo, True
    return before + b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (head, len(echo)) + echo, False


def pieces(rng, data):
    """The data as it is sent: whole, or cut at random places."""
    cuts = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.choice((0, 0, 1, 2, 5))))) if data else []
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Servers:
    """A server that answers what it is asked: intact at /intact/, garbled at /garbled/ and at /once/.

    A garbled answer to a connection that may be used again is sent in one piece: what a server sends after an answer that
    looks complete cannot be told from the next answer if it comes late.
    """

    def __init__(self, seed):
        self.seed = seed
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.served = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        reader = Reader(sock)
        with sock:
            try:
                while message := read_request(reader):
                    self.served += 1
                    if not self._answer(sock, message):
                        return
            except (OSError, Ended, ValueError, AssertionError, IndexError):
                return

    def _answer(self, sock, message):
        """Whether the connection goes on."""
        found = ID.search(message.target.encode("latin-1"))
        own = found[0] if found else b"none"
        rng = random.Random(f"{self.seed} answer {own}")
        echo = b"%s %08x" % (own, zlib.crc32(message.body))
        data, ends = response(rng, message, own, echo)
        parts = pieces(rng, data)
        place = message.target.split("/")[1]
        if place != "intact" and rng.random() < 0.8:
            data = mutate(rng, data)
            parts = pieces(rng, data) if place == "once" else [data]
            ends = ends or place == "once" or rng.random() < 0.3
        for part in parts:
            sock.sendall(part)
            if len(parts) > 1:
                time.sleep(0.001)
        return not ends

    def stop(self):
        self.listener.close()


class Fuzz:
    """Clients of a balancer at this port. `run` ends with the first thing that is wrong, or after the time."""

    def __init__(self, port, seed, threads=8):
        self.port, self.seed, self.threads = port, seed, threads
        self.lock = threading.Lock()
        self.next = 0
        self.answers = self.garbled = 0
        self.wrong = None

    def run(self, seconds, first=0):
        self.next, self.end = first, time.monotonic() + seconds
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(seconds + 60)
        if self.wrong:
            raise self.wrong
        return self.next - first

    def _work(self):
        while self.wrong is None and time.monotonic() < self.end:
            with self.lock:
                connection = self.next
                self.next += 1
            try:
                self.connect(connection)
            except Foreign as error:
                self.wrong = Foreign(f"connection {connection}: {error}")

    def connect(self, connection):
        """One connection with all that happens on it."""
        rng = random.Random(f"{self.seed} {connection}")
        honest = rng.random() < 0.4
        place = rng.choice((b"intact", b"intact", b"garbled", b"once"))
        count = rng.randint(1, 5)
        requests = [request(rng, self.seed, connection, number, place) for number in range(count)]
        sock = socket.create_connection(("127.0.0.1", self.port), 20)
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = Reader(sock)
            if honest and rng.random() < 0.5:
                for number, one in enumerate(requests):
                    self._send(rng, sock, one[1])
                    if not self._expect(reader, connection, number, one, place):
                        return
                return
            # All at once, the broken one among them.
            broken = count if honest else rng.randrange(count)
            data = b"".join(mutate(rng, one[1]) if number == broken else one[1] for number, one in enumerate(requests))
            self._send(rng, sock, data)
            for number in range(broken):
                if not self._expect(reader, connection, number, requests[number], place):
                    return
            if not honest:
                self.garbled += 1
                self._rest(reader, connection, broken)

    def _send(self, rng, sock, data):
        try:
            for part in pieces(rng, data):
                sock.sendall(part)
                if rng.random() < 0.3:
                    time.sleep(0.001)
        except OSError:
            # The balancer has answered and closed already.
            pass

    def _expect(self, reader, connection, number, sent, place):
        """Reads the answer to an intact request; whether the next one can be expected."""
        method, _, checksum = sent
        reader.seen.clear()
        reader.seen += reader.buffer
        own = make_id(self.seed, connection, number)
        try:
            answer = read_response(reader, method.decode())
        except (OSError, Ended, ValueError, AssertionError, IndexError) as error:
            if place == b"intact":
                raise Foreign(f"no answer to intact request {number}: {error!r}") from None
            answer = None
        if answer is None:
            self._check_ids(reader.seen, connection, {number})
            if place == b"intact":
                raise Foreign(f"intact request {number} was not answered")
            return False
        # Bytes of the answers behind it may have come as well.
        self._check_ids(answer.head + answer.body, connection, {number})
        if place == b"intact":
            echo = b"" if method == b"HEAD" else b"%s %08x" % (own, checksum)
            if answer.status != 200 or answer["X-Id"] != own.decode() or answer.body != echo:
                raise Foreign(f"request {number} was answered by {answer.head + answer.body!r}, not with {echo!r}")
        self.answers += 1
        return answer["Connection"] != "close"

    def _rest(self, reader, connection, broken):
        """What comes after a broken request may be anything but another client's."""
        reader.sock.settimeout(0.05)
        reader.seen.clear()
        reader.seen += reader.buffer
        try:
            while reader.fill():
                pass
        except OSError:
            pass
        self._check_ids(reader.seen, connection, {*range(broken, 16), INSIDE})

    def _check_ids(self, data, connection, allowed):
        for other, number in ids(self.seed, bytes(data)):
            if other != connection or number not in allowed:
                raise Foreign(f"got the answer to request {number} of connection {other}: {bytes(data)!r}")
