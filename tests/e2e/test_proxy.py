"""proxy_pass and its family: what the server is asked, and what of its answer the client gets."""

import os
import socket
import tempfile
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.expect import balanza_only, here
from support.holding import gated
from support.origin import answer, proxy, upstream

# location, what proxy_pass has after the address, request, what the server is asked
MAPPINGS = [
    ("/", "", "/a%20b/../c?x=1", "/a%20b/../c?x=1"), ("/", "/", "/a%20b/../c?x=1", "/c?x=1"),
    ("/name/", "/remote/", "/name/x", "/remote/x"), ("/name/", "/", "/name/x", "/x"),
    ("/name/", "/remote", "/name/x", "/remotex"), ("/name", "/remote", "/name/x", "/remote/x"),
    ("/name/", "", "/name/x", "/name/x"), ("/name/", "/r/", "/name/a%20b%2fc", "/r/a%20b/c"),
    ("/name/", "/r/", "/name/%3F%23%25", "/r/%3F%23%25"), ("/name/", "/r/", "/name//d///e", "/r/d/e"),
    ("/name/", "/r/", "/name/?q=%20", "/r/?q=%20"), ("/name/", "/r?fixed=1", "/name/x?y=2", "/r?fixed=1x?y=2"),
    ("= /one", "/two", "/one?z", "/two?z"), ("/name/", "/r/", "/name/./a/b/../c", "/r/a/c"),
    ("~ ^/re/(.*)$", "", "/re/a?b", "/re/a?b"), ("/", "/", "/%7Eann;v=1,2", "/~ann;v=1,2"),
    ("/n/", "/r/", "/n/%C3%BC", "/r/%C3%BC"), ("/", "", "//double//", "//double//"),
]


@pytest.mark.parametrize("location, uri, target, asked", MAPPINGS)
def test_uri_of_proxy_pass(balancer, origin, location, uri, target, asked):
    server = origin()
    one = balancer(f"server {{ listen 127.0.0.1:PORT; location {location} "
                   f"{{ proxy_pass http://{server.server}{uri}; }} }}")
    assert get(one.port, target).status == 200
    if "fixed" in uri:
        # The result is odd in NGINX too; only that the replacement is used matters.
        assert server.last.target.startswith("/r?fixed=1")
    elif "%C3" in asked:
        assert server.last.target in (asked, "/r/ü".encode().decode("latin-1"))
    else:
        assert server.last.target == asked


@pytest.mark.parametrize("url, target, asked, host", [
    ("http://$arg_to", "/x?to=group", "/x?to=group", "group"),
    ("http://$arg_to$uri", "/x/../y?to=group", "/y", "group"),
    ("http://$arg_to/fixed", "/x?to=group", "/fixed", "group"),
    ("http://group$request_uri", "/x%20y?b", "/x%20y?b", "group"),
    ("http://$arg_to", "/?to=SERVER", "/?to=SERVER", "SERVER"),
    ("$scheme://group/$1/$name", "/abc-def", "/abc/def", "group"),
])
def test_variables_in_proxy_pass(balancer, origin, url, target, asked, host):
    server = origin()
    one = balancer(f"{upstream([server])} server {{ listen 127.0.0.1:PORT;"
                   f"location ~ ^/([a-z]*)(-(?<name>[a-z]+))? {{ proxy_pass {url}; }} }}")
    target, asked, host = (text.replace("SERVER", server.server) for text in (target, asked, host))
    assert get(one.port, target).status == 200
    request = server.requests[0]
    assert request.target == asked
    assert request["Host"] == host


def test_variable_that_names_nothing(balancer, origin):
    one = balancer(proxy([origin()], server="location /v { proxy_pass http://$arg_to; }"))
    assert get(one.port, "/v?to=not-a-group").status in (500, 502)
    assert get(one.port, "/v").status == 500
    one.wait_error("no resolver defined|no host|invalid URL prefix|not found")


def test_unix_socket(balancer, origin):
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        server = origin(unix=f"{directory}/back.sock")
        os.chmod(server.unix, 0o777)
        one = balancer(f"{upstream([server])} server {{ listen 127.0.0.1:PORT;"
                       "location / { proxy_pass http://group; }"
                       f"location /direct/ {{ proxy_pass http://unix:{server.unix}:/under/; }} }}")
        assert get(one.port).status == 200 and server.last["Host"] == "group"
        assert get(one.port, "/direct/x").status == 200
        assert (server.last.target, server.last["Host"]) == ("/under/x", "localhost")


def test_proxy_set_header(balancer, origin):
    server = origin()
    one = balancer(proxy([server], server="proxy_set_header X-Server outer;", location=(
        "proxy_set_header Host $http_host; proxy_set_header X-Real $remote_addr; proxy_set_header Accept-Encoding '';"
        'proxy_set_header X-Mixed "a-$request_method-$arg_q"; proxy_set_header X-Dup 1; proxy_set_header X-Dup 2;')))
    get(one.port, "/?q=7", host="Client.test:99", headers=[
        ("Accept-Encoding", "gzip"), ("X-Real", "forged"), ("x-mixed", "forged"), ("Other", "kept")])
    request = server.last
    assert request["Host"] == "Client.test:99" and request.all("X-Real") == ["127.0.0.1"]
    assert request["Accept-Encoding"] is None and request.all("X-Mixed") == ["a-GET-7"]
    assert request.all("X-Dup") == ["1", "2"] and request["Other"] == "kept"
    assert request["X-Server"] is None, "the inner level replaces the outer one"


def test_inherited_proxy_set_header(balancer, origin):
    server = origin()
    one = balancer(proxy([server], server="proxy_set_header X-Server outer;"))
    get(one.port)
    assert server.last["X-Server"] == "outer" and server.last["Host"] == "group"


@pytest.mark.parametrize("options, method, body, headers", [
    ("proxy_method PUT;", "PUT", b"data", True), ("proxy_method $arg_m;", "DELETE", b"data", True),
    ('proxy_set_body "new $request_method";', "POST", b"new POST", True),
    ("proxy_pass_request_body off; proxy_set_header Content-Length '';", "POST", b"", True),
    ("proxy_pass_request_headers off;", "POST", b"data", False),
])
def test_request_can_be_changed(balancer, origin, options, method, body, headers):
    server = origin()
    one = balancer(proxy([server], location=options))
    with Client(one.port) as client:
        for _ in range(2):
            assert client.get("/?m=DELETE", "POST", body=b"data", headers=[("X-A", "1")]).status == 200
    assert (server.last.method, server.last.body) == (method, body)
    assert server.last["X-A"] == ("1" if headers else None)
    assert server.last["Content-Length"] == (str(len(body)) if body else None)


@pytest.mark.parametrize("options, location, expected", [
    ("", "http://group/app/x", "http://example.test:PORT/name/x"), ("", "http://group/other", "http://group/other"),
    ("", "/relative", "/relative"), ("proxy_redirect off;", "http://group/app/x", "http://group/app/x"),
    ("proxy_redirect default;", "http://group/app/x", "http://example.test:PORT/name/x"),
    ("proxy_redirect http://group/ https://front.test/;", "http://group/y", "https://front.test/y"),
    ("proxy_redirect http://$proxy_host/ /base/;", "http://group/y", "http://example.test:PORT/base/y"),
    ("proxy_redirect ~^http://([^/]+)/(.+)$ http://front/$1/$2;", "http://b:81/c/d", "http://front/b:81/c/d"),
    ("proxy_redirect ~*^HTTP://GROUP(.*)$ $1;", "http://group/z", "http://example.test:PORT/z"),
    ("proxy_redirect http://a/ http://A/; proxy_redirect http://b/ http://B/;", "http://b/q", "http://B/q"),
    ("absolute_redirect off;", "/relative", "/relative"),
])
def test_proxy_redirect(balancer, origin, options, location, expected):
    server = origin(answer("", "302 Found", [("Location", location), ("Refresh", "3; url=http://group/app/r")]))
    one = balancer(f"{upstream([server])} server {{ listen 127.0.0.1:PORT; location /name/ "
                   f"{{ proxy_pass http://group/app/; {options} }} }}")
    response = get(one.port, "/name/")
    assert (response.status, response["Location"]) == (302, expected.replace("PORT", str(one.port)))
    if "absolute" in options or options in ("", "proxy_redirect default;"):
        assert response["Refresh"] == "3; url=/name/r"


def test_proxy_hide_and_pass_header(balancer, origin):
    server = origin(answer("x", headers=[("X-Hidden", "1"), ("X-Shown", "2"), ("Server", "s/1"),
                                         ("Date", "Thu, 01 Jan 1970 00:00:01 GMT"), ("X-Accel-Thing", "3")]))
    one = balancer(proxy([server], server="location /all { proxy_pass http://group; proxy_pass_header Server;"
                         "proxy_pass_header Date; }", location="proxy_hide_header X-Hidden; proxy_hide_header x-none;"))
    response = get(one.port)
    assert response["X-Hidden"] is None and response["X-Shown"] == "2" and response["Server"] != "s/1"
    response = get(one.port, "/all")
    assert response["X-Hidden"] == "1" and response.all("Server") == ["s/1"]
    assert response.all("Date") == ["Thu, 01 Jan 1970 00:00:01 GMT"]


def test_x_accel_redirect(balancer, origin):
    server = origin(lambda request, connection: answer(
        "", headers=[("X-Accel-Redirect", "/files/in.txt"), ("Content-Type", "x/y"), ("Content-Disposition", "d")])
        if request.target == "/" else answer("no"))
    one = balancer(proxy([server], server="location /files/ { internal; alias html/; }"), start=False)
    (one.dir / "html/in.txt").write_text("from the disk")
    one.start()
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.status, response.text, response["Content-Type"]) == (200, "from the disk", "x/y")
            assert response["Content-Disposition"] == "d"


def test_intercept_errors(balancer, origin):
    server = origin(answer("server's page", "503 Busy", [("Retry-After", "5")]))
    one = balancer(proxy([server], server="error_page 503 /sorry; location = /sorry { return 200 ours; }"
                         "location /plain { proxy_pass http://group; }", location="proxy_intercept_errors on;"))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.status, response.text) == (503, "ours")
            response = client.get("/plain")
            assert (response.status, response.text, response["Retry-After"]) == (503, "server's page", "5")


def test_balancers_own_errors_have_pages(balancer, origin):
    server = origin()
    server.stop()
    one = balancer(proxy([server], server="error_page 502 =200 @down; location @down { return 200 maintenance; }"))
    assert get(one.port).text == "maintenance"


def test_fallback_to_another_group(balancer, origin):
    dead, alive = origin(), origin("alive")
    dead.stop()
    one = balancer(f"{upstream([dead])} server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://group;"
                   f"error_page 502 504 = @other; }} location @other {{ proxy_pass http://{alive.server}; }} }}")
    response = get(one.port, "/x?y", "POST", body=b"kept")
    assert (response.status, response.text) == (200, "alive")
    # An error page is fetched with GET unless it is a named location.
    assert (alive.last.method, alive.last.target, alive.last.body) == ("POST", "/x?y", b"kept")


def test_proxy_bind(balancer, origin):
    seen = []

    def handle(request, connection):
        seen.append(connection.sock.getpeername()[0])
        return answer("x")

    server = origin(handle)
    one = balancer(proxy([server], location="proxy_bind 127.0.3.4;", server=(
        "location /v { proxy_pass http://group; proxy_bind $arg_from; } location /off { proxy_pass http://group; "
        "proxy_bind off; }")))
    for target in ("/", "/v?from=127.0.5.6", "/off"):
        get(one.port, target, headers=[("Connection", "close")])
        server.hang_up()
        time.sleep(0.05)
    assert seen == ["127.0.3.4", "127.0.5.6", "127.0.0.1"]


def test_named_server_and_default_port(balancer, origin):
    server = origin(port=None)
    one = balancer(f"server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://localhost:{server.port}; }} }}")
    assert get(one.port).status == 200
    assert server.last["Host"] == f"localhost:{server.port}"


@pytest.mark.parametrize("rate", ["50k", pytest.param("$r", marks=balanza_only("takes no variables before 1.27"))])
def test_proxy_limit_rate(balancer, origin, rate):
    one = balancer(proxy([origin(answer(bytes(200_000)))], location=(
        f"set $r 50k; proxy_limit_rate {rate}; proxy_buffer_size 4k; proxy_buffers 4 4k;")))
    begin = time.monotonic()
    assert len(get(one.port).body) == 200_000
    assert time.monotonic() - begin > here(2.5, 1.5)


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_proxy_limit_rate_holds_from_the_first_byte(balancer, origin, framing):
    """A body that comes with the head. NGINX passes on what fits into proxy_buffer_size."""
    body, fields = bytes(6000), []
    if framing == "chunks":
        body, fields = b"1770\r\n" + body + b"\r\n0\r\n\r\n", [("Transfer-Encoding", "chunked")]
    one = balancer(proxy([origin(answer(body, headers=fields, length=framing == "length"))],
                         location="proxy_limit_rate 2000; proxy_buffer_size 4k; proxy_buffers 4 4k;"))
    begin = time.monotonic()
    assert get(one.port).body == bytes(6000)
    assert time.monotonic() - begin > here(1.8, 0.6)


def test_x_accel_limit_rate_goes_before_limit_rate(balancer, origin):
    """limit_rate_after holds for it too: else this would take a minute."""
    server = origin(answer(bytes(60_000), headers=[("X-Accel-Limit-Rate", "1000")]))
    one = balancer(proxy([server], location="limit_rate 1; limit_rate_after 59000;", server=(
        "location /paced { proxy_pass http://group; limit_rate_after 57500; }")))
    begin = time.monotonic()
    assert len(get(one.port, timeout=20).body) == 60_000
    assert time.monotonic() - begin < 15
    begin = time.monotonic()
    assert len(get(one.port, "/paced", timeout=20).body) == 60_000
    assert 0.8 < time.monotonic() - begin < 15


@pytest.mark.parametrize("option", ["on", "off"])
def test_proxy_socket_keepalive(balancer, origin, option):
    server = origin()
    one = balancer(proxy([server], location=f"proxy_socket_keepalive {option};"))
    with Client(one.port) as client:
        assert client.get().status == 200
        peer = server.connections[0].sock.getpeername()[1]
        with open("/proc/net/tcp") as table:
            rows = [line.split() for line in table if f":{peer:04X} 0100007F:{server.port:04X} 01 " in line]
    # By inode: a line may be repeated while others connect.
    rows = list({row[9]: row for row in rows}.values())
    # The sixth column begins with the timer: 02 is that of SO_KEEPALIVE.
    assert len(rows) == 1 and (rows[0][5].startswith("02:") == (option == "on"))


def test_keepalive_to_servers_is_bounded(balancer, origin):
    [server], gate = gated(1)
    one = balancer(proxy([server], head="keepalive 2;"))
    clients = [Client(one.port).request() for _ in range(8)]
    wait_for(lambda: server.in_flight == 8, what="eight requests at the server")
    gate.set()
    assert all(client.response().status == 200 for client in clients)
    kept = lambda: sum(alive(connection) for connection in server.connections)
    wait_for(lambda: kept() <= 2, what="the end of all connections but two")
    time.sleep(0.2)
    assert len(server.connections) == 8
    assert kept() == 2


def alive(connection):
    """Whether the balancer still holds this connection."""
    try:
        return connection.open and connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01"
    except OSError:
        # Its thread has just closed it.
        return False


@pytest.mark.parametrize("options, pauses, connections", [
    ("keepalive_requests 2;", [0] * 6, 3), ("keepalive_timeout 200ms;", [0.4] * 6, 6),
    # The request that finds a connection too old is the last one on it.
    ("keepalive_time 2s;", [2.1, 0, 0], 2)])
def test_keepalive_limits_of_an_upstream(balancer, origin, options, pauses, connections):
    server = origin()
    one = balancer(proxy([server], head=f"keepalive 4; {options}"))
    with Client(one.port) as client:
        for pause in pauses:
            assert client.get().status == 200
            time.sleep(pause)
    assert len(server.connections) == connections
