"""Answers that once differed from NGINX's in single fields."""

import email.utils
import os

import pytest

from support.client import get
from support.expect import balanza_only, here

STAMP = 1_700_000_000
DATE = email.utils.formatdate(STAMP, usegmt=True)


@pytest.fixture
def files(balancer):
    """A balancer whose html directory has two files of a known date."""
    def make(server="", http=""):
        one = balancer(f"{http} server {{ listen 127.0.0.1:PORT; root html; {server} }}", start=False)
        (one.dir / "html/d").mkdir()
        for name in ("a.txt", "error.txt", "d/index.html"):
            (one.dir / "html" / name).write_text("text")
            os.utime(one.dir / "html" / name, (STAMP, STAMP))
        (one.dir / "html/empty").mkdir()
        (one.dir / "html/empty.txt").write_text("")
        return one.start()
    return make


def test_a_file_that_is_an_error_page_has_no_date(files):
    one = files("error_page 404 /error.txt; error_page 403 =200 /error.txt;")
    response = get(one.port, "/none")
    assert (response.status, response.body) == (404, b"text")
    assert response["Last-Modified"] is None and response["Accept-Ranges"] is None
    response = get(one.port, "/empty/")
    assert response.status == 200 and response["Last-Modified"] == DATE


@pytest.mark.parametrize("method, target, status", [
    ("POST", "/a.txt", 405), ("POST", "/none", 404), ("POST", "/d", 301), ("POST", "/d/", 405), ("POST", "/empty/", 403),
    ("POST", "/none/", 404), ("PUT", "/none", 405), ("PUT", "/d/", 405), ("DELETE", "/empty/", 405),
])
def test_methods_of_files_that_are_there_or_not(files, method, target, status):
    assert get(files().port, target, method).status == status


def test_no_such_range_has_a_page(files):
    one = files("add_header X-Always 1 always; add_header X-Good 1; location /own/ { error_page 416 /error.txt; alias DIR/html/; }")
    response = get(one.port, "/a.txt", headers=[("Range", "bytes=100-")])
    assert (response.status, response["Content-Range"], response["Content-Type"]) == (416, "bytes */4", "text/html")
    assert b"416 Requested Range Not Satisfiable" in response.body and response["Last-Modified"] is None
    # NGINX sends the fields of the whole, too.
    assert response.all("X-Always") == here(["1"], ["1", "1"]) and response["X-Good"] == here(None, "1")
    own = get(one.port, "/own/a.txt", headers=[("Range", "bytes=100-")])
    assert (own.status, own.body, own["Content-Range"]) == (416, b"text", "bytes */4")


@pytest.mark.parametrize("field, status", [("bytes=0-", 200), ("bytes=-5", 200), ("bytes=5-", 416)])
def test_ranges_of_nothing(files, field, status):
    assert get(files().port, "/empty.txt", headers=[("Range", field)]).status == status


def test_add_header_replaces_what_there_is_one_of(files):
    one = files("location /new { add_header Last-Modified $arg_date; add_header ETag '\"x\"'; alias DIR/html/a.txt; } "
                "location /made { add_header Last-Modified now; return 200 x; }")
    response = get(one.port, "/new?date=then")
    assert response.all("Last-Modified") == ["then"] and response.all("ETag") == ['"x"']
    assert get(one.port, "/new").all("Last-Modified") == []
    assert get(one.port, "/made")["Last-Modified"] == "now"


@balanza_only("of NGINX Plus")
def test_a_name_of_ones_own(files):
    one = files("server_tokens \"Shop/$arg_v <1>\"; location /none { server_tokens ''; return 404; }"
                " location /off { server_tokens off; return 404; } location /build { server_tokens build; return 404; }")
    response = get(one.port, "/x?v=7")
    assert response["Server"] == "Shop/7 <1>" and b"<p>Shop/7 &lt;1&gt;</p>" in response.body
    response = get(one.port, "/none")
    assert response["Server"] is None and b"<p>" not in response.body
    assert get(one.port, "/off")["Server"] == "balanza" and b"<p>balanza</p>" in get(one.port, "/off").body
    assert get(one.port, "/build")["Server"].startswith("balanza/")
    assert get(one.port, "/x?v=%0d%0aInjected:1")["Server"] == "Shop/%0d%0aInjected:1 <1>"


def test_an_address_of_a_version_to_come_is_a_host(files):
    one = files("location = /host { return 200 $host; }")
    assert get(one.port, "/host", host="[v1.fe80::a+en1]:80").body == b"[v1.fe80::a+en1]"
