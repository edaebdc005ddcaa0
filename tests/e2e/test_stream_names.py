"""`server_name` in `stream`: several servers on an address, chosen by the name that a client asks for by TLS."""

import socket
import ssl
import subprocess

import pytest

from support.balancer import ON_NGINX, wait_for
from support.certificates import certificate
from support.stream import Streaming
from support.tls import context

pytestmark = pytest.mark.skipif(ON_NGINX, reason="NGINX 1.22 has one stream server for an address")

NAMES = ("a.test", "b.test", "c.example")
LOG = "log_format names '$ssl_server_name|$kind|$status'; access_log logs/stream.log names;\n"


def unverified():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def greeted(port, name, data=b""):
    """What comes over TLS from the server of a name, and the subject of its certificate."""
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        with unverified().wrap_socket(sock, server_hostname=name) as tls:
            if data:
                tls.sendall(data)
            text = b""
            while piece := tls.recv(1000):
                text += piece
            return text.decode(), tls.getpeercert(binary_form=True)


def serving(*servers, log="", **options):
    return Streaming("\n".join(servers), log=log, **options)


def server(parameters, answer, *rest, pair="a.test"):
    return (f"server {{ listen 127.0.0.1:SPORT ssl {parameters}; {certificate(pair).directives()} {' '.join(rest)} "
            f"return '{answer}'; }}")


def test_the_name_of_the_handshake_chooses_the_server_and_its_certificate():
    one = serving(
        server("", "first", "server_name b.test;", pair="b.test"),
        server("default_server", "default", "server_name a.test;"),
        server("", "wild", "server_name *.wild.test .dot.test;", pair="b.test"),
        server("", "trailing", "server_name www.*;", pair="b.test"),
        server("", "part $part", r"server_name ~^(?<part>\w+)\.regex\.test$;", pair="b.test"),
    )
    certificates = {name: ssl.PEM_cert_to_DER_cert(open(certificate(name).certificate).read().split("-----END")[0]
                                                   + "-----END CERTIFICATE-----\n") for name in ("a.test", "b.test")}
    expected = {
        "b.test": ("first", "b.test"), "a.test": ("default", "a.test"), "B.TEST": ("first", "b.test"),
        "x.wild.test": ("wild", "b.test"), "wild.test": ("default", "a.test"), "a.b.dot.test": ("wild", "b.test"),
        "dot.test": ("wild", "b.test"), "www.any": ("trailing", "b.test"), "one.regex.test": ("part one", "b.test"),
        "unknown.test": ("default", "a.test"), None: ("default", "a.test"),
    }
    for name, (answer, pair) in expected.items():
        text, shown = greeted(one.stream_port, name)
        assert (name, text) == (name, answer)
        assert shown == certificates[pair], name


def test_ssl_preread_chooses_by_name_without_tls_of_its_own():
    one = serving(
        "map $ssl_preread_server_name $kind { b.test b; default other; }",
        "server { listen 127.0.0.1:SPORT; ssl_preread on; return 'default $kind'; }",
        "server { listen 127.0.0.1:SPORT; server_name b.test; return 'named $kind'; }",
    )

    def answered(name):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = unverified().wrap_bio(incoming, outgoing, server_hostname=name)
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        with one.connect() as session:
            session.send(outgoing.read())
            return session.rest().decode()
    assert answered("b.test") == "named b"
    assert answered("x.test") == "default other"


def test_a_server_s_own_settings_hold_after_it_is_chosen():
    """The log, the name that sessions are counted for, and verification of clients are those of the chosen server."""
    one = serving(
        "server { listen 127.0.0.1:SPORT ssl default_server; server_name a.test; " + certificate().directives()
        + " access_log off; return x; }",
        "server { listen 127.0.0.1:SPORT ssl; server_name b.test; " + certificate("b.test").directives()
        + " set $kind chosen; return y; }",
        log=LOG)
    assert greeted(one.stream_port, "a.test")[0] == "x"
    assert greeted(one.stream_port, "b.test")[0] == "y"
    assert one.one.wait_log(1, "stream.log") == ["b.test|chosen|200"]


def test_a_server_that_rejects_handshakes():
    """The usual way to refuse unknown names: the default server has no certificate."""
    one = serving(
        "server { listen 127.0.0.1:SPORT ssl default_server; ssl_reject_handshake on; return no; }",
        server("", "yes", "server_name b.test;", pair="b.test"))
    assert greeted(one.stream_port, "b.test")[0] == "yes"
    with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME|unrecognized name"):
        greeted(one.stream_port, "x.test")


def test_names_change_with_a_reload():
    one = serving(server("", "one", "server_name a.test;"), server("", "two", "server_name b.test;"))
    assert greeted(one.stream_port, "b.test")[0] == "two"
    one.reload(server("", "one", "server_name a.test;") + server("", "three", "server_name b.test;"))
    wait_for(lambda: greeted(one.stream_port, "b.test")[0] == "three", what="the new server")


@pytest.mark.parametrize(("servers", "expected"), [
    ("server { listen 127.0.0.1:SPORT default_server; return a; } "
     "server { listen 127.0.0.1:SPORT default_server; return b; }", "a duplicate default server for 127.0.0.1:"),
    ("server { listen 127.0.0.1:SPORT; return a; } server { listen 127.0.0.1:SPORT; return b; }",
     'conflicting server name "" on 127.0.0.1:'),
    ("server { listen 127.0.0.1:SPORT; listen 127.0.0.1:SPORT; return a; }", "a duplicate listen 127.0.0.1:"),
    ("server { listen 127.0.0.1:SPORT; server_name ~(; return a; }", "pcre2_compile() failed: missing closing parenthesis"),
])
def test_what_is_wrong_is_said(servers, expected):
    one = serving("server { listen 127.0.0.1:SPORT; return a; }")
    one.one.write(text=one.text(servers))
    result = one.one.test_config()
    assert expected in result.stderr, result.stderr


def test_openssl_agrees():
    one = serving(server("default_server", "a"), server("", "b", "server_name b.test;", pair="b.test"))
    shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{one.stream_port}", "-servername", "b.test"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert "CN = b.test" in shown.stdout or "CN=b.test" in shown.stdout, shown.stdout
