"""Responses: framing, interim and bodiless ones, servers that close, stall or answer early."""

import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.expect import balanza_only, here
from support.origin import answer, proxy

pytestmark = pytest.mark.http1("HTTP/1 itself")

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BUFFERING = pytest.mark.parametrize("buffering", ["on", "off"])


@BUFFERING
@pytest.mark.parametrize("size", [0, 1, 4000, 70_000, 3_000_000])
def test_response_with_length(balancer, origin, size, buffering):
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    one = balancer(proxy([origin(answer(body))], location=f"proxy_buffering {buffering};"))
    with Client(one.port) as client:
        for _ in range(3):
            response = client.get()
            assert response["Content-Length"] == str(size) and response.body == body


@BUFFERING
def test_response_in_chunks(balancer, origin, buffering):
    parts = [b"a", b"b" * 10_000, b"c" * 100]
    data = CHUNKED + b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    one = balancer(proxy([origin(data)], location=f"proxy_buffering {buffering};"))
    with Client(one.port) as client:
        for _ in range(3):
            response = client.get()
            assert response.framing == "chunked" and response.body == b"".join(parts)
    assert " 200 " in one.wait_log(3)[0]


def test_chunk_extensions_and_trailers_of_a_response(balancer, origin):
    data = CHUNKED + b"3;name=value\r\nabc\r\n0\r\nX-Checksum: 7\r\n\r\n"
    server = origin(data)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get(headers=[("TE", "trailers")])
            assert response.body == b"abc" and response.chunks == [b"abc"] and response.trailers == []


@balanza_only("NGINX 1.22 has no such directive")
def test_trailers_are_passed_to_clients_that_read_them(balancer, origin):
    server = origin(CHUNKED + b"3\r\nabc\r\n0\r\nX-Checksum: 7\r\n\r\n")
    one = balancer(proxy([server], location="proxy_pass_trailers on;"))
    with Client(one.port) as client:
        assert client.get(headers=[("TE", "trailers")]).trailers == [("X-Checksum", "7")]
        assert client.get().trailers == []


def test_response_until_close(balancer, origin):
    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\n\r\npart one,")
        time.sleep(0.05)
        connection.send("part two")
        connection.close()

    one = balancer(proxy([origin(handle)]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.framing, response.text) == ("chunked", "part one,part two")


@pytest.mark.parametrize("body", ["", "old"])
def test_http_1_0_server(balancer, origin, body):
    def handle(request, connection):
        connection.send(f"HTTP/1.0 200 Fine\r\nContent-Type: text/x\r\n\r\n{body}")
        connection.close()

    one = balancer(proxy([origin(handle)]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.version, response.status, response.text) == ("HTTP/1.1", 200, body)


def test_http_1_0_to_servers(balancer, origin):
    server = origin()
    one = balancer(proxy([server], server='proxy_http_version 1.0; proxy_set_header Connection "close";'))
    with Client(one.port) as client:
        assert [client.get().text for _ in range(3)] == ["ok\n"] * 3
    assert server.last.version == "HTTP/1.0" and server.last["Connection"] == "close"


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "304 Not Modified", "404 Not Found"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_bodiless(balancer, origin, status, method):
    def handle(request, connection):
        if method == "HEAD" or status[:3] in ("204", "304"):
            fields = "" if status.startswith("204") else "Content-Length: 5\r\n"
            return f"HTTP/1.1 {status}\r\n{fields}X-Seen: yes\r\n\r\n".encode()
        return answer("12345", status, [("X-Seen", "yes")])

    server = origin(handle)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(3):
            response = client.get("/", method)
            assert response.status == int(status[:3]) and response["X-Seen"] == "yes"
            if response.status == 204:
                assert response["Content-Length"] is None and response["Transfer-Encoding"] is None
            else:
                assert response["Content-Length"] == "5"
    assert len(server.connections) == 1, "the connection to the server was not kept"


def test_head_of_a_chunked_resource(balancer, origin):
    server = origin(lambda request, connection: CHUNKED)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get("/", "HEAD")
            assert response.status == 200
        assert client.request("HEAD", "/", headers=[("Connection", "close")]).rest().endswith(b"\r\n\r\n")


@balanza_only("takes an interim response for the final one")
@pytest.mark.parametrize("interim", [
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n",
    "HTTP/1.1 102 Processing\r\n\r\n" * 3,
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n",
])
def test_interim_responses_precede_the_final_one(balancer, origin, interim):
    def handle(request, connection):
        connection.send(interim)
        time.sleep(0.02)
        return answer("final")

    one = balancer(proxy([origin(handle)]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.status, response.text) == (200, "final")
            assert response["Link"] is None


def test_response_byte_by_byte(balancer, origin):
    def handle(request, connection):
        connection.slowly(b"HTTP/1.1 201 Made\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                          b"5\r\nhello\r\n0\r\n\r\n")

    one = balancer(proxy([origin(handle)]))
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.status, response.text, response["X-A"]) == (201, "hello", "1")


def test_hop_by_hop_fields_of_a_response(balancer, origin):
    server = origin(answer("x", headers=[
        ("Connection", "keep-alive, X-Hop"), ("Keep-Alive", "timeout=1"), ("X-Hop", "secret"),
        ("Server", "backend/1"), ("Date", "Mon, 01 Jan 1990 00:00:00 GMT"), ("X-Accel-Foo", "1"),
        ("X-Pad", "1"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Kept", "k")]))
    response = get(balancer(proxy([server])).port)
    assert response.all("Set-Cookie") == ["a=1", "b=2"] and response["X-Kept"] == "k"
    assert response.all("Connection") in (["keep-alive"], []) and response["Keep-Alive"] is None
    assert response["X-Pad"] is None
    assert len(response.all("Server")) == 1 and response["Server"] != "backend/1"
    assert len(response.all("Date")) == 1 and "1990" not in response["Date"]
    if here(True, False):
        # NGINX passes what Connection names; a proxy must not.
        assert response["X-Hop"] is None


def test_content_type_status_and_reason_are_kept(balancer, origin):
    one = balancer(proxy([origin(answer("{}", "299 Very Special", [("Content-Type", "application/x-y; charset=z")]))]))
    response = get(one.port)
    assert response.start == "HTTP/1.1 299 Very Special"
    assert response["Content-Type"] == "application/x-y; charset=z"


def test_server_closes_after_each_response(balancer, origin):
    server = origin(lambda request, connection: answer("x", headers=[("Connection", "close")]))
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(5):
            assert client.get().text == "x"
    assert len(server.connections) == 5


@BUFFERING
def test_truncated_response_is_not_passed_as_whole(balancer, origin, buffering):
    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        time.sleep(0.02)
        connection.close()

    one = balancer(proxy([origin(handle)], location=f"proxy_buffering {buffering};"))
    with Client(one.port) as client:
        data = client.request().rest()
        assert data.endswith(b"short") and b"Content-Length: 100" in data
    one.wait_error("upstream prematurely closed connection while (reading|sending)")


def test_truncated_chunks_are_not_passed_as_whole(balancer, origin):
    def handle(request, connection):
        connection.send(CHUNKED + b"5\r\nhello\r\n")
        time.sleep(0.02)
        connection.close()

    with Client(balancer(proxy([origin(handle)])).port) as client:
        data = client.request().rest()
        assert b"hello" in data and not data.endswith(b"0\r\n\r\n")


def test_unbuffered_response_flows_at_once(balancer, origin):
    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        connection.reader.fill()

    one = balancer(proxy([origin(handle)], location="proxy_buffering off;"))
    with Client(one.port) as client:
        client.request()
        assert client.reader.until(b"abc")


def test_x_accel_buffering_turns_buffering_off(balancer, origin):
    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nX-Accel-Buffering: no\r\nContent-Length: 6\r\n\r\nabc")
        connection.reader.fill()

    with Client(balancer(proxy([origin(handle)])).port) as client:
        client.request()
        assert client.reader.until(b"abc")


@pytest.mark.parametrize("options", ["proxy_buffering off;", "proxy_max_temp_file_size 0;"])
def test_slow_client_holds_the_server_back(balancer, origin, options):
    """Without a temporary file the balancer reads only as fast as the client: back-pressure."""
    sent = []

    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(50):
            connection.send(bytes(1_000_000))
            sent.append(1_000_000)

    one = balancer(proxy([origin(handle)], location=options))
    with Client(one.port, receive_buffer=16384) as client:
        client.request()
        progress = [-1]

        def stands():
            progress.append(sum(sent))
            return sum(sent) > 0 and len(set(progress[-10:])) == 1

        wait_for(stands, 20, "the server to be held back", step=0.05)
        assert 0 < sum(sent) < 40_000_000, "the balancer swallowed what its client did not read"
        assert len(client.response().body) == 50_000_000


def test_buffered_response_frees_the_server(balancer, origin):
    """With buffering and a temporary file the server is done while the client still reads."""
    done = []

    def handle(request, connection):
        connection.send(answer(bytes(8_000_000)))
        done.append(True)

    one = balancer(proxy([origin(handle)]))
    with Client(one.port, receive_buffer=16384) as client:
        client.request()
        wait_for(lambda: done, what="the end of the server's work")
        assert len(client.response().body) == 8_000_000


def test_early_response_to_a_long_body(balancer, origin):
    """A server that refuses a body before it has read it; its answer must arrive, and its connection not be reused."""
    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(answer("too much", "413 Too Large", [("Connection", "close")]))
        connection.reader.to_end()

    server = origin(handle, raw=True)
    one = balancer(proxy([server], server="client_max_body_size 0;", location="proxy_request_buffering off;"))
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n" + "x" * 1000)
        response = client.response()
        assert (response.status, response.text) == (413, "too much")


def test_early_response_without_close(balancer, origin):
    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(answer("early"))
        connection.reader.to_end()

    server = origin(handle, raw=True)
    one = balancer(proxy([server], location="proxy_request_buffering off;"))
    with Client(one.port) as client:
        client.send("POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + "x" * 100)
        assert client.response().text == "early"
    assert get(one.port, "/two").text == "early"
    wait_for(lambda: len(server.connections) == 2, what="a second connection")
    assert b"GET /two" not in server.connections[0].seen, "a request was sent into the middle of a body"


def test_large_response_head(balancer, origin):
    fields = [(f"X-{number}", "v" * 50) for number in range(50)]
    one = balancer(proxy([origin(answer("x", headers=fields))]))
    assert get(one.port)["X-49"] == "v" * 50
    one = balancer(proxy([origin(answer("x", headers=fields * 3))], location="proxy_buffer_size 4k;"))
    assert get(one.port).status == 502
    one.wait_error("upstream sent .*too big header")
    one = balancer(proxy([origin(answer("x", headers=fields * 3))],
                         location="proxy_buffer_size 16k; proxy_buffers 8 16k;"))
    assert get(one.port).status == 200
