"""What was sent and what came of it: every request by its id, and the events in whose windows some were lost."""

import dataclasses
import itertools
import threading
import time

# Seconds of a bucket of counts.
BUCKET = 10


@dataclasses.dataclass
class Sent:
    """A request, a message of a session or a datagram. Times are those of `time.monotonic`."""

    id: str
    kind: str
    began: float
    ended: float = 0.0
    # When its client began to open its connection.
    opened: float = 0.0
    # The server that answered, or that the balancer named.
    server: str = ""
    # Nothing if it was answered as it must be.
    problem: str = ""


@dataclasses.dataclass
class Event:
    """Something that happened to the balancer or its servers."""

    name: str
    hour: float
    began: float
    ended: float = 0.0
    detail: str = ""
    # Classes of losses that no balancer can prevent here: name and `rule(sent, event)`.
    classes: dict = dataclasses.field(default_factory=dict)
    # When the blow fell, and when its victim was surely gone, for rules.
    moment: float = 0.0
    gone: float = 0.0
    # The server that it is about: its address and its name.
    server: str = ""
    name_of_server: str = ""
    # Why the event itself did not go as it must.
    failed: str = ""
    # How many requests of each class were lost, and how many were under way in the window.
    lost: dict = dataclasses.field(default_factory=dict)
    requests: int = 0


class Ledger:
    """Safe for several threads. `path` gets a line for each id: kind, begin, duration, server, problem."""

    # A loss may be noticed by a client's timeout long after the event; this many seconds belong to it still.
    GRACE = 2.0

    def __init__(self, path):
        self.file, self.lock, self.start = open(path, "w"), threading.Lock(), time.monotonic()
        self.numbers, self.events = itertools.count(1), []
        self.sent, self.answered, self.failures = {}, {}, []
        self.buckets, self.in_flight, self.posts = {}, 0, set()

    def begin(self, kind, opened=0.0):
        sent = Sent(f"{kind}-{next(self.numbers)}", kind, time.monotonic(), opened=opened)
        with self.lock:
            self.sent[kind] = self.sent.get(kind, 0) + 1
            self.in_flight += 1
        return sent

    def end(self, sent, server="", problem=""):
        sent.ended, sent.server, sent.problem = time.monotonic(), server, problem
        with self.lock:
            self.in_flight -= 1
            if problem:
                self.failures.append(sent)
            else:
                self.answered[sent.kind] = self.answered.get(sent.kind, 0) + 1
                if sent.kind in ("post", "upload"):
                    self.posts.add(sent.id)
            bucket = self.buckets.setdefault(int((sent.ended - self.start) / BUCKET), {})
            bucket[sent.kind] = bucket.get(sent.kind, 0) + 1
            self.file.write(f"{sent.id}\t{sent.began - self.start:.3f}\t{sent.ended - sent.began:.4f}\t{server}\t{problem}\n")

    def count(self, begin, end):
        """Answers and failures between two times, to the bucket."""
        first, last = (int((moment - self.start) / BUCKET) for moment in (begin, end))
        return sum(sum(kinds.values()) for number, kinds in self.buckets.items() if first <= number <= last)

    def judge(self):
        """Gives each loss to an event that explains it; returns those that none explains."""
        unexplained = []
        for event in self.events:
            event.lost, event.requests = {}, self.count(event.began, event.ended)
        for sent in self.failures:
            for event, name in self._explanations(sent):
                event.lost[name] = event.lost.get(name, 0) + 1
                break
            else:
                unexplained.append(sent)
        return unexplained

    def _explanations(self, sent):
        for event in self.events:
            if event.began <= sent.ended and sent.began <= event.ended + self.GRACE:
                for name, rule in event.classes.items():
                    if rule(sent, event):
                        yield event, name
