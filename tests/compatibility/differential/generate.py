"""The requests: each case is what one connection sends, and depends on the seed, the configuration and its number only."""

import base64
import dataclasses
import os
import random

from . import files
from .servers import WAYS

SEED = int(os.environ.get("COMPATIBILITY_SEED", "1"))


@dataclasses.dataclass
class Request:
    method: str
    data: bytes
    # Sends nothing more after it.
    finish: bool = False
    # The one before it on the connection.
    before: "Request | None" = None

    @property
    def line(self):
        return self.data.split(b"\r\n", 1)[0]


METHODS = ["GET"] * 30 + ["HEAD"] * 6 + ["POST"] * 7 + ["PUT"] * 2 + ["DELETE"] * 2 + ["OPTIONS"] * 2 + [
    "PATCH", "PROPFIND", "FOO", "MKCOL"]

COMMON_TARGETS = [
    "/", "/index.html", "/missing", "/missing/", "/css/site.css", "/css", "/css/", "/js/app.js", "/img/logo.png",
    "/robots.txt", "/favicon.ico", "/docs", "/docs/", "/big.txt", "/empty.txt", "/with%20space.txt", "/na%C3%AFve.txt",
    "/percent%2541.txt", "/.htaccess", "/.git/config", "/listing/", "/data.json", "/about.html", "/noextension",
]

QUERIES = ["?", "?a=1", "?a=1&b=2", "?q=%20x%2F", "??", "?a=1?b=2", "?<x>", "?A=1&a=2&a=3", "?x=%zz", "?=", "?&&",
           "?next=/a/../b", "?utf=\u00e4", "?debug", "?page=2&lang=de", "?q='\"", "?" + "k=v&" * 60]

ETAG = f'"{files.MODIFIED:x}-{len(files.DOCUMENTS["css/site.css"]):x}"'

BASIC = [base64.b64encode(text).decode() for text in (b"jane:secret", b"joe:open", b"jane:wrong", b"nobody:x", b"jane")]

# Sorted by what they belong to; a request has one of some kinds.
FIELDS = [
    [("Accept-Encoding", value) for value in (
        "gzip", "gzip, deflate, br", "gzip;q=0", "gzip;q=0.5, *;q=0", "*", "identity", "GZIP", "x-gzip", "deflate", "")],
    [("Range", value) for value in (
        "bytes=0-9", "bytes=10-", "bytes=-5", "bytes=0-0", "bytes=0-9,20-29", "bytes=5-2", "bytes=99999999-", "bytes=a-b",
        "bytes=0-9, 5-20 ,-1", "lines=1-2", "bytes=", "bytes=-0", "bytes=0-18446744073709551616", "bytes= 1-2", "Bytes=1-2",
        "bytes=0-,0-,0-,0-")],
    [("If-Modified-Since", value) for value in (
        "Tue, 14 Nov 2023 22:13:20 GMT", "Tue, 14 Nov 2023 22:13:19 GMT", "Wed, 15 Nov 2023 00:00:00 GMT", "yesterday",
        "Tuesday, 14-Nov-23 22:13:20 GMT", "Tue Nov 14 22:13:20 2023", "")],
    [("If-None-Match", value) for value in (ETAG, f"W/{ETAG}", "*", f'"x", {ETAG}', '"x"', ETAG.strip('"'), "")],
    [("If-Match", value) for value in (ETAG, '"x"', "*", f"W/{ETAG}")],
    [("If-Unmodified-Since", value) for value in ("Tue, 14 Nov 2023 22:13:20 GMT", "Mon, 13 Nov 2023 00:00:00 GMT", "x")],
    [("If-Range", value) for value in (ETAG, '"x"', "Tue, 14 Nov 2023 22:13:20 GMT", "Mon, 13 Nov 2023 00:00:00 GMT", f"W/{ETAG}")],
    [("Cookie", value) for value in (
        "session=letmein", "canary=always", "canary=never; theme=dark", "a=b; session=letmein;c=d", "bad", "wordpress_logged_in_x=1",
        "a=", "=b", "a=1; a=2", "  a = 1 ")],
    [("Referer", value) for value in (
        "http://example.test/x", "https://www.example.test/", "http://evil.test/", "none", "", "http://spam.example/")],
    [("User-Agent", value) for value in (
        "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0", "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
        "Mozilla/5.0 (iPhone) Mobile", "curl/8.0", "Googlebot/2.1", "BadBot", "docker/24.0", "", "docker/1.5 go/1.4")],
    [("Authorization", value) for value in (*(f"Basic {one}" for one in BASIC), "Bearer letmein", "Basic", "Basic !!!", "basic " + BASIC[0])],
    [("X-Forwarded-For", value) for value in (
        "203.0.113.9", "198.51.100.1, 203.0.113.9", "10.1.2.3", "unknown", "203.0.113.9:1234", "2001:db8::1", "")],
    [("X-Forwarded-Proto", value) for value in ("https", "http")],
    [("X-Client", value) for value in ("one", "two", "three", "")],
    [("Accept", value) for value in ("*/*", "text/html", "application/json", "image/webp,*/*")],
    [("Accept-Language", value) for value in ("de", "en-US,en;q=0.5", "fr-CH, fr;q=0.9")],
    [("Origin", value) for value in ("https://example.test", "https://evil.test", "null")],
    [("X_Under", "1"), ("X.Dot", "1"), ("X-Empty", ""), ("x-lower", "1"), ("X-High", "\u00e4"), ("X-Space", "  a  b  ")],
    [("Via", "1.1 proxy"), ("TE", "trailers"), ("Keep-Alive", "5"), ("Proxy-Connection", "keep-alive"), ("Upgrade", "h2c")],
]

# Where requests have one of this kind more often.
OFTEN = {0: 0.35, 1: 0.15, 7: 0.25, 9: 0.25, 10: 0.2}

MALFORMED = [
    b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", b"GET / XTTP/1.1\r\nHost: a\r\n\r\n", b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET noslash HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /% HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /../x HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /a/../../x HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", b"\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.1\nHost: a\nConnection: close\n\n",
    b"GET / HTTP/1.1 \r\nHost: a\r\nConnection: close\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 \r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nNo-Colon\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", b"GET / HTTP/1.1\r\nHost: \r\nConnection: close\r\n\r\n", b"GET / HTTP/1.1\r\nHost: .\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a..b\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 9000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-Some: thing that takes up some place\r\n" * 900 + b"\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
]

# They end without a whole head: the connection just ends.
CUT_OFF = [b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"]


class Generator:
    def __init__(self, configuration, number):
        self.rng = random.Random(f"{SEED}/{configuration.name}/{number}")
        self.configuration = configuration

    def case(self):
        """The requests of one connection."""
        rng = self.rng
        if rng.random() < 0.06:
            return [Request("GET", rng.choice(MALFORMED))] if not self.configuration.balanced else [self.request(last=True)]
        if rng.random() < 0.01:
            return [Request("GET", rng.choice(CUT_OFF), finish=True)]
        count = rng.choice((1, 2, 3, 4))
        case = [self.request(last=index == count - 1) for index in range(count)]
        for before, request in zip(case, case[1:]):
            request.before = before
        return case

    def target(self):
        rng = self.rng
        own = self.configuration.targets
        target = rng.choice(own) if own and rng.random() < 0.75 else rng.choice(COMMON_TARGETS)
        if rng.random() < 0.3:
            path, mark, query = target.partition("?")
            target = self.odd(path) + mark + query
        if "?" not in target and rng.random() < 0.2:
            target += rng.choice(QUERIES)
        return target

    def odd(self, path):
        """The path in a spelling that may or may not be the same."""
        rng = self.rng
        at = rng.randrange(len(path)) if path else 0
        slash = rng.choice([index for index, letter in enumerate(path) if letter == "/"] or [0])

        def coded(letter):
            return "".join(f"%{byte:02{rng.choice('xX')}}" for byte in letter.encode())

        return rng.choice((
            lambda: path[:at] + coded(path[at:at + 1]) + path[at + 1:],
            lambda: "/" + "".join(coded(letter) if letter != "/" else letter for letter in path[1:]),
            lambda: path[:slash] + "/" + path[slash:],
            lambda: path[:slash] + "/." + path[slash:],
            lambda: path[:slash] + "/other/.." + path[slash:],
            lambda: path[:slash] + "/other/%2e%2E" + path[slash:],
            lambda: path[:slash] + "//" + path[slash:],
            lambda: path + rng.choice(("/", ".", "/.", "/..", "//", "~", ".bak", ".php", "%20", "%2F", "/index.html", ";v=1", "%3Fa=b", "%23x",
                                       "%0d%0aX-Y:%20z", "%0a", "%25", "%C3%A4", "%ff", "+", "*", "|", "\\", "<b>", "'", "&", "$uri", "=", ":80")),
            lambda: path.upper(),
            lambda: path[:-1],
            lambda: path + "/" + "long/" * rng.choice((20, 150)),
            lambda: path + "\u00e4",
            lambda: "http://" + rng.choice((*self.configuration.hosts, "other.test")) + path,
            lambda: rng.choice(("", "/", "/")) + path,
        ))() or "/"

    def host(self):
        rng = self.rng
        host = rng.choice(self.configuration.hosts)
        if rng.random() < 0.2:
            host = rng.choice((host.upper(), host + ".", host + ":80", host + ":8080", "other.test", "127.0.0.1", "www." + host, "[::1]", "a_b.test"))
        return host

    def body(self):
        rng = self.rng
        size = rng.choice((0, 1, 5, 100, 2000, 9000, 20_000, 70_000))
        return rng.randbytes(size) if rng.random() < 0.3 else (b"name=value&other=thing;" * (size // 20 + 1))[:size]

    def request(self, last):
        rng = self.rng
        method = rng.choice(METHODS)
        version = "HTTP/1.0" if rng.random() < 0.12 else "HTTP/1.1"
        fields = []
        if version == "HTTP/1.1" or rng.random() < 0.7:
            fields.append(("Host", self.host()))
        for index, kind in enumerate(FIELDS):
            if rng.random() < OFTEN.get(index, 0.06):
                fields.append(rng.choice(kind))
                # NGINX before 1.23 keeps the first of most fields that are repeated.
                if fields[-1][0] in ("Cookie", "X-Forwarded-For") and rng.random() < 0.1:
                    fields.append(rng.choice(kind))
        if self.configuration.fields and rng.random() < 0.6:
            own = rng.choice(self.configuration.fields)
            fields = [field for field in fields if field[0] != own[0]] + [own]
        if rng.random() < 0.55 and not any(name == "X-Answer" for name, _ in fields):
            fields.append(("X-Answer", rng.choice(list(WAYS))))
        if last:
            if version == "HTTP/1.1" or rng.random() < 0.3:
                fields.append(("Connection", "close"))
        elif version == "HTTP/1.0" or rng.random() < 0.1:
            fields.append(("Connection", rng.choice(("keep-alive", "Keep-Alive", "keep-alive, x-hop"))))
        if rng.random() < 0.3:
            rng.shuffle(fields)
        payload = b""
        if method in ("POST", "PUT", "PATCH") or rng.random() < 0.03:
            # After an internal redirect, NGINX 1.22 waits for a body that was there before.
            fields = [field for field in fields if field != ("X-Answer", "accel")]
            body = self.body()
            fields.append(("Content-Type", rng.choice(("application/x-www-form-urlencoded", "application/json", "text/plain"))))
            if version == "HTTP/1.1" and rng.random() < 0.35:
                fields.append(("Transfer-Encoding", "chunked"))
                payload = self.chunks(body)
            else:
                fields.append(("Content-Length", str(len(body))))
                payload = body
            if version == "HTTP/1.1" and rng.random() < 0.1:
                fields.append(("Expect", "100-continue"))
        head = "\r\n".join((f"{method} {self.target()} {version}", *(f"{name}: {value}" for name, value in fields)))
        return Request(method, head.encode() + b"\r\n\r\n" + payload)

    def chunks(self, body):
        data = b""
        while body:
            size = self.rng.randint(1, len(body))
            data += b"%x%s\r\n%s\r\n" % (size, self.rng.choice((b"", b"", b";a=b")), body[:size])
            body = body[size:]
        return data + b"0\r\n" + self.rng.choice((b"", b"X-Trailer: t\r\n")) + b"\r\n"
