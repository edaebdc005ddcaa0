"""`balanza migrate haproxy.cfg`: HAProxy and Balanza with the result get the same requests, and answer the same."""

import collections
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess

import pytest

from support.balancer import Balancer, binary, wait_for
from support.certificates import authority, certificate
from support.client import Client
from support.expect import balanza_only
from support.origin import answer
from support.ports import free_port

pytestmark = [balanza_only("from HAProxy to Balanza"),
              pytest.mark.skipif(not shutil.which("haproxy"), reason="needs HAProxy")]

# Those of a request that servers repeat.
FIELDS = ("X-Set", "X-Gone", "X-User", "X-Proto", "X-Forwarded-For", "Host")
DEFAULTS = """
global
    maxconn 1000
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
"""


def migrate(path, code=0):
    done = subprocess.run([binary("balanza"), "migrate", path, "--json"], capture_output=True, text=True, timeout=60)
    value = json.loads(done.stdout)
    assert done.returncode == code, (value["notes"], value["errors"], value["text"])
    return value


class Pair:
    """HAProxy and Balanza with one configuration. FRONT is the port of the frontend."""

    def __init__(self, directory, text, code=0):
        self.ports = {"haproxy": free_port(), "balanza": free_port()}
        config = directory / "haproxy.cfg"
        config.write_text(text.replace("FRONT", str(self.ports["haproxy"])))
        self.haproxy = subprocess.Popen([shutil.which("haproxy"), "-db", "-q", "-f", config], stdin=subprocess.DEVNULL)
        self.value = migrate(config, code)
        text = self.value["text"].replace(f":{self.ports['haproxy']}", f":{self.ports['balanza']}")
        self.balanza = Balancer(text=text, port=self.ports["balanza"])
        wait_for(lambda: self._answers("haproxy"), what="HAProxy")

    def _answers(self, name):
        try:
            with Client(self.ports[name]):
                return True
        except OSError:
            return False

    def stop(self):
        self.haproxy.terminate()
        self.haproxy.wait(30)

    def both(self, target="/", *, method="GET", host="example.test", headers=()):
        """Status, body and some fields of both answers."""
        found = []
        for name in ("haproxy", "balanza"):
            with Client(self.ports[name]) as client:
                response = client.get(target, method, host=host, headers=headers)
                # Their own pages have their own words.
                body = response.text if response.status == 200 else ""
                found.append((response.status, body, response["Location"], response["X-Added"]))
        return found

    def same(self, target="/", **request):
        haproxy, balanza = self.both(target, **request)
        assert haproxy == balanza, (target, request, self.value["text"])
        return balanza

    def counts(self, count, **request):
        """How often each server answers, for both."""
        answers = [self.both(**request) for _ in range(count)]
        return [collections.Counter(one[side][1] for one in answers) for side in (0, 1)]


@pytest.fixture
def pair(tmp_path):
    started = []

    def start(text, code=0):
        started.append(Pair(tmp_path, text, code))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def servers(origin):
    """Servers that answer with their name and some fields of the request."""
    def start(*names):
        def handler(name):
            def handle(request, _connection):
                fields = "|".join(f"{key}={request[key]}" for key in FIELDS if request[key])
                return answer(f"{name} {request.start.split()[1]} {fields}", headers=[("X-Added", "server")])
            return handle
        return [origin(handler(name)) for name in names]
    return start


def test_backends_by_conditions(pair, servers):
    api, files, app, admin = servers("api", "files", "app", "admin")
    one = pair(DEFAULTS + f"""
frontend web
    bind 127.0.0.1:FRONT
    acl is_api path_beg /api /v2/
    acl is_file path_end -i .jpg .css
    acl is_admin hdr(host) -i admin.test
    acl local src 127.0.0.0/8
    acl old path_reg ^/old/[0-9]+$
    use_backend admin if is_admin local
    use_backend api if is_api !is_file or {{ method PUT }}
    use_backend files if is_file
    use_backend api if old
    default_backend app
backend api
    server a 127.0.0.1:{api.port}
backend files
    server a 127.0.0.1:{files.port}
backend app
    server a 127.0.0.1:{app.port}
backend admin
    timeout server 10s
    server a 127.0.0.1:{admin.port}
""")
    seen = set()
    for target in ("/", "/api", "/api/x?y=1", "/apix", "/API", "/v2/", "/v2", "/a.jpg", "/a.JPG?x", "/api/a.css", "/x?a.css", "/old/12",
                   "/old/x", "/a%20b.css"):
        for method in ("GET", "PUT"):
            for host in ("example.test", "admin.test", "ADMIN.test", "xadmin.test"):
                seen.add(one.same(target, method=method, host=host)[1].split()[0])
    assert seen == {"api", "files", "app", "admin"}


def test_rules(pair, servers):
    [app] = servers("app")
    one = pair(DEFAULTS + f"""
frontend web
    bind 127.0.0.1:FRONT
    acl secret path_beg /secret
    http-request deny if secret
    http-request deny deny_status 429 if {{ hdr(X-Bad) -m found }}
    http-request redirect scheme https code 301 if {{ path /secure }}
    http-request redirect location /new code 307 if {{ path_beg /old }}
    http-request redirect prefix https://other.test if {{ hdr(host) -i moved.test }}
    http-request return status 200 content-type text/plain string pong if {{ path /ping }}
    http-request set-header X-Set %[req.hdr(X-Give)]
    http-request del-header X-Gone
    http-request set-header X-Set api unless {{ hdr(X-Give) -m found }}
    http-response set-header X-Added balancer
    default_backend app
backend app
    server a 127.0.0.1:{app.port}
""")
    for target in ("/", "/secret/x", "/secure?a=1", "/old/x", "/ping", "/x"):
        one.same(target)
    one.same("/", headers=[("X-Bad", "1")])
    one.same("/p?q=1", host="moved.test")
    assert one.same("/secret")[0] == 403 and one.same("/secure")[2] == "https://example.test/secure"
    assert "X-Gone" not in one.same("/", headers=[("X-Gone", "1")])[1]


def test_a_client_cannot_send_what_a_rule_sets(pair, servers):
    """A field that is removed, or has a value, keeps that if the condition of a later rule does not hold."""
    [app] = servers("app")
    one = pair(DEFAULTS + f"""
frontend app
    bind 127.0.0.1:FRONT
    option forwardfor
    acl known hdr(X-Key) secret
    http-request del-header X-User
    http-request del-header X-Forwarded-For
    http-request set-header X-Proto http
    http-request set-header X-Proto https if known
    http-request set-header Host other.test if {{ path /other }}
    http-request set-header X-Set kept if known
    default_backend app
backend app
    acl known path /known
    http-request set-header X-User owner if known
    http-request deny if known {{ method PUT }}
    server a 127.0.0.1:{app.port}
""")
    false = [(name, "spoofed") for name in ("X-User", "X-Proto", "X-Set", "X-Forwarded-For")]
    for target in ("/", "/known", "/other"):
        for key in ([], [("X-Key", "secret")], [("X-Key", "other")], [("X-Key", "other, secret")],
                    [("X-Key", "other"), ("X-Key", "secret")], [("X-Key", "secret2,other")]):
            body = one.same(target, headers=false + key)[1]
            assert "X-User=spoofed" not in body and "X-Proto=spoofed" not in body and "X-Forwarded-For=127.0.0.1" in body
            one.same(target, headers=key)
    assert one.same("/known", method="PUT")[0] == 403
    assert one.same("/", method="PUT", headers=[("X-Key", "secret")])[0] == 200


@pytest.mark.parametrize("name, sni, statuses", [
    ("app.test", "sni str(app.test)", (200, 200)),
    ("app.test", "verifyhost app.test", (200, 200)),
    ("other.test", "sni str(app.test)", (503, 502)),
    ("other.test", "sni str(app.test) verify none", (200, 200)),
])
def test_tls_to_servers(pair, origin, name, sni, statuses):
    """Without `verify` a certificate that has another name is refused."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate(name).certificate, certificate(name).key)
    app = origin("app\n", tls=tls)
    one = pair(DEFAULTS + f"""
listen app
    bind 127.0.0.1:FRONT
    retries 0
    server a 127.0.0.1:{app.port} ssl ca-file {authority().certificate} {sni}
""")
    assert tuple(found[0] for found in one.both()) == statuses, one.value["text"]


def test_addresses_of_the_proxy_protocol(pair, servers):
    """Conditions and fields have the address that the balancer before tells."""
    [app] = servers("app")
    one = pair(DEFAULTS + f"""
listen app
    bind 127.0.0.1:FRONT accept-proxy
    http-request deny if {{ src 192.0.2.0/24 }}
    http-request set-header X-User %[src]
    server a 127.0.0.1:{app.port}
""")
    for name in ("haproxy", "balanza"):
        for source, status in (("192.0.2.1", 403), ("198.51.100.1", 200)):
            with Client(one.ports[name]) as client:
                client.send(f"PROXY TCP4 {source} 203.0.113.7 4711 80\r\n".encode())
                response = client.get()
                assert response.status == status, (name, source)
                assert status == 403 or f"X-User={source}" in response.text, (name, response.text)


def test_weights(pair, servers):
    a, b, c = servers("a", "b", "c")
    one = pair(DEFAULTS + f"""
listen app
    bind 127.0.0.1:FRONT
    balance roundrobin
    server a 127.0.0.1:{a.port} weight 3
    server b 127.0.0.1:{b.port} weight 1
    server c 127.0.0.1:{c.port} weight 2 disabled
""")
    haproxy, balanza = one.counts(40, host="x")
    assert haproxy == balanza == {"a / Host=x": 30, "b / Host=x": 10}


@pytest.mark.parametrize("algorithm", ["static-rr", "leastconn", "first"])
def test_algorithms_without_a_key(pair, servers, algorithm):
    a, b = servers("a", "b")
    one = pair(DEFAULTS + f"""
backend app
    balance {algorithm}
    server a 127.0.0.1:{a.port}
    server b 127.0.0.1:{b.port}
frontend web
    bind 127.0.0.1:FRONT
    default_backend app
""")
    haproxy, balanza = one.counts(20, host="x")
    assert haproxy == balanza, (haproxy, balanza)


@pytest.mark.parametrize("algorithm, targets, headers", [
    ("source", ["/"], [()]),
    ("uri", ["/a", "/a?b", "/c"], [()]),
    ("url_param user", ["/?user=1", "/x?user=1"], [()]),
    ("hdr(X-Key)", ["/", "/x"], [[("X-Key", "k")]]),
])
def test_keys_keep_their_server(pair, servers, algorithm, targets, headers):
    """The hash functions differ, and so may the servers; each key has one."""
    ports = servers("a", "b", "c")
    lines = "\n".join(f"    server s{n} 127.0.0.1:{server.port}" for n, server in enumerate(ports))
    one = pair(DEFAULTS + f"listen app\n    bind 127.0.0.1:FRONT\n    balance {algorithm}\n{lines}\n")
    keys = {}
    for _ in range(5):
        for target in targets:
            key = target.split("?")[0] if algorithm == "uri" else "one"
            for side, found in zip(("haproxy", "balanza"), one.both(target, headers=headers[0]), strict=True):
                keys.setdefault((side, key), set()).add(found[1].split()[0])
    assert all(len(names) == 1 for names in keys.values()), keys


def test_cookies_of_haproxy_still_work(pair, servers):
    a, b = servers("a", "b")
    one = pair(DEFAULTS + f"""
listen app
    bind 127.0.0.1:FRONT
    cookie SRV insert indirect nocache
    server a 127.0.0.1:{a.port} cookie first
    server b 127.0.0.1:{b.port} cookie second
""")
    for cookie, name in (("first", "a"), ("second", "b")):
        for _ in range(4):
            assert one.same(headers=[("Cookie", f"SRV={cookie}")])[1].startswith(name)
    with Client(one.ports["balanza"]) as client:
        assert re.match(r"SRV=(first|second)\b", client.get()["Set-Cookie"])


def test_tls_of_clients(pair, servers, tmp_path):
    """HAProxy has certificate and key in one file, and so has the result."""
    [app] = servers("app")
    own = certificate("shop.test")
    both = tmp_path / "shop.pem"
    both.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
    one = pair(DEFAULTS + f"""
frontend web
    bind 127.0.0.1:FRONT ssl crt {both} alpn h2,http/1.1 ssl-min-ver TLSv1.2
    http-request set-header X-Set tls if {{ ssl_fc }}
    default_backend app
backend app
    server a 127.0.0.1:{app.port}
""")
    context = ssl.create_default_context(cafile=str(authority().certificate))
    answers = {}
    for name, port in one.ports.items():
        with Client(port) as client:
            client.use(context.wrap_socket(client.sock, server_hostname="shop.test"))
            answers[name] = client.get().text
        context.set_alpn_protocols(["h2", "http/1.1"])
        with Client(port) as client:
            assert context.wrap_socket(client.sock, server_hostname="shop.test").selected_alpn_protocol() == "h2", name
        context.set_alpn_protocols(["http/1.1"])
    assert answers["haproxy"] == answers["balanza"] and "X-Set=tls" in answers["balanza"]


def test_a_backup_and_checks(pair, servers, origin):
    a, b = servers("a", "b")
    one = pair(DEFAULTS + f"""
listen app
    bind 127.0.0.1:FRONT
    option httpchk GET /health
    http-check expect status 200
    server a 127.0.0.1:{a.port} check inter 200 fall 1 rise 1
    server b 127.0.0.1:{b.port} check inter 200 fall 1 rise 1 backup
""")
    # A check that is answered late takes a server out for a moment.
    wait_for(lambda: [found[1][:1] for found in one.both()] == ["a", "a"], what="the first server of both")
    a.stop()
    wait_for(lambda: [found[1][:1] for found in one.both()] == ["b", "b"], what="the backup of both")


def test_tcp(pair, tcp_servers):
    first, second = tcp_servers(2)
    one = pair(f"""
global
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
listen shells
    bind 127.0.0.1:FRONT
    server a 127.0.0.1:{first.port} check
    server b 127.0.0.1:{second.port} check
""")
    for name in ("haproxy", "balanza"):
        lines = collections.Counter()
        for _ in range(6):
            with Client(one.ports[name]) as client:
                lines[client.sock.recv(100).split(b"\n")[0]] += 1
        assert sorted(lines.values()) == [3, 3], (name, lines)


def test_statistics_become_api_and_dashboard(pair):
    one = pair(DEFAULTS + """
listen stats
    bind 127.0.0.1:FRONT
    stats enable
    stats uri /stats
    http-request use-service prometheus-exporter if { path /metrics }
""")
    for target, status in (("/stats", 200), ("/stats/api/9/http/upstreams", 200), ("/metrics", 200), ("/x", 503)):
        with Client(one.ports["balanza"]) as client:
            assert client.get(target).status == status, target


def test_an_application_keeps_its_paths_beside_statistics(pair, servers):
    [app] = servers("app")
    one = pair(DEFAULTS + f"""
listen app
    bind 127.0.0.1:FRONT
    stats uri /stats
    stats admin if LOCALHOST
    server a 127.0.0.1:{app.port}
""", code=1)
    for target in ("/api", "/api/9/http/upstreams", "/x"):
        assert one.same(target)[1].startswith(f"app {target}")
    with Client(one.ports["balanza"]) as client:
        assert client.get("/stats/api/9/http/upstreams/app/servers/0").status == 200
    with Client(one.ports["balanza"]) as client:
        assert client.get("/stats/api/9/http/upstreams/app/servers/0", "DELETE").status == 405


def test_rejected_addresses(pair, tcp_servers):
    """Of several rules each one holds, whatever their order."""
    [server] = tcp_servers(1)
    rules = ["unless { src 127.0.0.0/8 }", "if { src 127.0.0.2 }"]
    one = pair(DEFAULTS.replace("mode http", "mode tcp") + "listen a\n    bind 127.0.0.1:FRONT\n"
               + "".join(f"    tcp-request connection reject {rule}\n" for rule in rules)
               + f"    server a 127.0.0.1:{server.port}\n")
    for name in ("haproxy", "balanza"):
        for source, is_served in (("127.0.0.1", True), ("127.0.0.2", False)):
            # A reset may come before connect() returns.
            try:
                with socket.create_connection(("127.0.0.1", one.ports[name]), 60, (source, 0)) as sock:
                    found = bool(sock.recv(100))
            except ConnectionResetError:
                found = False
            assert found == is_served, (name, source)


def test_what_has_no_counterpart_is_told(tmp_path):
    config = tmp_path / "haproxy.cfg"
    config.write_bytes("# für\n".encode("latin-1") + DEFAULTS[1:].encode()
                       + b"listen a\n    bind 127.0.0.1:8081\n    filter compression\n    server a 127.0.0.1:9\n")
    out = tmp_path / "nginx.conf"
    done = subprocess.run([binary("balanza"), "migrate", config, "-o", out], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "haproxy.cfg:12: filter compression" in done.stderr and "accepts the result" in done.stderr
    assert "#   line 12: filter compression\n" in out.read_text()
    tested = subprocess.run([binary("balanza"), "-t", "-p", tmp_path, "-c", out, "-e", "stderr"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    # A certificate that is not there is an error of the result.
    config.write_text(DEFAULTS + "frontend a\n    bind :8081 ssl crt /nonexistent/a.pem\n")
    assert "nonexistent" in migrate(config, code=2)["errors"][0]
    missing = subprocess.run([binary("balanza"), "migrate", pathlib.Path("/nonexistent")], capture_output=True, text=True)
    assert missing.returncode == 2
