"""The clients: wrk for requests, and idle connections held by the script itself."""

import os
import re
import select
import socket

from .machine import Failure

CONNECTIONS = 64

# Many different URIs in random order, for the algorithms that hash them: so many that all of 10,000 servers are asked, and
# none twice in a row. They are made before the load starts.
MANY_URIS = """
local requests, count = {}, 65536
function init()
  math.randomseed(count)
  for i = 1, count do requests[i] = wrk.format("GET", "/object/" .. math.random(1, 2147483647)) end
end
function request()
  return requests[math.random(count)]
end
"""

SECONDS_OF = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def command(port, path, seconds, close=False, script=None, scheme="http"):
    """wrk with one thread and 64 connections; with `close`, a new connection for each request."""
    line = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "--timeout", "20s"]
    if close:
        line += ["-H", "Connection: close"]
    if script:
        line += ["-s", script]
    return [*line, f"{scheme}://127.0.0.1:{port}{path}"]


def write_script(scratch):
    path = os.path.join(scratch, "many_uris.lua")
    with open(path, "w") as file:
        file.write(MANY_URIS)
    return path


def parse(output):
    """Requests, requests per second, and p50 and p99 in microseconds, from wrk's report."""
    requests = re.search(r"^\s*(\d+) requests in ", output, re.M)
    rate = re.search(r"^Requests/sec:\s*([\d.]+)", output, re.M)
    latencies = dict(re.findall(r"^\s*(50|99)%\s+(\S+)", output, re.M))
    if not requests or not rate or int(requests[1]) == 0:
        raise Failure(f"wrk reports no requests: {output.strip()[-300:]}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    failed = int(bad[1]) if bad else 0
    failed += sum(map(int, errors.groups())) if errors else 0
    return {
        "requests": int(requests[1]),
        "failed": failed,
        "per_second": float(rate[1]),
        "p50_us": microseconds(latencies["50"]),
        "p99_us": microseconds(latencies["99"]),
    }


def microseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", text).groups()
    return round(float(number) * SECONDS_OF[unit] * 1e6, 1)


class IdleClients:
    """Keep-alive connections that made one request each and then say nothing."""

    def __init__(self, port, count):
        self.sockets = []
        try:
            for _ in range(count):
                self.sockets.append(open_idle(port))
        except BaseException:
            self.close()
            raise

    def closed(self):
        """How many of them the proxy has closed, or written to, since."""
        poll = select.poll()
        for client in self.sockets:
            poll.register(client, select.POLLIN | select.POLLRDHUP)
        return len(poll.poll(0))

    def close(self):
        for client in self.sockets:
            client.close()
        self.sockets = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open_idle(port):
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answer = b""
    while True:
        head, end, body = answer.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if not head.startswith(b"HTTP/1.1 200 ") or not length:
                client.close()
                raise Failure(f"an idle client got {head[:100]!r}")
            if len(body) >= int(length[1]):
                return client
        part = client.recv(65536)
        if not part:
            client.close()
            raise Failure("the proxy closed an idle client's connection")
        answer += part
