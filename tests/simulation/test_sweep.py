"""Sweeps on one core, on several, after a kill, and on a Dask cluster of processes: the same files, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client

BALANZA = os.path.abspath(os.environ.get("BALANZA", str(Path(__file__).parents[2] / "target/debug/balanza")))
PLAN = """
name = "Sizes and loads"
algorithms = ["random", "least_conn"]
loads = [0.5, 0.8]
replications = {replications}

[scenario]
run = {{ requests = {requests}, warmup = "20s" }}
[[scenario.servers]]
count = 4

[[axes]]
key = "servers.0.count"
name = "servers"
values = [4, 8]
"""
FILES = ["results.jsonl", "results.csv", "report.html", "picture.svg"]


@pytest.fixture
def plan(tmp_path):
    return write(tmp_path)


def write(directory, replications=3, requests=2000):
    file = directory / "plan.toml"
    file.write_text(PLAN.format(replications=replications, requests=requests))
    return file


def sweep(plan, out, *more, **how):
    command = [BALANZA, "simulate", "sweep", str(plan), "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **how)


def finished(plan, out, *more):
    done = sweep(plan, out, *more)
    assert done.returncode == 0, done.stderr
    return [(out / name).read_bytes() for name in FILES]


def journal(out):
    """The ids of the kept records."""
    path = out / "journal.jsonl"
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def is_written(path):
    """Whether a file is there with all of its JSON."""
    try:
        return bool(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return False


@contextmanager
def cluster(directory, workers):
    """A scheduler and workers, each a process of its own without a nanny: a killed one stays dead."""
    processes = []

    def start(program, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments]
        with open(directory / f"{program}-{len(processes)}.log", "wb") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        return processes[-1]

    where = directory / "scheduler.json"
    try:
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(where))
        wait_for(lambda: is_written(where), "the scheduler does not start")
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        working = [start("dask_worker", *options, "--scheduler-file", str(where)) for _ in range(workers)]
        with Client(scheduler_file=str(where), timeout="60s", set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
        yield json.loads(where.read_text())["address"], working
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def on(address):
    return ["--on", address.replace("tcp://", "dask://"), "--python", sys.executable]


def test_one_core_several_and_a_cluster_make_the_same_files(plan, tmp_path):
    one = finished(plan, tmp_path / "one", "--jobs", "1")
    assert one == finished(plan, tmp_path / "several", "--jobs", "4")
    with cluster(tmp_path, 3) as (address, _):
        assert one == finished(plan, tmp_path / "cluster", *on(address))
    lines = [json.loads(line) for line in one[0].decode().splitlines()]
    assert len(lines) == 24
    assert lines[0]["settings"] == {"servers": 4, "load": 0.5, "algorithm": "random", "seed": 1}
    # The order of the plan: seeds, algorithms, loads, axes.
    order = [tuple(line["settings"].values()) for line in lines]
    assert order == sorted(order, key=lambda x: (x[0], x[1], ["random", "least_conn"].index(x[2]), x[3]))


def test_a_killed_worker_loses_nothing(tmp_path):
    plan = write(tmp_path, replications=10, requests=40_000)
    one = finished(plan, tmp_path / "one")
    out = tmp_path / "cluster"
    with cluster(tmp_path, 3) as (address, workers):
        command = [BALANZA, "simulate", "sweep", str(plan), "--out", str(out), *on(address)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(journal(out)) >= 5 or process.poll() is not None, "no run is finished")
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait()
        before = len(journal(out))
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
    assert before < 80, "the sweep was over before the worker was killed"
    ids = journal(out)
    assert len(ids) == len(set(ids)) == 80
    assert one == [(out / name).read_bytes() for name in FILES]


def test_the_command_of_the_package(plan, tmp_path):
    one = finished(plan, tmp_path / "one")
    out = tmp_path / "cluster"
    with cluster(tmp_path, 2) as (address, _):
        command = [sys.executable, "-m", "balanza_sweep", str(plan), "--scheduler", address, "--out", str(out)]
        done = subprocess.run([*command, "--balanza", BALANZA], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert one == [(out / name).read_bytes() for name in FILES]
        # All runs are there: nothing is sent to the cluster.
        again = subprocess.run([*command, "--balanza", BALANZA], capture_output=True, text=True, timeout=300)
        assert again.returncode == 0 and len(journal(out)) == 24, again.stderr


def test_workers_with_another_program_are_refused(plan, tmp_path):
    other = tmp_path / "balanza"
    other.write_bytes(b"#!/bin/sh\necho mine\n")
    with cluster(tmp_path, 1) as (address, _):
        done = sweep(plan, tmp_path / "out", *on(address), "--worker-binary", str(other))
        assert done.returncode == 1
        assert f"{other} is not the program that is here" in done.stderr and "24 of 24 runs are missing" in done.stderr
        done = sweep(plan, tmp_path / "out", *on(address), "--worker-binary", "/nowhere/balanza")
        assert done.returncode == 1 and "No such file" in done.stderr, done.stderr


def test_no_cluster_and_no_package(plan, tmp_path):
    done = sweep(plan, tmp_path / "out", "--on", "dask://127.0.0.1:1", "--python", sys.executable)
    assert done.returncode == 1 and "no scheduler at tcp://127.0.0.1:1" in done.stderr, done.stderr
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    bare.chmod(0o755)
    done = sweep(plan, tmp_path / "out", "--on", "dask://127.0.0.1:1", "--python", str(bare))
    assert done.returncode == 1 and "pip install ./python" in done.stderr, done.stderr


def test_a_killed_sweep_goes_on(tmp_path):
    plan = write(tmp_path, replications=10, requests=40_000)
    one = finished(plan, tmp_path / "one", "--jobs", "1")
    out = tmp_path / "killed"
    command = [BALANZA, "simulate", "sweep", str(plan), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(journal(out)) >= 5, "no run is finished")
    process.kill()
    process.wait()
    kept = journal(out)
    assert 5 <= len(kept) < 80 and not (out / "results.jsonl").exists()
    done = sweep(plan, out)
    assert done.returncode == 0 and f"{len(kept)} of 80 runs are done already" in done.stderr, done.stderr
    # What was kept was not done again.
    assert journal(out)[: len(kept)] == kept and len(journal(out)) == 80
    assert one == [(out / name).read_bytes() for name in FILES]


def test_a_changed_plan_runs_what_is_new(plan, tmp_path):
    out = tmp_path / "out"
    finished(plan, out)
    text = plan.read_text()
    plan.write_text(text.replace("[4, 8]", "[4, 16]").replace('name = "Sizes and loads"', 'name = "Others"'))
    finished(plan, out)
    assert len(journal(out)) == 24 + 12
    plan.write_text(text)
    finished(plan, out)
    assert len(journal(out)) == 24 + 12


def test_seeds_are_paired(plan, tmp_path):
    lines = [json.loads(line) for line in finished(plan, tmp_path / "out")[0].decode().splitlines()]
    arrivals = {}
    for line in lines:
        settings = line["settings"]
        key = settings["servers"], settings["load"], settings["seed"]
        arrivals.setdefault(key, set()).add(line["result"]["arrivals"])
    assert len(arrivals) == 12 and all(len(of) == 1 for of in arrivals.values())
    assert len({min(of) for of in arrivals.values()}) > 6
