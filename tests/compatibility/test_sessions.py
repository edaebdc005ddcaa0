"""TCP and UDP sessions with the same configuration, clients and servers for NGINX and Balanza. Clients and servers must receive
the same data, and the logs must be equal."""

import os
import pathlib
import re
import socket
import ssl

import pytest

from support.balancer import STREAM_MODULE, Balancer, binary, children, nginx_says, nginx_version, wait_for
from support.ports import free_port
from support.stream import Session, TcpServer
from support.udp import UdpClient, UdpServer

pytestmark = pytest.mark.skipif(
    not (os.access(binary("nginx"), os.X_OK) and ("--with-stream " in nginx_says() or pathlib.Path(STREAM_MODULE).exists())),
    reason="no NGINX with stream")

#: The session variables of NGINX without further modules, and those of its modules for limits, PROXY protocol and TLS.
VARIABLES = """
binary_remote_addr bytes_received bytes_sent connection hostname limit_conn_status msec nginx_version pid protocol
proxy_protocol_addr proxy_protocol_port proxy_protocol_server_addr proxy_protocol_server_port realip_remote_addr
realip_remote_port remote_addr remote_port server_addr server_port session_time ssl_cipher ssl_preread_alpn_protocols
ssl_preread_protocol ssl_preread_server_name ssl_protocol status time_iso8601 time_local upstream_addr
upstream_bytes_received upstream_bytes_sent upstream_connect_time upstream_first_byte_time upstream_session_time
odd own place share""".split()

#: Variables whose values differ from run to run, and patterns for the values.
TIME = r"(?:-|\d+\.\d{3})(?:, (?:-|\d+\.\d{3}))*"
VARYING = {
    # A process ID may equal one of the ports, which have placeholders by then.
    "connection": r"\d+", "pid": r"\d+|P\d", "msec": r"\d{10}\.\d{3}", "session_time": r"\d+\.\d{3}", "nginx_version": r"[\d.]+",
    "time_iso8601": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", "time_local": r"\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}",
    "upstream_connect_time": TIME, "upstream_first_byte_time": TIME, "upstream_session_time": TIME,
    "remote_port": r"\d+", "realip_remote_port": r"\d+",
}

CONFIGURATION = r"""
worker_processes 1;
events { worker_connections 512; }
http { access_log off; server { listen 127.0.0.1:PORT; return 204; } }
stream {
    log_format plain '%(plain)s';
    log_format json escape=json '{%(json)s}';
    log_format raw escape=none '$odd|$own|$upstream_addr|$ssl_preread_server_name|$bytes_sent';
    access_log logs/plain.log plain; access_log logs/json.log json; access_log logs/raw.log raw;

    map $remote_addr $odd { default "quote\" back\\slash tab\t bell\x07 high\xc3\xa9 del\x7f"; 127.0.0.9 ""; }
    geo $place { default far; 127.0.0.0/30 near; }
    split_clients "$remote_addr" $share { 30%% a; * b; }
    map $ssl_preread_server_name $named { one.test 127.0.0.1:ONE; default 127.0.0.1:TWO; }
    limit_conn_zone $binary_remote_addr zone=clients:64k;
    upstream both { server 127.0.0.1:ONE; server 127.0.0.1:TWO weight=2; }
    upstream keyed { hash $remote_addr consistent; server 127.0.0.1:ONE; server 127.0.0.1:TWO; }
    upstream dead { server 127.0.0.1:NONE max_fails=0; server 127.0.0.1:ONE backup; }
    upstream datagrams { server 127.0.0.1:UONE; server 127.0.0.1:UTWO; }

    server { listen 127.0.0.1:P0; set $own "own \"$remote_addr\""; proxy_pass both; }
    server { listen 127.0.0.1:P1; proxy_pass keyed; proxy_half_close on; proxy_buffer_size 1k; }
    server { listen 127.0.0.1:P2; proxy_pass dead; }
    server { listen 127.0.0.1:P3; proxy_pass 127.0.0.1:NONE; }
    server { listen 127.0.0.1:P4; allow 127.0.0.1; deny all; return "$remote_addr $protocol $place $share\n"; }
    server { listen 127.0.0.1:P5 proxy_protocol; set_real_ip_from 127.0.0.0/8; proxy_protocol on; proxy_pass 127.0.0.1:ONE; }
    server { listen 127.0.0.1:P6; ssl_preread on; proxy_pass $named; }
    server { listen 127.0.0.1:P7; limit_conn clients 1; proxy_pass 127.0.0.1:ONE; }
    server { listen 127.0.0.1:P8; proxy_bind 127.0.0.44; proxy_timeout 3s; proxy_pass 127.0.0.1:ONE; }
    server { listen 127.0.0.1:P0 udp; proxy_pass datagrams; proxy_responses 1; }
    server { listen 127.0.0.1:P1 udp; proxy_pass 127.0.0.1:UONE; proxy_responses 0; proxy_timeout 200ms; }
    server { listen 127.0.0.1:P2 udp; proxy_pass datagrams; proxy_requests 2; proxy_responses 1; proxy_protocol on; }
    server { listen 127.0.0.1:P4 udp; allow 127.0.0.1; deny all; return "$remote_addr $protocol"; }
}
""" % {"plain": "~".join(f"${name}" for name in VARIABLES),
       "json": ",".join(f'"{name}":"${name}"' for name in VARIABLES)}


class Servers:
    """The servers of both programs, which run one after the other."""

    def __init__(self):
        self.got = []
        self.tcp = [TcpServer(handle=lambda sock, name=name: self.serve(name, sock)) for name in (b"one", b"two")]
        self.udp = [UdpServer(name, handle=lambda data, name=name: self.answer(name.encode(), data)) for name in ("uone", "utwo")]
        self.ports = {"UONE": self.udp[0].port, "UTWO": self.udp[1].port, "ONE": self.tcp[0].port, "TWO": self.tcp[1].port,
                      "NONE": free_port()}

    def serve(self, name, sock):
        """Sends its name, echoes the data until the client ends, and then reports the end."""
        sock.sendall(name + b"\n")
        took = b""
        while data := sock.recv(65536):
            took += data
            sock.sendall(data)
        self.got.append((name, sock.getpeername()[0], without_ports(took)))
        sock.sendall(b"end")

    def answer(self, name, data):
        self.got.append((name, without_ports(data)))
        return [name + b":" + without_ports(data)]

    def stop(self):
        for server in [*self.tcp, *self.udp]:
            server.stop()


def without_ports(data):
    """Masks the ports in a PROXY protocol header, because they differ."""
    return re.sub(rb"^(PROXY TCP4 \S+ \S+) \d+ \d+\r\n", rb"\1 PORT PORT\r\n", data)


class Program:
    """NGINX or Balanza, with its own ports."""

    def __init__(self, kind, servers):
        self.ports = {f"P{number}": free_port() for number in range(9)}
        text = re.sub(r"\b(?:P\d|UONE|UTWO|ONE|TWO|NONE)\b", lambda found: str({**servers.ports, **self.ports}[found[0]]),
                      CONFIGURATION)
        self.one = Balancer(text=text, kind=kind)
        wait_for(lambda: children(self.one.pid), what="a worker")
        self.logged = 0

    def connect(self, number, source="127.0.0.1"):
        return Session(self.ports[f"P{number}"], source)

    def datagrams(self, number, source="127.0.0.1"):
        return UdpClient(self.ports[f"P{number}"], source)

    def lines(self, count):
        """This many new lines of each log, with placeholders for values that differ from run to run. They are sorted: a session
        is logged when its program has seen the end of both sides, which may be after the next one."""
        self.logged += count
        logs = [self.one.wait_log(self.logged, f"{name}.log") for name in ("plain", "json", "raw")]
        assert [len(log) for log in logs] == [self.logged] * 3
        plain, json, raw = ([self.same(line) for line in log[-count:]] for log in logs)
        plain = [self.fields(line.split("~")) for line in plain]
        json = [self.fields(re.findall(r'"\w+":"((?:[^"\\]|\\.)*)"', line)) for line in json]
        return sorted(plain, key=str), sorted(json, key=str), sorted(raw)

    def same(self, line):
        names = {str(port): name for name, port in self.ports.items()}
        return re.sub(r"\b\d{4,5}\b", lambda found: names.get(found[0], found[0]), line)

    @staticmethod
    def fields(values):
        assert len(values) == len(VARIABLES), values
        return {name: re.sub(r"P\d|\d+(?:\.\d+)*", "N", value) if name in VARYING and re.fullmatch(VARYING[name], value) else value
                for name, value in zip(VARIABLES, values)}


def hello(name):
    """A ClientHello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello("one.test")


def echo(program, number, data=b"hello", **options):
    """A session that sends data, receives it back and ends."""
    with program.connect(number, **options) as session:
        first = session.line()
        session.send(data)
        return first, session.exactly(len(data))


def early(program, number, data):
    """Everything that a client receives if it sends before its server does, and then ends its side."""
    with program.connect(number) as session:
        session.send(data)
        session.end()
        return session.rest()


def reading(program, number, data=b"", source="127.0.0.1"):
    """Everything that a client receives if it does not end its side."""
    with program.connect(number, source) as session:
        if data:
            session.send(data)
        return session.rest()


def reading_a_line(program, number):
    """A client that reads a line and closes the connection."""
    with program.connect(number) as session:
        return session.line()


def limited(program):
    with program.connect(7) as first:
        name = first.line()
        refused = reading(program, 7)
        return name, refused


def asked(program, number, *datagrams, source="127.0.0.1"):
    with program.datagrams(number, source) as client:
        return [client.ask(data) for data in datagrams]


def told(program, number, *datagrams):
    with program.datagrams(number) as client:
        for data in datagrams:
            client.send(data)


V2 = (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.8") + b"\x10\0\x20\0")

def denied(program):
    with program.datagrams(4, "127.0.0.2") as client:
        client.send(b"?")
        return client.receive(0.2)


def echo_behind(program, header):
    with program.connect(5) as session:
        session.send(header + b"hello")
        first = session.line()
        # The server echoes the header too.
        return first, without_ports(session.line() + b"\n"), session.exactly(5)


def echo_hello(program, data):
    with program.connect(6) as session:
        session.send(data)
        return session.line(), session.exactly(len(data))


#: What clients do, how many sessions that makes, and how often servers receive something.
CONVERSATIONS = {
    "turns": (lambda program: [echo(program, 0) for _ in range(6)], 6, 6),
    "a large piece": (lambda program: echo(program, 0, b"x" * 300_000), 1, 1),
    "nothing": (lambda program: reading_a_line(program, 0), 1, 1),
    "key": (lambda program: [echo(program, 1, source=f"127.0.0.{last}") for last in (1, 2, 3, 9)], 4, 4),
    "half close": (lambda program: early(program, 1, b"half" * 1000), 1, 1),
    "backup": (lambda program: echo(program, 2), 1, 1),
    "refused": (lambda program: reading(program, 3, b"early"), 1, 0),
    "return": (lambda program: reading(program, 4), 1, 0),
    "deny": (lambda program: reading(program, 4, source="127.0.0.2"), 1, 0),
    "PROXY 1": (lambda program: echo_behind(program, b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 2222\r\n"), 1, 1),
    "PROXY 2": (lambda program: echo_behind(program, V2), 1, 1),
    "no PROXY": (lambda program: reading(program, 5, b"GET / HTTP/1.0\r\n\r\n"), 1, 0),
    "name": (lambda program: echo_hello(program, HELLO), 1, 1),
    "no name": (lambda program: echo_hello(program, b"no TLS at all"), 1, 1),
    "limit": (limited, 2, 1),
    "idle": (lambda program: reading(program, 8), 1, 1),
    "datagrams": (lambda program: asked(program, 0, b"a", b"bb", b"ccc"), 3, 3),
    "no answers": (lambda program: told(program, 1, b"<13>message"), 1, 1),
    "requests": (lambda program: asked(program, 2, b"1", b"2", b"3", b"4"), 2, 4),
    "return to datagrams": (lambda program: asked(program, 4, b"?"), 1, 0),
    "deny datagrams": (denied, 1, 0),
}


#: NGINX 1.22 does not count the bytes that `ssl_preread` has read, newer ones do.
READ_AHEAD = {"name": len(HELLO), "no name": len(b"no TLS at all")} if nginx_version() < (1, 25, 5) else {}


def differences(name, servers, programs):
    """The differences between both programs in a conversation."""
    act, sessions, arrivals = CONVERSATIONS[name]
    seen = []
    for program in programs:
        servers.got.clear()
        got = {"client": act(program)}
        got |= zip(("default", "json", "none"), program.lines(sessions), strict=True)
        wait_for(lambda: len(servers.got) >= arrivals, what=f"what servers get of {name}")
        got["servers"] = sorted(servers.got)
        seen.append(got)
    nginx, balanza = seen
    if name in READ_AHEAD:
        for form in ("default", "json"):
            assert [one.pop("bytes_received") for one in nginx[form]] == ["0"]
            assert [one.pop("bytes_received") for one in balanza[form]] == [str(READ_AHEAD[name])]
    for what in nginx:
        if nginx[what] != balanza[what]:
            yield (f"{name}, {what}:\n    NGINX   {short(nginx[what], balanza[what])}\n"
                   f"    Balanza {short(balanza[what], nginx[what])}")


def short(value, other):
    """A short form for the report. For lists of fields, only those that differ from the other list."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [{key: one[key] for key in one if one[key] != its[key]} for one, its in zip(value, other)]
    return repr(value)[:300]


def test_same_sessions():
    servers = Servers()
    try:
        programs = [Program(kind, servers) for kind in ("nginx", "balanza")]
        found = [one for name in CONVERSATIONS for one in differences(name, servers, programs)]
    finally:
        servers.stop()
    assert not found, "\n".join(found)
