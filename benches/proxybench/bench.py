"""Runs the scenarios and collects samples."""

import contextlib
import os
import subprocess
import sys
import time

from . import load, machine, plan, report, systems

# A cache line's round trip between two cores that share a cache takes less than this, and any other more.
NEAR_NS = 150
# Rounds are added, up to this many times those asked for, while the machine moves the cores about.
PATIENCE = 3


class Bench:
    """The running origin, the meter, the systems by name, and the samples so far."""

    def __init__(self, scratch, meter, available, tools, options):
        self.scratch = scratch
        self.meter = meter
        self.available = available
        self.tools = tools
        self.options = options
        self.client_core, self.proxy_core = machine.cores()
        self.samples = []
        self.failures = []
        self.script = load.write_script(scratch)
        self.kept_port = machine.free_port()
        self.closed_port = machine.free_port()
        addresses = [f"0.0.0.0:{port}" for port in (self.kept_port, self.closed_port)]
        log = os.path.join(scratch, "origin.log")
        self.helpers = [machine.Process([tools["bench-origin"], *addresses], self.client_core, log)]
        self.ports = {}

    def end(self):
        for helper in self.helpers:
            helper.end()

    def helper(self, name, command):
        """The port of a server that only some scenarios need; it is started the first time."""
        if name not in self.ports:
            self.ports[name] = machine.free_port()
            log = os.path.join(self.scratch, f"{name}.log")
            self.helpers.append(machine.Process(command(self.ports[name]), self.client_core, log))
        return self.ports[name]

    def origin_port(self, scenario, subject):
        """The port of the servers that a scenario needs."""
        if scenario.udp:
            return self.helper("echo", lambda port: [self.tools["bench-datagrams"], "echo", f"0.0.0.0:{port}"])
        if scenario.servers_tls:
            return self.helper("tls", lambda port: tls_servers(self.scratch, port, self.kept_port, self.pair("ecdsa")))
        # The relay's server connection lives as long as the client's, so that with new client connections both are new.
        closes = scenario.origin_closes or (scenario.close and subject.system == "relay")
        return self.closed_port if closes else self.kept_port

    def distance(self):
        """Nanoseconds of a cache line's round trip between the two cores."""
        cores = map(str, (self.client_core, self.proxy_core))
        return float(subprocess.check_output([self.tools["bench-distance"], *cores], timeout=60))

    def run_load(self, scenario):
        """Starts every subject of a scenario and measures them in turns of one second."""
        with contextlib.ExitStack() as running:
            subjects = []
            for subject in scenario.subjects:
                system = self.available.get(subject.system)
                if not system:
                    continue
                try:
                    subjects.append((subject, running.enter_context(self.start(system, scenario, subject))))
                    self.warm(scenario, *subjects[-1])
                except machine.Failure as failure:
                    self.fail(scenario.name, subject.key, failure)
                    subjects = [entry for entry in subjects if entry[0] is not subject]
            wanted = self.options.rounds * self.options.seconds
            for turn in range(wanted * PATIENCE):
                for subject, proxy in list(subjects):
                    try:
                        self.sample(scenario, subject, proxy, turn)
                    except machine.Failure as failure:
                        self.fail(scenario.name, subject.key, failure)
                        subjects.remove((subject, proxy))
                if turn + 1 >= wanted and self.enough(scenario.name, [subject.key for subject, _ in subjects]):
                    break

    def start(self, system, scenario, subject):
        port = self.origin_port(scenario, subject)
        scratch = os.path.join(self.scratch, subject.key.replace(" ", "_"))
        os.makedirs(scratch, exist_ok=True)
        fleet = systems.fleet(subject.servers, port, scenario, self.pair(scenario.tls))
        return system.start(scratch, self.proxy_core, fleet)

    def pair(self, kind):
        """A file with a certificate and its key, made when it is needed first; "" without TLS."""
        path = os.path.join(self.scratch, f"{kind}.pem")
        if kind and not os.path.exists(path):
            make_pair(kind, path)
        return path if kind else ""

    def warm(self, scenario, subject, proxy):
        answer = proxy.get(scenario.path)
        if answer != (200, scenario.body):
            raise machine.Failure(f"GET {scenario.path} gives status {answer[0]}, {answer[1]} bytes")
        self.load(scenario, proxy)

    def load(self, scenario, proxy, seconds=1):
        script = self.script if scenario.many_uris else None
        command = load.command(proxy.port, scenario.path, seconds, scenario.close, script, scenario.scheme)
        output, costs = self.meter.run(proxy.pids(), command)
        return load.parse(output), costs

    def sample(self, scenario, subject, proxy, turn):
        before = self.distance()
        result, costs = self.load(scenario, proxy)
        self.keep(scenario.name, subject.key, turn, (before, self.distance()), result, costs)

    def keep(self, scenario, key, turn, distances, result, costs):
        """Stores a sample, its costs as averages per request."""
        near = [distance < NEAR_NS for distance in distances]
        place = "mixed" if near[0] != near[1] else "near" if near[0] else "far"
        requests = result["requests"]
        if result["failed"] > requests / 1000:
            raise machine.Failure(f"{result['failed']} of {requests} requests failed")
        sample = {"scenario": scenario, "subject": key, "turn": turn, "place": place, "distance_ns": distances}
        sample |= result
        sample |= {name: cost / requests for name, cost in costs.items()}
        sample["total"] = sample["user"] + sample["kernel"]
        self.samples.append(sample)
        cost = f"{report.number(sample['total']):>11} {self.meter.unit}"
        self.say(f"{scenario:26} {key:16} {place:5} {cost}  {result['per_second']:>9,.0f}/s")

    def enough(self, scenario, keys):
        """True when all subjects have samples from the same place, half as many as asked for, and at least three."""
        wanted = max(3, self.options.rounds * self.options.seconds // 2)
        places = ("near", "far") if self.options.place == "any" else (self.options.place,)
        return any(
            all(
                sum(1 for s in self.samples if (s["scenario"], s["subject"], s["place"]) == (scenario, key, place)) >= wanted
                for key in keys
            )
            for place in places
        )

    def run_idle(self):
        """Memory for each idle connection, and the latency of others beside them, one system at a time."""
        scenario = plan.Scenario(plan.IDLE_NAME, plan.IDLE_TITLE, ())
        for turn in range(self.options.rounds):
            for name in plan.IDLE_SYSTEMS:
                if name not in self.available:
                    continue
                subject = plan.Subject(name, name)
                try:
                    with self.start(self.available[name], scenario, subject) as proxy:
                        self.idle_turn(scenario, subject, proxy, turn)
                except (machine.Failure, OSError) as failure:
                    self.fail(plan.IDLE_NAME, name, failure)

    def idle_turn(self, scenario, subject, proxy, turn):
        # Busy first: what a system keeps for its active connections is not the idle ones' share.
        self.warm(scenario, subject, proxy)
        before = machine.resident_bytes(proxy.pids())
        with load.IdleClients(proxy.port, plan.IDLE) as clients:
            time.sleep(1)
            after = machine.resident_bytes(proxy.pids())
            memory = {"rss_before": before, "rss_after": after, "rss_per_idle": (after - before) / plan.IDLE}
            for second in range(self.options.seconds):
                self.sample(scenario, subject, proxy, turn * self.options.seconds + second)
                self.samples[-1] |= memory
            closed = clients.closed()
        if closed:
            raise machine.Failure(f"{closed} of {plan.IDLE} idle connections were closed")

    def fail(self, scenario, key, failure):
        self.failures.append({"scenario": scenario, "subject": key, "reason": str(failure)})
        self.say(f"{scenario:26} {key:16} failed: {failure}")

    def say(self, line):
        print(line, file=sys.stderr, flush=True)


def tls_servers(scratch, port, plain, pair):
    """NGINX with TLS in front of the plain servers, on the clients' core: what it costs is not measured."""
    path = os.path.join(scratch, "tls-servers.conf")
    with open(path, "w") as file:
        file.write(f"""daemon off; pid {scratch}/tls-servers.pid; error_log {scratch}/tls-servers.log; worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off; proxy_temp_path {scratch}/tls-servers_temp; keepalive_requests 1000000000;
    upstream plain {{ server 127.0.0.1:{plain}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen {port} ssl; ssl_certificate {pair}; ssl_certificate_key {pair}; ssl_protocols TLSv1.3;
        location / {{ proxy_pass http://plain; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
""")
    return ["nginx", "-p", scratch, "-e", f"{scratch}/tls-servers.log", "-c", path]


def make_pair(kind, path):
    """A self-signed certificate and its key in one file."""
    key = {"ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}[kind]
    line = ["openssl", "req", "-x509", "-newkey", *key, "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    made = subprocess.run([*line, "-keyout", f"{path}.key", "-out", f"{path}.crt"], capture_output=True, text=True, timeout=60)
    if made.returncode:
        raise machine.Failure(f"openssl: {made.stderr.strip()[-300:]}")
    with open(path, "w") as both:
        for part in (f"{path}.crt", f"{path}.key"):
            with open(part) as text:
                both.write(text.read())
    os.chmod(path, 0o644)
