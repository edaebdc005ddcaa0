"""`ntlm`: a connection over which a client has authenticated itself is for this client alone. The servers here authenticate
connections as NTLM does, and write down every request that comes over a connection that another client has used for it."""

import base64
import os
import random
import shutil
import ssl
import struct
import subprocess
import threading
import time

import pytest

from support import http2
from support.balancer import wait_for
from support.certificates import certificate
from support.client import Client
from support.expect import balanza_only
from support.origin import Origin, answer, proxy, upstream
from test_overload import API, own

pytestmark = [balanza_only("ntlm is a directive of NGINX Plus"), pytest.mark.http1("NTLM authenticates a connection of HTTP/1")]

SHOWS = """add_header X-Server $upstream_addr always; add_header X-Reason $upstream_pick_reason always;
    add_header X-Status $upstream_status always;"""


class NtlmServer:
    """Wants to know who a connection belongs to: `NTLM hello` is answered with a challenge, and `NTLM NAME CHALLENGE` on the
    same connection makes it that of NAME, with whose name further requests are answered."""

    def __init__(self, **options):
        self.intrusions, self.challenges = [], 0
        self.origin = Origin(self.handle, **options)
        self.server = self.origin.server

    @staticmethod
    def refuse(challenge=""):
        return answer("who?", "401 Unauthorized", [("WWW-Authenticate", f"NTLM {challenge}".strip())])

    def handle(self, request, connection):
        state = connection.__dict__.setdefault("ntlm", {"challenge": None, "user": None, "owner": None})
        sender, said = request["X-Client"], (request["Authorization"] or "").split()
        if state["owner"] not in (None, sender):
            self.intrusions.append((sender, state["owner"], request.start))
        if said and said[0].lower() in ("ntlm", "negotiate"):
            state["owner"] = sender
            if said[1] == "hello":
                self.challenges += 1
                state["challenge"], state["user"] = str(self.challenges), None
                return self.refuse(state["challenge"])
            name, challenge = said[1:]
            expected, state["challenge"] = state["challenge"], None
            if challenge != expected:
                return self.refuse()
            state["user"] = name
        return answer(state["user"]) if state["user"] else self.refuse()

    def open(self):
        """Its open connections."""
        return [connection for connection in self.origin.connections if connection.open]


class User(Client):
    """A client with a name."""

    def __init__(self, port, name, **options):
        super().__init__(port, **options)
        self.name, self.challenge = name, None

    def ask(self, authorization=None, target="/", **options):
        headers = [("X-Client", self.name)] + ([("Authorization", authorization)] if authorization else [])
        return self.request(target=target, headers=headers, **options)

    def go(self, authorization=None, target="/", **options):
        return self.ask(authorization, target, **options).response()

    def hello(self, scheme="NTLM"):
        response = self.go(f"{scheme} hello")
        assert response.status == 401, response.start
        self.challenge = response["WWW-Authenticate"].split()[1]
        return response

    def prove(self, scheme="NTLM"):
        return self.go(f"{scheme} {self.name} {self.challenge}")

    def log_in(self, scheme="NTLM"):
        hello = self.hello(scheme)
        response = self.prove(scheme)
        assert (response.status, response.text) == (200, self.name)
        assert response["X-Server"] == hello["X-Server"]
        return response


def start(balancer, servers, head="", location="", **options):
    return balancer(proxy(servers, head=f"ntlm; {head}", location=SHOWS + location), **options)


def check(*servers):
    assert [server.intrusions for server in servers] == [[] for _ in servers]


@pytest.fixture
def two():
    return [NtlmServer(), NtlmServer()]


@pytest.mark.parametrize("scheme", ["NTLM", "ntlm", "Negotiate", "nEGOTIATE"])
def test_a_client_keeps_its_connection(balancer, two, scheme):
    one = start(balancer, two)
    with User(one.port, "ann") as ann:
        assert ann.go().status == 401
        first = ann.log_in(scheme)
        assert first["X-Reason"] == "ntlm"
        for target in ("/", "/a", "/b"):
            response = ann.go(target=target)
            assert (response.text, response["X-Reason"], response["X-Server"]) == ("ann", "ntlm", first["X-Server"])
        home = next(server for server in two if server.server == first["X-Server"])
        assert len([it for it in home.origin.connections if it.ntlm["user"]]) == 1
    # It ends with the client's connection.
    wait_for(lambda: not [it for it in home.open() if it.ntlm["owner"]], what="the connection to end")
    check(*two)


def test_without_ntlm_the_connection_is_lost(balancer, two):
    """What the tests here would find without the directive."""
    one = balancer(proxy(two, location=SHOWS))
    with User(one.port, "ann") as ann:
        ann.hello()
        assert ann.prove().status == 401


def test_nobody_gets_the_connection_of_another(balancer):
    server = NtlmServer()
    one = start(balancer, [server])
    with User(one.port, "ann") as ann, User(one.port, "eve") as eve:
        assert eve.go().status == 401
        ann.hello()
        # The connection was in the pool, and is none of it any more.
        assert eve.go().status == 401
        assert ann.prove().text == "ann"
        for _ in range(5):
            assert eve.go().status == 401
            assert ann.go().text == "ann"
    with User(one.port, "eve") as eve:
        for _ in range(5):
            assert eve.go().status == 401
    check(server)
    # Others share connections as ever: one of ann, and one before and behind it.
    assert len(server.origin.connections) <= 3


def test_two_clients_at_the_same_time(balancer, two):
    one = start(balancer, two)
    with User(one.port, "ann") as ann, User(one.port, "bob") as bob:
        ann.hello()
        bob.hello()
        assert ann.prove().text == "ann"
        assert bob.prove().text == "bob"
        for _ in range(4):
            ann.ask()
            bob.ask()
            assert (bob.response().text, ann.response().text) == ("bob", "ann")
    check(*two)


@pytest.mark.parametrize("workers", [1, 2])
def test_many_clients_in_any_order(balancer, workers):
    """Users log in, ask, come and go, and strangers ask between them, in flight at the same time; servers close connections."""
    seed = int(os.environ.get("NTLM_SEED") or random.randrange(2**32))
    print(f"NTLM_SEED={seed}")
    rng = random.Random(seed)
    servers = [NtlmServer() for _ in range(3)]
    one = start(balancer, servers, head=rng.choice(["", "least_conn;", "random;", "keepalive 0;", "keepalive 2;"]), workers=workers)
    users, serial = [], 0
    answered = {200: 0, 401: 0}
    for _ in range(400):
        while len(users) < 12:
            serial += 1
            user = User(one.port, f"user{serial}")
            user.stranger = rng.random() < 0.3
            user.is_known = user.is_cut = False
            users.append(user)
        chosen = rng.sample(users, rng.randint(1, 6))
        for user in chosen:
            if user.stranger or user.is_known and rng.random() < 0.8:
                user.step = "ask"
            elif user.challenge:
                user.step = "prove"
            else:
                user.step = "hello"
            said = {"ask": None, "hello": "NTLM hello", "prove": f"NTLM {user.name} {user.challenge}"}[user.step]
            user.ask(said)
        for user in rng.sample(chosen, len(chosen)):
            response = user.response()
            answered[response.status] += 1
            if response.status == 200:
                assert not user.stranger and response.text == user.name, (user.name, response.text)
                assert user.step == "prove" or user.is_known
            else:
                # Only a connection that a server has closed is lost.
                assert user.stranger or user.step == "hello" or user.is_cut, (user.name, user.step)
            challenge = (response["WWW-Authenticate"] or "").split()[1:] if response.status == 401 else []
            user.challenge = challenge[0] if challenge else None
            user.is_known = response.status == 200
            user.is_cut = False
        if rng.random() < 0.05:
            for user in users:
                user.is_cut = True
            rng.choice(servers).origin.hang_up()
        for user in rng.sample(users, rng.choice([0, 0, 0, 1, 2])):
            users.remove(user)
            user.close()
    for user in users:
        user.close()
    assert [server.intrusions for server in servers] == [[], [], []]
    assert answered[200] > 100 and answered[401] > 100, answered
    wait_for(lambda: not [it for server in servers for it in server.open() if it.ntlm["owner"]], what="the connections to end")


def test_a_server_that_closes_gets_a_new_handshake(balancer, two):
    one = start(balancer, two)
    with User(one.port, "ann") as ann:
        for _ in range(3):
            ann.log_in()
            for server in two:
                server.origin.hang_up()
            # Whether it is noticed before or after the request was sent, it is sent again.
            response = ann.go()
            assert response.status == 401 and response["X-Server"]
    check(*two)


def test_a_server_that_fails_ends_the_binding(balancer, two):
    # A server that has failed is not tried again during the test.
    one = balancer(proxy(two, head="ntlm;", location=SHOWS + "proxy_next_upstream error timeout;",
                         parameters=["fail_timeout=2m"] * 2))
    with User(one.port, "ann") as ann:
        home = ann.log_in()["X-Server"]
        left, other = sorted(two, key=lambda server: server.server != home)
        left.origin.stop()
        response = ann.go()
        assert response.status == 401 and response["X-Server"].endswith(other.server)
        assert ann.log_in()["X-Server"] == other.server
        assert ann.go()["X-Server"] == other.server
    check(*two)


def test_what_a_server_sends_unasked_ends_the_binding(balancer):
    server = NtlmServer()
    one = start(balancer, [server])
    with User(one.port, "ann") as ann:
        ann.log_in()
        server.open()[0].send(answer("more"))
        # The sweep closes it, or the next request.
        wait_for(lambda: not server.open(), what="the connection to end")
        assert ann.go().status == 401
    check(server)


def test_a_reload_in_the_middle_of_a_handshake(balancer, two):
    def conf(number):
        return proxy(two, head="ntlm;", location=SHOWS + f"add_header X-Number {number} always;")
    one = balancer(conf(1))
    with User(one.port, "ann") as ann, User(one.port, "bob") as bob:
        ann.hello()
        one.reload(conf(2))
        wait_for(lambda: bob.go()["X-Number"] == "2", what="the reload")
        response = ann.prove()
        assert (response.status, response.text, response["X-Number"], response["X-Reason"]) == (200, "ann", "2", "ntlm")
        one.reload(conf(3))
        wait_for(lambda: bob.go()["X-Number"] == "3", what="the reload")
        assert ann.go().text == "ann"
    check(*two)


def test_a_reload_that_takes_the_server_away(balancer, two):
    one = start(balancer, two)
    with User(one.port, "ann") as ann:
        home = ann.log_in()["X-Server"]
        left, other = sorted(two, key=lambda server: server.server != home)
        one.reload(proxy([other], head="ntlm;", location=SHOWS))
        # At once, not with the next request.
        wait_for(lambda: not left.open(), what="the connection to end")
        response = ann.go()
        assert (response.status, response["X-Server"]) == (401, other.server)
        ann.log_in()
    check(*two)


def test_a_reload_without_the_directive_and_one_with_it(balancer):
    server = NtlmServer()
    with_it, without = (proxy([server], head=head, location=SHOWS) for head in ("ntlm;", ""))
    one = balancer(with_it)
    with User(one.port, "ann") as ann, User(one.port, "eve") as eve:
        ann.log_in()
        one.reload(without)
        wait_for(lambda: not server.open(), what="the connection to end")
        assert eve.go().status == 401
        # Now a connection of the pool is that of a user.
        ann.hello()
        assert ann.prove().text == "ann"
        assert [sender for sender, *_ in server.intrusions] in ([], ["ann"])
        server.intrusions.clear()
        one.reload(with_it)
        wait_for(lambda: not server.open(), what="the connections of the pool to end")
        assert eve.go().status == 401
    check(server)


def test_a_server_that_drains_keeps_its_clients(balancer, two):
    one = start(balancer, two)
    with User(one.port, "ann") as ann:
        home = ann.log_in()["X-Server"]
        drains = ["drain" if server.server == home else "" for server in two]
        one.reload(proxy(two, head="ntlm;", location=SHOWS, parameters=drains))
        with User(one.port, "eve") as eve:
            wait_for(lambda: home not in {eve.go()["X-Server"] for _ in range(4)}, what="the server to drain")
            assert ann.go().text == "ann"
            assert home not in {eve.go()["X-Server"] for _ in range(4)}
    check(*two)


def test_a_waiting_connection_is_no_request_in_flight(balancer):
    server = NtlmServer()
    one = balancer(proxy([server], head="ntlm;", location=SHOWS, parameters=["max_conns=1"]))
    with User(one.port, "ann") as ann, User(one.port, "bob") as bob:
        ann.log_in()
        bob.log_in()
        for _ in range(3):
            assert (ann.go().text, bob.go().text) == ("ann", "bob")
    check(server)


def test_bound_requests_are_not_hedged(balancer):
    """A server answers when its gate is open: only what was sent where decides, and not how long anything took."""
    gate, held = threading.Event(), []
    gate.set()
    two = [NtlmServer(), NtlmServer()]

    def gated(server):
        def handle(request, connection):
            # Those for "/" only make the times known; one may be late, and hedged.
            if not gate.is_set() and request.target != "/":
                held.append((server, request["X-Client"]))
                gate.wait(60)
            return server.handle(request, connection)
        return handle

    for server in two:
        server.origin.handler = gated(server)
    one = balancer(proxy(two, head="zone group 64k; ntlm; hedge window=10m; retry_budget ratio=100 min=1000;", server=API))
    with User(one.port, "ann") as ann, User(one.port, "eve") as eve:
        ann.hello()
        assert ann.prove().text == "ann"
        wait_for(lambda: eve.go() and own(one)["hedge"].get("after") is not None, what="the times to be known")
        gate.clear()
        eve.ask(target="/this")
        wait_for(lambda: len(held) == 2, what="the second attempt")
        ann.ask(target="/this")
        wait_for(lambda: len(held) == 3, what="the request")
        # As long as a second attempt of the other one has taken, many times over.
        time.sleep(1)
        assert [name for _, name in held] == ["eve", "eve", "ann"]
        gate.set()
        assert (eve.response().status, ann.response().text) == (401, "ann")
    check(*two)


def test_clients_of_http2_are_not_bound(balancer, two):
    one = balancer(f"""{upstream(two, head="ntlm;")}
        server {{ listen 127.0.0.1:PORT; http2 on; location / {{ proxy_pass http://group; {SHOWS} }} }}""")
    with http2.Http2Client(one.port) as client:
        for number in range(3):
            response = client.get("/", headers=[("x-client", "ann"), ("authorization", "NTLM hello")])
            assert response.status == 401
            # On a connection of its own, which ends with the response.
            wait_for(lambda: not [it for server in two for it in server.open()], what="the connection to end")
            assert sum(len(server.origin.connections) for server in two) == number + 1
        for name in ("ann", "eve"):
            assert client.get("/", headers=[("x-client", name)]).status == 401
    check(*two)


def test_subrequests_are_not_bound(balancer):
    server = NtlmServer()
    allows = Origin(lambda request, connection: server.handle(request, connection) and answer("ok"))
    one = balancer(f"""{upstream([allows], name="door", head="ntlm;")}
        server {{ listen 127.0.0.1:PORT;
            location / {{ auth_request /door; mirror /mirror; return 204; }}
            location /page {{ auth_request /door; mirror /mirror; proxy_pass http://door; }}
            location /door {{ internal; proxy_pass http://door; }}
            location /mirror {{ internal; proxy_pass http://door; }} }}""")
    with User(one.port, "ann") as ann:
        for _ in range(3):
            assert ann.go("NTLM hello", "/page").text == "ok"
        # The one of the request itself.
        wait_for(lambda: len([it for it in allows.connections if it.open]) == 1, what="the others to end")
        assert max(connection.requests for connection in allows.connections) == 3
    check(server)


def test_a_field_that_the_configuration_sets_counts(balancer):
    server = NtlmServer()
    one = start(balancer, [server], location="proxy_set_header Authorization $http_x_said;")
    with User(one.port, "ann") as ann, User(one.port, "eve") as eve:
        def go(user, said):
            return user.get(headers=[("X-Client", user.name), ("X-Said", said), ("Authorization", "NTLM hello")])
        challenge = go(ann, "NTLM hello")["WWW-Authenticate"].split()[1]
        assert go(eve, "").status == 401
        assert go(ann, f"NTLM ann {challenge}").text == "ann"
        assert go(eve, "").status == 401
        assert go(ann, "").text == "ann"
    check(server)


@pytest.mark.parametrize("length", [100, 12_000])
def test_requests_with_bodies_and_long_tokens(balancer, two, length):
    one = balancer(proxy(two, head="ntlm;", location=SHOWS, server="large_client_header_buffers 4 32k;"))
    with User(one.port, "ann") as ann:
        ann.hello()
        headers = [("X-Client", "ann"), ("X-Long", "x" * length), ("Authorization", f"NTLM ann {ann.challenge}")]
        assert ann.get("/", "POST", headers=headers, body=b"x" * length).text == "ann"
        assert ann.get("/", "POST", headers=[("X-Client", "ann")], body=b"x" * 200_000).text == "ann"
    check(*two)


def test_servers_of_tls(balancer):
    pair = certificate()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    servers = [NtlmServer(tls=tls) for _ in range(2)]
    def conf(number):
        return f"""{upstream(servers, head="ntlm;")}
            server {{ listen 127.0.0.1:PORT; {SHOWS} add_header X-Number {number} always;
                location / {{ proxy_pass https://group; }}
                location /other {{ proxy_pass https://group; proxy_ssl_server_name on; proxy_ssl_name other.test; }} }}"""
    one = balancer(conf(1))
    with User(one.port, "ann") as ann, User(one.port, "eve") as eve:
        ann.log_in()
        for _ in range(3):
            assert eve.go().status == 401
            assert ann.go().text == "ann"
        # A connection that is made in another way is another one.
        assert ann.go(target="/other").status == 401
        ann.log_in()
        # So is one that was made with the settings of another configuration.
        one.reload(conf(2))
        wait_for(lambda: eve.go()["X-Number"] == "2", what="the reload")
        assert ann.go().status == 401
        ann.log_in()
    wait_for(lambda: not [it for server in servers for it in server.open() if it.ntlm["owner"]], what="the end")
    check(*servers)


def test_locations_share_the_connection(balancer, two):
    one = balancer(f"""{upstream(two, head="ntlm; keepalive 4 local;")}
        server {{ listen 127.0.0.1:PORT; {SHOWS}
            location / {{ proxy_pass http://group; }} location /a {{ proxy_pass http://group; }} }}""")
    with User(one.port, "ann") as ann:
        ann.log_in()
        for target in ("/a", "/", "/a"):
            assert ann.go(target=target).text == "ann"
    check(*two)


def test_upstreams_bind_by_themselves(balancer, two):
    one = balancer(f"""{upstream(two[:1], name="x", head="ntlm;")} {upstream(two[1:], name="y", head="ntlm;")}
        server {{ listen 127.0.0.1:PORT; {SHOWS}
            location / {{ proxy_pass http://x; }} location /y {{ proxy_pass http://y; }} }}""")
    with User(one.port, "ann") as ann:
        ann.log_in()
        challenge = ann.go("NTLM hello", "/y")["WWW-Authenticate"].split()[1]
        assert ann.go(f"NTLM ann {challenge}", "/y").text == "ann"
        assert [ann.go(target=target).text for target in ("/", "/y", "/")] == ["ann"] * 3
    check(*two)


def test_a_client_that_is_idle_for_long_stays_bound(balancer, two):
    one = start(balancer, two, head="keepalive_timeout 100ms; keepalive_requests 1;")
    with User(one.port, "ann") as ann:
        ann.log_in()
        # Longer than a client is kept in the task of its requests, and than shared connections are.
        time.sleep(0.5)
        assert ann.go().text == "ann"
    check(*two)


class CurlServer(Origin):
    """As much of NTLM as curl needs: a challenge in the right form, and any answer to it on the same connection."""

    def __init__(self):
        self.kinds = []
        super().__init__(self.say)

    def say(self, request, connection):
        said = request["Authorization"] or ""
        if not said.startswith("NTLM "):
            return answer("in" if getattr(connection, "known", False) else "who?",
                          "200 OK" if getattr(connection, "known", False) else "401 Unauthorized",
                          [("WWW-Authenticate", "NTLM")])
        message = base64.b64decode(said.split()[1])
        kind, = struct.unpack("<I", message[8:12])
        self.kinds.append(kind)
        if kind == 1:
            connection.challenged = True
            # MS-NLMP 2.2.1.2: name of the target, flags (Unicode, NTLM), challenge, reserved, target information.
            name = "TEST".encode("utf-16-le")
            challenge = (b"NTLMSSP\0" + struct.pack("<IHHII", 2, len(name), len(name), 48, 0x00000201 | 0x00010000)
                         + b"12345678" + bytes(8) + struct.pack("<HHI", 0, 0, 48 + len(name)) + name)
            return answer("", "401 Unauthorized", [("WWW-Authenticate", f"NTLM {base64.b64encode(challenge).decode()}")])
        connection.known = kind == 3 and getattr(connection, "challenged", False)
        return answer("in") if connection.known else answer("no", "403 Forbidden")


@pytest.mark.skipif("NTLM" not in (shutil.which("curl") and subprocess.run(
    ["curl", "-V"], capture_output=True, text=True, check=True).stdout or "").split(), reason="curl knows no NTLM")
def test_curl(balancer):
    servers = [CurlServer(), CurlServer()]
    one = balancer(proxy(servers, head="ntlm;"))
    url = f"http://127.0.0.1:{one.port}"
    done = subprocess.run(["curl", "-s", "--ntlm", "-u", "ann:secret", f"{url}/a", f"{url}/b"], capture_output=True, text=True,
                          timeout=60, check=True)
    assert done.stdout == "inin"
    assert sorted(server.kinds for server in servers) == [[], [1, 3]]
