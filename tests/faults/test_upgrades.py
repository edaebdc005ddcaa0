"""Upgrades, reloads and shutdowns take no kept connection away under a client that may be sending."""

import os
import signal
import socket
import threading
import time

import pytest

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.fast import FastServer
from support.origin import proxy, upstream
from support.ports import free_port

# The full figure: REQUESTS=20000 tests/e2e/run.sh (docs/operations.md, "What happens when").
REQUESTS = int(os.environ.get("REQUESTS", 4000))
POST = b"POST /post HTTP/1.1\r\nHost: example.test\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET /get HTTP/1.1\r\nHost: example.test\r\n\r\n"


class Clients:
    """Clients that keep their connections and send GET and POST in turn. They repeat nothing: a connection that ends
    without the answer, or after one that did not say so, is a failure."""

    def __init__(self, port, count=4, pause=0.0):
        self.port, self.pause = port, pause
        self.done, self.closes, self.failures = [0] * count, [0] * count, []
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(index,), daemon=True) for index in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join(30)

    def _run(self, index):
        sock = None
        while not self.ending.is_set():
            if sock is None:
                sock = socket.create_connection(("127.0.0.1", self.port), 30)
            try:
                sock.sendall((GET, POST)[self.done[index] % 2])
                head = b""
                while not head.endswith(b"\r\n\r\nok\n"):
                    piece = sock.recv(4096)
                    if not piece:
                        raise ConnectionError(f"ended after {head!r}")
                    head += piece
            except OSError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                sock = None
                continue
            self.done[index] += 1
            if b"Connection: close" in head:
                self.closes[index] += 1
                sock.close()
                sock = None
            if self.pause:
                time.sleep(self.pause)

    def wait(self, more):
        """Waits until so many more requests have been answered."""
        goal = sum(self.done) + more
        wait_for(lambda: sum(self.done) >= goal or self.failures, 60, f"{more} requests")


@pytest.fixture
def server():
    one = FastServer()
    yield one
    one.stop()


def test_upgrade_cuts_no_kept_connection(server):
    one = Balancer(proxy([server]), workers=2, access_log=False, main="worker_drain_timeout 20s;")
    with Clients(one.port) as clients, Clients(one.port, pause=0.02) as calm:
        for _ in range(10):
            clients.wait(REQUESTS // 10)
            one.upgrade()
            # The old process goes when the last of its clients has had its last answer.
            one.old.wait(60)
    assert clients.failures == [] and calm.failures == []
    assert sum(clients.done) >= REQUESTS and sum(clients.closes) >= 10


def test_reloads_cut_no_kept_connection(server):
    text = proxy([server])
    one = Balancer(text, workers=2, access_log=False, main="worker_drain_timeout 20s;")
    with Clients(one.port) as clients:
        for number in range(60):
            clients.wait(REQUESTS // 60)
            # Fewer worker threads every other time: the one that goes hands its clients over by their last answers.
            one.workers = 1 + number % 2
            one.reload(text)
    assert clients.failures == []
    assert sum(clients.done) >= REQUESTS // 60 * 60


def test_shutdown_timeout_leaves_time_for_last_requests(server):
    one = Balancer(proxy([server]), main="worker_shutdown_timeout 20s; worker_drain_timeout 10s;")
    with Client(one.port) as client:
        assert client.get().status == 200
        one.notify(signal.SIGQUIT)
        one.wait_error("gracefully shutting down")

        def is_last():
            response = client.get()
            assert response.status == 200
            return response["Connection"] == "close"
        wait_for(is_last, what="the last answer")
        assert client.closed()
    assert one.process.wait(40) == 0


def test_idle_clients_end_with_the_drain_timeout(server):
    one = Balancer(proxy([server]), main="worker_drain_timeout 300ms;")
    with Client(one.port) as client, Client(one.port):
        assert client.get().status == 200
        begun = time.monotonic()
        one.notify(signal.SIGQUIT)
        assert client.rest() == b""
        assert time.monotonic() - begun > 0.25
    assert one.process.wait(40) == 0


def test_connections_of_an_address_that_goes_have_a_last_answer(server):
    def text(*ports):
        listens = "".join(f"listen 127.0.0.1:{port};" for port in ports)
        return upstream([server]) + f"server {{ {listens} location / {{ proxy_pass http://group; }} }}"
    other = free_port()
    one = Balancer(text("PORT", other), main="worker_drain_timeout 20s;")
    with Client(other) as client:
        assert client.get().status == 200
        one.reload(text("PORT"))

        def closed():
            # A connection that is made while the socket closes is reset, as everywhere.
            try:
                return get(other) is None
            except ConnectionError:
                return True
        wait_for(closed, what="the address to be closed")
        last = client.get()
        assert (last.status, last["Connection"]) == (200, "close")


def test_connection_numbers_are_unique_over_reloads(server):
    form = "log_format f '$connection'; access_log DIR/logs/serials.log f;"
    one = Balancer(proxy([server], http=form), workers=1)
    for workers in (1, 2, 3, 1, 2):
        one.workers = workers
        one.reload(proxy([server], http=form + f" server {{ listen 127.0.0.1:PORT; server_name w; return 200 {workers}; }}"))
        for _ in range(30):
            assert get(one.port).status == 200
    serials = one.wait_log(150, "serials.log")
    assert len(set(serials)) == len(serials)
