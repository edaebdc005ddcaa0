#!/usr/bin/env python3
"""Latency of active clients beside a flood of TLS handshakes: Balanza, NGINX and HAProxy, one after the other in each round.

64 clients of `wrk` with kept TLS connections send requests, with pauses of 10 to 30 ms, while `h2load` opens new TLS
connections at a fixed rate, each for one request. Every system runs as one worker pinned to one core; clients and servers
share the other. On that core `h2load` runs at idle priority, so that the active clients wait for the system, not for a core.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from proxybench import bench, load, machine, plan, systems
from run import ROOT, build_tools

PAUSES = "function delay() return math.random(10, 30) end"
SCENARIO = plan.Scenario("tls_flood", "beside handshakes", (), tls="ecdsa")


def turn(measured, proxy, seconds, rate, script):
    """p99 of the active clients in microseconds, without and beside the handshakes; of these how many and how many a second; and
    failed requests of the active ones."""
    pinned = ["taskset", "-c", str(measured.client_core)]
    command = [*pinned, *load.command(proxy.port, "/", seconds, script=script, scheme="https")]
    alone = load.parse(subprocess.run(command, capture_output=True, text=True, timeout=120).stdout)
    count = rate * (seconds + 1)
    # A few at a time: h2load would open those of a second at once.
    pace = ["-r", str(rate // 100), "--rate-period", "10ms"]
    flood = [*pinned, "chrt", "--idle", "0", "h2load", "--h1", "-n", str(count), "-c", str(count), *pace, f"https://127.0.0.1:{proxy.port}/"]
    with subprocess.Popen(flood, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as handshakes:
        beside = load.parse(subprocess.run(command, capture_output=True, text=True, timeout=120).stdout)
        shown = handshakes.communicate(timeout=120)[0]
    done, rate = re.search(r"(\d+) succeeded", shown), re.search(r"([\d.]+) req/s", shown)
    reached = (int(done[1]), float(rate[1])) if done and rate else (0, 0)
    return alone["p99_us"], beside["p99_us"], *reached, beside["failed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement (default: 4)")
    parser.add_argument("--rate", type=int, default=2000, help="new connections a second (default: 2000)")
    options = parser.parse_args()
    options.no_tuned = True
    program = os.environ.get("BALANZA", str(ROOT / "target" / "release" / "balanza"))
    found = [systems.Balanza(program), systems.Nginx(False), systems.Haproxy(False)]
    results = {system.name: [] for system in found if not system.missing}
    machine.raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="balanza-handshakes-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        os.chmod(scratch, 0o755)
        script = Path(scratch, "pauses.lua")
        script.write_text(PAUSES)
        measured = bench.Bench(scratch, None, {}, build_tools(), options)
        try:
            for _ in range(options.rounds):
                for system in found:
                    if system.name in results:
                        with measured.start(system, SCENARIO, plan.Subject(system.name, system.name)) as proxy:
                            results[system.name].append(turn(measured, proxy, options.seconds, options.rate, str(script)))
        finally:
            measured.end()
    print("| system | p99 alone, ms | p99 beside handshakes, ms | handshakes done, of each round | each second | failed requests |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, turns in results.items():
        alone, beside, done, reached, failed = zip(*turns)
        middle = statistics.median
        print(f"| {name} | {middle(alone) / 1000:.2f} | {middle(beside) / 1000:.2f} | {middle(done):,.0f} | {middle(reached):,.0f}"
              f" | {sum(failed)} |")


if __name__ == "__main__":
    main()
