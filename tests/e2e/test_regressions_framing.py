"""Framing that once went wrong: bodies where none belong, parts taken for the whole, ends that never come."""

import threading
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.expect import balanza_only, here
from support.origin import answer, proxy, upstream

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
# The request that follows on the same connection: its answer shows whether the first one ended where it should.
SECOND = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n"
SECOND_LOCATION = "location = /second { return 200 second; }\n"


def both(client, first, method="GET"):
    """Sends a request and the second one behind it; returns both answers."""
    client.send(first + SECOND)
    return client.response(method), client.response()


WHOLE = b"0123456789ABCDEFGHIJabcdefghij"


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("way", ["error page", "next server"])
def test_part_of_a_streamed_body_is_not_sent_elsewhere(balancer, origin, way, coding):
    """The first server dies after ten bytes, the other one must not get the rest as if it were all."""
    died = threading.Event()

    def die(connection):
        connection.reader.until(b"\r\n\r\n")
        while b"0123456789" not in connection.seen and connection.reader.fill():
            pass
        connection.close()
        died.set()

    first, other = origin(die, raw=True), origin()
    groups = upstream([first], name="first") + upstream([other], name="other") + upstream(
        [first, other], name="two", parameters=["", "backup"])
    page = "error_page 502 504 @other;" if way == "error page" else ""
    group = "first" if way == "error page" else "two"
    one = balancer(groups + "server { listen 127.0.0.1:PORT; proxy_read_timeout 1s;"
                   f"location / {{ proxy_request_buffering off; proxy_pass http://{group}; {page} }}"
                   "location @other { proxy_pass http://other; } }")
    field = "Content-Length: 30" if coding == "length" else "Transfer-Encoding: chunked"
    parts = [WHOLE[:10], WHOLE[10:]]
    if coding == "chunked":
        parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
        parts[1] += b"0\r\n\r\n"
    with Client(one.port) as client:
        client.send(f"PUT / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n".encode() + parts[0])
        assert died.wait(30)
        time.sleep(0.1)
        try:
            client.send(parts[1])
            response = client.response()
        except ConnectionError:
            response = None
    assert all(request.body == WHOLE for request in other.requests), [one.body for one in other.requests]
    assert response is None or response.status in ((200,) if other.requests else (502, 504)), response.start


@pytest.mark.parametrize("data", [answer("body"), CHUNKED + b"4\r\nbody\r\n0\r\n\r\n"], ids=["length", "chunked"])
def test_head_that_became_a_get_has_no_body(balancer, origin, data):
    server = origin(data)
    one = balancer(proxy([server], location="proxy_method GET;", server=SECOND_LOCATION))
    with Client(one.port) as client:
        for _ in range(2):
            head, second = both(client, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD")
            assert head.status == 200 and second.text == "second"
            # The length of what a GET would bring, or none.
            assert head["Content-Length"] in (None, "4")
    assert server.last.method == "GET"


@balanza_only("promises the body of a HEAD")
@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", CHUNKED], ids=["length", "chunked"])
def test_get_that_became_a_head_is_complete(balancer, origin, data):
    server = origin(lambda request, connection: data)
    one = balancer(proxy([server], location="proxy_method HEAD;", server=SECOND_LOCATION))
    with Client(one.port) as client:
        response = client.get()
        assert response.status in (200, 502)
        # Read by its own framing: a promise of bytes that never come would have ended in an error.
        assert response.status == 502 or response.body == b""
    with Client(one.port) as client:
        response, second = both(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert response.body == b"" or response.status == 502
        assert second is None or second.text == "second"
    assert server.last.method == "HEAD"


PAGES = {
    "return": 'location = /page { return 200 "BODY"; }',
    "file": "location = /page { alias html/page.txt; }",
    "proxied with a length": "location = /page { proxy_pass http://group/length; }",
    "proxied in chunks": "location = /page { proxy_pass http://group/chunked; }",
    "direct": 'location = /e/direct { return 204 "BODY"; }',
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_status_204_has_no_body(balancer, origin, page, method):
    def handle(request, connection):
        data = CHUNKED + b"4\r\nBODY\r\n0\r\n\r\n" if request.target == "/chunked" else answer("BODY")
        return data[:data.index(b"\r\n\r\n") + 4] if request.method == "HEAD" else data

    server = origin(handle)
    one = balancer(proxy([server], server=f"{SECOND_LOCATION}{PAGES[page]}"
                         "location /e/ { error_page 404 =204 /page; return 404; }"), start=False)
    (one.dir / "html/page.txt").write_text("BODY")
    one.start()
    with Client(one.port) as client:
        for _ in range(2):
            response, second = both(client, f"{method} /e/{page.split()[0]} HTTP/1.1\r\nHost: a\r\n\r\n", method)
            assert response.status == 204
            assert response["Content-Length"] is None and response["Transfer-Encoding"] is None
            assert (second.status, second.text) == (200, "second")


@pytest.mark.parametrize("equals", ["", "=200", "=410", "="])
def test_error_page_that_was_not_modified(balancer, origin, equals):
    """The client's condition reaches the page's server, whose answer has no body; the client's answer has an end."""
    server = origin(lambda request, connection: b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
                    if request["If-None-Match"] else answer("page"))
    one = balancer(proxy([server], server=f"{SECOND_LOCATION} location /none {{ error_page 404 {equals} /page;"
                         "return 404; }"))
    with Client(one.port) as client:
        for _ in range(2):
            response, second = both(client, 'GET /none HTTP/1.1\r\nHost: a\r\nIf-None-Match: "a"\r\n\r\n')
            assert response.body == b"" or b"<html>" in response.body, "a page without a server's body, or our own"
            assert (second.status, second.text) == (200, "second")


@balanza_only("keeps the connection")
@pytest.mark.parametrize("status", [403, 404])
def test_unasked_body_of_an_expecting_client(balancer, status):
    """A `return` with a text asks for the body, an error does not. Whether the body follows is open, so the connection cannot be used again, and the answer says so."""
    one = balancer(f"server {{ listen 127.0.0.1:PORT; location / {{ return {status}; }} }}")
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        response = client.response()
        assert response.status == status and response.interim == []
        assert response["Connection"] == "close" and client.closed()


@balanza_only("sends the head before it looks at the body")
@pytest.mark.parametrize("body", ["zz\r\n", "-1\r\n", "\r\n", "4;\0\r\nabcd\r\n", "4\nabcd\n0\n\n"])
def test_malformed_first_chunk(balancer, origin, body):
    one = balancer(proxy([origin(CHUNKED + body.encode())]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert response.status == 502 and response["Transfer-Encoding"] is None


def head_of(size, length):
    """The head of a POST with exactly this many bytes, and a Content-Length of one digit."""
    lines = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n"
    while size - len(lines) - 2 > 4000:
        lines += f"X-Fill: {'v' * 1990}\r\n"
    lines += f"X-Rest: {'v' * (size - len(lines) - 2 - len('X-Rest: ') - 2)}\r\n\r\n"
    assert len(lines) == size
    return lines


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("limits", [
    pytest.param("", id="default"),
    pytest.param("client_header_buffer_size 1k; large_client_header_buffers 2 4k;", id="small"),
    # More than one of Balanza's buffers holds, which is then the limit.
    pytest.param("large_client_header_buffers 4 32k;", id="large"),
])
def test_body_behind_the_largest_head(balancer, origin, limits, buffering):
    server = origin(lambda request, connection: answer(request.body))
    one = balancer(proxy([server], server=limits, location="proxy_pass_request_headers off;"
                         f"proxy_set_header Content-Length $content_length; proxy_request_buffering {buffering};"))

    def accepted(size):
        with Client(one.port) as client:
            return client.send(head_of(size, 0)).response().status == 200

    good, bad = 2000, 200_000
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if accepted(middle) else (good, middle)
    for size in (good, good - 1, good - 3):
        for pause in (0, 0.05):
            with Client(one.port) as client:
                client.send(head_of(size, 5) + ("" if pause else "hello"))
                if pause:
                    time.sleep(pause)
                    client.send("hello")
                response = client.response()
                assert response is not None and (response.status, response.text) == (200, "hello"), (size, pause)
                assert client.get().status == 200


@balanza_only("passes a 101 that comes too early")
@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
def test_switch_before_the_end_of_the_body(balancer, origin, framing):
    """What the client sends afterwards would be body for one side and the new protocol for the other."""
    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(SWITCH)
        connection.reader.to_end()
        connection.close()

    server = origin(handle, raw=True)
    one = balancer(proxy([server], location="proxy_request_buffering off; proxy_set_header Upgrade $http_upgrade;"
                         'proxy_set_header Connection "upgrade";'))
    with Client(one.port) as client:
        client.send(f"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n{framing}\r\n\r\n")
        client.send("5\r\nhello\r\n" if "chunked" in framing else "hello")
        assert client.response().status == 502
    wait_for(lambda: not server.connections[0].open, what="the end of the server's connection")


@pytest.mark.parametrize("target", ["/a#b", "/a?b#c", "http://example.test/a#b", "/%41#/../x"])
def test_fragment_in_the_target(balancer, origin, target):
    """The request is served, and a server of Balanza sees what the location was chosen by."""
    server = origin()
    one = balancer(proxy([server], server="location = /local { return 200 $uri; }"))
    assert get(one.port, "/local#part").body == b"/local"
    assert get(one.port, target).status == 200
    sent = target.removeprefix("http://example.test")
    assert server.requests[0].target == here(sent.split("#")[0], sent)


@pytest.mark.parametrize("head", [
    b"GET /a HTTP/1.1\nHost: h\nX: y\n\n", b"GET /a HTTP/1.1\nHost: h\r\nX: y\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", b"\nGET /a HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n",
])
def test_lines_that_end_in_lf(balancer, origin, head):
    server = origin()
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.send(head * 2)
        assert [client.response().status for _ in range(2)] == [200, 200]
    assert [request["X"] for request in server.requests] == ["y", "y"]


@balanza_only("a recipient that knows only CRLF would see another end, or no body")
@pytest.mark.parametrize("head", [
    b"GET /a HTTP/1.1\r\nHost: h\n\r\n", b"GET /a HTTP/1.1\r\nHost: h\r\n\n",
    b"POST /a HTTP/1.1\r\nHost: h\nContent-Length: 1\r\n\r\nx",
    b"POST /a HTTP/1.1\r\nHost: h\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
])
def test_mixed_line_ends_that_matter(balancer, origin, head):
    server = origin()
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.send(head)
        assert client.response().status == 400 and client.closed()
    assert server.count == 0


@pytest.mark.parametrize("target", ["/file", "/text", "/gif"])
def test_a_broken_chunk_of_a_body_that_nothing_reads(balancer, target):
    one = balancer("server { listen 127.0.0.1:PORT; root html; location = /text { return 200 x; } "
                   "location = /gif { empty_gif; } }")
    (one.dir / "html/file").write_text("data")
    head = f"GET {target} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    for body, status in ((b"zz\r\n", 400), (b"1\r\nx\r\n0\r\n\r\n", 200)):
        with Client(one.port) as client:
            client.send(head + body)
            assert client.response().status == status
            if status == 200:
                assert client.get("/text").body == b"x"


@pytest.mark.parametrize("target", ["/file", "/text"])
def test_a_client_that_waits_is_told_to_go_on_before_an_answer_without_its_body(balancer, target):
    one = balancer("server { listen 127.0.0.1:PORT; root html; location = /text { return 200 x; } }")
    (one.dir / "html/file").write_text("x")
    with Client(one.port) as client:
        client.request("GET", target, headers=[("Content-Length", "3"), ("Expect", "100-continue")])
        response = client.response()
        assert response.body == b"x" and [interim.status for interim in response.interim] == [100]
        client.send(b"abc")
        assert client.get("/text").body == b"x"


BODIES = [b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n", b"zz\r\n", b"3\r\nabc\r\n0\r\n\r\n"]


@pytest.mark.parametrize("first", BODIES)
def test_chunked_bodies_do_not_depend_on_the_one_before(balancer, origin, first):
    """The state of a decoder that had read an empty body was kept for the next request of the worker: its body was taken
    for empty, and its chunks for another request."""
    backend = origin(answer(b"ok"))
    one = balancer(proxy([backend]), workers=1)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    for body in (first, b"5\r\nhello\r\n0\r\n\r\n"):
        with Client(one.port) as client:
            client.send(head + body)
            response = client.response()
            assert response.status == (400 if body == b"zz\r\n" else 200)
    assert backend.requests[-1].body == b"hello"


@pytest.mark.http1("framing")
def test_a_request_behind_the_last_response_does_not_reset_it(balancer, origin):
    """A close with an unread request would be a reset, which can destroy the response on its way."""
    arrived, sent = threading.Event(), threading.Event()

    def late(request, connection):
        arrived.set()
        assert sent.wait(30)
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast")

    one = balancer(proxy([origin(late)], location="keepalive_requests 1;"))
    with Client(one.port) as client:
        client.request()
        assert arrived.wait(30)
        client.request()
        sent.set()
        assert client.response().text == "last"
        assert client.sock.recv(1) == b""
