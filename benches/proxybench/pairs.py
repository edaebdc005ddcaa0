"""What one system costs beside another, from many short turns: for differences smaller than a machine's noise.

A turn is some requests by ab, a fraction of a second, or with many URIs a second of wrk; its cost is the CPU time of the system's threads, which the kernel
counts in nanoseconds. Systems take turns in an order drawn anew for each round, so that what slows the machine for longer
than that meets all alike and leaves their ratio as it is. Where a process comes to lie in memory makes it up to a tenth
cheaper or dearer for as long as it lives, so all of them are started anew now and then.
"""

import contextlib
import random
import re
import statistics
import subprocess
import time

from . import load
from .machine import Failure, cpu_nanoseconds

# Requests of a turn, for bodies of up to so many bytes.
REQUESTS = {1024: 8000, 65536: 4000, 1 << 30: 200}
# A handshake costs as much as so many requests.
HANDSHAKES_FEWER = 10
COMPRESSED_FEWER = 4
RESAMPLES = 2000
# Processes live for so many seconds, and see at least so many rounds.
LIFE = 10
ROUNDS_MIN = 3


def turn(bench, proxy, scenario):
    """CPU time for a request, in microseconds."""
    pids = proxy.pids()
    if scenario.many_uris:
        command = load.command(proxy.port, scenario.path, 1, scenario.close, bench.script, scenario.scheme)
        before = cpu_nanoseconds(pids)
        shown = run(bench, *command)
        cost = cpu_nanoseconds(pids) - before
        result = load.parse(shown)
        if result["failed"]:
            raise Failure(f"wrk: {result['failed']} requests failed")
        return cost / result["requests"] / 1000
    count = next(count for most, count in REQUESTS.items() if scenario.body <= most)
    if scenario.tls and scenario.close:
        count //= HANDSHAKES_FEWER
    before = cpu_nanoseconds(pids)
    done = CLIENTS[scenario.client](bench, scenario, proxy.port, count)
    return (cpu_nanoseconds(pids) - before) / done / 1000


def run(bench, *command):
    """What a client prints, whose exit code says that all went well."""
    done = subprocess.run(["taskset", "-c", str(bench.client_core), *command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Failure(f"{command[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def ab(bench, scenario, port, count, *options):
    kept = [] if scenario.close else ["-k"]
    url = f"{scenario.scheme}://127.0.0.1:{port}{scenario.path}"
    shown = run(bench, "ab", "-q", *kept, *options, "-c", str(load.CONNECTIONS), "-n", str(count), url)
    if f"Complete requests:      {count}\nFailed requests:        0" not in shown:
        raise Failure(f"ab: {shown.strip()[-300:]}")
    return count


def h2load(bench, scenario, port, count):
    url = f"https://127.0.0.1:{port}{scenario.path}"
    shown = run(bench, "h2load", "-n", str(count), "-c", "16", "-m", "100", url)
    if f"{count} succeeded, 0 failed" not in shown or "Application protocol: h2" not in shown:
        raise Failure(f"h2load: {shown.strip()[-300:]}")
    return count


def gzip(bench, scenario, port, count):
    """HTTP/1.1, which `ab` does not speak: responses to HTTP/1.0 are not compressed."""
    url = f"http://127.0.0.1:{port}{scenario.path}"
    count //= COMPRESSED_FEWER
    shown = run(bench, "h2load", "--h1", "-n", str(count), "-c", str(load.CONNECTIONS), "-H", "Accept-Encoding: gzip", url)
    received = re.search(r"\((\d+)\) data", shown)
    if f"{count} succeeded, 0 failed" not in shown or not 0 < int(received[1]) < count * scenario.body / 2:
        raise Failure(f"h2load: {shown.strip()[-300:]}")
    return count


def s_time(bench, scenario, port, _):
    """A second of connections one after the other that resume the first one's session."""
    command = ("openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-tls1_3", "-reuse", "-time", "1", "-www", scenario.path)
    shown = run(bench, *command)
    found = re.search(r"^(\d+) connections in \d+ real seconds", shown, re.M)
    resumed = re.search(r"^(r+)$", shown.replace("t", ""), re.M)
    if not found or not resumed:
        raise Failure(f"openssl s_time: {shown.strip()[-300:]}")
    return int(found[1])


def datagrams(bench, _, port, count):
    run(bench, bench.tools["bench-datagrams"], "ask", f"127.0.0.1:{port}", str(count))
    return count


def bulk(bench, _, port, count):
    run(bench, bench.tools["bench-datagrams"], "bulk", f"127.0.0.1:{port}", str(count))
    return count


CLIENTS = {"ab": ab, "gzip": gzip, "h2load": h2load, "s_time": s_time, "datagrams": datagrams, "bulk": bulk}


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
                    costs[key].append(turn(bench, proxies[key], scenario))
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
