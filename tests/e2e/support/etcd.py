"""Debian's etcd with data of the test's own, changed by its JSON gateway."""

import base64
import http.client
import json
import shutil
import subprocess
import tempfile

from .balancer import wait_for
from .ports import free_ports

PROGRAM = shutil.which("etcd")


class Etcd:
    """One server."""

    def __init__(self):
        self.port, self.peer = free_ports(2)
        self.server = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.server}"
        self.dir = tempfile.mkdtemp(prefix="etcd-")
        self.token = None
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.peer}"
        self.process = subprocess.Popen(
            [PROGRAM, "--data-dir", f"{self.dir}/data", "--name", "one", "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"one={peer}", "--log-level", "error"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(f"{self.dir}/log", "ab"))
        wait_for(self._answers, what="etcd")

    def _answers(self):
        try:
            return "header" in self("/v3/kv/range", key=encoded("x"))
        except (OSError, http.client.HTTPException, RuntimeError):
            return False

    def __call__(self, target, **fields):
        """The answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {"Authorization": self.token} if self.token else {}
            connection.request("POST", target, json.dumps(fields), headers)
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise RuntimeError(f"{response.status} {text!r}")
            return json.loads(text)
        finally:
            connection.close()

    def put(self, key, value):
        return self("/v3/kv/put", key=encoded(key), value=encoded(value))

    def put_all(self, pairs):
        """Many keys in transactions of 100."""
        pairs = list(pairs.items())
        for start in range(0, len(pairs), 100):
            puts = [{"requestPut": {"key": encoded(key), "value": encoded(value)}}
                    for key, value in pairs[start:start + 100]]
            self("/v3/kv/txn", success=puts)

    def delete(self, key):
        return self("/v3/kv/deleterange", key=encoded(key))

    def compact(self):
        revision = self("/v3/kv/range", key=encoded("x"))["header"]["revision"]
        self("/v3/kv/compaction", revision=revision, physical=True)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def encoded(text):
    return base64.b64encode(text.encode()).decode()
