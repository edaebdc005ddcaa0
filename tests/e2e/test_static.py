"""Files: root, alias, index, types, ranges, conditions; the fields and pages that the balancer adds."""

import email.utils
import os
import time

import pytest

from support.client import Client, get
from support.origin import answer, proxy

BODY = bytes(range(256)) * 8
STAMP = 1_700_000_000
DATE = email.utils.formatdate(STAMP, usegmt=True)
EARLIER, LATER = (email.utils.formatdate(STAMP + shift, usegmt=True) for shift in (-60, 60))


@pytest.fixture
def files(balancer):
    """A balancer whose html directory has files of a known date."""
    def make(server="", http=""):
        one = balancer(f"{http} server {{ listen 127.0.0.1:PORT; root html; {server} }}", start=False)
        for name, data in {"index.html": b"home", "file.bin": BODY, "a.txt": b"text", "b.JPG": b"jpeg", "plain": b"p",
                           "sub/index.html": b"sub home", "sub/other.htm": b"other", "empty.txt": b"",
                           "with space.txt": b"space", "50x.html": b"sorry"}.items():
            path = one.dir / "html" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (STAMP, STAMP))
        return one.start()
    return make


def test_file_with_its_fields(files):
    response = get(files("types { application/x-b bin; }").port, "/file.bin")
    assert (response.status, response.body) == (200, BODY)
    assert response["Content-Type"] == "application/x-b" and response["Accept-Ranges"] == "bytes"
    assert response["Last-Modified"] == DATE and response["ETag"] == f'"{STAMP:x}-{len(BODY):x}"'
    assert response["Content-Length"] == str(len(BODY))
    head = get(files().port, "/file.bin", "HEAD")
    assert head["Content-Length"] == str(len(BODY)) and head.body == b""


@pytest.mark.parametrize("target, status, body", [
    ("/", 200, b"home"), ("/sub/", 200, b"sub home"), ("/sub", 301, None), ("/none", 404, None), ("/none/", 404, None),
    ("/a.txt/", 404, None), ("/with%20space.txt", 200, b"space"), ("/empty.txt", 200, b""),
    ("/sub/../a.txt", 200, b"text"),
    ("/forbidden/", 403, None), ("/closed.txt", 403, None),
])
def test_targets(files, target, status, body):
    one = files()
    (one.dir / "html/forbidden").mkdir()
    (one.dir / "html/closed.txt").write_text("x")
    (one.dir / "html/closed.txt").chmod(0 if os.getuid() else 0o600)
    response = get(one.port, target)
    assert response.status == status
    assert body is None or response.body == body


@pytest.mark.parametrize("method, status", [("POST", 405), ("PUT", 405), ("DELETE", 405), ("HEAD", 200)])
def test_methods_of_a_file(files, method, status):
    assert get(files().port, "/a.txt", method).status == status


def test_types(files):
    one = files("default_type app/default; location /t/ { alias DIR/html/; types { a/htm htm html; i/jpeg jpg; } }"
                "location /none/ { alias DIR/html/; types { } default_type text/none; }")
    for target, kind in {"/index.html": "text/html", "/b.JPG": "image/jpeg", "/a.txt": "app/default",
                         "/plain": "app/default", "/t/sub/other.htm": "a/htm", "/t/b.JPG": "i/jpeg",
                         "/t/a.txt": "app/default", "/none/index.html": "text/none"}.items():
        assert get(one.port, target)["Content-Type"] == kind, target


@pytest.mark.parametrize("location, target, body", [
    ("location /i/ { alias DIR/html/; }", "/i/a.txt", b"text"),
    ("location /i/ { alias DIR/html/sub/; }", "/i/", b"sub home"),
    ("location = /one { alias DIR/html/a.txt; }", "/one", b"text"),
    ("location ~ ^/r/(.*)$ { alias DIR/html/sub/$1; }", "/r/other.htm", b"other"),
    ("location /d/ { root DIR/html/$arg_dir; }", "/d/../a.txt", b"text"),
    ("location /html/ { root DIR; }", "/html/a.txt", b"text"),
    ("index none.html other.htm;", "/sub/", b"other"),
    ("index none.html /a.txt;", "/sub/", b"text"),
    ("index $arg_i index.html;", "/sub/?i=other.htm", b"other"),
    ("location = / { index plain; } location = /plain { return 200 redirected; }", "/", b"redirected"),
])
def test_root_alias_and_index(files, location, target, body):
    assert get(files(location).port, target).body == body


@pytest.mark.parametrize("ranges, status, content", [
    ("bytes=0-0", 206, (0, 1)), ("bytes=10-19", 206, (10, 20)), ("bytes=2000-", 206, (2000, 2048)),
    ("bytes=-5", 206, (2043, 2048)), ("bytes=-9999", 206, (0, 2048)), ("bytes=2040-9999", 206, (2040, 2048)),
    ("bytes=0-", 206, (0, 2048)), ("bytes=2048-", 416, None), ("bytes=5-4", 416, None), ("bytes=-0", 416, None),
    ("bytes=a-b", 416, None), ("lines=0-5", 200, (0, 2048)), ("bytes=1-2,5000-6000", 206, (1, 3)),
    ("bytes 0-5", 200, (0, 2048)),
])
def test_range(files, ranges, status, content):
    response = get(files().port, "/file.bin", headers=[("Range", ranges)])
    assert response.status == status
    if status == 416:
        assert response["Content-Range"] == "bytes */2048"
    else:
        assert response.body == BODY[slice(*content)]
        expected = f"bytes {content[0]}-{content[1] - 1}/2048" if status == 206 else None
        assert response["Content-Range"] == expected


def test_several_ranges(files):
    response = get(files().port, "/file.bin", headers=[("Range", "bytes=0-1,10-11,-3")])
    kind, _, boundary = response["Content-Type"].partition("; boundary=")
    assert response.status == 206 and kind == "multipart/byteranges" and response["Content-Range"] is None
    parts = response.body.split(f"\r\n--{boundary}".encode())
    assert parts[0] == b"" and parts[-1] == b"--\r\n" and len(parts) == 5
    for part, (first, last) in zip(parts[1:4], [(0, 1), (10, 11), (2045, 2047)], strict=True):
        head, _, data = part.partition(b"\r\n\r\n")
        assert f"Content-Range: bytes {first}-{last}/2048".encode() in head and data == BODY[first:last + 1]


ETAG = f'"{STAMP:x}-800"'


@pytest.mark.parametrize("fields, status", [
    ({"If-Modified-Since": DATE}, 304), ({"If-Modified-Since": LATER}, 200), ({"If-Modified-Since": EARLIER}, 200),
    ({"If-Modified-Since": "nonsense"}, 200), ({"If-None-Match": ETAG}, 304), ({"If-None-Match": f"W/{ETAG}"}, 304),
    ({"If-None-Match": f'"x", {ETAG}'}, 304), ({"If-None-Match": "*"}, 304), ({"If-None-Match": '"x"'}, 200),
    ({"If-None-Match": '"x"', "If-Modified-Since": DATE}, 200), ({"If-Unmodified-Since": DATE}, 200),
    ({"If-Unmodified-Since": EARLIER}, 412), ({"If-Match": ETAG}, 200), ({"If-Match": '"x"'}, 412),
    ({"If-Match": "*"}, 200), ({"Range": "bytes=0-1", "If-Range": DATE}, 206),
    ({"Range": "bytes=0-1", "If-Range": LATER}, 200), ({"Range": "bytes=0-1", "If-Range": ETAG}, 206),
    ({"Range": "bytes=0-1", "If-Range": '"x"'}, 200),
])
def test_conditions(files, fields, status):
    response = get(files().port, "/file.bin", headers=fields)
    assert response.status == status
    if status == 304:
        assert response["ETag"] == ETAG and response["Content-Type"] is None and response["Content-Length"] is None


@pytest.mark.parametrize("options, status", [("if_modified_since off;", 200), ("if_modified_since before;", 304)])
def test_if_modified_since(files, options, status):
    assert get(files(options).port, "/file.bin", headers={"If-Modified-Since": LATER}).status == status


def test_etag_off(files):
    assert get(files("etag off;").port, "/file.bin")["ETag"] is None


def test_add_header(files):
    one = files('add_header X-Always "v $arg_q" always; add_header X-Ok yes; add_header X-Empty "";'
                "location /own/ { add_header X-Own 1; return 200; } location /bad { return 404; }"
                "location /moved { return 302 /; } location /other { return 206; }")
    response = get(one.port, "/?q=7")
    assert response["X-Always"] == "v 7" and response["X-Ok"] == "yes" and response["X-Empty"] is None
    response = get(one.port, "/bad")
    assert response["X-Always"] == "v" and response["X-Ok"] is None
    assert get(one.port, "/moved")["X-Ok"] == "yes" and get(one.port, "/other")["X-Ok"] == "yes"
    response = get(one.port, "/own/")
    assert response["X-Own"] == "1" and response["X-Always"] is None, "the inner level replaces the outer one"


@pytest.mark.http1("chunks")
def test_add_trailer(files, balancer, origin):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    one = balancer(proxy([origin(chunked)], location="add_trailer X-Sum $upstream_status;"))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert response.framing == "chunked" and response.trailers == [("X-Sum", "200")]


@pytest.mark.parametrize("options, server", [("", "/"), ("server_tokens off;", "")])
def test_server_tokens(files, options, server):
    response = get(files(options).port, "/none")
    assert ("/" in response["Server"]) == bool(server)
    assert (response["Server"] in response.text) and response["Content-Type"] == "text/html"


@pytest.mark.parametrize("pages, target, status, body", [
    ("error_page 404 /50x.html;", "/none", 404, b"sorry"),
    ("error_page 404 =200 /50x.html;", "/none", 200, b"sorry"),
    ("error_page 404 = /50x.html;", "/none", 200, b"sorry"),
    ("error_page 404 =410 /50x.html;", "/none", 410, b"sorry"),
    ("error_page 404 @f; location @f { return 203 $uri; }", "/none", 404, b"/none"),
    ("error_page 404 = @f; location @f { return 203 $uri; }", "/none", 203, b"/none"),
    ("error_page 404 https://elsewhere.test/$uri;", "/none", 302, None),
    ("error_page 404 =301 https://elsewhere.test/;", "/none", 301, None),
    ("error_page 403 404 500 /50x.html;", "/none", 404, b"sorry"),
    ("error_page 404 /also-missing;", "/none", 404, None),
    ("error_page 404 /50x.html; location /in/ { error_page 500 /x; return 404; }", "/in/", 404, None),
    ("error_page 405 =200 $uri;", "/a.txt", 200, b"text"),
    ("error_page 404 /e?code=4; location /e { return 200 $args; }", "/none", 404, b"code=4"),
])
def test_error_page(files, pages, target, status, body):
    method = "POST" if "405" in pages else "GET"
    response = get(files(pages).port, target, method)
    assert response.status == status
    assert body is None or response.body == body
    if "https" in pages:
        assert response["Location"].startswith("https://elsewhere.test/")


def test_limit_rate(files):
    one = files("limit_rate 1k;")
    begin = time.monotonic()
    assert get(one.port, "/file.bin").body == BODY
    assert 0.8 < time.monotonic() - begin


def test_limit_rate_of_a_proxied_response(balancer, origin):
    one = balancer(proxy([origin(answer(bytes(30_000)))], location="set $rate 20k; limit_rate $rate;"))
    begin = time.monotonic()
    assert len(get(one.port).body) == 30_000
    assert 0.4 < time.monotonic() - begin


def test_large_file_on_a_kept_connection(files):
    one = files()
    data = os.urandom(5_000_000)
    (one.dir / "html/big").write_bytes(data)
    with Client(one.port) as client:
        for _ in range(3):
            assert client.get("/big").body == data
            assert client.get("/a.txt").body == b"text"
