"""Resources that once ran out or were wasted: connections to servers, memory, places for clients."""

import pathlib
import threading
import time

import pytest

from support.client import Client, get
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


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_memory_of_a_dribbling_server_is_bounded(balancer, origin, buffering):
    """One-byte chunks for a client that reads nothing: what waits is bytes, not buffers."""
    ended, full = threading.Event(), threading.Event()

    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(CHUNKED)
        # The kernel takes some megabytes for the client; from there on the balancer has to keep what comes.
        before = same = sent = 0
        while same < 2:
            connection.send(b"3e80\r\n%s\r\n" % bytes(16000))
            time.sleep(0.002)
            sent += 1
            # A look at all of the machine's sockets takes its time, so none at first.
            if sent > 100:
                before, same = (queue := unsent(one.port, peer)), same + 1 if queue == before else 0
        full.set()
        connection.sock.settimeout(0.5)
        while not ended.is_set():
            try:
                connection.send(b"1\r\nz\r\n")
            except TimeoutError:
                continue
            time.sleep(0.0001)

    server = origin(handle, raw=True)
    one = balancer(proxy([server], location=f"proxy_buffering {buffering};"))
    with Client(one.port, receive_buffer=4096) as client:
        peer = client.sock.getsockname()[1]
        client.request()
        assert full.wait(20)
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
        others.append(Client(one.port, timeout=2))
        for _ in range(requests):
            assert others[-1].get().status == 200

    try:
        for _ in range(20):
            arrive()
        time.sleep(0.1)
        for _ in range(10):
            assert get(one.port, timeout=3).status == 200
            arrive()
    finally:
        for other in others:
            other.close()
