#!/usr/bin/env python3
"""Balanza, NGINX, HAProxy and a relay that parses nothing, side by side: what does a proxied request cost?

Every system runs as one worker pinned to one core, the clients and the servers share another. Costs are processor
cycles per request, user and kernel together, by perf; samples of one second are taken in turns, and medians compared.

Needs cargo, and Debian's nginx, haproxy, wrk and linux-perf. Results: target/bench/proxy.json and proxy.md.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proxybench import bench, machine, meter, pairs, plan, report, summary, systems

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TOOLS = ("bench-datagrams", "bench-distance", "bench-origin", "bench-relay")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[],
        help="run only the scenarios whose names begin with NAME (may be repeated): " + ", ".join(plan.names()),
    )
    parser.add_argument("--rounds", type=positive, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--seconds", type=positive, default=4, help="one-second samples in each round (default: 4)")
    parser.add_argument(
        "--systems", default=",".join(plan.DEFAULTS), metavar="LIST",
        help=f"systems, with commas between (default: %(default)s); {plan.BEFORE} is another build of Balanza, the program "
        "that the variable BEFORE names",
    )
    parser.add_argument("--no-tuned", action="store_true", help="leave out the tuned NGINX and HAProxy")
    parser.add_argument(
        "--place", choices=("any", "near", "far"), default="any",
        help="go on until there are samples from cores that share a cache (near) or do not (far); matters on virtual "
        "machines, whose cores move (default: any, whichever comes)",
    )
    parser.add_argument(
        "--pairs", metavar="SECONDS", type=positive,
        help="instead of all that: ratios of CPU time from short turns, for so long in each scenario; "
        "exact to a hundredth on machines that are noisy or count no cycles",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "target" / "bench", help="directory for the results")
    parser.add_argument("--gate", action="store_true", help="exit with code 1 unless every budget is met")
    options = parser.parse_args()
    options.systems = options.systems.split(",")
    unknown = set(options.systems) - {*plan.DEFAULTS, plan.BEFORE}
    if unknown:
        parser.error(f"unknown systems: {', '.join(sorted(unknown))}")
    options.scenarios = plan.select(options.only)
    if not options.scenarios:
        parser.error(f"no scenario begins with {' or '.join(options.only)}")
    return options


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def build_tools():
    """The paths of the programs that stand around the proxies."""
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", str(HERE / "Cargo.toml")]
    target = TARGET / "bench-tools"
    subprocess.run([*command, "--target-dir", str(target)], check=True)
    return {name: str(target / "release" / name) for name in TOOLS}


def available_systems(options, tools):
    """The systems that were asked for and can run, by name; the others are named with the reason."""
    program = os.environ.get("BALANZA", str(TARGET / "optimized" / "balanza"))
    found = [systems.Balanza(program), systems.Nginx(False), systems.Haproxy(False), systems.Relay(tools["bench-relay"])]
    if plan.BEFORE in options.systems:
        found.append(systems.Balanza(os.environ.get("BEFORE", ""), plan.BEFORE))
    found = [system for system in found if system.name in options.systems]
    if not options.no_tuned:
        found += [kind(True) for name, kind in (("nginx", systems.Nginx), ("haproxy", systems.Haproxy)) if name in options.systems]
    for system in found:
        if system.missing:
            print(f"{system.name} is left out: {system.missing}", file=sys.stderr)
    return {system.name: system for system in found if not system.missing}


def describe(available, gauge, distances):
    """The machine and the versions, for the record."""
    model = platform.processor()
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    versions = {}
    for name, flag in (("balanza", "-v"), ("nginx", "-v"), ("haproxy", "-v")):
        if name in available:
            done = subprocess.run([available[name].program, flag], capture_output=True, text=True)
            versions[name] = (done.stdout + done.stderr).strip().partition("\n")[0]
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "processor": model,
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "versions": versions,
        "unit": gauge.unit,
        "why_no_cycles": gauge.why_not,
        "distance_ns": {"least": min(distances), "most": max(distances)} if distances else None,
        "load_average": os.getloadavg(),
    }


def run(options, scratch):
    """All that was asked for; returns the results as they go to the JSON file."""
    tools = build_tools()
    available = available_systems(options, tools)
    if not available:
        raise machine.Failure("there is nothing to measure")
    if not shutil.which("wrk"):
        raise machine.Failure("wrk is not installed (Debian: wrk)")
    gauge = meter.Meter(scratch, machine.cores()[0])
    if gauge.why_not:
        print(f"costs are CPU time in microseconds, not cycles: {gauge.why_not}", file=sys.stderr)
    if len(set(machine.cores())) == 1:
        print("there is only one core: proxies, clients and servers share it", file=sys.stderr)
    measured = bench.Bench(scratch, gauge, available, tools, options)
    interrupted = False
    try:
        for load in plan.LOADS:
            if load.name in options.scenarios and not load.only_in_pairs:
                measured.run_load(load)
        if plan.IDLE_NAME in options.scenarios:
            measured.run_idle()
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: the results so far", file=sys.stderr)
    finally:
        measured.end()
    medians = summary.medians(measured.samples)
    memory = summary.idle_memory(measured.samples)
    distances = [distance for sample in measured.samples for distance in sample["distance_ns"]]
    return {
        "machine": describe(available, gauge, distances),
        "settings": {"rounds": options.rounds, "seconds": options.seconds, "interrupted": interrupted},
        "medians": medians,
        "idle_memory": memory,
        "budgets": summary.verdicts(medians, memory, options.scenarios, measured.failures),
        "failures": measured.failures,
        "samples": measured.samples,
    }


def compare(options, scratch):
    """Balanza beside each of the others in short turns, as a table."""
    tools = build_tools()
    available = available_systems(options, tools)
    if "balanza" not in available:
        raise machine.Failure("--pairs compares others with balanza, which is not among the systems")
    measured = bench.Bench(scratch, None, available, tools, options)
    try:
        rows = []
        for load in plan.LOADS:
            if load.name not in options.scenarios:
                continue
            costs = pairs.measure(measured, load, options.pairs)
            if load.many_uris:
                rows += growth(load, costs)
                continue
            ours = costs.pop("balanza")
            rows += [(f"{load.title}, beside {name}", ours, theirs) for name, theirs in costs.items()]
    finally:
        measured.end()
    print(pairs.table(rows))


def growth(load, costs):
    """Each system with many servers beside itself with a few."""
    for system in ("balanza", "nginx"):
        many, few = (costs.get(f"{system} n={count}") for count in (plan.MANY, plan.FEW))
        if many and few:
            yield f"{load.title}, {system}: {plan.MANY:,} servers beside {plan.FEW}", many, few


def publish(results, directory):
    """Prints the tables and writes both files."""
    about = results["machine"]
    shown = report.tables(results["medians"], results["idle_memory"], results["budgets"], about["unit"])
    lines = [f"{about['processor']}, {about['processors']} cores, Linux {about['kernel']}, {about['date']}"]
    lines += [*about["versions"].values(), *(failed(failure) for failure in results["failures"])]
    print("\n" + "\n".join(lines) + "\n")
    for table in shown:
        print(report.as_text(*table))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "proxy.json").write_text(json.dumps(results, indent=1) + "\n")
    heading = "\n".join(f"- {line}" for line in lines)
    (directory / "proxy.md").write_text("\n".join([heading, "", *(report.as_markdown(*table) for table in shown)]))
    print(f"written: {directory / 'proxy.json'}, {directory / 'proxy.md'}")


def failed(failure):
    return f"failed: {failure['scenario']}, {failure['subject']}: {failure['reason']}"


def main():
    options = arguments()
    # Ctrl-C and a polite kill end the children too, also where a shell started this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine.raise_file_limit()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    scratch = tempfile.mkdtemp(prefix="balanza-bench-", dir=memory)
    # Workers that gave up root look into it.
    os.chmod(scratch, 0o755)
    try:
        if options.pairs:
            return compare(options, scratch)
        results = run(options, scratch)
    except (machine.Failure, subprocess.CalledProcessError) as failure:
        sys.exit(f"bench: {failure}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    publish(results, options.output)
    if results["settings"]["interrupted"]:
        sys.exit(130)
    if options.gate and any(entry["verdict"] != "ok" for entry in results["budgets"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
