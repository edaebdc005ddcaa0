"""`hedge`: a request that is not answered soon is sent to a second server. Servers here answer when a gate is opened, so that only
what was sent where decides, and not how long anything took."""

import json
import socket
import ssl
import threading

import pytest

from support.balancer import wait_for
from support.certificates import certificate
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer, proxy
from test_overload import API, own, states, statuses

pytestmark = balanza_only("hedge is Balanza's own")

# Whatever a busy machine does, these are enough.
AMPLE = "retry_budget ratio=100 min=1000;"
# What is known is not forgotten during a test.
LONG = "window=10m"
SHOWS = """add_header X-Servers "$upstream_addr" always; add_header X-Status "$upstream_status" always;
    add_header X-Hedge "[$upstream_hedge]" always;"""


class Gated:
    """A server that answers while its gate is open; what comes otherwise waits. Requests for `/` are only there to make times known,
    and always answered: one of them may be late by itself, and reach a second server at any time."""

    def __init__(self, name, **options):
        self.name, self.status, self.gate = name, "200 OK", threading.Event()
        self.gate.set()
        self.origin = Origin(self.handle, **options)
        self.server, self.requests, self.held = self.origin.server, [], []

    def handle(self, request, connection):
        if request.target == "/":
            return answer(self.name)
        self.requests.append(request)
        if not self.gate.is_set():
            self.held.append((request, connection))
            self.gate.wait(60)
        return answer(self.name, self.status)

    @property
    def count(self):
        return len(self.requests)

    def methods(self):
        return [request.method for request, _ in self.held]

    def has_lost_all(self):
        """All connections with requests that wait were closed by the other side."""
        return all(is_closed(connection.sock) for _, connection in self.held)


def is_closed(sock):
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.fixture
def pair():
    """The first gets all requests, and the second those that it does not answer."""
    servers = [Gated("0"), Gated("1")]
    yield servers
    for server in servers:
        server.gate.set()


def farm(balancer, servers, directives=f"hedge {LONG}; {AMPLE}", *, second="backup", location="", server="", scheme="http",
         workers=2, warm=True):
    head = f"zone group 64k; {directives}"
    text = proxy(servers, head=head, server=API + server, location=SHOWS + location, parameters=["", second])
    one = balancer(text.replace("http://", f"{scheme}://"), workers=workers)
    if warm:
        wait_for(lambda: statuses(one, 30) and hedges(one).get("after") is not None, what="the percentile")
    return one


def hedges(one):
    return own(one)["hedge"]


def peers(one, what):
    return [peer[what] for peer in json.loads(get(one.port, "/api/9/http/upstreams/group/").body)["peers"]]


def is_idle(one):
    """Waits until no request is in flight: the API may be asked at another worker than the one that ends them."""
    wait_for(lambda: peers(one, "active") == [0, 0], what="no requests")


def later(one, method="GET", target="/this", **options):
    """A request whose response is read later."""
    return Client(one.port, timeout=60).request(method, target, **options)


def test_a_second_server_answers(balancer, pair):
    one = farm(balancer, pair)
    before = hedges(one)
    pair[0].gate.clear()
    for _ in range(5):
        response = get(one.port, "/this", timeout=60)
        assert (response.status, response.body) == (200, b"1")
        assert response["x-servers"] == f"{pair[0].server}, {pair[1].server}"
        assert (response["x-status"], response["x-hedge"]) == ("-, 200", "[won]")
    after = hedges(one)
    assert (after["sent"] - before["sent"], after["won"] - before["won"]) == (5, 5)
    # What was given up is closed, and nobody's failure.
    wait_for(lambda: len(pair[0].held) == 5 and pair[0].has_lost_all(), what="the end of the five connections")
    is_idle(one)
    assert states(one) == ["up", "up"] and peers(one, "fails") == [0, 0]
    # The first server is still the first.
    pair[0].gate.set()
    wait_for(lambda: get(one.port, "/this").body == b"0", what="an answer of the first server")


def test_the_first_server_may_still_win(balancer, pair):
    one = farm(balancer, pair)
    for server in pair:
        server.gate.clear()
    client = later(one)
    wait_for(lambda: pair[0].held and pair[1].held, what="both requests")
    pair[0].gate.set()
    response = client.response()
    assert (response.body, response["x-hedge"]) == (b"0", "[lost]")
    assert response["x-servers"] == f"{pair[1].server}, {pair[0].server}", "the one that answered is the last"
    wait_for(pair[1].has_lost_all, what="the end of the second connection")
    is_idle(one)
    assert peers(one, "fails") == [0, 0]
    # Its connection is used again.
    assert client.get("/this").body == b"0"


def test_round_robin(balancer):
    """The algorithm chooses the second server, as for a retry."""
    servers = [Gated("0"), Gated("1")]
    one = farm(balancer, servers, second="")
    servers[1].gate.clear()
    with Client(one.port, timeout=60) as client:
        assert {client.get("/this").body for _ in range(10)} == {b"0"}
    assert servers[1].held
    servers[1].gate.set()


def tls():
    """What a server shows."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate().certificate, certificate().key)
    return made


def test_servers_of_tls(balancer):
    servers = [Gated(name, tls=tls()) for name in "01"]
    one = farm(balancer, servers, scheme="https")
    servers[0].gate.clear()
    assert [get(one.port, "/this", timeout=60).body for _ in range(3)] == [b"1"] * 3
    is_idle(one)
    assert peers(one, "fails") == [0, 0]
    servers[0].gate.set()


def test_a_second_server_that_hangs_in_its_handshake(balancer):
    """The first one is heard all the same, and the wait for the second one ends."""
    first = Gated("0", tls=tls())
    mute = Origin(lambda connection: threading.Event().wait(60), raw=True)
    one = farm(balancer, [first, mute], scheme="https")
    before = hedges(one)["sent"]
    first.gate.clear()
    client = later(one)
    wait_for(lambda: hedges(one)["sent"] > before and first.held, what="both requests")
    first.gate.set()
    response = client.response()
    assert (response.body, response["x-hedge"], response["x-status"]) == (b"0", "[lost]", "-, 200")
    is_idle(one)
    assert peers(one, "fails") == [0, 0]


@pytest.mark.parametrize("method", ["POST", "PATCH", "PURGE"])
def test_what_may_not_be_repeated_is_not_hedged(balancer, pair, method):
    one = farm(balancer, pair)
    pair[0].gate.clear()
    client = later(one, method, body=b"once")
    wait_for(lambda: method in pair[0].methods(), what="the request")
    # These come later, are sent to the second server, and are answered.
    assert [get(one.port, "/this", timeout=60).body for _ in range(3)] == [b"1"] * 3
    assert method not in [request.method for request in pair[1].requests]
    pair[0].gate.set()
    response = client.response()
    assert (response.body, response["x-hedge"]) == (b"0", "[]")


def test_a_body_that_was_buffered_is_sent_twice(balancer, pair):
    one = farm(balancer, pair)
    pair[0].gate.clear()
    body = bytes(range(256)) * 500
    assert get(one.port, "/this", "PUT", body=body, timeout=60).body == b"1"
    wait_for(lambda: pair[0].held, what="the request at the first server")
    assert [request.body == body for request, _ in pair[0].held] == [True]
    assert pair[1].requests[-1].body == body


def is_waited_for(one, pair, client):
    """This request is sent to the first server alone, while later ones are sent to both."""
    wait_for(lambda: pair[0].held, what="the request")
    assert [get(one.port, "/other", timeout=60).body for _ in range(3)] == [b"1"] * 3
    assert {request.target for request in pair[1].requests} == {"/other"}
    pair[0].gate.set()
    response = client.response()
    assert (response.body, response["x-hedge"]) == (b"0", "[]")


def test_a_body_that_is_passed_on_as_it_comes_is_not(balancer, pair):
    one = farm(balancer, pair, location="proxy_request_buffering off;")
    pair[0].gate.clear()
    client = Client(one.port, timeout=60).send("PUT /this HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nfirst")
    wait_for(lambda: any(b"first" in connection.seen for connection in pair[0].origin.connections), what="its beginning")
    is_waited_for(one, pair, client.send("other"))


def test_a_request_for_another_protocol_is_not(balancer, pair):
    one = farm(balancer, pair, location='proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";')
    pair[0].gate.clear()
    is_waited_for(one, pair, later(one, target="/socket", headers=[("Upgrade", "websocket"), ("Connection", "upgrade")]))


@pytest.mark.parametrize("budget, least, most", [("retry_budget ratio=0 min=2 window=10m;", 2, 2), ("", 3, 14)])
def test_hedges_have_a_budget(balancer, pair, budget, least, most):
    """Without `retry_budget` it is a fifth of the requests."""
    one = farm(balancer, pair, f"hedge {LONG}; {budget}")
    pair[0].gate.clear()
    clients = [later(one) for _ in range(40)]
    wait_for(lambda: len(pair[0].held) == 40, what="all requests")
    wait_for(lambda: hedges(one)["sent"] + own(one)["retries_refused"] >= 40, what="all decisions")
    count = hedges(one)["sent"]
    # Those before count as well.
    assert least <= count <= max(most, 3 + pair[0].origin.count // 5)
    pair[0].gate.set()
    bodies = [client.response().body for client in clients]
    assert bodies.count(b"1") <= count and set(bodies) <= {b"0", b"1"}


def test_a_client_that_leaves_ends_both(balancer, pair):
    one = farm(balancer, pair)
    for server in pair:
        server.gate.clear()
    client = later(one)
    wait_for(lambda: pair[0].held and pair[1].held, what="both requests")
    client.close()
    wait_for(lambda: all(server.has_lost_all() for server in pair), what="the end of both")
    is_idle(one)
    assert peers(one, "fails") == [0, 0] and states(one) == ["up", "up"]


def test_a_second_server_that_fails(balancer, pair):
    """Its failure is its own, and the first one is waited for."""
    one = farm(balancer, pair)
    pair[0].gate.clear()
    pair[1].origin.stop()
    client = later(one)
    one.wait_error(r"connect\(\) failed .* while connecting to upstream")
    pair[0].gate.set()
    response = client.response()
    assert (response.body, response["x-status"]) == (b"0", "502, 200")
    assert [count > 0 for count in peers(one, "fails")] == [False, True]


def break_off(server):
    """Ends the answers that wait after their beginning, so that no kept connection is blamed."""
    for _, connection in server.held:
        connection.send("HTTP/1.1 200 ")
        connection.close()


def test_a_first_server_that_fails_meanwhile(balancer, pair):
    one = farm(balancer, pair)
    for server in pair:
        server.gate.clear()
    client = later(one)
    wait_for(lambda: pair[0].held and pair[1].held, what="both requests")
    break_off(pair[0])
    one.wait_error("upstream prematurely closed connection")
    pair[1].gate.set()
    response = client.response()
    assert (response.body, response["x-status"], response["x-hedge"]) == (b"1", "502, 200", "[won]")
    assert [count > 0 for count in peers(one, "fails")] == [True, False]


def test_a_kept_connection_that_is_closed_is_replaced(balancer, pair):
    """As without a second request. The first server has not failed."""
    one = farm(balancer, pair, workers=1)
    wait_for(lambda: get(one.port, "/this").body == b"0", what="a connection that is kept")
    for server in pair:
        server.gate.clear()
    client = later(one)
    wait_for(lambda: pair[0].held and pair[1].held, what="both requests")
    pair[0].held[0][1].close()
    wait_for(lambda: len(pair[0].held) == 2, what="the request on another connection")
    pair[0].gate.set()
    response = client.response()
    assert (response.body, response["x-status"], response["x-hedge"]) == (b"0", "-, 200", "[lost]")
    assert peers(one, "fails") == [0, 0]


def test_an_answer_that_is_retried_does_not_win(balancer, pair):
    one = farm(balancer, pair, location="proxy_next_upstream error timeout http_503;")
    pair[0].gate.clear()
    pair[1].status = "503 Full"
    client = later(one)
    wait_for(lambda: pair[1].count == 1, what="the second request")
    wait_for(lambda: peers(one, "active") == [1, 0], what="the end of the second request")
    pair[0].gate.set()
    response = client.response()
    assert (response.status, response.body, response["x-status"]) == (200, b"0", "503, 200")


def test_both_fail_and_another_server_is_tried(balancer, pair):
    """A hedge is one of the tries."""
    servers = [*pair, Gated("2")]
    head = f"zone group 64k; hedge {LONG}; {AMPLE}"
    one = balancer(proxy(servers, head=head, server=API, location=SHOWS, parameters=["", "priority=1", "priority=2"]), workers=2)
    wait_for(lambda: statuses(one, 30) and hedges(one).get("after") is not None, what="the percentile")
    for server in pair:
        server.gate.clear()
    client = later(one)
    wait_for(lambda: pair[0].held and pair[1].held, what="both requests")
    for server in pair:
        break_off(server)
    response = client.response()
    assert (response.body, response["x-status"]) == (b"2", "502, 502, 200")


@pytest.mark.parametrize("tries, hedged", [(1, False), (2, True)])
def test_tries(balancer, pair, tries, hedged):
    one = farm(balancer, pair, location=f"proxy_next_upstream_tries {tries};",
               server="location /more { proxy_pass http://group; }")
    pair[0].gate.clear()
    client = later(one)
    wait_for(lambda: pair[0].held, what="the request")
    # This one comes later.
    assert get(one.port, "/more", timeout=60).body == b"1"
    if not hedged:
        pair[0].gate.set()
    assert client.response().body == (b"1" if hedged else b"0")


def test_one_server_has_no_second(balancer):
    server = Gated("0")
    head = f"zone group 64k; hedge min=0 {LONG}; {AMPLE}"
    one = balancer(proxy([server], head=head, server=API, location=SHOWS), workers=2)
    wait_for(lambda: statuses(one, 30) and hedges(one).get("after") is not None, what="the percentile")
    server.gate.clear()
    client = later(one)
    wait_for(lambda: server.held, what="the request")
    server.gate.set()
    response = client.response()
    assert (response.body, response["x-hedge"]) == (b"0", "[]")
    assert set(statuses(one, 100)) == {200} and hedges(one)["sent"] == 0


def test_nothing_is_hedged_before_times_are_known(balancer, pair):
    one = farm(balancer, pair, warm=False)
    assert hedges(one) == {"sent": 0, "won": 0}
    pair[0].gate.clear()
    clients = [later(one) for _ in range(10)]
    wait_for(lambda: len(pair[0].held) == 10, what="the requests")
    pair[0].gate.set()
    assert {client.response().body for client in clients} == {b"0"}
    assert pair[1].count == 0


def test_a_reload_keeps_what_is_known(balancer, pair):
    one = farm(balancer, pair)
    pair[0].gate.clear()
    get(one.port, "/this", timeout=60)
    before = hedges(one)["sent"]
    head = f"zone group 64k; hedge {LONG}; {AMPLE}"
    one.reload(proxy(pair, head=head, server=API + "location = /new { return 204; }", parameters=["", "backup"]))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    after = hedges(one)
    assert after["sent"] >= before > 0 and after["after"] is not None
    assert get(one.port, "/this", timeout=60).body == b"1"
