"""Names that change, with the same configuration, name server and servers for NGINX and Balanza: hosts that a variable of
`proxy_pass` names, and servers with `resolve`, in `http` and `stream`. The same servers must answer, in the same shares, with the
same errors in the log."""

import collections
import itertools
import os
import re
import time

import pytest

from support.balancer import Balancer, binary, nginx_says, nginx_version, wait_for
from support.client import get
from support.dns import FORMERR, NOTAUTH, NOTIMP, NXDOMAIN, REFUSED, SERVFAIL, SILENCE, Scripted
from support.origin import Origin, answer
from support.ports import free_port

pytestmark = pytest.mark.skipif(not (os.access(binary("nginx"), os.X_OK) and "--with-stream" in nginx_says()),
                                reason="no NGINX with stream")

#: Where hosts of variables are looked up, and how.
PLACES = {
    "v4": "resolver DNS ipv6=off; resolver_timeout 20s;",
    "both": "resolver DNS; resolver_timeout 20s;",
    "hasty": "resolver DNS ipv6=off; resolver_timeout 100ms;",
    "held": "resolver DNS ipv6=off valid=1h; resolver_timeout 20s;",
    "second": "resolver FAILING DNS ipv6=off; resolver_timeout 20s;",
    "refusing": "resolver 127.0.0.1:NOTHING ipv6=off; resolver_timeout 100ms;",
    "none": "",
}

#: What the name server says of IPv4 and IPv6, where the name is looked up, and which servers answer (none: an error).
NAMES = {
    "one.example": (["127.0.0.1"], [], "v4 both held", "1"),
    "several.example": (["127.0.0.1", "127.0.0.2", "127.0.0.3"], [], "v4 both", "123"),
    "partly.dead.example": (["127.0.0.9", "127.0.0.2"], [], "v4", "2"),
    "dead.example": (["127.0.0.9"], [], "v4", ""),
    "mixed.example": (["127.0.0.1"], ["::1"], "both", "16"),
    "six.example": ([], ["::1"], "both", "6"),
    "only.six.example": ([], ["::1"], "v4", ""),
    "no.address.example": ([], [], "v4 both", ""),
    "unknown.example": (NXDOMAIN, NXDOMAIN, "v4 both", ""),
    "failing.example": (SERVFAIL, SERVFAIL, "v4 both", ""),
    "unimplemented.example": (NOTIMP, [], "v4", ""),
    "refused.example": (REFUSED, [], "v4", ""),
    "silent.example": (SILENCE, [], "hasty", ""),
    "nobody.example": (["127.0.0.1"], [], "refusing", ""),
    "nowhere.example": (["127.0.0.1"], [], "none", ""),
    "long.answer.example": (["127.0.0.1", "127.0.0.2"], [], "v4", "12"),
    "alias.example": (["CNAME inner.example", "CNAME last.example", "127.0.0.2"], [], "v4", "2"),
    "chain.example": (["CNAME link.example"], [], "v4", "3"),
    "link.example": (["CNAME under_score.example"], [], "v4", "3"),
    "under_score.example": (["127.0.0.3"], [], "v4", "3"),
    "leads.nowhere.example": (["CNAME unknown.example"], [], "v4", ""),
    "circle.example": (["CNAME circle.example"], [], "v4", ""),
    "single": (["127.0.0.1"], [], "v4", "1"),
    "UPPER.example": (["127.0.0.1"], [], "v4", "1"),
    "dot.example.": (["127.0.0.1"], [], "v4", "1"),
    "two..dots.example": ([], [], "v4", ""),
    "127.0.0.3": ([], [], "v4 none", "3"),
}

#: These change while they are known: the first after its time to live, the second no more in this test.
MOVES, STAYS = ("moves.example", "v4"), ("stays.example", "held")

#: Accepted differences (docs/nginx-differences.md): what the name server says, and of NGINX and Balanza where they look the name
#: up, which server answers and what the error log says. NGINX waits for another answer after those that it does not use.
OTHERWISE = {
    "second.example": ((["127.0.0.1"], []), ("second", "", "2: Server failure"), ("second", "1", None)),
    "malformed.example": ((FORMERR, []), ("hasty", "", "110: Operation timed out"), ("v4", "", "1: Format error")),
    "strange.example": ((NOTAUTH, []), ("hasty", "", "110: Operation timed out"), ("v4", "", "9: Unknown error")),
    "half.example": ((["127.0.0.1"], SERVFAIL), ("both", "", "2: Server failure"), ("both", "1", None)),
    "half.unknown.example": ((["127.0.0.1"], NXDOMAIN), ("both", "", "3: Host not found"), ("both", "1", None)),
}


class Servers:
    """Servers on one port, each of which responds with the last digit of its address (6: that of IPv6) and the Host that it was
    asked for; one on another port, which responds with "o"; and two name servers, of which one answers with an error."""

    def __init__(self, answers, **options):
        self.port, self.other = free_port(), free_port()
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"):
            self.serve(address[-1] if "." in address else "6", address, self.port)
        self.serve("o", "127.0.0.1", self.other)
        self.dns = Scripted(answers, **options)
        self.failing = Scripted(dict.fromkeys(answers, SERVFAIL))
        self.nothing = free_port()

    def serve(self, name, address, port):
        Origin(lambda request, _: answer(f"{name} {request['Host']}"), address=address, port=port)

    @property
    def ports(self):
        return {"DNS": self.dns.address, "FAILING": self.failing.address, "NOTHING": self.nothing, "WEB": self.port,
                "OTHER": self.other}


class Program:
    """NGINX or Balanza. Clients of `stream` say by their address what they want: `wanted` are all the texts that are
    possible."""

    def __init__(self, kind, text, servers, wanted, sessions):
        self.kind = kind
        self.sources = {one: f"127.0.1.{number}" for number, one in enumerate(wanted, 1)}
        self.sessions = {name: free_port() for name in sessions}
        ports = {**{f"SESSION_{name}": port for name, port in self.sessions.items()}, **servers.ports}
        wanted = "".join(f"{source} {one};" for one, source in self.sources.items())
        text = re.sub(r"\b(?:SESSION_\w+|DNS|FAILING|WEB|OTHER|NOTHING)\b", lambda found: str(ports[found[0]]), text)
        self.one = Balancer(text=text.replace("WANTED", wanted), kind=kind)
        self.logged = {"http.log": 0, "stream.log": 0}

    def ask(self, protocol, place, wanted):
        """The response to a request or, in a session, what its server says; "" for an error."""
        if protocol == "http":
            response = get(self.one.port, f"/{place}?to={wanted}", timeout=60)
            return response.text if response.status == 200 else ""
        try:
            response = get(self.sessions[place], source=self.sources[wanted], timeout=60)
        except ConnectionResetError:
            return ""
        return response.text if response else ""

    def lines(self, protocol, count):
        """The end of each new line of the access log, which tells of the server that was asked last."""
        name = f"{protocol}.log"
        self.logged[name] += count
        return {tuple(part.split(", ")[-1] for part in line.split("|"))
                for line in self.one.wait_log(self.logged[name], name)[-count:]}

    def problems(self, name):
        """What the error log says of looking up this name."""
        name = re.escape(name.rstrip("."))
        found = re.findall(rf"(?i)(no resolver defined) to resolve {name}\b|(?<![\w.]){name}\.? could not be resolved \(([^)]*)\)",
                           self.one.error_log())
        return {"".join(one) for one in found}


def asked(program, protocol, place, name, count):
    """Which servers answer: so many different ones are expected, so there are as many requests as that takes."""
    seen, asked = set(), 0
    while len(seen) < count and asked < 500:
        seen.add(program.ask(protocol, place, name))
        asked += 1
    return {"servers": seen, "lines": program.lines(protocol, asked), "problems": program.problems(name)}


BY_VARIABLE = r"""
worker_processes 1;
events { worker_connections 512; }
http {
    log_format names '$arg_to|$status|$upstream_addr|$upstream_status'; access_log logs/http.log names;
    server {
        listen 127.0.0.1:PORT;
        %s
    }
}
stream {
    log_format names '$to|$status|$upstream_addr'; access_log logs/stream.log names;
    map $remote_addr $to { WANTED }
    %s
}
""" % ("\n".join(f"location /{place} {{ {inside} proxy_pass http://$arg_to:WEB; }}" for place, inside in PLACES.items()),
       "\n".join(f"server {{ listen 127.0.0.1:SESSION_{place}; {inside} proxy_pass $to:WEB; }}"
                 for place, inside in PLACES.items()))


def both(text, servers, wanted, sessions):
    return [Program(kind, text, servers, wanted, sessions) for kind in ("nginx", "balanza")]


def compared(programs):
    """The differences between both programs, and between NGINX and what is expected of it."""
    for name, (_, _, places, expected) in NAMES.items():
        for place, protocol in itertools.product(places.split(), ("http", "stream")):
            nginx, balanza = (asked(program, protocol, place, name, max(1, len(expected))) for program in programs)
            if {server[:1] for server in nginx["servers"]} != set(expected or [""]):
                yield f"{protocol}, {place}, {name}: not expected of NGINX: {nginx}"
            for what in nginx:
                if nginx[what] != balanza[what]:
                    yield f"{protocol}, {place}, {name}, {what}:\n    NGINX   {nginx[what]}\n    Balanza {balanza[what]}"


def compared_otherwise(programs):
    """Accepted differences that are no more, or others."""
    for name, (_, *expected) in OTHERWISE.items():
        for protocol, (program, (place, server, problem)) in itertools.product(("http", "stream"), zip(programs, expected)):
            got = asked(program, protocol, place, name, 1)
            if {one[:1] for one in got["servers"]} != {server} or got["problems"] != {problem} - {None}:
                yield f"{protocol}, {place}, {name}: not expected of {program.kind}: {got}"


def questions(program, dns, name, count):
    """How often the name server is asked for a name that does not exist by so many requests."""
    before = dns.asked[name, "A"]
    assert {program.ask("http", "v4", name) for _ in range(count)} == {""}
    return dns.asked[name, "A"] - before


def test_hosts_in_variables():
    known = {name: (v4, v6) for name, (v4, v6, *_) in NAMES.items()} | {name: it for name, (it, *_) in OTHERWISE.items()}
    answers = {(name.rstrip(".").lower(), kind): records
               for name, said in known.items() for kind, records in zip(("A", "AAAA"), said)}
    moving = [(name, "A") for name, _ in (MOVES, STAYS)]
    servers = Servers(answers | dict.fromkeys(moving, ["127.0.0.1"]), truncated=["long.answer.example"])
    with servers.dns as dns, servers.failing:
        programs = both(BY_VARIABLE, servers, [*known, MOVES[0], STAYS[0]], PLACES)

        def servers_of(name, place):
            return [program.ask(protocol, place, name)[:1] for program in programs for protocol in ("http", "stream")]

        assert servers_of(*MOVES) == servers_of(*STAYS) == ["1"] * 4
        dns.answers |= dict.fromkeys(moving, ["127.0.0.2"])
        for program, protocol in itertools.product(programs, ("http", "stream")):
            program.lines(protocol, 2)
        found = [*compared(programs), *compared_otherwise(programs)]
        wait_for(lambda: servers_of(*MOVES) == ["2"] * 4, what="the new address", step=0.1)
        assert servers_of(*STAYS) == ["1"] * 4
        # An accepted difference: what does not exist is remembered.
        nginx, balanza = (questions(program, dns, "unknown.example", 5) for program in programs)
        assert nginx == 5 > balanza
    assert not found, "\n".join(found)


#: Upstreams whose servers have names; those of `stream` are the same.
UPSTREAMS = {
    "pair": "server pair.example:WEB resolve;",
    "families": "server families.example:WEB resolve;",
    "weights": "server pair.example:WEB weight=2 resolve; server 127.0.0.3:WEB;",
    "twice": "server pair.example:WEB resolve; server one.example:WEB resolve;",
    "backups": "server 127.0.0.9:WEB max_fails=0; server pair.example:WEB backup resolve;",
    "down": "server pair.example:WEB down resolve; server 127.0.0.3:WEB;",
    "empty": "server empty.example:WEB resolve;",
    "partly": "server empty.example:WEB resolve; server 127.0.0.3:WEB;",
    "late": "resolver DNS valid=1s ipv6=off; resolver_timeout 1s; server late.example:WEB resolve;",
    "service": "server svc.example service=http resolve;",
    "override": "server svc.example service=http weight=2 resolve; server 127.0.0.3:WEB;",
    "reserve": "server svc.example service=http backup resolve; server 127.0.0.9:WEB max_fails=0;",
    "absent": "server svc.example service=absent resolve; server 127.0.0.3:WEB;",
    "next": "server svc.example service=_next._tcp resolve; server 127.0.0.3:WEB;",
    "hashed": "hash key consistent; server pair.example:WEB resolve;",
}

BY_UPSTREAM = r"""
worker_processes 1;
events { worker_connections 512; }
http {
    access_log off;
    resolver DNS; resolver_timeout 1s;
    %s
    server { listen 127.0.0.1:PORT; location / { proxy_pass http://$arg_to; } }
}
stream {
    resolver DNS; resolver_timeout 1s;
    map $remote_addr $to { WANTED }
    %s
    server { listen 127.0.0.1:SESSION_any; proxy_pass $to; }
}
""" % tuple("\n".join(f"upstream {name} {{ zone {protocol}_{name} 128k; {inside} }}" for name, inside in UPSTREAMS.items())
            for protocol in ("http", "stream"))

#: What the name server says at first, later, and when it fails; and then the shares of the servers in as many requests as they
#: have together.
HTTP = "_http._tcp.svc.example"
AT_FIRST = {
    ("pair.example", "A"): ["127.0.0.1", "127.0.0.2"],
    ("families.example", "A"): ["127.0.0.1"], ("families.example", "AAAA"): ["::1"],
    ("one.example", "A"): ["127.0.0.1"],
    ("empty.example", "A"): NXDOMAIN, ("late.example", "A"): NXDOMAIN, ("gone.example", "A"): NXDOMAIN,
    ("s1.example", "A"): ["127.0.0.1"], ("s2.example", "A"): ["127.0.0.2"], ("s3.example", "A"): ["127.0.0.3"],
    (HTTP, "SRV"): ["SRV 10 3 WEB s2.example", "SRV 10 0 OTHER s1.example", "SRV 20 1 WEB s3.example"],
    ("_absent._tcp.svc.example", "SRV"): NXDOMAIN,
    ("_next._tcp.svc.example", "SRV"): ["SRV 1 1 WEB gone.example", "SRV 2 1 WEB s2.example"],
}
SHARES_AT_FIRST = {
    "pair": {"1": 1, "2": 1}, "families": {"1": 1, "6": 1}, "weights": {"1": 2, "2": 2, "3": 1}, "twice": {"1": 2, "2": 1},
    "backups": {"1": 1, "2": 1}, "down": {"3": 1}, "empty": {"": 1}, "partly": {"3": 1}, "late": {"": 1},
    "service": {"2": 3, "o": 1}, "override": {"2": 2, "o": 2, "3": 1}, "reserve": {"2": 3, "o": 1}, "absent": {"3": 1},
    "next": {"2": 1, "3": 1},
}
NOT_FOUND = "could not be resolved (3: Host not found)"
PROBLEMS_AT_FIRST = {
    f"empty.example {NOT_FOUND}", f"late.example {NOT_FOUND}", f"service absent of svc.example {NOT_FOUND}",
    f"gone.example {NOT_FOUND} while resolving service _next._tcp of svc.example",
}
LATER = {
    ("pair.example", "A"): ["127.0.0.2", "127.0.0.3"], ("families.example", "A"): [],
    ("one.example", "A"): NXDOMAIN, ("late.example", "A"): ["127.0.0.2"],
    (HTTP, "SRV"): ["SRV 10 1 WEB s1.example", "SRV 10 2 WEB s2.example", "SRV 20 1 WEB s3.example"],
}
SHARES_LATER = SHARES_AT_FIRST | {
    "pair": {"2": 1, "3": 1}, "families": {"6": 1}, "weights": {"2": 2, "3": 3}, "twice": {"2": 1, "3": 1},
    "backups": {"2": 1, "3": 1}, "late": {"2": 1}, "service": {"1": 1, "2": 2}, "override": {"1": 2, "2": 2, "3": 1},
    "reserve": {"1": 1, "2": 2},
}
AT_LAST = {("pair.example", "A"): SILENCE, (HTTP, "SRV"): SERVFAIL}
PROBLEMS_AT_LAST = {"pair.example could not be resolved (110: Operation timed out)",
                    "service http of svc.example could not be resolved (2: Server failure)"}


def unlike(programs, shares, seconds=40):
    """The upstreams whose servers do not come to these shares in time, and the shares that they have."""
    wrong = {(program.kind, protocol, name): (program, None)
             for program in programs for protocol in ("http", "stream") for name in shares}
    end = time.monotonic() + seconds
    while True:
        for (kind, protocol, name), (program, _) in list(wrong.items()):
            count = sum(shares[name].values())
            seen = collections.Counter(program.ask(protocol, "any", name)[:1] for _ in range(count))
            wrong[kind, protocol, name] = program, dict(seen)
            if seen == shares[name]:
                del wrong[kind, protocol, name]
        if not wrong or time.monotonic() > end:
            return "\n".join(f"{' '.join(key)}: {seen} instead of {shares[key[2]]}" for key, (_, seen) in wrong.items())
        time.sleep(0.05)


def problems(program):
    """All that the error log says of names that could not be looked up."""
    return set(re.findall(r"\[error\] \S+ (.*could not be resolved.*)", program.one.error_log()))


@pytest.mark.skipif(nginx_version() < (1, 27, 3), reason="an NGINX without `resolve`; with the newest one: "
                    "NGINX=$(scripts/build-newest-nginx.sh) scripts/test.sh compatibility")
def test_servers_with_names():
    servers = Servers({})
    with servers.dns as dns, servers.failing:
        def say(answers):
            dns.answers |= {key: [re.sub("WEB|OTHER", lambda found: str(servers.ports[found[0]]), record) for record in records]
                            if isinstance(records, list) else records for key, records in answers.items()}

        say(AT_FIRST)
        programs = both(BY_UPSTREAM, servers, UPSTREAMS, ["any"])
        assert unlike(programs, SHARES_AT_FIRST) == ""
        for program in programs:
            wait_for(lambda: problems(program) >= PROBLEMS_AT_FIRST, what=f"the errors of {program.kind}")
            # An answer may be late where the machine is busy.
            others = {problem for problem in problems(program) - PROBLEMS_AT_FIRST if "(110: " not in problem}
            assert not others, program.kind
        # An accepted difference: NGINX places both addresses at the same points.
        for program, count in zip(programs, (2, 1)):
            for protocol in ("http", "stream"):
                wait_for(lambda: program.ask(protocol, "any", "hashed"), what="its servers")
                assert len({program.ask(protocol, "any", "hashed")[:1] for _ in range(4)}) == count, (program.kind, protocol)
        say(LATER)
        assert unlike(programs, SHARES_LATER) == ""
        # The last answers hold when there are no more.
        say(AT_LAST)
        for program in programs:
            wait_for(lambda: problems(program) >= PROBLEMS_AT_LAST, what=f"the errors of {program.kind}")
        assert unlike(programs, SHARES_LATER) == ""
