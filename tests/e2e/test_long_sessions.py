"""Real servers with long sessions behind `stream`: PostgreSQL and SSH."""

import collections
import concurrent.futures
import hashlib
import os
import pathlib
import signal
import socket

import pytest

from support import postgresql, ssh
from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.hashing import ketama
from support.stream import Streaming

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")

without_postgresql = pytest.mark.skipif(bool(postgresql.available()), reason=postgresql.available() or "-")
without_ssh = pytest.mark.skipif(not (ssh.SSHD and ssh.SSH), reason="no OpenSSH")


@pytest.fixture
def databases():
    farm = postgresql.Farm(2)
    yield farm.servers
    farm.stop()


@pytest.fixture
def shells():
    farm = ssh.Farm(3)
    yield farm
    farm.stop()


def text(servers, method, parameters="", marks=None):
    marks = marks or {}
    listed = " ".join(f"server {server.server} {parameters} {marks.get(server, '')};" for server in servers)
    return (f"upstream u {{ zone u 64k; {method} {listed} }}\n"
            "server { listen 127.0.0.1:SPORT; proxy_pass u; }")


def sessions(port, count):
    """So many open sessions of psql, begun one after the other."""
    return [postgresql.Psql(port) for _ in range(count)]


@without_postgresql
def test_postgresql_with_least_conn(databases):
    streaming = Streaming(text(databases, "least_conn;"), workers=2)
    held = sessions(streaming.stream_port, 6)
    try:
        assert collections.Counter(one.place for one in held) == {server.name: 3 for server in databases}
        # A large result and a transaction pass whole.
        assert held[0].ask("select length(repeat('x', 3000000));") == "3000000"
        assert len(held[1].ask("select repeat('y', 1000000);")) == 1_000_000
        assert held[2].ask("begin; create temp table t as select generate_series(1, 1000) n; select sum(n) from t;") == "500500"
        # The sessions of one server end, and the next ones take their places.
        freed = databases[0].name
        for one in [one for one in held if one.place == freed]:
            one.close()
        streaming.lines(3)
        more = sessions(streaming.stream_port, 3)
        held += more
        assert [one.place for one in more] == [freed] * 3
    finally:
        for one in held:
            one.close()


@without_postgresql
def test_postgresql_that_is_killed_in_the_middle(databases):
    """Its sessions break in their query; those of the other server do not notice, and new sessions find it."""
    streaming = Streaming(text(databases, "least_conn;", "max_fails=1 fail_timeout=60s"), workers=2)
    held = sessions(streaming.stream_port, 4)
    lost, kept = databases
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # The query runs until the server dies.
        broken = [pool.submit(one.ask, "select pg_sleep(60);") for one in held if one.place == lost.name]
        wait_for(lambda: _running(kept, lost) == 2, what="the queries to run")
        lost.kill()
        said = [one.result(30) for one in broken]
    assert len(said) == 2 and all("terminat" in line or "closed" in line or not line for line in said), said
    for one in held:
        if one.place == kept.name:
            assert one.ask("select 1;") == "1"
    more = sessions(streaming.stream_port, 4)
    assert [one.place for one in more] == [kept.name] * 4
    for one in held + more:
        one.close()


def _running(kept, lost):
    """Queries that the server is at, by a session of its own."""
    with postgresql.Psql(lost.port) as own:
        assert own.place != kept.name
        return int(own.ask("select count(*) from pg_stat_activity where query like 'select pg_sleep%';"))


@without_postgresql
def test_a_client_of_postgresql_keeps_its_server(databases):
    streaming = Streaming(text(databases, "hash $remote_addr consistent;"), workers=2)
    held = sessions(streaming.stream_port, 5)
    assert len({one.place for one in held}) == 1
    for one in held:
        one.close()


@without_postgresql
def test_a_drain_waits_for_sessions_of_postgresql(databases):
    """A server that is marked "down" keeps its sessions and gets no others; QUIT waits for the last one."""
    streaming = Streaming(text(databases, "least_conn;"))
    held = sessions(streaming.stream_port, 2)
    assert {one.place for one in held} == {server.name for server in databases}
    streaming.reload(text(databases, "least_conn;", marks={databases[0]: "down"}))
    streaming.one.wait_error("reconfiguring")

    def place():
        with postgresql.Psql(streaming.stream_port) as one:
            return one.place
    wait_for(lambda: [place() for _ in range(3)] == [databases[1].name] * 3, what="the server to get no sessions")
    assert [one.ask("select 7;") for one in held] == ["7", "7"]
    streaming.one.notify(signal.SIGQUIT)
    wait_for(lambda: _refuses(streaming.stream_port), what="the socket to close")
    assert [one.ask("select 8;") for one in held] == ["8", "8"]
    held[0].close()
    assert held[1].ask("select 9;") == "9", "the other session keeps the process"
    assert streaming.one.process.poll() is None
    held[1].close()
    streaming.one.process.wait(40)


def _refuses(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@without_ssh
def test_ssh_with_least_conn(shells):
    streaming = Streaming(text(shells.servers, "least_conn;"), workers=2)
    held, numbers = [], []
    for _ in range(3):
        # One after the other: two workers may choose the same server at the same moment.
        held.append(shells.client(streaming.stream_port, "echo $NUMBER; exec cat"))
        numbers.append(int(held[-1].stdout.readline()))
    assert sorted(numbers) == [0, 1, 2]
    data = os.urandom(3_000_000)
    out, _ = held[0].communicate(data, timeout=60)
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()
    streaming.lines(1)
    for one in held[1:]:
        one.stdin.write(b"still here\n")
        one.stdin.flush()
        assert one.stdout.readline() == b"still here\n"
        one.communicate(timeout=60)


@without_ssh
def test_clients_of_ssh_keep_their_servers(shells):
    """By address, and when a server is lost only its clients move."""
    streaming = Streaming(text(shells.servers, "hash $remote_addr consistent;", "max_fails=1 fail_timeout=60s"), workers=2)
    # Some of each server, whatever the ports are.
    home = ketama([server.server for server in shells.servers])
    everybody = [f"127.0.0.{last}" for last in range(2, 250)]
    sources = [source for number in range(3) for source in [it for it in everybody if home(it) == number][:3]]

    def places():
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return dict(zip(sources, pool.map(lambda source: shells.place(streaming.stream_port, source), sources)))
    before = places()
    assert before == places() == {source: home(source) for source in sources}
    lost = next(iter(before.values()))
    shells.servers[lost].kill()
    after = places()
    assert all(after[source] == before[source] for source in sources if before[source] != lost)
    assert lost not in after.values()


@without_ssh
def test_an_ssh_server_that_is_killed_in_the_middle(shells):
    streaming = Streaming(text(shells.servers, "least_conn;", "max_fails=1 fail_timeout=60s"))
    held = [shells.client(streaming.stream_port, "echo $NUMBER; exec cat") for _ in range(3)]
    numbers = [int(one.stdout.readline()) for one in held]
    assert sorted(numbers) == [0, 1, 2]
    shells.servers[numbers[0]].kill()
    assert held[0].wait(30) != 0, "its session has ended, with an error"
    assert shells.place(streaming.stream_port) != numbers[0]
    for one in held[1:]:
        one.stdin.write(b"x\n")
        one.stdin.flush()
        assert one.stdout.readline() == b"x\n"
    for one in held:
        one.kill()
        one.communicate()
