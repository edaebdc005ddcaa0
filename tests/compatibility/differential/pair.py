"""NGINX and Balanza side by side."""

import os

from support.balancer import Balancer, children, wait_for
from support.dns import NameServer
from support.origin import Origin

from . import compare, files
from .differences import ACCEPTED
from .generate import Generator
from .servers import named

REQUESTS = int(os.environ.get("COMPATIBILITY_REQUESTS", "300"))


def chosen():
    """The numbers of the cases to send: all, or those of COMPATIBILITY_CASES (`37` or `0-37`)."""
    first, _, last = os.environ.get("COMPATIBILITY_CASES", f"0-{REQUESTS - 1}").partition("-")
    return range(int(first), int(last or first) + 1)


class Pair:
    """Both with one configuration, the same files and the same servers."""

    def __init__(self, configuration, directory):
        self.configuration = configuration
        files.make(directory)
        self.servers = {address: Origin(named(address)) for address in configuration.servers}
        names = {address.partition(":")[0]: ["127.0.0.1"] for address in configuration.servers if "example" in address}
        self.resolver = NameServer(names, ttl=600) if names else None
        text = configuration.brought_to(directory, self.servers, self.resolver.address if names else "")
        self.both = [Balancer(text=text, kind=kind, start=False) for kind in ("nginx", "balanza")]
        self.seen = set()
        self.failures = []

    def start(self):
        for one in self.both:
            one.start()
        wait_for(lambda: all(children(one.pid) for one in self.both), what="workers")

    def stop(self):
        """Ends what the tests' fixtures do not end."""
        if self.resolver:
            self.resolver.stop()

    def ask(self, number):
        """Sends the requests of one case to both, until their answers differ or one ends its connection."""
        case = Generator(self.configuration, number).case()
        connections = [compare.Asker(one.port) for one in self.both]
        for request in case:
            answers = [connection.ask(request) for connection in connections]
            nginx, balanza = (compare.normal(answer, one) for answer, one in zip(answers, self.both))
            # NGINX ends the connection after a 412, and does not say so.
            if self.compare(number, request, nginx, balanza) or nginx.end or nginx.status == 412:
                break
            if nginx.fields.get("connection") == ["close"]:
                break
        for connection in connections:
            connection.client.close()

    def compare(self, number, request, nginx, balanza):
        """Keeps what differs without a name, and returns what differs."""
        # These are made equal before they are compared.
        if nginx.named and balanza.named:
            self.seen.add("server-field")
        if nginx.page and balanza.page:
            self.seen.add("error-page")
        found = compare.differences(nginx, balanza)
        unnamed = dict(found)
        for name, one in ACCEPTED.items():
            explained = set(one.explains(request, nginx, balanza, found)) if found else set()
            if explained:
                self.seen.add(name)
                unnamed = {key: value for key, value in unnamed.items() if key not in explained}
        if unnamed:
            self.failures.append((number, request, nginx, balanza, unnamed))
        return found

    def run(self):
        """Sends all cases; some servers are stopped after two thirds, all of them for the last ones."""
        cases = chosen()
        for number in cases:
            if number == REQUESTS * 2 // 3:
                for address in self.configuration.down:
                    self.servers[address].stop()
            if number == REQUESTS * 19 // 20:
                for server in self.servers.values():
                    server.stop()
            self.ask(number)


def from_difference(value, other):
    """A value for a report, a long one from where it differs."""
    at = len(os.path.commonprefix([value, other])) if isinstance(value, bytes) and isinstance(other, bytes) else 0
    return f"{'… ' if at > 40 else ''}{value[at - 40 if at > 40 else 0:][:90]!r}" if isinstance(value, bytes) else repr(value)


def report(name, failures):
    """The failed cases, one of each kind, with the command that repeats each."""
    from .generate import SEED

    shown, lines = set(), []
    for number, request, nginx, balanza, found in failures:
        kind = tuple(sorted(found)), str(found.get("start"))
        if kind in shown or len(shown) >= 12:
            continue
        shown.add(kind)
        lines.append(f"COMPATIBILITY_SEED={SEED} COMPATIBILITY_CASES={number} scripts/test.sh compatibility -k {name}")
        lines.append(f"    {request.data[:300]!r}")
        lines += [f"    {what}: NGINX {from_difference(first, second)}, Balanza {from_difference(second, first)}"
                  for what, (first, second) in found.items()]
    return f"{len(failures)} differences without a name, {len(shown)} kinds:\n" + "\n".join(lines)
