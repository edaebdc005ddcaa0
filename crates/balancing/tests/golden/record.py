"""Runs NGINX in front of small servers of its own and records its choices, request by request.

A file holds blocks: "= name", "+ server of the upstream" (NGINX's syntax), "! index of a server that refuses
connections", "> trace of one phase". Between phases the fail timeout ends. In a trace a digit or letter is the index of
a server; servers that one request tried stand in parentheses, "-" means that no server was left.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

FRONT = 16500
FIRST = 16501
SERVERS = 40
SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNIX = "/tmp/balanza-golden"
HERE = os.path.dirname(os.path.abspath(__file__))


class Block:
    def __init__(self, name, method, parameters, refused=(), unix=False, requests=None, phases=1, keys=None):
        self.name, self.method, self.refused = name, method, refused
        self.requests, self.phases, self.keys = requests, phases, keys
        self.servers, self.addresses = [], []
        for index, text in enumerate(parameters):
            where = f"unix:{UNIX}/{index}.sock" if unix else f"127.0.0.1:{FIRST + index}"
            if index in refused:
                where = f"127.0.0.1:{FIRST + SERVERS + index}"
            self.addresses.append(where)
            self.servers.append(f"{where} {text}".strip())


def weights(*values):
    return [f"weight={value}" for value in values]


def blocks():
    vectors = [
        (1, 1, 1), (5, 1, 1), (4, 4, 2, 1), (1, 2, 3, 4, 5), (7, 3), (10, 1), (100, 50, 25, 1),
        (1,) * 10, tuple(range(1, 17)), (3, 1) * 16,
    ]
    rr = []
    for vector in vectors:
        name = "_".join(map(str, vector[:6])) + ("" if len(vector) <= 6 else f"_of_{len(vector)}")
        rr.append(Block(f"weights_{name}", "", weights(*vector), requests=min(3 * sum(vector), 400)))
    lately = "fail_timeout=1s"
    failing = [
        ("one_of_three", [lately] * 3, (1,)),
        ("heavy_fails", [f"weight=5 max_fails=3 {lately}", f"weight=2 {lately}", f"weight=1 {lately}"], (0,)),
        ("light_fails", [f"weight=5 {lately}", f"weight=2 max_fails=2 {lately}", f"weight=1 {lately}"], (1,)),
        ("two_of_four", [f"weight=4 max_fails=4 {lately}", f"weight=3 max_fails=2 {lately}", lately, lately], (0, 1)),
        ("never_closed", [f"weight=3 max_fails=0 {lately}", f"weight=2 {lately}"], (0,)),
        ("with_backup", [f"weight=2 {lately}", lately, f"backup weight=2 {lately}", f"backup {lately}"], (0, 1)),
        ("down_and_failed", [f"weight=2 {lately}", "weight=9 down", f"weight=3 max_fails=2 {lately}", lately], (2,)),
        ("all_fail", [lately] * 3, (0, 1, 2)),
        ("single_fails", [lately], (0,)),
        ("many_fail", [f"weight={1 + i % 4} max_fails={1 + i % 3} {lately}" for i in range(20)], (2, 7, 11, 19)),
    ]
    for name, servers, refused in failing:
        rr.append(Block(f"failing_{name}", "", servers, refused, requests=60, phases=3))
    lc = [Block(b.name, "least_conn;", [s.partition(" ")[2] for s in b.servers], b.refused, False, b.requests, b.phases)
          for b in rr]
    long = "fail_timeout=1000s"
    keyed = [
        ("equal", [""] * 4, (), False),
        ("weights", weights(5, 1, 3, 2), (), False),
        ("down", ["weight=2", "weight=3 down", "", "weight=2"], (), False),
        ("heavy_down", ["weight=90 down", "weight=5", "weight=4", "weight=1"], (), False),
        ("failed", [f"weight=2 max_fails=2 {long}", f"weight=3 {long}", long, f"weight=2 max_fails=3 {long}"], (1, 3),
         False),
        ("never_closed", ["weight=2 max_fails=0", "", "weight=3 max_fails=0"], (0, 2), False),
        ("many", weights(*[1 + i % 7 for i in range(40)]), (), False),
        ("two", ["", ""], (), False),
        ("unix", weights(1, 2, 3), (), True),
    ]
    of_key = lambda method, keys: [
        Block(name, method, servers, refused, unix, len(keys), 1, keys) for name, servers, refused, unix in keyed]
    uris = [("/key/%d" % i, None) for i in range(10000)]
    clients = [("/", client(i)) for i in range(1000)]
    files = {
        "round_robin": rr,
        "least_conn": lc,
        "ip_hash": of_key("ip_hash;", clients),
        "hash": of_key("hash $request_uri;", uris),
        "hash_consistent": of_key("hash $request_uri consistent;", uris),
        "hash_empty": [Block("empty_key", "hash $arg_none;", weights(3, 1), requests=40)],
        "hash_consistent_empty": [Block("empty_key", "hash $arg_none consistent;", weights(3, 1), requests=40)],
    }
    return files


def client(i):
    """Two of three are IPv4."""
    if i % 3 < 2:
        return socket.inet_ntop(socket.AF_INET, (i * 2654435761 % 2**32).to_bytes(4, "big"))
    words = [((i + 1) * 2246822519 + j * 3266489917) % 2**32 for j in range(4)]
    return socket.inet_ntop(socket.AF_INET6, b"".join(w.to_bytes(4, "big") for w in words))


def configuration(folder, files):
    lines = [
        "daemon off; master_process off; worker_processes 1;",
        f"pid {folder}/pid; error_log {folder}/error.log crit;",
        "events { worker_connections 512; }",
        "http { access_log off; keepalive_requests 1000000000; upstream unused { server 127.0.0.1:1; }",
        "client_body_temp_path %s/a; proxy_temp_path %s/b; fastcgi_temp_path %s/c; uwsgi_temp_path %s/d; "
        "scgi_temp_path %s/e;" % ((folder,) * 5),
    ]
    for index in range(SERVERS):
        unix = f"listen unix:{UNIX}/{index}.sock;" if index < 8 else ""
        lines.append(f"server {{ listen 127.0.0.1:{FIRST + index}; {unix} return 200; }}")
    lines += [f"server {{ listen 127.0.0.1:{FRONT}; set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;",
              "add_header X-Peers $upstream_addr always; location / { proxy_pass http://$http_x_group; } }"]
    for file, list_ in files.items():
        for block in list_:
            servers = " ".join(f"server {server};" for server in block.servers)
            lines.append(f"upstream {file}_{block.name} {{ {block.method} {servers} }}")
    return "\n".join(lines + ["}"])


class Client:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", FRONT))
        self.file = self.socket.makefile("rb")

    def peers(self, group, uri, address):
        real = f"X-Real-IP: {address}\r\n" if address else ""
        self.socket.sendall(f"GET {uri} HTTP/1.1\r\nHost: a\r\nX-Group: {group}\r\n{real}\r\n".encode())
        peers, length = None, 0
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.partition(b": ")
            if name.lower() == b"x-peers":
                peers = value.decode()
            elif name.lower() == b"content-length":
                length = int(value)
        self.file.read(length)
        return peers


def record(block, group):
    client_ = Client()
    phases = []
    for phase in range(block.phases):
        if phase:
            # NGINX counts whole seconds: more than one has passed after 2.1 s, whatever the fraction.
            time.sleep(2.1)
        trace = []
        for request in range(block.requests):
            uri, address_ = block.keys[request] if block.keys else ("/", None)
            found = [peer for peer in client_.peers(group, uri, address_).split(", ")]
            symbols = [SYMBOLS[block.addresses.index(p)] if p in block.addresses else "-" for p in found]
            trace.append(symbols[0] if len(symbols) == 1 else "(" + "".join(symbols) + ")")
        phases.append("".join(trace))
    return phases


def free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main():
    files = blocks()
    taken = [port for port in range(FRONT, FIRST + 2 * SERVERS) if not free(port)]
    if taken:
        sys.exit(f"in use: port {taken[0]}")
    shutil.rmtree(UNIX, ignore_errors=True)
    os.makedirs(UNIX)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/nginx.conf", "w") as conf:
            conf.write(configuration(folder, files))
        nginx = subprocess.Popen([sys.argv[1], "-p", folder, "-c", f"{folder}/nginx.conf"])
        try:
            for _ in range(100):
                try:
                    socket.create_connection(("127.0.0.1", FRONT)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.1)
            for file, list_ in files.items():
                lines = []
                for block in list_:
                    lines.append(f"= {block.name}")
                    lines += [f"+ {server}" for server in block.servers]
                    lines += [f"! {index}" for index in block.refused]
                    lines += [f"> {trace}" for trace in record(block, f"{file}_{block.name}")]
                if nginx.poll() is not None:
                    sys.exit("NGINX ended early")
                with open(f"{HERE}/{file}.txt", "w") as out:
                    out.write("\n".join(lines) + "\n")
        finally:
            nginx.terminate()
            nginx.wait()
            shutil.rmtree(UNIX)


main()
