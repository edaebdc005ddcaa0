"""Client certificates for servers, named by variables, and `proxy_ssl_certificate_cache`."""

import ssl

import pytest

from support.certificates import authority, certificate
from support.client import get
from support.expect import balanza_only
from support.http2_server import Http2Server
from support.origin import answer, upstream
from support.stream import Streaming
from test_tls_named_certificates import KEPT, Files

# NGINX resumes a session that was made with another certificate.
NAMED = "proxy_ssl_session_reuse off; proxy_ssl_certificate certs/$arg_me.pem; proxy_ssl_certificate_key certs/$arg_me.key;"


def server_side(alpn=()):
    """A context that requests a client certificate and does not require it."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate().certificate, certificate().key)
    tls.load_verify_locations(authority().certificate)
    tls.verify_mode = ssl.CERT_OPTIONAL
    if alpn:
        tls.set_alpn_protocols(list(alpn))
    return tls


def shown(sock):
    """The name in the client certificate of a connection."""
    subject = dict(pair for name in (sock.getpeercert() or {}).get("subject", ()) for pair in name)
    return subject.get("commonName", "nobody").encode()


@pytest.fixture
def asking(origin):
    """Responds with the certificate's name. It closes each connection, because NGINX reuses one for other certificates."""
    return origin(lambda _request, connection: answer(shown(connection.sock), headers=[("Connection", "close")]), tls=server_side())


@pytest.fixture
def keeping(origin):
    """Responds in the same way, and keeps its connections."""
    return origin(lambda _request, connection: answer(shown(connection.sock)), tls=server_side())


def passing(origins, directives=NAMED, head=""):
    return upstream(origins, head=head) + f"server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass https://group; {directives} }} }}"


def test_each_request_shows_its_own(balancer, asking):
    files = Files(balancer, passing([asking]))
    for name in ("a.test", "b.test", "a.test", "b.test"):
        assert get(files.port, f"/?me={name}").body == name.encode()


@balanza_only("NGINX uses the connection of another certificate")
@pytest.mark.parametrize("cache", ["", f"proxy_ssl_certificate_cache max=10 {KEPT};"])
@pytest.mark.parametrize("reuse", ["on", "off"])
def test_connections_are_kept_for_each_certificate(balancer, keeping, cache, reuse):
    files = Files(balancer, passing([keeping], NAMED.replace("reuse off", f"reuse {reuse}") + cache, "keepalive 8;"), workers=1)
    for _ in range(5):
        for name in ("a.test", "b.test"):
            assert get(files.port, f"/?me={name}").body == name.encode()
    assert len(keeping.connections) == 2
    # A session that was made with the other certificate is not resumed.
    for name in ("a.test", "b.test", "b.test", "a.test"):
        keeping.hang_up()
        assert get(files.port, f"/?me={name}").body == name.encode()


def test_an_empty_name_shows_none(balancer, asking):
    files = Files(balancer, "map $arg_me $file { a certs/a.test; }\n" + passing(
        [asking], NAMED.replace("certs/$arg_me.pem", "$pem").replace("certs/$arg_me.key", "$file.key"))
        .replace("upstream", "map $file $pem { '' ''; default $file.pem; }\nupstream", 1))
    assert get(files.port, "/?me=a").body == b"a.test"
    assert get(files.port, "/").body == b"nobody"
    assert get(files.port, "/?me=a").body == b"a.test"


@balanza_only("NGINX 1.22 does not start")
def test_an_empty_name_takes_back_an_inherited_one(balancer, asking):
    pair = certificate("me")
    inner = "location /none { proxy_pass https://group; proxy_ssl_certificate ''; }"
    one = balancer(upstream([asking]) + f"server {{ listen 127.0.0.1:PORT; {pair.directives('proxy_ssl')} "
                   f"proxy_ssl_session_reuse off; location / {{ proxy_pass https://group; }} {inner} }}")
    assert (get(one.port, "/").body, get(one.port, "/none").body) == (b"me", b"nobody")


def test_what_cannot_be_loaded_is_an_error_of_ours(balancer, asking, origin):
    other = origin("other", tls=server_side())
    files = Files(balancer, passing([asking, other], NAMED + "proxy_next_upstream error timeout http_500;"), workers=1)
    for _ in range(4):
        assert get(files.port, "/?me=c.test").status == 500
    files.one.wait_error(r'\[error\] .*cannot load certificate "[^"]*c\.test\.pem".*No such file')
    assert asking.count + other.count == 0
    # This does not count as a failure: both servers get requests as soon as the certificate exists.
    files.put("c.test", certificate("c.test"))
    assert {get(files.port, "/?me=c.test").body for _ in range(2)} == {b"c.test", b"other"}


def test_a_key_of_another_certificate(balancer, asking):
    files = Files(balancer, passing([asking], NAMED.replace("certs/$arg_me.key", "certs/b.test.key")))
    assert get(files.port, "/?me=b.test").body == b"b.test"
    assert get(files.port, "/?me=a.test").status == 500
    files.one.wait_error("cannot load certificate key|SSL_use_PrivateKey|X509_check_private_key")


@pytest.mark.parametrize("cache, kept", [
    ("", False), pytest.param(f"proxy_ssl_certificate_cache max=10 {KEPT};", True, marks=balanza_only("newer")),
    pytest.param("proxy_ssl_certificate_cache off;", False, marks=balanza_only("newer")),
])
def test_a_file_that_was_replaced(balancer, asking, cache, kept):
    files = Files(balancer, passing([asking], NAMED + cache), workers=1)
    assert get(files.port, "/?me=a.test").body == b"a.test"
    files.put("a.test", certificate("b.test"))
    assert get(files.port, "/?me=a.test").body == (b"a.test" if kept else b"b.test")


def test_texts_in_variables(balancer, asking):
    pair = certificate("me")
    maps = "".join(f"map $arg_me ${part} {{ default \"{getattr(pair, part).read_text()}\"; }}\n" for part in ("certificate", "key"))
    one = balancer(maps + passing([asking], "proxy_ssl_certificate data:$certificate; proxy_ssl_certificate_key data:$key;"))
    assert get(one.port).body == b"me"
    secret = pair.key.read_text().splitlines()[1]
    assert secret not in one.error_log()


@balanza_only("HTTP/2 to servers is newer")
def test_http2_and_grpc(balancer):
    server = Http2Server(lambda stream: stream.answer(shown(stream.connection.sock)), tls=server_side(["h2"]))
    grpc = NAMED.replace("proxy_", "grpc_") + "grpc_ssl_certificate_cache max=10;"
    files = Files(balancer, upstream([server]) + "server { listen 127.0.0.1:PORT; "
                  f"location / {{ proxy_pass https://group; proxy_http_version 2; {NAMED} }} "
                  f"location /grpc {{ grpc_pass grpcs://group; {grpc} }} }}")
    for path in ("/", "/grpc"):
        for name in ("a.test", "b.test", "a.test"):
            assert get(files.port, f"{path}?me={name}").body == name.encode()


@pytest.mark.parametrize("cache", ["", pytest.param("proxy_ssl_certificate_cache max=10;", marks=balanza_only("newer"))])
def test_stream(origin, cache):
    asking = origin(lambda connection: connection.send(shown(connection.sock) + b"\n"), raw=True, tls=server_side())
    one = Streaming("map $remote_addr $me { 127.0.0.2 a.test; 127.0.0.3 b.test; default c.test; }\n"
                    f"server {{ listen 127.0.0.1:SPORT; proxy_pass {asking.server}; proxy_ssl on; {cache} "
                    + NAMED.replace("$arg_me", "$me") + " }")
    (one.one.dir / "certs").mkdir()
    for name in ("a.test", "b.test"):
        for suffix, source in ((".pem", certificate(name).certificate), (".key", certificate(name).key)):
            file = one.one.dir / "certs" / (name + suffix)
            file.write_bytes(source.read_bytes())
            file.chmod(0o644)
    assert one.ask(source="127.0.0.2") == "a.test"
    assert one.ask(source="127.0.0.3") == "b.test"
    assert one.ask(source="127.0.0.4") == ""
    one.one.wait_error(r'cannot load certificate "[^"]*c\.test\.pem".*No such file')


@pytest.mark.parametrize("directives, message", [
    ("proxy_ssl_certificate certs/$arg_me.pem;", 'no "proxy_ssl_certificate_key" is defined for certificate'),
    pytest.param("proxy_ssl_certificate_cache valid=1s;", '"proxy_ssl_certificate_cache" must have the "max" parameter',
                 marks=balanza_only("newer")),
])
def test_what_is_wrong_is_said(balancer, asking, directives, message):
    tested = balancer(passing([asking], directives), start=False).test_config()
    assert tested.returncode != 0 and message in tested.stderr, tested.stderr
