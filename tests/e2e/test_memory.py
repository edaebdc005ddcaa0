"""Memory: it is limited, what is too much is refused, and what a peak took is given back."""

import contextlib
import os
import pathlib
import resource
import socket
import threading
import time

import pytest

from support import balancer as balancers
from support.balancer import anonymous, children, wait_for
from support.client import get
from support.expect import balanza_only
from support.origin import proxy

pytestmark = [balanza_only("has no worker_memory"), pytest.mark.load]

CLIENTS = 5000
FIELDS = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 7000) for i in range(8))
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n" + FIELDS
LARGE_HEADS = "client_header_buffer_size 8k; large_client_header_buffers 8 8k;"
MANY = "worker_connections 20000;"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def many_files():
    """Descriptors for both ends of all connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CLIENTS + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Flood:
    """Many clients that send something and then wait."""

    def __init__(self, one, count, data, between=lambda: None, every=500):
        self.sockets = []
        for index in range(count):
            if index % every == every - 1:
                between()
            sock = socket.socket()
            # A third of the addresses each, so that no one runs out of ports.
            sock.bind((f"127.0.0.{2 + index % 3}", 0))
            sock.settimeout(20)
            self.sockets.append(sock)
            try:
                sock.connect(("127.0.0.1", one.port))
                sock.sendall(data)
            except OSError:
                pass

    def close(self):
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def silent():
    """The address of a server that accepts and never reads."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    accepted = []

    def accept():
        try:
            while True:
                accepted.append(listener.accept()[0])
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for sock in accepted:
        sock.close()


def worker_pid(one):
    """The worker's; it may just have been started."""
    return wait_for(lambda: children(one.process.pid), what="a worker")[0]


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def group():
    """Commands that put a shell into a new control group with so much memory."""
    made = []

    def make(limit):
        for parent, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
            path = pathlib.Path("/sys/fs/cgroup", parent, f"balanza-test-{os.getpid()}")
            try:
                path.mkdir()
                made.append(path)
                (path / file).write_text(str(limit))
                return f"echo $$ > {path}/cgroup.procs"
            except OSError:
                continue
        pytest.skip("needs the right to make a control group")

    yield make
    for one in balancers.started:
        one.stop()
    for path in made:
        wait_for(lambda path=path: not (path / "cgroup.procs").read_text(), what="an empty group")
        path.rmdir()


@pytest.fixture(params=["addresses", "group", "directive"])
def limited(request):
    """Options for a balancer that may take 250 MB."""
    if request.param == "addresses":
        return {"limits": "ulimit -v 250000"}
    if request.param == "group":
        return {"limits": request.getfixturevalue("group")(250_000_000)}
    return {"main": "worker_memory 200m;"}


def test_the_process_survives_large_heads(balancer, origin, limited):
    """5,000 clients with 56 KB of an incomplete head each: the oldest go, others are answered meanwhile."""
    one = balancer(proxy([origin()], http=LARGE_HEADS), events=MANY, workers=2, **limited)
    pid, begun, healthy = worker_pid(one), time.monotonic(), []

    def ask():
        try:
            healthy.append(get(one.port).status)
        except (OSError, AttributeError):
            healthy.append(None)

    flood = Flood(one, CLIENTS, HEAD, ask)
    ask()
    assert worker_pid(one) == pid and resident(pid) < 250_000_000
    flood.close()
    # On a busy machine some come when there is no room, and one or the other too late.
    assert healthy.count(200) >= len(healthy) // 3, healthy
    wait_for(lambda: asked(one.port, "/") == 200, 60, what="a healthy answer")
    # Once a second.
    alerts, seconds = one.error_log().count("worker_memory is not enough"), time.monotonic() - begun
    assert 1 <= alerts <= seconds + 2
    assert "exited" not in one.error_log()


def test_the_process_survives_requests_that_wait(balancer, silent, limited):
    """5,000 requests of 56 KB wait for a server that does not answer: what is too much is refused."""
    http = f"{LARGE_HEADS} server {{ listen 127.0.0.1:PORT backlog=8192; location / {{ proxy_pass http://{silent}; }}"
    one = balancer(http + " location /free { return 200 free; } }", events=MANY, workers=2, **limited)
    pid = worker_pid(one)
    flood = Flood(one, CLIENTS, HEAD + b"\r\n")
    assert worker_pid(one) == pid and resident(pid) < 250_000_000
    flood.close()
    wait_for(lambda: asked(one.port, "/free") == 200, 60, what="a healthy answer")
    assert worker_pid(one) == pid
    assert "exited" not in one.error_log()


def asked(port, target):
    try:
        response = get(port, target)
        return response and response.status
    except OSError:
        return None


def test_large_bodies_are_refused_when_memory_is_short(balancer, origin):
    one = balancer(proxy([origin()], http="client_body_buffer_size 4m; client_max_body_size 0;"), events=MANY,
                   main="worker_memory 64m;")
    pid = worker_pid(one)
    # The connections are there before memory is short, so that none of them is refused as such.
    flood = Flood(one, 150, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n")
    for sock in flood.sockets:
        sock.settimeout(0.2)
        with contextlib.suppress(OSError):
            sock.sendall(b"\r\n" + bytes(1_000_000))
        sock.setblocking(False)

    def refused():
        """How many are; nothing is answered where the rest of the body is waited for."""
        count = 0
        for sock in flood.sockets:
            with contextlib.suppress(OSError):
                count += sock.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 503"
        return count

    wait_for(lambda: refused() > 20, what="the refusals")
    assert "no memory for the request's body" in one.error_log()
    flood.close()
    wait_for(lambda: asked(one.port, "/") == 200, 60, what="a healthy answer")
    assert worker_pid(one) == pid


@pytest.mark.parametrize("what", ["incomplete", "waiting"])
def test_memory_of_a_peak_is_given_back(balancer, silent, what):
    """Ten seconds after 5,000 requests with heads of 56 KB the worker is small again."""
    http = f"{LARGE_HEADS} server {{ listen 127.0.0.1:PORT backlog=8192; location / {{ proxy_pass http://{silent}; }} }}"
    one = balancer(http, events=MANY, main="worker_memory off;", workers=2)
    pid = worker_pid(one)
    flood = Flood(one, CLIENTS, HEAD + (b"\r\n" if what == "waiting" else b""))
    wait_for(lambda: resident(pid) > 250 * MIB, what="the peak")
    flood.close()
    # Ten seconds on a quiet machine.
    wait_for(lambda: resident(pid) <= 64 * MIB, 40, "the peak's end", step=0.5)


def test_the_supervisor_keeps_little_of_a_large_configuration(balancer):
    names = "".join(f"server {{ listen 127.0.0.1:PORT; server_name name{i}.test; location / {{ return 200; }} }}\n"
                    for i in range(6000))
    one = balancer("server_names_hash_max_size 65536; " + names)
    supervisor = one.process.pid
    for _ in range(2):
        [worker] = one.workers_alive()
        wait_for(lambda: anonymous(supervisor) < anonymous(worker) / 2, 30, "memory that is given back")
        one.reload()
