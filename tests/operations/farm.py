"""The balancer of the day, its servers, name server and certificates. Every server has an address of its own."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys

from support.balancer import Balancer, binary, children, wait_for
from support.certificates import authority, certificate
from support.dns import NameServer

from clients import UPLOAD

HERE = pathlib.Path(__file__).resolve().parent
# All of them are this namespace's own.
PORTS = {"http": 8080, "tls": 8443, "lines": 8081, "datagrams": 8082}
SERVER_PORT = 9000
FIRST, MORE = ["s1", "s2", "s3", "s4"], ["s5", "s6"]
DISK = 256 << 20

CONFIGURATION = """
worker_processes 2;
daemon off;
pid DIR/balancer.pid;
error_log DIR/logs/error.log notice;
events { worker_connections 4096; }
http {
    log_format day '$msec $http_x_id $status $request_time $connection "$upstream_addr" "$upstream_status"';
    access_log DIR/logs/access.log day;
    client_body_temp_path DIR/logs/bodies;
    client_header_timeout 5s;
    limit_req_zone $binary_remote_addr zone=logins:1m rate=5r/s;
    resolver 127.0.0.1:RESOLVER valid=1s ipv6=off;
    proxy_read_timeout 5s;
    add_header X-Server $upstream_addr always;
    upstream app { zone app 256k; SERVERS keepalive 32; }
    upstream named { zone named 256k; server app.example:9000 resolve; keepalive 8; }
    server {
        listen 127.0.0.1:8080;
        listen 127.0.0.1:8443 ssl;
        http2 on;
        server_name a.test;
        ssl_certificate DIR/live/certificate.pem;
        ssl_certificate_key DIR/live/key.pem;
        location / { proxy_pass http://app; }
        location /name { proxy_pass http://named; }
        location /upload { client_max_body_size 1m; client_body_buffer_size 16k; proxy_pass http://app; }
        location /login { limit_req zone=logins burst=5 nodelay; proxy_pass http://app; }
        location /session {
            proxy_pass http://app; proxy_read_timeout 60s;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
        }
        location /api { api write=on; access_log off; }
        location /metrics { metrics; access_log off; }
    }
}
stream {
    upstream lines { zone lines 256k; LINES }
    upstream datagrams { zone datagrams 256k; DATAGRAMS }
    server { listen 127.0.0.1:8081; proxy_pass lines; }
    server { listen 127.0.0.1:8082 udp; proxy_pass datagrams; proxy_responses 1; proxy_timeout 5s; }
}
"""


class Daily(Balancer):
    """Started with `-p` and `-c` only, as the commands of its day are."""

    @property
    def arguments(self):
        return [binary(), "-p", f"{self.dir}/", "-c", str(self.config)]


def address_of(name):
    """A server's address: that of s3 is 127.0.1.3."""
    return f"127.0.1.{name[1:]}"


class App:
    """A server's process, which comes and goes."""

    def __init__(self, name, directory):
        self.name, self.address = name, address_of(name)
        self.journal, self.process = directory / f"{name}.journal", None

    @property
    def http(self):
        return f"{self.address}:{SERVER_PORT}"

    def start(self):
        if self.process and self.process.poll() is None:
            raise AssertionError(f"server {self.name} runs already")
        self.process = subprocess.Popen([sys.executable, HERE / "server.py", self.name, self.address, str(SERVER_PORT),
                                         self.journal], stdin=subprocess.DEVNULL)
        wait_for(lambda: all(self._listens(port) for port in (SERVER_PORT, SERVER_PORT + 1)), 30, f"server {self.name}")

    def _listens(self, port):
        with socket.socket() as probe:
            return probe.connect_ex((self.address, port)) == 0

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(40)


class Farm:
    """Everything that runs, in one directory. The logs are on a small disk of their own."""

    def __init__(self):
        self.named = ["s1", "s2"]
        self.names = NameServer({"app.example": [address_of(name) for name in self.named]})
        self.servers = list(FIRST)
        self.one = Daily(text=" ", port=PORTS["http"], start=False)
        self.dir = self.one.dir
        self.apps = {name: App(name, self.dir) for name in FIRST + MORE}
        (self.dir / "live").mkdir()
        self.number = self.probes = 0
        self.renew()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=777", "tmpfs", self.dir / "logs"], check=True)
        for name in FIRST:
            self.apps[name].start()
        self.configure()
        self.start()

    def configure(self, wrong=""):
        """Writes the configuration with the servers that there are."""
        text = CONFIGURATION.replace("RESOLVER", str(self.names.port)) + wrong
        for word, port in (("SERVERS", 0), ("LINES", 1), ("DATAGRAMS", 2)):
            text = text.replace(word, " ".join(f"server {address_of(name)}:{SERVER_PORT + port};" for name in self.servers))
        self.one.write(text=text)

    def start(self):
        self.one.start()

    def renew(self):
        """Replaces the certificate, as the clients of an authority do. Returns its serial number in hexadecimal digits."""
        self.number += 1
        made = certificate(f"a.test,{self.number}")
        for path, name in ((made.certificate, "certificate.pem"), (made.key, "key.pem")):
            shutil.copy(path, self.dir / "live/new")
            os.replace(self.dir / "live/new", self.dir / "live" / name)
        shown = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", made.certificate], check=True,
                               capture_output=True, text=True).stdout
        return shown.partition("=")[2].strip()

    def run(self, *words, code=0):
        """The program with the balancer's configuration, or a command of the API."""
        done = subprocess.run([binary(), *words], capture_output=True, text=True, timeout=120,
                              env={name: value for name, value in os.environ.items() if name not in ("BALANZA", "NGINX")})
        if code is not None and done.returncode != code:
            raise AssertionError(f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def signal_by_name(self, name, code=0):
        return self.run(*self.one.arguments[1:], "-s", name, code=code)

    def operate(self, command, upstream, server, *more):
        port = SERVER_PORT + {"app": 0, "lines": 1, "datagrams": 2}[upstream]
        return self.run(command, upstream, f"{self.apps[server].address}:{port}", *more, "--url",
                        f"http://127.0.0.1:{PORTS['http']}/api")

    def api(self, method, path, body=None):
        more = ["-d", body] if body else []
        return self._curl("-f", "-X", method, *more, f"http://127.0.0.1:{PORTS['http']}/api/9/{path}")

    @staticmethod
    def _curl(*words):
        done = subprocess.run(["curl", "-sS", *words], capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise AssertionError(f"curl {words}: {done.stderr}")
        return done.stdout

    def upload(self):
        """The status of a POST whose body needs a temporary file."""
        body = self.dir / "body"
        body.write_bytes(bytes(UPLOAD))
        self.probes += 1
        return self._curl("-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:", "-H", f"X-Id: probe-{self.probes}",
                          "--data-binary", f"@{body}", f"http://127.0.0.1:{PORTS['http']}/upload")

    def generation(self):
        """How many configurations this process has taken over."""
        return json.loads(self.api("GET", "nginx"))["generation"]

    def move_name(self, servers):
        """Gives the name other addresses, and waits until the balancer has them."""
        self.named = servers
        self.names.set({"app.example": [address_of(name) for name in servers]})
        wait_for(lambda: self.addresses("named") == {self.apps[name].http for name in servers}, 30, "the name's addresses")

    def addresses(self, upstream):
        """The addresses of an upstream's servers."""
        servers = json.loads(self.api("GET", f"http/upstreams/{upstream}/servers"))
        return {one["server"] for one in servers if one["server"][0].isdigit()}

    def number_of(self, upstream, server):
        """The API's number of a server."""
        servers = json.loads(self.api("GET", f"http/upstreams/{upstream}/servers"))
        return next(one["id"] for one in servers if one["server"] == server)

    def processes(self):
        """The balancer's processes, also those that finish their last requests."""
        mine = str(self.dir).encode()
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    line = pathlib.Path(f"/proc/{entry.name}/cmdline").read_bytes()
                except OSError:
                    continue
                if line.startswith(b"balanza: master process") and mine in line:
                    found.append(int(entry.name))
        workers = [worker for pid in found for worker in children(pid)]
        return found + workers

    def worker(self):
        """The worker process that serves now."""
        return wait_for(lambda: children(self.one.pid), what="a worker process")[0]

    def sample(self):
        """Resident memory in bytes and descriptors: of the serving worker, and of all processes."""
        def memory(pid):
            return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        pids = self.processes()
        worker = (children(self.one.pid) or [0])[0]
        found = {"processes": len(pids), "worker": worker, "memory": 0, "descriptors": 0, "all_memory": 0}
        for pid in pids:
            try:
                found["all_memory"] += memory(pid)
                if pid == worker:
                    found["memory"], found["descriptors"] = memory(pid), len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
        return found

    def client_context(self, alpn=()):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.load_verify_locations(authority().certificate)
        if alpn:
            made.set_alpn_protocols(list(alpn))
        return made

    def carried_out(self):
        """How often each POST was carried out, by its id."""
        counts = {}
        for app in self.apps.values():
            if app.journal.exists():
                for line in app.journal.read_text().split():
                    counts[line] = counts.get(line, 0) + 1
        return counts

    def complaints(self):
        """Lines of the error logs by their level and the part that does not change."""
        counts = {}
        for path in (self.dir / "logs").glob("error.log*"):
            for line in path.read_text(errors="replace").splitlines():
                found = re.match(r"\S+ \S+ \[(crit|alert|emerg|error|warn)\] \S+ (?:\*\d+ )?(.*)", line)
                if found:
                    text = re.sub(r"\d+", "N", found[2].partition(", client")[0])[:120]
                    counts[found[1], text] = counts.get((found[1], text), 0) + 1
        return counts

    def end(self):
        for app in self.apps.values():
            if app.process and app.process.poll() is None:
                app.process.send_signal(signal.SIGCONT)
                app.stop(signal.SIGKILL)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.names.stop()
        subprocess.run(["umount", self.dir / "logs"], check=False)
