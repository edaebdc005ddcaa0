"""Processes that die."""

import os
import signal

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.load import Load
from support.origin import proxy


def test_supervisor_killed(origin):
    one = Balancer(proxy([origin("ok")]), workers=2)
    with Client(one.port) as kept:
        assert kept.get().status == 200
        workers = one.workers_alive()
        one.process.kill()
        one.process.wait()
        with Load(one.port, keep_alive=False) as load:
            one.wait_error("the master process has died: this worker goes on")
            assert kept.get().status == 200
            wait_for(lambda: load.done > 50, what="requests without a supervisor")
            one.start()
            one.wait_error(f"using the sockets of worker process {workers[0]}, whose master process died")
            wait_for(lambda: not os.path.exists(f"/proc/{workers[0]}"), 60, "the end of the old worker")
            done = load.done
            wait_for(lambda: load.done > done + 50, what="requests of the new worker")
        assert load.failures == []
    assert one.workers_alive() != workers


def test_worker_killed(origin):
    one = Balancer(proxy([origin("ok")]))
    worker, = one.workers_alive()
    with Client(one.port) as kept:
        assert kept.get().status == 200
        os.kill(worker, signal.SIGKILL)
        # What it had accepted is lost; new connections wait for the next worker.
        assert kept.rest() == b""
    assert [get(one.port).status for _ in range(20)] == [200] * 20
    one.wait_error(rf"\[alert\] .*worker process {worker} exited on signal 9")


def test_frozen_server(origin):
    """A server whose process is stopped, but whose kernel still accepts."""
    frozen = origin(lambda request, connection: None)
    healthy = origin("ok")
    one = Balancer(proxy([frozen, healthy], location="proxy_read_timeout 4s;",
                         parameters=["max_fails=1 fail_timeout=60s", ""]))
    assert [get(one.port).status for _ in range(20)] == [200] * 20
    # One request has waited for it, and none after.
    assert frozen.count == 1
    one.wait_error(r"upstream timed out \(110: Connection timed out\) while reading response header")
