#!/usr/bin/env python3
"""Puts a build that counts its branches to work, so that the next build knows which of them matter.

    benches/train.py PROGRAM DIRECTORY

PROGRAM balances a mixture of requests over servers of its own (`balanza target`); what it counts appears in DIRECTORY
when it ends. A quarter of a minute, on 127.0.0.1 only.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proxybench.machine import free_port

CONNECTIONS = 32
START_SECONDS = 20

# Bodies of the servers by the names of the locations below.
BODIES = {"small": "200", "page": "16k", "large": "1m"}

CONFIGURATION = """
daemon off;
master_process off;
worker_processes 1;
pid balanza.pid;
error_log error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log access.log;
    keepalive_requests 1000000;
    upstream small {{ server 127.0.0.1:{small}; server 127.0.0.2:{small}; server 127.0.0.3:{small}; keepalive 64; }}
    upstream least {{ least_conn; server 127.0.0.1:{small} weight=2; server 127.0.0.2:{small}; keepalive 64; }}
    upstream two {{ random two least_conn; server 127.0.0.1:{small}; server 127.0.0.2:{small}; keepalive 64; }}
    upstream address {{ ip_hash; server 127.0.0.1:{small}; server 127.0.0.2:{small}; keepalive 64; }}
    upstream key {{
        hash $request_uri consistent; server 127.0.0.1:{small}; server 127.0.0.2:{small}; keepalive 64;
    }}
    upstream page {{ server 127.0.0.1:{page}; server 127.0.0.2:{page}; keepalive 64; }}
    upstream large {{ server 127.0.0.1:{large}; server 127.0.0.2:{large}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{port};
        server_name localhost;
        location / {{ proxy_pass http://small; }}
        location /least/ {{ proxy_pass http://least; access_log off; }}
        location /two/ {{
            proxy_pass http://two/;
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
        location /address/ {{ proxy_pass http://address; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location /key/ {{ proxy_pass http://key; }}
        location /page/ {{ proxy_pass http://page; }}
        location /large/ {{ proxy_pass http://large; }}
        location /stream/ {{ proxy_pass http://page; proxy_buffering off; }}
        location = /moved {{ return 301 /two/; }}
        location ~ \\.txt$ {{ root .; }}
    }}
}}
"""

BROWSER = (
    "Host: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
    "Accept-Encoding: gzip, deflate\r\nReferer: http://localhost/two/\r\nCookie: id=0123456789abcdef; theme=dark\r\n"
)
PLAIN = "Host: 127.0.0.1:8080\r\n"
TOOL = "Host: 127.0.0.1\r\nUser-Agent: tool/1.0\r\nAccept: */*\r\n"

# Requests and how many rounds of CONNECTIONS of each.
KEPT = (
    ("GET / HTTP/1.1\r\n" + PLAIN, "", 500),
    ("GET /index?page=2&size=10 HTTP/1.1\r\n" + TOOL, "", 250),
    ("GET /least/articles/17 HTTP/1.1\r\n" + PLAIN, "", 250),
    ("GET /two/ HTTP/1.1\r\n" + BROWSER, "", 250),
    ("GET /address/a HTTP/1.1\r\n" + TOOL, "", 80),
    ("GET /key/images/0042.png HTTP/1.1\r\n" + BROWSER, "", 80),
    ("GET /page/ HTTP/1.1\r\n" + PLAIN, "", 150),
    ("GET /stream/ HTTP/1.1\r\n" + TOOL, "", 30),
    ("GET /large/ HTTP/1.1\r\n" + PLAIN, "", 4),
    ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n" + TOOL, "", 60),
    ("POST /two/form HTTP/1.1\r\nContent-Length: 27\r\n" + BROWSER, "name=value&other=something+", 80),
    ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + TOOL, "5\r\nhello\r\n0\r\n\r\n", 30),
    ("HEAD / HTTP/1.1\r\n" + PLAIN, "", 20),
    ("GET /moved HTTP/1.1\r\n" + TOOL, "", 20),
    ("GET /words.txt HTTP/1.1\r\n" + TOOL, "", 30),
    ("GET /missing.txt HTTP/1.1\r\n" + TOOL, "", 5),
)
SHORT = (
    ("GET / HTTP/1.1\r\nConnection: close\r\n" + PLAIN, "", 150),
    ("GET /two/ HTTP/1.0\r\n" + TOOL, "", 50),
)


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def read_response(client, head_only):
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if not (more := client.recv(65536)):
            raise ConnectionError(f"half a response: {bytes(data)!r}")
        data += more
    head = bytes(data[:end]).lower()
    if b"\r\ncontent-length:" not in head:
        raise ConnectionError(f"a response without a length: {head!r}")
    length = 0 if head_only else int(head.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
    left = end + 4 + length - len(data)
    while left > 0:
        if not (more := client.recv(min(left, 65536))):
            raise ConnectionError("half a body")
        left -= len(more)


def make_requests(port):
    clients = [connect(port) for _ in range(CONNECTIONS)]
    for head, body, rounds in KEPT:
        request = f"{head}\r\n{body}".encode()
        for _ in range(rounds):
            for client in clients:
                client.sendall(request)
            for client in clients:
                read_response(client, head.startswith("HEAD"))
    for client in clients:
        client.close()
    for head, body, rounds in SHORT:
        request = f"{head}\r\n{body}".encode()
        for _ in range(rounds):
            clients = [connect(port) for _ in range(CONNECTIONS)]
            for client in clients:
                client.sendall(request)
            for client in clients:
                read_response(client, False)
                client.close()


def wait_for(port, process):
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), connect(port):
            return
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"train.py: {process.args[0]} does not start")
        time.sleep(0.05)


def main():
    program, counts = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="balanza-train-")))

        def start(arguments, profile):
            process = subprocess.Popen([program, *arguments], env={**os.environ, "LLVM_PROFILE_FILE": str(profile)})
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        ports = {name: free_port() for name in (*BODIES, "port")}
        for name, size in BODIES.items():
            addresses = [f"--listen=127.0.0.{host}:{ports[name]}" for host in (1, 2, 3)]
            arguments = ["target", *addresses, "--workload", "fixed", "--body-size", size]
            wait_for(ports[name], start(arguments, scratch / "unused-%p.profraw"))
        (scratch / "words.txt").write_text("some words\n" * 50)
        (scratch / "nginx.conf").write_text(CONFIGURATION.format(**ports))
        balancer = start(["-p", scratch, "-c", scratch / "nginx.conf", "-e", "stderr"], counts / "%m.profraw")
        wait_for(ports["port"], balancer)
        make_requests(ports["port"])
        balancer.send_signal(signal.SIGQUIT)
        if balancer.wait(timeout=30) != 0:
            sys.exit(f"train.py: {program} ended with code {balancer.returncode}")


if __name__ == "__main__":
    main()
