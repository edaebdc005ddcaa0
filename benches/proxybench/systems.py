"""The systems side by side, and the configuration each of them gets."""

import http.client
import os
import shutil
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass

from . import machine

# Every system is given time enough to read 10,000 servers.
START_SECONDS = 120
KEPT_SECONDS = 600
KEPT_UPSTREAM = 64
# HTTP/2 clients have so many requests open at once that more connections are in use.
KEPT_UPSTREAM_HTTP2 = 2048
CLIENTS_MAX = 9600
# Fewer with splice, whose pipes need files too.
CLIENTS_MAX_TUNED = 4000


@dataclass(frozen=True)
class Fleet:
    """The servers behind a proxy, as "address:port", how it chooses among them (a line of nginx.conf), and whether it
    writes an access log, as NGINX does by default. `pair` is a certificate with its key, for TLS with clients. The other
    fields are those of the scenario."""

    servers: tuple
    algorithm: str = ""
    logged: bool = False
    pair: str = ""
    http: str = ""
    location: str = ""
    http2: bool = False
    servers_tls: bool = False
    stream: bool = False
    udp: bool = False


def fleet(count, port, scenario, pair):
    """Servers that are all one listening socket: the whole of 127.0.0.0/8 loops back."""
    addresses = (f"127.{index // 62500}.{index // 250 % 250}.{index % 250 + 1}" for index in range(count))
    names = ("algorithm", "logged", "http", "location", "http2", "servers_tls", "stream", "udp")
    values = {name: getattr(scenario, name) for name in names}
    return Fleet(tuple(f"{address}:{port}" for address in addresses), pair=pair, **values)


NGINX_TUNED = """
            proxy_buffer_size 64k;
            proxy_buffers 16 64k;
            proxy_busy_buffers_size 128k;"""

# Debian's package libnginx-mod-stream.
STREAM_MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"
# What NGINX needs to run from any directory and as any user; it has no say in the cost.
NGINX_ONLY = "".join(
    f"\n    {name}_temp_path {{scratch}}/{name}_temp;" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


def nginx_conf(scratch, port, servers, tuning="", own=""):
    """The configuration that NGINX and Balanza share."""
    listed = "\n".join(f"        server {server};" for server in servers.servers)
    option, certificate = "", ""
    if servers.pair:
        option, names = " ssl", f"ssl_certificate {servers.pair}; ssl_certificate_key {servers.pair};"
        certificate = f"\n        {names} ssl_protocols TLSv1.3;"
    if servers.http2:
        option += " http2"
    log = f"{scratch}/access.log" if servers.logged else "off"
    main = f"""daemon off;
master_process on;
worker_processes 1;
pid {scratch}/proxy.pid;
error_log {scratch}/error.log warn;
events {{
    worker_connections 10240;
}}
"""
    if servers.stream:
        return main + f"""stream {{
    upstream servers {{
        {servers.algorithm}
{listed}
    }}
    server {{
        listen 127.0.0.1:{port}{" udp" if servers.udp else ""};
        proxy_pass servers; {servers.location}
    }}
}}
"""
    scheme, kept = "https" if servers.servers_tls else "http", KEPT_UPSTREAM_HTTP2 if servers.http2 else KEPT_UPSTREAM
    return main + f"""http {{{own.format(scratch=scratch)}
    access_log {log};
    keepalive_timeout {KEPT_SECONDS}s;
    keepalive_requests 1000000000;
    {servers.http}
    upstream servers {{
        {servers.algorithm}
{listed}
        keepalive {kept};
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port}{option};{certificate}
        location / {{
            {servers.location}{" proxy_ssl_protocols TLSv1.3;" if servers.servers_tls else ""}
            proxy_pass {scheme}://servers;
            proxy_http_version 1.1;
            proxy_set_header Connection "";{tuning}
        }}
    }}
}}
"""


def haproxy_cfg(port, servers, tuned):
    tls = f" ssl crt {servers.pair} ssl-min-ver TLSv1.3" if servers.pair else ""
    tls += " alpn h2" if servers.http2 else ""
    to_server = " ssl verify none" if servers.servers_tls else ""
    listed = "\n".join(f"    server s{number} {server}{to_server}" for number, server in enumerate(servers.servers))
    return f"""global
    nbthread 1
    maxconn {CLIENTS_MAX_TUNED if tuned else CLIENTS_MAX}
{"    tune.bufsize 65536" if tuned else ""}
defaults
    mode {"tcp" if servers.stream else "http"}
    timeout connect 5s
    timeout client {KEPT_SECONDS}s
    timeout server {KEPT_SECONDS}s
    timeout http-keep-alive {KEPT_SECONDS}s
{"    option splice-auto" if tuned else ""}
{"    http-reuse always" if tuned else ""}
frontend clients
    bind 127.0.0.1:{port}{tls}
    default_backend servers
backend servers
    balance roundrobin
{listed}
"""


class System:
    """A proxy that can be started: its name, what it is, and the program, or why it cannot be run."""

    def __init__(self, name, program, hint):
        self.name = name
        self.program = shutil.which(program) or ""
        self.missing = "" if self.program else f"{program} not found ({hint})"

    def command(self, scratch, port, servers):
        raise NotImplementedError

    def start(self, scratch, core, servers):
        """Starts it in front of a fleet, pinned to a core, and waits until it answers."""
        scratch = os.path.join(scratch, self.name)
        shutil.rmtree(scratch, ignore_errors=True)
        os.makedirs(scratch)
        port = machine.free_port()
        process = machine.Process(self.command(scratch, port, servers), core, os.path.join(scratch, "output.log"))
        running = Running(self, process, port, servers)
        try:
            running.wait()
        except BaseException:
            running.end()
            raise
        return running


class Balanza(System):
    """The build to be measured, or, as "before", an earlier one to compare it with."""

    def __init__(self, program, name="balanza"):
        super().__init__(name, program, "make optimized, or set BALANZA to its path")

    def command(self, scratch, port, servers):
        return [self.program, "-p", scratch, "-c", write(scratch, "nginx.conf", nginx_conf(scratch, port, servers))]


class Nginx(System):
    def __init__(self, tuned):
        super().__init__("nginx_tuned" if tuned else "nginx", "nginx", "Debian: nginx")
        self.tuning = NGINX_TUNED if tuned else ""

    def command(self, scratch, port, servers):
        conf = nginx_conf(scratch, port, servers, self.tuning, NGINX_ONLY)
        if servers.stream:
            conf = f"load_module {STREAM_MODULE};\n{conf}"
        path = write(scratch, "nginx.conf", conf)
        return [self.program, "-p", scratch, "-e", os.path.join(scratch, "error.log"), "-c", path]


class Haproxy(System):
    def __init__(self, tuned):
        super().__init__("haproxy_tuned" if tuned else "haproxy", "haproxy", "Debian: haproxy")
        self.tuned = tuned

    def command(self, scratch, port, servers):
        return [self.program, "-db", "-f", write(scratch, "haproxy.cfg", haproxy_cfg(port, servers, self.tuned))]


class Relay(System):
    def __init__(self, program):
        super().__init__("relay", program, "cargo build --release --manifest-path benches/Cargo.toml")

    def command(self, scratch, port, servers):
        mode = ["udp-once" if "proxy_responses 1;" in servers.location else "udp"] if servers.udp else []
        return [self.program, *mode, f"127.0.0.1:{port}", *servers.servers]


def write(scratch, name, text):
    path = os.path.join(scratch, name)
    with open(path, "w") as file:
        file.write(text)
    return path


class Running:
    """A system that answers on 127.0.0.1:`port`."""

    def __init__(self, system, process, port, servers):
        self.system = system
        self.servers = servers
        self.process = process
        self.port = port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.end()

    def pids(self):
        self.process.check()
        return self.process.pids()

    def get(self, path):
        """Status and length of one answer."""
        if self.servers.http2:
            return curl_http2(f"https://127.0.0.1:{self.port}{path}")
        if self.servers.pair:
            any_certificate = ssl.create_default_context()
            any_certificate.check_hostname, any_certificate.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=any_certificate)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, len(answer.read())
        finally:
            connection.close()

    def wait(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.process.check()
            try:
                if self.servers.udp:
                    ask(self.port)
                    return
                status, _ = self.get("/")
                if status == 200:
                    return
                reason = f"answers with {status}"
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() > deadline:
                raise machine.Failure(f"{self.system.name} does not serve: {reason}")
            time.sleep(0.05)


def curl_http2(url):
    """Status and length of one answer over HTTP/2."""
    command = ["curl", "-sk", "--http2", "-m", "10", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", url]
    status, length = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return int(status), int(length)


def ask(port):
    """Sends a datagram and waits for the answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.sendto(b"ready?", ("127.0.0.1", port))
        client.recv(64)
