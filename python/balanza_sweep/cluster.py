"""Runs on the workers of a cluster. Records go to standard output as they come, errors to standard error."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter

import cloudpickle
from distributed import Client, KilledWorker, as_completed, get_worker

# A task that fails is tried so often again, on any worker. A task whose workers die is another matter: Dask gives it up after
# three workers, and it gets so many new starts.
RETRIES = 3
STARTS = 5
PATIENCE = "30s"


def digest(program):
    """SHA-256 of a file."""
    with open(program, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inspect(program):
    """On a worker: the digest of its program, or why there is none."""
    try:
        return digest(program)
    except OSError as error:
        return str(error)


def perform(unit, program, expected):
    """On a worker: does a run and returns its record as text."""
    state = os.stat(program)
    known = get_worker().__dict__.setdefault("balanza_digests", {})
    key = program, state.st_mtime_ns, state.st_size
    if key not in known:
        known[key] = digest(program)
    if known[key] != expected:
        raise RuntimeError(f"{program} on this worker is another program than balanza here")
    done = subprocess.run([program, "simulate", "sweep", "--units"], input=unit, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"{program} ended with {done.returncode}")
    return done.stdout


def say(text):
    print(f"balanza-sweep: {text}", file=sys.stderr, flush=True)


def run(lines, scheduler, here, there):
    """Does the runs that stand on `lines`; the exit code."""
    # Workers need not have this package.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    units = {json.loads(line)["id"]: line for line in lines}
    try:
        client = Client(scheduler, timeout="10s")
    except OSError as error:
        say(f"no scheduler at {scheduler}: {error}")
        return 1
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            say(f"the cluster at {scheduler} has no workers")
            return 1
        expected = digest(here)
        others = {worker: found for worker, found in client.run(inspect, there).items() if found != expected}
        for worker, found in others.items():
            say(f"worker {worker}: {there} is not the program that is here ({found}; here {expected})")
        return 1 if others else submit(client, units, there, expected)


def submit(client, units, program, expected):
    starts = Counter()

    def start(identity):
        starts[identity] += 1
        key = f"balanza-{identity}-{starts[identity]}"
        return client.submit(perform, units[identity], program, expected, key=key, retries=RETRIES, pure=False)

    failed = 0
    tasks = as_completed([start(identity) for identity in units], with_results=True, raise_errors=False)
    for future, result in tasks:
        identity = future.key.split("-")[1]
        if future.status == "finished":
            sys.stdout.write(result)
            sys.stdout.flush()
        elif starts[identity] < STARTS and isinstance(future.exception(), KilledWorker):
            tasks.add(start(identity))
        else:
            failed += 1
            say(f"run {identity}: {future.status}: {future.exception() if future.status == 'error' else ''}")
        future.release()
    return 1 if failed else 0
