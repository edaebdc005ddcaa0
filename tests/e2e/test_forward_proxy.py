"""`tunnel_pass`: CONNECT, with curl and with raw clients."""

import base64
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

import pytest

from support.balancer import wait_for
from support.certificates import authority, certificate
from support.client import Client
from support.dns import NameServer
from support.expect import balanza_only
from support.origin import Origin
from support.ports import free_port
from support.stream import TcpServer

pytestmark = balanza_only("NGINX has CONNECT since 1.31")
curl = pytest.mark.skipif(not shutil.which("curl"), reason="no curl")


def forward(location="tunnel_pass;", *, http="", server=""):
    return ("log_format s '$request|$status|$upstream_addr|$upstream_status|$upstream_bytes_received|"
            f"$upstream_bytes_sent|$request_port|$uri|$remote_user'; {http} server {{ listen 127.0.0.1:PORT;"
            f" access_log logs/access.log s; {server} location / {{ {location} }} }}")


def open_tunnel(port, target, *, fields="", behind=b"", method="CONNECT", version="HTTP/1.1"):
    client = Client(port)
    client.send(f"{method} {target} {version}\r\nHost: other.example:1\r\n{fields}\r\n".encode() + behind)
    head = client.reader.until(b"\r\n\r\n")
    return client, head.split(b"\r\n")[0].decode(), head


def status(*arguments, **options):
    client, line, _ = open_tunnel(*arguments, **options)
    client.close()
    return int(line.split()[1])


def run_curl(port, *arguments):
    result = subprocess.run(["curl", "-sS", "--noproxy", "", "-m", "20", "-x", f"http://127.0.0.1:{port}", *arguments],
                            capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stderr
    return result.stdout


@curl
def test_curl_to_plain_and_encrypted_servers(balancer):
    one = balancer(forward())
    plain = Origin("plain\n")
    assert run_curl(one.port, "-p", f"http://127.0.0.1:{plain.port}/") == "plain\n"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate("secret.test").certificate, certificate("secret.test").key)
    secret = Origin("secret\n", tls=tls)
    names = NameServer({"secret.test": ["127.0.0.1"]})
    with names:
        one = balancer(forward(server=f"resolver {names.address} ipv6=off;"))
        url = f"https://secret.test:{secret.port}/"
        assert run_curl(one.port, "--cacert", str(authority().certificate), url) == "secret\n"
        assert names.asked("secret.test")
    assert secret.count == 1


def test_bytes_behind_the_head_and_the_log(balancer):
    server = TcpServer("hello")
    one = balancer(forward())
    client, line, head = open_tunnel(one.port, server.server, behind=b"early ")
    with client:
        assert line == "HTTP/1.1 200 Connection Established"
        assert b"content-length" not in head.lower() and b"transfer-encoding" not in head.lower()
        assert client.reader.exactly(12) == b"hello\nearly "
        payload = bytes(range(256)) * 4000
        client.send(payload)
        assert client.reader.exactly(len(payload)) == payload
        client.finish()
        assert client.rest() == b""
    sent = len(payload) + 6
    assert one.wait_log()[0] == (f"CONNECT {server.server} HTTP/1.1|200|{server.server}|200|{sent + 6}|{sent}|"
                                 f"{server.port}|/|-")


def test_half_closed_tunnels_carry_the_rest(balancer):
    def handle(sock):
        total = 0
        while data := sock.recv(65536):
            total += len(data)
        sock.sendall(b"%d bytes" % total)

    server = TcpServer(handle=handle)
    client, _, _ = open_tunnel(balancer(forward()).port, server.server)
    with client:
        client.send(b"x" * 100_000)
        client.finish()
        assert client.rest() == b"100000 bytes"


def test_servers_that_are_not_there(balancer):
    one = balancer(forward())
    assert status(one.port, f"127.0.0.1:{free_port()}") == 502
    assert "connect() failed (111: Connection refused) while connecting to upstream" in one.error_log()
    assert status(one.port, "name.example:80") == 502
    assert "no resolver defined to resolve name.example" in one.error_log()


def test_connect_timeout(balancer):
    # A full backlog answers no more.
    listener = socket.socket()
    listener.bind(("127.0.0.1", free_port()))
    listener.listen(0)
    port = listener.getsockname()[1]
    filling = [socket.socket() for _ in range(4)]
    for sock in filling:
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
    one = balancer(forward("tunnel_pass; tunnel_connect_timeout 300ms;"))
    assert status(one.port, f"127.0.0.1:{port}") == 504
    assert f"|504|127.0.0.1:{port}|504|" in one.wait_log()[0]


def test_idle_tunnels_end(balancer):
    # A server that says nothing: a greeting could come too late.
    server = TcpServer()
    one = balancer(forward("tunnel_pass; tunnel_read_timeout 2s;"))
    begun = time.monotonic()
    client, line, _ = open_tunnel(one.port, server.server)
    with client:
        assert line == "HTTP/1.1 200 Connection Established" and client.rest() == b""
    assert time.monotonic() - begun > 1.5


def test_a_group_with_a_dead_server(balancer):
    one, two = TcpServer("1"), TcpServer("2")
    dead = free_port()
    group = (f"upstream group {{ least_conn; server 127.0.0.1:{dead}; server {one.server}; server {two.server}; }}")
    b = balancer(forward("tunnel_pass group;", http=group))
    clients = [open_tunnel(b.port, "any.example:1")[0] for _ in range(4)]
    # Each server has half of those that are open.
    assert sorted(client.reader.exactly(2) for client in clients) == [b"1\n", b"1\n", b"2\n", b"2\n"]
    for client in clients:
        client.close()
    lines = [line.split("|") for line in b.wait_log(4)]
    assert sum(f"127.0.0.1:{dead}, " in line[2] and line[3] == "502, 200" for line in lines) == 1
    off = balancer(forward("tunnel_pass group; tunnel_next_upstream off;", http=group.replace("least_conn;", "")))
    assert sorted(status(off.port, "any.example:1") for _ in range(3)) == [200, 200, 502]


@pytest.fixture
def shared_directory():
    """A directory that the account of the workers may enter."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        path.chmod(0o755)
        yield path


def test_targets_of_other_kinds(balancer, shared_directory):
    fixed, unix = TcpServer("fixed"), TcpServer("unix", path=shared_directory / "socket")
    b = balancer(forward("tunnel_pass $http_x_target;"))
    for target, greeting in [(fixed.server, b"fixed\n"), (f"unix:{unix.path}", b"unix\n")]:
        client, _, _ = open_tunnel(b.port, "any.example:1", fields=f"X-Target: {target}\r\n")
        with client:
            assert client.reader.exactly(len(greeting)) == greeting
    for target in ["", "127.0.0.1", "name", "a/b:1", "127.0.0.1:0", "a:b"]:
        assert status(b.port, "any.example:1", fields=f"X-Target: {target}\r\n") == 500, target
    # No connection to it is open from before.
    bound = TcpServer("bound")
    b = balancer(forward(f"tunnel_pass {bound.server}; tunnel_bind 127.0.0.9; tunnel_buffer_size 1k;"
                         " tunnel_socket_keepalive on; tunnel_socket_rcvbuf 64k; tunnel_socket_sndbuf 64k;"))
    client, _, _ = open_tunnel(b.port, "any.example:1")
    with client:
        assert client.reader.exactly(6) == b"bound\n"
        with bound.lock:
            assert {sock.getpeername()[0] for sock in bound.open} == {"127.0.0.9"}
        client.send(b"y" * 10_000)
        assert client.reader.exactly(10_000) == b"y" * 10_000


def test_only_what_opens_tunnels_takes_connect(balancer):
    server = TcpServer("hello")
    one = balancer(forward("tunnel_pass; if ($request_method != CONNECT) { return 204; }",
                           server="location /tunnel { tunnel_pass; } location /ok { return 200 ok; }"))
    with Client(one.port) as client:
        assert [client.get(target).status for target in ("/", "/tunnel", "/ok")] == [204, 405, 200]
    assert status(one.port, server.server) == 200
    wait_for(lambda: server.count == 1)
    # NGINX's rule: only HTTP/1.1 has tunnels.
    assert status(one.port, server.server, version="HTTP/1.0") == 405
    for location in ["return 200 ok;", "root /nowhere;", f"proxy_pass http://{server.server};"]:
        before = server.count
        other = balancer(forward(location))
        assert status(other.port, server.server, behind=b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n") == 405
        # Another location of the same server opens tunnels.
        other = balancer(forward(location, server="location /tunnel { tunnel_pass; }"))
        client, line, _ = open_tunnel(other.port, server.server, behind=b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        assert int(line.split()[1]) in (405, 502) and client.rest().count(b"HTTP/1.1") == 0
        assert server.count == before and len(other.wait_log(1)) == 1


@pytest.mark.parametrize("fields", ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"])
def test_a_connect_with_a_body_is_refused(balancer, fields):
    server = TcpServer("hello")
    assert status(balancer(forward()).port, server.server, fields=fields, behind=b"5\r\nhello\r\n0\r\n\r\n") == 400
    assert server.count == 0


def test_maps_restrict_targets(balancer):
    server = TcpServer("hello")
    maps = f"map $request_port $port_allowed {{ {server.port} 1; }} map $host $host_allowed {{ hostnames; 127.0.0.1 1; }}"
    rules = "if ($port_allowed != 1) { return 403; } if ($host_allowed != 1) { return 403; } tunnel_pass;"
    one = balancer(f"{maps} server {{ listen 127.0.0.1:PORT; {rules} }}")
    targets = [server.server, "127.0.0.1:1", f"127.0.0.2:{server.port}", f"localhost:{server.port}"]
    assert [status(one.port, target) for target in targets] == [200, 403, 403, 403]
    wait_for(lambda: server.count == 1)


def test_passwords(balancer):
    server = TcpServer("hello")
    one = balancer(forward("auth_basic proxy; auth_basic_user_file users; tunnel_pass;"), start=False)
    (one.dir / "users").write_text("ann:{PLAIN}secret\n")
    one.start()

    def authorize(field, password):
        return f"{field}: Basic {base64.b64encode(b'ann:' + password).decode()}\r\n"

    for fields in ["", authorize("Proxy-Authorization", b"wrong"), authorize("Authorization", b"secret")]:
        client, line, head = open_tunnel(one.port, server.server, fields=fields)
        client.close()
        assert line == "HTTP/1.1 407 Proxy Authentication Required"
        assert b'\r\nProxy-Authenticate: Basic realm="proxy"\r\n' in head and b"WWW-Authenticate" not in head
    assert server.count == 0
    assert status(one.port, server.server, fields=authorize("Proxy-Authorization", b"secret")) == 200
    assert one.wait_log(4)[-1].endswith("|ann")


def test_what_a_tunnel_does_not_have(balancer):
    for directive, reason in [("tunnel_next_upstream http_502;", "one of error, timeout, denied, off"),
                              ("tunnel_pass http://a:1;", "a tunnel has no URL")]:
        text = forward(directive).replace("PORT", "1")
        result = balancer(text, start=False).test_config()
        assert result.returncode == 1 and reason in result.stderr, (directive, result.stderr)
