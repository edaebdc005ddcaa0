"""A panic costs one connection, or the process ends and is replaced at once. No thread goes silently."""

import os
import signal
import time

import pytest

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.origin import answer, proxy


def balancer(origin, **options):
    options.setdefault("http", "")
    location = options.pop("location", "")
    return Balancer(proxy([origin("ok")], location=location, http=options.pop("http"), head=options.pop("head", "")), **options)


def serves(one):
    """Whether a request on a new connection is answered."""
    try:
        return get(one.port).status == 200
    except (OSError, AttributeError):
        return False


def test_panic_in_a_request_costs_one_connection(faults, origin):
    one = balancer(origin, head="least_conn;")
    with Client(one.port) as other:
        assert other.get().status == 200
        worker = one.workers_alive()
        faults.ask("request")
        with Client(one.port) as hurt:
            assert hurt.get() is None
        one.wait_error(r"\[alert\] .*panic at crates/proxy/src/fault.rs.*: a test asked for this fault: request")
        assert other.get().status == 200
    assert one.workers_alive() == worker


# What hits the place, and how: a new connection, a logged request, a reload, time.
PLACES = {
    "acceptor": lambda one: serves(one),
    "deferred": lambda one: serves(one),
    "timer": lambda one: serves(one),
    "command": lambda one: one.reload(),
    "sweep": lambda one: None,
    "watchdog": lambda one: None,
}


@pytest.mark.parametrize("place", PLACES)
def test_panic_elsewhere_ends_the_process_which_is_replaced(faults, origin, place):
    flush = "access_log DIR/logs/flushed.log combined buffer=4k flush=50ms;" if place == "timer" else ""
    one = balancer(origin, location=flush, workers=2)
    assert serves(one)
    before = one.workers_alive()
    faults.ask(place)
    PLACES[place](one)
    wait_for(lambda: not faults.is_pending(place), what="the fault")
    one.wait_error(rf"\[alert\] .*worker process {before[0]} exited on signal 6")
    one.wait_error(r"panicked: the worker process ends and is replaced")
    wait_for(lambda: serves(one), what="the new worker")
    # As many threads serve as before: each accepts on a socket of its own.
    assert sum(serves(one) for _ in range(40)) == 40
    assert one.workers_alive() != before


def test_panic_while_loads_are_asked_for(faults, origin):
    agent = origin(lambda connection: connection.send("50%\n") or connection.close(), raw=True)
    one = balancer(origin, head=f"load_report agent port={agent.port} interval=100ms;")
    wait_for(lambda: len(agent.connections) >= 2, what="questions")
    worker = one.workers_alive()
    faults.ask("report")
    wait_for(lambda: not faults.is_pending("report"), what="the fault")
    asked = len(agent.connections)
    wait_for(lambda: len(agent.connections) >= asked + 3, what="more questions")
    assert serves(one) and one.workers_alive() == worker


def test_stopped_worker_is_reported(faults, origin):
    one = balancer(origin, main="worker_watchdog 2s;")
    worker = one.workers_alive()
    faults.ask("sweep", "stall 6")
    one.wait_error(r"\[alert\] .*worker thread 0 has not run its event loop for [\d.]+ s; its connections wait")
    one.wait_error(r"\[alert\] .*worker thread 0 runs again")
    assert serves(one) and one.workers_alive() == worker


def test_stopped_worker_is_replaced_if_asked_for(faults, origin):
    one = balancer(origin, main="worker_watchdog 2s restart;")
    worker = one.workers_alive()
    faults.ask("sweep", "stall 120")
    one.wait_error(r"worker thread 0 has not run its event loop for [\d.]+ s: the worker process ends and is replaced")
    wait_for(lambda: serves(one) and one.workers_alive() != worker, what="the new worker")


def test_process_that_was_suspended_is_not_blamed(origin):
    one = balancer(origin, main="worker_watchdog 5s restart;")
    worker = one.workers_alive()
    os.kill(worker[0], signal.SIGSTOP)
    time.sleep(8)
    os.kill(worker[0], signal.SIGCONT)
    assert get(one.port).status == 200
    time.sleep(2)
    assert serves(one) and one.workers_alive() == worker
    assert "has not run its event loop" not in one.error_log()
