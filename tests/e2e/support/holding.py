"""Servers that keep requests until they are told to answer, so that a test knows what is in flight where."""

import concurrent.futures
import threading

from .balancer import wait_for
from .client import Client, get
from .origin import Origin, answer


def gated(count):
    """Servers that answer with their index once the event is set."""
    gate = threading.Event()

    def handler(name):
        return lambda request, connection: gate.wait(90) and answer(name)

    return [Origin(handler(str(index))) for index in range(count)], gate


def fill(one, servers, expected, requests, target="/?key=k{}", source=None):
    """Sends requests side by side to gated servers. Returns the statuses, sorted, once all but the expected ones were
    answered and those are at the servers (`expected`: requests in flight, by server)."""
    servers, gate = servers
    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        pending = [pool.submit(get, one.port, target.format(number), source=source and source(number), timeout=90)
                   for number in range(requests)]
        try:
            wait_for(lambda: sum(future.done() for future in pending) == requests - sum(expected), 40, "the refusals")
            wait_for(lambda: [server.in_flight for server in servers] == expected, 40, f"{expected} requests at the servers")
        finally:
            gate.set()
        statuses = sorted(future.result().status for future in pending)
    assert [server.most_in_flight for server in servers] == expected
    return statuses


class Holding:
    """`count` servers; each request waits until its turn to be released."""

    def __init__(self, count):
        self.lock = threading.Lock()
        self.held = [[] for _ in range(count)]
        self.clients = {}
        self.servers = [Origin(lambda request, connection, index=index: self._hold(index))
                        for index in range(count)]

    def _hold(self, index):
        event = threading.Event()
        with self.lock:
            self.held[index].append(event)
        event.wait(90)
        return answer(str(index))

    def in_flight(self):
        """Requests held, by server."""
        with self.lock:
            return [len(events) for events in self.held]

    def send(self, one, target="/", *, source=None, headers=()):
        """Sends a request and returns the index of the server that it came to; None when it was answered otherwise."""
        before = self.in_flight()
        client = Client(one.port, source=source)
        client.request(target=target, headers=headers)
        for _ in range(600):
            now = self.in_flight()
            if now != before:
                index = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
                self.clients.setdefault(index, []).append(client)
                return index
            if client.answered(0.05):
                client.close()
                return None
        raise AssertionError("a request came nowhere")

    def release(self, index, count=1):
        """Lets the oldest requests of a server be answered, and waits until they are."""
        for _ in range(count):
            with self.lock:
                event = self.held[index].pop(0)
            event.set()
            client = self.clients[index].pop(0)
            assert client.response().text == str(index)
            client.close()

    def release_all(self):
        for index, count in enumerate(self.in_flight()):
            self.release(index, count)

    def wait_released(self, one):
        """Waits until the balancer has seen the ends as well."""
        wait_for(lambda: not any(self.in_flight()), what="the requests to end")
