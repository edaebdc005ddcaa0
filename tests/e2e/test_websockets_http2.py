"""WebSockets by HTTP/2 (RFC 8441): an extended CONNECT becomes an Upgrade to a server of HTTP/1.1."""

import os
import threading

import h2.settings
import pytest
import websockets.sync.server
from websockets.protocol import Protocol, Side, State

from support.balancer import ON_NGINX, wait_for
from support.browser import CHROMIUM, Browser
from support.certificates import certificate
from support.http2 import Http2Client, Reset
from support.origin import Origin
from support.ports import free_port
from support.tls import context

pytestmark = pytest.mark.skipif(ON_NGINX, reason="NGINX has no WebSockets by HTTP/2")

LISTEN = f"listen 127.0.0.1:PORT ssl; http2 on; {certificate().directives()}"
LOG = "log_format ws '$request|$status|$http_upgrade|$server_protocol'; access_log logs/ws.log ws;"
PASS = 'proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";'


@pytest.fixture
def websocket_server():
    """Sends back what it gets; the path "/close" closes at once, "/protocol" agrees on a subprotocol."""
    seen = []

    def echo(connection):
        seen.append(connection.request)
        if connection.request.path.endswith("/close"):
            connection.close(1001, "gone")
        for message in connection:
            connection.send(message)

    port = free_port()
    server = websockets.sync.server.serve(echo, "127.0.0.1", port, max_size=None, subprotocols=["chat"],
                                          compression=None, open_timeout=60, ping_interval=None)
    server.seen = seen
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.port = port
    yield server
    server.shutdown()


def through(port, settings=PASS):
    return (f"{LOG} server {{ {LISTEN} location / {{ proxy_pass http://127.0.0.1:{port}; {settings} "
            "proxy_read_timeout 60s; } location /own { return 200 own; } "
            "location /page { default_type text/html; return 200 '<title>page</title>'; } location /no { deny all; } }")


class WebSocket:
    """One WebSocket on a stream of a connection."""

    def __init__(self, client, target="/chat", protocol="websocket", headers=()):
        self.client = client
        if not client.h2.remote_settings.enable_connect_protocol:
            client.read()
        fields = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", client.scheme), (":path", target),
                  (":authority", "a.test"), ("sec-websocket-version", "13"), ("origin", "https://a.test"),
                  ("sec-websocket-protocol", "chat"), *headers]
        self.stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(self.stream, fields)
        client.flush()
        self.ws = Protocol(Side.CLIENT, state=State.OPEN, max_size=None)
        self.head = client.response(self.stream, head_only=True)

    def send(self, data):
        (self.ws.send_text if isinstance(data, str) else self.ws.send_binary)(
            data.encode() if isinstance(data, str) else data)
        self.flush()

    def flush(self):
        for piece in self.ws.data_to_send():
            if piece:
                self.client.send(self.stream, piece, end=False)

    def receive(self):
        """The next whole message, or None at the end of the stream."""
        parts = []
        while True:
            for frame in self.ws.events_received():
                parts.append(frame.data)
                if frame.opcode == 8:
                    return None
                if frame.fin:
                    return b"".join(parts)
            events = self.client.take(self.stream)
            for event in events:
                if isinstance(event, h2.events.DataReceived):
                    self.ws.receive_data(event.data)
                elif isinstance(event, h2.events.StreamEnded):
                    return None
                elif isinstance(event, h2.events.StreamReset):
                    raise Reset(event.error_code)
            if not events and not self.client.read():
                return None


def connect(one, **options):
    return Http2Client(one.port, tls=context(alpn=["h2"]), **options)


def test_the_setting_is_announced(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        while not client.h2.remote_settings.enable_connect_protocol:
            assert client.read()


def test_a_websocket_reaches_a_server_of_http_1(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one, window=1_000_000) as client:
        ws = WebSocket(client, headers=[("sec-websocket-key", "mine")])
        assert ws.head.status == 200
        assert ws.head["sec-websocket-protocol"] == "chat"
        assert not {"sec-websocket-accept", "upgrade", "connection"} & {name for name, _ in ws.head.headers}
        for message in ("hello", b"\0\1\2", os.urandom(60_000), os.urandom(700_000)):
            ws.send(message)
            assert ws.receive() == (message.encode() if isinstance(message, str) else message)
        ws.ws.send_close(1000)
        ws.flush()
        assert ws.receive() is None
        client.h2.end_stream(ws.stream)
        client.flush()
        assert client.get("/own").body == b"own", "the connection goes on"
    asked = websocket_server.seen[0].headers
    assert asked["Upgrade"] == "websocket" and len(asked["Sec-WebSocket-Key"]) == 24
    assert asked["Origin"] == "https://a.test"
    lines = one.wait_log(2, "ws.log")
    assert "GET /chat HTTP/2.0|101|websocket|HTTP/2.0" in lines


def test_keys_differ(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        for _ in range(5):
            assert WebSocket(client).head.status == 200
    # The server's thread notes a request after it has answered.
    wait_for(lambda: len(websocket_server.seen) == 5, what="the requests at the server")
    assert len({request.headers["Sec-WebSocket-Key"] for request in websocket_server.seen}) == 5


def test_many_websockets_and_requests_share_a_connection(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        sockets = [WebSocket(client) for _ in range(30)]
        for number, ws in enumerate(sockets):
            ws.send(str(number))
        assert client.get("/own").body == b"own"
        assert [ws.receive() for ws in sockets] == [str(number).encode() for number in range(30)]


def test_the_server_closes(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        ws = WebSocket(client, "/close")
        assert ws.head.status == 200
        assert ws.receive() is None
        ws.flush()
        client.h2.end_stream(ws.stream)
        client.flush()
    one.wait_log(1, "ws.log")


def test_a_client_that_resets_ends_the_connection_to_the_server(balancer):
    gone = threading.Event()

    def accept(connection):
        connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
        try:
            while connection.sock.recv(1000):
                pass
        except OSError:
            pass
        gone.set()
    origin = Origin(lambda request, connection: accept(connection))
    one = balancer(through(origin.port))
    with connect(one) as client:
        ws = WebSocket(client)
        client.h2.reset_stream(ws.stream)
        client.flush()
        assert gone.wait(60)
        assert client.get("/own").body == b"own"


@pytest.mark.parametrize(("target", "status"), [("/own", 502), ("/no", 403), ("/chat", 502)])
def test_what_does_not_open_a_websocket_is_no_success(balancer, target, status):
    """An answer of 200 would say that the WebSocket is open."""
    origin = Origin()
    one = balancer(through(origin.port))
    with connect(one) as client:
        assert WebSocket(client, target).head.status == status


def test_without_the_settings_the_server_is_not_asked_to_switch(balancer, websocket_server):
    one = balancer(through(websocket_server.port, settings=""))
    with connect(one) as client:
        assert WebSocket(client).head.status in (400, 426, 502)


@pytest.mark.parametrize("protocol", ["connect-udp", "WebSocket", "x"])
def test_other_protocols_are_refused(balancer, websocket_server, protocol):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        assert WebSocket(client, protocol=protocol).head.status == 501
        assert client.get("/own").status == 200


def test_a_protocol_belongs_to_connect_only(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        with pytest.raises(Reset):
            stream = client.h2.get_next_available_stream_id()
            client.h2.send_headers(stream, [(":method", "GET"), (":protocol", "websocket"), (":scheme", "https"),
                                            (":path", "/"), (":authority", "a.test")], end_stream=True)
            client.flush()
            client.response(stream)
        assert client.get("/own").status == 200


def test_a_drain_waits_for_the_websocket(balancer, websocket_server):
    one = balancer(through(websocket_server.port))
    with connect(one) as client:
        ws = WebSocket(client)
        one.reload(through(websocket_server.port).replace("200 own", "200 new"))
        wait_for(lambda: _own(one) == b"new", what="the new configuration")
        ws.send("still here")
        assert ws.receive() == b"still here"


def _own(one):
    with connect(one) as client:
        return client.get("/own").body


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
def test_chromium_opens_its_websocket_by_http2(balancer, websocket_server):
    """It does so where the connection of the page allows it."""
    one = balancer(through(websocket_server.port))
    browser = Browser()
    try:
        browser.call("Security.setIgnoreCertificateErrors", ignore=True)
        browser.open(f"https://127.0.0.1:{one.port}/page")
        said = browser.value(
            "new Promise((done, failed) => { const ws = new WebSocket(`wss://${location.host}/chat`, 'chat'); "
            "ws.onopen = () => ws.send('from a page'); ws.onerror = () => failed('error'); "
            "ws.onmessage = message => { done(message.data); ws.close(); }; })")
    finally:
        browser.close()
    assert said == "from a page"
    wait_for(lambda: "GET /chat HTTP/2.0|101|websocket|HTTP/2.0" in one.access_log("ws.log"), what="the line of the log")
