"""Upgraded connections: WebSocket and other tunnels, and upgrades that must not happen."""

import contextlib
import os
import threading
import time

import pytest
import websockets.sync.client
import websockets.sync.server

from support.balancer import wait_for
from support.client import Client
from support.expect import balanza_only
from support.origin import answer, proxy
from support.ports import free_port

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "echo")]
TUNNEL = 'proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";'


@pytest.fixture
def websocket_server():
    """A WebSocket server that sends back what it gets."""
    def echo(connection):
        for message in connection:
            connection.send(message)

    port = free_port()
    server = websockets.sync.server.serve(echo, "127.0.0.1", port, max_size=None, open_timeout=60)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield port
    server.shutdown()


def connect(one, **options):
    """A client of the balancer's WebSockets."""
    return websockets.sync.client.connect(f"ws://127.0.0.1:{one.port}/chat/", max_size=None, open_timeout=60, **options)


def through(port, http="", idle="60s"):
    """A server that passes WebSockets to this port, as NGINX's guide has it."""
    return (f"map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}\n{http}\n"
            f"server {{ listen 127.0.0.1:PORT; location /chat/ {{ proxy_pass http://127.0.0.1:{port};"
            "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
            f"proxy_set_header Connection $connection_upgrade; proxy_read_timeout {idle}; }} }}")


def test_websocket(balancer, websocket_server):
    one = balancer(through(websocket_server))
    with connect(one) as client:
        for message in ("hello", "", "ümlaut", b"\0\1\2", os.urandom(100_000), os.urandom(3_000_000)):
            client.send(message)
            assert client.recv(30) == message
        assert client.ping().wait(30)
    assert '"GET /chat/ HTTP/1.1" 101 ' in one.wait_log()[0]


def test_many_websockets_at_once(balancer, websocket_server):
    one = balancer(through(websocket_server), workers=2)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(one)) for _ in range(40)]
        for number, client in enumerate(clients):
            client.send(str(number))
        assert [client.recv(30) for client in clients] == [str(number) for number in range(40)]
    assert len(one.wait_log(40)) == 40


def test_websocket_outlives_idle_reads_with_pings(balancer, websocket_server):
    one = balancer(through(websocket_server, idle="5s"))
    with connect(one, ping_interval=0.5) as client:
        time.sleep(5.6)
        client.send("still here")
        assert client.recv(30) == "still here"


def test_idle_tunnel_ends_after_proxy_read_timeout(balancer, websocket_server):
    # Long enough for the answer to the handshake, which it limits as well.
    one = balancer(through(websocket_server, idle="3s"))
    begin = time.monotonic()
    with connect(one, ping_interval=None) as client:
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            client.recv(40)
        assert 2.5 < time.monotonic() - begin < 40, "the default would be 60 s"


def echo_tunnel(connection):
    """Answers an upgrade and then sends back every byte."""
    connection.reader.until(b"\r\n\r\n")
    connection.send(SWITCH)
    while data := connection.reader.take(len(connection.reader.buffer)) or (
            connection.reader.fill() and connection.reader.take(len(connection.reader.buffer))):
        connection.send(data)
    connection.send("bye")


def test_tunnel_carries_bytes_sent_with_the_request(balancer, origin):
    server = origin(echo_tunnel, raw=True)
    one = balancer(proxy([server], location=TUNNEL))
    with Client(one.port) as client:
        client.send(b"GET /t HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst")
        response = client.response()
        assert (response.status, response["Upgrade"], response["Connection"].lower()) == (101, "echo", "upgrade")
        assert client.reader.exactly(5) == b"first"
        client.send(b"second\r\n\r\n")
        assert client.reader.exactly(10) == b"second\r\n\r\n"


def test_tunnel_carries_bytes_sent_with_the_answer(balancer, origin):
    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(SWITCH + b"greetings")
        connection.reader.to_end()

    with Client(balancer(proxy([origin(handle, raw=True)], location=TUNNEL)).port) as client:
        assert client.get(headers=UPGRADE).status == 101
        assert client.reader.exactly(9) == b"greetings"


def test_tunnel_ends_when_the_server_closes(balancer, origin):
    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(SWITCH + b"last words")
        connection.close()

    with Client(balancer(proxy([origin(handle, raw=True)], location=TUNNEL)).port) as client:
        assert client.get(headers=UPGRADE).status == 101
        assert client.rest() == b"last words"


def test_tunnel_ends_when_the_client_closes(balancer, origin):
    server = origin(echo_tunnel, raw=True)
    one = balancer(proxy([server], location=TUNNEL))
    with Client(one.port) as client:
        assert client.get(headers=UPGRADE).status == 101
    wait_for(lambda: not server.connections[0].open, what="the end of the server's connection")
    assert " 101 " in one.wait_log()[0]


def test_large_data_both_ways_at_once(balancer, origin):
    one = balancer(proxy([origin(echo_tunnel, raw=True)], location=TUNNEL))
    data = os.urandom(4_000_000)
    with Client(one.port, timeout=60) as client:
        assert client.get(headers=UPGRADE).status == 101
        sender = threading.Thread(target=client.send, args=(data,))
        sender.start()
        assert client.reader.exactly(len(data)) == data
        sender.join()


def test_refused_upgrade_leaves_http(balancer, origin):
    server = origin(answer("no", "426 Upgrade Required"))
    one = balancer(proxy([server], location=TUNNEL))
    with Client(one.port) as client:
        for _ in range(2):
            assert client.get(headers=UPGRADE).status == 426
    assert server.last["Upgrade"] == "echo" and server.last["Connection"].lower() == "upgrade"


def test_upgrade_is_not_passed_unless_configured(balancer, origin):
    server = origin()
    with Client(balancer(proxy([server])).port) as client:
        assert client.get(headers=UPGRADE).status == 200
    assert server.last["Upgrade"] is None


@balanza_only("passes a 101 that was not asked for, and h2c")
def test_unasked_switch_is_an_error(balancer, origin):
    server = origin(SWITCH)
    one = balancer(proxy([server], location=TUNNEL))
    with Client(one.port) as client:
        assert client.get().status == 502
        assert client.get().status == 502


@balanza_only("passes a 101 that was not asked for, and h2c")
@pytest.mark.parametrize("value", ["h2c", "H2C", "h2c, echo", "echo, h2c"])
def test_h2c_is_never_forwarded(balancer, origin, value):
    server = origin()
    one = balancer(proxy([server], location=TUNNEL + "proxy_set_header HTTP2-Settings $http_http2_settings;"))
    with Client(one.port) as client:
        response = client.get(headers=[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", value),
                                       ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")])
    assert response.status in (200, 400)
    for request in server.requests:
        assert "h2c" not in (request["Upgrade"] or "").lower()
