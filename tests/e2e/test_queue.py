"""`queue`: requests wait for a server, in order, for a bounded time."""

import concurrent.futures
import json
import re
import threading
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer, proxy

pytestmark = balanza_only("queue is a directive of NGINX Plus")

API = "location /api { api; access_log off; }"
LOG = "log_format q '$status $upstream_queue_time $uri';"


class Gate:
    """A server that answers one request for each `open`; `order` is what came, in order."""

    def __init__(self):
        self.permits, self.order = threading.Semaphore(0), []
        self.origin = Origin(self.handle)
        self.server = self.origin.server

    def handle(self, request, connection):
        self.order.append(request.target)
        self.permits.acquire(timeout=100)
        return answer(request.target)

    def open(self, count=1):
        for _ in range(count):
            self.permits.release()


def queued(balancer, servers, queue, *, limit=1, workers=2, location=""):
    text = proxy(servers, head=f"zone group 64k; queue {queue};", http=LOG, server=API,
                 parameters=[f"max_conns={limit}"] * len(servers), location=f"access_log logs/access.log q; {location}")
    return balancer(text, workers=workers)


def sent(one, target):
    client = Client(one.port, timeout=110)
    client.request(target=target)
    return client


def waiting(one):
    """How many requests wait."""
    return json.loads(get(one.port, "/api/9/http/upstreams/group").body)["queue"]["size"]


def statuses(one, status):
    """How many lines of the log have this status."""
    return sum(line.startswith(f"{status} ") for line in one.access_log())


def fill(one, room, more, refused):
    """Sends requests until `room` of them wait and `more` were refused, and returns those that wait."""
    clients = [sent(one, "/waits") for _ in range(room + more)]
    wait_for(lambda: statuses(one, 502) == refused + more, what="the refused")
    return [client for client in clients if not client.answered(0.001)]


def test_requests_are_served_in_the_order_in_which_they_came(balancer):
    gate = Gate()
    one = queued(balancer, [gate], 100)
    clients = []
    for number in range(20):
        clients.append(sent(one, f"/{number}"))
        # Each is in its place before the next one comes, whichever worker has it.
        wait_for(lambda: gate.order and waiting(one) == number, what="its place")
    assert gate.order == ["/0"]
    gate.open(20)
    assert [client.response().status for client in clients] == [200] * 20
    assert gate.order == [f"/{number}" for number in range(20)]
    assert gate.origin.most_in_flight == 1
    lines = [line.split() for line in one.wait_log(20)]
    assert [line[1] == "-" for line in sorted(lines, key=lambda line: int(line[2][1:]))] == [True] + [False] * 19


@pytest.mark.parametrize("workers", [1, 4])
def test_max_conns_holds_over_all_workers_and_nobody_is_left(balancer, workers):
    servers = [Origin(lambda request, _: (time.sleep(0.002), answer("x"))[1]) for _ in range(2)]
    one = queued(balancer, servers, 1000, limit=3, workers=workers)
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        statuses = list(pool.map(lambda _: get(one.port, timeout=30).status, range(800)))
    assert statuses == [200] * 800
    assert max(server.most_in_flight for server in servers) <= 3


def test_more_than_may_wait_get_502(balancer):
    gate = Gate()
    one = queued(balancer, [gate], 3)
    first = sent(one, "/first")
    wait_for(lambda: gate.order, what="the first request")
    clients = fill(one, 3, 5, 0)
    assert len(clients) == 3
    assert "the queue is full" in one.error_log()
    gate.open(10)
    assert [client.response().status for client in [first, *clients]] == [200] * 4
    assert get(one.port).status == 200


def test_a_request_that_waits_too_long_gets_502(balancer):
    gate = Gate()
    one = queued(balancer, [gate], "10 timeout=300ms")
    first = sent(one, "/first")
    wait_for(lambda: gate.order, what="the first request")
    begun = time.monotonic()
    assert get(one.port, "/second").status == 502
    assert time.monotonic() - begun > 0.28
    gate.open(2)
    assert first.response().status == 200
    assert gate.order == ["/first"]
    # The server is free a moment after its answer, which may be longer than a request may wait.
    wait_for(lambda: get(one.port, "/third").status == 200, what="the free server")
    line = next(line.split() for line in one.wait_log(3) if "/second" in line)
    assert re.fullmatch(r"0\.[3-9]\d\d|[1-9]\.\d+", line[1])


def test_clients_that_go_away_leave_the_queue(balancer):
    gate = Gate()
    one = queued(balancer, [gate], 5)
    first = sent(one, "/first")
    wait_for(lambda: gate.order, what="the first request")
    for turn in range(3):
        clients = fill(one, 5, 2, turn * 2)
        assert len(clients) == 5, "there is room for five again"
        for client in clients:
            client.close()
        wait_for(lambda turn=turn: statuses(one, 499) == 5 * turn + 5, what="their end")
    last = sent(one, "/last")
    gate.open(2)
    assert first.response().status == 200 and last.response().status == 200
    assert gate.order == ["/first", "/last"]


def test_a_queue_waits_for_servers_that_come_back(balancer):
    """All are down by a health check; the one that passes serves what waits."""
    healthy = threading.Event()

    def handle(request, _connection):
        if request.target != "/health":
            return answer("served")
        return answer("ok") if healthy.is_set() else answer("no", "503 No")

    server = Origin(handle)
    one = balancer(proxy([server], head="zone group 64k; queue 10;",
                         location="health_check interval=50ms uri=/health mandatory;"))
    client = sent(one, "/")
    time.sleep(0.2)
    assert all(request.target == "/health" for request in server.requests)
    healthy.set()
    assert client.response().text == "served"


def test_a_reload_leaves_what_waits_in_its_place(balancer):
    gate = Gate()
    one = queued(balancer, [gate], 10)
    clients = [sent(one, "/0")]
    wait_for(lambda: gate.order, what="the first request")
    clients.append(sent(one, "/1"))
    wait_for(lambda: waiting(one) == 1, what="the second request")
    text = proxy([gate], head="zone group 64k; queue 10;", http=LOG, parameters=["max_conns=1"], server=API,
                 location="access_log logs/access.log q; add_header X-Generation 2;")
    one.reload(text)
    wait_for(lambda: json.loads(get(one.port, "/api/9/nginx").body)["generation"] == 2, what="the reload")
    clients.append(sent(one, "/2"))
    wait_for(lambda: waiting(one) == 2, what="the third request")
    gate.open(3)
    assert [client.response().status for client in clients] == [200] * 3
    assert gate.order == ["/0", "/1", "/2"] and gate.origin.most_in_flight == 1


@pytest.mark.load
def test_thousands_of_waiting_clients_leave_nothing_behind(balancer):
    gate = Gate()
    one = queued(balancer, [gate], "20000 timeout=10m", workers=2)
    first = sent(one, "/first")
    wait_for(lambda: gate.order, what="the first request")
    clients = [sent(one, "/gone") for _ in range(1500)]
    wait_for(lambda: waiting(one) == 1500, what="the requests")
    for client in clients[:-1]:
        client.close()
    wait_for(lambda: waiting(one) == 1, what="the last one")
    gate.open(2)
    assert first.response().status == 200
    assert clients[-1].response().status == 200
    assert gate.order == ["/first", "/gone"]
    gate.open()
    assert get(one.port, "/after").status == 200
