"""The servers behind both: they answer with what they were asked, in the form that the request's X-Answer names."""

import gzip
import json
import zlib

from support.origin import answer

HTML = ("<!DOCTYPE html><html><head><title>Page</title></head><body>"
        + "".join(f'<p>Line {n} of http://backend.internal/page, <a href="/old/{n}">more</a></p>\n' for n in range(40))
        + "</body></html>\n")

# Fields of a hop or of the protocol's version, which NGINX 1.22 and 1.31 write differently.
OF_THE_HOP = ("connection",)


def seen(request, name):
    """The request as the server got it, for comparison."""
    fields = {}
    for key, value in request.headers:
        if key.lower() not in OF_THE_HOP:
            fields.setdefault(key.lower(), []).append(value)
    # Whether a body is sent in chunks or with its length is in its own fields.
    return json.dumps({"server": name, "method": request.method, "target": request.target,
                       "fields": dict(sorted(fields.items())),
                       "body": [len(request.body), zlib.crc32(request.body)]}, indent=1)


def chunks(body, size=700):
    return b"".join(b"%x\r\n%s\r\n" % (len(body[at:at + size]), body[at:at + size])
                    for at in range(0, len(body), size)) + b"0\r\n\r\n"


JSON = ("Content-Type", "application/json")

WAYS = {
    "plain": lambda body, request: answer(body, headers=[JSON]),
    "no-type": lambda body, request: answer(body),
    "chunked": lambda body, request: answer(chunks(body.encode()), headers=[JSON, ("Transfer-Encoding", "chunked")],
                                            length=False),
    "until-close": lambda body, request: answer(body, headers=[JSON, ("Connection", "close")], length=False),
    "created": lambda body, request: answer(body, "201 Created", [JSON, ("Location", "/things/17")]),
    "none": lambda body, request: answer(b"", "204 No Content", length=False),
    "empty": lambda body, request: answer(b""),
    "not-modified": lambda body, request: answer(b"", "304 Not Modified", [("ETag", '"abc"')], length=False),
    "moved": lambda body, request: answer(b"moved", "301 Moved Permanently",
                                          [("Location", f"http://{request['Host']}{request.target}/next")]),
    "found": lambda body, request: answer(b"", "302 Found", [("Location", "/login?next=%2F")]),
    "refresh": lambda body, request: answer(body, headers=[JSON, ("Refresh", f"5; url=http://{request['Host']}/later")]),
    "bad": lambda body, request: answer(body, "400 Bad Request", [JSON]),
    "unauthorized": lambda body, request: answer(body, "401 Unauthorized", [("WWW-Authenticate", 'Bearer realm="r"')]),
    "forbidden": lambda body, request: answer(body, "403 Forbidden", [JSON]),
    "missing": lambda body, request: answer(body, "404 Not Found", [JSON]),
    "failed": lambda body, request: answer(body, "500 Internal Server Error", [JSON]),
    "busy": lambda body, request: answer(body, "503 Service Unavailable", [JSON, ("Retry-After", "120")]),
    "odd": lambda body, request: answer(body, "299 Something Else", [JSON]),
    "no-reason": lambda body, request: answer(body, "200", [JSON]),
    "cookies": lambda body, request: answer(body, headers=[
        JSON, ("Set-Cookie", "id=1; Path=/app; Domain=backend.internal; HttpOnly"), ("Set-Cookie", "theme=dark; Path=/")]),
    "cached": lambda body, request: answer(body, headers=[
        JSON, ("Cache-Control", "private, max-age=60"), ("Expires", "Thu, 01 Jan 2032 00:00:00 GMT"), ("ETag", '"v1"'),
        ("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT"), ("Vary", "Accept"), ("Pragma", "x")]),
    "hop": lambda body, request: answer(body, headers=[
        JSON, ("Keep-Alive", "timeout=5"), ("Server", "backend/1"), ("X-Powered-By", "PHP/8"), ("Date", "yesterday"),
        ("X-Many", "1"), ("X-Many", "2"), ("Via", "1.1 x"), ("Link", "</a>; rel=x"), ("Link", "</b>; rel=y")]),
    "accel": lambda body, request: answer(body, headers=[
        ("X-Accel-Redirect", "/protected/css/site.css"), ("Content-Type", "text/x-own"), ("Content-Disposition", "inline"),
        ("Set-Cookie", "a=b"), ("X-Other", "1")]),
    "accel-fields": lambda body, request: answer(body, headers=[
        JSON, ("X-Accel-Buffering", "no"), ("X-Accel-Expires", "10"), ("X-Accel-Charset", "koi8-r")]),
    "html": lambda body, request: answer(HTML, headers=[("Content-Type", "text/html; charset=utf-8")]),
    "text": lambda body, request: answer("plain " * 100, headers=[("Content-Type", "text/plain")]),
    "packed": lambda body, request: answer(gzip.compress(HTML.encode(), mtime=0), headers=[
        ("Content-Type", "text/html"), ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]),
    "long": lambda body, request: answer(b"0123456789" * 15_000, headers=[("Content-Type", "application/octet-stream")]),
    "ranges": lambda body, request: answer(b"0123456789" * 30, headers=[("Accept-Ranges", "bytes"), ("ETag", '"r"')]),
    "garbage": lambda body, request: b"HTTP/1.1 200 OK\r\nBroken\0: x\r\n\r\n",
}

# Sent only where a configuration asks for it: after it, NGINX 1.22 has a connection that it does not use again.
RARE = {
    "hint": lambda body, request: b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer(body, headers=[JSON]),
    "no-status": lambda body, request: b"this is no response\r\n\r\n",
}


def named(name):
    """The handler of a server that calls itself so."""

    def handle(request, connection):
        way = request["X-Answer"] or "plain"
        # What it redirects to inside is not redirected again.
        if way == "accel" and request.target.startswith("/protected"):
            way = "plain"
        if way in RARE and request.method != "GET":
            way = "plain"
        # An authentication service is a server as well: what it says depends on what it is asked for.
        if request.target.startswith("/auth-service"):
            allowed = "letmein" in (request["Cookie"] or "") + (request["Authorization"] or "")
            return answer(b"", "200 OK" if allowed else request["X-Deny"] or "401 Unauthorized",
                          [("X-User", "jane"), ("X-Roles", "admin,dev"), ("WWW-Authenticate", "Bearer")])
        data = {**WAYS, **RARE}.get(way, WAYS["plain"])(seen(request, name), request)
        if request.method == "HEAD":
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        asked = (request["Connection"] or "") == "close"
        if way in ("until-close", "garbage", *RARE) or asked:
            # A balancer that is not told might use the connection again.
            head, end, rest = data.partition(b"\r\n\r\n")
            told = b"\r\nConnection: close" if asked and b"\r\nConnection: close" not in head and way not in RARE else b""
            connection.send(head + told + end + rest)
            connection.close()
            return None
        return data

    return handle
