"""TLS in `stream`: towards clients, towards servers, and only read (`ssl_preread`)."""

import os
import socket
import ssl

import pytest

from support.balancer import ON_BALANZA
from support.certificates import authority, certificate
from support.stream import Streaming
from support.tls import context
from support.origin import Origin, answer


def served(pair=None):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = pair or certificate()
    tls.load_cert_chain(pair.certificate, pair.key)
    return tls


def echo(connection):
    while data := connection.sock.recv(65536):
        connection.send(data)


def connect(port, *, name="a.test", tls=None):
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    return (tls or context()).wrap_socket(sock, server_hostname=name, suppress_ragged_eofs=False)


def exactly(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(65536)
        assert piece, len(data)
        data += piece
    return data


LISTEN = f"listen 127.0.0.1:SPORT ssl; {certificate().directives()} ssl_protocols TLSv1.2 TLSv1.3;"
LOG = "log_format tls '$ssl_protocol $ssl_server_name $ssl_session_reused $ssl_client_verify'; access_log logs/stream.log tls;"


@pytest.mark.parametrize("size", [1, 20_000, 3_000_000])
def test_a_session_of_tls_reaches_a_plain_server(size):
    origin = Origin(echo, raw=True)
    one = Streaming(f"server {{ {LISTEN} proxy_pass {origin.server}; }}", log=LOG)
    data = os.urandom(size)
    with connect(one.stream_port) as sock:
        sock.settimeout(60)
        sent = 0
        while sent < size:
            piece = data[sent:sent + 100_000]
            sock.sendall(piece)
            assert exactly(sock, len(piece)) == piece
            sent += len(piece)
    assert one.one.wait_log(1, "stream.log")[0] == "TLSv1.3 a.test . NONE"


def test_the_server_speaks_tls():
    origin = Origin(echo, raw=True, tls=served())
    one = Streaming(f"server {{ listen 127.0.0.1:SPORT; proxy_pass {origin.server}; proxy_ssl on; proxy_ssl_verify on; "
                    f"proxy_ssl_trusted_certificate {authority().certificate}; proxy_ssl_name a.test; }}")
    with one.connect() as session:
        session.send(b"one\n")
        assert session.line() == b"one"
    one.reload(f"server {{ listen 127.0.0.1:SPORT; proxy_pass {origin.server}; proxy_ssl on; proxy_ssl_verify on; "
               f"proxy_ssl_trusted_certificate {authority().certificate}; proxy_ssl_name b.test; }}")
    one.one.wait_error("reconfiguring")
    while one.ask(b"x\n") == "x":
        pass
    one.one.wait_error("SSL certificate")


def test_both_sides_speak_tls():
    origin = Origin(echo, raw=True, tls=served(certificate("b.test")))
    one = Streaming(f"server {{ {LISTEN} proxy_pass {origin.server}; proxy_ssl on; proxy_ssl_server_name on; "
                    "proxy_ssl_name b.test; }")
    with connect(one.stream_port) as sock:
        sock.sendall(b"hello")
        assert exactly(sock, 5) == b"hello"


def test_the_name_in_the_first_message_chooses_the_server():
    one_origin, other = (Origin(answer(name), tls=served(certificate(f"{name}.test"))) for name in "ab")
    one = Streaming(f"upstream a.test {{ server {one_origin.server}; }} upstream b.test {{ server {other.server}; }}"
                    "server { listen 127.0.0.1:SPORT; ssl_preread on; proxy_pass $ssl_preread_server_name; }",
                    log="log_format preread '$ssl_preread_server_name|$ssl_preread_protocol|$ssl_preread_alpn_protocols';"
                        "access_log logs/stream.log preread;")
    for name in "ab":
        with connect(one.stream_port, name=f"{name}.test", tls=context(alpn=["h2", "http/1.1"])) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert exactly(sock, 20).startswith(b"HTTP/1.1 200")
    assert sorted(one.one.wait_log(2, "stream.log")) == [f"{name}.test|TLSv1.3|h2,http/1.1" for name in "ab"]


def test_what_is_not_tls_passes_a_preread():
    origin = Origin(echo, raw=True)
    one = Streaming(f"server {{ listen 127.0.0.1:SPORT; ssl_preread on; proxy_pass {origin.server}; }}",
                    log="log_format preread '<$ssl_preread_server_name$ssl_preread_protocol>'; "
                        "access_log logs/stream.log preread;")
    with one.connect() as session:
        session.send(b"plain text\n")
        assert session.line() == b"plain text"
    assert one.one.wait_log(1, "stream.log") == ["<-->"]


@pytest.mark.parametrize("pair, passes", [("authority", True), ("foreign", False), (None, False)])
def test_clients_are_verified(pair, passes):
    origin = Origin(echo, raw=True)
    one = Streaming(f"server {{ {LISTEN} ssl_verify_client on; ssl_client_certificate {authority().certificate}; "
                    f"proxy_pass {origin.server}; }}", log=LOG)
    tls = context(certificate=certificate("me", by=pair) if pair else None)
    try:
        with connect(one.stream_port, tls=tls) as sock:
            sock.sendall(b"hello")
            assert exactly(sock, 5) == b"hello"
        assert passes
    except (ssl.SSLError, ConnectionError, AssertionError):
        assert not passes
    assert one.one.wait_log(1, "stream.log")[0].split()[3].startswith(
        "SUCCESS" if passes else "FAILED" if pair else "NONE")


def test_an_application_protocol_is_agreed_on():
    if not ON_BALANZA:
        pytest.skip("NGINX 1.22 has $ssl_alpn_protocol only later")
    origin = Origin(echo, raw=True)
    one = Streaming(f"server {{ {LISTEN} ssl_alpn one two; proxy_pass {origin.server}; }}",
                    log="log_format alpn $ssl_alpn_protocol; access_log logs/stream.log alpn;")
    with connect(one.stream_port, tls=context(alpn=["three", "two"])) as sock:
        assert sock.selected_alpn_protocol() == "two"
        sock.sendall(b"x")
        assert exactly(sock, 1) == b"x"
    assert one.one.wait_log(1, "stream.log")[0] == "two"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(one.stream_port, tls=context(alpn=["three"])).recv(1)


def test_a_client_that_says_nothing_is_closed():
    one = Streaming(f"server {{ {LISTEN} ssl_handshake_timeout 300ms; proxy_pass 127.0.0.1:1; }}")
    with one.connect() as session:
        assert session.rest() == b""


def test_an_end_is_announced():
    origin = Origin(lambda connection: connection.send(b"bye"), raw=True)
    one = Streaming(f"server {{ {LISTEN} proxy_pass {origin.server}; }}")
    with connect(one.stream_port) as sock:
        assert exactly(sock, 3) == b"bye"
        # Without the word that it ends, this would be an error.
        assert sock.recv(1) == b""
