"""Logs that cannot be written."""

import os
import signal

import pytest

from support.balancer import Balancer, wait_for
from support.client import get
from support.origin import proxy

REQUESTS = 20


class WithoutOutput(Balancer):
    """A balancer whose standard output and standard error are a pipe that no process reads any more."""

    def start(self):
        reader, writer = os.pipe()
        os.close(reader)
        super().start(stdout=writer, stderr=writer)
        os.close(writer)
        return self


def fill(one, *names):
    """Puts these logs on a disk that is full."""
    for name in names:
        (one.dir / "logs" / name).symlink_to("/dev/full")


@pytest.mark.parametrize("kind", [Balancer, WithoutOutput])
def test_full_disk(origin, kind):
    server = origin("ok")
    one = kind(proxy([server]), workers=2, start=False)
    fill(one, "access.log", "error.log")
    one.start()
    assert [get(one.port, f"/{n}").status for n in range(REQUESTS)] == [200] * REQUESTS
    server.stop()
    # These write to the error log, too.
    assert [get(one.port, f"/{n}").status for n in range(REQUESTS)] == [502] * REQUESTS
    # Space again, and new log files.
    for name in ("access.log", "error.log"):
        (one.dir / "logs" / name).unlink()
    one.notify(signal.SIGUSR1)
    # Each file is replaced on its own.
    wait_for(lambda: get(one.port, "/again").status == 502
             and "/again" in one.error_log() and any("/again" in line for line in one.access_log()),
             what="the new logs")


def test_closed_standard_error(origin):
    one = WithoutOutput(proxy([origin("ok")]), start=False)
    fill(one, "access.log")
    one.start()
    before = one.workers_alive()
    assert [get(one.port).status for _ in range(REQUESTS)] == [200] * REQUESTS
    one.reload()
    one.wait_error("reconfiguring")
    assert [get(one.port).status for _ in range(REQUESTS)] == [200] * REQUESTS
    assert one.workers_alive() == before


def test_log_with_variables_that_cannot_be_opened(origin):
    one = Balancer(proxy([origin("ok")], location="access_log DIR/none/$uri.log;"))
    assert get(one.port, "/x").status == 200
    one.wait_error(r'\[crit\] .*open\(\) ".*/none//x.log" failed \(2: No such file or directory\)')
