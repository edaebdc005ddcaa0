"""Sessions of `stream` over reloads and at the end of a worker."""

import concurrent.futures
import pathlib
import signal
import socket
import threading
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.stream import SERVER, Streaming, upstream

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")


def test_sessions_outlive_a_reload(tcp_servers):
    old, new = tcp_servers(2)
    streaming = Streaming(SERVER % (old.server, ""), workers=2)
    with streaming.connect() as session:
        assert session.line() == b"s0"
        streaming.reload(SERVER % (new.server, ""))
        wait_for(lambda: streaming.ask() == "s1", what="the new configuration")
        session.send(b"still")
        assert session.exactly(5) == b"still"


def test_no_session_fails_over_reloads(tcp_servers):
    backends = tcp_servers(2)
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


def test_a_server_s_place_can_go_to_http(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(SERVER % (server.server, ""))
    assert streaming.ask() == "s0"
    port = streaming.stream_port
    streaming.one.reload(text=f"events {{ }} http {{ server {{ listen 127.0.0.1:PORT; listen 127.0.0.1:{port}; "
                              "return 200 http; } }")

    def is_http():
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b" 200 OK\r\n" in sock.recv(1000)
    wait_for(is_http, what="http on the port")


def test_a_graceful_end_waits_for_sessions(tcp_servers):
    [server] = tcp_servers()
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
    assert streaming.one.process.wait(40) == 0


def test_a_long_control_connection_beside_short_ones(tcp_servers):
    """As of FTP: the control connection says nothing while data connections come and go. Those do not count for its
    `proxy_timeout`; what it says itself does. A drain waits for it."""
    [control, data] = tcp_servers(2)
    streaming = Streaming(f"server {{ listen 127.0.0.1:SPORT; proxy_pass {control.server}; proxy_timeout 5s; }}"
                          f"server {{ listen 127.0.0.2:SPORT; proxy_pass {data.server}; }}")

    def transfer():
        with socket.create_connection(("127.0.0.2", streaming.stream_port), 10) as sock:
            sock.sendall(b"x" * 10_000)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
    with streaming.connect() as kept, streaming.connect() as silent:
        assert kept.line() == silent.line() == b"s0"
        begun = time.monotonic()
        # Longer than the time that a silent one has.
        while time.monotonic() < begun + 5.9:
            transfer()
            kept.send(b"NOOP\n")
            assert kept.line() == b"NOOP"
            time.sleep(0.3)
        assert silent.rest() == b"", "it said nothing for too long"
        streaming.one.process.send_signal(signal.SIGQUIT)
        wait_for(lambda: _refused(streaming.stream_port), what="no new sessions")
        kept.send(b"QUIT\n")
        assert kept.line() == b"QUIT", "it is waited for"
        assert streaming.one.process.poll() is None
    assert streaming.one.process.wait(40) == 0


def test_worker_shutdown_timeout_ends_sessions(tcp_servers):
    [server] = tcp_servers()
    streaming = Streaming(SERVER % (server.server, ""), main="worker_shutdown_timeout 500ms;")
    with streaming.connect() as session:
        session.line()
        begun = time.monotonic()
        streaming.one.process.send_signal(signal.SIGQUIT)
        assert session.rest() == b""
        assert 0.3 < time.monotonic() - begun < 9
    streaming.one.process.wait(40)
    assert streaming.lines(1)[0][:3] == ["200", "0", "3"], "logged all the same"


def _refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
