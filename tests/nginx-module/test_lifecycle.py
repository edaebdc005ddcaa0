"""Reloads, workers that die, memory: what lives longer than a request."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from conftest import module
from support.balancer import wait_for
from support.client import Client, get
from support.fast import FastServer
from support.holding import Holding
from support.load import Load
from support.origin import Origin, answer, named, proxy

HEADS = ["two_choices;", "balance random;", "balance least_conn;", "balance join_idle_queue;", "balance last_server;"]


@pytest.fixture
def fast():
    """`fast(n)` starts n quick servers."""
    servers = []

    def start(count):
        servers.extend(FastServer(str(index)) for index in range(count))
        return servers

    yield start
    for server in servers:
        server.stop()


def reloaded(one, before):
    """Whether none of the workers of before serves any more."""
    return not set(one.workers_now()) & before


@pytest.mark.load
@pytest.mark.parametrize("zone", [False, True])
def test_reloads_under_load_lose_nothing(nginx, fast, zone):
    """A reload every second, now with one server more and now with one less."""
    servers = fast(4)
    seconds = int(os.environ.get("RELOADS", 6))
    blocks = [proxy(servers[:n], head=head, server="keepalive_requests 100000;")
              for n, head in [(4, "two_choices;"), (3, "two_choices;"), (4, "balance least_conn;"), (4, "two_choices;")]]
    one = nginx(blocks[0], workers=2, zone=zone, access_log=False)
    with Load(one.port, clients=4) as load:
        for number in range(seconds):
            one.reload(blocks[number % len(blocks)])
            time.sleep(1)
            wait_for(lambda count=number + 2: one.error_log().count("start worker processes") == count, what="the reload")
        wait_for(lambda: load.done > 10 * seconds, 30, "many requests")
    assert load.failures == [], load.failures[:5]
    assert "exited on signal" not in one.error_log()
    assert one.error_log().count("(SIGHUP) received") == seconds
    assert one.error_log().count("start worker processes") == seconds + 1


@pytest.mark.parametrize("zone", [False, True])
def test_what_is_known_survives_a_reload(nginx, zone):
    """Who was served where (a table), and how fast servers are (averages)."""
    servers = named(3)
    one = nginx(proxy(servers, head="balance last_server else=round_robin;"), workers=2, zone=zone)
    where = {n: get(one.port, source=f"127.0.{n}.1").text for n in range(1, 30)}
    assert len(set(where.values())) == 3
    before = set(one.workers_now())
    one.notify(signal.SIGHUP)
    wait_for(lambda: reloaded(one, before), what="new workers")
    assert {n: get(one.port, source=f"127.0.{n}.1").text for n in range(1, 30)} == where


def test_averages_survive_a_reload(nginx):
    quick = Origin(answer("quick"))
    slow = Origin(lambda *_: time.sleep(3) or answer("slow"))
    one = nginx(proxy([quick, slow], head="balance least_time by=last_byte;"), workers=1, zone=True)
    wait_for(lambda: get(one.port).text == "quick" and slow.count, what="times of both")
    before = set(one.workers_now())
    one.notify(signal.SIGHUP)
    wait_for(lambda: reloaded(one, before), what="new workers")
    count = slow.count
    assert {get(one.port).text for _ in range(4)} == {"quick"} and slow.count == count


def test_a_failed_reload_changes_nothing(nginx):
    servers = named(3)
    one = nginx(proxy(servers, head="balance least_conn;"), workers=2)
    before = set(one.workers_now())
    one.config.write_text(one.config.read_text().replace("balance least_conn", "balance nothing"))
    one.notify(signal.SIGHUP)
    one.wait_error("unknown balancing algorithm")
    assert [get(one.port).status for _ in range(12)] == [200] * 12
    assert set(one.workers_now()) == before


@pytest.mark.parametrize("zone", [False, True])
def test_a_worker_that_is_killed_takes_no_slots_with_it(nginx, zone):
    """max_conns=2 twice; two requests are under way when the worker that has them is killed."""
    held = Holding(2)
    one = nginx(proxy(held.servers, head="balance least_conn;", parameters=["max_conns=2"] * 2), workers=1, zone=zone)
    one.may_die = True
    for _ in range(3):
        held.send(one)
    (worker,) = one.workers_now()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: one.workers_now() not in ([], [worker]), what="another worker")
    one.wait_error("ended with a worker")
    for index, clients in held.clients.items():
        for client in clients:
            client.close()
        for event in held.held[index]:
            event.set()
        held.held[index].clear()
    held.clients.clear()
    # All four places are there again, and no fifth.
    assert sorted(held.send(one) for _ in range(4)) == [0, 0, 1, 1]
    assert held.send(one) is None
    held.release_all()


def test_a_stop_waits_for_what_is_under_way(nginx):
    stopping = threading.Event()
    slow = Origin(lambda *_: stopping.wait(30) and answer("late"))
    one = nginx(proxy([slow], head="two_choices;"), workers=2)
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: slow.in_flight, what="the request")
        one.notify(signal.SIGQUIT)
        one.wait_error("gracefully shutting down")
        stopping.set()
        assert client.response().text == "late"
    wait_for(lambda: one.process.poll() is not None, what="the end")


@pytest.mark.load
@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
@pytest.mark.timeout(300)
def test_no_error_under_valgrind(nginx):
    """Requests, retries, a reload and the end; master and workers."""
    servers = named(40)
    for server in servers[:3]:
        server.stop()
    text = proxy(servers, head="balance least_conn;") + "".join(
        f"upstream {name} {{ {head}; zone {name} 1m; {''.join(f'server {s.server};' for s in servers[2:6])} }}"
        for name, head in [("b", "two_choices"), ("c", "balance maglev key=$uri"), ("d", "balance last_server"),
                           ("e", "balance join_idle_queue"), ("f", "balance hash key=$uri consistent")])
    text = text.replace("location / {", "".join(
        f"location /{name} {{ proxy_pass http://{name}; }}" for name in "bcdef") + "location / {")
    one = nginx(text, workers=2, start=False)
    command = one.arguments
    valgrind = ["valgrind", "--error-exitcode=0", f"--log-file={one.dir}/logs/valgrind.%p", "--track-origins=no"]

    class Slow(type(one)):
        arguments = property(lambda self: [*valgrind, *command])

        def _listening(self):
            return super()._listening()

    one.__class__ = Slow
    one.process = subprocess.Popen([*valgrind, *command], cwd=one.dir, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
    one.stderr = open(os.devnull)
    wait_for(one._listening, seconds=60, what="NGINX under valgrind")
    with Client(one.port, timeout=60) as client:
        for n in range(60):
            reply = client.get(f"/{'bcdefx'[n % 6]}{n}")
            assert reply.status == 200, reply.start
    # The children of valgrind's own process: those that were forked.
    before = set(one.workers_now())
    one.notify(signal.SIGHUP)
    wait_for(lambda: len(set(one.workers_now()) - before) >= 2, seconds=60, what="new workers")
    time.sleep(2)
    assert [get(one.port, f"/{name}", timeout=60).status for name in "bcdefx"] == [200] * 6
    one.stop(signal.SIGQUIT, seconds=60)
    logs = {path.name: path.read_text() for path in (one.dir / "logs").glob("valgrind.*")}
    assert len(logs) >= 5, list(logs)
    for name, log in logs.items():
        found = re.findall(r"ERROR SUMMARY: (\d+) errors", log)
        assert found == ["0"], f"{name}: {log[-3000:]}"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("zone", [False, True])
def test_memory_stays_flat(nginx, fast, zone):
    requests = int(os.environ.get("SOAK_REQUESTS", 100_000))
    servers = fast(3)
    one = nginx(proxy(servers, head="two_choices;", server="keepalive_requests 1000000000;"), workers=2, zone=zone,
                access_log=False)

    def load(count):
        done = subprocess.run(["ab", "-q", "-k", "-n", str(count), "-c", "16", f"http://127.0.0.1:{one.port}/"],
                              capture_output=True, text=True, check=True).stdout
        assert re.search(r"Complete requests:\s+(\d+)", done)[1] == str(count)
        assert re.search(r"Failed requests:\s+(\d+)", done)[1] == "0"
        assert "Non-2xx" not in done

    load(20_000)
    counts = [server.requests() for server in servers]
    before = one.rss()
    load(requests)
    grown = one.rss() - before
    assert sum(server.requests() for server in servers) - sum(counts) == requests + len(servers)
    assert grown < 1 << 20, f"{grown} bytes"


def test_the_module_may_be_replaced_and_added(nginx, tmp_path):
    """A reload that finds another file in the module's place, one that unloads it, and one that loads it again."""
    tmp_path.chmod(0o755)
    place = tmp_path / "module.so"
    shutil.copy(module(), place)
    one = nginx(proxy(named(3), head="balance least_conn;"), workers=2, start=False)
    with_module = one.text.replace(str(module()), str(place))
    without = with_module.replace(f"load_module {place};", "").replace("balance least_conn;", "")
    one.config.write_text(with_module)
    one.start()
    for number, text in enumerate([with_module, without, with_module, with_module]):
        assert {get(one.port).status for _ in range(12)} == {200}
        if number in (0, 3):
            shutil.copy(module(), tmp_path / "next.so")
            (tmp_path / "next.so").rename(place)
        before = set(one.workers_now())
        one.config.write_text(text)
        one.notify(signal.SIGHUP)
        wait_for(lambda: reloaded(one, before) and one.workers_now(), what="new workers")  # noqa: B023
    assert {get(one.port).status for _ in range(12)} == {200}


def test_reloads_give_back_what_they_replace(nginx):
    """The master's memory after many reloads: one mapping for each upstream, as at the beginning."""
    one = nginx(proxy(named(3), head="balance last_server;"), workers=1)

    def mappings():
        with open(f"/proc/{one.pid}/maps") as maps:
            return [line for line in maps if "/dev/zero (deleted)" in line]

    def turn():
        before = set(one.workers_now())
        one.notify(signal.SIGHUP)
        wait_for(lambda: one.workers_now() and reloaded(one, before), what="new workers")
        # A worker that serves has all of its memory.
        assert get(one.port).status == 200

    count = len(mappings())
    assert count >= 1
    for _ in range(3):
        turn()
    before = one.rss()
    for _ in range(15):
        turn()
    assert len(mappings()) == count
    assert one.rss() - before < 1 << 20
