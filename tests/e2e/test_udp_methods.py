"""Every balancing algorithm chooses servers for UDP sessions."""

import collections
import json
import subprocess

from support.balancer import binary
from support.expect import balanza_only
from support.ports import free_port
from support.stream import Streaming, TcpServer
from support.udp import UdpClient, UdpServer

pytestmark = balanza_only("Balanza's own methods")

#: A program that chooses the last server.
PROGRAM = ("import sys\nfor line in sys.stdin:\n    _, number, _, *servers = line.split()\n"
           "    print(number, servers[-1].split(':')[0], flush=True)\n")

#: For 12 successive sessions of one client and three servers: methods that use all servers equally, and methods that use one.
TURNS = {"round_robin", "least_conn", "priority"}
ONE = {"first", "ip_hash", "hash", "maglev", "rendezvous", "hashed_ip", "last_server", "locality_least_conn", "external"}
SESSIONS = 12


def algorithms():
    listed = json.loads(subprocess.run([binary("balanza"), "algorithms", "--json"], capture_output=True, check=True).stdout)
    return [one["name"] for one in listed]


def test_every_algorithm_serves_datagrams(open_dir):
    """One balancer has an upstream for each algorithm, so a new algorithm is tested without a change here."""
    names = algorithms()
    assert {"round_robin", "least_conn", "hash", "random"} <= TURNS | ONE | set(names)
    program = open_dir / "last.py"
    program.write_text(PROGRAM)
    servers = [UdpServer(f"s{number}") for number in range(3)]
    listed = " ".join(f"server {server.server} max_conns=100;" for server in servers)
    ports = {name: free_port() for name in names}
    agent = TcpServer(handle=lambda sock: sock.sendall(b"50%\n"))
    options = {"external": f'"program=python3 {program}" timeout=10s', "hash": "key=$remote_addr"}
    blocks = []
    for name, port in ports.items():
        method = f"balance {name} {options.get(name, '')};"
        if name in ("least_load", "weighted_load"):
            method += f" load_report agent port={agent.port};"
        blocks.append(f"upstream {name} {{ {method} {listed} }}\n"
                      f"server {{ listen 127.0.0.1:{port} udp; proxy_pass {name}; proxy_responses 1; }}")
    log = "log_format d '$server_port $status $upstream_addr $upstream_pick_reason';\naccess_log logs/stream.log d;"
    streaming = Streaming("\n".join(blocks), log=log)
    seen = {name: [] for name in names}
    for name, port in ports.items():
        with UdpClient(port) as client:
            seen[name] = [client.ask(b"%d" % number) for number in range(SESSIONS)]
    for name, answers in seen.items():
        parts = [answer.partition(b":") for answer in answers]
        assert [part[2] for part in parts] == [b"%d" % number for number in range(SESSIONS)], name
        shares = collections.Counter(part[0] for part in parts)
        assert set(shares) <= {b"s0", b"s1", b"s2"}
        if name in TURNS:
            assert set(shares.values()) == {SESSIONS // 3}, (name, shares)
        if name in ONE:
            assert len(shares) == 1, (name, shares)
    lines = collections.defaultdict(list)
    for line in streaming.one.wait_log(SESSIONS * len(names), "stream.log"):
        port, status, _, reason = line.split(" ", 3)
        lines[int(port)].append((status, reason.split(" ")[0]))
    for name, port in ports.items():
        assert {status for status, _ in lines[port]} == {"200"}, name
        # The first sessions may begin before the program can answer.
        assert name in {reason for _, reason in lines[port]}, (name, lines[port])
    for server in [*servers, agent]:
        server.stop()
