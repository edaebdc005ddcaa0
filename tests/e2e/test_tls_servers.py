"""TLS with servers: `proxy_pass https://`, what is verified, what is sent, and that connections are kept and resumed."""

import os
import ssl

import pytest

from support.balancer import wait_for
from support.certificates import authority, certificate
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer, upstream


def served(pair=None, *, asks=False, versions=None, alpn=None):
    """The context of a server, and a list of the names that clients ask it for."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = pair or certificate()
    tls.load_cert_chain(pair.certificate, pair.key)
    if asks:
        tls.load_verify_locations(authority().certificate)
        tls.verify_mode = ssl.CERT_REQUIRED
    if versions:
        tls.minimum_version = tls.maximum_version = versions
    names = []
    tls.sni_callback = lambda _sock, name, _context: names.append(name)
    return tls, names


def location(directives="", target="https://group"):
    return f"server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass {target}; {directives} }} }}"


TRUSTS = f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority().certificate};"


def test_requests_reach_a_server_of_tls(balancer):
    tls, names = served()
    origin = Origin(lambda request, _: answer(request.body or b"none"), tls=tls)
    one = balancer(upstream([origin]) + location("client_max_body_size 0;"))
    assert get(one.port).body == b"none"
    for size in (1, 20_000, 2_000_000):
        body = os.urandom(size)
        assert get(one.port, method="POST", body=body).body == body
    assert set(names) == {None}
    assert origin.last["Host"] == "group"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_connections_are_kept_and_sessions_resumed(balancer, version):
    tls, _ = served(versions=version)
    resumed = []

    def note(_request, connection):
        resumed.append(connection.sock.session_reused)
        return answer(b"x" * 1000)

    origin = Origin(note, tls=tls)
    one = balancer(upstream([origin], head="keepalive 4;") + location("proxy_ssl_protocols TLSv1.2 TLSv1.3;"))
    for _ in range(10):
        assert len(get(one.port).body) == 1000
    assert len(origin.connections) == 1
    origin.hang_up()
    for _ in range(3):
        get(one.port)
    assert len(origin.connections) == 2 and resumed[-1] is True


def test_an_idle_connection_that_the_server_closes_is_not_used(balancer):
    tls, _ = served()
    origin = Origin("ok", tls=tls)
    one = balancer(upstream([origin]) + location())
    for _ in range(20):
        assert get(one.port).body == b"ok"
        origin.hang_up()
    assert origin.errors == [] or all(isinstance(error, OSError) for error in origin.errors)


@pytest.mark.parametrize("directives, name, works", [
    ("proxy_ssl_name a.test;", "a.test", True), ("proxy_ssl_name b.test;", "a.test", False),
    ("proxy_ssl_name $arg_name;", "a.test", True), ("", "a.test", False),
    ("proxy_ssl_name x.c.test;", "*.c.test", True), ("proxy_ssl_name x.y.c.test;", "*.c.test", False),
])
def test_the_certificate_is_verified(balancer, directives, name, works):
    tls, _ = served(certificate(name))
    origin = Origin("ok", tls=tls)
    one = balancer(upstream([origin]) + location(TRUSTS + directives))
    assert get(one.port, "/?name=a.test").status == (200 if works else 502)
    if not works:
        one.wait_error("SSL certificate")


@pytest.mark.parametrize("pair, reason", [
    (lambda: certificate(by="foreign"), "upstream SSL certificate verify error"),
    (lambda: certificate(expired=True), "certificate has expired"),
])
def test_a_certificate_that_is_not_trusted_is_refused_with_the_reason(balancer, pair, reason):
    tls, _ = served(pair())
    origin = Origin("ok", tls=tls)
    one = balancer(upstream([origin]) + location(TRUSTS + "proxy_ssl_name a.test;"))
    assert get(one.port).status == 502 and origin.count == 0
    one.wait_error(reason + ".* while SSL handshaking to upstream")
    one.reload(upstream([origin]) + location("proxy_ssl_name a.test;"))
    one.wait_error("reconfiguring")
    while get(one.port).status != 200:
        pass


@pytest.mark.parametrize("directives, sent", [
    ("", None), ("proxy_ssl_server_name on;", "group"), ("proxy_ssl_server_name on; proxy_ssl_name a.test:443;", "a.test"),
    ("proxy_ssl_server_name on; proxy_ssl_name 127.0.0.1;", None),
])
def test_the_name_is_sent_if_asked_for(balancer, directives, sent):
    tls, names = served()
    one = balancer(upstream([Origin("ok", tls=tls)]) + location(directives))
    assert get(one.port).body == b"ok"
    assert names == [sent]


def test_a_certificate_is_shown_to_servers_that_ask(balancer):
    tls, _ = served(asks=True)
    origin = Origin(lambda _, connection: answer(str(connection.sock.getpeercert()["subject"]).encode()), tls=tls)
    shows = certificate("me").directives("proxy_ssl")
    one = balancer(upstream([origin]) + location(shows))
    assert b"'me'" in get(one.port).body
    one = balancer(upstream([origin]) + location())
    assert get(one.port).status in (400, 502)


def test_the_next_server_is_asked_when_a_handshake_fails(balancer):
    plain, good = Origin(lambda connection: connection.send("not TLS"), raw=True), Origin("good", tls=served()[0])
    one = balancer(upstream([plain, good], parameters=["max_fails=0", ""]) + location(
        "add_header X-Tried $upstream_addr always;"))
    answers = [get(one.port) for _ in range(4)]
    assert [response.body for response in answers] == [b"good"] * 4
    assert any(response["X-Tried"].startswith(plain.server + ", ") for response in answers)


def test_a_server_that_never_answers_the_handshake_times_out(balancer):
    silent = Origin(lambda connection: connection.sock.recv(100_000) and connection.sock.recv(1), raw=True)
    one = balancer(upstream([silent]) + location("proxy_connect_timeout 1s;"))
    assert get(one.port).status == 504
    one.wait_error("upstream timed out .* while SSL handshaking to upstream")


@balanza_only("NGINX takes a kept connection whatever it speaks")
def test_plain_and_encrypted_connections_to_one_server_are_kept_apart(balancer):
    """A server of both kinds, told apart by the first byte."""
    def both(connection):
        if connection.sock.recv(1, 2) == b"\x16":
            connection.encrypt(served()[0])
            connection.kind = b"tls"
        else:
            connection.kind = b"plain"
        while head := connection.reader.until(b"\r\n\r\n"):
            assert head.startswith(b"GET ")
            connection.send(answer(connection.kind))

    origin = Origin(both, raw=True)
    one = balancer(upstream([origin], head="keepalive 8;") + "server { listen 127.0.0.1:PORT;"
                   "location /p { proxy_pass http://group; } location /t { proxy_pass https://group; } }")
    with Client(one.port) as client:
        for _ in range(5):
            assert client.get("/p").body == b"plain" and client.get("/t").body == b"tls"
    assert len(origin.connections) == 2


def test_an_address_with_variables(balancer):
    tls, names = served()
    origin = Origin("ok", tls=tls)
    one = balancer(upstream([origin]) + location("proxy_ssl_server_name on; proxy_ssl_name a.test;", "$arg_to"))
    assert get(one.port, f"/?to=https://{origin.server}/x").body == b"ok"
    assert get(one.port, "/?to=https://group").body == b"ok"
    assert names[0] == "a.test"


@pytest.mark.http1("the end of the connection")
@balanza_only("NGINX takes any end for the end of the body")
def test_a_body_that_is_cut_is_not_complete(balancer):
    """Without the word that it ends, a body up to the connection's end was cut."""
    def cut(_request, connection):
        connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf")
        # The socket alone, without an alert.
        connection.open = False
        os.close(connection.sock.detach())

    origin = Origin(cut, tls=served()[0])
    one = balancer(upstream([origin]) + location())
    with Client(one.port) as client:
        client.request()
        seen = client.rest()
    assert b"half" in seen
    assert not seen.endswith(b"0\r\n\r\n"), "the client learns that it was cut"


def test_connections_of_settings_that_have_gone_are_not_used(balancer):
    """A connection that was made without a look at the certificate is not one for settings that verify it, whatever was
    configured in between."""
    origin = Origin("ok", tls=served(certificate("b.test"))[0])
    verifies = TRUSTS + "proxy_ssl_name a.test;"

    def text(number, directives):
        return (upstream([origin], head="keepalive 8;") + location(directives).replace(
            "location / {", f"location /number {{ return 200 {number}; }} location / {{"))

    one = balancer(text(0, ""))
    number = 0

    def reload(directives):
        nonlocal number
        number += 1
        one.reload(text(number, directives))
        wait_for(lambda: get(one.port, "/number").text == str(number), what="the new configuration")

    for _ in range(10):
        assert get(one.port).status == 200
        for directives in (verifies, "", verifies):
            reload(directives)
        assert [get(one.port).status for _ in range(3)] == [502] * 3
        reload("")
