"""Many requests with exact counts at the client, in the log and at the servers, and memory that does not grow."""

import os
import re
import subprocess
import threading

import pytest

from support.fast import FastServer
from support.origin import proxy

# A million takes minutes; SOAK_REQUESTS=1000000 runs it.
REQUESTS = int(os.environ.get("SOAK_REQUESTS", "40000"))


class Sampler(threading.Thread):
    """Takes the balancer's resident memory while the load runs."""

    def __init__(self, balancer):
        super().__init__(daemon=True)
        self.balancer, self.values, self.ending = balancer, [], threading.Event()

    def run(self):
        # One at least, also when the load is over before this thread runs.
        ended = False
        while not ended:
            self.values.append(self.balancer.rss())
            ended = self.ending.wait(0.05)

    def growth(self):
        """Bytes that the largest sample of the last quarter exceeds that of the first quarter by, after a start."""
        quarter = max(len(self.values) // 4, 1)
        return max(self.values[-quarter:]) - max(self.values[:quarter])


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("way", ["h2load", "ab", "ab without keep-alive"])
def test_soak(balancer, way):
    requests = REQUESTS if way == "h2load" else REQUESTS // 5
    warm_up = min(requests // 5, 20_000)
    servers = [FastServer("x" * 200) for _ in range(3)]
    try:
        one = balancer(proxy(servers), workers=2)
        command = {
            "h2load": ["h2load", "--h1", "-c", "64"],
            "ab": ["ab", "-q", "-k", "-c", "64"],
            "ab without keep-alive": ["ab", "-q", "-c", "64"],
        }[way]

        def load(count):
            return subprocess.run([*command, "-n", str(count), f"http://127.0.0.1:{one.port}/soak"],
                                  capture_output=True, text=True, timeout=1200)

        # The allocator takes what the load needs in its first seconds.
        load(warm_up)
        one.wait_log(warm_up)
        before = [server.requests() for server in servers]
        sampler = Sampler(one)
        sampler.start()
        result = load(requests)
        sampler.ending.set()
        sampler.join()
        if way == "h2load":
            assert re.search(rf"{requests} done, {requests} succeeded, 0 failed, 0 errored", result.stdout), result
        else:
            assert re.search(rf"Complete requests:\s+{requests}\n", result.stdout), result
            assert re.search(r"Failed requests:\s+0\n", result.stdout) and "Non-2xx" not in result.stdout
        # Each question for the counter is itself counted: one before the load's first request, in the difference.
        served = [server.requests() - first - 1 for server, first in zip(servers, before, strict=True)]
        assert sum(served) == requests, served
        # Round robin in each of two workers: at most one request apart for each of them.
        assert max(served) - min(served) <= 2, served
        lines = one.wait_log(warm_up + requests)[warm_up:]
        assert len(lines) == requests
        assert sum('"GET /soak HTTP/1.' in line and '" 200 201 ' in line for line in lines) == requests
        assert "[error]" not in one.error_log() and "[alert]" not in one.error_log()
        # A hundred bytes of each request would be ten million; the allocator's own ups and downs are some millions.
        assert sampler.growth() < 8 << 20, f"resident memory grew by {sampler.growth()} bytes"
    finally:
        for server in servers:
            server.stop()
