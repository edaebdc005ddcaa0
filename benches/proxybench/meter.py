"""What a load costs a process: cycles and instructions by perf, or CPU time where perf cannot count them."""

import os
import subprocess

from . import machine

EVENTS = ["cycles:u", "cycles:k", "instructions:u", "instructions:k"]


class Meter:
    """Runs a command on the clients' core and counts what some other processes spend meanwhile.

    `unit` is "cycles", or "us" (microseconds of user and system time) where perf gives no cycles.
    """

    def __init__(self, scratch, core):
        self.core = core
        self.output = os.path.join(scratch, "perf.csv")
        self.why_not = self._try_perf()
        self.unit = "us" if self.why_not else "cycles"

    def _try_perf(self):
        """None if perf counts cycles here, otherwise the reason why not."""
        # Something to count: events of a process that sleeps are "not counted".
        busy = subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
        try:
            counts = self._perf([busy.pid], ["sleep", "0.2"])[1]
        except FileNotFoundError:
            return "perf is not installed (Debian: linux-perf)"
        except machine.Failure as failure:
            return str(failure)
        finally:
            busy.kill()
            busy.wait()
        missing = [event for event in EVENTS if event not in counts]
        if missing:
            return f"perf does not count {', '.join(missing)} here (see /proc/sys/kernel/perf_event_paranoid)"
        return None

    def run(self, pids, command):
        """The command's output and the costs: `user`, `kernel` (in `unit`) and, with perf, `instructions`."""
        if self.why_not:
            before = machine.cpu_nanoseconds(pids)
            output = self._run(command)
            return output, {"user": 0, "kernel": (machine.cpu_nanoseconds(pids) - before) / 1000}
        output, counts = self._perf(pids, command)
        missing = [event for event in EVENTS if event not in counts]
        if missing:
            raise machine.Failure(f"perf lost {', '.join(missing)}")
        costs = {"user": counts["cycles:u"], "kernel": counts["cycles:k"]}
        costs["instructions"] = counts["instructions:u"] + counts["instructions:k"]
        return output, costs

    def _perf(self, pids, command):
        """The output and the counts by event; an event that could not be counted is absent."""
        perf = ["perf", "stat", "-x", ";", "-o", self.output, "-e", ",".join(EVENTS)]
        output = self._run([*perf, "-p", ",".join(map(str, pids)), "--", *command])
        counts = {}
        with open(self.output) as file:
            for line in file:
                fields = line.strip().split(";")
                if len(fields) > 2 and fields[0].isdigit() and fields[2] in EVENTS:
                    counts[fields[2]] = int(fields[0])
        return output, counts

    def _run(self, command):
        # Its own process group, so that Ctrl-C is the script's alone; ended here if the script is interrupted.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {self.core}),
        )
        try:
            output, _ = process.communicate()
        except BaseException:
            family = [process.pid, *machine.children(process.pid)]
            for pid in family:
                if machine.is_running(pid):
                    os.kill(pid, 15)
            process.wait()
            raise
        if process.returncode != 0:
            raise machine.Failure(f"{command[0]} ended with code {process.returncode}: {output.strip()[-500:]}")
        return output
