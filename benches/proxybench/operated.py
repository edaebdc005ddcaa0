"""A balancer that is asked by its API while it serves, and what a client beside that waits."""

import http.client
import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from . import machine

ROOT = Path(__file__).resolve().parents[2]

MAIN = """daemon off;
worker_processes 1;
pid {scratch}/proxy.pid;
error_log {scratch}/error.log warn;
events {{ worker_connections 30000; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    {http}
    server {{
        listen 127.0.0.1:{port};
        client_body_buffer_size 1k;
        location / {{ proxy_pass http://group; }}
        location /text {{ return 200 "ok\\n"; }}
        location /api {{ api write=on; }}
        location /metrics {{ metrics; }}
    }}
}}
"""


class Balancer:
    """Balanza with this inside of `http`, pinned to a core."""

    def __init__(self, scratch, http_text, core):
        self.scratch = Path(tempfile.mkdtemp(dir=scratch))
        os.chmod(self.scratch, 0o755)
        self.port, self.path = machine.free_port(), self.scratch / "nginx.conf"
        self.path.write_text(MAIN.format(scratch=self.scratch, port=self.port, http=http_text))
        program = os.environ.get("BALANZA", str(ROOT / "target" / "release" / "balanza"))
        if not shutil.which(program):
            raise SystemExit(f"{program} not found: make optimized, or set BALANZA to its path")
        command = [program, "-p", str(self.scratch), "-c", str(self.path)]
        self.process = machine.Process(command, core, str(self.scratch / "output.log"))

    def __enter__(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.ask("GET", "/text")[0] == 200:
                    return self
            except OSError:
                self.process.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def __exit__(self, *_):
        self.process.end()

    def ask(self, method, path, value=None):
        """Status and body of an answer, by a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            return request(connection, method, path, value)
        finally:
            connection.close()

    def memory(self):
        """Of supervisor and worker, in MB."""
        return sum(machine.megabytes(self.process.pids()))


def request(connection, method, path, value=None):
    connection.request(method, path, None if value is None else json.dumps(value), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def waits(port, seconds):
    """What one client that asks all the time waits for each answer, in milliseconds, sorted."""
    found, connection = [], socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        connection.sendall(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(4096)
        found.append(1000 * (time.monotonic() - begun))
        time.sleep(0.0005)
    connection.close()
    return sorted(found)


def at(values, share):
    """The value that this share of sorted values does not exceed."""
    return values[int(share * (len(values) - 1))]


def compared(beside, quiet):
    """Waits beside something, and without it."""
    return ", ".join(f"{name} {at(beside, share):.2f} ({at(quiet, share):.2f}) ms"
                     for name, share in (("p99", 0.99), ("p99.9", 0.999), ("longest", 1)))
