#!/usr/bin/env python3
"""A day of operations in an hour: a steady load of all kinds of clients while the balancer is reloaded, upgraded, killed and
attacked, its servers come and go, its disk fills, and names and certificates change. Every request is counted by its id.

    tests/operations/day.py                        an hour; writes docs/results/day-2026
    tests/operations/day.py --minutes 2 --out DIR  a short one

Runs in a network and mount namespace of its own (root). The exit code is 1 if a request was lost that need not be.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import report  # noqa: E402
from clients import Load  # noqa: E402
from farm import PORTS, Farm  # noqa: E402
from ledger import Event, Ledger  # noqa: E402
from timetable import TIMETABLE, Day  # noqa: E402

HOURS = 24


def curve(hour):
    """The share of the peak at an hour of the day: little at night, most at two in the afternoon."""
    return 0.3 + 0.7 * math.exp(-(((hour - 14) / 5) ** 2))


class Sampler(threading.Thread):
    """What the balancer takes, every few seconds."""

    def __init__(self, farm, ledger, hour, pause):
        super().__init__(daemon=True)
        self.farm, self.ledger, self.hour, self.pause = farm, ledger, hour, pause
        self.rows, self.ending = [], threading.Event()

    def run(self):
        while not self.ending.wait(self.pause):
            seconds = time.monotonic() - self.ledger.start
            with self.ledger.lock:
                done, in_flight = sum(self.ledger.answered.values()), self.ledger.in_flight
            try:
                row = self.farm.sample()
            except (OSError, ValueError, AssertionError):
                # The pid file is being replaced.
                continue
            self.rows.append({"hour": round(seconds / self.hour, 3), "answered": done, "in_flight": in_flight, **row})


def perform(day, farm, ledger, hour):
    """The timetable. An event that takes longer than planned moves the next ones."""
    for planned, what in TIMETABLE:
        time.sleep(max(0.0, ledger.start + planned * hour - time.monotonic()))
        began = time.monotonic()
        event = Event(what.replace("_", " "), (began - ledger.start) / hour, began)
        event.ended = math.inf
        ledger.events.append(event)
        try:
            event.detail = getattr(day, what)(event)
        except (AssertionError, OSError) as error:
            event.failed = f"{type(error).__name__}: {error}"[:2000]
        event.ended = time.monotonic()
        print(f"{event.hour:5.2f} h  {event.name}: {event.failed or event.detail} "
              f"({len(ledger.failures)} not answered so far)", flush=True)
    time.sleep(max(0.0, ledger.start + HOURS * hour - time.monotonic()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="how long the day takes")
    parser.add_argument("--peak", type=float, default=200, help="requests a second at the busiest hour")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "docs/results/day-2026")
    given = parser.parse_args()
    if not os.environ.get("BALANZA_DAY"):
        os.environ["BALANZA_DAY"] = "inside"
        command = "ip link set lo up && mount --make-rprivate / && exec \"$@\""
        os.execvp("unshare", ["unshare", "-n", "-m", "sh", "-c", command, "sh", sys.executable, *sys.argv])

    # The end of this process ends the others, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    hour = given.minutes * 60 / HOURS
    farm = Farm()
    ledger = Ledger(farm.dir / "requests.tsv")
    load = Load(ledger, PORTS, lambda: given.peak * curve((time.monotonic() - ledger.start) / hour), farm.client_context)
    farm.certificates = load.certificates
    sampler = Sampler(farm, ledger, hour, min(10, hour / 5))
    try:
        load.start()
        sampler.start()
        perform(Day(farm, ledger, hour), farm, ledger, hour)
        load.end()
        result = report.judge(farm, ledger, load, sampler.rows, given)
        sampler.ending.set()
        result["ended"] = report.end(farm)
    finally:
        sampler.ending.set()
        farm.end()
    report.write(given.out, result)
    print(json.dumps(result["verdict"], indent=1))
    if result["verdict"]["passed"]:
        shutil.rmtree(farm.dir)
        return 0
    print(f"every request: {ledger.file.name}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
