"""`outlier`, `retry_budget`, `concurrency`: servers that fail do not take others with them. Each line of the table in docs/operations.md is here."""

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
from support.ports import free_port
from support.stream import Streaming, TcpServer

pytestmark = balanza_only("these directives are Balanza's own")

API = "location /api { api; access_log off; }"


class Moody:
    """A server that answers with the status in `status`, after `wait` seconds, while its gate is open."""

    def __init__(self, name, status="200 OK"):
        self.status, self.wait, self.gate = status, 0, threading.Event()
        self.gate.set()
        self.origin = Origin(lambda request, connection: self.pause() or answer(name, self.status))
        self.server = self.origin.server

    def pause(self):
        self.gate.wait(30)
        time.sleep(self.wait)

    @property
    def count(self):
        return self.origin.count


def farm(balancer, servers, directives, *, parameters="max_fails=0", workers=2, location=""):
    head = f"zone group 64k; {directives}"
    return balancer(proxy(servers, head=head, server=API, location=location, parameters=[parameters] * len(servers)),
                    workers=workers)


def statuses(one, count, clients=1):
    """The statuses of requests, which clients send at the same time on one connection each."""
    def send(count):
        with Client(one.port, timeout=30) as client:
            return [client.get().status for _ in range(count)]
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return [status for part in pool.map(send, [count // clients] * clients) for status in part]


def states(one):
    peers = json.loads(get(one.port, "/api/9/http/upstreams/group/").body)["peers"]
    return [peer["state"] for peer in peers]


def own(one, what="http/upstreams/group"):
    """What only Balanza's part of the API says."""
    return json.loads(get(one.port, f"/api/balanza/{what}").body)


def ejections(one):
    """How long each ejection was, by the error log."""
    return re.findall(r"is ejected for (\w+)", one.error_log())


@pytest.mark.parametrize("ejects", [True, False])
def test_a_server_that_answers_500_fast(balancer, ejects):
    """Exactly `consecutive` failures over all workers, however many clients there are."""
    servers = [Moody("0"), Moody("1"), Moody("2", "500 Broken")]
    one = farm(balancer, servers, "outlier consecutive=7;" if ejects else "")
    failed = statuses(one, 240, clients=1).count(500)
    assert failed == servers[2].count == (7 if ejects else 80)
    assert states(one) == ["up", "up", "unavail" if ejects else "up"]
    if ejects:
        assert '"%s" in upstream "group" is ejected for 30s: 7 failures in a row' % servers[2].server in one.error_log()
        [ejected] = [server["ejected_for"] for server in own(one)["servers"] if "ejected_for" in server]
        assert 0 < ejected <= 30_000
        wait_for(lambda: [servers[2].server] == [event["server"] for event in own(one, "events") if event["kind"] == "state"],
                 what="the event")
        # Those under way when it is ejected end as they do.
        statuses(one, 240, clients=8)
        assert servers[2].count == 7


def test_several_workers_count_together(balancer):
    servers = [Moody("0"), Moody("1", "500 Broken")]
    one = farm(balancer, servers, "balance random; outlier consecutive=20 time=10m;", workers=4)
    failed = statuses(one, 400, clients=8).count(500)
    # Each of the clients may have had one under way.
    assert 20 <= failed == servers[1].count <= 28


def test_a_probe_brings_a_server_back(balancer):
    servers = [Moody("0"), Moody("1"), Moody("2", "503 Unwell")]
    one = farm(balancer, servers, "outlier consecutive=3 time=300ms max_time=600ms;")
    # Three for each server: with the last one it is ejected, and no time passes in which it could be probed.
    statuses(one, 9)
    assert servers[2].count == 3
    # One request each time finds out that it is not well, and only the ejections get longer.
    wait_for(lambda: statuses(one, 10) and servers[2].count >= 5, what="two probes")
    wait_for(lambda: len(ejections(one)) >= 3, what="three ejections")
    assert ejections(one)[:3] == ["300ms", "600ms", "600ms"]
    # A slow probe does not make others wait, and no other request is sent there meanwhile.
    servers[2].status = "200 OK"
    servers[2].gate.clear()
    before = servers[2].count
    slow = concurrent.futures.ThreadPoolExecutor(1)

    def probe():
        while servers[2].count == before:
            statuses(one, 1)
            time.sleep(0.05)
    slow.submit(probe)
    wait_for(lambda: servers[2].count == before + 1, what="the probe")
    assert set(statuses(one, 30)) == {200} and servers[2].count == before + 1
    assert "unavail" in states(one)
    servers[2].gate.set()
    slow.shutdown()
    one.wait_error(r"is not ejected any more")
    assert set(statuses(one, 30)) == {200} and servers[2].count > before + 5
    assert states(one) == ["up"] * 3


def test_a_share_of_the_servers_is_left(balancer):
    servers = [Moody(str(n), "500 Broken" if n < 3 else "200 OK") for n in range(5)]
    one = farm(balancer, servers, "outlier consecutive=2 max_ejected=40 time=10m;")
    statuses(one, 200)
    assert states(one).count("unavail") == 2
    # The third one goes on: a third of the requests.
    assert statuses(one, 90).count(500) in (29, 30, 31)


def test_too_few_servers_left_are_a_panic(balancer):
    servers = [Moody(str(n), "500 Broken") for n in range(4)]
    one = farm(balancer, servers, "outlier consecutive=2 max_ejected=100 time=1s;")
    # Without the threshold, the last one would get all of these.
    statuses(one, 80)
    assert "too few servers are left" in one.error_log() and min(server.count for server in servers) >= 15
    assert states(one) == ["up"] * 4
    for server in servers:
        server.status = "200 OK"
    wait_for(lambda: statuses(one, 20) and one.error_log().count("is not ejected any more") >= 3, what="their return")
    one.wait_error("enough servers are left")
    assert set(statuses(one, 40)) == {200}


def test_a_slow_server_is_ejected_on_request(balancer):
    servers = [Moody("0"), Moody("1"), Moody("2")]
    # More than three times what the others take, on a busy machine as well.
    servers[1].wait = 0.2
    one = farm(balancer, servers, "outlier interval=1s requests=5 latency=300;")
    # One of the others may be ejected before, if the machine stops it; it is back after half a minute.
    message = r'"%s" .*: \d+ ms on average, and \d+ ms by the others' % servers[1].server
    wait_for(lambda: statuses(one, 30, clients=3) and re.search(message, one.error_log()), 80, "its ejection")
    before = servers[1].count
    statuses(one, 30)
    assert servers[1].count == before


def test_success_rates_are_compared(balancer):
    servers = [Moody(str(n)) for n in range(5)]
    flip = iter(range(10_000_000))
    servers[4].origin.handler = lambda *_: answer("", "500 Broken" if next(flip) % 2 else "200 OK")
    one = farm(balancer, servers, "outlier consecutive=0 interval=2s requests=5 time=10m;")
    wait_for(lambda: statuses(one, 100, clients=5) and "is ejected" in one.error_log(), what="its ejection")
    assert re.search(r'"%s" .*: \d+\.\d %% of its requests succeeded, below' % servers[4].server, one.error_log())
    assert set(statuses(one, 50)) == {200}


def test_a_reload_keeps_ejections_and_the_end_of_the_directive_ends_them(balancer):
    servers = [Moody("0"), Moody("1", "500 Broken")]
    one = farm(balancer, servers, "outlier consecutive=3 time=10m;")
    statuses(one, 20)
    assert states(one) == ["up", "unavail"]

    def reload(directives):
        name = f"/{directives[:3] or 'none'}"
        one.reload(proxy(servers, head=f"zone group 64k; {directives}", parameters=["max_fails=0"] * 2,
                         server=API + f"location = {name} {{ return 204; }}"))
        wait_for(lambda: get(one.port, name).status == 204, what="the reload")
    reload("outlier consecutive=4 time=10m;")
    assert set(statuses(one, 20)) == {200} and servers[1].count == 3
    reload("")
    assert 500 in statuses(one, 20)
    assert states(one) == ["up", "up"]


def test_streams():
    """What counts is whether a connection is established, not when it ends."""
    good, port = TcpServer("good"), free_port()
    servers = f"server 127.0.0.1:{good.port} max_fails=0; server 127.0.0.1:{port} max_fails=0;"
    streaming = Streaming(f"""
        upstream u {{ zone u 64k; outlier consecutive=2 time=5s; {servers} }}
        server {{ listen 127.0.0.1:SPORT; proxy_pass u; proxy_next_upstream off; }}""")

    def ask(count):
        return [streaming.ask() for _ in range(count)]
    assert ask(20).count("") == 2
    held = TcpServer("held", port=port)
    wait_for(lambda: ask(1) == ["held"], what="its probe")
    streaming.one.wait_error("is not ejected any more")
    assert ask(20).count("held") >= 9
    good.stop()
    held.stop()


def test_sessions_of_streams_have_a_budget():
    servers = f"server 127.0.0.1:{TcpServer('good').port} max_fails=0; server 127.0.0.1:{free_port()} max_fails=0;"
    streaming = Streaming(f"""
        upstream u {{ retry_budget ratio=0 min=2 window=10m; {servers} }}
        server {{ listen 127.0.0.1:SPORT; proxy_pass u; }}""")
    refused = [streaming.ask() for _ in range(20)].count("")
    assert refused > 0 and streaming.one.error_log().count("connect() failed") == refused + 2


@pytest.mark.parametrize("budget, retried", [("", 100), ("retry_budget;", 20), ("retry_budget ratio=50 min=0;", 50),
                                             ("retry_budget ratio=0 min=7;", 7)])
def test_retries_have_a_budget(balancer, budget, retried):
    """What goes beyond it is the error of the attempt."""
    servers = [Moody("0", "503 Broken"), Moody("1", "503 Broken")]
    one = farm(balancer, servers, budget and budget.replace(";", " window=10m;"), location="proxy_next_upstream http_503;", workers=4)
    assert statuses(one, 100, clients=4) == [503] * 100
    assert sum(server.count for server in servers) == 100 + retried
    assert own(one).get("retries_refused", 0) == 100 - retried


def test_a_budget_is_for_errors_of_connections_too(balancer):
    servers = [Origin("0"), Origin("1")]
    one = farm(balancer, servers, "retry_budget ratio=0 min=2 window=10m;")
    servers[0].stop()
    failed = statuses(one, 20).count(502)
    assert one.error_log().count("connect() failed") == failed + 2
    one.reload(proxy(servers, head="zone group 64k; retry_budget ratio=0 min=2 window=10m;", parameters=["max_fails=0"] * 2,
                     server=API + "location = /new { return 204; }"))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    before = one.error_log().count("connect() failed")
    failed = statuses(one, 20).count(502)
    assert one.error_log().count("connect() failed") - before == failed > 0, "a reload gives no other budget"


class Shop(Moody):
    """A server that works on `places` requests at a time, each for 20 ms; the others wait there."""

    def __init__(self, places):
        super().__init__("")
        self.places = threading.Semaphore(places)
        self.origin.handler = self.handle

    def handle(self, request, connection):
        with self.places:
            time.sleep(0.02)
        return answer("served")

    def most(self, one, clients, count):
        """The most requests that were there at a time, while clients send some."""
        self.origin.most_in_flight = 0
        assert set(statuses(one, count, clients)) == {200}
        return self.origin.most_in_flight


def test_a_limit_is_found_by_measuring(balancer):
    shop = Shop(4)
    without = farm(balancer, [shop], "")
    assert shop.most(without, 40, 400) > 20
    # A window counts with ten responses; they come on a busy machine, too.
    one = farm(balancer, [shop], "concurrency initial=30 requests=20 window=1s; queue 100;")
    # As it comes to the right limit, 30 requests at a time are too many, and it is measured with 3.
    wait_for(lambda: shop.most(one, 40, 200) <= 20, what="a limit", seconds=60)
    assert shop.most(one, 40, 200) >= 3


def test_a_limit_grows_while_it_is_used(balancer):
    shop = Shop(1000)
    # Clients and server are one process here, which a busy machine makes slower with each request at a time.
    one = farm(balancer, [shop], "concurrency initial=5 requests=20 tolerance=300 window=600ms; queue 100;")
    assert shop.most(one, 4, 80) <= 4
    # How many of 40 clients are here at a time depends on the machine, so the limit itself is looked at.
    wait_for(lambda: shop.most(one, 40, 400) and own(one)["servers"][0]["limit"] >= 35, what="a greater limit", seconds=60)


def test_without_a_queue_what_is_above_the_limit_is_refused(balancer):
    shop = Shop(1)
    one = farm(balancer, [shop], "concurrency initial=3 max=3;")
    answers = statuses(one, 240, clients=24)
    assert set(answers) == {200, 502} and shop.origin.most_in_flight == 3
    assert own(one)["servers"][0]["limit"] == 3
    assert answers.count(200) == shop.count
    # The end of the directive is the end of the limit.
    one.reload(proxy([shop], head="zone group 64k;", parameters=["max_fails=0"],
                     server=API + "location = /new { return 204; }"))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    assert shop.most(one, 12, 48) > 3
