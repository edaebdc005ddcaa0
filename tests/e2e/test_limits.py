"""Limits and timeouts on the client's side, and max_conns on the server's."""

import concurrent.futures
import time

import pytest

from support.balancer import wait_for
from support.client import Client, exchange, get
from support.expect import balanza_only
from support.holding import fill, gated
from support.http2 import Http2Client
from support.origin import answer, proxy, upstream


def test_client_header_timeout(balancer, origin):
    one = balancer(proxy([origin()], server="client_header_timeout 2s;"))
    begin = time.monotonic()
    with Client(one.port, timeout=50) as client:
        client.send("GET / HTTP/1.1\r\nHost: a\r\n")
        data = client.rest()
        assert data == b"" or b" 408 " in data[:20]
        # The default is a minute.
        assert 0.4 < time.monotonic() - begin < 40
    assert " 408 " in one.wait_log()[0]


def test_client_header_timeout_is_for_the_whole_head(balancer, origin):
    one = balancer(proxy([origin()], server="client_header_timeout 600ms;"))
    begun = time.monotonic()
    with Client(one.port, timeout=5) as client:
        sent = 0
        with pytest.raises(OSError):
            client.send("GET / HTTP/1.1\r\n")
            for sent in range(90):
                client.send(f"X-{sent}: drip\r\n")
                time.sleep(0.1)
        assert sent < 85 and time.monotonic() - begun >= 0.6


def test_client_body_timeout(balancer, origin):
    server = origin()
    one = balancer(proxy([server], server="client_body_timeout 500ms;"))
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        data = client.rest()
        assert data == b"" or b" 408 " in data[:20]
    assert " 408 " in one.wait_log()[0] and server.count == 0


@pytest.mark.http1("a socket that is not read; test_http2.py has windows")
def test_send_timeout(balancer, origin):
    one = balancer(proxy([origin(answer(bytes(20_000_000)))], server="send_timeout 500ms;"))
    with Client(one.port, receive_buffer=16384) as client:
        client.request()
        lines = one.wait_log()
        assert '" 200 ' in lines[0] or '" 499 ' in lines[0] or '" 408 ' in lines[0]
        assert len(client.rest()) < 20_000_000


@pytest.mark.http1("the end of the connection")
@pytest.mark.parametrize("option", ["on", "off"])
def test_reset_timedout_connection(balancer, origin, option):
    one = balancer(proxy([origin(answer(bytes(20_000_000)))],
                         server=f"send_timeout 300ms; reset_timedout_connection {option};"))
    with Client(one.port, receive_buffer=16384) as client:
        client.request()
        one.wait_log()
        reset = False
        try:
            while client.sock.recv(1 << 20):
                pass
        except ConnectionResetError:
            reset = True
        assert reset == (option == "on")


LIMITS = "client_header_buffer_size 1k; large_client_header_buffers 2 2k;"


@pytest.mark.parametrize("target, fields, status", [
    (1500, [], 200), (1990, [], 200), (2100, [], 414), (10_000, [], 414), (10, [1500], 200), (10, [2100], 400),
    (10, [1000, 1000, 1000], 200), (10, [1900, 1900, 1900], 400), (1500, [1500], 200), (1900, [1900, 1900], 400),
    (10, [10] * 60, 200),
])
def test_size_of_a_head(balancer, origin, target, fields, status):
    server = origin()
    one = balancer(proxy([server], server=LIMITS))
    head = f"GET /{'u' * target} HTTP/1.1\r\nHost: a\r\n"
    head += "".join(f"X-{number}: {'v' * size}\r\n" for number, size in enumerate(fields))
    with Client(one.port) as client:
        response = client.send(head + "\r\n").response()
        assert response.status == status
        if status == 200:
            assert client.get().status == 200
        else:
            assert client.closed()
    assert (server.count > 0) == (status == 200)
    if status == 400:
        assert "Request Header Or Cookie Too Large" in response.text


def test_error_page_for_a_head_too_large(balancer):
    one = balancer(f"server {{ listen 127.0.0.1:PORT; {LIMITS} error_page 494 = /big; "
                   "location = /big { return 431 'too big'; } }")
    response = exchange(one.port, f"GET / HTTP/1.1\r\nHost: a\r\nX: {'v' * 5000}\r\n\r\n")
    assert (response.status, response.text) == (431, "too big")


@balanza_only("no max_headers")
@pytest.mark.parametrize("count, status", [(9, 200), (12, 400)])
def test_max_headers(balancer, origin, count, status):
    one = balancer(proxy([origin()], server="max_headers 10;"))
    assert get(one.port, headers=[(f"X-{number}", "v") for number in range(count)]).status == status


@pytest.mark.parametrize("options, fields", [
    ("", {"x-dash": "1"}), ("underscores_in_headers on;", {"x-dash": "1", "x_under": "2"}),
])
def test_invalid_field_names(balancer, origin, options, fields):
    server = origin()
    one = balancer(proxy([server], server=options))
    response = get(one.port, headers=[("x-dash", "1"), ("x_under", "2"), ("x.dot", "3")])
    assert response.status == 200
    got = {name: value for name, value in server.last.headers if name.startswith("x")}
    assert {name: got.get(name) for name in fields} == fields
    assert ("x_under" in got) == ("x_under" in fields)


def test_ignore_invalid_headers_off(balancer, origin):
    server = origin()
    one = balancer(proxy([server], server="ignore_invalid_headers off;"))
    assert get(one.port, headers=[("x.dot", "3")]).status == 200
    assert server.last["x.dot"] == "3"


@pytest.mark.parametrize("workers", [1, 2])
def test_max_conns_holds_across_workers(balancer, workers):
    servers = gated(2)
    text = upstream(servers[0], parameters=["max_conns=3", "max_conns=5"], head="zone shared 128k;")
    one = balancer(text + "server { listen 127.0.0.1:PORT; location / { proxy_pass http://group; } }", workers=workers)
    assert fill(one, servers, [3, 5], 40) == [200] * 8 + [502] * 32
    one.wait_error("no live upstreams while connecting to upstream")
    # The slots are free again.
    assert get(one.port).status == 200


def test_max_conns_spills_to_the_backup(balancer):
    servers, gate = gated(2)
    one = balancer(proxy(servers, head="zone shared 128k;", parameters=["max_conns=2", "backup"]))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        pending = [pool.submit(get, one.port, timeout=30) for _ in range(6)]
        wait_for(lambda: sum(server.in_flight for server in servers) == 6, what="six requests")
        assert [server.in_flight for server in servers] == [2, 4]
        gate.set()
        assert all(future.result().status == 200 for future in pending)


@pytest.mark.http1("the protocol is a parameter")
@pytest.mark.parametrize("protocol, count", [(Client, 2000), (Http2Client, 500)], ids=["http1", "http2"])
def test_idle_connections_are_cheap(balancer, origin, protocol, count):
    """Many clients that have asked once and stay: their buffers have gone back."""
    text = proxy([origin()], http="keepalive_timeout 1h;")
    one = balancer(text.replace("listen 127.0.0.1:PORT;", "listen 127.0.0.1:PORT; http2 on;"))
    most = 3 * 1024 if protocol is Client else 5 * 1024
    # What the first connections grow to is no part of the others.
    first = [protocol(one.port) for _ in range(count // 10)]
    assert all(client.get().status == 200 for client in first)
    before = one.rss()
    clients = []
    try:
        for _ in range(count):
            clients.append(protocol(one.port))
            assert clients[-1].get().status == 200
        # Buffers go back a moment after the last response.
        try:
            wait_for(lambda: (one.rss() - before) / count <= most, 20, step=0.1)
        except AssertionError:
            pass
        each = (one.rss() - before) / count
        assert all(client.get().status == 200 for client in clients[::50])
    finally:
        for client in first + clients:
            client.close()
    assert each <= most, f"{each:.0f} bytes for each connection"
