"""The load of `balanza lab` as a locustfile.

BALANZA_LOAD has the settings as JSON; what every request did is written to "out" when the test ends, finer than Locust's
own statistics: those mix failed requests into the times and round these to two digits.
"""

import errno
import http.client
import json
import math
import os
import random
import time

import gevent
import requests
import urllib3
from locust import HttpUser, constant, events, task

LOAD = json.loads(os.environ["BALANZA_LOAD"])


class Times:
    """A distribution in microseconds with three significant digits; sum, squares and extremes are exact."""

    def __init__(self):
        self.count, self.sum, self.squares, self.min, self.max = 0, 0.0, 0.0, math.inf, 0.0
        self.buckets = {}

    def add(self, seconds):
        self.count += 1
        self.sum += seconds
        self.squares += seconds * seconds
        self.min = min(self.min, seconds)
        self.max = max(self.max, seconds)
        microseconds = max(1, round(seconds * 1e6))
        digits = 10 ** max(0, len(str(microseconds)) - 3)
        bucket = -(-microseconds // digits) * digits
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def data(self):
        return {
            "count": self.count,
            "sum": self.sum,
            "squares": self.squares,
            "min": self.min if self.count else 0.0,
            "max": self.max,
            "buckets": sorted(self.buckets.items()),
        }


class Seen:
    """What has happened since the test began."""

    def __init__(self):
        self.begin = time.perf_counter()
        self.begin_cpu = time.process_time()
        self.seconds = None
        self.cpu = None
        self.bytes = 0
        self.times = Times()
        self.errors = {}
        self.statuses = {}
        self.timeline = []

    def end(self):
        if self.seconds is None:
            self.seconds = time.perf_counter() - self.begin
            self.cpu = time.process_time() - self.begin_cpu

    def request(self, seconds, response, exception):
        if self.seconds is not None:
            return
        at = int(time.perf_counter() - self.begin)
        while len(self.timeline) <= at:
            self.timeline.append([[], 0])
        status = getattr(response, "status_code", 0) or 0
        if status:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            # requests has read the head away; this is its length but for the status line.
            head = sum(len(name) + len(value) + 4 for name, value in response.headers.items())
            self.bytes += head + len(response.content or b"")
        kind = failure(status, exception)
        if kind:
            self.errors[kind] = self.errors.get(kind, 0) + 1
            self.timeline[at][1] += 1
        else:
            self.times.add(seconds)
            self.timeline[at][0].append(seconds)

    def data(self, environment):
        total = environment.stats.total
        return {
            "seconds": self.seconds,
            "cpu": self.cpu,
            "bytes": self.bytes,
            "times": self.times.data(),
            "errors": self.errors,
            "statuses": self.statuses,
            "timeline": [second(answered, failed) for answered, failed in self.timeline],
            "locust": {
                "requests": total.num_requests,
                "failures": total.num_failures,
                "median": total.median_response_time / 1e3,
                "mean": total.avg_response_time / 1e3,
                "min": (total.min_response_time or 0) / 1e3,
                "max": total.max_response_time / 1e3,
                "cpu_warning": int(bool(environment.runner and environment.runner.cpu_warning_emitted)),
            },
        }


def second(answered, failed):
    answered.sort()
    return {
        "answered": len(answered),
        "failed": failed,
        "median": answered[(len(answered) - 1) // 2] if answered else None,
        "max": answered[-1] if answered else None,
    }


def chain(exception):
    """The exception and everything that it was made of."""
    todo, seen = [exception], []
    while todo:
        one = todo.pop(0)
        if isinstance(one, BaseException) and all(one is not other for other in seen):
            seen.append(one)
            todo += [*one.args, one.__cause__, one.__context__, getattr(one, "reason", None)]
    return seen


NUMBERS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.EADDRNOTAVAIL: "ports",
    errno.EADDRINUSE: "ports",
    errno.ETIMEDOUT: "connect_timeout",
}

# In the order in which they are asked: the more exact come first.
KINDS = [
    ((http.client.RemoteDisconnected, http.client.IncompleteRead), "closed"),
    ((http.client.BadStatusLine, http.client.LineTooLong, http.client.UnknownProtocol), "malformed"),
    ((requests.exceptions.ConnectTimeout, urllib3.exceptions.ConnectTimeoutError), "connect_timeout"),
    ((requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError), "timeout"),
    ((requests.exceptions.ChunkedEncodingError, urllib3.exceptions.IncompleteRead), "closed"),
    ((requests.exceptions.InvalidHeader, requests.exceptions.ContentDecodingError), "malformed"),
    ((http.client.HTTPException,), "malformed"),
    ((requests.exceptions.ConnectionError,), "other"),
]


def failure(status, exception):
    """The kind of failure as the lab names it; none if the request was answered."""
    if status >= 400:
        return "server_error" if status >= 500 else "client_error"
    if exception is None:
        return None
    causes = chain(exception)
    for cause in causes:
        kind = NUMBERS.get(getattr(cause, "errno", None))
        if kind:
            return kind
    for classes, kind in KINDS:
        if any(isinstance(cause, classes) for cause in causes):
            return kind
    return "client"


class Adapter(requests.adapters.HTTPAdapter):
    """Connections from one address, and half of the delay of a network before and after each request."""

    def __init__(self, source):
        self.source = source
        super().__init__()

    def init_poolmanager(self, *arguments, **settings):
        if self.source:
            settings["source_address"] = (self.source, 0)
        super().init_poolmanager(*arguments, **settings)

    def send(self, *arguments, **settings):
        half = LOAD["rtt"] / 2
        if half:
            gevent.sleep(half)
        try:
            return super().send(*arguments, **settings)
        finally:
            if half:
                gevent.sleep(half)


SEEN = None
USERS = 0
RANDOM = random.Random(LOAD["seed"])


class User(HttpUser):
    wait_time = constant(LOAD["think"])

    def on_start(self):
        global USERS
        sources = LOAD["sources"]
        self.client.mount("http://", Adapter(sources[USERS % len(sources)] if sources else None))
        USERS += 1
        # Proxies of the environment would be asked otherwise.
        self.client.trust_env = False
        self.client.headers["Host"] = LOAD["host"]
        if not LOAD["keep_alive"]:
            self.client.headers["Connection"] = "close"

    @task
    def page(self):
        path = LOAD["path"].replace("{}", str(RANDOM.randrange(LOAD["pages"])))
        self.client.get(path, name=LOAD["path"], timeout=LOAD["timeout"], allow_redirects=False)


@events.test_start.add_listener
def begin(environment, **_):
    global SEEN
    SEEN = Seen()
    # Locust's own --run-time begins before there are users, and has whole seconds.
    gevent.spawn_later(LOAD["duration"], environment.runner.quit)


@events.request.add_listener
def request(response_time, response=None, exception=None, **_):
    if SEEN:
        SEEN.request(response_time / 1e3, response, exception)


@events.test_stopping.add_listener
def end(environment, **_):
    SEEN.end()


@events.quitting.add_listener
def write(environment, **_):
    if SEEN:
        SEEN.end()
        with open(LOAD["out"], "w") as out:
            json.dump(SEEN.data(environment), out)
