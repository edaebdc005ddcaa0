"""Where sessions of `stream` go: variables, addresses and methods; and how they are logged."""

import collections
import os
import pathlib
import socket
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, binary, wait_for
from support.expect import balanza_only
from support.ports import free_port
from support.stream import FORMAT, SERVER, Streaming, TcpServer, names, upstream, wait_count

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")


def test_variables(tcp_servers):
    [server] = tcp_servers()
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
    assert abs(float(fields[-3]) - time.time()) < 60 and int(fields[-2]) >= 1 and int(fields[-1]) > 1


def test_logs_with_conditions_and_paths(tcp_servers):
    [server] = tcp_servers()
    log = ("log_format f '$status';\naccess_log DIR/tmp/only.log f if=$bytes_received;\n"
           "access_log DIR/tmp/$remote_addr.log f;")
    streaming = Streaming(SERVER % (server.server, ""), log=log)
    (streaming.one.dir / "tmp").chmod(0o777)
    streaming.ask()
    streaming.ask(first=b"x", source="127.0.0.4")
    paths = [streaming.one.dir / "tmp" / f"{name}.log" for name in ("127.0.0.1", "127.0.0.4", "only")]
    wait_for(lambda: all(path.exists() and path.read_text() == "200\n" for path in paths), what="three logs")


def test_proxy_bind(tcp_servers):
    def handle(sock):
        sock.sendall(sock.getpeername()[0].encode() + b"\n")

    [server] = tcp_servers(handle=handle)
    streaming = Streaming(SERVER % (server.server, "proxy_bind 127.0.0.77;"))
    assert streaming.ask() == "127.0.0.77"
    streaming.reload(SERVER % (server.server, "proxy_bind $remote_addr;"))
    wait_for(lambda: streaming.ask(source="127.0.0.78") == "127.0.0.78", what="the new configuration")


def test_a_target_with_variables(tcp_servers):
    one, two = tcp_servers(2)
    streaming = Streaming(f"upstream 127.0.0.5 {{ server {one.server}; }}"
                          f"server {{ listen 127.0.0.1:SPORT; proxy_pass $remote_addr; }}"
                          f"server {{ listen 127.0.0.2:SPORT; proxy_pass $server_addr:{two.port}; }}")
    assert streaming.ask(source="127.0.0.5") == "s0"
    assert streaming.ask(source="127.0.0.6") == "", "no port"
    # The lines are written when the sessions end.
    assert sorted(line[0] for line in streaming.lines(2)) == ["200", "500"]


@pytest.mark.parametrize("listen, expected", [
    ("listen SPORT;", {"127.0.0.1": "s0", "127.0.0.2": "s1"}),
    ("listen SPORT backlog=50 so_keepalive=on;", {"127.0.0.1": "s0", "127.0.0.2": "s1"}),
])
def test_the_local_address_decides(tcp_servers, listen, expected):
    one, two = tcp_servers(2)
    streaming = Streaming(f"server {{ {listen} proxy_pass {one.server}; }}"
                          f"server {{ listen 127.0.0.2:SPORT; proxy_pass {two.server}; }}")
    for address, name in expected.items():
        with socket.create_connection((address, streaming.stream_port), 20) as sock:
            assert sock.recv(10).decode().strip() == name


def test_a_client_keeps_its_server(tcp_servers):
    backends = tcp_servers(3)
    streaming = Streaming(upstream(backends, "hash $remote_addr consistent;"))
    clients = [f"127.0.{third}.{last}" for third in range(7) for last in range(1, 11)]
    first = {client: streaming.ask(source=client) for client in clients}
    assert set(first.values()) == {"s0", "s1", "s2"}
    assert {client: streaming.ask(source=client) for client in clients} == first
    backends[1].stop()
    after = {client: streaming.ask(source=client) for client in clients}
    assert all(after[client] == name for client, name in first.items() if name != "s1")
    assert set(after.values()) == {"s0", "s2"}


@pytest.mark.skipif(not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")
@pytest.mark.parametrize("method", ["", "hash $remote_addr;", "hash $remote_addr consistent;", "hash x$remote_port;"])
def test_nginx_chooses_the_same(tcp_servers, method):
    if not os.access(binary("nginx"), os.X_OK):
        pytest.skip("no nginx")
    weighted = [f"server {server.server} weight={weight};" for server, weight in zip(tcp_servers(3), (3, 1, 2), strict=True)]
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
            sock.settimeout(20)
            sock.connect(("127.0.0.1", streaming.stream_port))
            answers.append(sock.recv(10))
            sock.close()
        assert answers[0] == answers[1], (number, source)


@pytest.mark.parametrize("method", ["least_conn;", "random;", "random two;", "random two least_conn;"])
def test_nginx_s_methods(tcp_servers, method):
    backends = tcp_servers(3)
    streaming = Streaming(upstream(backends, f"{method} zone z 64k;"))
    # A random choice leaves out one of three servers 60 times with a probability of 1e-10.
    sessions = [streaming.connect() for _ in range(60)]
    tally = collections.Counter(session.line() for session in sessions)
    assert sum(tally.values()) == 60 and set(tally) == {b"s0", b"s1", b"s2"}
    if method == "least_conn;":
        assert set(tally.values()) == {20}
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
def test_every_method(tcp_servers, method):
    backends = tcp_servers(2)
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


@balanza_only("$upstream_choice_probability is Balanza's own")
def test_the_probability_of_a_random_choice(tcp_servers):
    log = FORMAT.replace("$remote_addr'", "$remote_addr \"$upstream_choice_probability\"'")
    streaming = Streaming(upstream(tcp_servers(2), "random;"), log=log)
    names(streaming, 4)
    assert all(' "0.500000"' in line for line in streaming.one.wait_log(4, "stream.log"))


@balanza_only("least_time is in NGINX Plus only")
def test_least_time_prefers_who_speaks_first(tcp_servers):
    def slow(sock):
        time.sleep(4)
        sock.sendall(b"slow\n")
        sock.recv(1)

    def fast(sock):
        sock.sendall(b"fast\n")
        sock.recv(1)

    backends = tcp_servers(1, slow) + tcp_servers(1, fast)
    streaming = Streaming(upstream(backends, "least_time first_byte;"))
    answers = names(streaming, 40)
    assert answers.count("fast") >= 34, answers


@balanza_only("external is Balanza's own")
def test_a_program_chooses(tcp_servers, open_dir):
    program = open_dir / "last.py"
    # Of the servers that may be chosen, the last.
    program.write_text("import sys\nfor line in sys.stdin:\n    _, number, _, *servers = line.split()\n"
                       "    print(number, servers[-1].split(':')[0], flush=True)\n")
    log = FORMAT.replace("$remote_addr'", "$remote_addr \"$upstream_pick_reason\"'")
    streaming = Streaming(upstream(tcp_servers(3), f'balance external "program=python3 {program}" timeout=10s;'), log=log)
    wait_for(lambda: streaming.ask() == "s2", what="the program")
    assert names(streaming, 5) == ["s2"] * 5
    assert ' "external program"' in streaming.one.wait_log(6, "stream.log")[-1]


@balanza_only("load_report is Balanza's own")
def test_agents_drain_servers_of_a_stream(tcp_servers):
    agent = TcpServer(handle=lambda sock: sock.sendall(b"drain\n"))
    one, two = tcp_servers(2)
    streaming = Streaming("upstream u { load_report agent port=1 interval=500ms;"
                          f"server {one.server} report={agent.server}; server {two.server}; }}" + SERVER % ("u", ""))
    wait_count(agent, 1)
    wait_for(lambda: names(streaming, 4) == ["s1"] * 4, what="the server to drain")
    agent.stop()
