"""A steady load of GET requests from threads, which records every failure."""

import threading

from .client import Client
from .messages import Ended


class Load:
    """`with Load(port) as load:` keeps asking until the block ends.

    A kept connection that the balancer ended between two requests is not a failure: HTTP lets a server do that, and a
    client repeats the request on a new connection, as every browser does. `connections` counts connections, `ends` says how those that the balancer ended came to their end.
    """

    def __init__(self, port, clients=4, keep_alive=True, target="/"):
        self.port, self.clients, self.keep_alive, self.target = port, clients, keep_alive, target
        self.failures, self.ends = [], []
        self.done = self.connections = 0
        self.lock = threading.Lock()
        self.ending = threading.Event()

    def __enter__(self):
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self.clients)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join(40)

    def _run(self):
        client, fresh = None, True
        headers = [] if self.keep_alive else [("Connection", "close")]
        while not self.ending.is_set():
            try:
                if client is None:
                    client, fresh = Client(self.port), True
                    with self.lock:
                        self.connections += 1
                response = client.get(self.target, headers=headers)
                if response is None and not fresh:
                    client = self._replace(client, "closed")
                    continue
                problem = None if response and response.status == 200 else f"answer {response and response.start}"
                ends = problem or response["Connection"] == "close"
            except (OSError, Ended) as error:
                if isinstance(error, (ConnectionResetError, BrokenPipeError)) and not fresh:
                    client = self._replace(client, type(error).__name__)
                    continue
                problem, ends = f"{type(error).__name__}: {error}", True
            fresh = False
            with self.lock:
                if problem:
                    self.failures.append(problem)
                else:
                    self.done += 1
            if ends:
                client = self._replace(client, "announced") if client else None
        if client:
            client.close()

    def _replace(self, client, how):
        client.close()
        with self.lock:
            self.ends.append(how)
