"""What decides about a session of `stream` beside its servers: `return`, rates, sizes of sockets."""

import pathlib
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE
from support.stream import SERVER, Session, Streaming

pytestmark = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")


@pytest.fixture
def server(tcp_servers):
    """Starts a server that runs a function for each connection."""
    return lambda handle=None: tcp_servers(handle=handle)[0]


def test_return():
    streaming = Streaming("map $remote_addr $who { 127.0.0.9 nine; default other; }\n"
                          "server { listen 127.0.0.1:SPORT; return '$who $protocol\\n'; }")
    assert streaming.ask() == "other TCP"
    assert streaming.ask(source="127.0.0.9") == "nine TCP"
    with streaming.connect() as session:
        assert session.rest() == b"other TCP\n"
    assert [line[:3] for line in streaming.lines(3)] == [["200", "0", "10"], ["200", "0", "9"], ["200", "0", "10"]]


def test_return_of_nothing_closes():
    streaming = Streaming("map $remote_addr $empty { default ''; }\nserver { listen 127.0.0.1:SPORT; return $empty; }")
    assert streaming.ask() == ""
    assert streaming.lines(1)[0][:3] == ["200", "0", "0"]


def test_return_after_access_rules():
    streaming = Streaming("server { listen 127.0.0.1:SPORT; deny 127.0.0.2; return ok; }")
    assert streaming.ask(source="127.0.0.2") == ""
    assert streaming.ask() == "ok"
    assert [line[0] for line in streaming.lines(2)] == ["403", "200"]


def test_the_last_handler_counts(server):
    one = server()
    streaming = Streaming("server { listen 127.0.0.1:SPORT; return no; proxy_pass %s; }" % one.server)
    assert streaming.ask() == "s0"


def test_download_rate(server):
    one = server(lambda sock: sock.sendall(b"x" * 90_000))
    streaming = Streaming(SERVER % (one.server, "proxy_download_rate 30k; proxy_timeout 500ms;"))
    # The server may begin to speak after proxy_timeout; a pause of the rate would come each time.
    for attempt in range(1, 6):
        begun = time.monotonic()
        with streaming.connect() as session:
            got = session.rest()
        if len(got) == 90_000:
            break
    assert got == b"x" * 90_000
    # The first second's share comes at once, as in NGINX; the rest takes at least the two seconds that follow, one of
    # which may have begun before.
    assert time.monotonic() - begun > 0.9
    assert streaming.lines(attempt)[-1][:3] == ["200", "0", "90000"]


def test_download_rate_with_a_variable(server):
    one = server(lambda sock: sock.sendall(b"x" * 90_000))
    streaming = Streaming("map $remote_addr $rate { 127.0.0.9 30k; default 0; }\n"
                          + SERVER % (one.server, "proxy_download_rate $rate;"))
    begun = time.monotonic()
    with streaming.connect("127.0.0.9") as session:
        assert session.rest() == b"x" * 90_000
    assert time.monotonic() - begun > 0.9
    with streaming.connect() as session:
        assert session.rest() == b"x" * 90_000


def test_upload_rate(server):
    def handle(sock):
        count = 0
        while count < 90_000:
            count += len(sock.recv(65536))
        sock.sendall(b"all\n")
    one = server(handle)
    streaming = Streaming(SERVER % (one.server, "proxy_upload_rate 30k; proxy_timeout 500ms;"))
    for _ in range(5):
        begun = time.monotonic()
        with streaming.connect() as session:
            session.send(b"y" * 90_000)
            said = session.line()
        if said:
            break
    assert said == b"all"
    assert time.monotonic() - begun > 0.9


def test_a_rate_limits_one_direction_only(server):
    one = server()
    streaming = Streaming(SERVER % (one.server, "proxy_upload_rate 1000000; proxy_download_rate 5;"))
    begun = time.monotonic()
    with streaming.connect() as session:
        assert session.exactly(3) == b"s0\n"
        session.send(b"12345")
        assert session.exactly(5) == b"12345"
        # It needs the share of the second second.
        assert time.monotonic() - begun > 0.9 or ON_NGINX


def test_sizes_of_sockets(server):
    """A small send buffer towards a server that does not read: the client is stopped early."""
    def handle(sock):
        sock.sendall(b"go\n")
        time.sleep(60)
    one = server(handle)

    def taken(settings, most, patience):
        """Bytes that a client can send, up to so many; `patience` is when it is taken to be stopped, in seconds."""
        streaming, count = Streaming(SERVER % (one.server, settings)), 0
        with streaming.connect() as session:
            session.line()
            session.sock.settimeout(patience)
            try:
                while count < most:
                    count += session.sock.send(b"z" * 65536)
            except TimeoutError:
                pass
        return count

    small = taken("proxy_socket_sndbuf 4k; proxy_socket_rcvbuf 4k;", 64 << 20, 2)
    # More than that is enough, so that it costs no time to be patient with a busy machine.
    assert taken("", small + 1, 20) > small
