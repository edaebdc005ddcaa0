"""What is measured: the scenarios, and the budgets their results are held to."""

from dataclasses import dataclass, field

MANY = 10_000
FEW = 3
IDLE = 9_000

DEFAULTS = ("balanza", "nginx", "haproxy", "relay")
# Another build of Balanza.
BEFORE = "before"
TUNED = ("balanza", "nginx_tuned", "haproxy_tuned")


@dataclass(frozen=True)
class Subject:
    """One running system in a scenario; `key` names its results."""

    key: str
    system: str
    servers: int = FEW


@dataclass(frozen=True)
class Scenario:
    """A load. With `close` each request comes on a new client connection; with `origin_closes` each opens a new one to
    a server, so that a few servers and many differ in nothing but the choice among them. `logged`: with an access log, as
    NGINX has by default. `tls`: clients speak TLS with a server whose key is of this kind. `client`: the program that sends
    requests in pairs. `stream`: connections are relayed, not requests. `http` and `location`: lines of nginx.conf, those of
    `location` in the server with `stream`. `servers_tls`: the balancer speaks TLS with the servers."""

    name: str
    title: str
    subjects: tuple
    path: str = "/"
    close: bool = False
    origin_closes: bool = False
    algorithm: str = ""
    many_uris: bool = False
    body: int = 200
    logged: bool = False
    tls: str = ""
    client: str = "ab"
    http: str = ""
    location: str = ""
    servers_tls: bool = False
    stream: bool = False

    @property
    def scheme(self):
        return "https" if self.tls else "http"

    @property
    def http2(self):
        return self.client == "h2load"

    @property
    def udp(self):
        return self.client in ("datagrams", "bulk")

    @property
    def only_in_pairs(self):
        """Whether `wrk` cannot send it."""
        return self.client != "ab"


@dataclass(frozen=True)
class Budget:
    """`subject` costs at most `limit` times what `reference` costs in `scenario`."""

    scenario: str
    subject: str
    reference: str
    limit: float
    field: str = field(default="total")


def sizes(name, title, **load):
    systems = [*DEFAULTS, *(name for name in TUNED if name not in DEFAULTS), BEFORE]
    return Scenario(name, title, tuple(Subject(system, system) for system in systems), **load)


def encrypted(name, title, tls="ecdsa", **load):
    subjects = tuple(Subject(system, system) for system in ("balanza", "nginx", "haproxy", BEFORE))
    return Scenario(name, title, subjects, tls=tls, **load)


def logged(name, title, **load):
    return Scenario(name, title, (Subject("balanza", "balanza"), Subject("nginx", "nginx")), logged=True, **load)


def beside(name, title, *others, servers=FEW, **load):
    """A load that some of the systems know."""
    systems = ("balanza", *others, BEFORE)
    return Scenario(name, title, tuple(Subject(system, system, servers) for system in systems), **load)


def many(name, title, algorithm):
    subjects = (Subject(f"{system} n={count}", system, count) for system in ("balanza", "nginx") for count in (FEW, MANY))
    return Scenario(
        f"many_servers_{name}", title, tuple(subjects), algorithm=algorithm, origin_closes=True, many_uris=True
    )


LOADS = (
    sizes("keepalive_200", "200 B, connections kept"),
    sizes("body_16k", "16 KiB, connections kept", path="/16k", body=16 * 1024),
    logged("logged_200", "200 B, connections kept, access log"),
    logged("logged_16k", "16 KiB, connections kept, access log", path="/16k", body=16 * 1024),
    logged("logged_new", "200 B, a new client connection each, access log", close=True),
    sizes("body_1m", "1 MiB, connections kept", path="/1m", body=1024 * 1024),
    sizes("new_connection", "200 B, a new client connection each", close=True),
    encrypted("tls_200", "200 B, TLS 1.3, connections kept"),
    encrypted("tls_16k", "16 KiB, TLS 1.3, connections kept", path="/16k", body=16 * 1024),
    encrypted("tls_1m", "1 MiB, TLS 1.3, connections kept", path="/1m", body=1024 * 1024),
    encrypted("tls_new_ecdsa", "200 B, a full handshake each, ECDSA P-256", close=True),
    encrypted("tls_new_rsa", "200 B, a full handshake each, RSA-2048", "rsa", close=True),
    encrypted("tls_resumed", "200 B, a resumed TLS 1.3 session each", client="s_time", close=True),
    encrypted("h2_200", "200 B, HTTP/2 over TLS, 100 streams on each of 16 connections", client="h2load"),
    encrypted("h2_16k", "16 KiB, HTTP/2 over TLS, 100 streams on each of 16 connections", client="h2load", path="/16k", body=16 * 1024),
    beside("upstream_tls_200", "200 B, TLS 1.3 to servers", "nginx", "haproxy", servers_tls=True),
    beside("upstream_tls_16k", "16 KiB, TLS 1.3 to servers", "nginx", "haproxy", servers_tls=True, path="/16k", body=16 * 1024),
    beside("gzip_16k", "16 KiB of text, compressed by gzip", "nginx", path="/text", body=16 * 1024, http="gzip on;", client="gzip"),
    beside(
        "limit_req_200", "200 B, limit_req", "nginx",
        http="limit_req_zone $binary_remote_addr zone=one:10m rate=100000r/s;", location="limit_req zone=one burst=100000 nodelay;",
    ),
    beside("rewrite_200", "200 B, rewrite", "nginx", location="rewrite ^/(.*)$ /rewritten/$1 break;"),
    beside("counted_200", "200 B, status_zone", location="status_zone pages;"),
    beside("stream_new", "TCP: a connection with 200 B", "nginx", "haproxy", "relay", stream=True, close=True, origin_closes=True),
    beside("stream_1m", "TCP: 1 MiB at a time", "nginx", "haproxy", stream=True, path="/1m", body=1024 * 1024),
    beside(
        "udp_once", "UDP: a datagram there and back, a session each", "nginx", "relay",
        servers=1, stream=True, client="datagrams", location="proxy_responses 1;",
    ),
    beside("udp_kept", "UDP: a datagram there and back, sessions kept", "nginx", "relay", servers=1, stream=True, client="datagrams"),
    beside("udp_bulk", "UDP: runs of 32 datagrams of 1,200 B", "nginx", servers=1, stream=True, client="bulk"),
    many("round_robin", "round robin", ""),
    many("least_conn", "least_conn", "least_conn;"),
    many("hash", "hash $request_uri consistent", "hash $request_uri consistent;"),
)

IDLE_NAME = f"idle_{IDLE}"
IDLE_TITLE = f"200 B, beside {IDLE} idle connections"
IDLE_SYSTEMS = ("balanza", "nginx", "haproxy")
IDLE_OVER_NGINX_BYTES = 2048
IDLE_BYTES_MAX = 3072

BUDGETS = (
    Budget("keepalive_200", "balanza", "nginx", 0.72),
    Budget("keepalive_200", "balanza", "haproxy", 0.78),
    Budget("keepalive_200", "balanza", "relay", 1.20),
    Budget("body_16k", "balanza", "nginx", 0.60),
    Budget("logged_200", "balanza", "nginx", 0.72),
    Budget("logged_16k", "balanza", "nginx", 0.60),
    Budget("logged_new", "balanza", "nginx", 0.85),
    Budget("body_1m", "balanza", "nginx", 0.35),
    Budget("body_1m", "balanza", "haproxy_tuned", 0.80),
    Budget("new_connection", "balanza", "nginx", 0.85),
    *(
        Budget(f"many_servers_{name}", f"balanza n={MANY}", f"balanza n={FEW}", 1.15)
        for name in ("round_robin", "least_conn", "hash")
    ),
    Budget(IDLE_NAME, "balanza", "haproxy", 1.0, "p99_us"),
)


def names():
    return [*(load.name for load in LOADS), IDLE_NAME]


def select(only):
    """The names that begin with one of `only`; all of them without any."""
    return [name for name in names() if not only or any(name.startswith(prefix) for prefix in only)]
