"""Resources that once ran out or were wasted: connections to servers, memory, places for clients."""

import ctypes
import pathlib
import re
import subprocess
import threading
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get, get_if_room
from support.expect import balanza_only
from support.origin import answer, proxy

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZE = 1_000_000


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("data", [answer(bytes(SIZE)), CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (SIZE, bytes(SIZE))],
                         ids=["length", "chunked"])
def test_connection_to_the_server_is_kept_after_large_bodies(balancer, origin, data, buffering):
    server = origin(data)
    one = balancer(proxy([server], location=f"proxy_buffering {buffering};"))
    with Client(one.port) as client:
        for _ in range(4):
            assert len(client.get().body) == SIZE
    assert len(server.connections) == 1


def unsent(port, peer):
    """Bytes in the send queue of the socket from one local port to another."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1][-4:], 16) == port and int(fields[2][-4:], 16) == peer:
            return int(fields[4].split(":")[0], 16)
    return 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_memory_of_a_dribbling_server_is_bounded(balancer, origin, buffering):
    """One-byte chunks for a client that reads nothing: what waits is bytes, not buffers."""
    ended, full = threading.Event(), threading.Event()

    def deliver(connection, data):
        while data and not ended.is_set():
            try:
                data = data[connection.sock.send(data):]
            except TimeoutError:
                full.set()

    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(CHUNKED)
        # The kernel takes some megabytes for the client; from there on the balancer keeps what comes, or takes nothing more.
        connection.sock.settimeout(0.5)
        before = same = sent = 0
        while same < 2 and not full.is_set():
            deliver(connection, b"3e80\r\n%s\r\n" % bytes(16000))
            time.sleep(0.002)
            sent += 1
            # A look at all of the machine's sockets takes its time, so none at first.
            if sent > 100:
                before, same = (queue := unsent(one.port, peer)), same + 1 if queue == before else 0
        full.set()
        while not ended.is_set():
            deliver(connection, b"1\r\nz\r\n")
            time.sleep(0.0001)

    server = origin(handle, raw=True)
    one = balancer(proxy([server], location=f"proxy_buffering {buffering};"))
    with Client(one.port, receive_buffer=4096) as client:
        peer = client.sock.getsockname()[1]
        client.request()
        assert full.wait(120)
        before = one.rss()
        time.sleep(2.5)
        grown = one.rss() - before
        ended.set()
    assert grown < 5_000_000, f"{grown} bytes"


@pytest.mark.parametrize("requests", [0, 1], ids=["silent", "idle"])
def test_silent_clients_make_room(balancer, origin, requests):
    one = balancer(proxy([origin()]), events="worker_connections 20;")
    others = []

    def arrive():
        others.append(Client(one.port))
        for _ in range(requests):
            assert others[-1].get().status == 200

    try:
        for _ in range(2):
            for _ in range(10):
                arrive()
            # Clients that a worker accepts all at once are not silent yet, and make no room.
            assert get(one.port).status == 200
        for _ in range(10):
            assert get(one.port).status == 200
            arrive()
    finally:
        for other in others:
            other.close()


@pytest.fixture
def held(origin):
    """Two servers that keep each request until the test says `go`."""
    go = threading.Event()

    def wait(request, connection):
        go.wait(60)
        return answer("ok")

    servers = [origin(wait), origin(wait)]
    servers[0].go = go
    yield servers
    go.set()


def ask_at_once(one, count, unix=None):
    """Sends requests on connections of their own; returns the clients."""
    return [Client(one.port, unix=unix).request() for _ in range(count)]


def ask_beyond_the_limit(one, servers, count):
    """The same, the first four alone: a worker that accepted all of the clients at once would have no room for a server."""
    first = ask_at_once(one, 4)
    wait_for(lambda: sum(server.in_flight for server in servers) == 4, what="the first requests at their servers")
    return first + ask_at_once(one, count - 4)


def statuses(clients):
    """Reads and closes; None for a connection that was closed without an answer."""
    found = []
    for client in clients:
        with client:
            try:
                response = client.response()
            except ConnectionError:
                response = None
            found.append(response and response.status)
    return found


def has_room(one):
    """Whether it has seen the ends of enough clients to serve one more."""
    answered = get_if_room(one.port)
    return answered and answered.status == 200


def assert_servers_are_trusted(one, servers):
    """All of them get requests at once, and nothing was held against any."""
    before = [server.count for server in servers]
    assert [get(one.port).status for _ in range(2 * len(servers))] == [200] * 2 * len(servers)
    assert all(server.count > count for server, count in zip(servers, before, strict=True))
    log = one.error_log()
    assert "temporarily disabled" not in log and "no live upstreams" not in log


def test_out_of_worker_connections_counts_against_no_server(balancer, held):
    """NGINX: 500 to the requests for which there is no connection; the servers stay in."""
    one = balancer(proxy(held), events="worker_connections 24;")
    clients = ask_beyond_the_limit(one, held, 16)
    wait_for(lambda: "worker_connections are not enough" in one.error_log(), what="the alert")
    held[0].go.set()
    found = statuses(clients)
    assert set(found) <= {200, 500, None} and found.count(200) >= 4, found
    wait_for(lambda: has_room(one), what="room")
    assert_servers_are_trusted(one, held)


def test_out_of_descriptors_counts_against_no_server(balancer, held):
    one = balancer(proxy(held), main="worker_rlimit_nofile 48;", events="worker_connections 400;")
    clients = ask_beyond_the_limit(one, held, 30)
    wait_for(lambda: "24: Too many open files" in one.error_log(), what="the alert")
    held[0].go.set()
    found = statuses(clients)
    assert set(found) <= {200, 500, None} and found.count(200) >= 4, found
    wait_for(lambda: has_room(one), what="room")
    assert_servers_are_trusted(one, held)


@balanza_only("answers 500 while connections to servers are kept")
def test_connections_kept_to_servers_make_room(balancer, origin):
    """Connections kept for later requests give way to the requests that are there."""
    servers = [origin() for _ in range(12)]
    groups = "".join(f"upstream g{i} {{ server {server.server}; }}" for i, server in enumerate(servers))
    locations = "".join(f"location /{i}/ {{ proxy_pass http://g{i}; }}" for i in range(len(servers)))
    one = balancer(f"{groups} server {{ listen 127.0.0.1:PORT; {locations} }}", events="worker_connections 8;")
    with Client(one.port) as client:
        for _ in range(2):
            assert [client.get(f"/{i}/").status for i in range(len(servers))] == [200] * len(servers)


def test_failed_bind_counts_against_no_server(balancer, origin):
    """An address that is not this machine's: the request fails with 500, without another attempt."""
    servers = [origin(), origin()]
    one = balancer(proxy(servers, location="proxy_bind $arg_from;"))
    for _ in range(4):
        assert get(one.port, "/?from=192.0.2.1").status == 500
    assert sum(server.count for server in servers) == 0
    assert len(re.findall(r"bind\(.*\) failed \(99: Cannot assign requested address\)", one.error_log())) == 4
    assert_servers_are_trusted(one, servers)


@pytest.fixture
def few_ports():
    """A network of the test's own; calling the fixture leaves only so many local ports."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        if libc.unshare(0x40000000) != 0:
            pytest.skip("needs the right to make a network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield lambda count: pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"40000 {39999 + count}")
        finally:
            libc.setns(before.fileno(), 0x40000000)


def test_out_of_ports_counts_against_no_server(balancer, few_ports, held):
    """All ports towards the servers are taken: the requests that need one fail, the servers stay in."""
    one = balancer(proxy(held, server="listen unix:DIR/socket;"))
    few_ports(4)
    clients = ask_at_once(one, 12, one.dir / "socket")
    wait_for(lambda: sum(client.answered(0.01) for client in clients) == 4, what="the refusals")
    one.wait_error("99: Cannot assign requested address")
    held[0].go.set()
    found = statuses(clients)
    assert set(found) == {200, 502} and found.count(200) == 8, found
    if one.kind == "balanza":
        assert_servers_are_trusted(one, held)


def test_a_local_address_serves_many_servers_with_the_same_ports(balancer, few_ports, held):
    """`proxy_bind` without a port: ports are used up towards each server apart, not towards all together."""
    one = balancer(proxy(held, server="listen unix:DIR/socket;", location="proxy_bind 127.0.0.9;"))
    few_ports(4)
    clients = ask_at_once(one, 8, one.dir / "socket")
    wait_for(lambda: sum(server.count for server in held) == 8, what="8 requests at the servers")
    held[0].go.set()
    assert statuses(clients) == [200] * 8
