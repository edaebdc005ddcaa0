"""What one system costs beside another, from many short turns: for differences smaller than a machine's noise.

A turn is some requests by ab, a fraction of a second, or with many URIs a second of wrk; its cost is the CPU time of the system's threads, which the kernel
counts in nanoseconds. Systems take turns in an order drawn anew for each round, so that what slows the machine for longer
than that meets all alike and leaves their ratio as it is. Where a process comes to lie in memory makes it up to a tenth
cheaper or dearer for as long as it lives, so all of them are started anew now and then.
"""

import contextlib
import random
import statistics
import subprocess
import time

from . import load
from .machine import Failure, cpu_nanoseconds

# Requests of a turn, for bodies of up to so many bytes.
REQUESTS = {1024: 8000, 65536: 4000, 1 << 30: 200}
# A handshake costs as much as so many requests.
HANDSHAKES_FEWER = 10
RESAMPLES = 2000
# Processes live for so many seconds, and see at least so many rounds.
LIFE = 10
ROUNDS_MIN = 3


def turn(proxy, scenario, core, script):
    """CPU time for a request, in microseconds; `script` sends many URIs where the scenario asks for them."""
    pids = proxy.pids()
    if scenario.many_uris:
        command = load.command(proxy.port, scenario.path, 1, scenario.close, script, scenario.scheme)
        before = cpu_nanoseconds(pids)
        done = subprocess.run(["taskset", "-c", str(core), *command], capture_output=True, text=True, timeout=120)
        cost = cpu_nanoseconds(pids) - before
        result = load.parse(done.stdout)
        if result["failed"]:
            raise Failure(f"wrk: {result['failed']} requests failed")
        return cost / result["requests"] / 1000
    count = next(count for most, count in REQUESTS.items() if scenario.body <= most)
    if scenario.tls and scenario.close:
        count //= HANDSHAKES_FEWER
    kept = [] if scenario.close else ["-k"]
    command = ["taskset", "-c", str(core), "ab", "-q", *kept, "-c", str(load.CONNECTIONS), "-n", str(count)]
    before = cpu_nanoseconds(pids)
    url = f"{scenario.scheme}://127.0.0.1:{proxy.port}{scenario.path}"
    done = subprocess.run([*command, url], capture_output=True, text=True, timeout=120)
    cost = cpu_nanoseconds(pids) - before
    if done.returncode or f"Complete requests:      {count}\nFailed requests:        0" not in done.stdout:
        raise Failure(f"ab: {(done.stderr or done.stdout).strip()[-300:]}")
    return cost / count / 1000


def measure(bench, scenario, seconds):
    """The costs of a scenario's systems by their keys, round by round, for so long."""
    subjects = [subject for subject in scenario.subjects if subject.system in bench.available]
    costs = {subject.key: [] for subject in subjects}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.ExitStack() as running:
            proxies = {
                subject.key: running.enter_context(bench.start(bench.available[subject.system], scenario, subject))
                for subject in subjects
            }
            life, rounds = min(time.monotonic() + LIFE, end), 0
            while time.monotonic() < life or rounds < ROUNDS_MIN:
                rounds += 1
                for key in random.sample(list(proxies), len(proxies)):
                    costs[key].append(turn(proxies[key], scenario, bench.client_core, bench.script))
    return costs


def ratio(ours, theirs):
    """The median ratio of a round, and its 95% interval by resampling the rounds."""
    ratios = [a / b for a, b in zip(ours, theirs)]
    draws = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), draws[RESAMPLES // 40], draws[-RESAMPLES // 40]


def table(rows):
    """Markdown of rows (title, costs of ours, costs of theirs)."""
    lines = ["| CPU time per request, microseconds | ours | theirs | ratio | 95% interval | rounds |",
             "|---|---:|---:|---:|---:|---:|"]
    for title, ours, theirs in rows:
        middle, low, high = ratio(ours, theirs)
        lines.append(f"| {title} | {statistics.median(ours):.2f} | {statistics.median(theirs):.2f} | {middle:.3f} |"
                     f" {low:.3f} to {high:.3f} | {len(ours)} |")
    return "\n".join(lines) + "\n"
