"""Random programs of the rewrite module against an interpreter of their definition."""

import random
import re

from support.client import get

VARIABLES = ("a", "b", "uri", "args")
PATTERNS = (r"^/(\w)(\w*)$", r"^/p(.*)$", r"x", r"^/(.)(.)", r"^(?<a>/\w+)y", r"$")
TARGETS = ("/p1$1", "/p2x$2", "/p3?k=$1", "/p0y?", "/q$a$1", "/p1?$b?", "/p2$1?u=$uri", "/p3xy")
VALUES = ("$uri", "$1", "x$b", "$a$2", "", "0", "$args", "/p1x")
PROGRAMS, LIMIT = 4, 10


def program(rng, depth=0):
    """Directives: tuples of their names and arguments."""
    ops = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choices(("set", "args", "rewrite", "break", "return", "if"), (5, 1, 6, 1, 1, 0 if depth else 5))[0]
        if kind == "set":
            ops.append(("set", rng.choice("ab"), rng.choice(VALUES)))
        elif kind == "args":
            ops.append(("set", "args", rng.choice(VALUES)))
        elif kind == "rewrite":
            ops.append(("rewrite", rng.choice(PATTERNS), rng.choice(TARGETS), rng.choice(("", "", "last", "break"))))
        elif kind == "if":
            test = rng.choice(("", "=", "!=", "~", "!~"))
            right = rng.choice(PATTERNS if "~" in test else VALUES)
            ops.append(("if", rng.choice(VARIABLES), test, right, program(rng, depth + 1)))
        else:
            ops.append((kind,))
    return ops


def text(ops):
    """The program as it stands in a configuration."""
    lines = []
    for op in ops:
        match op:
            case ("set", name, value):
                lines.append(f'set ${name} "{value}";')
            case ("rewrite", pattern, target, flag):
                lines.append(f'rewrite "{pattern}" {target} {flag};')
            case ("if", name, "", _, inner):
                lines.append(f"if (${name}) {{ {text(inner)} }}")
            case ("if", name, test, right, inner):
                lines.append(f'if (${name} {test} "{right}") {{ {text(inner)} }}')
            case ("return",):
                lines.append('return 200 "returned [$uri][$args][$a][$b]";')
            case ("break",):
                lines.append("break;")
    return " ".join(lines)


class Stop(Exception):
    """The rest of a program is not run."""


class Machine:
    """What a request is for the module."""

    def __init__(self, uri, args):
        self.values = {"a": "", "b": "", "uri": uri, "args": args}
        self.groups, self.changed, self.answer = [], False, None

    def fill(self, template):
        def one(found):
            name = found[1]
            if not name.isdigit():
                return self.values[name]
            return self.groups[int(name) - 1] if int(name) <= len(self.groups) else ""
        return re.sub(r"\$(\d|[a-z]+)", one, template)

    def match(self, pattern, subject):
        found = re.search(pattern.replace("(?<", "(?P<").replace("$", r"\Z"), subject)
        self.groups = [group or "" for group in found.groups()] if found else []
        for name, value in (found.groupdict() if found else {}).items():
            self.values[name] = value
        return bool(found)

    def holds(self, name, test, right):
        left = self.values[name]
        match test:
            case "":
                return left not in ("", "0")
            case "=" | "!=":
                return (left == self.fill(right)) == (test == "=")
            case "~" | "!~":
                return self.match(right, left) == (test == "~")

    def run(self, ops):
        for op in ops:
            match op:
                case ("set", name, value):
                    self.values[name] = self.fill(value)
                case ("if", name, test, right, inner):
                    if self.holds(name, test, right):
                        self.run(inner)
                case ("break",):
                    self.changed = False
                    raise Stop
                case ("return",):
                    self.answer = (200, self.fill("returned [$uri][$args][$a][$b]"))
                    raise Stop
                case ("rewrite", pattern, target, flag):
                    if self.match(pattern, self.values["uri"]):
                        self.rewrite(target, flag)

    def rewrite(self, target, flag):
        keeps = not target.endswith("?")
        target = target.removesuffix("?")
        path, mark, query = target.partition("?")
        path, query, before = self.fill(path), self.fill(query), self.values["args"]
        if mark:
            self.values["args"] = query + ("&" + before if keeps and before else "")
        elif not keeps:
            self.values["args"] = ""
        self.values["uri"] = path
        self.changed = flag != "break"
        if flag:
            raise Stop

    def phase(self, ops):
        """Runs a program; whether the location must be looked for."""
        self.changed = False
        try:
            self.run(ops)
        except Stop:
            pass
        return self.changed and self.answer is None


def reference(server, locations, uri, args):
    machine = Machine(uri, args)
    machine.phase(server)
    for _ in range(LIMIT + 1):
        if machine.answer:
            return machine.answer
        found = re.match(r"/p(\d)", machine.values["uri"])
        if not found or int(found[1]) >= PROGRAMS:
            return 200, machine.fill("end [$uri][$args][$a][$b]")
        again = machine.phase(locations[int(found[1])])
        if machine.answer:
            return machine.answer
        if not again:
            # The location has no such file.
            return 404, None
    return 500, None


def test_programs_mean_what_their_definition_says(balancer):
    rng = random.Random(20260101)
    sets, servers = [], []
    for number in range(150):
        server, locations = program(rng), [program(rng) for _ in range(PROGRAMS)]
        sets.append((server, locations))
        blocks = " ".join(f"location /p{i} {{ {text(ops)} }}" for i, ops in enumerate(locations))
        servers.append(f'server {{ listen 127.0.0.1:PORT; server_name s{number}; root none; set $a ""; set $b ""; '
                       f'{text(server)} {blocks} location / {{ return 200 "end [$uri][$args][$a][$b]"; }} }}')
    one = balancer("uninitialized_variable_warn off; " + "\n".join(servers))
    seen = {}
    for number, (server, locations) in enumerate(sets):
        for uri, args in (("/p0", ""), ("/p1x", "k=v"), ("/p2xy", ""), ("/p3", "x"), ("/other", ""), ("/ab", "0")):
            response = get(one.port, uri + ("?" + args if args else ""), host=f"s{number}")
            status, body = reference(server, locations, uri, args)
            case = (number, uri, args, text(server), [text(ops) for ops in locations])
            assert response.status == status, (case, response.body)
            assert body is None or response.body.decode() == body, case
            seen[status] = seen.get(status, 0) + 1
    # Every way to end is among them.
    assert min(seen.get(status, 0) for status in (200, 404, 500)) > 5, seen
