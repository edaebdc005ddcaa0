"""Filters of bodies: gzip, gunzip, gzip_static, charset, sub_filter."""

import gzip
import os
import threading
import time
import zlib

import pytest

from support.client import Client, get
from support.expect import balanza_only
from support.http2 import Http2Client
from support.origin import answer

TEXT = b"".join(b"%d: a line of a text that can be compressed\n" % number for number in range(2000))
GZIP = {"Accept-Encoding": "gzip"}
STAMP = 1_700_000_000


def html(body=TEXT, headers=(), **options):
    return answer(body, headers=[("Content-Type", "text/html"), *headers], **options)


def chunked(pieces):
    def handle(_, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send("0\r\n\r\n")
    return handle


@pytest.fixture
def proxied(balancer, origin):
    """A balancer in front of a server that answers like this, with these directives."""
    def make(handler, location="", server="", http=""):
        one = origin(handler)
        text = f"location / {{ proxy_pass http://{one.server}; {location} }}"
        return balancer(f"{http} server {{ listen 127.0.0.1:PORT; {server} {text} }}")
    return make


@pytest.fixture
def files(balancer):
    """A balancer with files of a known date."""
    def make(server="", http=""):
        one = balancer(f"{http} server {{ listen 127.0.0.1:PORT; root html; {server} }}", start=False)
        for name, data in {"a.html": TEXT, "small.html": b"abc", "b.html": b"plain b", "b.html.gz": gzip.compress(b"packed b"),
                           "only.html.gz": gzip.compress(b"only packed"), "empty.html": b"", "c.txt": TEXT}.items():
            path = one.dir / "html" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (STAMP, STAMP))
        return one.start()
    return make


def chunk(client):
    """The next chunk of a body."""
    size = client.reader.until(b"\r\n")
    data = client.reader.exactly(int(size, 16))
    client.reader.until(b"\r\n")
    return data


def content(response):
    return gzip.decompress(response.body) if response["Content-Encoding"] == "gzip" else response.body


@pytest.mark.http1("chunks")
def test_gzip_of_a_server(proxied):
    one = proxied(html(headers=[("ETag", '"x"'), ("Last-Modified", "now"), ("Accept-Ranges", "bytes")]),
                  "gzip on; gzip_vary on;")
    response = get(one.port, headers=GZIP)
    assert response["Content-Encoding"] == "gzip" and content(response) == TEXT
    assert response["Transfer-Encoding"] == "chunked" and response["Content-Length"] is None
    assert response["ETag"] == 'W/"x"' and response["Accept-Ranges"] is None and response["Last-Modified"] == "now"
    assert response["Vary"] == "Accept-Encoding" and response["Connection"] == "keep-alive"
    assert len(response.body) < len(TEXT) / 3
    plain = get(one.port)
    assert plain.body == TEXT and plain["Content-Encoding"] is None and plain["Vary"] == "Accept-Encoding"
    assert plain["ETag"] == '"x"' and plain["Content-Length"] == str(len(TEXT))


def test_gzip_leaves_the_connection_usable(proxied):
    one = proxied(chunked([TEXT[:10], TEXT[10:5000], TEXT[5000:]]), "gzip on;")
    with Client(one.port) as client:
        for _ in range(3):
            assert content(client.get(headers=GZIP)) == TEXT


@pytest.mark.http1("HTTP/1.0")
def test_gzip_by_http10_and_head(proxied):
    one = proxied(html(), "gzip on; gzip_http_version 1.0;")
    with Client(one.port) as client:
        response = client.get(headers={**GZIP, "Connection": "keep-alive"}, version="HTTP/1.0")
        assert content(response) == TEXT and response["Connection"] == "close"
        assert response["Transfer-Encoding"] is None and response["Content-Length"] is None
    with Client(one.port) as client:
        for _ in range(2):
            head = client.get(method="HEAD", headers=GZIP)
            assert head["Content-Encoding"] == "gzip" and head["Content-Length"] is None
            assert head["Transfer-Encoding"] is None and head["Connection"] == "keep-alive"


@balanza_only("it has no http2 directive")
def test_gzip_by_http2(proxied):
    one = proxied(html(TEXT * 5), "gzip on;", "http2 on;")
    with Http2Client(one.port) as client:
        for _ in range(2):
            response = client.response(client.request(headers=GZIP))
            assert content(response) == TEXT * 5 and response["content-length"] is None
        head = client.response(client.request("HEAD", headers=GZIP))
        assert head["content-encoding"] == "gzip" and head.body == b""
        small = client.response(client.request(headers={"accept-encoding": "br"}))
        assert small.body == TEXT * 5 and small["content-length"] == str(5 * len(TEXT))


@pytest.mark.parametrize("directives, request_headers, headers, packed", [
    ("", {"Accept-Encoding": "br, gzip;q=0.5"}, (), True),
    ("", {"Accept-Encoding": "gzip;q=0"}, (), False),
    ("", {"Accept-Encoding": "identity"}, (), False),
    ("gzip_min_length 2000000;", GZIP, (), False),
    ("gzip_types text/css;", GZIP, (), True),
    ("", GZIP, (("Content-Encoding", "br"),), False),
    ("", {**GZIP, "Via": "1.1 x"}, (), False),
    ("gzip_proxied any;", {**GZIP, "Via": "1.1 x"}, (), True),
    ("gzip_proxied any off;", {**GZIP, "Via": "1.1 x"}, (), False),
    ("gzip_proxied auth;", {**GZIP, "Via": "1.1 x"}, (), True),
    ("gzip_proxied auth no_etag;", {**GZIP, "Via": "1.1 x"}, (("ETag", '"1"'),), False),
    ("gzip_proxied auth;", {**GZIP, "Via": "1.1 x", "Authorization": "Basic eDp5"}, (("ETag", '"1"'),), True),
    ("gzip_proxied no_etag;", {**GZIP, "Via": "1.1 x"}, (), True),
    ("gzip_proxied no_last_modified;", {**GZIP, "Via": "1.1 x"}, (("Last-Modified", "x"),), False),
    ("gzip_proxied no-cache;", {**GZIP, "Via": "1.1 x"}, (("Cache-Control", "max-age=0, no-cache"),), True),
    ("gzip_proxied no-cache;", {**GZIP, "Via": "1.1 x"}, (("Cache-Control", "no-store"),), False),
    ("gzip_proxied no-store private;", {**GZIP, "Via": "1.1 x"}, (("Cache-Control", "private"),), True),
    ("gzip_proxied expired;", {**GZIP, "Via": "1.1 x"}, (("Expires", "Thu, 01 Jan 1970 00:00:01 GMT"),), True),
    ("gzip_proxied expired;", {**GZIP, "Via": "1.1 x"}, (("Expires", "Thu, 01 Jan 2037 00:00:01 GMT"),), False),
    ("gzip_proxied any;", {**GZIP, "Via": "1.1 x", "User-Agent": "Old/1"}, (), True),
    ("gzip_disable old;", {**GZIP, "User-Agent": "Old/1"}, (), False),
    ("gzip_disable msie6;", {**GZIP, "User-Agent": "x MSIE 6.0; y"}, (), False),
    ("gzip_disable msie6;", {**GZIP, "User-Agent": "x MSIE 6.0; SV1"}, (), True),
])
def test_who_gets_gzip(proxied, directives, request_headers, headers, packed):
    one = proxied(html(headers=headers), f"gzip on; {directives}")
    response = get(one.port, headers=request_headers)
    assert (response["Content-Encoding"] == "gzip") == packed
    assert content(response) == TEXT


@pytest.mark.parametrize("media, types, packed", [
    ("text/html", "text/css", True), ("text/plain", "text/css", False), ("TEXT/CSS", "text/css", True),
    ("text/css; charset=utf-8", "text/css", True), ("image/png", "*", True), ("text/css; a=b", "text/css", False),
    ('text/css;  Charset="x"', "text/css", True), ("text/css ; charset=x", "text/css", False),
])
def test_media_types(proxied, media, types, packed):
    one = proxied(answer(TEXT, headers=[("Content-Type", media)]), f"gzip on; gzip_types {types};")
    response = get(one.port, headers=GZIP)
    assert (response["Content-Encoding"] == "gzip") == packed
    assert content(response) == TEXT and response["Content-Type"] == media


@pytest.mark.parametrize("status, packed", [
    ("200 OK", True), ("201 Created", False), ("403 Forbidden", True), ("404 Not Found", True),
    ("500 Internal Server Error", False), ("206 Partial Content", False), ("301 Moved", False),
])
def test_statuses(proxied, status, packed):
    one = proxied(html(status=status), "gzip on;")
    response = get(one.port, headers=GZIP)
    assert (response["Content-Encoding"] == "gzip") == packed and content(response) == TEXT


def test_gzip_in_an_if(proxied):
    one = proxied(html(), "if ($http_x) { gzip on; }")
    assert get(one.port, headers=GZIP)["Content-Encoding"] is None
    assert content(packed := get(one.port, headers={**GZIP, "X": "1"})) == TEXT and packed["Content-Encoding"] == "gzip"


def test_gzip_of_local_responses(balancer):
    one = balancer("""gzip on; gzip_min_length 10; gzip_types text/plain;
        server { listen 127.0.0.1:PORT; add_header X $status;
            location /text { return 200 "a text that is returned"; }
            location /short { return 200 "short"; }
            location /gone { return 404; }
            location /error { return 500; }
            location /none { return 204; } }""")
    text = get(one.port, "/text", headers=GZIP)
    assert text["Content-Encoding"] == "gzip" and content(text) == b"a text that is returned"
    assert get(one.port, "/short", headers=GZIP).body == b"short"
    gone = get(one.port, "/gone", headers=GZIP)
    assert gone["Content-Encoding"] == "gzip" and b"404 Not Found" in content(gone)
    assert get(one.port, "/error", headers=GZIP)["Content-Encoding"] is None
    assert get(one.port, "/none", headers=GZIP).status == 204


def test_gzip_of_files(files):
    one = files("gzip on;")
    response = get(one.port, "/a.html", headers=GZIP)
    assert content(response) == TEXT and response["ETag"].startswith('W/"') and response["Accept-Ranges"] is None
    assert response["Last-Modified"] is not None
    ranged = get(one.port, "/a.html", headers={**GZIP, "Range": "bytes=0-9"})
    assert ranged.status == 200 and content(ranged) == TEXT
    plain = get(one.port, "/a.html", headers={"Range": "bytes=0-9"})
    assert plain.status == 206 and plain.body == TEXT[:10]
    unsatisfiable = get(one.port, "/a.html", headers={**GZIP, "Range": "bytes=99999999-"})
    assert unsatisfiable.status == 200 and content(unsatisfiable) == TEXT
    again = get(one.port, "/a.html", headers={**GZIP, "If-None-Match": response["ETag"]})
    assert again.status == 304 and again["Content-Encoding"] is None
    head = get(one.port, "/a.html", "HEAD", headers=GZIP)
    assert head["Content-Encoding"] == "gzip" and head["Content-Length"] is None
    assert get(one.port, "/small.html", headers=GZIP).body == b"abc"
    assert get(one.port, "/empty.html", headers=GZIP).body == b""


def test_gzip_of_a_large_file(files):
    one = files("gzip on; gzip_comp_level 9; gzip_types text/plain;")
    large = os.urandom(300_000) + TEXT * 10
    (one.dir / "html/large.txt").write_bytes(large)
    assert content(get(one.port, "/large.txt", headers=GZIP)) == large


@pytest.mark.http1("reads chunks from the socket")
def test_what_a_server_sends_at_once_goes_on_at_once(proxied):
    """Without buffering each piece is flushed through the compressor."""
    released = threading.Event()

    def handle(_, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send("5\r\nfirst\r\n")
        assert released.wait(20)
        connection.send("6\r\nsecond\r\n0\r\n\r\n")

    one = proxied(handle, "gzip on; proxy_buffering off;")
    with Client(one.port) as client:
        client.request(headers=GZIP)
        unpack = zlib.decompressobj(31)
        client.reader.until(b"\r\n\r\n")
        seen = b""
        while not seen:
            seen = unpack.decompress(chunk(client))
        assert seen == b"first"
        released.set()
        while data := chunk(client):
            seen += unpack.decompress(data)
        assert seen == b"firstsecond"


def test_gzip_ratio(proxied):
    one = proxied(html(b"x" * 100_000), "gzip on; access_log logs/ratio.log ratio;", http="log_format ratio $gzip_ratio;")
    packed = get(one.port, headers=GZIP)
    get(one.port)
    ratio, none = one.wait_log(2, "ratio.log")
    assert none == "-" and abs(float(ratio) - 100_000 / len(packed.body)) < 0.02 * float(ratio)
    assert len(ratio.partition(".")[2]) == 2


def test_a_slow_client_gets_everything(proxied):
    large = os.urandom(3_000_000)
    one = proxied(html(large), "gzip on;")
    with Client(one.port, receive_buffer=4096) as client:
        client.request(headers=GZIP)
        time.sleep(0.5)
        assert content(client.response()) == large


@pytest.mark.parametrize("end", [True, False])
def test_a_server_that_breaks_off(proxied, end):
    def handle(_, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"%x\r\n%s\r\n" % (len(TEXT), TEXT) + (b"0\r\n\r\n" if end else b""))
        connection.close()
    one = proxied(handle, "gzip on;")
    with Client(one.port) as client:
        data = client.request(headers={**GZIP, "Connection": "close"}).rest()
    assert data.endswith(b"\r\n0\r\n\r\n") == end


def test_gunzip(proxied):
    packed = gzip.compress(TEXT)
    one = proxied(html(packed, [("Content-Encoding", "gzip"), ("ETag", '"x"')]), "gunzip on; gzip_vary on;")
    plain = get(one.port)
    assert plain.body == TEXT and plain["Content-Encoding"] is None and plain["Content-Length"] is None
    assert plain["ETag"] == 'W/"x"' and plain["Vary"] == "Accept-Encoding"
    same = get(one.port, headers=GZIP)
    assert same.body == packed and same["Content-Encoding"] == "gzip" and same["ETag"] == '"x"'
    assert same["Content-Length"] == str(len(packed))


def test_gunzip_of_much_from_little(proxied):
    """A bomb goes through in pieces, and gzip behind gunzip packs it again."""
    one = proxied(html(gzip.compress(b"0" * 30_000_000), [("Content-Encoding", "gzip")]), "gunzip on;")
    assert get(one.port, timeout=60).body == b"0" * 30_000_000


@pytest.mark.parametrize("body", [gzip.compress(TEXT)[:-9], b"no gzip"])
def test_gunzip_of_what_is_damaged(proxied, body):
    one = proxied(html(body, [("Content-Encoding", "gzip")]), "gunzip on;")
    with Client(one.port) as client:
        data = client.request(headers={"Connection": "close"}).rest()
    assert not data.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("mode, headers, target, body, encoding", [
    ("on", GZIP, "/b.html", b"packed b", "gzip"), ("on", {}, "/b.html", b"plain b", None),
    ("on", GZIP, "/c.txt", TEXT, None), ("always", {}, "/b.html", b"packed b", "gzip"),
    ("always", {}, "/only.html", b"only packed", "gzip"), ("on", GZIP, "/only.html", b"only packed", "gzip"),
    ("off", GZIP, "/b.html", b"plain b", None),
])
def test_gzip_static(files, mode, headers, target, body, encoding):
    one = files(f"gzip_static {mode}; gzip_vary on;")
    response = get(one.port, target, headers=headers)
    assert response.status == 200 and content(response) == body and response["Content-Encoding"] == encoding
    assert (response["Vary"] == "Accept-Encoding") == (mode == "on" and target != "/c.txt")
    assert response["Content-Length"] == str(len(response.body))
    assert response["Content-Type"] == ("text/html" if "html" in target else "text/plain")


def test_gzip_static_ranges_and_misses(files):
    one = files("gzip_static on;")
    assert get(one.port, "/only.html").status == 404
    whole = get(one.port, "/b.html", headers=GZIP)
    part = get(one.port, "/b.html", headers={**GZIP, "Range": "bytes=2-5"})
    assert whole["Accept-Ranges"] == "bytes" and part.status == 206 and part.body == whole.body[2:6]
    assert part["Content-Range"] == f"bytes 2-5/{len(whole.body)}" and part["Content-Encoding"] == "gzip"
    assert get(one.port, "/b.html", headers={**GZIP, "If-None-Match": whole["ETag"]}).status == 304


def test_gunzip_of_gzip_static(files):
    one = files("gzip_static always; gunzip on;")
    assert get(one.port, "/only.html").body == b"only packed"
    part = get(one.port, "/only.html", headers={"Range": "bytes=2-5"})
    assert part.status == 200 and part.body == b"only packed" and part["Accept-Ranges"] is None


@pytest.mark.parametrize("given, directives, expected", [
    ("text/html", "charset utf-8;", "text/html; charset=utf-8"),
    ("text/css", "charset utf-8;", "text/css"),
    ("text/css", "charset utf-8; charset_types text/css;", "text/css; charset=utf-8"),
    ("text/html", "charset utf-8; charset_types text/css;", "text/html; charset=utf-8"),
    ("text/plain", "charset utf-8; charset_types text/css;", "text/plain"),
    ("text/html; charset=koi8-r", "charset utf-8;", "text/html; charset=koi8-r"),
    ("text/html; charset=utf-8", "charset UTF-8; override_charset on;", "text/html; charset=UTF-8"),
    ("text/html", "set $c latin1; charset $c;", "text/html; charset=latin1"),
    ("text/html", "charset off;", "text/html"),
    ("text/html", "charset utf-8; source_charset UTF-8;", "text/html; charset=utf-8"),
])
def test_charset_in_the_content_type(proxied, given, directives, expected):
    one = proxied(answer(TEXT, headers=[("Content-Type", given)]), directives)
    response = get(one.port)
    assert response["Content-Type"] == expected and response.body == TEXT
    assert response["Content-Length"] == str(len(TEXT))


def test_charset_of_local_responses(files):
    one = files("charset utf-8; location /to { return 301 /; } location /text { return 200 x; } location /no { return 404; }")
    assert get(one.port, "/a.html")["Content-Type"] == "text/html; charset=utf-8"
    assert get(one.port, "/text")["Content-Type"] == "text/plain; charset=utf-8"
    assert get(one.port, "/no")["Content-Type"] == "text/html; charset=utf-8"
    assert get(one.port, "/to")["Content-Type"] == "text/html"
    part = get(one.port, "/a.html", headers={"Range": "bytes=5-9"})
    assert part.status == 206 and part["Content-Type"] == "text/html; charset=utf-8" and part.body == TEXT[5:10]


KOI8 = "charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; E1 D090; BF D0AF; }"


@pytest.mark.parametrize("directives, body, expected, length", [
    ("source_charset koi8-r; charset utf-8;", b"a \xc1\xc2\xe1 \xff", "a абА ?".encode(), False),
    ("source_charset utf-8; charset koi8-r;", "a абА €ф".encode(), b"a \xc1\xc2\xe1 &#8364;&#1092;", False),
    ("source_charset one; charset two;", b"a\x80b\x90", b"a\x81b?", True),
    ("source_charset two; charset one;", b"a\x81b\x90", b"a\x80b?", True),
])
def test_charset_conversion(proxied, directives, body, expected, length):
    one = proxied(html(body * 1000), directives, http=KOI8 + " charset_map one two { 80 81; }")
    response = get(one.port)
    assert response.body == expected * 1000
    assert (response["Content-Length"] is not None) == length


def test_charset_override_by_the_server(proxied):
    conversion = "source_charset koi8-r; charset koi8-r; override_charset on;"
    one = proxied(answer("аб".encode(), headers=[("Content-Type", "text/html; charset=utf-8")]), conversion, http=KOI8)
    response = get(one.port)
    assert response.body == b"\xc1\xc2" and response["Content-Type"] == "text/html; charset=koi8-r"


@balanza_only("it crashes")
def test_charset_by_x_accel_charset(proxied):
    accelerated = proxied(html(b"\xc1", [("X-Accel-Charset", "utf-8")]), "source_charset koi8-r;", http=KOI8)
    assert get(accelerated.port).body == "а".encode()


def test_charset_of_ranges(files):
    one = files("source_charset one; charset two;", http="charset_map one two { 61 62; }")
    whole, part = get(one.port, "/small.html"), get(one.port, "/small.html", headers={"Range": "bytes=0-1"})
    assert whole.body == b"bbc" and part.body == b"bb" and part.status == 206


@pytest.mark.parametrize("directives, expected", [
    ("sub_filter line LINE;", lambda body: body.replace(b"line", b"LINE", 1)),
    ("sub_filter LINE row; sub_filter_once off;", lambda body: body.replace(b"line", b"row")),
    ("sub_filter line ''; sub_filter text $host; sub_filter_once off;",
     lambda body: body.replace(b"line", b"").replace(b"text", b"example.test")),
    ("sub_filter line 1; sub_filter text 2;", lambda body: body.replace(b"line", b"1", 1).replace(b"text", b"2", 1)),
    ("set $what line; sub_filter $what row; sub_filter_once off;", lambda body: body.replace(b"line", b"row")),
    ("sub_filter_types text/css; sub_filter line row;", lambda body: body.replace(b"line", b"row", 1)),
])
def test_sub_filter(proxied, directives, expected):
    headers = [("ETag", '"x"'), ("Last-Modified", "now"), ("Accept-Ranges", "bytes")]
    one = proxied(html(headers=headers), directives)
    response = get(one.port)
    assert response.body == expected(TEXT)
    assert response["Content-Length"] is None and response["ETag"] is None and response["Last-Modified"] is None
    assert response["Accept-Ranges"] == "bytes"
    kept = proxied(html(headers=headers), directives + "sub_filter_last_modified on;")
    response = get(kept.port)
    assert response["ETag"] == 'W/"x"' and response["Last-Modified"] == "now"


def test_sub_filter_leaves_other_types_alone(proxied):
    one = proxied(answer(TEXT, headers=[("Content-Type", "text/plain"), ("ETag", '"x"')]), "sub_filter line row;")
    response = get(one.port)
    assert response.body == TEXT and response["ETag"] == '"x"'


@balanza_only("it does not look for a string that lies in two buffers of a server")
@pytest.mark.parametrize("cut", range(1, 9))
def test_sub_filter_over_the_border_of_pieces(proxied, cut):
    def handle(_, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n")
        body = b"a needle there"
        connection.send(body[:cut])
        time.sleep(0.05)
        connection.send(body[cut:])
    one = proxied(handle, "sub_filter needle pin;")
    assert get(one.port).body == b"a pin there"


def test_sub_filter_of_files_and_local_responses(files):
    one = files("""sub_filter_once off; sub_filter line row; sub_filter ERROR gone;
        location /error { return 404; }""")
    response = get(one.port, "/a.html", headers={"Range": "bytes=0-9"})
    assert response.status == 200 and response.body == TEXT.replace(b"line", b"row")
    assert response["Accept-Ranges"] is None and response["Last-Modified"] is None
    assert get(one.port, "/empty.html").body == b""


def test_all_of_them_in_order(proxied):
    """gunzip, then sub_filter, then charset, then gzip."""
    body = b"price: \xc1 <b>"
    one = proxied(html(gzip.compress(body), [("Content-Encoding", "gzip")]),
                  "gunzip on; sub_filter <b> \xc2; source_charset koi8-r; charset utf-8; gzip on; gzip_min_length 0;",
                  http=KOI8)
    # A client without gzip gets it unpacked and changed.
    assert get(one.port).body.startswith("price: а ".encode())
    # For others it is left packed, so that nothing is found in it.
    assert gzip.decompress(get(one.port, headers=GZIP).body) == body


@pytest.mark.http1("reads chunks from the socket")
def test_filters_do_not_wait_for_each_other(proxied):
    """A body that is compressed for long does not keep the worker from other requests."""
    one = proxied(html(os.urandom(8_000_000)), "gzip on; gzip_comp_level 9;", "location /quick { return 200 ok; }")
    with Client(one.port) as client:
        client.request(headers=GZIP)
        client.reader.until(b"\r\n\r\n")
        chunk(client)
        assert get(one.port, "/quick", timeout=30).body == b"ok"
        while chunk(client):
            pass
