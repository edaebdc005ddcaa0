"""Sessions of `stream`: bytes as they are, both ways; ends, failures, limits, logs."""

import collections
import concurrent.futures
import hashlib
import os
import pathlib
import signal
import socket
import threading
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, binary, wait_for
from support.expect import balanza_only
from support.ports import free_port
from support.stream import FORMAT, Session, Streaming, TcpServer, upstream, wait_count

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")

SERVER = "server { listen 127.0.0.1:SPORT; proxy_pass %s; %s }"


@pytest.fixture
def servers():
    """Starts servers: `servers(count)` echo behind a line with their names, `servers(handle=f)` runs f."""
    started = []

    def start(count=1, handle=None, **options):
        new = [TcpServer(f"s{len(started) + index}", handle, **options) for index in range(count)]
        started.extend(new)
        return new

    yield start
    for server in started:
        server.stop()


def names(streaming, count, first=b"", source=None):
    return [streaming.ask(first, source) for _ in range(count)]


# What passes through


def test_bytes_pass_both_ways_and_are_counted(servers):
    [server] = servers()
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


def test_servers_take_turns(servers):
    streaming = Streaming(upstream(servers(3)))
    answers = names(streaming, 9)
    assert collections.Counter(answers) == {"s0": 3, "s1": 3, "s2": 3}


def test_unix_sockets(servers, open_dir):
    [server] = servers(path=open_dir / "server.sock")
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
def test_a_hundred_megabytes(servers, upwards, settings):
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

    [server] = servers(handle=sink if upwards else source)
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


def test_many_sessions_at_once(servers):
    backends = servers(2)
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


def test_the_end_of_one_side_ends_the_session(servers):
    ended = threading.Event()

    def handle(sock):
        sock.sendall(b"hello\n")
        while sock.recv(100):
            pass
        ended.set()
        time.sleep(0.1)
        sock.sendall(b"too late\n")

    [server] = servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, ""))
    with streaming.connect() as session:
        assert session.line() == b"hello"
        session.end()
        assert session.rest() == b""
    assert ended.wait(5)
    assert streaming.lines(1)[0][0] == "200"


def test_half_close_passes_the_end_on(servers):
    def handle(sock):
        data = b""
        while piece := sock.recv(100):
            data += piece
        time.sleep(0.1)
        sock.sendall(data[::-1])

    [server] = servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, "proxy_half_close on;"))
    with streaming.connect() as session:
        session.send(b"abcdef")
        session.end()
        assert session.rest() == b"fedcba"
    status, received, sent, *_ = streaming.lines(1)[0]
    assert (status, received, sent) == ("200", "6", "6")


def test_half_close_the_other_way(servers):
    got = []

    def handle(sock):
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while piece := sock.recv(100):
            data += piece
        got.append(data)

    [server] = servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, "proxy_half_close on;"))
    with streaming.connect() as session:
        assert session.rest() == b"bye"
        session.send(b"still here")
        time.sleep(0.1)
        session.end()
        wait_for(lambda: got, what="the server to see the end")
    assert got == [b"still here"]
    streaming.lines(1)


def test_what_was_sent_before_the_end_arrives(servers):
    data = os.urandom(300_000)
    [server] = servers(handle=lambda sock: sock.sendall(data))
    streaming = Streaming(SERVER % (server.server, ""))
    with streaming.connect() as session:
        time.sleep(0.1)
        assert session.rest() == data


def test_idle_sessions_end(servers):
    [server] = servers()
    streaming = Streaming(SERVER % (server.server, "proxy_timeout 2s;"))
    with streaming.connect() as session:
        session.line()
        begun = time.monotonic()
        for _ in range(3):
            time.sleep(0.8)
            session.send(b"x")
            assert session.exactly(1) == b"x", "what moves is not idle"
        assert session.rest() == b""
        assert 4.2 < time.monotonic() - begun
    assert streaming.lines(1)[0][0] == "200"
    streaming.one.wait_error(r"connection timed out \(110: Connection timed out\)")


def test_a_client_who_resets(servers):
    ended = threading.Event()

    def handle(sock):
        sock.sendall(b"x\n")
        sock.recv(1)
        ended.set()

    [server] = servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, ""))
    session = streaming.connect()
    session.line()
    session.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    session.close()
    assert ended.wait(5)
    assert streaming.lines(1)[0][0] == "200"


# Servers that fail


def dead():
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


def test_the_next_server_is_tried(servers):
    [server] = servers()
    gone = dead()
    streaming = Streaming(f"upstream u {{ server {gone} max_fails=0; server {server.server} max_fails=0; }}"
                          + SERVER % ("u", ""))
    assert names(streaming, 4) == ["s0"] * 4
    lines = streaming.one.wait_log(4, "stream.log")
    assert all(line.startswith("200 0 3 ") for line in lines)
    assert any(f" {gone}, {server.server}|0, 0|0, 3|-, 0." in line for line in lines), lines
    streaming.one.wait_error(rf'connect\(\) failed \(111: Connection refused\) while connecting to upstream, '
                             rf'client: 127.0.0.1, server: 127.0.0.1:{streaming.stream_port}, upstream: "{gone}"')


def test_all_servers_down(servers):
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
def test_how_many_servers_are_tried(servers, settings, tries):
    addresses = [dead() for _ in range(3)]
    list_of_servers = " ".join(f"server {address} max_fails=0;" for address in addresses)
    streaming = Streaming(f"upstream u {{ {list_of_servers} }}" + SERVER % ("u", settings))
    assert streaming.ask() == ""
    [line] = streaming.one.wait_log(1, "stream.log")
    assert line.startswith("502 0 0 " + ", ".join(addresses[:tries]) + "|")


def test_backups(servers):
    [server] = servers()
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


def test_a_server_that_does_not_accept(servers):
    [server] = servers()
    full, fillers = clogged()
    address = "127.0.0.1:%d" % full.getsockname()[1]
    streaming = Streaming(f"upstream u {{ server {address} max_fails=0; server {server.server} backup; }}"
                          + SERVER % ("u", "proxy_connect_timeout 300ms;"))
    begun = time.monotonic()
    assert streaming.ask() == "s0"
    assert 0.25 < time.monotonic() - begun < 9
    streaming.one.wait_error(r"upstream timed out \(110: Connection timed out\) while connecting to upstream")
    for sock in (full, *fillers):
        sock.close()


def test_a_server_that_came_back_is_used_while_its_first_session_lasts(servers):
    [other] = servers()
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
        wait_for(lambda: long_session() == b"back", 5, "the first session", 0.05)
        assert b"back" in [long_session() for _ in range(3)], "one session has shown that it is alive"
    finally:
        for session in kept:
            session.close()
        back.stop()


# Limits


def test_max_conns(servers):
    backends = servers(2)
    streaming = Streaming(upstream(backends, parameters="max_conns=2", method="zone z 64k;"), workers=2)
    sessions = [streaming.connect() for _ in range(4)]
    assert sorted(session.line() for session in sessions) == [b"s0", b"s0", b"s1", b"s1"]
    assert streaming.ask() == "", "all are full"
    sessions[0].close()
    assert wait_for(streaming.ask, what="a free slot") in ("s0", "s1")
    for session in sessions:
        session.close()
    assert "502" in {line[0] for line in streaming.lines(6)}


def test_worker_connections(servers):
    [server] = servers()
    streaming = Streaming(SERVER % (server.server, ""), events="worker_connections 40;")
    sessions = []
    for _ in range(40):
        try:
            sessions.append(streaming.connect())
        except OSError:
            break
    streaming.one.wait_error("worker_connections are not enough")
    wait_for(lambda: server.count >= 10, what="sessions at the server")
    assert server.count <= 20, "two connections for each session"
    for session in sessions:
        session.close()
    wait_for(lambda: streaming.ask() == "s0", what="room again")


def test_access_rules(servers):
    [server] = servers()
    streaming = Streaming(SERVER % (server.server, "deny 127.0.0.2; allow 127.0.0.0/8; deny all;"))
    assert streaming.ask(source="127.0.0.2") == ""
    assert streaming.ask(source="127.0.0.3") == "s0"
    assert [line[0] for line in streaming.lines(2)] == ["403", "200"]
    assert server.count == 1
    streaming.one.wait_error("access forbidden by rule(, client: 127.0.0.2| while)?")


# Where sessions go


def test_variables(servers):
    [server] = servers()
    log = ("log_format v '$remote_addr $remote_port $binary_remote_addr $server_addr $server_port $protocol "
           "$hostname $nginx_version [$time_local] $time_iso8601 $msec $connection $pid';\n"
           "access_log logs/stream.log v;")
    streaming = Streaming(SERVER % (server.server, ""), log=log)
    with streaming.connect(source="127.0.0.9") as session:
        session.line()
        port = session.sock.getsockname()[1]
    fields = streaming.one.wait_log(1, "stream.log")[0].split(" ")
    assert fields[:6] == ["127.0.0.9", str(port), "\\x7F\\x00\\x00\\x09", "127.0.0.1", str(streaming.stream_port), "TCP"]
    assert fields[6] == socket.gethostname()
    assert abs(float(fields[-3]) - time.time()) < 5 and int(fields[-2]) >= 1 and int(fields[-1]) > 1


def test_logs_with_conditions_and_paths(servers):
    [server] = servers()
    log = ("log_format f '$status';\naccess_log DIR/tmp/only.log f if=$bytes_received;\n"
           "access_log DIR/tmp/$remote_addr.log f;")
    streaming = Streaming(SERVER % (server.server, ""), log=log)
    (streaming.one.dir / "tmp").chmod(0o777)
    streaming.ask()
    streaming.ask(first=b"x", source="127.0.0.4")
    paths = [streaming.one.dir / "tmp" / f"{name}.log" for name in ("127.0.0.1", "127.0.0.4", "only")]
    wait_for(lambda: all(path.exists() and path.read_text() == "200\n" for path in paths), what="three logs")


def test_proxy_bind(servers):
    def handle(sock):
        sock.sendall(sock.getpeername()[0].encode() + b"\n")

    [server] = servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, "proxy_bind 127.0.0.77;"))
    assert streaming.ask() == "127.0.0.77"
    streaming.reload(SERVER % (server.server, "proxy_bind $remote_addr;"))
    wait_for(lambda: streaming.ask(source="127.0.0.78") == "127.0.0.78", what="the new configuration")


def test_a_target_with_variables(servers):
    one, two = servers(2)
    streaming = Streaming(f"upstream 127.0.0.5 {{ server {one.server}; }}"
                          f"server {{ listen 127.0.0.1:SPORT; proxy_pass $remote_addr; }}"
                          f"server {{ listen 127.0.0.2:SPORT; proxy_pass $server_addr:{two.port}; }}")
    assert streaming.ask(source="127.0.0.5") == "s0"
    assert streaming.ask(source="127.0.0.6") == "", "no port"
    assert streaming.lines(2)[1][0] == "500"


@pytest.mark.parametrize("listen, expected", [
    ("listen SPORT;", {"127.0.0.1": "s0", "127.0.0.2": "s1"}),
    ("listen SPORT backlog=50 so_keepalive=on;", {"127.0.0.1": "s0", "127.0.0.2": "s1"}),
])
def test_the_local_address_decides(servers, listen, expected):
    one, two = servers(2)
    streaming = Streaming(f"server {{ {listen} proxy_pass {one.server}; }}"
                          f"server {{ listen 127.0.0.2:SPORT; proxy_pass {two.server}; }}")
    for address, name in expected.items():
        with socket.create_connection((address, streaming.stream_port), 5) as sock:
            assert sock.recv(10).decode().strip() == name


def test_a_client_keeps_its_server(servers):
    backends = servers(3)
    streaming = Streaming(upstream(backends, "hash $remote_addr consistent;"))
    clients = [f"127.0.{third}.{last}" for third in range(4) for last in range(1, 11)]
    first = {client: streaming.ask(source=client) for client in clients}
    assert set(first.values()) == {"s0", "s1", "s2"}
    assert {client: streaming.ask(source=client) for client in clients} == first
    backends[1].stop()
    after = {client: streaming.ask(source=client) for client in clients}
    assert all(after[client] == name for client, name in first.items() if name != "s1")
    assert set(after.values()) == {"s0", "s2"}


@pytest.mark.skipif(not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")
@pytest.mark.parametrize("method", ["", "hash $remote_addr;", "hash $remote_addr consistent;", "hash x$remote_port;"])
def test_nginx_chooses_the_same(servers, method):
    if not os.access(binary("nginx"), os.X_OK):
        pytest.skip("no nginx")
    weighted = [f"server {server.server} weight={weight};" for server, weight in zip(servers(3), (3, 1, 2), strict=True)]
    block = f"upstream u {{ {method} {' '.join(weighted)} }}" + SERVER % ("u", "")
    ours, theirs = Streaming(block, kind="balanza"), Streaming(block, kind="nginx")
    for number in range(30):
        source = f"127.0.{number % 7}.{number + 1}"
        # The port is a part of one of the keys.
        port = free_port()
        answers = []
        for streaming in (ours, theirs):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((source, port))
            sock.settimeout(5)
            sock.connect(("127.0.0.1", streaming.stream_port))
            answers.append(sock.recv(10))
            sock.close()
        assert answers[0] == answers[1], (number, source)


@pytest.mark.parametrize("method", ["least_conn;", "random;", "random two;", "random two least_conn;"])
def test_nginx_s_methods(servers, method):
    backends = servers(3)
    streaming = Streaming(upstream(backends, f"{method} zone z 64k;"))
    sessions = [streaming.connect() for _ in range(30)]
    tally = collections.Counter(session.line() for session in sessions)
    assert sum(tally.values()) == 30 and set(tally) == {b"s0", b"s1", b"s2"}
    if method == "least_conn;":
        assert set(tally.values()) == {10}
    for session in sessions:
        session.close()


@balanza_only("Balanza's own methods, and those of NGINX Plus")
@pytest.mark.parametrize("method", [
    "least_time connect;", "least_time first_byte inflight;", "least_time last_byte;", "random two least_time=connect;",
    "balance two_choices by=first_byte;", "balance maglev key=$remote_addr$remote_port;", "balance ip_hash;",
    "balance rendezvous key=$remote_port;", "balance bounded_hash key=$remote_addr;", "balance first;",
    "balance shortest_expected_delay;", "balance never_queue;", "balance peak_ewma;", "balance combined;",
    "balance least_bandwidth;", "balance join_idle_queue;", "balance prequal;", "balance last_server;",
    "balance locality_least_conn;", "balance hashed_ip;", "balance priority;",
])
def test_every_method(servers, method):
    backends = servers(2)
    log = FORMAT.replace("$remote_addr'", "$remote_addr \"$upstream_pick_reason\"'")
    streaming = Streaming(upstream(backends, method, "max_conns=20"), log=log)
    assert set(names(streaming, 12)) <= {"s0", "s1"}
    sessions = [streaming.connect() for _ in range(30)]
    assert all(session.line() in (b"s0", b"s1") for session in sessions)
    for session in sessions:
        session.close()
    lines = streaming.one.wait_log(42, "stream.log")
    name = method.split(" ")[1].rstrip(";") if method.startswith("balance") else method.split(" ")[0].rstrip(";")
    reason = {"random": "two_choices"}.get(name, name)
    assert all(f' "{reason} ' in line for line in lines), lines[0]


@balanza_only("least_time is in NGINX Plus only")
def test_least_time_prefers_who_speaks_first(servers):
    def slow(sock):
        time.sleep(1)
        sock.sendall(b"slow\n")
        sock.recv(1)

    def fast(sock):
        sock.sendall(b"fast\n")
        sock.recv(1)

    backends = servers(1, slow) + servers(1, fast)
    streaming = Streaming(upstream(backends, "least_time first_byte;"))
    answers = names(streaming, 40)
    assert answers.count("fast") >= 34, answers


@balanza_only("external is Balanza's own")
def test_a_program_chooses(servers, open_dir):
    program = open_dir / "last.py"
    # Of the servers that may be chosen, the last.
    program.write_text("import sys\nfor line in sys.stdin:\n    _, number, _, *servers = line.split()\n"
                       "    print(number, servers[-1].split(':')[0], flush=True)\n")
    log = FORMAT.replace("$remote_addr'", "$remote_addr \"$upstream_pick_reason\"'")
    streaming = Streaming(upstream(servers(3), f'balance external "program=python3 {program}" timeout=2s;'), log=log)
    wait_for(lambda: streaming.ask() == "s2", what="the program")
    assert names(streaming, 5) == ["s2"] * 5
    assert ' "external program"' in streaming.one.wait_log(6, "stream.log")[-1]


@balanza_only("load_report is Balanza's own")
def test_agents_drain_servers_of_a_stream(servers):
    agent = TcpServer(handle=lambda sock: sock.sendall(b"drain\n"))
    one, two = servers(2)
    streaming = Streaming("upstream u { load_report agent port=1 interval=500ms;"
                          f"server {one.server} report={agent.server}; server {two.server}; }}" + SERVER % ("u", ""))
    wait_count(agent, 1)
    wait_for(lambda: names(streaming, 4) == ["s1"] * 4, what="the server to drain")
    agent.stop()


# Reload and shutdown


def test_sessions_outlive_a_reload(servers):
    old, new = servers(2)
    streaming = Streaming(SERVER % (old.server, ""), workers=2)
    with streaming.connect() as session:
        assert session.line() == b"s0"
        streaming.reload(SERVER % (new.server, ""))
        wait_for(lambda: streaming.ask() == "s1", what="the new configuration")
        session.send(b"still")
        assert session.exactly(5) == b"still"


def test_no_session_fails_over_reloads(servers):
    backends = servers(2)
    streaming = Streaming(upstream(backends), workers=2)
    stop, done = threading.Event(), [0] * 4

    def work(number):
        while not stop.is_set():
            with streaming.connect() as session:
                assert session.line() in (b"s0", b"s1")
                session.send(b"%d" % number)
                assert session.exactly(1) == b"%d" % number
            done[number] += 1
            time.sleep(0.002)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(work, number) for number in range(4)]
        for method in ("least_conn;", "", "random;", "hash $remote_addr;"):
            time.sleep(0.2)
            streaming.reload(upstream(backends, method))
        wait_for(lambda: min(done) > 10, 30, "many sessions")
        stop.set()
        for task in tasks:
            task.result()


def test_a_server_s_place_can_go_to_http(servers):
    [server] = servers()
    streaming = Streaming(SERVER % (server.server, ""))
    assert streaming.ask() == "s0"
    port = streaming.stream_port
    streaming.one.reload(text=f"events {{ }} http {{ server {{ listen 127.0.0.1:PORT; listen 127.0.0.1:{port}; "
                              "return 200 http; } }")

    def is_http():
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b" 200 OK\r\n" in sock.recv(1000)
    wait_for(is_http, what="http on the port")


def test_a_graceful_end_waits_for_sessions(servers):
    [server] = servers()
    streaming = Streaming(SERVER % (server.server, ""))
    session = streaming.connect()
    session.line()
    streaming.one.process.send_signal(signal.SIGQUIT)
    wait_for(lambda: _refused(streaming.stream_port), what="no new sessions")
    time.sleep(0.2)
    session.send(b"alive")
    assert session.exactly(5) == b"alive"
    assert streaming.one.process.poll() is None
    session.close()
    assert streaming.one.process.wait(15) == 0


def test_worker_shutdown_timeout_ends_sessions(servers):
    [server] = servers()
    streaming = Streaming(SERVER % (server.server, ""), main="worker_shutdown_timeout 500ms;")
    with streaming.connect() as session:
        session.line()
        begun = time.monotonic()
        streaming.one.process.send_signal(signal.SIGQUIT)
        assert session.rest() == b""
        assert 0.3 < time.monotonic() - begun < 9
    streaming.one.process.wait(15)
    assert streaming.lines(1)[0][:3] == ["200", "0", "3"], "logged all the same"


def _refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_an_address_of_http_is_refused(servers):
    one = Streaming("", log="").one
    one.write(text="events { } http { server { listen 127.0.0.1:PORT; } }"
                   "\nstream { server { listen 127.0.0.1:PORT; proxy_pass 127.0.0.1:1; } }")
    if ON_NGINX:
        return
    result = one.test_config()
    assert result.returncode == 1
    assert f'duplicate "127.0.0.1:{one.port}" address and port pair' in result.stderr


def test_shortage_on_this_side_counts_against_no_server(servers):
    """An address that is not this machine's cannot be bound to: the sessions end with 500, without another attempt."""
    pair = servers(2)
    config = upstream(pair)
    streaming = Streaming(config.replace("proxy_pass", "proxy_bind 192.0.2.1; proxy_pass"))
    assert names(streaming, 4) == [""] * 4
    assert [(line[0], line[3].count(",")) for line in streaming.lines(4)] == [("500", 0)] * 4
    assert "temporarily disabled" not in streaming.one.error_log()
    streaming.reload(config)
    # NGINX does not listen for a moment. A server that had been taken out would be missing for ten seconds.
    wait_for(lambda: sorted(names(streaming, 2)) == ["s0", "s1"], 5, "both servers")
