"""Limits under attack: NGINX and Balanza let the same requests in, and other clients do not notice more of it."""

import collections
import shutil
import subprocess
import threading
import time

import pytest

from support.balancer import Balancer, anonymous, wait_for
from support.client import Client
from support.expect import balanza_only
from support.origin import Origin, answer, upstream

pytestmark = [
    balanza_only("starts NGINX itself"),
    pytest.mark.load,
    pytest.mark.skipif(not (shutil.which("slowhttptest") and shutil.which("ab") and shutil.which("nginx")),
                       reason="slowhttptest, ab or nginx is not installed"),
]

CONNECTIONS = 60
PLACES = 10
FRONT = """
    limit_conn_zone $binary_remote_addr zone=address:1m;
    limit_req_zone $binary_remote_addr zone=rate:1m rate=1r/m;
    # The attackers are all there before the first of them has to go, also if the machine stands still for a second.
    client_header_timeout 3s; client_body_timeout 3s; send_timeout 3s; proxy_buffering off;
    log_format short '$remote_addr $status';
    server {
        listen 127.0.0.1:PORT;
        access_log logs/access.log short;
        location /login { limit_req zone=rate burst=5 nodelay; proxy_pass http://servers; }
        location /upload { limit_conn address %d; proxy_pass http://servers; }
        location /big { limit_conn address %d; proxy_pass http://servers; }
        location / { proxy_pass http://servers; }
    }
""" % (PLACES, PLACES)

SLOW = ["slowhttptest", "-c", str(CONNECTIONS), "-r", "1000", "-l", "7", "-v", "0"]
ATTACKS = {
    "flood": ["ab", "-q", "-c", "16", "-n", "2000", "http://127.0.0.1:{port}/login"],
    # Heads that never end.
    "header": [*SLOW, "-H", "-i", "1", "-u", "http://127.0.0.1:{port}/"],
    # Bodies of which nothing comes.
    "body": [*SLOW, "-B", "-i", "10", "-u", "http://127.0.0.1:{port}/upload"],
    # Responses that are not read.
    "read": [*SLOW, "-X", "-n", "10", "-z", "32", "-w", "512", "-y", "1024", "-u", "http://127.0.0.1:{port}/big"],
}


def respond(request, _):
    return answer(b"x" * (4 << 20 if request.target.startswith("/big") else 10))


class Normal(threading.Thread):
    """A client with another address, as long as the attack lasts: how long its responses take."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.ended, self.times, self.statuses = port, threading.Event(), [], set()

    def run(self):
        while not self.ended.is_set():
            begun = time.monotonic()
            with Client(self.port, source="127.0.0.3") as client:
                self.statuses.add(client.request(target="/").response().status)
            self.times.append(time.monotonic() - begun)
            time.sleep(0.005)

    def worst(self):
        """The 99th percentile, in seconds."""
        return sorted(self.times)[len(self.times) * 99 // 100]


def attacked(kind, attack):
    """Statuses that the attacker got by the log, the normal client, and by how much the worker grew, in KiB."""
    origin = Origin(respond)
    one = Balancer(upstream([origin], name="servers") + FRONT, kind=kind, events="worker_connections 512;")
    [worker] = one.workers_alive()
    before = anonymous(worker)
    normal = Normal(one.port)
    normal.start()
    command = [word.format(port=one.port) for word in ATTACKS[attack]]
    subprocess.run(command, capture_output=True, timeout=60)
    expected = 2000 if attack == "flood" else CONNECTIONS

    def found():
        lines = [line.split() for line in one.access_log()]
        return collections.Counter(status for address, status in lines if address == "127.0.0.1")

    wait_for(lambda: found().total() >= expected, 30, f"{expected} lines of the attacker")
    normal.ended.set()
    normal.join()
    grown = anonymous(worker) - before
    one.stop()
    return found(), normal, grown


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_same_are_let_in(attack):
    expected, beside_nginx, _ = attacked("nginx", attack)
    # slowhttptest asks once more to see whether the server still answers, at any time.
    probes = 0 if attack == "flood" else 1
    for _ in range(3):
        found, normal, grown = attacked("balanza", attack)
        assert (found - expected).total() <= probes and (expected - found).total() <= probes, (found, expected)
        assert normal.statuses == {200} == beside_nginx.statuses
        assert grown < 16 << 10
        # A busy machine may have stood still for a second.
        if normal.worst() <= 2 * beside_nginx.worst() + 1:
            return
    raise AssertionError(f"p99 of another client: {normal.worst():.3f} s, with NGINX {beside_nginx.worst():.3f} s")
