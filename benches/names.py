#!/usr/bin/env python3
"""What names that change cost: 10,000 names (`resolve`) whose answers hold for 5 seconds, in 100 upstreams and in one.

For both: the seconds until the servers of all names are known, CPU time and memory for them while nothing changes, and what a
client of the same worker waits for a response that has nothing to do with them: without names, beside names that stay as they
are, and beside 100 changes of addresses each second. A name server of its own answers, on the core of the client.

Exits with 1 if the client waits more than 2 ms (p99.9) or names are known only after 5 seconds.
"""

import argparse
import json
import multiprocessing
import os
import random
import socket
import tempfile
import time

from proxybench import machine, operated

NAMES, TTL, CHANGES = 10_000, 5, 100
LAYOUTS = {"100 upstreams of 100 names": 100, "one upstream of 10,000 names": 1}
KNOWN_WITHIN, WAITS_AT_MOST = 5, 2


def serve_names(server, rate):
    """Answers questions about n0.example and so on; `rate` names get another address each second."""
    os.sched_setaffinity(0, {machine.cores()[0]})
    versions, due, since = [0] * NAMES, 0, time.monotonic()
    head, record = bytes.fromhex("81800001"), bytes.fromhex("c00c00010001") + TTL.to_bytes(4, "big") + bytes.fromhex("0004")
    while True:
        question, client = server.recvfrom(512)
        now = time.monotonic()
        due, since = due + rate.value * (now - since), now
        while due >= 1:
            versions[random.randrange(NAMES)] ^= 1
            due -= 1
        length = question[12]
        # The name is n and a number, in any case of its letters; then `example`, the root, the type and the class.
        index, end = int(question[14:13 + length]), 13 + length + 9
        if question[end:end + 2] == b"\0\1":
            address = bytes((127, 64 + 64 * versions[index], index >> 8, index & 255))
            answer = b"\0\1\0\0\0\0" + question[12:end + 4] + record + address
        else:
            answer = b"\0\0\0\0\0\0" + question[12:end + 4]
        server.sendto(question[:2] + head + answer, client)


def configuration(upstreams, resolver):
    """The names in so many upstreams; none without a resolver."""
    if not upstreams:
        return "upstream group { zone group 64k; server 127.0.0.1:1; }"
    each = NAMES // upstreams
    servers = lambda first: " ".join(f"server n{index}.example:80 resolve;" for index in range(first, first + each))
    groups = " ".join(f"upstream {'group' if not number else f'group{number}'} {{ zone group{number} 16m; {servers(number * each)} }}"
                      for number in range(upstreams))
    return f"resolver {resolver}; {groups}"


def known(one):
    """How many names have servers."""
    status, body = one.ask("GET", "/api/9/http/upstreams")
    return sum(len(upstream["peers"]) for upstream in json.loads(body).values()) if status == 200 else 0


def load(one, seconds):
    """The shares of a core of all threads and of the worker."""
    pids, begun = one.process.pids(), time.monotonic()
    before = [machine.cpu_nanoseconds(pids, threads) for threads in ("", "worker")]
    time.sleep(seconds)
    after = [machine.cpu_nanoseconds(pids, threads) for threads in ("", "worker")]
    return [(now - then) / 1e9 / (time.monotonic() - begun) for then, now in zip(before, after)]


def measure(upstreams, resolver, rate, options, scratch, core, without):
    """Prints a row; whether it is good."""
    began = time.monotonic()
    with operated.Balancer(scratch, configuration(upstreams, resolver), core) as one:
        started = time.monotonic() - began
        while (count := known(one)) < NAMES:
            if time.monotonic() - began > 120:
                raise machine.Failure(f"{count} of {NAMES} names are known after 120 s")
            time.sleep(0.3)
        after = time.monotonic() - began
        # What was needed for a moment has been given back by then.
        time.sleep(15)
        memory = (one.memory() - without["memory"]) * 1e6 / 1024 / NAMES
        share, _ = load(one, options.seconds)
        quiet = operated.waits(one.port, options.seconds)
        rate.value = CHANGES
        time.sleep(TTL)
        beside = operated.waits(one.port, options.seconds)
        changing, worker = load(one, options.seconds)
        rate.value = 0
    print(f"  start {started:.1f} s, all names known after {after:.1f} s; {share:.2f} core ({changing:.2f} with {CHANGES} changes "
          f"each second, {worker * 1000:.1f} ms of the worker's), {memory:.1f} KiB for each name")
    print(f"  waits beside names (without): {operated.compared(quiet, without['waits'])}")
    print(f"  waits beside {CHANGES} changes each second (without names): {operated.compared(beside, without['waits'])}")
    slow = operated.at(beside, 0.999), operated.at(quiet, 0.999)
    return after <= KNOWN_WITHIN and max(slow) <= WAITS_AT_MOST


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="of each measurement (default: 20)")
    options = parser.parse_args()
    machine.raise_file_limit()
    _, core = machine.cores()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    rate = multiprocessing.Value("d", 0, lock=False)
    names = multiprocessing.Process(target=serve_names, args=(server, rate), daemon=True)
    names.start()
    resolver = "127.0.0.1:%d" % server.getsockname()[1]
    good = True
    try:
        with tempfile.TemporaryDirectory(prefix="balanza-names-") as scratch:
            os.chmod(scratch, 0o755)
            with operated.Balancer(scratch, configuration(0, resolver), core) as one:
                time.sleep(15)
                without = {"memory": one.memory(), "waits": operated.waits(one.port, options.seconds)}
            for layout, upstreams in LAYOUTS.items():
                print(f"{layout}, answers hold for {TTL} s:")
                good &= measure(upstreams, resolver, rate, options, scratch, core, without)
    finally:
        names.terminate()
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
