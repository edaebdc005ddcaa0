"""`early_hints`: interim responses of servers go to clients that may get them."""

import pytest

from support.client import Client, get
from support.expect import balanza_only
from support.http2 import Http2Client
from support.http2_server import Http2Server, upstream
from support.origin import answer

pytestmark = balanza_only("it has no early_hints")

HINTS = ("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.js>\r\nServer: x\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
         "Set-Cookie: a=b\r\n\r\n")
LINKS = [("Link", "</a.css>; rel=preload"), ("Link", "</b.js>"), ("Set-Cookie", "a=b")]


def lower(fields):
    return [(name.lower(), value) for name, value in fields]


@pytest.fixture
def hinting(balancer, origin):
    """A balancer in front of a server that sends hints first."""
    def make(setting, hints=HINTS, final=None, location="", http=""):
        def handle(request, connection):
            connection.send(hints)
            return final or answer("body", headers=[("X-Final", "1")])
        server = origin(handle)
        return balancer(f"""{http} log_format h '$status $upstream_status $upstream_http_link $bytes_sent';
            server {{ listen 127.0.0.1:PORT; http2 on; access_log logs/access.log h; {setting}
            location / {{ proxy_pass http://{server.server}; {location} }} }}""")
    return make


@pytest.mark.http1("its interim responses")
def test_hints_over_http1(hinting):
    one = hinting("early_hints $http_sec_fetch_mode;")
    with Client(one.port) as client:
        found = client.get(headers={"Sec-Fetch-Mode": "navigate"})
        assert found.text == "body" and found["X-Final"] == "1" and found["Link"] is None
        [interim] = found.interim
        assert (interim.start, interim.headers) == ("HTTP/1.1 103 Early Hints", LINKS)
        # The connection goes on, and who may not get hints gets none.
        for value in ("0", ""):
            assert client.get(headers={"Sec-Fetch-Mode": value}).interim == []
        assert client.get().interim == []
    assert get(one.port, headers={"Sec-Fetch-Mode": "navigate"}, version="HTTP/1.0").interim == []
    lines = [line.split(" ") for line in one.wait_log(5)]
    assert all(line[:3] == ["200", "200", "-"] for line in lines)
    # The bytes of the hints were sent.
    assert int(lines[0][3]) - int(lines[1][3]) == len("HTTP/1.1 103 Early Hints\r\n\r\n") + sum(len(a + b) + 4 for a, b in LINKS)


@pytest.mark.http1("compares with HTTP/1")
def test_hints_over_http2(hinting):
    one = hinting("early_hints $http2;")
    with Http2Client(one.port) as client:
        for _ in range(2):
            found = client.get()
            assert found.text == "body" and found["x-final"] == "1"
            [interim] = found.interim
            assert interim.status == 103 and interim.headers == lower(LINKS)
    # The condition holds for HTTP/2 only.
    assert get(one.port).interim == []


def test_without_the_directive(hinting):
    one = hinting("")
    assert get(one.port).interim == []
    with Http2Client(one.port) as client:
        found = client.get()
        assert found.text == "body" and found.interim == []


def test_what_is_no_hint(hinting):
    one = hinting("early_hints 1;", hints="HTTP/1.1 102 Processing\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
    found = get(one.port)
    assert found.text == "body" and found.interim == []


@pytest.mark.http1("the spelling of names")
def test_several_and_hidden(hinting):
    one = hinting("early_hints 0 1;", hints=HINTS + HINTS, location="proxy_hide_header link;")
    assert [interim.headers for interim in get(one.port).interim] == [[("Set-Cookie", "a=b")]] * 2
    endless = hinting("early_hints 1;", hints=HINTS * 100)
    found = get(endless.port)
    assert found.status == 502 and len(found.interim) == 16


def test_hints_of_a_server_of_http2(balancer):
    def handle(stream):
        stream.head(103, [("link", "</a.css>"), ("x-a", "b")])
        stream.answer(b"body")
    one = Http2Server(handle)
    b = balancer(upstream([one]) + "server { listen 127.0.0.1:PORT; http2 on; early_hints $arg_h;"
                 " location / { proxy_http_version 2; proxy_pass http://group; } }")
    found = get(b.port, "/?h=1")
    assert found.text == "body" and [interim.headers for interim in found.interim] == [[("link", "</a.css>"), ("x-a", "b")]]
    assert get(b.port, "/").interim == []
    with Http2Client(b.port) as client:
        found = client.get("/?h=1")
        assert found.text == "body" and [interim["link"] for interim in found.interim] == ["</a.css>"]


def test_part_of_a_page(balancer, origin):
    """A subrequest's hints go nowhere."""
    def handle(_, connection):
        connection.send(HINTS)
        return answer("part")
    part = origin(handle)
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; early_hints 1; root html; location / {{ add_after_body /p; default_type text/html; }}
        location /p {{ proxy_pass http://{part.server}; }} }}""", start=False)
    (one.dir / "html/a.html").write_text("page ")
    one.start()
    found = get(one.port, "/a.html")
    assert found.text == "page part" and found.interim == []
