#!/usr/bin/env python3
"""What operating a balancer costs: the API under many writers, a scrape of many servers, their memory, a long queue.

  writers  64 clients change servers by the API, and the configuration is reloaded each second, while wrk sends requests:
           every change must hold, and no request may fail
  scrape   the metrics of 10,000 servers: CPU time, and the longest wait of a client of the same worker meanwhile
  memory   of one server: 10,000 of them beside one, without a request and after some minutes in which all had some
  queue    10,000 clients wait in the queue of an upstream and go away: nothing of them stays

Each part is a run of its own. Exits with 1 if something failed.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from large import SETTLES
from proxybench import load, machine, operated
from proxybench.operated import Balancer
from run import build_tools

SERVERS = 10_000
# Seconds after which the API remembers of a server what it ever will, times of two minutes above all.
REMEMBERS = 150


def shells(count):
    """Servers that nothing is sent to."""
    return "".join(f"server 10.{number >> 14}.{(number >> 7) & 127}.{(number & 127) + 1}:80 down;" for number in range(count))


PATH = "/api/9/http/upstreams/changed/servers"


def addresses(count, port):
    """As many servers, all of them the same program."""
    return "".join(f"server 127.{number >> 14}.{(number >> 7) & 127}.{(number & 127) + 1}:{port};" for number in range(1 << 14, count + (1 << 14)))


def write(port, first, count, until, results):
    """So many writers: each adds a server, changes its weight again and again, reads it each time, and removes it."""
    done, failures, lock = [0], [], threading.Lock()

    def writer(number):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        asked = 0

        def ask(expected, *what):
            nonlocal asked
            status, body = operated.request(connection, *what)
            asked += 1
            if status != expected:
                failures.append(f"{what}: {status} {body[:200]}")
            return json.loads(body) if body else None

        try:
            address = f"127.1.{number}.1:80"
            server = ask(201, "POST", PATH, {"server": address, "down": True})
            path, weight = f"{PATH}/{server['id']}", 0
            while time.time() < until:
                weight = weight % 1000 + 1
                ask(200, "PATCH", path, {"weight": weight})
                found = ask(200, "GET", path)
                if (found["server"], found["weight"]) != (address, weight):
                    failures.append(f"{address} has {found} and not the weight {weight}")
            ask(200, "DELETE", path)
        except Exception as error:
            failures.append(f"writer {number}: {error!r}")
        with lock:
            done[0] += asked

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(first, first + count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((done[0], failures))


def start_origin(scratch):
    """A server on all addresses, and its ports: one that keeps connections, and one that closes them after each answer."""
    client_core, _ = machine.cores()
    kept, closed = machine.free_port(), machine.free_port()
    command = [build_tools()["bench-origin"], f"0.0.0.0:{kept}", f"0.0.0.0:{closed}"]
    return machine.Process(command, client_core, str(Path(scratch) / "origin.log")), kept, closed


def writers(options, scratch, core):
    origin, kept, _ = start_origin(scratch)
    text = f"upstream group {{ zone group 256k; server 127.0.0.1:{kept}; }} upstream changed {{ zone changed 1m; }}"
    try:
        with Balancer(scratch, text, core) as one:
            until = time.time() + options.seconds
            results = multiprocessing.Queue()
            groups = [multiprocessing.Process(target=write, args=(one.port, 16 * group, 16, until, results)) for group in range(4)]
            wrk = subprocess.Popen(load.command(one.port, "/", options.seconds), stdout=subprocess.PIPE, text=True)
            for group in groups:
                group.start()
            reloads = 0
            while time.time() < until:
                time.sleep(1)
                os.kill(one.process.pids()[0], signal.SIGHUP)
                reloads += 1
            found = [results.get(timeout=120) for _ in groups]
            for group in groups:
                group.join()
            passed = load.parse(wrk.communicate(timeout=60)[0])
            left = json.loads(one.ask("GET", PATH)[1])
    finally:
        origin.end()
    failures = [failure for _, group in found for failure in group]
    print(f"64 writers, {reloads} reloads: {sum(done for done, _ in found):,} requests to the API, {len(failures)} of them failed or "
          f"lost; {passed['requests']:,} other requests, {passed['failed']} failed; {len(left)} servers left")
    for failure in failures[:5]:
        print(f"  {failure}")
    return not failures and not passed["failed"] and not left


def scrape(options, scratch, core):
    """CPU time of scrapes, and waits of a client that asks the same worker all the time."""
    with Balancer(scratch, f"upstream group {{ zone group 16m; {shells(SERVERS)} }}", core) as one:
        good = True
        for path in ("/metrics", "/api/9/http/upstreams"):
            length = len(one.ask("GET", path)[1])
            before, count = machine.cpu_nanoseconds(one.process.pids()), 10
            for _ in range(count):
                one.ask("GET", path)
            cpu = (machine.cpu_nanoseconds(one.process.pids()) - before) / count / 1e6
            quiet = operated.waits(one.port, options.seconds / 4)
            stop = threading.Event()

            def again():
                while not stop.is_set():
                    # It must not take the other client's time: that is on the same core.
                    subprocess.run(["nice", "-n", "19", "curl", "-s", "-o", os.devnull, f"http://127.0.0.1:{one.port}{path}"], check=True)
                    stop.wait(0.2)

            scraper = threading.Thread(target=again)
            scraper.start()
            beside = operated.waits(one.port, options.seconds / 4)
            stop.set()
            scraper.join()
            print(f"{path}: {length / 1e6:.1f} MB, {cpu:.0f} ms of CPU time; waits of a client beside it (without it): "
                  + operated.compared(beside, quiet))
            good &= cpu < 200
        return good


def memory(options, scratch, core):
    origin, _, closed = start_origin(scratch)
    found = {"without a request": [], "with requests": []}
    try:
        for count in (1, SERVERS):
            with Balancer(scratch, f"upstream group {{ zone group 16m; {addresses(count, closed)} }}", core) as one:
                # What the start needed for a moment has been given back by then.
                time.sleep(2 * SETTLES)
                found["without a request"].append(one.memory())
                for _ in range(REMEMBERS // 10):
                    subprocess.run(load.command(one.port, "/", 2), stdout=subprocess.DEVNULL, check=True)
                    time.sleep(8)
                peers = json.loads(one.ask("GET", "/api/9/http/upstreams/group")[1])["peers"]
                if not all(peer["requests"] for peer in peers):
                    raise machine.Failure("some servers had no request")
                time.sleep(2 * SETTLES)
                found["with requests"].append(one.memory())
    finally:
        origin.end()
    good = True
    for when, (single, many) in found.items():
        each = (many - single) * 1e6 / (SERVERS - 1) / 1024
        print(f"{when}: one server {single:.1f} MB, {SERVERS:,} {many:.1f} MB, each {each:.2f} KiB, supervisor and worker together")
        good &= each <= 4
    return good


def queue(options, scratch, core):
    count = SERVERS
    holder = socket.create_server(("127.0.0.1", 0), backlog=16)
    text = (f"upstream group {{ zone group 256k; queue {count} timeout=1h; "
            f"server 127.0.0.1:{holder.getsockname()[1]} max_conns=1; }}")
    with Balancer(scratch, text, core) as one:
        def state():
            found = json.loads(one.ask("GET", "/api/9/http/upstreams/group")[1])
            return found["queue"]["size"], found["peers"][0]["active"]

        def wait(what, condition):
            deadline = time.monotonic() + 60
            while not condition():
                if time.monotonic() > deadline:
                    raise machine.Failure(f"no {what}: {state()}")
                time.sleep(0.05)

        def flood():
            clients = []
            for _ in range(count + 1):
                client = socket.create_connection(("127.0.0.1", one.port))
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                clients.append(client)
            wait("full queue", lambda: state() == (count, 1))
            full = one.memory()
            for client in clients:
                client.close()
            wait("empty queue", lambda: state() == (0, 0))
            return full

        first, peaks = one.memory(), []
        for _ in range(3):
            peaks.append(flood())
        time.sleep(11)
        descriptors = len(os.listdir(f"/proc/{one.process.pids()[-1]}/fd"))
        after = one.memory()
    print(f"{count:,} clients waited, three times: {first:.0f} MB before, {max(peaks):.0f} MB with them, {after:.0f} MB "
          f"afterwards; {descriptors} descriptors, {(max(peaks) - first) * 1000 / count:.1f} kB for each that waits")
    return after - first < 64


PARTS = {"writers": writers, "scrape": scrape, "memory": memory, "queue": queue}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="this part (several times: these)")
    parser.add_argument("--seconds", type=int, default=60, help="of the writers; a scrape takes as long in all (default: 60)")
    options = parser.parse_args()
    machine.raise_file_limit()
    _, core = machine.cores()
    good = True
    with tempfile.TemporaryDirectory(prefix="balanza-operations-") as scratch:
        os.chmod(scratch, 0o755)
        for name in options.only or PARTS:
            good &= PARTS[name](options, scratch, core)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
