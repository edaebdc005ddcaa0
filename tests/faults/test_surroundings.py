"""Surroundings that change: the clock, the directory of temporary files."""

import os
import shutil
import time

import pytest

from support.balancer import Balancer, wait_for
from support.client import get
from support.faketime import LIBRARY, needs_faketime
from support.load import Load
from support.origin import proxy


@needs_faketime
@pytest.mark.parametrize("shift", ["-1d", "+1d", "-20y"])
def test_clock_is_set(origin, open_dir, monkeypatch, shift):
    """The wall clock as libfaketime shows it; the file says how far it is off."""
    clock = open_dir / "clock"
    clock.write_text("+0")
    monkeypatch.setenv("LD_PRELOAD", LIBRARY)
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    # As the kernel has it: the time since the start is not changed by setting the clock.
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    form = "log_format f '$msec $request_time $upstream_response_time'; access_log DIR/logs/times.log f;"
    one = Balancer(proxy([origin("ok"), origin("ok")], head="least_time header;", http=form), workers=2)
    monkeypatch.delenv("LD_PRELOAD")

    def times():
        return [[float(word) for word in line.split()] for line in one.wait_log(1, "times.log")]

    assert get(one.port).status == 200
    assert abs(times()[-1][0] - time.time()) < 3600
    with Load(one.port) as load:
        while load.done < 50 and not load.failures:
            time.sleep(0.01)
        # In one step: a newer libfaketime ends the process that reads an empty file.
        (open_dir / "next").write_text(shift)
        os.replace(open_dir / "next", clock)
        changed = load.done + 500
        while load.done < changed and not load.failures:
            time.sleep(0.01)
    assert load.failures == []
    one.wait_log(load.done + 1, "times.log")
    assert abs(times()[-1][0] - time.time()) > 3600, "the logs follow the clock"
    assert all(0 <= took < 60 and 0 <= waited < 60 for _, took, waited in times()), "durations do not"
    # Kept connections, timers and the passive checks go on.
    assert get(one.port).status == 200
    assert "[alert]" not in one.error_log() and "[error]" not in one.error_log()


def test_temporary_directory_is_gone(origin):
    one = Balancer(proxy([origin("ok")], server="client_body_temp_path DIR/bodies; client_body_buffer_size 16k;"))
    large, small = b"x" * 500_000, b"x" * 5_000
    assert get(one.port, "/", "POST", body=large).status == 200
    wait_for(lambda: not any(path.is_file() for path in (one.dir / "bodies").rglob("*")), what="the end of the body's file")
    shutil.rmtree(one.dir / "bodies")
    assert get(one.port, "/", "POST", body=large).status == 500
    assert get(one.port, "/", "POST", body=small).status == 200
    one.wait_error(r"\[crit\] .*/bodies.* failed \(2: No such file or directory\)")
    (one.dir / "bodies").mkdir(mode=0o777)
    (one.dir / "bodies").chmod(0o777)
    assert get(one.port, "/", "POST", body=large).status == 200
