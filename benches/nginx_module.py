#!/usr/bin/env python3
"""NGINX's own algorithms beside Balanza's inside the same NGINX: cycles per request.

The method is that of run.py: one worker on one core, clients and servers on another, one-second samples in turns, medians.
Needs `make nginx-module`, NGINX, wrk and perf; ab for --pairs. Results: target/bench/nginx_module.md.
"""

import argparse
import dataclasses
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from proxybench import bench, machine, meter, pairs, plan, report, systems
from run import ROOT, build_tools, positive

# NGINX's directive and ours.
PAIRS = (("random two", "two_choices"), ("least_conn", "balance least_conn"))
LIMIT_AT_3 = 1.03


def key(algorithm, zone):
    """Names a subject, and its directory."""
    return algorithm.replace(" ", "_") + ("_zone" if zone else "")


class Nginx(systems.Nginx):
    """NGINX with one algorithm; `module` is loaded if it is one of ours."""

    def __init__(self, algorithm, module, zone):
        super().__init__(False)
        self.name = key(algorithm, zone)
        self.algorithm, self.module, self.zone = algorithm, module, zone

    def command(self, scratch, port, servers):
        lines = f"{'zone servers 8m; ' if self.zone else ''}{self.algorithm};"
        command = super().command(scratch, port, dataclasses.replace(servers, algorithm=lines))
        if self.module:
            path = Path(command[-1])
            path.write_text(f"load_module {self.module};\n{path.read_text()}")
        return command


def scenarios():
    """Three servers with kept connections, then three, 1,000 and 10,000 with a new one for each request."""
    def one(name, title, count, zone=False, **load):
        names = [key(algorithm, zone) for pair in PAIRS for algorithm in pair]
        return plan.Scenario(name, title, tuple(plan.Subject(name, name, count) for name in names), **load)

    yield one("kept_3", "3 servers, connections kept", 3)
    yield one("kept_3_zone", "the same, in a zone", 3, zone=True)
    for count in (3, 1_000, 10_000):
        yield one(f"new_{count}", f"{count:,} servers, a new connection each", count, origin_closes=True)


def paired(measured, load):
    """Rows for `pairs.table`: ours beside NGINX's own, in short turns."""
    costs = pairs.measure(measured, load, measured.options.pairs)
    for theirs, ours in PAIRS:
        found = [costs[key(algorithm, load.name.endswith("zone"))] for algorithm in (ours, theirs)]
        yield f"`{ours}` and `{theirs}`, {load.title}", *found


def table(measured, loads, unit):
    """The medians of the place where most samples are, as Markdown; and the worst ratio with three servers."""
    title = {"cycles": "cycles", "us": "microseconds"}[unit]
    lines = [f"| {title} per request | cores | NGINX | Balanza in NGINX | ratio | of instructions |",
             "|---|---|---:|---:|---:|---:|"]
    worst = 0
    for load in loads:
        for pair in PAIRS:
            keys = [key(algorithm, load.name.endswith("zone")) for algorithm in pair]
            for place in ("near", "far"):
                found = [[s for s in measured.samples
                          if (s["scenario"], s["subject"], s["place"]) == (load.name, name, place)] for name in keys]
                if min(map(len, found)) < 3:
                    continue
                theirs, ours = (statistics.median(s["total"] for s in samples) for samples in found)
                # Repeat better than cycles; there are none without perf.
                steps = [statistics.median(s.get("instructions", s["total"]) for s in samples) for samples in found]
                if load.subjects[0].servers == 3:
                    worst = max(worst, ours / theirs)
                costs = f"{report.number(theirs)} | {report.number(ours)}"
                lines.append(f"| `{pair[0]}` and `{pair[1]}`, {load.title} | {place} | {costs} |"
                             f" {ours / theirs:.3f} | {steps[1] / steps[0]:.3f} |")
    return "\n".join(lines) + "\n", worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", type=Path, help="ngx_http_balanza_module.so (default: the one that was built)")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=positive, default=4)
    parser.add_argument("--only", metavar="NAME", default="", help="scenarios whose names begin with it")
    parser.add_argument("--place", choices=("any", "near", "far"), default="any", help="as that of run.py")
    parser.add_argument(
        "--pairs", metavar="SECONDS", type=positive,
        help="short turns for so long, for the scenarios with kept connections: exact to a hundredth on a noisy machine",
    )
    parser.add_argument("--gate", action="store_true", help=f"exit with code 1 above {LIMIT_AT_3} with three servers")
    options = parser.parse_args()
    machine.raise_file_limit()
    program = systems.Nginx(False).program
    if not program:
        sys.exit("bench: nginx is not installed")
    version = re.search(r"nginx/([\d.]+)", subprocess.run([program, "-v"], capture_output=True, text=True).stderr)[1]
    module = options.module or ROOT / "target/nginx-module" / version / "ngx_http_balanza_module.so"
    if not module.exists():
        sys.exit(f"bench: {module} is missing: make nginx-module")
    available = {}
    for zone in (False, True):
        for theirs, ours in PAIRS:
            for system in (Nginx(theirs, None, zone), Nginx(ours, module.resolve(), zone)):
                available[system.name] = system
    scratch = tempfile.mkdtemp(prefix="balanza-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    os.chmod(scratch, 0o755)
    try:
        gauge = meter.Meter(scratch, machine.cores()[0])
        measured = bench.Bench(scratch, gauge, available, build_tools(), options)
        loads = [load for load in scenarios() if load.name.startswith(options.only)]
        try:
            if options.pairs:
                print(pairs.table([row for load in loads if not load.origin_closes for row in paired(measured, load)]))
                return
            for load in loads:
                measured.run_load(load)
        finally:
            measured.end()
    except (machine.Failure, subprocess.CalledProcessError) as failure:
        sys.exit(f"bench: {failure}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text, worst = table(measured, loads, gauge.unit)
    print(text)
    for failure in measured.failures:
        print(f"failed: {failure}", file=sys.stderr)
    output = ROOT / "target/bench"
    output.mkdir(parents=True, exist_ok=True)
    (output / "nginx_module.md").write_text(text)
    if options.gate and (measured.failures or worst > LIMIT_AT_3):
        sys.exit(1)


if __name__ == "__main__":
    main()
