"""What goes wrong with servers, on real processes: one that hangs, one that fails fast, and workers that balance beside each other."""

import concurrent.futures
import http.client
import itertools
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from support.balancer import binary, wait_for
from support.expect import balanza_only
from support.origin import proxy
from support.ports import free_port

pytestmark = [balanza_only("has few of the algorithms"), pytest.mark.load, pytest.mark.timeout(300)]

THREADS = 32


class Target:
    """A process of `balanza target`."""

    def __init__(self, *options):
        self.server = f"127.0.0.1:{free_port()}"
        words = [binary(), "target", "--listen", self.server, "--name", self.server, *options]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ready(self):
        host, port = self.server.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return True
        except OSError:
            return False

    def hang(self):
        """From now on the kernel accepts connections for it, and it does not answer."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def targets():
    """Starts servers: a list of their options."""
    started = []

    def start(all_options):
        farm = [Target(*options.split()) for options in all_options]
        started.extend(farm)
        wait_for(lambda: all(target.ready() for target in farm), 30, "the servers")
        return farm
    yield start
    for target in started:
        target.end()


def send(port, count, rate, *, timeout=30.0, give_up=None):
    """Sends requests at equal distances, as far as the threads can: statuses (0 for no answer in time) and seconds.
    After `give_up` requests without an answer no more are sent."""
    tickets, begin, silent = itertools.count(), time.monotonic(), threading.Semaphore(give_up or count + 1)
    results, enough = [], threading.Event()

    def work():
        connection = None
        while (ticket := next(tickets)) < count and not enough.is_set():
            time.sleep(max(0.0, begin + ticket / rate - time.monotonic()))
            sent = time.monotonic()
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                response.read()
                status = response.status
            except TimeoutError:
                connection.close()
                connection, status = None, 0
                if not silent.acquire(blocking=False):
                    enough.set()
            results.append((status, time.monotonic() - sent))

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work) for _ in range(THREADS)]:
            done.result()
    return results


REPORTS = ("least_load", "weighted_load")


def group(balancer, targets, algorithm, workers):
    """A balancer by this algorithm, which `balance` names, with reports of the servers' load if it uses them."""
    reports = "load_report header X-Load;" if algorithm.startswith(REPORTS) else ""
    return balancer(proxy(targets, head=f"balance {algorithm}; {reports}"), workers=workers)


# These two options together: the load that the answers tell of is in units of --concurrency.
PLACES = "--concurrency 1 --report-load"
EXPONENTIAL = f"--time {{}} --distribution exponential {PLACES}"

BY_TIME = ["prequal", "peak_ewma decay=200ms", "least_time", "combined", "two_choices by=header"]


# A fair share of the requests is a fifth, 120. `weighted_load` hears nothing of a server that does not answer, nor do gRPC
# and Envoy, and goes on with its weight: half of all is too many.
@pytest.mark.parametrize("algorithm, most", [
    *[(algorithm, 60) for algorithm in [*BY_TIME, "least_load"]],
    ("least_bandwidth", 120),
    ("weighted_load blackout=0s", 300),
])
def test_a_server_that_hangs_attracts_nothing(balancer, targets, algorithm, most):
    def silent():
        farm = targets([EXPONENTIAL.format("5ms")] * 5)
        one = group(balancer, farm, algorithm, workers=4)
        assert {status for status, _ in send(one.port, 200, 200)} == {200}
        farm[3].hang()
        # Each waits five seconds, so that the requests that hang add up.
        results = send(one.port, 600, 200, timeout=5, give_up=2 * most)
        return 600 - sum(status == 200 for status, _ in results)
    some_attempt(silent, lambda found: found <= most)


# A fair share is 160. That the server reports a load of 0 must not make it look idle.
@pytest.mark.parametrize("algorithm", [*BY_TIME, "least_bandwidth", "least_load", "weighted_load", "weighted_load blackout=0s"])
def test_a_server_that_fails_fast_attracts_nothing(balancer, targets, algorithm):
    def failed():
        farm = targets([*[EXPONENTIAL.format("5ms")] * 4, f"--status 500 {PLACES}"])
        one = group(balancer, farm, algorithm, workers=4)
        return sum(status == 500 for status, _ in send(one.port, 800, 200))
    some_attempt(failed, lambda found: found <= 100)


def some_attempt(measure, is_good):
    """Measures up to three times, until a result is good. Other programs on the machine may spoil one attempt."""
    results = []
    for _ in range(3):
        results.append(measure())
        if is_good(results[-1]):
            return
    pytest.fail(f"no result is good: {results}")


def mean(balancer, farm, algorithm):
    """Seconds that 1,200 requests take on average, at six tenths of what the servers can do."""
    one = group(balancer, farm, algorithm, workers=4)
    results = send(one.port, 1_200, 0.6 * len(farm) / 0.04)
    assert {status for status, _ in results} == {200}
    one.stop()
    return sum(seconds for _, seconds in results) / len(results)


@pytest.mark.parametrize("algorithm, most", [
    ("prequal", 1.2), ("join_idle_queue", 1.0), ("least_load", 1.0), ("weighted_load blackout=1s", 1.5),
])
def test_several_workers_are_no_herd(balancer, targets, algorithm, most):
    farm = targets([EXPONENTIAL.format("40ms")] * 10)
    # In seconds: the algorithm, and `random`.
    some_attempt(lambda: (mean(balancer, farm, algorithm), mean(balancer, farm, "random")),
                 lambda found: found[0] < most * found[1])
