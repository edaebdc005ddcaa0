"""Requests: connections, bodies and their framing, what reaches the server."""

import threading
import time

import pytest

from support.balancer import wait_for
from support.client import Client, exchange, get
from support.expect import balanza_only, here
from support.origin import answer, proxy

pytestmark = pytest.mark.http1("HTTP/1 itself")


def echo(request, connection):
    """Answers with what came as the body."""
    return answer(request.body)


def test_keep_alive_serves_many_requests(balancer, origin):
    server = origin()
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for number in range(50):
            response = client.get(f"/{number}")
            assert (response.status, response.text) == (200, "ok\n")
    assert [request.target for request in server.requests] == [f"/{number}" for number in range(50)]
    assert len(server.connections) == 1, "the connection to the server was not kept"


def test_connection_close_is_obeyed(balancer, origin):
    one = balancer(proxy([origin()]))
    with Client(one.port) as client:
        response = client.get(headers=[("Connection", "close")])
        assert response.status == 200 and response["Connection"] == "close"
        assert client.closed()


def test_keepalive_requests_limits_a_connection(balancer, origin):
    one = balancer(proxy([origin()], server="keepalive_requests 3;"))
    with Client(one.port) as client:
        assert [client.get()["Connection"] == "close" for _ in range(3)] == [False, False, True]
        assert client.closed()


def test_keepalive_timeout_ends_an_idle_connection(balancer, origin):
    one = balancer(proxy([origin()], server="keepalive_timeout 1s 7s;"))
    with Client(one.port, timeout=30) as client:
        begin = time.monotonic()
        assert client.get()["Keep-Alive"] == "timeout=7"
        assert client.closed()
        # Not one of the defaults.
        assert 0.5 < time.monotonic() - begin < 20


def test_keepalive_timeout_of_zero_closes(balancer, origin):
    one = balancer(proxy([origin()], server="keepalive_timeout 0;"))
    with Client(one.port) as client:
        assert client.get()["Connection"] == "close"
        assert client.closed()


def test_the_location_that_answers_decides_about_the_connection(balancer, origin):
    rules = ("keepalive_requests 2; location /kept { keepalive_requests 100; return 200 kept; }"
             "location /once { keepalive_timeout 0; return 200 once; }"
             "location /hinted { keepalive_timeout 60s 9s; keepalive_requests 100; return 200 hinted; }"
             "location /page { keepalive_requests 100; error_page 404 /once; return 404; }")
    one = balancer(proxy([origin()], server=rules))
    with Client(one.port) as client:
        assert [client.get("/kept")["Connection"] for _ in range(5)] == ["keep-alive"] * 5
        assert client.get("/hinted")["Keep-Alive"] == "timeout=9"
        assert client.get("/")["Connection"] == "close"
        assert client.closed()
    for path in ("/once", "/page"):
        with Client(one.port) as client:
            assert client.get(path)["Connection"] == "close"
            assert client.closed()


def test_pipelined_requests_are_answered_in_order(balancer, origin):
    def handle(request, connection):
        # The first answers last, if a balancer sends them on side by side.
        time.sleep(0.1 if request.target == "/0" else 0)
        return answer(request.target + request.text)

    one = balancer(proxy([origin(handle)]))
    with Client(one.port) as client:
        parts = []
        for number in range(20):
            body = f"b{number}" if number % 3 == 1 else ""
            method = "POST" if body else "GET"
            length = f"Content-Length: {len(body)}\r\n" if body else ""
            parts.append(f"{method} /{number} HTTP/1.1\r\nHost: a\r\n{length}\r\n{body}")
        client.send("".join(parts))
        assert [client.response().text for _ in range(20)] == [
            f"/{number}" + (f"b{number}" if number % 3 == 1 else "") for number in range(20)]


def test_a_request_may_come_byte_by_byte(balancer, origin):
    server = origin(echo)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for byte in b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello":
            client.send(bytes([byte]))
            time.sleep(0.001)
        assert client.response().text == "hello"
    assert server.last.target == "/slow"


def test_http_1_0_client_gets_close(balancer, origin):
    one = balancer(proxy([origin()]))
    with Client(one.port) as client:
        response = client.send("GET / HTTP/1.0\r\n\r\n").response()
        assert (response.status, response.text) == (200, "ok\n")
        assert client.closed()


def test_http_1_0_client_may_keep_alive(balancer, origin):
    one = balancer(proxy([origin()]))
    with Client(one.port) as client:
        for _ in range(3):
            response = client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").response()
            assert response["Connection"] == "keep-alive"


def test_http_1_0_client_gets_no_chunks(balancer, origin):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    one = balancer(proxy([origin(chunked)]))
    with Client(one.port) as client:
        response = client.send("GET / HTTP/1.0\r\n\r\n").response()
        assert response["Transfer-Encoding"] is None
        assert response.body == b"abcde"


@pytest.mark.parametrize("size", [0, 1, 100, 16 * 1024, 200_000])
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_body_with_length(balancer, origin, size, buffering):
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    server = origin(echo)
    one = balancer(proxy([server], location=f"proxy_request_buffering {buffering};"))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get("/", "POST", body=body, headers=[] if body else [("Content-Length", "0")])
            assert response.body == body
    assert server.last.framing == "length" and server.last["Content-Length"] == str(size)


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_chunked_body_arrives_whole(balancer, origin, buffering):
    server = origin(echo)
    one = balancer(proxy([server], location=f"proxy_request_buffering {buffering};"))
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b"a" * 10, b"b" * 5000, b"c"))
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Client(one.port) as client:
        for _ in range(2):
            response = client.send(head + body + b"0\r\n\r\n").response()
            assert response.body == b"a" * 10 + b"b" * 5000 + b"c"
    # A buffered body has a known length; a streamed one may be chunked anew.
    assert server.last.framing in ("length", "length" if buffering == "on" else "chunked")
    assert len(server.last.all("Content-Length")) + len(server.last.all("Transfer-Encoding")) == 1


@pytest.mark.parametrize("extra", ["0\r\nX-Check: 1\r\nContent-Length: 9\r\n\r\n", "0;done\r\n\r\n"])
def test_trailers_of_a_request_do_not_become_fields(balancer, origin, extra):
    server = origin(echo)
    one = balancer(proxy([server]))
    response = exchange(one.port, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n" + extra)
    if response.status == 200:
        assert server.last.body == b"hi" and server.last["Content-Length"] == "2"
        assert "x-check" not in server.last.names()
    else:
        # A framing field among the trailers may be refused as well.
        assert response.status == 400 and "Content-Length" in extra and server.count == 0


def test_large_body_is_spilled_and_arrives(balancer, origin):
    server = origin(lambda request, connection: answer(str(len(request.body))))
    one = balancer(proxy([server], server="client_max_body_size 20m; client_body_buffer_size 16k;"))
    body = bytes(1 << 20) * 9 + b"x" * (1 << 20)
    # A worker that has served has all that it needs itself.
    assert get(one.port).status == 200
    before = one.rss()
    assert get(one.port, "/", "POST", body=body, timeout=40).text == str(10 << 20)
    assert server.last.body == body
    assert one.rss() - before < 8 << 20, "the body was held in memory"


def test_a_streamed_body_reaches_the_server_before_its_end(balancer, origin):
    server = origin(lambda request, connection: answer(request.body))
    one = balancer(proxy([server], location="proxy_request_buffering off;"))
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
        wait_for(lambda: server.connections and server.connections[0].seen.endswith(b"abc"), what="the first half")
        client.send("def")
        assert client.response().text == "abcdef"


def test_a_streamed_chunked_body_is_chunked_anew(balancer, origin):
    server = origin(echo)
    one = balancer(proxy([server], location="proxy_request_buffering off;"))
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n")
        wait_for(lambda: server.connections and b"abc" in server.connections[0].seen, what="the first chunk")
        client.send("2\r\nde\r\n0\r\n\r\n")
        assert client.response().text == "abcde"
    assert server.last.framing == "chunked" and b";x=y" not in server.connections[0].seen


def test_a_buffered_body_reaches_the_server_whole(balancer, origin):
    server = origin(echo)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
        time.sleep(0.2)
        assert server.connections == []
        assert client.send("def").response().text == "abcdef"


@pytest.mark.parametrize("size, status", [(1000, 200), (1001, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_client_max_body_size(balancer, origin, size, status, chunked):
    server = origin(echo)
    one = balancer(proxy([server], server="client_max_body_size 1000;"))
    if chunked:
        data = (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"%x\r\n%s\r\n0\r\n\r\n" % (size, b"x" * size))
    else:
        data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (size, b"x" * size)
    assert exchange(one.port, data).status == status
    assert server.count == (status == 200)


def test_body_too_large_is_refused_at_once(balancer, origin):
    one = balancer(proxy([origin()], server="client_max_body_size 1k;"))
    response = exchange(one.port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
    assert response.status == 413 and response["Connection"] == "close"


def test_expect_continue_is_answered(balancer, origin):
    server = origin(echo)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.request("POST", headers=[("Expect", "100-continue"), ("Content-Length", "5")])
        assert client.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        assert client.send("hello").response().text == "hello"
    assert server.last["Expect"] is None


def test_expect_continue_of_a_refused_body(balancer, origin):
    one = balancer(proxy([origin()], server="client_max_body_size 1k;"))
    with Client(one.port) as client:
        client.request("POST", headers=[("Expect", "100-continue"), ("Content-Length", "5000")])
        response = client.response()
        assert response.status == 413 and response.interim == []


def test_unread_body_does_not_become_a_request(balancer, origin):
    """A location that needs no body must still skip it."""
    server = origin()
    one = balancer(proxy([server], server="location /no { return 403; }"))
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    with Client(one.port) as client:
        client.get("/no", "POST", body=smuggled)
        client.send("GET /after HTTP/1.1\r\nHost: a\r\n\r\n")
        response = client.response()
        assert response is None or response.status == 200
    assert "/smuggled" not in [request.target for request in server.requests]


def test_fields_reach_the_server_but_not_hop_by_hop_ones(balancer, origin):
    server = origin()
    one = balancer(proxy([server]))
    get(one.port, "/a%20b?x=%31&y", host="Example.Test:8080", headers=[
        ("User-Agent", "t/1"), ("X-Two", "1"), ("X-Two", "2"), ("Accept", "*/*"), ("Connection", "keep-alive, X-Hop"),
        ("Keep-Alive", "timeout=5"), ("X-Hop", "secret"), ("TE", "trailers"), ("Proxy-Connection", "keep-alive"),
        ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")])
    request = server.last
    assert request.start == "GET /a%20b?x=%31&y HTTP/1.1"
    assert request.all("X-Two") == ["1", "2"] and request["User-Agent"] == "t/1"
    assert request["Host"] == "group", "the default is $proxy_host"
    assert request["Keep-Alive"] is None and request["Upgrade"] is None
    if here(True, False):
        # NGINX passes what Connection names; a proxy must not.
        assert not {"x-hop", "te", "proxy-connection", "http2-settings", "connection"} & set(request.names())


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "QUERY"])
def test_methods_pass(balancer, origin, method):
    server = origin()
    one = balancer(proxy([server]))
    response = get(one.port, "/", method)
    assert response.status == 200 and server.last.method == method
    assert response["Content-Length"] == "3"


def test_trace_is_refused(balancer, origin):
    server = origin()
    assert get(balancer(proxy([server])).port, "/", "TRACE").status == 405
    assert server.count == 0


@balanza_only("closes the connection without the check of the authority")
def test_connect_is_refused(balancer, origin):
    server = origin()
    response = exchange(balancer(proxy([server])).port, "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
    assert response.status in (400, 405) and server.count == 0


def test_absolute_form(balancer, origin):
    server = origin()
    one = balancer(proxy([server], location="proxy_set_header Host $host;"))
    response = exchange(one.port, "GET http://abs.test/x?y HTTP/1.1\r\nHost: abs.test\r\n\r\n")
    assert response.status == 200
    assert (server.last.target, server.last["Host"]) == ("/x?y", "abs.test")


def test_asterisk_form(balancer, origin):
    server = origin()
    one = balancer(proxy([server]))
    status = exchange(one.port, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").status
    assert status in (200, 400, 404, 405), "as the configuration has no place for it, any of these is sensible"
    assert exchange(one.port, "GET * HTTP/1.1\r\nHost: a\r\n\r\n").status == 400


def test_half_closed_client_is_answered(balancer, origin):
    def handle(request, connection):
        time.sleep(0.2)
        return answer("late")

    one = balancer(proxy([origin(handle)], location="proxy_ignore_client_abort on;"))
    with Client(one.port) as client:
        client.request(headers=[("Connection", "close")])
        client.finish()
        assert client.response().text == "late"


def test_aborting_client_is_logged_as_499(balancer, origin):
    def handle(request, connection):
        # Ends when the balancer closes the connection, because its client has gone.
        connection.reader.fill()
        connection.close()

    server = origin(handle)
    one = balancer(proxy([server]))
    client = Client(one.port)
    client.request()
    wait_for(lambda: server.in_flight == 1, what="the request at the server")
    client.reset()
    assert " 499 0 " in one.wait_log()[0]
    wait_for(lambda: server.in_flight == 0, what="the end of the server's connection")


def test_proxy_ignore_client_abort(balancer, origin):
    gone = threading.Event()
    server = origin(lambda *_: gone.wait(30) and answer("done"))
    one = balancer(proxy([server], location="proxy_ignore_client_abort on;",
                         http="log_format u '$upstream_status';", server="access_log logs/u.log u;"))
    client = Client(one.port)
    client.request()
    wait_for(lambda: server.in_flight == 1, what="the request at the server")
    client.reset()
    time.sleep(0.1)
    gone.set()
    assert one.wait_log(name="u.log") == ["200"], "the server's answer was not awaited"


def test_aborting_client_in_a_body(balancer, origin):
    server = origin(echo)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        time.sleep(0.05)
    assert " 400 " in one.wait_log()[0]
    assert server.count == 0
    assert get(one.port).status == 200


def test_empty_lines_before_a_request(balancer, origin):
    one = balancer(proxy([origin()]))
    assert exchange(one.port, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").status == 200


def test_a_client_that_says_nothing_costs_nothing(balancer, origin):
    server = origin()
    one = balancer(proxy([server]))
    for _ in range(3):
        Client(one.port).close()
    assert get(one.port).status == 200
    assert len(one.wait_log()) == 1, "a connection without a request was logged"
    assert server.count == 1
