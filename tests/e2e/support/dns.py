"""Debian's dnsmasq as a name server on a port of its own, with names of the test's choice."""

import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .ports import free_port


class NameServer:
    """`names` has the addresses of each name; `services` lines for dnsmasq's --srv-host. Answers hold for `ttl` seconds."""

    def __init__(self, names=None, *, services=(), ttl=1):
        self.port, self.ttl, self.services = free_port(), ttl, list(services)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dns-"))
        # It gives up root, and reads the file again then.
        self.dir.chmod(0o755)
        self.hosts = self.dir / "hosts"
        self.process = None
        self._write(names or {})
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def _write(self, names):
        lines = [f"{address} {name}" for name, addresses in names.items() for address in addresses]
        self.hosts.write_text("\n".join(lines) + "\n")
        self.hosts.chmod(0o644)

    def set(self, names):
        """Gives the names other addresses."""
        self._write(names)
        self.process.send_signal(signal.SIGHUP)

    def start(self):
        program = shutil.which("dnsmasq") or "/usr/sbin/dnsmasq"
        self.log = self.dir / "log"
        services = [f"--srv-host={line}" for line in self.services]
        self.process = subprocess.Popen(
            [program, "--keep-in-foreground", "--conf-file=/dev/null", f"--pid-file={self.dir}/pid",
             f"--port={self.port}", "--listen-address=127.0.0.1", "--bind-interfaces", "--no-resolv", "--no-hosts",
             f"--addn-hosts={self.hosts}", f"--local-ttl={self.ttl}", f"--neg-ttl={self.ttl}", "--local=/example/",
             "--log-queries", "--log-facility=-", *services],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(self.log, "wb"))
        self._wait()

    def _wait(self):
        """Until it listens: it takes TCP as well as UDP."""
        for _ in range(1000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError(self.log.read_text())

    def asked(self, name):
        """How often it was asked for the addresses of IPv4 of a name."""
        return self.log.read_text(errors="replace").lower().count(f"query[a] {name}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
