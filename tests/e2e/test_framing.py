"""Strict framing: what could be read in two ways is refused, and nobody behind the balancer ever sees it."""

import time

import pytest

from support.balancer import ON_NGINX
from support.client import Client, get
from support.expect import here
from support.origin import answer, proxy

pytestmark = pytest.mark.http1("the framing of HTTP/1")

# A second request hidden in the body of the first one.
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"


def post(fields="", body="", line="POST / HTTP/1.1", host="Host: a\r\n"):
    return f"{line}\r\n{host}{fields}\r\n{body}"


def chunks(body, fields=CHUNKED):
    return post(fields, body)


REQUESTS = {
    # Length against coding
    "length and coding": post("Content-Length: 4\r\n" + CHUNKED, "0\r\n\r\n" + HIDDEN),
    "coding and length": post(CHUNKED + "Content-Length: 4\r\n", "0\r\n\r\n" + HIDDEN),
    "differing lengths": post("Content-Length: 1\r\nContent-Length: 2\r\n", "ab"),
    "same length twice": post("Content-Length: 2\r\nContent-Length: 2\r\n", "ab"),
    "list of lengths": post("Content-Length: 2, 2\r\n", "ab"),
    "length with a sign": post("Content-Length: +2\r\n", "ab"),
    "negative length": post("Content-Length: -2\r\n", "ab"),
    "hexadecimal length": post("Content-Length: 0x2\r\n", "ab"),
    "length with a space": post("Content-Length: 1 2\r\n", "a" * 12),
    "empty length": post("Content-Length:\r\n", "ab"),
    "length with a letter": post("Content-Length: 2a\r\n", "ab"),
    "length beyond 64 bits": post("Content-Length: 18446744073709551618\r\n", "ab"),
    # Codings
    "unknown coding": post("Transfer-Encoding: magic\r\n", "0\r\n\r\n"),
    "gzip, chunked": post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    "chunked twice": post(CHUNKED + CHUNKED, "0\r\n\r\n"),
    "chunked, chunked": post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    "chunked, identity": post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    "identity": post("Transfer-Encoding: identity\r\nContent-Length: 2\r\n", "ab"),
    "xchunked": post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    "chunked in quotes": post('Transfer-Encoding: "chunked"\r\n', "0\r\n\r\n"),
    "chunked with a tab inside": post("Transfer-Encoding: chun\tked\r\n", "0\r\n\r\n"),
    "chunked;parameter": post("Transfer-Encoding: chunked;a=b\r\n", "0\r\n\r\n"),
    "empty coding": post("Transfer-Encoding:\r\n", "0\r\n\r\n"),
    "vertical tab before chunked": post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
    "coding in 1.0": post(CHUNKED, "0\r\n\r\n" + HIDDEN, "POST / HTTP/1.0"),
    "space before the colon": post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    "length, space before the colon": post("Content-Length : 34\r\n", HIDDEN),
    "folded coding": post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"),
    # Lines
    "obs-fold": post("X-A: 1\r\n 2\r\n"),
    "field begins with a space": post(" X-A: 1\r\n"),
    "bare CR in a value": post("X-A: 1\rX-B: 2\r\n"),
    "bare CR in a name": post("X\r-A: 1\r\n"),
    "bare CR ends a line": "GET / HTTP/1.1\rHost: a\r\r",
    "NUL in a value": post("X-A: a\0b\r\n"),
    "NUL in a name": post("X\0A: 1\r\n"),
    "control byte in a value": post("X-A: a\x01b\r\n"),
    "no colon": post("X-A\r\n"),
    "empty name": post(": 1\r\n"),
    "space in a name": post("X A: 1\r\n"),
    # Chunks
    "bare LF after a chunk size": chunks("3\nabc\r\n0\r\n\r\n"),
    "bare LF after a chunk": chunks("3\r\nabc\n0\r\n\r\n"),
    "bare CR in a chunk size": chunks("3\rabc\r\n0\r\n\r\n"),
    "chunk longer than said": chunks("3\r\nabcd\r\n0\r\n\r\n"),
    "chunk size with 0x": chunks("0x3\r\nabc\r\n0\r\n\r\n"),
    "chunk size with a sign": chunks("+3\r\nabc\r\n0\r\n\r\n"),
    "negative chunk size": chunks("-3\r\nabc\r\n0\r\n\r\n"),
    "space before a chunk size": chunks(" 3\r\nabc\r\n0\r\n\r\n"),
    "space after a chunk size": chunks("3 \r\nabc\r\n0\r\n\r\n"),
    "empty chunk size": chunks("\r\nabc\r\n0\r\n\r\n"),
    "chunk size not a number": chunks("g\r\nabc\r\n0\r\n\r\n"),
    "chunk size beyond 64 bits": chunks("10000000000000003\r\nabc\r\n0\r\n\r\n"),
    "chunk size underscore": chunks("1_0\r\n" + "a" * 16 + "\r\n0\r\n\r\n"),
    "bare LF in an extension": chunks("3;a\nb\r\nabc\r\n0\r\n\r\n"),
    "bare CR in an extension": chunks("3;a\rb\r\nabc\r\n0\r\n\r\n"),
    "NUL in an extension": chunks("3;a\0\r\nabc\r\n0\r\n\r\n"),
    "endless extension": chunks("3;" + "a" * 70_000 + "\r\nabc\r\n0\r\n\r\n"),
    "bare LF after the last chunk": chunks("0\n\n"),
    "bare CR in a trailer": chunks("0\r\nX: a\rb\r\n\r\n"),
    "trailer without a colon": chunks("0\r\nX\r\n\r\n"),
    # Host and target
    "no Host": post(host=""),
    "two Hosts": post(host="Host: a\r\nHost: b\r\n"),
    "same Host twice": post(host="Host: a\r\nHost: a\r\n"),
    "Host with a slash": post(host="Host: a/b\r\n"),
    "Host with userinfo": post(host="Host: u@a\r\n"),
    "Host with a space": post(host="Host: a b\r\n"),
    "Host with a comma": post(host="Host: a, b\r\n"),
    "Host with a bad port": post(host="Host: a:8x\r\n"),
    "Host with NUL": post(host="Host: a\0\r\n"),
    "Host with ..": post(host="Host: a..b\r\n"),
    "target with a space": post(line="GET /a b HTTP/1.1"),
    "target with NUL": post(line="GET /a\0b HTTP/1.1"),
    "target with a control byte": post(line="GET /a\x01 HTTP/1.1"),
    "relative target": post(line="GET a HTTP/1.1"),
    "target above the root": post(line="GET /../x HTTP/1.1"),
    "broken escape": post(line="GET /%zz HTTP/1.1"),
    "escaped NUL": post(line="GET /%00 HTTP/1.1"),
    "no version": "GET / \r\nHost: a\r\n\r\n",
    "bad version": post(line="GET / HTTP/1.x"),
    "version 1.10": post(line="GET / HTTP/1.10"),
    "lower case protocol": post(line="GET / http/1.1"),
    "two spaces before the version": post(line="GET /  HTTP/1.1"),
    "space before the method": post(line=" GET / HTTP/1.1"),
    "method with a bad character": post(line="GE(T / HTTP/1.1"),
    "userinfo in the target": post(line="GET http://u@a/ HTTP/1.1"),
    "garbage": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 40 + "\r\n\r\n",
}

# What NGINX 1.22 lets pass. It answers 501 to codings that it does not know.
LENIENT = {
    "control byte in a value", "no colon", "chunked, identity", "Host with userinfo", "Host with a bad port",
    "version 1.10", "no version", "two spaces before the version", "bare LF after a chunk size",
    "bare LF after a chunk", "bare LF after the last chunk", "space after a chunk size", "NUL in an extension",
    "endless extension", "trailer without a colon",
}
REFUSALS = here({400}, {400, 501})


def refused(name):
    marks = [pytest.mark.skip(reason="NGINX 1.22 accepts it")] \
        if ON_NGINX and name.removesuffix(" streamed") in LENIENT else []
    return pytest.param(name, id=name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("name", [refused(name) for name in REQUESTS])
def test_ambiguous_request(balancer, origin, name):
    server = origin()
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.send(REQUESTS[name])
        response = client.response()
        assert response.status in REFUSALS, response.start
        assert client.closed()
    assert server.count == 0
    assert get(one.port).status == 200


@pytest.mark.parametrize("name", [refused(f"{name} streamed") for name in REQUESTS if REQUESTS[name].startswith(
    post(CHUNKED)[:40]) and "Length" not in REQUESTS[name]])
def test_ambiguous_chunks_of_a_streamed_body(balancer, origin, name):
    """The server has the head by then, but gets neither the bad bytes nor an end of the body."""
    server = origin()
    one = balancer(proxy([server], location="proxy_request_buffering off;"))
    with Client(one.port) as client:
        head, _, body = REQUESTS[name.removesuffix(" streamed")].partition("\r\n\r\n")
        client.send(head + "\r\n\r\n1\r\nx\r\n")
        time.sleep(0.02)
        client.send(body)
        assert int(client.rest()[9:12]) in REFUSALS
    assert server.count == 0 and not any(one.seen.endswith(b"0\r\n\r\n") for one in server.connections)


OK = "HTTP/1.1 200 OK\r\n"
RESPONSES = {
    "length and coding": OK + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "differing lengths": OK + "Content-Length: 1\r\nContent-Length: 3\r\n\r\nabc",
    "same length twice": OK + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": OK + "Content-Length: 3, 3\r\n\r\nabc",
    "length with a sign": OK + "Content-Length: +3\r\n\r\nabc",
    "negative length": OK + "Content-Length: -1\r\n\r\nabc",
    "hexadecimal length": OK + "Content-Length: 0x3\r\n\r\nabc",
    "unknown coding": OK + "Transfer-Encoding: magic\r\n\r\nabc",
    "gzip, chunked": OK + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": OK + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding in 1.0": "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": OK + "Content-Length : 3\r\n\r\nabc",
    "obs-fold": OK + "X-A: 1\r\n 2\r\nContent-Length: 3\r\n\r\nabc",
    "bare CR in a value": OK + "X-A: 1\rX-B: 2\r\nContent-Length: 3\r\n\r\nabc",
    "NUL in a value": OK + "X-A: a\0b\r\nContent-Length: 3\r\n\r\nabc",
    "no status": "HTTP/1.1 OK\r\n\r\n",
    "status of two digits": "HTTP/1.1 20 OK\r\nContent-Length: 3\r\n\r\nabc",
    "status 600": "HTTP/1.1 600 OK\r\nContent-Length: 3\r\n\r\nabc",
    "status 000": "HTTP/1.1 000 OK\r\nContent-Length: 3\r\n\r\nabc",
    "no protocol": "hello\r\n\r\n",
    "HTTP/2": "HTTP/2.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    "unasked 101": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "nothing": "",
    "half a head": OK + "Content-Le",
}
LENIENT_RESPONSES = {
    "same length twice", "length and coding", "length with a sign", "list of lengths", "negative length",
    "hexadecimal length", "unknown coding", "gzip, chunked", "coding in 1.0", "chunked twice", "no status",
    "status of two digits", "status 600", "status 000", "no protocol", "HTTP/2", "unasked 101", "differing lengths",
}


def rejected(name):
    marks = [pytest.mark.skip(reason="NGINX 1.22 passes it")] if ON_NGINX and name in LENIENT_RESPONSES else []
    return pytest.param(name, id=name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("name", [rejected(name) for name in RESPONSES])
def test_ambiguous_response(balancer, origin, name):
    def handle(request, connection):
        connection.send(RESPONSES[name])
        connection.close()

    server = origin(handle)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        response = client.get()
        assert response.status == 502 and response["X-A"] is None
        # The client's connection is sound: the page has a framing of its own.
        assert client.get().status == 502
    assert '" 502 ' in one.wait_log()[0]


CHUNK_ERRORS = {
    "size not a number": "zz\r\nabc\r\n0\r\n\r\n",
    "size with 0x": "0x3\r\nabc\r\n0\r\n\r\n",
    "longer than said": "3\r\nabcdef\r\n0\r\n\r\n",
    "bare LF": "3\nabc\n0\n\n",
}
LENIENT_CHUNKS = {"bare LF"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.skipif(
    ON_NGINX and name in LENIENT_CHUNKS, reason="NGINX 1.22 passes it")) for name in CHUNK_ERRORS])
def test_bad_chunks_of_a_response(balancer, origin, name):
    """Either a 502, or, when the head is on its way, an answer that visibly has no end."""
    server = origin(f"{OK}Transfer-Encoding: chunked\r\n\r\n{CHUNK_ERRORS[name]}".encode())
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        data = client.request(headers=[("Connection", "close")]).rest()
        assert b" 502 " in data[:20] or not data.endswith(b"\r\n0\r\n\r\n"), data


def test_garbage_after_a_response(balancer, origin):
    """What follows a response must not answer the next request."""
    server = origin(answer("good") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(5):
            assert client.get().text == "good"
    assert len(server.connections) == 5, "a connection with unasked data was used again"


def test_body_after_a_bodiless_response(balancer, origin):
    server = origin(lambda request, connection: b"HTTP/1.1 204 No Content\r\n\r\nevil")
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(3):
            assert client.get().status == 204


def test_forwarded_head_is_written_anew(balancer, origin):
    server = origin()
    one = balancer(proxy([server]))
    # NGINX trims spaces only.
    blank = here(" \t ", "  ")
    with Client(one.port) as client:
        client.send(f"GET / HTTP/1.1\r\nhost:a\r\nX-Spaces:{blank}v{blank}\r\nx-empty:\r\n"
                    "Transfer_Encoding: chunked\r\n\r\n")
        assert client.response().status == 200
    head = server.last.head
    assert b"X-Spaces: v\r\n" in head and b"x-empty: \r\n" in head.replace(b"x-empty:\r\n", b"x-empty: \r\n")
    assert b"Transfer_Encoding" not in head, "an invalid name is dropped"
