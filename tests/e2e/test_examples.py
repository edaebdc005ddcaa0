"""The configurations in examples/, as they are but for the ports: the share that each server gets."""

import collections
import concurrent.futures
import re
import ssl
import threading
import time

import pytest

from support.balancer import ROOT, Balancer, wait_for
from support.certificates import authority, certificate
from support.client import Client, get
from support.expect import balanza_only, chi_square
from support.grpc_server import Calls, GrpcServer
from support.hashing import ip_hash, ketama
from support.origin import Origin, answer, named
from support.ports import free_port
from support.stream import Session, TcpServer, connection_request
from support.tls import context, fetch, text
from support.udp import UdpClient, UdpServer

EXAMPLES = ROOT / "examples"
FARMS = [path.name for path in sorted(EXAMPLES.glob("*.conf"))]


# The files that examples name.
FILES = {
    "example.test.pem": lambda: certificate("example.test").certificate,
    "example.test.key": lambda: certificate("example.test").key,
    "balancer.pem": lambda: certificate("balancer").certificate,
    "balancer.key": lambda: certificate("balancer").key,
    "clients.pem": lambda: authority("clients").certificate,
    "servers.pem": lambda: authority().certificate,
}


def run(name, servers, changes=()):
    """Starts a balancer with an example whose ports are replaced; `changes` are pairs of other words to replace."""
    text = (EXAMPLES / name).read_text().replace("127.0.0.1:8080", "127.0.0.1:PORT")
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    second = free_port()
    text = text.replace("127.0.0.1:8081", f"127.0.0.1:{second}")
    for index, server in enumerate(servers):
        text = text.replace(f"127.0.0.1:800{index + 1}", server.server)
    # The account of a pod, which is not here.
    text = text.replace("discover kubernetes service", "discover kubernetes http://127.0.0.1:1 service")
    for name, file in FILES.items():
        if f" {name};" in text:
            text = text.replace(f" {name};", f" {file()};")
    assert not re.search(r"127.0.0.1:80\d\d", re.sub(r"#.*", "", text)), "an address is left"
    balancer = Balancer(text=text)
    balancer.second = second
    return balancer


def ask(balancer, count, target="/", headers=()):
    """The servers that answered on one connection, in order."""
    with Client(balancer.port) as client:
        return [int(client.get(target, headers=headers, host="balanceador").body) for _ in range(count)]


def counts(answers, servers):
    tally = collections.Counter(answers)
    return [tally[index] for index in range(servers)]


@pytest.mark.parametrize("name, weights", [
    ("round-robin.conf", [1, 1, 1]),
    ("weight.conf", [2, 1, 1]),
    ("weighted-farm.conf", [4, 4, 2, 1]),
    ("two-servers.conf", [1, 1]),
    ("uniform.conf", [1, 1, 1]),
])
def test_turns(name, weights):
    servers = named(len(weights))
    balancer = run(name, servers)
    cycle = sum(weights)
    answers = ask(balancer, 20 * cycle)
    # Not only in the sum: in every window as long as a cycle.
    for start in range(len(answers) - cycle + 1):
        assert counts(answers[start:start + cycle], len(weights)) == weights
    assert [server.count for server in servers] == [20 * weight for weight in weights]


@pytest.mark.parametrize("name", ["weighted-farm.conf", "least-conn-farm.conf", "two-servers.conf"])
def test_headers_of_a_farm(name):
    servers = named(4)
    balancer = run(name, servers)
    with Client(balancer.port, source="127.0.7.9") as client:
        for _ in range(22):
            client.get("/f.php", host="balanceador",
                       headers=[("X-Forwarded-For", "10.1.2.3"), ("X-Real-IP", "forged"), ("Connection", "keep-alive")])
    requests = [request for server in servers for request in server.requests]
    assert len(requests) == 22
    for request in requests:
        assert request.start == "GET /f.php HTTP/1.1"
        assert request.all("Host") == ["balanceador"]
        assert request.all("X-Real-IP") == ["127.0.7.9"]
        assert request.all("X-Forwarded-For") == ["10.1.2.3, 127.0.7.9"]
        assert request["Connection"] is None
    lines = balancer.wait_log(22, "balanceador.access.log")
    assert all(line.startswith("127.0.7.9 - - [") and '"GET /f.php HTTP/1.1" 200 1 "-" "-"' in line for line in lines)


def in_flight(name, weights, clients):
    """Requests in flight at each server while so many clients wait at once."""
    gate = threading.Event()

    def slow(index):
        def handle(request, connection):
            gate.wait(60)
            return answer(str(index))
        return handle

    servers = [named(1, slow(index))[0] for index in range(len(weights))]
    balancer = run(name, servers)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = []
        for count in range(clients):
            # One at a time, so that the balancer has counted a request before the next one comes.
            answers.append(pool.submit(get, balancer.port, host="balanceador", timeout=60))
            wait_for(lambda expected=count + 1: sum(server.in_flight for server in servers) == expected,
                     what=f"{count + 1} requests at the servers")
        seen = [server.in_flight for server in servers]
        gate.set()
        assert all(result.result().status == 200 for result in answers)
    return seen


@pytest.mark.parametrize("name, weights, expected", [
    ("least-conn.conf", [1, 1, 1], [6, 6, 6]),
    ("least-conn-farm.conf", [1, 1, 1, 1], [5, 5, 5, 5]),
    ("weighted-least-conn.conf", [3, 1, 1], [12, 4, 4]),
])
def test_least_connections_fills_evenly(name, weights, expected):
    assert in_flight(name, weights, sum(expected)) == expected


def test_least_connections_avoids_the_slow_server():
    gate = threading.Event()

    def stuck(request, connection):
        gate.wait(90)
        return answer("0")

    servers = named(1, stuck) + named(2)
    balancer = run("least-conn.conf", servers)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(get, balancer.port, timeout=90) for _ in range(400)]
        wait_for(lambda: sum(server.count for server in servers) == 400, 80, "all requests at the servers")
        # With four clients, two wait for it at most: then the others have fewer requests in flight.
        assert 1 <= servers[0].count <= 2
        gate.set()
        assert all(future.result().status == 200 for future in pending)


def test_hash_agrees_with_its_definition():
    servers = named(3)
    balancer = run("hash-consistent.conf", servers)
    expected = ketama([server.server for server in servers])
    with Client(balancer.port) as client:
        for number in range(500):
            target = f"/item/{number}?page={number % 7}"
            assert int(client.get(target).body) == expected(target), target
    assert min(server.count for server in servers) > 80


def test_hash_moves_only_the_keys_of_a_dead_server():
    servers = named(3)
    balancer = run("hash-consistent.conf", servers)
    # So many that those of the dead server do not all move to one of the others by chance, whatever the ports are.
    before = [int(get(balancer.port, f"/k{number}").body) for number in range(150)]
    servers[1].stop()
    after = [int(get(balancer.port, f"/k{number}").body) for number in range(150)]
    assert all(now == then for now, then in zip(after, before, strict=True) if then != 1)
    assert {now for now, then in zip(after, before, strict=True) if then == 1} == {0, 2}


def test_ip_hash_keeps_a_client_with_its_server():
    servers = named(3)
    balancer = run("ip-hash.conf", servers)
    expected = ip_hash(3)
    for third in range(0, 250, 10):
        for last in (1, 77):
            source = f"127.0.{third}.{last}"
            assert int(get(balancer.port, source=source).body) == expected(source), source
    assert set(ask(balancer, 30)) == {expected("127.0.0.1")}
    assert min(server.count for server in servers) > 0


@balanza_only("random two least_time is in NGINX Plus only")
def test_random_two_prefers_the_fast_servers():
    def handle(index):
        def work(request, connection):
            time.sleep(0.7 if index == 0 else 0)
            return answer(str(index))
        return work

    servers = [named(1, handle(index))[0] for index in range(3)]
    balancer = run("random-two.conf", servers)

    def slow_ones():
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            return sum(answers.count(0) for answers in pool.map(lambda _: ask(balancer, 60), range(3)))

    # A third would be 60. A first response that a busy machine delays is forgotten after some time.
    wait_for(lambda: slow_ones() < 20, 80, "the slow server's small part")


@balanza_only("$rdp_cookie is Balanza's own")
def test_remote_desktop_users_keep_their_servers():
    servers = [TcpServer(f"s{index}") for index in range(3)]
    balancer = run("remote-desktop.conf", servers)
    expected = ketama([server.server for server in servers])
    for _ in range(2):
        for name in (f"user{number}" for number in range(20)):
            with Session(balancer.port) as session:
                session.send(connection_request(f"mstshash={name}"))
                assert session.line().decode() == f"s{expected(name)}"
    # A session is logged when the balancer has seen its end, in whatever order.
    wait_for(lambda: sum(" user19 127.0.0.1:" in line for line in balancer.access_log("sessions.log")) == 2)
    for server in servers:
        server.stop()


def test_name_servers():
    servers = [UdpServer(f"s{index}") for index in range(2)]
    over_tcp = [TcpServer("tcp", port=server.port) for server in servers]
    # A busy machine may stand still for two seconds, and the server would be left out.
    balancer = run("dns.conf", servers, [("proxy_timeout 2s;", "proxy_timeout 8s;")])
    seen = collections.Counter()
    for _ in range(20):
        with UdpClient(balancer.port) as client:
            seen[client.ask()] += 1
    # Each worker takes turns; the kernel chooses the worker.
    assert sum(seen.values()) == 20 and abs(seen[b"s0:?"] - seen[b"s1:?"]) <= 2
    servers[1].stop()
    with UdpClient(balancer.port) as client:
        assert [client.ask() for _ in range(10)] == [b"s0:?"] * 10
    with Session(balancer.port) as session:
        assert session.line() == b"tcp"
    for server in over_tcp:
        server.stop()


def test_databases():
    servers = [TcpServer(f"s{index}") for index in range(4)]
    balancer = run("databases.conf", servers)
    # The connections that tried whether it listens have to be over.
    balancer.wait_log(1, "sessions.log")
    wait_for(lambda: not servers[0].open and not servers[1].open, what="no sessions")
    sessions, answers = [], collections.Counter()
    for _ in range(6):
        sessions.append(Session(balancer.port))
        answers[sessions[-1].line()] += 1
    assert answers == {b"s0": 3, b"s1": 3}
    expected = ketama([server.server for server in servers[2:]])
    for source in (f"127.0.0.{last}" for last in range(2, 22)):
        with Session(balancer.second, source) as session:
            assert session.line().decode() == f"s{2 + expected(source)}"
    for session in sessions:
        session.close()
    for server in servers:
        server.stop()


def server_of_tls(handler, name, asks=None):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate(name).certificate, certificate(name).key)
    if asks:
        tls.load_verify_locations(asks)
        tls.verify_mode = ssl.CERT_REQUIRED
    return Origin(handler, tls=tls)


def test_a_farm_behind_tls():
    servers = named(3, lambda request, _: answer(request["X-Forwarded-Proto"].encode()))
    balancer = run("https.conf", servers)
    response = fetch(balancer.port, name="example.test")
    assert response.body == b"https" and response["Strict-Transport-Security"] == "max-age=63072000"
    response = get(balancer.port, "/x?y", host="example.test")
    assert response.status == 302 and response["Location"] == f"https://example.test:{balancer.port}/x?y"


def test_calls_of_grpc_and_errors_in_its_words():
    grpc = pytest.importorskip("grpc")
    servers = [GrpcServer(name) for name in (b"0", b"1", b"2")]
    balancer = run("grpc.conf", servers)
    with Calls(balancer.port) as calls:
        assert sorted(calls.unary(b"", timeout=10) for _ in range(9)) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
        assert list(calls.both(iter([b"a", b"b"]), timeout=10)) == [b"A", b"B"]
        for server in servers:
            server.grpc.stop(0).wait()
        with pytest.raises(grpc.RpcError) as error:
            calls.unary(b"", timeout=10)
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.UNAVAILABLE, "no server")


@balanza_only("NGINX has CONNECT since 1.31")
def test_tunnels_to_some_targets():
    server = TcpServer("0")
    text = (EXAMPLES / "forward-proxy.conf").read_text().replace("127.0.0.1:8080", "127.0.0.1:PORT")
    balancer = Balancer(text=text.replace("443 1;", f"{server.port} 1;"))
    for target, status in [(server.server, "200"), ("127.0.0.1:1", "403"), (f"127.0.0.2:{server.port}", "403")]:
        with Client(balancer.port) as client:
            client.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
            head, rest = client.reader.until(b"\r\n\r\n"), 2 * (status == "200")
            assert head.split()[1].decode() == status and client.reader.exactly(rest) == b"0\n"[:rest]


def test_certificates_on_both_ways():
    def show(request, connection):
        return answer(f"{request['X-Client']} {dict(connection.sock.getpeercert()['subject'][1])['commonName']}".encode())

    servers = [server_of_tls(show, "server.test", authority().certificate) for _ in range(2)]
    balancer = run("mtls.conf", servers)
    client = context(certificate=certificate("me", by="clients"))
    assert text(balancer.port, name="example.test", tls=client) == "CN=me,O=Tests balancer"
    assert fetch(balancer.port, name="example.test").status == 400
    assert fetch(balancer.port, name="example.test", tls=context(certificate=certificate("me"))).status == 400


def test_tls_that_is_passed_on():
    servers = [server_of_tls(answer(name), f"{name}.example.test") for name in "ab"]
    balancer = run("tls-passthrough.conf", servers)
    for name in "ab":
        assert text(balancer.port, name=f"{name}.example.test") == name


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=balanza_only("Plus only, or Balanza's own")
                 if name in ("random-two.conf", "remote-desktop.conf", "forward-proxy.conf", "consul.conf", "docker.conf", "kubernetes.conf") else ()) for name in FARMS])
def test_configuration_is_accepted(name):
    servers = named(4)
    balancer = run(name, servers)
    result = balancer.test_config()
    assert result.returncode == 0, result.stderr
    assert "test is successful" in result.stderr
