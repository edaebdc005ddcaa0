"""HTTP/1.1 messages read from a socket byte by byte as they are, without a library that would tidy them up."""

import dataclasses


class Ended(Exception):
    """The peer closed in the middle of a message; `got` is what came, `message` what is known of its head."""

    def __init__(self, got, message=None):
        super().__init__(f"connection ended after {got!r}")
        self.got, self.message = bytes(got), message


class Reader:
    """Buffered reads from a socket; `seen` is everything that ever came."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()
        self.seen = bytearray()

    def fill(self):
        """Reads once; False at the end."""
        data = self.sock.recv(65536)
        self.buffer += data
        self.seen += data
        return bool(data)

    def until(self, mark):
        """Bytes up to and including the mark; None when the connection ends before the first byte."""
        while mark not in self.buffer:
            if not self.fill():
                if not self.buffer:
                    return None
                raise Ended(self.buffer)
        end = self.buffer.index(mark) + len(mark)
        return self.take(end)

    def exactly(self, count):
        while len(self.buffer) < count:
            if not self.fill():
                raise Ended(self.buffer)
        return self.take(count)

    def to_end(self):
        try:
            while self.fill():
                pass
        except ConnectionResetError:
            pass
        return self.take(len(self.buffer))

    def take(self, count):
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data


@dataclasses.dataclass
class Message:
    """A request or a response."""

    start: str
    headers: list
    head: bytes
    body: bytes = b""
    framing: str = "none"
    chunks: list = dataclasses.field(default_factory=list)
    trailers: list = dataclasses.field(default_factory=list)
    interim: list = dataclasses.field(default_factory=list)

    def all(self, name):
        """Every value of a field."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def __getitem__(self, name):
        values = self.all(name)
        return values[0] if values else None

    def names(self):
        return [key.lower() for key, _ in self.headers]

    @property
    def status(self):
        return int(self.start.split(" ")[1])

    @property
    def reason(self):
        return self.start.split(" ", 2)[2]

    @property
    def method(self):
        return self.start.split(" ")[0]

    @property
    def target(self):
        return self.start.split(" ")[1]

    @property
    def version(self):
        return self.start.split(" ")[0] if self.start.startswith("HTTP/") else self.start.split(" ")[2]

    @property
    def text(self):
        return self.body.decode("latin-1")


def parse_head(head):
    """Start line and fields of a head that ends in an empty line."""
    lines = head.decode("latin-1").split("\r\n")
    headers = []
    for line in lines[1:]:
        if line:
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
    return Message(lines[0], headers, head)


def read_chunked(reader, message):
    """Reads a chunked body into the message."""
    message.framing = "chunked"
    while True:
        line = reader.until(b"\r\n")
        if line is None:
            raise Ended(message.body)
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        data = reader.exactly(size)
        message.chunks.append(data)
        message.body += data
        assert reader.exactly(2) == b"\r\n", "no CRLF after a chunk"
    while (line := reader.until(b"\r\n")) != b"\r\n":
        if line is None:
            raise Ended(message.body)
        name, _, value = line.decode("latin-1").rstrip("\r\n").partition(":")
        message.trailers.append((name, value.strip()))


def read_request(reader):
    """The next request, or None at the end of the connection."""
    head = reader.until(b"\r\n\r\n")
    if head is None:
        return None
    message = parse_head(head)
    if (message["Transfer-Encoding"] or "").lower() == "chunked":
        read_chunked(reader, message)
    elif message["Content-Length"]:
        message.framing = "length"
        message.body = reader.exactly(int(message["Content-Length"]))
    return message


def read_response(reader, method="GET"):
    """The next final response; interim ones are in `interim`. None when the connection ends before it."""
    interim = []
    while True:
        head = reader.until(b"\r\n\r\n")
        if head is None:
            return None
        message = parse_head(head)
        if 100 <= message.status < 200 and message.status != 101:
            interim.append(message)
            continue
        break
    message.interim = interim
    if method == "HEAD" or message.status in (101, 204, 304):
        return message
    if (message["Transfer-Encoding"] or "").lower() == "chunked":
        read_chunked(reader, message)
    elif message["Content-Length"] is not None:
        message.framing = "length"
        message.body = reader.exactly(int(message["Content-Length"]))
    else:
        message.framing = "close"
        message.body = reader.to_end()
    return message
