"""Sessions of `stream`: bytes as they are, both ways; ends, failures, limits."""

import collections
import hashlib
import os
import pathlib
import socket
import threading
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.ports import free_port
from support.stream import SERVER, Session, Streaming, TcpServer, names, upstream

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")


# What passes through


def test_bytes_pass_both_ways_and_are_counted(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(SERVER % (server.server, ""))
    with streaming.connect() as session:
        assert session.line() == b"s0", "a server may speak first"
        for size in (1, 10, 100_000):
            data = os.urandom(size)
            session.send(data)
            assert session.exactly(size) == data
    status, received, sent, times, protocol, client = streaming.lines(1)[0]
    assert (status, received, sent, protocol, client) == ("200", "100011", "100014", "TCP", "127.0.0.1")
    address, to_server, from_server, connect, first_byte, whole, session_time = times.split("|")
    assert (address, to_server, from_server) == (server.server, "100011", "100014")
    assert 0 <= float(connect) <= float(first_byte) <= float(whole) <= float(session_time) + 0.002


def test_servers_take_turns(tcp_servers):
    streaming = Streaming(upstream(tcp_servers(3)))
    answers = names(streaming, 9)
    assert collections.Counter(answers) == {"s0": 3, "s1": 3, "s2": 3}


def test_unix_sockets(tcp_servers, open_dir):
    [server] = tcp_servers(path=open_dir / "server.sock")
    path = open_dir / "client.sock"
    streaming = Streaming(f"server {{ listen unix:{path}; proxy_pass {server.server}; }}"
                          f"server {{ listen 127.0.0.1:SPORT; proxy_pass unix:{path}; }}")
    with Session(0, path=path) as session:
        assert session.line() == b"s0"
        session.send(b"abc")
        assert session.exactly(3) == b"abc"
    with streaming.connect() as session:
        assert session.line() == b"s0", "over two sockets and through two servers"
    clients = sorted(line[-1] for line in streaming.lines(3))
    assert clients == ["127.0.0.1", "unix:", "unix:"]


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("settings", ["", "proxy_buffer_size 4k;"])
def test_a_hundred_megabytes(tcp_servers, upwards, settings):
    block = os.urandom(1 << 20)
    whole = hashlib.sha256(block * 100).hexdigest().encode()

    def sink(sock):
        digest, count = hashlib.sha256(), 0
        while count < 100 << 20:
            data = sock.recv(1 << 18)
            if not data:
                return
            digest.update(data)
            count += len(data)
        sock.sendall(digest.hexdigest().encode())

    def source(sock):
        sock.recv(1)
        for _ in range(100):
            sock.sendall(block)

    [server] = tcp_servers(handle=sink if upwards else source)
    streaming = Streaming(SERVER % (server.server, settings))
    with streaming.connect() as session:
        session.sock.settimeout(30)
        if upwards:
            for _ in range(100):
                session.send(block)
            assert session.rest() == whole
        else:
            session.send(b"?")
            assert hashlib.sha256(session.rest()).hexdigest().encode() == whole
    _, received, sent, *_ = streaming.lines(1)[0]
    assert int(received if upwards else sent) == 100 << 20


def test_many_sessions_at_once(tcp_servers):
    backends = tcp_servers(2)
    streaming = Streaming(upstream(backends), workers=2)
    sessions = [streaming.connect() for _ in range(200)]
    for number, session in enumerate(sessions):
        session.send(b"%03d" % number)
    tally = collections.Counter()
    for number, session in enumerate(sessions):
        tally[session.line()] += 1
        assert session.exactly(3) == b"%03d" % number
        session.close()
    # Each worker has its own turns.
    assert sum(tally.values()) == 200 and abs(tally[b"s0"] - tally[b"s1"]) <= 4
    assert all(line[0] == "200" for line in streaming.lines(200))


# How sessions end


def test_the_end_of_one_side_ends_the_session(tcp_servers):
    ended = threading.Event()

    def handle(sock):
        sock.sendall(b"hello\n")
        while sock.recv(100):
            pass
        ended.set()
        time.sleep(0.1)
        sock.sendall(b"too late\n")

    [server] = tcp_servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, ""))
    with streaming.connect() as session:
        assert session.line() == b"hello"
        session.end()
        assert session.rest() == b""
    assert ended.wait(20)
    assert streaming.lines(1)[0][0] == "200"


def test_half_close_passes_the_end_on(tcp_servers):
    def handle(sock):
        data = b""
        while piece := sock.recv(100):
            data += piece
        time.sleep(0.1)
        sock.sendall(data[::-1])

    [server] = tcp_servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, "proxy_half_close on;"))
    with streaming.connect() as session:
        session.send(b"abcdef")
        session.end()
        assert session.rest() == b"fedcba"
    status, received, sent, *_ = streaming.lines(1)[0]
    assert (status, received, sent) == ("200", "6", "6")


def test_half_close_the_other_way(tcp_servers):
    got = []

    def handle(sock):
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while piece := sock.recv(100):
            data += piece
        got.append(data)

    [server] = tcp_servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, "proxy_half_close on;"))
    with streaming.connect() as session:
        assert session.rest() == b"bye"
        session.send(b"still here")
        time.sleep(0.1)
        session.end()
        wait_for(lambda: got, what="the server to see the end")
    assert got == [b"still here"]
    streaming.lines(1)


def test_what_was_sent_before_the_end_arrives(tcp_servers):
    data = os.urandom(300_000)
    [server] = tcp_servers(handle=lambda sock: sock.sendall(data))
    streaming = Streaming(SERVER % (server.server, ""))
    with streaming.connect() as session:
        time.sleep(0.1)
        assert session.rest() == data


def test_idle_sessions_end(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(SERVER % (server.server, "proxy_timeout 5s;"))
    with streaming.connect() as session:
        session.line()
        begun = time.monotonic()
        # Longer than the timeout together, and each much shorter.
        for _ in range(8):
            time.sleep(0.7)
            session.send(b"x")
            assert session.exactly(1) == b"x", "what moves is not idle"
        session.sock.settimeout(30)
        assert session.rest() == b""
        assert 10.2 < time.monotonic() - begun
    assert streaming.lines(1)[0][0] == "200"
    streaming.one.wait_error(r"connection timed out \(110: Connection timed out\)")


def test_a_client_who_resets(tcp_servers):
    ended = threading.Event()

    def handle(sock):
        sock.sendall(b"x\n")
        sock.recv(1)
        ended.set()

    [server] = tcp_servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, ""))
    session = streaming.connect()
    session.line()
    session.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    session.close()
    assert ended.wait(20)
    assert streaming.lines(1)[0][0] == "200"


# Servers that fail


def dead():
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


def test_the_next_server_is_tried(tcp_servers):
    [server] = tcp_servers()
    gone = dead()
    streaming = Streaming(f"upstream u {{ server {gone} max_fails=0; server {server.server} max_fails=0; }}"
                          + SERVER % ("u", ""))
    assert names(streaming, 4) == ["s0"] * 4
    lines = streaming.one.wait_log(4, "stream.log")
    assert all(line.startswith("200 0 3 ") for line in lines)
    assert any(f" {gone}, {server.server}|0, 0|0, 3|-, 0." in line for line in lines), lines
    streaming.one.wait_error(rf'connect\(\) failed \(111: Connection refused\) while connecting to upstream, '
                             rf'client: 127.0.0.1, server: 127.0.0.1:{streaming.stream_port}, upstream: "{gone}"')


def test_all_servers_down(tcp_servers):
    one, two = dead(), dead()
    streaming = Streaming(f"upstream u {{ server {one}; server {two}; }}" + SERVER % ("u", ""))
    assert streaming.ask() == ""
    assert streaming.ask() == ""
    first, second = (line for line in streaming.one.wait_log(2, "stream.log"))
    assert first.startswith(f"502 0 0 {one}, {two}|")
    assert second.startswith("502 0 0 u|")
    streaming.one.wait_error("no live upstreams while connecting to upstream|no live upstreams")


@pytest.mark.parametrize("settings, tries", [
    ("proxy_next_upstream off;", 1), ("proxy_next_upstream_tries 2;", 2), ("", 3)])
def test_how_many_servers_are_tried(tcp_servers, settings, tries):
    addresses = [dead() for _ in range(3)]
    list_of_servers = " ".join(f"server {address} max_fails=0;" for address in addresses)
    streaming = Streaming(f"upstream u {{ {list_of_servers} }}" + SERVER % ("u", settings))
    assert streaming.ask() == ""
    [line] = streaming.one.wait_log(1, "stream.log")
    assert line.startswith("502 0 0 " + ", ".join(addresses[:tries]) + "|")


def test_backups(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(f"upstream u {{ server {dead()}; server {server.server} backup; }}" + SERVER % ("u", ""))
    assert names(streaming, 3) == ["s0"] * 3


def clogged():
    """A server whose queue is full: connections to it hang."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", free_port()))
    sock.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(sock.getsockname())
        fillers.append(filler)
    time.sleep(0.05)
    return sock, fillers


def test_a_server_that_does_not_accept(tcp_servers):
    [server] = tcp_servers()
    full, fillers = clogged()
    address = "127.0.0.1:%d" % full.getsockname()[1]
    streaming = Streaming(f"upstream u {{ server {address} max_fails=0; server {server.server} backup; }}"
                          + SERVER % ("u", "proxy_connect_timeout 1500ms;"))
    begun = time.monotonic()
    assert streaming.ask() == "s0"
    assert 1.4 < time.monotonic() - begun < 9
    streaming.one.wait_error(r"upstream timed out \(110: Connection timed out\) while connecting to upstream")
    for sock in (full, *fillers):
        sock.close()


def test_a_server_that_came_back_is_used_while_its_first_session_lasts(tcp_servers):
    [other] = tcp_servers()
    port = free_port()
    streaming = Streaming(f"upstream u {{ server 127.0.0.1:{port} fail_timeout=1s; server {other.server}; }}"
                          + SERVER % ("u", ""))
    assert names(streaming, 4) == ["s0"] * 4
    back = TcpServer("back", port=port)
    time.sleep(2.1)
    kept = []
    try:
        def long_session():
            session = streaming.connect()
            kept.append(session)
            return session.line()
        wait_for(lambda: long_session() == b"back", 20, "the first session", 0.05)
        assert b"back" in [long_session() for _ in range(3)], "one session has shown that it is alive"
    finally:
        for session in kept:
            session.close()
        back.stop()


def test_shortage_on_this_side_counts_against_no_server(tcp_servers):
    """An address that is not this machine's cannot be bound to: the sessions end with 500, without another attempt."""
    pair = tcp_servers(2)
    config = upstream(pair, parameters="fail_timeout=60s")
    streaming = Streaming(config.replace("proxy_pass", "proxy_bind 192.0.2.1; proxy_pass"))
    assert names(streaming, 4) == [""] * 4
    assert [(line[0], line[3].count(",")) for line in streaming.lines(4)] == [("500", 0)] * 4
    assert "temporarily disabled" not in streaming.one.error_log()
    streaming.reload(config)
    # NGINX does not listen for a moment. A server that had been taken out would be missing for a minute.
    wait_for(lambda: sorted(names(streaming, 2)) == ["s0", "s1"], 40, "both servers")


# Limits


def test_max_conns(tcp_servers):
    backends = tcp_servers(2)
    streaming = Streaming(upstream(backends, parameters="max_conns=2", method="zone z 64k;"), workers=2)
    sessions = [streaming.connect() for _ in range(4)]
    assert sorted(session.line() for session in sessions) == [b"s0", b"s0", b"s1", b"s1"]
    assert streaming.ask() == "", "all are full"
    sessions[0].close()
    assert wait_for(streaming.ask, what="a free slot") in ("s0", "s1")
    for session in sessions:
        session.close()
    assert "502" in {line[0] for line in streaming.lines(6)}


def test_worker_connections(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(SERVER % (server.server, ""), events="worker_connections 40;")
    sessions = []
    for number in range(40):
        try:
            sessions.append(streaming.connect())
        except OSError:
            break
        # The first ones alone: a worker that accepted all of them at once would have no room for a server.
        if number < 10:
            assert sessions[-1].line() == b"s0"
    streaming.one.wait_error("worker_connections are not enough")
    wait_for(lambda: server.count >= 10, what="sessions at the server")
    assert server.count <= 20, "two connections for each session"
    for session in sessions:
        session.close()
    wait_for(lambda: streaming.ask() == "s0", what="room again")


def test_access_rules(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(SERVER % (server.server, "deny 127.0.0.2; allow 127.0.0.0/8; deny all;"))
    assert streaming.ask(source="127.0.0.2") == ""
    assert streaming.ask(source="127.0.0.3") == "s0"
    assert [line[0] for line in streaming.lines(2)] == ["403", "200"]
    assert server.count == 1
    streaming.one.wait_error("access forbidden by rule(, client: 127.0.0.2| while)?")


def test_an_address_of_http_is_refused():
    one = Streaming("", log="").one
    one.write(text="events { } http { server { listen 127.0.0.1:PORT; } }"
                   "\nstream { server { listen 127.0.0.1:PORT; proxy_pass 127.0.0.1:1; } }")
    if ON_NGINX:
        return
    result = one.test_config()
    assert result.returncode == 1
    assert f'duplicate "127.0.0.1:{one.port}" address and port pair' in result.stderr
