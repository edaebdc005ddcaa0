"""Answers in a form that can be compared, and what differs between two."""

import dataclasses
import email.utils
import re
import zlib

from support.client import Client
from support.messages import Ended

NAME = re.compile(r"\b(nginx|balanza)(/[\w.+-]+)?")
# The pages of both for an error. NGINX fills those of some browsers up.
PAGES = (
    re.compile(rb"<html>\r\n<head><title>([^<]*)</title></head>\r\n<body>\r\n<center><h1>[^<]*</h1></center>\r\n(?:<center>[^<]*</center>\r\n)?"
               rb"<hr><center>nginx(/[\w.+-]+)?</center>\r\n</body>\r\n</html>\r\n(?:<!-- [^>]* -->\r\n)*"),
    re.compile(rb"<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>([^<]*)</title></head>\n<body[^>]*>\n<h1>\1</h1>\n<hr>\n"
               rb"<p>balanza(/[\w.+-]+)?</p>\n</body>\n</html>\n(?:<!-- [^>]* -->\r?\n)*"),
)


@dataclasses.dataclass
class Answer:
    """One response."""

    start: str = ""
    fields: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    framing: str = ""
    interim: list = dataclasses.field(default_factory=list)
    trailers: list = dataclasses.field(default_factory=list)
    # Instead of a response: the connection ended, it broke, time ran out.
    end: str = ""
    # The body was the program's own page for the status; Server had the program's name.
    page: bool = False
    named: bool = False

    @property
    def status(self):
        return int(self.start.split()[1]) if self.start else 0

    def __str__(self):
        if self.end:
            return self.end
        return f"{self.start} {self.fields} {self.body[:300]!r}"


class Asker:
    """A connection that sends one request after the other."""

    def __init__(self, port):
        self.client = Client(port, timeout=60)

    def ask(self, request):
        """The response, or how there was none."""
        try:
            try:
                self.client.send(request.data)
            except ConnectionError:
                # The answer came before the body was sent; it is there to be read.
                pass
            if request.finish:
                self.client.finish()
            return self.client.response(request.method) or Answer(end="closed")
        except Ended as error:
            return Answer(end=f"broken after {error.got[-50:]!r}")
        except TimeoutError:
            return Answer(end="nothing came")
        except ConnectionError:
            return Answer(end="closed")
        except ValueError as error:
            return Answer(end=f"no response: {error}")


def normal(response, one):
    """Without what differs by nature: times, ports, directories, random boundaries, and the program's name."""
    if isinstance(response, Answer):
        return response
    answer = Answer(response.start, framing=response.framing, trailers=response.trailers,
                    interim=[interim.start for interim in response.interim])
    body = response.body
    # Not a part of another number, such as a checksum.
    port = rf"(?<!\d){one.port}(?!\d)"
    for name, value in response.headers:
        answer.fields.setdefault(name.lower(), []).append(re.sub(port, "PORT", value))
    fields = answer.fields
    if body and fields.get("content-encoding") == ["gzip"]:
        try:
            body = zlib.decompressobj(31).decompress(body)
        except zlib.error:
            answer.end = "broken gzip"
    body = re.sub(port.encode(), b"PORT", body).replace(str(one.dir).encode(), b"DIR")
    boundary = re.search(r"multipart/byteranges; boundary=(\S+)$", fields.get("content-type", [""])[0])
    if boundary:
        fields["content-type"] = ["multipart/byteranges; boundary=BOUNDARY"]
        fields["content-length"] = ["that of the parts"]
        body = body.replace(boundary[1].encode(), b"BOUNDARY")
    if "vary" in fields:
        fields["vary"].sort()
    for pattern in PAGES:
        if page := pattern.fullmatch(body):
            answer.page = True
            # Their wording differs.
            body = b"page: " + page[1][:3] + (b" of VERSION" if page[2] else b"")
            if "content-length" in fields and "content-encoding" not in fields:
                fields["content-length"] = ["that of the page"]
    answer.body = body
    if "server" in fields:
        values = [NAME.sub(lambda match: "NAME" + ("/VERSION" if match[2] else ""), value) for value in fields["server"]]
        answer.named = values != fields["server"]
        fields["server"] = values
    date = parsed(fields.get("date"))
    expires = parsed(fields.get("expires"))
    if date and expires:
        seconds = round((expires - date).total_seconds())
        # What a server sent is far away.
        if abs(seconds) < 50_000_000 and "32 00:00:00" not in fields["expires"][0]:
            fields["expires"] = [f"{seconds} s after Date"]
    if date:
        fields["date"] = ["DATE"]
    return answer


def parsed(values):
    try:
        return email.utils.parsedate_to_datetime(values[0]) if values and len(values) == 1 else None
    except ValueError:
        return None


def differences(nginx, balanza):
    """What differs, by name: `status`, `body`, `field:NAME` and so on, with both values."""
    found = {}

    def compare(name, first, second):
        if first != second:
            found[name] = (first, second)

    compare("end", nginx.end, balanza.end)
    if nginx.end or balanza.end:
        return found
    compare("start", nginx.start, balanza.start)
    for name in sorted({*nginx.fields, *balanza.fields}):
        compare(f"field:{name}", nginx.fields.get(name), balanza.fields.get(name))
    compare("framing", nginx.framing, balanza.framing)
    compare("interim", nginx.interim, balanza.interim)
    compare("trailers", nginx.trailers, balanza.trailers)
    compare("body", nginx.body, balanza.body)
    return found
