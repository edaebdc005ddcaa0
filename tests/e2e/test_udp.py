"""Sessions of UDP: datagrams both ways, ends, failures, limits, logs, reloads."""

import collections
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.expect import balanza_only
from support.ports import free_port
from support.stream import Streaming, TcpServer
from support.udp import UdpClient, UdpServer

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")

LOG = ("log_format datagrams '$status $protocol $bytes_received $bytes_sent $upstream_addr $upstream_bytes_sent "
       "$upstream_bytes_received $session_time $remote_addr $remote_port $server_port';\n"
       "access_log logs/stream.log datagrams;")
SERVER = "server { listen 127.0.0.1:SPORT udp reuseport; proxy_pass %s; %s }"


@pytest.fixture
def servers():
    """Starts servers: `servers(count)` answer with their names, `servers(handle=f)` with what f returns."""
    started = []

    def start(count=1, handle=None, **options):
        new = [UdpServer(f"s{len(started) + index}", handle, **options) for index in range(count)]
        started.extend(new)
        return new

    yield start
    for server in started:
        if server.running:
            server.stop()


def stream(text, **options):
    return Streaming(text, **{"log": LOG, **options})


def upstream(servers, settings="", *, method="", parameters=""):
    list_of_servers = " ".join(f"server {server.server} {parameters};" for server in servers)
    return f"upstream u {{ {method} {list_of_servers} }}\n" + SERVER % ("u", settings)


def test_datagrams_pass_both_ways_and_are_counted(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_timeout 4s;"))
    with UdpClient(streaming.stream_port) as client:
        for size in (1, 1400, 9_000):
            data = b"x" * size
            assert client.ask(data) == b"s0:" + data, "borders of datagrams are kept"
        port = client.port
    assert server.sockets == 1, "one session"
    status, protocol, received, sent, address, to, back, seconds, who, from_port, at = streaming.lines(1)[0]
    assert (status, protocol, who, from_port, at) == ("200", "UDP", "127.0.0.1", str(port), str(streaming.stream_port))
    assert (received, sent, address, to, back) == ("10401", "10410", server.server, "10401", "10410")
    assert 4 <= float(seconds) < 30
    streaming.one.wait_error(r"udp timed out, packets from/to client:3/3, bytes from/to client:10401/10410, "
                             r"bytes from/to upstream:10410/10401")


@balanza_only("NGINX cuts answers at proxy_buffer_size and does not pass on empty datagrams")
def test_the_shortest_and_the_longest_datagram(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, ""))
    with UdpClient(streaming.stream_port) as client:
        for size in (0, 65_500, 0, 1):
            assert client.ask(b"x" * size) == b"s0:" + b"x" * size


def test_a_session_keeps_its_server_and_its_client_keeps_it(servers):
    backends = servers(3)
    streaming = stream(upstream(backends), workers=2)
    clients = [UdpClient(streaming.stream_port) for _ in range(30)]
    first = [client.ask() for client in clients]
    for _ in range(3):
        assert [client.ask() for client in clients] == first
    assert sum(server.sockets for server in backends) == 30
    for client in clients:
        client.sock.close()


def test_round_robin(servers):
    streaming = stream(upstream(servers(3), "proxy_responses 1;"))
    answers = []
    with UdpClient(streaming.stream_port) as client:
        answers = [client.ask() for _ in range(9)]
    assert answers == [b"s0:?", b"s1:?", b"s2:?"] * 3, "with one response expected, each question is a session"
    assert [line[0] for line in streaming.lines(9)] == ["200"] * 9
    streaming.one.wait_error("udp done, packets from/to client:1/1, bytes from/to client:1/4, bytes from/to upstream:4/1")


def test_all_workers_take_part(servers):
    [server] = servers()
    log = LOG.replace("'$status ", "'$status $pid|$connection ")
    streaming = stream(SERVER % (server.server, ""), workers=2, log=log)
    clients = [UdpClient(streaming.stream_port) for _ in range(40)]
    assert all(client.ask() for client in clients)
    # A client's datagrams never change the thread: its session is found each time.
    for _ in range(3):
        assert all(client.ask() for client in clients)
    assert server.sockets == 40


@pytest.mark.parametrize("method", ["hash $remote_addr", "hash $remote_addr consistent", "least_conn", "random two"])
def test_algorithms(servers, method):
    backends = servers(3)
    streaming = stream(upstream(backends, "proxy_responses 1;", method=f"{method};"))
    seen = collections.defaultdict(set)
    # So many that no server is left out by chance, whatever the ports are.
    for source in range(2, 72):
        with UdpClient(streaming.stream_port, source=f"127.0.0.{source}") as client:
            for _ in range(3):
                seen[source].add(client.ask())
    if "hash" in method:
        assert all(len(answers) == 1 for answers in seen.values()), "a client sticks by its address"
    assert len(set.union(*seen.values())) == 3


# Ends


def test_no_response_is_expected(servers):
    """Syslog: one way."""
    [server] = servers(handle=lambda data: [])
    streaming = stream(SERVER % (server.server, "proxy_responses 0;"))
    with UdpClient(streaming.stream_port) as client:
        for number in range(20):
            client.send(b"<13>message %d" % number)
    wait_for(lambda: len(server.got) == 20, what="all messages")
    assert set(server.got) == {b"<13>message %d" % number for number in range(20)}
    lines = streaming.lines(1)
    wait_for(lambda: sum(int(line[2]) for line in streaming.lines(1)) == sum(map(len, server.got)), what="all in the log")
    assert all(line[0] == "200" and line[3] == "0" for line in lines)
    assert not streaming.one.access_log("error.log") or "upstream timed out" not in streaming.one.error_log()


def test_requests_end_a_session(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_requests 2; proxy_responses 1;"))
    with UdpClient(streaming.stream_port) as client:
        assert [client.ask() for _ in range(6)] == [b"s0:?"] * 6
    assert [line[:4] for line in streaming.lines(3)] == [["200", "UDP", "2", "8"]] * 3
    assert server.sockets == 3


def test_several_responses(servers):
    [server] = servers(handle=lambda data: [b"one", b"two", b"three"])
    streaming = stream(SERVER % (server.server, "proxy_responses 3;"))
    with UdpClient(streaming.stream_port) as client:
        client.send(b"?")
        assert [client.receive() for _ in range(3)] == [b"one", b"two", b"three"]
    assert streaming.lines(1)[0][:4] == ["200", "UDP", "1", "11"]


def test_sessions_expire(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_timeout 6s;"))
    with UdpClient(streaming.stream_port) as client:
        for _ in range(5):
            client.ask()
            time.sleep(0.5)
        assert server.sockets == 1, "what moves does not expire"
        line = streaming.lines(1)[0]
        client.ask()
        assert server.sockets == 2
    assert line[:3] == ["200", "UDP", "5"] and float(line[7]) >= 8


# Servers that fail


def test_a_server_that_does_not_answer(servers):
    [silent] = servers(handle=lambda data: [])
    streaming = stream(f"upstream u {{ server {silent.server} fail_timeout=100s; server 127.0.0.1:{free_port()} down; }}"
                       + SERVER % ("u", "proxy_responses 1; proxy_timeout 300ms;"))
    with UdpClient(streaming.stream_port) as client:
        client.send(b"?")
        assert streaming.lines(1)[0][:6] == ["502", "UDP", "1", "0", silent.server, "1"]
        streaming.one.wait_error(r"upstream timed out \(110: Connection timed out\) while proxying connection, "
                                 r"udp client: 127.0.0.1, server: 127.0.0.1:\d+, upstream: \"" + silent.server)
        client.send(b"?")
        assert streaming.lines(2)[1][:5] == ["502", "UDP", "1", "0", "u"], "it has failed"
        streaming.one.wait_error("no live upstreams")


@balanza_only("NGINX sends the datagram to no other server")
def test_a_closed_port_is_a_failed_attempt(servers):
    [server] = servers()
    dead = f"127.0.0.1:{free_port()}"
    streaming = stream(f"upstream u {{ server {dead} fail_timeout=100s; server {server.server}; }}"
                       + SERVER % ("u", "proxy_responses 1;"))
    with UdpClient(streaming.stream_port) as client:
        assert [client.ask(b"%d" % number) for number in range(6)] == [b"s0:%d" % number for number in range(6)]
    lines = [line.split(" ", 4)[4] for line in streaming.one.wait_log(6, "stream.log")]
    assert lines[0].startswith(f"{dead}, {server.server} 1, 1 0, 4 "), lines
    assert all(line.startswith(f"{server.server} 1 4 ") for line in lines[1:]), "it is left out then"
    streaming.one.wait_error(r"(recv|send)\(\) failed \(111: Connection refused\) while proxying connection")


@balanza_only("NGINX sends the datagram to no other server")
def test_no_other_server_is_tried(servers):
    [server] = servers()
    dead = f"127.0.0.1:{free_port()}"
    streaming = stream(f"upstream u {{ server {dead} max_fails=0; server {server.server}; }}"
                       + SERVER % ("u", "proxy_responses 1; proxy_next_upstream off;"))
    with UdpClient(streaming.stream_port) as client:
        client.send(b"?")
        assert streaming.lines(1)[0][:5] == ["502", "UDP", "1", "0", dead]
        assert client.ask() == b"s0:?"


@balanza_only("NGINX notices it when the session expires")
def test_a_server_that_goes_in_the_middle(servers):
    backends = servers(2)
    streaming = stream(upstream(backends, parameters="fail_timeout=100s"))
    with UdpClient(streaming.stream_port) as client:
        first = client.ask(b"1")
        gone, other = backends if first == b"s0:1" else backends[::-1]
        gone.stop()
        client.send(b"2")
        assert streaming.lines(1)[0][:6] == ["502", "UDP", "2", "4", gone.server, "2"]
        assert client.ask(b"3") == other.name.encode() + b":3"
        # The failed server is left out.
        for _ in range(4):
            with UdpClient(streaming.stream_port) as another:
                assert another.ask() == other.name.encode() + b":?"


def test_backups(servers):
    main, backup = servers(2)
    streaming = stream(f"upstream u {{ server {main.server} down; server {backup.server} backup; }}"
                       + SERVER % ("u", "proxy_responses 1;"))
    with UdpClient(streaming.stream_port) as client:
        assert client.ask() == b"s1:?"


# Limits


def test_max_conns(servers):
    backends = servers(2)
    streaming = stream(upstream(backends, method="zone z 64k;", parameters="max_conns=2"), workers=2)
    clients = [UdpClient(streaming.stream_port) for _ in range(4)]
    assert sorted(client.ask() for client in clients) == [b"s0:?", b"s0:?", b"s1:?", b"s1:?"]
    with UdpClient(streaming.stream_port) as more:
        more.send(b"?")
        assert streaming.lines(1)[0][0] == "502", "all are full"
    for client in clients:
        client.sock.close()


def test_worker_connections_limit_sessions(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_timeout 2500ms;"), events="worker_connections 40;")
    clients = [UdpClient(streaming.stream_port) for _ in range(60)]
    for client in clients:
        client.send(b"?")
    streaming.one.wait_error("worker_connections are not enough")
    wait_for(lambda: server.sockets >= 10, what="sessions at the server")
    assert server.sockets <= 20, "two connections for each session"
    # When they have expired there is room again.
    wait_for(lambda: len(streaming.one.access_log("stream.log")) >= server.sockets, what="their end")
    with UdpClient(streaming.stream_port) as late:
        wait_for(lambda: late.send(b"!") or late.receive(0.3) == b"s0:!", what="room again")
    for client in clients:
        client.sock.close()


def test_access_and_limit_conn(servers):
    [server] = servers()
    streaming = stream("limit_conn_zone $remote_addr zone=addresses:64k;\n" + SERVER % (
        server.server, "deny 127.0.0.2; limit_conn addresses 2;"))
    with UdpClient(streaming.stream_port, source="127.0.0.2") as client:
        client.send(b"?")
        assert streaming.lines(1)[0][:4] == ["403", "UDP", "1", "0"]
    clients = [UdpClient(streaming.stream_port, source="127.0.0.3") for _ in range(3)]
    assert [client.ask() for client in clients[:2]] == [b"s0:?"] * 2
    clients[2].send(b"?")
    assert streaming.lines(2)[1][:4] == ["503", "UDP", "1", "0"]
    assert len(server.got) == 2
    for client in clients:
        client.sock.close()


# Where datagrams go and come from


def test_answers_leave_from_the_address_that_was_asked(servers):
    [server] = servers()
    log = LOG.replace("$server_port", "$server_addr")
    streaming = stream("server { listen SPORT udp; proxy_pass %s; proxy_responses 1; }" % server.server, log=log)
    for address in ("127.0.0.1", "127.0.0.77", "127.3.2.1"):
        with UdpClient(streaming.stream_port, to=address) as client:
            assert client.ask() == b"s0:?"
    assert [line[10] for line in streaming.lines(3)] == ["127.0.0.1", "127.0.0.77", "127.3.2.1"]


def test_one_client_at_two_addresses_has_two_sessions(servers):
    [server] = servers()
    streaming = stream("server { listen SPORT udp; proxy_pass %s; }" % server.server)
    with UdpClient(streaming.stream_port) as client:
        for address in ("127.0.0.1", "127.0.0.9", "127.0.0.1"):
            client.to = (address, streaming.stream_port)
            assert client.ask() == b"s0:?"
    assert server.sockets == 2


def test_tcp_and_udp_on_one_port(servers):
    [server] = servers()
    tcp = TcpServer("tcp")
    streaming = stream("server { listen 127.0.0.1:SPORT; proxy_pass %s; }\n" % tcp.server + SERVER % (server.server, ""))
    with UdpClient(streaming.stream_port) as client:
        assert client.ask() == b"s0:?"
    assert streaming.ask() == "tcp"
    tcp.stop()


def test_proxy_bind(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_bind 127.0.0.42;"))
    with UdpClient(streaming.stream_port) as client:
        client.ask()
    assert server.clients[0][0] == "127.0.0.42"


def test_proxy_bind_transparent(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_bind $remote_addr transparent; proxy_responses 0;"), main="user root;")
    with UdpClient(streaming.stream_port, source="127.0.0.55") as client:
        client.send(b"?")
        wait_for(lambda: server.clients, what="the datagram")
    assert server.clients[0][0] == "127.0.0.55"


def test_proxy_protocol(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_protocol on;"))
    with UdpClient(streaming.stream_port) as client:
        client.ask(b"one")
        client.ask(b"two")
        header = b"PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\n" % (client.port, streaming.stream_port)
    assert server.got == [header + b"one", b"two"]


def test_return():
    streaming = stream("server { listen 127.0.0.1:SPORT udp; return '$remote_addr $protocol'; }")
    with UdpClient(streaming.stream_port) as client:
        assert client.ask() == b"127.0.0.1 UDP"
    assert streaming.lines(1)[0][:4] == ["200", "UDP", "1", "13"]


# Reloads


def test_a_reload_keeps_sessions(servers):
    old, new = servers(2)
    streaming = stream(SERVER % (old.server, "proxy_timeout 20s;"), workers=2)
    clients = [UdpClient(streaming.stream_port) for _ in range(10)]
    for client in clients:
        assert client.ask() == b"s0:?"
    streaming.reload(SERVER % (new.server, "proxy_timeout 20s;"))

    def fresh():
        with UdpClient(streaming.stream_port) as client:
            return client.ask() == b"s1:?"
    wait_for(fresh, what="the new configuration")
    if ON_NGINX:
        return
    sockets = old.sockets
    for number, client in enumerate(clients):
        assert client.ask(b"%d" % number) == b"s0:%d" % number, "the old session goes on"
    assert old.sockets == sockets
    for client in clients:
        client.sock.close()


def test_nothing_is_lost_in_reloads(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_responses 1;"), workers=2)
    with UdpClient(streaming.stream_port) as client:
        for number in range(200):
            if number % 40 == 0:
                streaming.one.reload()
            assert client.ask(b"%d" % number) == b"s0:%d" % number


def test_quit_waits_for_answers(servers):
    def slow(data):
        time.sleep(0.5)
        return [b"late"]
    [server] = servers(handle=slow)
    streaming = stream(SERVER % (server.server, "proxy_responses 1;"))
    with UdpClient(streaming.stream_port) as client:
        client.send(b"?")
        wait_for(lambda: server.got, what="the question")
        streaming.one.notify(signal.SIGQUIT)
        if not ON_NGINX:
            assert client.receive() == b"late"
    streaming.one.process.wait(40)


@balanza_only("NGINX takes over sockets in its own way")
def test_an_upgrade_keeps_the_port(servers):
    [server] = servers()
    streaming = stream(SERVER % (server.server, "proxy_responses 1;"))
    with UdpClient(streaming.stream_port) as client:
        assert client.ask() == b"s0:?"
        streaming.one.upgrade()
        wait_for(lambda: streaming.one.old.poll() is not None, what="the end of the old program")
        assert client.ask() == b"s0:?"


# Runs


#: Of Linux, in udp.h: a send is divided into datagrams of this length.
UDP_SEGMENT = 103


@pytest.mark.parametrize("settings, length, sessions", [("", 420, 1), ("proxy_requests 50;", 50, 9)])
def test_runs_of_datagrams(servers, settings, length, sessions):
    """What a client sends at once stays the datagrams that it is, both ways, however the kernel hands it on."""
    [server] = servers()
    streaming = stream(SERVER % (server.server, f"{settings} proxy_timeout 20s;"))
    with UdpClient(streaming.stream_port) as client:
        client.sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 700)
        sent = []
        for round in range(20):
            run = [b"%d.%d " % (round, number) + b"x" * 700 for number in range(20)]
            run = [data[:700] for data in run] + [b"%d short" % round]
            client.send(b"".join(run))
            # Each session has a socket of its own, so that only the answers of one session have an order.
            session = {b"s0:" + data: number // length for number, data in enumerate(run, len(sent))}
            sent += run
            assert sorted([client.receive() for _ in run], key=session.__getitem__) == list(session)
    assert server.got == sent
    assert server.sockets == sessions


# Real programs


@pytest.mark.skipif(not shutil.which("dnsmasq", path="/usr/sbin:/usr/bin"), reason="no dnsmasq")
def test_dns(tmp_path):
    ports = [free_port(), free_port()]
    programs = []
    for number, port in enumerate(ports, 1):
        programs.append(subprocess.Popen([
            "/usr/sbin/dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", f"--port={port}",
            "--listen-address=127.0.0.1", "--bind-interfaces", f"--address=/one.test/10.0.0.{number}",
            f"--pid-file={tmp_path}/{number}.pid", "--user=root", "--conf-file=/dev/null"], stderr=subprocess.DEVNULL))
    try:
        streaming = stream(
            "upstream dns { %s }\n" % " ".join(f"server 127.0.0.1:{port};" for port in ports)
            + "server { listen 127.0.0.1:SPORT; listen 127.0.0.1:SPORT udp reuseport; proxy_pass dns; proxy_responses 1; "
              "proxy_timeout 20s; }", workers=1)

        def question(number):
            return number.to_bytes(2, "big") + b"\1\0\0\1\0\0\0\0\0\0\3one\4test\0\0\1\0\1"

        def answers(port):
            with UdpClient(port) as client:
                client.send(question(1))
                return client.receive(0.2)
        for port in ports:
            wait_for(lambda port=port: answers(port), what="dnsmasq")
        seen = collections.Counter()
        with UdpClient(streaming.stream_port) as client:
            for number in range(20):
                answer = client.ask(question(number))
                assert answer[:2] == number.to_bytes(2, "big")
                seen[answer[-4:]] += 1
            assert seen == {b"\x0a\0\0\1": 10, b"\x0a\0\0\2": 10}
            # One of them dies: the other one answers every question.
            programs[0].kill()
            programs[0].wait()
            if not ON_NGINX:
                for number in range(10):
                    assert client.ask(question(number))[-4:] == b"\x0a\0\0\2"
        # The same over TCP.
        with streaming.connect() as session:
            session.send(len(question(7)).to_bytes(2, "big") + question(7))
            length = int.from_bytes(session.exactly(2), "big")
            assert session.exactly(length)[-4:] == b"\x0a\0\0\2"
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.skipif(not shutil.which("logger"), reason="no logger of util-linux")
def test_syslog(servers):
    """Messages of `logger`: each is a session, so that collectors take turns; one that is down costs none."""
    collectors = servers(2, handle=lambda data: [])
    streaming = stream(upstream(collectors, "proxy_responses 0; proxy_requests 1;"))

    def log(*messages):
        for message in messages:
            subprocess.run(["logger", "-n", "127.0.0.1", "-P", str(streaming.stream_port), "-d", "-t", "test", "-p",
                            "local3.warning", "--rfc3164", message], check=True, timeout=60)
    log(*(f"message {number} of a program" for number in range(4)))
    wait_for(lambda: [len(one.got) for one in collectors] == [2, 2], what="the messages")
    texts = sorted(data for one in collectors for data in one.got)
    assert all(re.fullmatch(rb"<156>\w{3} [ \d]\d [\d:]{8} \S+ test: message \d of a program", text) for text in texts), texts
    assert [text[-len("0 of a program"):] for text in texts] == [b"%d of a program" % number for number in range(4)]
    lines = streaming.lines(4)
    assert {line[0] for line in lines} == {"200"} and {line[3] for line in lines} == {"0"}
    assert sorted(int(line[2]) for line in lines) == sorted(map(len, texts))


def test_a_flow_like_quic(servers):
    """Bursts both ways, in many sessions at once: nothing goes to another client."""
    backends = servers(2, handle=lambda data: [data + b"/1", data + b"/2"])
    streaming = stream(upstream(backends, method="hash $remote_addr$remote_port consistent;"), workers=2)
    clients = [UdpClient(streaming.stream_port) for _ in range(20)]
    for burst in range(10):
        for number, client in enumerate(clients):
            for packet in range(3):
                client.send(b"%d.%d.%d" % (number, burst, packet))
        for number, client in enumerate(clients):
            got = {client.receive() for _ in range(6)}
            assert got == {b"%d.%d.%d/%d" % (number, burst, packet, half) for packet in range(3) for half in (1, 2)}
    assert sum(server.sockets for server in backends) == 20
    for client in clients:
        client.sock.close()
