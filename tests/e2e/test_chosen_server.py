"""What is worked out for each server that is tried: `*_request_dynamic`, `*_bind_dynamic`, `*_allow_upstream`, and
`$upstream_last_addr` and `$upstream_last_server_name`, which name that server."""

import ssl

import pytest

from support.balancer import wait_for
from support.certificates import authority, certificate
from support.client import Client, get
from support.dns import NameServer
from support.expect import balanza_only
from support.http2_server import Http2Server
from support.origin import Origin, answer, upstream
from support.stream import Streaming, TcpServer
from test_api import read
from test_forward_proxy import forward, status

pytestmark = balanza_only("only NGINX Plus has it")


def named(origins, *, head="", parameters=()):
    """An upstream whose servers have the names a.test, b.test …, all of them this machine."""
    servers = zip("abc", origins, [*parameters, "", "", ""])
    lines = "".join(f" server {name}.test:{origin.port} resolve {more};" for name, origin, more in servers)
    return f"upstream group {{ zone group 256k; resolver {resolver.address} ipv6=off; {head}{lines} }}"


@pytest.fixture(scope="module", autouse=True)
def names():
    global resolver
    with NameServer({f"{name}.test": ["127.0.0.1"] for name in "abc"}) as resolver:
        yield


def front(directives, target="http://group", more=""):
    log = "log_format chosen '$status|$upstream_addr|$upstream_last_addr|$upstream_last_server_name';"
    return f"{log} server {{ listen 127.0.0.1:PORT; access_log logs/access.log chosen; {more} location /api {{ access_log off; api; }} location / {{ proxy_pass {target}; {directives} }} }}"


def knowing(one):
    """The balancer, once it knows the addresses of both servers: its start waits for them for a second."""
    wait_for(lambda: len(read(one.port, "/api/9/http/upstreams/group")["peers"]) == 2, what="the addresses")
    return one


def secure(name, handler="ok", asked=None):
    """A server of TLS that has a certificate of its name, and notes the names that it is asked for."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate(name).certificate, certificate(name).key)
    tls.sni_callback = lambda _sock, name, _context: asked.append(name) if asked is not None else None
    return Origin(handler, tls=tls)


TRUSTS = (f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority().certificate}; proxy_ssl_server_name on;"
          "proxy_ssl_name $upstream_last_server_name;")


def test_each_server_shows_the_certificate_of_its_name(balancer):
    asked = {"a": [], "b": []}
    servers = [secure(f"{name}.test", name, asked[name]) for name in "ab"]
    one = knowing(balancer(named(servers, head="keepalive 4;") + front(TRUSTS, "https://group")))
    assert {get(one.port).text for _ in range(8)} == {"a", "b"}
    assert set(asked["a"]) == {"a.test"} and set(asked["b"]) == {"b.test"}
    # Kept connections are those of the name.
    assert [len(server.connections) for server in servers] == [1, 1]
    lines = one.wait_log(8)
    assert {line.split("|")[3] for line in lines} == {f"{name}.test:{server.port}" for name, server in zip("ab", servers)}


def test_a_server_with_the_certificate_of_another_is_passed_over(balancer):
    wrong, right = secure("b.test", "wrong"), secure("b.test", "right")
    one = knowing(balancer(named([wrong, right], parameters=["max_fails=0", "backup"]) + front(TRUSTS, "https://group")))
    assert [get(one.port).text for _ in range(3)] == ["right"] * 3
    assert wrong.count == 0
    addresses = f"127.0.0.1:{wrong.port}, 127.0.0.1:{right.port}"
    assert one.wait_log(3)[0] == f"200|{addresses}|127.0.0.1|b.test:{right.port}"


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_request_for_each_server(balancer, dynamic):
    closes, good = Origin(lambda _, connection: connection.close()), Origin("good")
    one = knowing(balancer(named([closes, good], parameters=["max_fails=0", "backup"]) + front(
        "proxy_set_header Host $upstream_last_server_name; proxy_set_header X-To $upstream_last_addr;"
        "proxy_next_upstream error non_idempotent;"
        f"proxy_request_dynamic {'on' if dynamic else 'off'};")))
    for method, body in (("GET", b""), ("POST", b"x" * 100_000)):
        assert get(one.port, "/uri?args", method, body=body).text == "good"
        request = good.last
        assert (request.target, request.body) == ("/uri?args", body)
        if dynamic:
            assert (request["Host"], request["X-To"]) == (f"b.test:{good.port}", "127.0.0.1")
            assert closes.last["Host"] == f"a.test:{closes.port}"
        else:
            # The request is written before a server is chosen.
            assert request["Host"] in (None, "") and request["X-To"] is None


def test_a_body_for_each_server(balancer):
    closes, good = Origin(lambda _, connection: connection.close()), Origin("good")
    one = knowing(balancer(named([closes, good], parameters=["max_fails=0", "backup"]) + front(
        "proxy_set_body 'to $upstream_last_server_name'; proxy_request_dynamic on;")))
    assert get(one.port).text == "good"
    assert good.last.body == f"to b.test:{good.port}".encode()


def test_a_request_for_each_server_of_grpc(balancer):
    servers = [Http2Server(b"a"), Http2Server(b"b")]
    one = knowing(balancer(named(servers) + front("").replace("proxy_pass http://group;", (
        "grpc_pass grpc://group; grpc_request_dynamic on; grpc_set_header X-Name $upstream_last_server_name;"))))
    for _ in range(4):
        get(one.port)
    for name, server in zip("ab", servers):
        assert {request["x-name"] for request in server.requests} == {f"{name}.test:{server.port}"}


GEO = "geo $upstream_last_addr $allowed { volatile; default 0; 127.0.0.8/29 1; 127.0.0.1 1; }"


@pytest.mark.parametrize("next_upstream, answers", [("denied", [200, 200]), ("error", [403, 200])])
def test_a_server_that_is_not_allowed(balancer, next_upstream, answers):
    denied, allowed = Origin("denied", address="127.0.0.7"), Origin("allowed", address="127.0.0.9")
    one = balancer(GEO + upstream([denied, allowed]) + front(
        f"proxy_allow_upstream $allowed 1; proxy_next_upstream {next_upstream};"))
    assert sorted(get(one.port).status for _ in range(2)) == sorted(answers)
    # Being denied is no failure of a server: it has its turn again.
    assert sorted(get(one.port).status for _ in range(2)) == sorted(answers)
    assert denied.count == 0
    one.wait_error("access to upstream denied while connecting to upstream.*127.0.0.7")


def test_conditions_are_inherited_as_a_whole(balancer):
    server = Origin("ok")
    text = GEO + upstream([server]) + (
        "server { listen 127.0.0.1:PORT; proxy_allow_upstream $arg_a; proxy_allow_upstream $arg_b;"
        "location / { proxy_pass http://group; }"
        "location /own { proxy_allow_upstream $arg_c; proxy_pass http://group; } }")
    one = balancer(text)
    asked = {"/?a=1&b=1": 200, "/?a=1": 403, "/?b=yes&a=0": 403, "/own?c=1": 200, "/own?a=1&b=1": 403}
    assert {target: get(one.port, target).status for target in asked} == asked


def test_tunnels_to_addresses_that_are_allowed(balancer):
    """A name that an attacker lets point to an address inside is no way around the rule."""
    inside, outside = TcpServer("inside"), TcpServer("outside")
    text = "geo $upstream_last_addr $allowed { volatile; default 1; 10.0.0.0/8 0; 127.0.0.1 0; }"
    one = balancer(forward("tunnel_pass; tunnel_allow_upstream $allowed;", http=text,
                           server=f"resolver {resolver.address} ipv6=off;"))
    assert status(one.port, f"a.test:{inside.port}") == 403 and inside.count == 0
    assert status(one.port, inside.server) == 403 and inside.count == 0
    one = balancer(forward("tunnel_pass; tunnel_allow_upstream $allowed;", http=text.replace("127.0.0.1 0;", ""),
                           server=f"resolver {resolver.address} ipv6=off;"))
    assert status(one.port, f"a.test:{outside.port}") == 200
    wait_for(lambda: outside.count == 1, what="the tunnel's connection")


def test_tunnels_try_the_next_server_that_is_allowed(balancer):
    servers = [Origin("ok", address="127.0.0.7"), Origin("ok", address="127.0.0.9")]
    one = balancer(forward("tunnel_pass group; tunnel_allow_upstream $allowed; tunnel_next_upstream denied;",
                           http=GEO + upstream(servers)))
    assert [status(one.port, "any.test:80") for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("dynamic, seen", [("on", {"127.0.0.7": "127.0.0.17", "127.0.0.9": "127.0.0.19"}), ("off", None)])
def test_a_local_address_for_each_server(balancer, dynamic, seen):
    sources = {}

    def note(address):
        def handler(_request, connection):
            sources[address] = connection.sock.getpeername()[0]
            return answer("ok")
        return handler

    servers = [Origin(note(address), address=address) for address in ("127.0.0.7", "127.0.0.9")]
    one = balancer("map $upstream_last_addr $from { volatile; 127.0.0.7 127.0.0.17; 127.0.0.9 127.0.0.19; }"
                   + upstream(servers) + front(f"proxy_bind $from; proxy_bind_dynamic {dynamic};"))
    assert [get(one.port).status for _ in range(2)] == [200, 200]
    assert sources == (seen or {"127.0.0.7": "127.0.0.1", "127.0.0.9": "127.0.0.1"})


def test_the_variables_without_a_group(balancer):
    server = Origin("ok")
    one = balancer(front("add_header X-Server '$upstream_last_addr $upstream_last_server_name' always;",
                         "http://$arg_host:$arg_port", f"resolver {resolver.address} ipv6=off;"))
    assert get(one.port, f"/?host=a.test&port={server.port}")["X-Server"] == f"127.0.0.1 a.test:{server.port}"
    assert get(one.port, f"/?host=127.0.0.1&port={server.port}")["X-Server"] == f"127.0.0.1 127.0.0.1:{server.port}"


def test_checks_ask_each_server_for_its_name(balancer):
    asked = {"a": [], "b": []}
    servers = [secure(f"{name}.test", name, asked[name]) for name in "ab"]
    one = balancer(named(servers) + front(TRUSTS + "health_check mandatory;", "https://group"))
    wait_for(lambda: {get(one.port).text for _ in range(4)} == {"a", "b"}, what="checks that passed")
    assert set(asked["a"]) == {"a.test"} and set(asked["b"]) == {"b.test"}


def test_sessions_of_stream(balancer):
    def hello(name):
        def handle(connection):
            connection.send(name)
            connection.close()
        return handle

    servers = []
    for name in "ab":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate(f"{name}.test").certificate, certificate(f"{name}.test").key)
        servers.append(Origin(hello(name), raw=True, tls=tls))
    streaming = Streaming(
        named(servers) + "server { listen 127.0.0.1:SPORT; proxy_pass group; proxy_ssl on; proxy_ssl_verify on;"
        f"proxy_ssl_trusted_certificate {authority().certificate}; proxy_ssl_name $upstream_last_server_name;"
        "health_check mandatory; }",
        log="log_format chosen '$upstream_last_addr $upstream_last_server_name'; access_log logs/stream.log chosen;")
    heard = set()

    def both():
        with Client(streaming.stream_port) as client:
            heard.add(client.rest())
        return heard >= {b"a", b"b"}

    wait_for(both, what="answers of both servers")
    expected = {f"127.0.0.1 {name}.test:{server.port}" for name, server in zip("ab", servers)}
    # Sessions before the first check have no server.
    wait_for(lambda: set(streaming.one.access_log("stream.log")) - {"- -"} == expected, what="a line for each server")
