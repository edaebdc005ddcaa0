"""Many sessions of UDP at once: how much memory each takes, and that their number is bounded."""

import os
import resource
import socket
import threading

import pytest

from support.balancer import children, wait_for
from support.expect import balanza_only
from support.ports import free_port
from support.stream import Streaming
from support.udp import UdpClient

#: Descriptors of the worker beside the socket of each session.
OTHERS = 5_000


def possible():
    """100,000 sessions, or as many as the worker may have descriptors for."""
    wanted = int(os.environ.get("UDP_SESSIONS", "100000"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (wanted + OTHERS, max(hard, wanted + OTHERS)))
        return wanted
    except (ValueError, PermissionError):
        return min(wanted, hard - OTHERS)


SESSIONS = possible()
#: What a session may take in the worker, in bytes; docs/stream.md says what it is.
MOST = 4096
#: So many datagrams wait in a socket's queue for sure.
PIECE = 150

pytestmark = [balanza_only("the figures are Balanza's"), pytest.mark.load, pytest.mark.timeout(600)]


class Counting:
    """Servers that count datagrams and do not answer."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", free_port()))
        self.server = "%s:%d" % self.sock.getsockname()
        self.count = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            self.sock.recv(100)
            self.count += 1


def send(port, first, count):
    """One datagram from each of so many clients. A client is an address; the system's ports would not be enough."""
    for number in range(first, first + count):
        client = f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((client, 0))
            sock.sendto(b"%d" % number, ("127.0.0.1", port))


def memory(pid):
    """What the worker takes, in bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def test_memory_of_many_sessions(record_property):
    """Sessions of 100,000 clients at once, or as many as there may be descriptors. What more clients send is dropped, and takes nothing."""
    server = Counting()
    # The balancer's own side has a port for each session, too: an address for each client has enough of them.
    streaming = Streaming(
        f"server {{ listen 127.0.0.1:SPORT udp rcvbuf=1m; proxy_pass {server.server}; proxy_bind $remote_addr; "
        "proxy_timeout 10m; }", log="", main=f"worker_rlimit_nofile {SESSIONS + OTHERS};",
        events=f"worker_connections {2 * SESSIONS + 100};")
    [worker] = children(streaming.one.pid)
    client = UdpClient(streaming.stream_port)
    client.send(b"first")
    # What every worker has once is not the sessions'.
    begun = 1
    send(streaming.stream_port, begun, PIECE)
    begun += PIECE
    wait_for(lambda: server.count >= begun, what="the first sessions")
    before = memory(worker)
    for first in range(begun, SESSIONS, PIECE):
        count = min(PIECE, SESSIONS - first)
        send(streaming.stream_port, first, count)
        wait_for(lambda: server.count >= first + count, what=f"{first + count} datagrams", step=0.001)
    each = (memory(worker) - before) / (SESSIONS - begun)
    print(f"{SESSIONS} sessions of UDP: {each:.0f} bytes each")
    record_property("bytes_of_a_session", round(each))
    assert each < MOST, each
    # Each has a socket, and all are still there.
    assert len(os.listdir(f"/proc/{worker}/fd")) >= SESSIONS
    full = memory(worker)
    for first in range(SESSIONS, SESSIONS + 3000, PIECE):
        send(streaming.stream_port, first, PIECE)
    streaming.one.wait_error("worker_connections are not enough")
    assert server.count < SESSIONS + 100, "they are refused"
    assert memory(worker) < full + 4_000_000
    # A client that has a session is still served.
    count = server.count
    # What is refused may still fill the queue, so one datagram may be lost.
    wait_for(lambda: client.send(b"again") or server.count > count, what="the client of an open session")
    client.sock.close()
