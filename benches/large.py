#!/usr/bin/env python3
"""A large configuration in Balanza and NGINX: how long its test, a start and a reload take, and the memory of all processes.

10,000 virtual servers with two names and three locations each, 2,000 upstreams of three servers, and a map with 20,000
entries. In each round one system is measured after the other. A start and a reload are over when a new connection gets an
answer of that configuration. Memory is measured 15 seconds later, when both have given back what they needed for a moment.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from proxybench import machine
from run import ROOT

# Seconds until what a start or a reload needed for a moment has been given back.
SETTLES = 15
VIRTUAL_SERVERS, UPSTREAMS, ENTRIES = 10_000, 2_000, 20_000
STEPS = {"test": "test of the configuration (`-t`), s", "start": "start, s", "reload": "reload, s",
         "memory": "memory of supervisor and worker, MB", "later": "the same after four reloads, MB"}


def configuration(scratch, port, version):
    """The text; the first virtual server answers with the version."""
    upstreams = "\n".join(
        f"upstream app{number} {{ server 10.0.{number % 250}.1:80; server 10.0.{number % 250}.2:80; "
        f"server 10.0.{number % 250}.3:80 backup; keepalive 16; }}" for number in range(UPSTREAMS))
    entries = "\n".join(f"key{number}.example value{number};" for number in range(ENTRIES))
    servers = "\n".join(
        f"""server {{
    listen 127.0.0.1:{port};
    server_name host{number}.example www.host{number}.example;
    location / {{ proxy_pass http://app{number % UPSTREAMS}; proxy_set_header Host $host; }}
    location /api/ {{ proxy_pass http://app{(number + 1) % UPSTREAMS}; proxy_read_timeout 5s; }}
    location ~ \\.(png|css)$ {{ root /srv/host{number}; expires 1h; }}
}}""" for number in range(VIRTUAL_SERVERS))
    return f"""daemon off;
worker_processes 1;
pid {scratch}/proxy.pid;
error_log {scratch}/error.log error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    server_names_hash_max_size 65536;
    server_names_hash_bucket_size 128;
    map_hash_max_size 65536;
    map_hash_bucket_size 128;
    map $http_x_key $mapped {{ default none;
{entries}
    }}
{upstreams}
    server {{ listen 127.0.0.1:{port} default_server; location / {{ return 200 "version {version} $mapped\\n"; }} }}
{servers}
}}
"""


class Subject:
    """A program with a configuration of its own."""

    def __init__(self, name, program, scratch):
        self.name = name
        self.scratch = Path(scratch) / name
        self.scratch.mkdir()
        self.port, self.path = machine.free_port(), self.scratch / "nginx.conf"
        self.command = [program, "-p", str(self.scratch), "-c", str(self.path)]
        if name == "nginx":
            self.command += ["-e", str(self.scratch / "error.log")]

    def write(self, version):
        self.path.write_text(configuration(self.scratch, self.port, version))

    def answers(self, version):
        """Waits until a new connection gets the answer of this configuration."""
        wanted = f"version {version} "
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            said = subprocess.run(["curl", "-s", "-m", "5", f"http://127.0.0.1:{self.port}/"], capture_output=True, text=True)
            if said.stdout.startswith(wanted):
                return
            time.sleep(0.005)
        raise machine.Failure(f"{self.name} has not answered with version {version} within two minutes")

    def turn(self):
        """What one round measures."""
        self.write(0)
        found = {}
        begun = time.monotonic()
        subprocess.run([*self.command, "-t"], check=True, capture_output=True)
        found["test"] = time.monotonic() - begun
        begun = time.monotonic()
        process = machine.Process(self.command, None, str(self.scratch / "output.log"))
        try:
            self.answers(0)
            found["start"] = time.monotonic() - begun
            time.sleep(SETTLES)
            found["memory"] = machine.megabytes(process.pids())
            times = []
            for version in range(1, 5):
                self.write(version)
                begun = time.monotonic()
                os.kill(process.pids()[0], signal.SIGHUP)
                self.answers(version)
                times.append(time.monotonic() - begun)
                self.settle(process)
            time.sleep(SETTLES)
            found["reload"] = statistics.median(times)
            found["later"] = machine.megabytes(process.pids())
        finally:
            process.end()
        return found

    def settle(self, process):
        """Waits until the worker of the configuration before has gone."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(process.pids()) > 2:
            time.sleep(0.05)


def shown(values):
    """The middle of times, or of the memory of each process."""
    if isinstance(values[0], list):
        return " + ".join(f"{statistics.median(column):,.0f}" for column in zip(*values))
    return f"{statistics.median(values):.2f}"


def ratios(ours, theirs):
    """Ours beside theirs in each round: the middle, the least, the most."""
    total = lambda value: sum(value) if isinstance(value, list) else value
    all_rounds = sorted(total(one) / total(other) for one, other in zip(ours, theirs))
    return f"{statistics.median(all_rounds):.2f} | {all_rounds[0]:.2f} to {all_rounds[-1]:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    balanza = os.environ.get("BALANZA", str(ROOT / "target" / "release" / "balanza"))
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if not nginx or not shutil.which(balanza):
        raise SystemExit(f"{'nginx' if not nginx else balanza} not found")
    results = {"balanza": [], "nginx": []}
    with tempfile.TemporaryDirectory(prefix="balanza-large-") as scratch:
        os.chmod(scratch, 0o755)
        subjects = [Subject("balanza", balanza, scratch), Subject("nginx", nginx, scratch)]
        for _ in range(options.rounds):
            for subject in subjects:
                results[subject.name].append(subject.turn())
    print("| | Balanza | NGINX | ratio | of the rounds |")
    print("|---|---:|---:|---:|---:|")
    for step, text in STEPS.items():
        ours, theirs = ([turn[step] for turn in results[name]] for name in ("balanza", "nginx"))
        print(f"| {text} | {shown(ours)} | {shown(theirs)} | {ratios(ours, theirs)} |")


if __name__ == "__main__":
    main()
