"""What decides about single responses: expires, listings of directories, ranges, pages for old browsers."""

import calendar
import email.utils
import json
import os
import time

import pytest

from support.client import Client, get
from support.origin import answer, ending, proxy

STAMP = 1_700_000_000
DATE = email.utils.formatdate(STAMP, usegmt=True)


@pytest.fixture
def files(balancer):
    """A balancer whose html directory has files of a known date."""
    def make(server="", http=""):
        one = balancer(f"{http} server {{ listen 127.0.0.1:PORT; root html; {server} }}", start=False)
        html = one.dir / "html"
        for name, data in {"a.txt": b"text", "d/b & <c>.txt": b"xx", "d/large": bytes(20_000), "d/larger": bytes(3_000_000),
                           "d/" + "n" * 70: b"1", "d/q\"uote'": b"1", "d/äöü": b"1", "d/" + "ü" * 55: b"1",
                           "d/.hidden": b"1", "d/sub/x": b"1", "empty/sub/x": b"1", "odd/\"\\\x01": b"1"}.items():
            path = html / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(data)
        (html / "d/broken").symlink_to("nowhere")
        (html / "d/linked").symlink_to("sub")
        for directory, below, names in os.walk(html, topdown=False):
            for name in names + below:
                os.utime(os.path.join(directory, name), (STAMP, STAMP), follow_symlinks=False)
        return one.start()
    return make


def age(response):
    return response["Cache-Control"]


def until(response):
    """Seconds from the response's date to the end of its life."""
    dates = [calendar.timegm(email.utils.parsedate(response[name])) for name in ("Expires", "Date")]
    return dates[0] - dates[1]


@pytest.mark.parametrize("value, control, seconds", [
    ("1h", "max-age=3600", 3600), ("+1h", "max-age=3600", 3600), ("1d", "max-age=86400", 86400),
    ("-1h", "no-cache", -3600), ("0", "max-age=0", 0),
])
def test_expires_after_the_request(files, value, control, seconds):
    response = get(files(f"expires {value};").port, "/a.txt")
    assert (age(response), until(response)) == (control, seconds)


def test_expires_never_and_always(files):
    one = files("location /e { alias DIR/html/a.txt; expires epoch; } location /m { alias DIR/html/a.txt; expires max; }")
    epoch, never = get(one.port, "/e"), get(one.port, "/m")
    assert (epoch["Expires"], age(epoch)) == ("Thu, 01 Jan 1970 00:00:01 GMT", "no-cache")
    assert (never["Expires"], age(never)) == ("Thu, 31 Dec 2037 23:55:55 GMT", "max-age=315360000")


def test_expires_after_the_last_change(files):
    one = files("expires modified 1d; location /new { return 200 x; }")
    response = get(one.port, "/a.txt")
    assert response["Expires"] == email.utils.formatdate(STAMP + 86400, usegmt=True) and age(response) == "no-cache"
    # Without a change it is the request that counts.
    assert age(get(one.port, "/new")) == "max-age=86400"


def test_expires_at_a_time_of_the_day(files):
    one = files("expires @10h30m;")
    response = get(one.port, "/a.txt")
    end = calendar.timegm(email.utils.parsedate(response["Expires"]))
    local = time.localtime(end)
    assert (local.tm_hour, local.tm_min, local.tm_sec) == (10, 30, 0)
    assert age(response) == f"max-age={until(response)}" and 0 <= until(response) <= 25 * 3600


def test_expires_by_variables(files):
    one = files("expires $kept;", "map $arg_e $kept { default $arg_e; none off; } "
                "map $sent_http_content_type $by_type { default off; ~image/ max; }")
    assert age(get(one.port, "/a.txt?e=2h")) == "max-age=7200"
    assert age(get(one.port, "/a.txt?e=max")) == "max-age=315360000"
    for value in ("none", "off", "nonsense", "", "@25h", "modified"):
        response = get(one.port, f"/a.txt?e={value}")
        assert age(response) is None and response["Expires"] is None, value


def test_expires_of_a_media_type(files):
    one = files("expires $by_type; types { image/png png; }  location /i.png { alias DIR/html/a.txt; }",
                "map $sent_http_content_type $by_type { default off; ~image/ max; }")
    assert age(get(one.port, "/i.png")) == "max-age=315360000"
    assert age(get(one.port, "/a.txt")) is None


def test_expires_is_inherited_and_for_good_answers(files):
    one = files("expires 1h; location /off/ { expires off; return 200 x; } location /if { if ($arg_x) { expires 2h; } "
                "return 200 x; } location /moved { return 301 /a.txt; } location /no { return 403; }")
    assert age(get(one.port, "/a.txt")) == "max-age=3600"
    assert age(get(one.port, "/off/x")) is None
    assert age(get(one.port, "/moved")) == "max-age=3600"
    assert age(get(one.port, "/none")) is None and age(get(one.port, "/no")) is None
    fresh = get(one.port, "/a.txt", headers=[("If-Modified-Since", DATE)])
    assert fresh.status == 304 and age(fresh) == "max-age=3600"


def test_expires_replaces_what_a_server_says(balancer, origin):
    fields = [("Cache-Control", "private"), ("Expires", DATE), ("Cache-Control", "no-store"), ("X-Other", "1")]
    server = origin(answer("x", headers=fields))
    one = balancer(proxy([server], http="add_header Cache-Control immutable; expires 1h;"))
    response = get(one.port)
    assert response.all("Cache-Control") == ["max-age=3600", "immutable"]
    assert len(response.all("Expires")) == 1 and response["Expires"] != DATE and response["X-Other"] == "1"


LINES = [
    ('<a href="linked/">linked/</a>' + 44 * " ", "-"),
    ('<a href="sub/">sub/</a>' + 47 * " ", "-"),
    ('<a href="b%20%26%20%3Cc%3E.txt">b &amp; &lt;c&gt;.txt</a>' + 40 * " ", "2"),
    ('<a href="broken">broken</a>' + 45 * " ", "7"),
    ('<a href="large">large</a>' + 46 * " ", "20000"),
    ('<a href="larger">larger</a>' + 45 * " ", "3000000"),
    (f'<a href="{"n" * 70}">{"n" * 47}..&gt;</a> ', "1"),
    ('<a href="q%22uote%27">q&quot;uote\'</a>' + 44 * " ", "1"),
    ('<a href="%C3%A4%C3%B6%C3%BC">äöü</a>' + 48 * " ", "1"),
    (f'<a href="{"%C3%BC" * 55}">{"ü" * 47}..&gt;</a> ', "1"),
]


def expected(sizes, width):
    head = '<html>\r\n<head><title>Index of /d/</title></head>\r\n<body>\r\n<h1>Index of /d/</h1><hr><pre><a href="../">../</a>\r\n'
    lines = [f"{line}14-Nov-2023 22:13 {size:>{width}}\r\n" for (line, _), size in zip(LINES, sizes, strict=True)]
    return head + "".join(lines) + "</pre><hr></body>\r\n</html>\r\n"


@pytest.mark.http1("chunks")
def test_listing(files):
    one = files("autoindex on; charset utf-8;")
    response = get(one.port, "/d/")
    assert response.status == 200 and response["Content-Type"] == "text/html; charset=utf-8"
    assert response["Transfer-Encoding"] == "chunked" and response["Last-Modified"] is None
    assert response.body.decode() == expected([size for _, size in LINES], 19)
    head = get(one.port, "/d/", "HEAD")
    assert (head.status, head.body, head["Content-Length"]) == (200, b"", None)


def test_listing_with_rounded_sizes(files):
    one = files("autoindex on; autoindex_exact_size off; charset utf-8;")
    short = {"20000": "20K", "3000000": "3M"}
    sizes = [short.get(size) or ("-" if size == "-" else f"{size}") for _, size in LINES]
    text = get(one.port, "/d/").body.decode()
    lines = text.split("\r\n")[4:-3]
    for line, size in zip(lines, sizes, strict=True):
        ending = f"22:13 {size:>7}" if size[-1] in "KM" or size == "-" else f"22:13  {size:>6}"
        assert line.endswith(ending), line


def test_listing_by_bytes(files):
    line = next(line for line in get(files("autoindex on;").port, "/d/").body.split(b"\r\n") if "ü".encode() * 20 in line)
    assert b">" + "ü".encode() * 23 + "ü".encode()[:1] + b"..&gt;</a> 14-" in line


def test_listing_with_local_times(balancer, files):
    one = files("autoindex on; autoindex_localtime on;")
    # By the offset of now, as NGINX does.
    shown = time.strftime("%d-%b-%Y %H:%M", time.gmtime(STAMP + time.localtime().tm_gmtoff))
    assert shown.encode() in get(one.port, "/d/").body


def test_listing_as_json(files):
    one = files("autoindex on; autoindex_format json;")
    response = get(one.port, "/d/")
    assert response["Content-Type"] == "application/json"
    listed = json.loads(response.body)
    assert listed[0] == {"name": "linked", "type": "directory", "mtime": DATE}
    assert {"name": "large", "type": "file", "mtime": DATE, "size": 20000} in listed
    assert {"name": "broken", "type": "other", "mtime": DATE} in listed and len(listed) == len(LINES)
    assert response.body.startswith(b'[\r\n{ "name":"linked", "type":"directory", "mtime":"') and response.body.endswith(b' }\r\n]')
    assert json.loads(get(one.port, "/odd/").body)[0]["name"] == "\"\\\x01"


def test_listing_as_jsonp(files):
    one = files("autoindex on; autoindex_format jsonp;")
    response = get(one.port, "/empty/?callback=my.f_1")
    assert response["Content-Type"] == "application/javascript"
    assert response.body.startswith(b"/* callback */\r\nmy.f_1([\r\n{") and response.body.endswith(b"}\r\n]);")
    plain = get(one.port, "/empty/")
    assert plain["Content-Type"] == "application/json" and plain.body.endswith(b"}\r\n]")
    for bad in ("a%28", "a[0]", "a-b", "f" * 129):
        assert get(one.port, f"/empty/?callback={bad}").status == 400, bad


def test_listing_as_xml(files):
    response = get(files("autoindex on; autoindex_format xml;").port, "/d/")
    assert response["Content-Type"] == "text/xml; charset=utf-8"
    lines = response.body.decode().split("\r\n")
    assert lines[:2] == ['<?xml version="1.0"?>', "<list>"] and lines[-2:] == ["</list>", ""]
    assert '<directory mtime="2023-11-14T22:13:20Z">sub</directory>' in lines
    assert '<file mtime="2023-11-14T22:13:20Z" size="2">b &amp; &lt;c&gt;.txt</file>' in lines
    assert '<other mtime="2023-11-14T22:13:20Z">broken</other>' in lines


@pytest.mark.parametrize("target, method, status", [
    ("/none/", "GET", 404), ("/a.txt/", "GET", 404), ("/d/", "POST", 403), ("/d/", "PUT", 405), ("/d/", "GET", 200),
    ("/off/", "GET", 403), ("/d", "GET", 301), ("/index/", "GET", 200),
])
def test_what_is_listed(files, target, method, status):
    one = files("autoindex on; location /off/ { autoindex off; alias DIR/html/d/; } "
                "location /index/ { alias DIR/html/; index a.txt; }")
    response = get(one.port, target, method)
    assert response.status == status
    if target == "/index/":
        assert response.body == b"text"


def test_a_random_file_of_a_directory(files):
    one = files("location /r/ { alias DIR/html/three/; random_index on; default_type kind/$arg_x; } "
                "location /none/ { alias DIR/html/dirs/; random_index on; }")
    (one.dir / "html/three/sub").mkdir(parents=True)
    (one.dir / "html/dirs/sub").mkdir(parents=True)
    for name in ("1", "2", "3", ".4"):
        (one.dir / "html/three" / name).write_text(name)
    # One of three is missing after 60 times with a probability of 1e-10.
    with Client(one.port) as client:
        assert {client.get("/r/").body for _ in range(60)} == {b"1", b"2", b"3"}
    assert get(one.port, "/none/").status == 403


def test_empty_gif(files):
    one = files("location = /x.gif { empty_gif; }")
    response = get(one.port, "/x.gif")
    assert (response.status, response["Content-Type"], len(response.body)) == (200, "image/gif", 43)
    assert response.body.startswith(b"GIF89a\x01\0\x01\0") and response.body.endswith(b";")
    since = [("If-Modified-Since", response["Last-Modified"])]
    assert response["Last-Modified"] == "Mon, 28 Sep 1970 06:00:00 GMT"
    assert get(one.port, "/x.gif", headers=since).status == 304
    assert get(one.port, "/x.gif", "POST").status == 405


@pytest.mark.parametrize("most, field, status", [
    (None, "bytes=0-0,2-2", 206), (2, "bytes=0-0,2-2", 206), (1, "bytes=0-0,2-2", 200), (1, "bytes=0-0", 206),
    (0, "bytes=0-0", 200),
])
def test_a_bounded_number_of_ranges(files, most, field, status):
    one = files("" if most is None else f"max_ranges {most};")
    response = get(one.port, "/a.txt", headers=[("Range", field)])
    assert response.status == status
    accepts = {0: None}.get(most, "bytes")
    assert get(one.port, "/a.txt")["Accept-Ranges"] == accepts


@pytest.mark.http1("chunks and the end of the connection")
def test_without_chunks(balancer, origin):
    server = origin(ending(answer("body", length=False)))
    one = balancer(proxy([server], http="chunked_transfer_encoding off;"))
    with Client(one.port) as client:
        client.request()
        response = client.response()
        assert response["Transfer-Encoding"] is None and response["Connection"] == "close" and response.body == b"body"
        assert client.closed()


MSIE = [("User-Agent", "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1)")]
CHROME = [("User-Agent", "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36")]


def test_pages_long_enough_for_some_browsers(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; location /off { msie_padding off; return 403; } location / { return 404; } "
                   "location /moved { return 301 /x; } }")
    padded = b"<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n" * 6
    for agent in (MSIE, CHROME):
        assert get(one.port, "/", headers=agent).body.endswith(padded)
        assert b"padding" not in get(one.port, "/off", headers=agent).body
        assert b"padding" not in get(one.port, "/moved", headers=agent).body
    for agent in ("Opera MSIE 8.0 (x)", "curl", "MSIE 8"):
        assert b"padding" not in get(one.port, "/", headers=[("User-Agent", agent)]).body


def test_redirects_of_old_browsers(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; msie_refresh on; location / { return 302 \"/x?a='b\"; } "
                   "location /see { return 303 /x; } location /off { msie_refresh off; return 302 /x; } }")
    response = get(one.port, "/", headers=MSIE)
    assert (response.status, response["Location"], response["Content-Type"]) == (200, None, "text/html")
    assert b'content="0; URL=/x?a=%27b">' in response.body
    assert get(one.port, "/").status == 302
    assert get(one.port, "/see", headers=MSIE).status == 303 and get(one.port, "/off", headers=MSIE).status == 302
