"""Processes, cores, ports and what /proc says about them."""

import os
import random
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path


class Failure(Exception):
    """Something that makes a sample, or the whole run, impossible; the text is for the user."""


def cores():
    """The core of the clients and servers, and the core of the proxy (the same one when there is only one)."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[min(1, len(usable) - 1)]


def raise_file_limit():
    """Raises the limit of open files to the most that is allowed; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port():
    """A free port below the range that outgoing connections take theirs from."""
    for _ in range(200):
        port = random.randint(12000, 30000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise Failure("no free port between 12000 and 30000")


def children(pid):
    """All descendants of a process, parents first."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                direct = [int(word) for word in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in direct:
            found += [child, *children(child)]
    return found


def resident_bytes(pids):
    """Resident memory of some processes together."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/statm") as file:
            total += int(file.read().split()[1]) * resource.getpagesize()
    return total


def megabytes(pids):
    """The memory of processes in MB, supervisor first: each page that several have counts in parts (PSS)."""
    def of(pid):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
        return 0
    return [of(pid) for pid in pids]


def cpu_nanoseconds(pids, threads=""):
    """User and system time of all threads of some processes together, or of those whose names begin with `threads`."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            if threads and not Path(f"/proc/{pid}/task/{task}/comm").read_text().startswith(threads):
                continue
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    return total


class Process:
    """A program that was started here, pinned to a core if one is given, and that is ended with all its descendants, by pid."""

    def __init__(self, command, core, log):
        self.command = command
        self.log = log
        try:
            with open(log, "ab") as output:
                self.child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # A session of its own: Ctrl-C reaches only the script, which ends everything in order.
                    start_new_session=True,
                    preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
                )
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}") from error

    def pids(self):
        return [self.child.pid, *children(self.child.pid)]

    def check(self):
        if self.child.poll() is not None:
            with open(self.log, errors="replace") as file:
                last = file.read().strip()[-2000:]
            raise Failure(f"{self.command[0]} ended with code {self.child.returncode}: {last}")

    def end(self):
        family = self.pids()
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        # Workers that outlived their supervisor.
        for pid in family[1:]:
            deadline = time.monotonic() + 2
            while is_running(pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
