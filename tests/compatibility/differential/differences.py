"""Accepted differences, by the names that docs/nginx-differences.md gives them.

Each has a function that is given a request, both answers and what differs, and returns which of it the difference explains,
and the configuration whose requests show it. What a configuration does not show any more fails its test.
"""

import dataclasses
import re
from typing import Callable

from .configuration import HERE


@dataclasses.dataclass
class Difference:
    shown_by: str
    explains: Callable


ACCEPTED = {}


def accepted(name, shown_by):
    def add(function):
        ACCEPTED[name] = Difference(shown_by, function)
        return function

    return add


@accepted("server-field", "operating")
def server_field(request, nginx, balanza, found):
    """Both names are made the same before fields are compared."""
    return ()


@accepted("error-page", "operating")
def error_page(request, nginx, balanza, found):
    """Both pages are made the same, too; here is the length of a page that is not sent."""
    lengths = found.get("field:content-length")
    if request.method == "HEAD" and lengths and None not in lengths and nginx.status >= 300 and nginx.start == balanza.start:
        return {"field:content-length"} if 0 < abs(int(lengths[0][0]) - int(lengths[1][0])) < 700 else ()
    return ()


def refused(balanza):
    """Whether the connection ended with an error; it may have a page of the configuration."""
    return balanza.end == "closed" or balanza.fields.get("connection") == ["close"]


STRICT = re.compile(
    rb"^[^\n]*\r\n(?:.*\r\n)*Transfer-Encoding: gzip\r\n|^[A-Z]+ \S+ HTTP/1\.1 \r\n|^[A-Z]+ \S+ HTTP/1\.10\r\n|^[A-Z]+ \S+ HTTP/1.1\n|"
    rb"^[A-Z]+  |^\r\n|No-Colon\r\n|\r\n: x\r\n|Content-Length: 1\r\nContent-Length: 1\r\n")


@accepted("strict-framing", "proxy")
def strict_framing(request, nginx, balanza, found):
    """Requests of docs/design/strict-framing.md."""
    return set(found) if refused(balanza) and STRICT.search(request.data) else ()


@accepted("http-0.9", "operating")
def http_0_9(request, nginx, balanza, found):
    return set(found) if re.match(rb"GET( /)?\r\n", request.data) and refused(balanza) else ()


@accepted("error-before-names", "operating")
def error_before_names(request, nginx, balanza, found):
    """NGINX refuses a bad request line before it has read Host, so its default server answers."""
    path = request.data.split(b" ", 2)[1:2]
    bad_path = path and re.search(rb"%(?![0-9a-fA-F]{2})|%00|^/(?:[^?]*/)?\.\.(?:/|$)|[\0-\x20]", path[0].split(b"?")[0])
    return set(found) if bad_path and refused(nginx) and refused(balanza) else ()


@accepted("connect", "operating")
def connect(request, nginx, balanza, found):
    return set(found) if re.match(rb"CONNECT |OPTIONS \* ", request.data) and refused(balanza) else ()


HOP = b"\r\nProxy-Connection: "
H2C = b"\r\nUpgrade: h2c\r\n"
CHUNKED = b"\r\nTransfer-Encoding: chunked\r\n"


@accepted("proxy-connection", "proxy")
def proxy_connection(request, nginx, balanza, found):
    return same_echo(request, nginx, balanza, found) if HOP in request.data else ()


@accepted("upgrade-h2c", "gitlab")
def upgrade_h2c(request, nginx, balanza, found):
    return same_echo(request, nginx, balanza, found) if H2C in request.data else ()


@accepted("chunked-requests", "proxy")
def chunked_requests(request, nginx, balanza, found):
    """A body with trailers goes on in chunks, with them; one that is not buffered does as well, even if all of it is there."""
    return same_echo(request, nginx, balanza, found) if CHUNKED in request.data else ()


def escaped(body):
    """With bytes above 127 of the target as a URI has them."""
    return re.sub(rb"\\u00([89a-f][0-9a-f])", lambda match: b"%" + match[1].upper(), body)


def same_echo(request, nginx, balanza, found):
    """The body and its length, if the server got the same apart from these fields."""
    lengths = {"field:content-length"} & set(found)
    if "body" not in found:
        # That of a HEAD is not seen.
        return lengths if not nginx.body and not balanza.body and nginx.status == balanza.status else ()
    if any(byte > 0x7f for byte in request.line) and "body" in found:
        nginx, balanza = (dataclasses.replace(answer, body=escaped(answer.body)) for answer in (nginx, balanza))
    names = [b"proxy-connection"] if HOP in request.data else []
    names += [b"upgrade"] if H2C in request.data else []
    names += [b"content-length", b"transfer-encoding"] if CHUNKED in request.data else []
    fields = rb',?\n  "(?:' + b"|".join(names) + rb')": \[\n   "[^"]*"\n  \]'
    one, other = (re.sub(fields, b"", answer.body).replace(b'"fields": {,', b'"fields": {') for answer in (nginx, balanza))
    return {"body"} | lengths if one == other else ()


@accepted("raw-bytes", "proxy")
def raw_bytes(request, nginx, balanza, found):
    if any(byte > 0x7f for byte in request.line):
        return same_echo(request, nginx, balanza, found)
    # A server that trims its request line does not see a space at the end of the target.
    trimmed = b"%20" in request.line and balanza.body.replace(b'%20",\n', b'",\n')
    return {"body", "field:content-length"} & set(found) if nginx.body and nginx.body == trimmed else ()


@accepted("expect-with-body", "rewriting")
def expect_with_body(request, nginx, balanza, found):
    """The body is there already, or there is none."""
    expects = b"\r\nExpect: 100-continue\r\n" in request.data
    return {"interim"} & set(found) if expects and nginx.interim and not balanza.interim else ()


@accepted("server-http-0.9", "proxy")
def server_http_0_9(request, nginx, balanza, found):
    odd = b"\r\nX-Answer: no-status\r\n" in request.data
    return set(found) if odd and nginx.end.startswith("no response") and balanza.start else ()


@accepted("closes-after-keep-alive", "registry")
def closes_after_keep_alive(request, nginx, balanza, found):
    """NGINX has said keep-alive, and closes as it has not read all of the body."""
    unread = request.before and request.before.method in ("POST", "PUT", "PATCH")
    return {"end"} & set(found) if unread and nginx.end == "closed" and balanza.start else ()


@accepted("dots-after-redirect", "nextcloud")
def dots_after_redirect(request, nginx, balanza, found):
    return set(found) if b"/.." in request.line.lower().replace(b"%2e", b".") and balanza.status == 404 else ()


@accepted("end-after-expect", "access")
def end_after_expect(request, nginx, balanza, found):
    """A client that was not told to go on may send its body or not, so the connection ends."""
    return {"field:connection"} & set(found) if b"\r\nExpect: 100-continue\r\n" in request.data and refused(balanza) else ()


@accepted("early-error-page", "gateway")
def early_error_page(request, nginx, balanza, found):
    """An error before NGINX knows a URI cannot lead to a named location: it is answered with 500."""
    return set(found) if nginx.status == 500 and balanza.status == 400 and refused(balanza) else ()


@accepted("keepalive-before-location", "rewriting")
def keepalive_before_location(request, nginx, balanza, found):
    """A `return` of a server obeys `keepalive_disable` as well."""
    return {"field:connection"} & set(found) if request.method == "POST" and b"MSIE 6" in request.data else ()


@accepted("status-for-no-body", "rewriting")
def status_for_no_body(request, nginx, balanza, found):
    """A 204 or 304 of a server that `error_page … =200` makes a 200."""
    empty = not nginx.body and not balanza.body and nginx.start == balanza.start and balanza.framing == "length"
    fields = {f"field:{name}" for name in ("transfer-encoding", "content-length", "connection")}
    return {"framing", *fields} & set(found) if empty and nginx.framing in ("chunked", "close") else ()


@accepted("empty-reason", "canary")
def empty_reason(request, nginx, balanza, found):
    return {"start"} if "start" in found and nginx.start + " " == balanza.start else ()


@accepted("interim-responses", "proxy")
def interim_responses(request, nginx, balanza, found):
    """NGINX 1.22 takes the first response for the last, whatever it is."""
    hinted = b"\r\nX-Answer: hint\r\n" in request.data
    return set(found) if hinted and len(nginx.interim) > len(balanza.interim) else ()


@accepted("fragment", "access")
def fragment(request, nginx, balanza, found):
    """It is no part of what the server is asked for."""
    return set(found) if b"#" in request.line and nginx.start == balanza.start else ()


@accepted("unmodified-since-no-date", "answers")
def unmodified_since_no_date(request, nginx, balanza, found):
    """RFC 9110, 13.1.4: a field that is no date is ignored."""
    no_date = re.search(rb"\r\nIf-Unmodified-Since: (?!\w{3}, )", request.data)
    return set(found) if no_date and nginx.status == 412 else ()


@accepted("fields-of-416", "answers")
def fields_of_416(request, nginx, balanza, found):
    """NGINX begins the head of the file, and goes on with that of the page."""
    return {key for key in found if key.startswith("field:")} if nginx.start == balanza.start and nginx.status == 416 else ()


@accepted("ranges-of-gzip-static", "answers")
def ranges_of_gzip_static(request, nginx, balanza, found):
    """NGINX gives parts of a file that is there compressed since 1.23.4."""
    packed = nginx.fields.get("content-encoding") == ["gzip"]
    if packed and balanza.status in (206, 416):
        return set(found)
    return {"field:accept-ranges"} & set(found) if packed else ()


@accepted("type-of-parts", "files")
def type_of_parts(request, nginx, balanza, found):
    """`expires` by a map of `$sent_http_content_type`, which is multipart/byteranges for several ranges."""
    several = nginx.start == balanza.start and nginx.status == 206 and b"," in request.data
    return {"field:cache-control", "field:expires"} & set(found) if several else ()


@accepted("fields-before-412", "nextcloud")
def fields_before_412(request, nginx, balanza, found):
    """The server's fields beside X-Accel-Redirect go with whatever answers."""
    names = {"field:content-disposition", "field:set-cookie"}
    return names & set(found) if nginx.status == balanza.status == 412 else ()


@accepted("end-after-broken-chunk", "keycloak")
def end_after_broken_chunk(request, nginx, balanza, found):
    """What comes behind a response may be broken; its head does not say so."""
    broken = request.data.endswith(b"\r\n\r\nzz\r\n")
    return {"field:connection"} & set(found) if broken and nginx.start == balanza.start else ()


def documented():
    """The names in the tables of docs/nginx-differences.md."""
    page = (HERE.parents[1] / "docs/nginx-differences.md").read_text()
    return re.findall(r"^\| `([a-z0-9.-]+)` \|", page, flags=re.M)
