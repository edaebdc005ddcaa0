"""Remote Desktop clients and their cookies: what they send first decides where they go."""

import collections
import random
import socket
import time

import pytest

from support.balancer import wait_for
from support.expect import CHI_SQUARE, balanza_only, chi_square
from support.hashing import ketama
from support.stream import Streaming, TcpServer, connection_request, upstream

pytestmark = balanza_only("$rdp_cookie is Balanza's own")

LOG = "log_format session '$status $rdp_cookie|$rdp_cookie_msts $upstream_addr';\naccess_log logs/stream.log session;"


@pytest.fixture
def farm():
    """Three terminal servers: each answers a connection request with its name."""
    servers = [TcpServer(f"s{index}") for index in range(3)]
    yield servers
    for server in servers:
        server.stop()


def user(name):
    return connection_request(f"mstshash={name}")


def test_a_user_keeps_the_server(farm):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie consistent;"), log=LOG, workers=2)
    # The ports decide how large the shares are: take as many users of each server.
    expected = ketama([server.server for server in farm])
    names = [f"user{number}" for number in range(2000)]
    users = [name for index in range(3) for name in [name for name in names if expected(name) == index][:40]]
    random.Random(1).shuffle(users)
    first = {name: streaming.ask(user(name)) for name in users}
    assert first == {name: f"s{expected(name)}" for name in users}, "where NGINX's consistent hash has them"
    assert collections.Counter(first.values()) == {"s0": 40, "s1": 40, "s2": 40}
    # From another address and in another order, at other workers.
    for name in reversed(users[:40]):
        assert streaming.ask(user(name), source="127.0.0.99") == first[name]
    assert f"200 {users[0]}|- {farm[int(first[users[0]][1])].server}" in streaming.one.wait_log(160, "stream.log")


def test_the_share_over_many_users(farm):
    streaming = Streaming(upstream(farm, "balance maglev key=$rdp_cookie;"), log="")
    tally = collections.Counter(streaming.ask(user(f"u{number:04}")) for number in range(600))
    assert chi_square([tally[f"s{index}"] for index in range(3)]) < CHI_SQUARE[2], tally


def test_the_server_gets_the_request_as_it_was(farm):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie;"), log=LOG)
    packet = user("alice") + b"and what follows"
    with streaming.connect() as session:
        session.send(packet)
        assert session.line() in (b"s0", b"s1", b"s2")
        assert session.exactly(len(packet)) == packet


@pytest.mark.parametrize("first", [
    connection_request(), connection_request("other=x"), connection_request("mstshash="), b"SSH-2.0-x\r\n",
    b"\x03\x00\x00\x05", connection_request("mstshash=a", version=4)])
def test_without_a_cookie_servers_take_turns(farm, first):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie consistent;"), log=LOG)
    answers = [streaming.ask(first) for _ in range(9)]
    assert collections.Counter(answers) == {"s0": 3, "s1": 3, "s2": 3}
    assert all(line.startswith("200 -|- ") for line in streaming.one.wait_log(9, "stream.log"))


def test_the_user_of_a_dead_server_goes_elsewhere(farm):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie consistent;", "fail_timeout=30s"), log=LOG)
    # So many that those of the dead server do not all move to one of the others by chance, whatever the ports are.
    users = [f"user{number}" for number in range(150)]
    first = {name: streaming.ask(user(name)) for name in users}
    farm[1].stop()
    after = {name: streaming.ask(user(name)) for name in users}
    assert all(after[name] == server for name, server in first.items() if server != "s1")
    assert {after[name] for name, server in first.items() if server == "s1"} == {"s0", "s2"}


def test_other_cookies_have_names(farm):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie_msts consistent;"), log=LOG)
    packet = connection_request("msts=3640205228.15629.0000")
    assert len({streaming.ask(packet) for _ in range(6)}) == 1
    assert streaming.one.wait_log(6, "stream.log")[0].startswith("200 -|3640205228.15629.0000 ")


def test_a_request_in_pieces(farm):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie consistent;"), log=LOG)
    expected = f"s{ketama([server.server for server in farm])('bob')}"
    with streaming.connect() as session:
        session.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in user("bob"):
            session.send(bytes([byte]))
            time.sleep(0.001)
        assert session.line().decode() == expected
    assert streaming.one.wait_log(1, "stream.log")[0].startswith("200 bob|- ")


def test_clients_who_say_nothing_or_too_much(farm):
    streaming = Streaming(upstream(farm, "hash $rdp_cookie;") .replace("proxy_pass", "preread_timeout 2s; "
                          "preread_buffer_size 20; proxy_pass"), log=LOG)
    begun = time.monotonic()
    with streaming.connect() as session:
        assert session.rest() == b"", "nobody speaks first"
        # The default is half a minute.
        assert 1.9 < time.monotonic() - begun < 25
    with streaming.connect() as session:
        session.send(user("alice")[:10])
        assert session.rest() == b""
    assert streaming.ask(user("alice")) == "", "it does not fit"
    with streaming.connect() as session:
        session.send(user("alice")[:10])
    lines = wait_for(lambda: (found := streaming.one.access_log("stream.log"))[3:] and found, what="four lines")
    assert [line.split(" ")[0] for line in lines] == ["200", "200", "400", "200"]
    assert "preread buffer full" in streaming.one.error_log()
    assert sum(server.count for server in farm) == 0


def test_sessions_that_need_no_cookie_do_not_wait(farm):
    log = "log_format f '$status $upstream_addr';\naccess_log logs/stream.log f;"
    streaming = Streaming(upstream(farm, "hash $remote_addr;"), log=log)
    with streaming.connect() as session:
        assert session.line() in (b"s0", b"s1", b"s2"), "the server speaks first"
