"""HTTP/2 with servers: `proxy_http_version 2`, shared connections, what is retried, trailers and timeouts."""

import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

from support.balancer import wait_for
from support.certificates import authority, certificate
from support.client import Client, get
from support.expect import balanza_only
from support.http2 import Http2Client
from support.http2 import get as get_http2
from support.http2_server import Http2Server, upstream
from support.messages import Ended
from support.origin import Origin, answer
from support.ports import free_port

pytestmark = balanza_only("it does not speak HTTP/2 with servers")


def proxied(servers, location="", head="", http="", server=""):
    return (upstream(servers, head=head) + http + "log_format s '$status $upstream_status $upstream_addr';"
            f"server {{ listen 127.0.0.1:PORT; http2 on; {server} access_log logs/access.log s; location / {{"
            f" proxy_http_version 2; proxy_pass http://group; {location} }} }}\n")


def echo(stream):
    stream.answer(stream.body or stream.path.encode(), headers=[("x-a", "b"), ("content-type", "text/x")])


def server_tls(name="a.test"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    one = certificate(name)
    context.load_cert_chain(one.certificate, one.key)
    context.set_alpn_protocols(["h2"])
    return context


def test_a_request_and_its_response(balancer):
    one = Http2Server(echo)
    b = balancer(proxied([one], "proxy_set_header X-Set yes; proxy_set_header Host shop.test:81;"))
    found = get(b.port, "/a%20b?c=d", headers=[("X-Own", "1"), ("Keep-Alive", "5"), ("Cookie", "a=1")])
    assert (found.status, found.text, found["x-a"]) == (200, "/a%20b?c=d", "b")
    assert found.start == "HTTP/1.1 200 OK" and found.framing == "chunked"
    asked = one.last
    assert asked.fields[:4] == [(":method", "GET"), (":scheme", "http"), (":authority", "shop.test:81"),
                                (":path", "/a%20b?c=d")]
    assert (asked["x-set"], asked["x-own"], asked["cookie"]) == ("yes", "1", "a=1")
    assert asked["connection"] is None and asked["keep-alive"] is None and asked["host"] is None


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("client", ["1.1", "2"])
def test_bodies_of_both_directions(balancer, client, buffering):
    one = Http2Server(echo)
    b = balancer(proxied([one], f"client_max_body_size 10m; proxy_request_buffering {buffering};"
                                f" proxy_buffering {buffering}; client_body_buffer_size 64k;"))
    for length in [1, 1000, 70_000, 1_000_000]:
        body = bytes(range(256)) * (length // 256 + 1)
        if client == "2":
            found = get_http2(b.port, "/", "POST", body=body)
        else:
            found = get(b.port, "/", "POST", body=body)
        assert found.body == body
        assert one.last["content-length"] == str(len(body))


def test_bodies_without_a_length(balancer):
    one = Http2Server(echo)
    b = balancer(proxied([one], "proxy_request_buffering off;"))
    body = bytes(range(256)) * 1000
    assert get_http2(b.port, "/", "POST", body=body, length=False).body == body
    assert one.last["content-length"] is None
    with Client(b.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
                    "3\r\nabc\r\n0\r\nX-T: end\r\n\r\n")
        assert client.response().body == b"abc"
    assert one.last.trailers == [("x-t", "end")]


@pytest.mark.parametrize("method, status", [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_responses_without_a_body(balancer, method, status):
    one = Http2Server(lambda stream: stream.head(status, [("content-length", "7")] if method == "HEAD" else [], end=True))
    b = balancer(proxied([one]))
    with Client(b.port) as client:
        for _ in range(3):
            assert client.get(method=method).status == status
    assert len(one.connections) == 1


def test_requests_share_a_connection(balancer):
    together = threading.Event()

    def slow(stream):
        if one.most_in_flight > 20:
            together.set()
        # None before so many are there.
        together.wait(60)
        stream.answer(stream.path.encode())

    one = Http2Server(slow)
    b = balancer(proxied([one]))
    with Http2Client(b.port, timeout=40) as client:
        streams = {client.request(target=f"/{index}"): f"/{index}" for index in range(50)}
        for stream, target in streams.items():
            assert client.response(stream).text == target
    assert one.most_in_flight > 20
    assert len(one.connections) == 1


def test_no_more_requests_than_the_server_takes(balancer):
    gate = threading.Event()

    def held(stream):
        gate.wait(60)
        stream.answer(b"x")

    one = Http2Server(held, settings={"MAX_CONCURRENT_STREAMS": 4})
    b = balancer(proxied([one], head="keepalive 2;"))
    with Http2Client(b.port) as client:
        streams = [client.request() for _ in range(10)]
        wait_for(lambda: one.in_flight == 10)
        per_connection = [len(it.streams) for it in one.connections if it.streams]
        assert max(per_connection) <= 4 and sum(per_connection) == 10 and len(per_connection) == 3
        gate.set()
        assert [client.response(stream).status for stream in streams] == [200] * 10
    wait_for(lambda: one.open == 2, what="two connections are kept")


def test_max_conns_counts_requests(balancer):
    gate = threading.Event()

    def held(stream):
        gate.wait(60)
        stream.answer(b"x")

    one = Http2Server(held)
    text = proxied([one]).replace(f"server {one.server};", f"zone z 64k; server {one.server} max_conns=3;")
    b = balancer(text)
    with Http2Client(b.port) as client:
        streams = [client.request() for _ in range(3)]
        wait_for(lambda: one.in_flight == 3)
        assert client.get().status == 502
        gate.set()
        assert [client.response(stream).status for stream in streams] == [200] * 3


def test_least_conn_counts_requests(balancer):
    gate = threading.Event()

    def held(stream):
        gate.wait(60)
        stream.answer(b"x")

    servers = [Http2Server(held) for _ in range(3)]
    b = balancer(proxied(servers, head="least_conn;"))
    with Http2Client(b.port) as client:
        streams = [client.request() for _ in range(12)]
        wait_for(lambda: sum(one.in_flight for one in servers) == 12)
        assert [one.in_flight for one in servers] == [4, 4, 4]
        gate.set()
        assert all(client.response(stream).status == 200 for stream in streams)


@pytest.mark.parametrize("verify", [True, False])
def test_over_tls(balancer, verify):
    one = Http2Server(echo, tls=server_tls())
    name = "a.test" if verify else "other.test"
    more = (f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority().certificate}; proxy_ssl_name {name};"
            " proxy_ssl_server_name on;")
    b = balancer(proxied([one], more).replace("http://group", "https://group"))
    found = get(b.port, "/secret")
    if verify:
        assert found.text == "/secret" and one.last[":scheme"] == "https"
        assert one.connections[0].sock.selected_alpn_protocol() == "h2"
    else:
        assert found.status == 502 and not one.requests


def test_a_connection_is_kept_for_its_time(balancer):
    one = Http2Server(echo)
    b = balancer(proxied([one], head="keepalive 4; keepalive_requests 3;"))
    for _ in range(9):
        assert get(b.port).status == 200
    assert [len(it.streams) for it in one.connections] == [3, 3, 3]
    other = Http2Server(echo)
    b = balancer(proxied([other], head="keepalive 0;"))
    for _ in range(3):
        assert get(b.port).status == 200
    assert len(other.connections) == 3
    wait_for(lambda: other.open == 0)


def test_refused_streams_are_tried_again(balancer):
    def refuse(stream):
        stream.reset(7)

    bad, good = Http2Server(refuse), Http2Server(echo)
    b = balancer(proxied([bad, good]))
    # Also what is not idempotent: the server says that it has not looked at it.
    for _ in range(4):
        assert get(b.port, "/", "POST", body=b"abc").text == "abc"
    assert bad.requests and len(good.requests) == 4
    assert "upstream refused the request while" in b.error_log()


def test_goaway_moves_requests_to_another_connection(balancer):
    def once(stream):
        if stream.connection is one.connections[0] and len(stream.connection.streams) == 2:
            # The first request was answered; this one has not been looked at.
            stream.connection.goaway(1)
            return
        stream.answer(stream.body)

    one = Http2Server(once)
    b = balancer(proxied([one]))
    for body in [b"first", b"second", b"third"]:
        assert get(b.port, "/", "POST", body=body).body == body
    assert len(one.connections) == 2
    assert [line.split()[:2] for line in b.wait_log(3)] == [["200", "200"]] * 3


def test_requests_before_a_goaway_are_answered(balancer):
    gate = threading.Event()

    def handler(stream):
        if stream.path == "/slow":
            stream.connection.goaway(stream.number)
            gate.wait(60)
        stream.answer(stream.path.encode())

    one = Http2Server(handler)
    b = balancer(proxied([one]))
    with Http2Client(b.port) as client:
        slow = client.request(target="/slow")
        wait_for(lambda: one.requests)
        # It goes to another connection as soon as the balancer has been told.
        wait_for(lambda: client.get("/next").text == "/next" and len(one.connections) == 2, what="another connection")
        gate.set()
        assert client.response(slow).text == "/slow"
    assert len(one.connections) == 2


def test_a_connection_that_dies_is_replaced(balancer):
    one = Http2Server(echo)
    b = balancer(proxied([one]))
    assert get(b.port).status == 200
    one.connections[0].close()
    wait_for(lambda: one.open == 0)
    assert get(b.port).status == 200
    assert len(one.connections) == 2


def test_a_reset_costs_one_request(balancer):
    def handler(stream):
        if stream.path == "/bad":
            return stream.reset(2)
        stream.answer(stream.path.encode())

    one = Http2Server(handler)
    b = balancer(proxied([one]))
    assert get(b.port, "/good").status == 200
    assert get(b.port, "/bad").status == 502
    assert "upstream rejected request with error 2 while" in b.error_log()
    assert get(b.port, "/good").status == 200
    assert len(one.connections) == 1


def test_a_response_that_is_cut_off(balancer):
    begun = threading.Semaphore(0)

    def handler(stream):
        stream.head()
        stream.data(b"begin", end=False)
        # The client has it.
        begun.acquire(timeout=60)
        stream.reset(2)

    one = Http2Server(handler)
    b = balancer(proxied([one], "proxy_buffering off;"))
    with Http2Client(b.port) as client:
        stream = client.request()
        assert client.response(stream, head_only=True).status == 200
        begun.release()
        while not any(type(event).__name__ == "StreamReset" for event in client.take(stream)):
            assert client.read()
    b.wait_error("upstream rejected request with error 2 while reading upstream")
    with Client(b.port) as client:
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        begun.release()
        # Without its last chunk.
        assert not client.rest().endswith(b"0\r\n\r\n")


def test_malformed_frames_cost_a_connection(balancer):
    def handler(stream):
        if stream.path == "/bad":
            # DATA on stream 0.
            return stream.connection.raw(b"\0\0\1\0\0\0\0\0\0x")
        stream.answer(stream.path.encode())

    one = Http2Server(handler)
    b = balancer(proxied([one]))
    assert get(b.port, "/good").status == 200
    assert get(b.port, "/bad", "POST", body=b"x").status == 502
    assert get(b.port, "/good").status == 200
    assert len(one.connections) == 2
    # A server that does not speak HTTP/2.
    listener = socket.create_server(("127.0.0.1", free_port()))

    def speak():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            sock.close()

    threading.Thread(target=speak, daemon=True).start()
    text = proxied([one]).replace(one.server, f"127.0.0.1:{listener.getsockname()[1]}")
    assert get(balancer(text).port).status == 502
    listener.close()


@pytest.mark.parametrize("headers", [
    [("content-length", "3"), ("content-length", "3")],
    [("content-length", "x")],
    [("transfer-encoding", "chunked")],
    [("connection", "close")],
    [("x-big", "a" * 9000)],
])
def test_heads_that_are_not_passed_on(balancer, headers):
    one = Http2Server(lambda stream: stream.answer(b"abc", headers=headers))
    b = balancer(proxied([one], "proxy_buffer_size 8k;"))
    assert get(b.port).status == 502
    assert get_http2(b.port).status == 502


def test_a_length_that_is_not_kept(balancer):
    one = Http2Server(lambda stream: stream.answer(b"abc", headers=[("content-length", "4")]))
    b = balancer(proxied([one]))
    with Client(b.port) as client:
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        try:
            assert client.response().status == 502
        except Ended:
            pass


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("length", [True, False])
def test_trailers(balancer, passes, length):
    headers = [("content-length", "3")] if length else []
    one = Http2Server(lambda stream: stream.answer(b"abc", headers=headers,
                                                   trailers=[("x-sum", "7"), ("content-length", "9")]))
    b = balancer(proxied([one], "proxy_pass_trailers on;" if passes else "",
                         server="add_header X-Seen $upstream_trailer_x_sum;"))
    found = get_http2(b.port)
    assert found.body == b"abc" and found.trailers == ([("x-sum", "7")] if passes else None or [])


def test_timeouts(balancer):
    one = Http2Server(lambda stream: time.sleep(30))
    b = balancer(proxied([one], "proxy_read_timeout 3s;"))
    assert get(b.port).status == 504
    assert "upstream timed out (110: Connection timed out) while reading response header" in b.error_log()
    wait_for(lambda: one.requests and one.requests[0].reset_code is not None, what="the reset")


def test_a_client_that_goes_away(balancer):
    one = Http2Server(lambda stream: stream.ended.wait(1) and time.sleep(1))
    b = balancer(proxied([one]))
    with Http2Client(b.port) as client:
        client.request()
        wait_for(lambda: one.requests)
    wait_for(lambda: one.requests[0].reset_code == 8, what="CANCEL")
    assert b.wait_log()[0].startswith("499")


def test_a_slow_client_does_not_hold_the_others(balancer):
    body = bytes(1 << 20)
    one = Http2Server(lambda stream: stream.answer(body))
    b = balancer(proxied([one], "proxy_buffering off;"))
    with Client(b.port) as idle:
        idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for(lambda: one.requests)
        for _ in range(3):
            assert get(b.port).body == body
    assert len(one.connections) == 1


def test_the_response_may_begin_before_the_request_ends(balancer):
    def handler(stream):
        stream.head()
        for count in range(3):
            with stream.changed:
                stream.changed.wait_for(lambda: len(stream.pieces) > count, 10)
            stream.data(stream.pieces[count].upper(), end=False)
        stream.ended.wait(10)
        stream.data(b".", end=True)

    one = Http2Server(handler, early=True)
    b = balancer(proxied([one], "proxy_request_buffering off; proxy_buffering off;"))
    with Http2Client(b.port) as client:
        stream = client.request(method="POST", end=False)
        assert client.response(stream, head_only=True).status == 200
        got = b""
        for index in range(3):
            client.send(stream, b"abc", end=False)
            while len(got) < 3 * (index + 1):
                client.read()
                got += b"".join(event.data for event in client.take(stream) if hasattr(event, "data"))
        assert got == b"ABCABCABC"
        client.send(stream, b"d", end=True)
        while not any(type(event).__name__ == "StreamEnded" for event in client.take(stream)):
            assert client.read()


def test_pings_without_end(balancer):
    """A server that sends nothing of use ends its connection, not the balancer."""
    def handler(stream):
        if stream.path == "/flood":
            ping = b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)
            try:
                for _ in range(2000):
                    stream.connection.sock.sendall(ping * 1000)
            except OSError:
                return
        stream.answer(b"ok")

    one = Http2Server(handler)
    b = balancer(proxied([one], "proxy_read_timeout 90s;"))
    assert get(b.port, "/flood", timeout=80).status == 502
    assert get(b.port, "/").text == "ok"


def test_a_reload_keeps_connections_and_requests(balancer):
    gate = threading.Event()

    def handler(stream):
        if stream.path == "/slow":
            gate.wait(60)
        stream.answer(stream.path.encode())

    one = Http2Server(handler)
    b = balancer(proxied([one]))
    with Http2Client(b.port) as client:
        slow = client.request(target="/slow")
        wait_for(lambda: one.requests)
        b.reload(proxied([one], "add_header X-New 1;"))
        wait_for(lambda: get(b.port, "/next")["x-new"] == "1", what="the next configuration")
        gate.set()
        assert client.response(slow).text == "/slow"
    assert len(one.connections) == 1
    # A server that has left.
    other = Http2Server(echo)
    b.reload(proxied([other]))
    wait_for(lambda: get(b.port).status == 200 and other.requests)
    wait_for(lambda: one.open == 0)


def test_a_connection_without_requests_ends_after_its_time(balancer):
    one = Http2Server(echo)
    b = balancer(proxied([one], head="keepalive 4; keepalive_timeout 300ms;"))
    assert get(b.port).status == 200
    wait_for(lambda: one.open == 0, what="the end of the connection")
    assert get(b.port).status == 200
    assert len(one.connections) == 2


def test_trailers_behind_a_body_that_has_come_whole(balancer):
    origin = Origin(lambda request, _: answer(b"abc"))
    text = proxied([origin], "add_trailer X-Sum $status;").replace("proxy_http_version 2", "proxy_http_version 1.1")
    found = get_http2(balancer(text).port)
    assert (found.body, found.trailers) == (b"abc", [("x-sum", "200")])


@pytest.mark.skipif(not shutil.which("nghttpd"), reason="Debian's nghttp2-server")
@pytest.mark.parametrize("tls", [True, False])
def test_two_servers_of_nghttp2(balancer, tmp_path, tls):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4000)
    ports = [free_port(), free_port()]
    pair = certificate("a.test")
    programs = []
    for port in ports:
        arguments = [str(pair.key), str(pair.certificate)] if tls else ["--no-tls"]
        command = ["nghttpd", "-a", "127.0.0.1", "-d", str(tmp_path), str(port), *arguments]
        programs.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        for port in ports:
            wait_for(lambda: _accepts(port), what="nghttpd")
        lines = "".join(f"server 127.0.0.1:{port};" for port in ports)
        text = proxied([], "proxy_buffering off;").replace("upstream group {  ", f"upstream group {{ {lines} ")
        b = balancer(text.replace("http://group", "https://group") if tls else text)
        with Http2Client(b.port, window=1 << 20) as client:
            streams = [client.request(target="/file") for _ in range(20)]
            assert all(client.response(stream).body == bytes(range(256)) * 4000 for stream in streams)
        served = [line.split()[-1] for line in b.wait_log(20)]
        assert [served.count(f"127.0.0.1:{port}") for port in ports] == [10, 10]
    finally:
        for program in programs:
            program.kill()
            program.wait()


def _accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
