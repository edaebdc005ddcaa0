"""TLS with clients: certificates and names, what is agreed on, verification, sessions, and what is refused."""

import os
import re
import ssl
import subprocess

import pytest

from support.balancer import ON_BALANZA, binary, wait_for
from support.certificates import authority, certificate, encrypted, openssl
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer, upstream
from support.tls import TlsClient, context, fetch, refused, text

SHOWS = ("$scheme $https $ssl_protocol $ssl_cipher $ssl_curve $ssl_server_name $ssl_session_reused $ssl_alpn_protocol "
         "$ssl_client_verify")


def server(more="", *, pairs=(), location="return 200 '$server_name';", name="a.test", listen="ssl"):
    certificates = "".join(pair.directives() for pair in pairs or [certificate()])
    return (f"server {{ listen 127.0.0.1:PORT {listen}; server_name {name}; {certificates} {more} "
            f"location / {{ {location} }} }}\n")


@pytest.mark.parametrize("version, cipher, expected", [
    (ssl.TLSVersion.TLSv1_3, None, "TLSv1.3 TLS_AES_256_GCM_SHA384"),
    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256"),
    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2 ECDHE-ECDSA-CHACHA20-POLY1305"),
])
def test_what_was_agreed_on(balancer, version, cipher, expected):
    one = balancer(server(location=f"return 200 '{SHOWS}';"))
    shown = text(one.port, tls=context(versions=version, ciphers=cipher))
    assert shown.startswith(f"https on {expected} ")
    assert shown.endswith(" a.test .  NONE")


def test_protocols_ciphers_and_curves_are_chosen_by_the_server(balancer):
    one = balancer(server("ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256; "
                          "ssl_prefer_server_ciphers on; ssl_ecdh_curve prime256v1;",
                          location=f"return 200 '{SHOWS}';"))
    offered = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"
    assert text(one.port, tls=context(ciphers=offered)).startswith(
        "https on TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384 prime256v1 ")
    assert refused(one.port, tls=context(versions=ssl.TLSVersion.TLSv1_3))
    assert refused(one.port, tls=context(versions=ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-ECDSA-CHACHA20-POLY1305"))


def test_a_name_chooses_the_certificate_and_the_host_the_server(balancer):
    one = balancer(server() + server(name="b.test", pairs=[certificate("b.test")])
                   + server(name="*.c.test", pairs=[certificate("*.c.test")]))
    assert text(one.port) == "a.test"
    assert text(one.port, name="b.test") == "b.test"
    assert text(one.port, name="x.c.test") == "*.c.test"
    # Without a name, and with an unknown one, the default server's certificate is shown.
    unverified = context(verify=False)
    for name in (None, "other.test"):
        with TlsClient(one.port, name=name, tls=unverified) as client:
            shown = ssl.DER_cert_to_PEM_cert(client.tls.getpeercert(True))
            assert shown.strip() == certificate().certificate.read_text().strip()
    # Another host on the connection is another server.
    assert text(one.port, host="b.test") == "b.test"


def test_a_key_of_each_kind(balancer):
    one = balancer(server(pairs=[certificate(kind="rsa"), certificate(kind="ec")]))
    for ciphers, kind in (("ECDHE-RSA-AES128-GCM-SHA256", "rsa"), ("ECDHE-ECDSA-AES128-GCM-SHA256", "ec")):
        tls = context(versions=ssl.TLSVersion.TLSv1_2, ciphers=ciphers)
        with TlsClient(one.port, tls=tls) as client:
            shown = ssl.DER_cert_to_PEM_cert(client.tls.getpeercert(True))
            assert shown.strip() == certificate(kind=kind).certificate.read_text().strip()
    if ON_BALANZA:
        one.reload(server(pairs=[certificate(kind="ed25519")]))
        wait_for(lambda: "signature type: ed25519" in openssl_client(one.port, "-sigalgs", "ed25519").lower())


def openssl_client(port, *arguments, send=b"GET / HTTP/1.0\r\n\r\n"):
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "a.test",
                           *map(str, arguments)], input=send, capture_output=True, timeout=60)
    return (done.stdout + done.stderr).decode("latin-1")


def test_keys_that_are_encrypted_and_certificates_in_the_text(balancer, tmp_path):
    pair = certificate()
    passwords = tmp_path / "passwords"
    passwords.write_text("wrong\nright\n")
    tmp_path.chmod(0o755)
    secret = encrypted(pair, "right")
    one = balancer(f"ssl_password_file {passwords}; ssl_certificate {pair.certificate}; ssl_certificate_key {secret};"
                   "server { listen 127.0.0.1:PORT ssl; return 200 ok; }")
    assert text(one.port) == "ok"
    if ON_BALANZA:
        inline = f"ssl_certificate 'data:{pair.certificate.read_text()}'; ssl_certificate_key 'data:{pair.key.read_text()}';"
        one.reload(f"{inline} server {{ listen 127.0.0.1:PORT ssl; return 200 inline; }}")
        wait_for(lambda: text(one.port) == "inline")


def test_plain_requests_to_a_port_of_tls(balancer):
    one = balancer(server("error_page 497 https://a.test/right;") )
    response = get(one.port)
    assert response.status == 302 and response["Location"] == "https://a.test/right"
    one = balancer(server())
    response = get(one.port)
    assert response.status == 400 and b"The plain HTTP request was sent to HTTPS port" in response.body
    assert text(one.port) == "a.test"


def test_both_kinds_of_ports_in_one_server(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; listen unix:DIR/tls ssl; " + certificate().directives()
                   + "location / { return 200 $scheme; } location /r { return 301 /x; } }")
    assert get(one.port).body == b"http"
    assert get(one.port, "/r")["Location"].startswith("http://")


def test_redirects_name_https(balancer):
    one = balancer(server(location="return 301 /x;"))
    assert fetch(one.port)["Location"] == f"https://a.test:{one.port}/x"


VERIFIES = {"on": [496, 495, 200], "optional": [200, 495, 200], "optional_no_ca": [200, 200, 200], "off": [200, 200, 200]}


@pytest.mark.parametrize("verify", VERIFIES)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificates_of_clients(balancer, verify, version):
    pages = "".join(f"error_page {status} =200 /seen-{status};" for status in (495, 496))
    one = balancer(server(f"ssl_verify_client {verify}; ssl_client_certificate {authority().certificate}; {pages}",
                          location="return 200 '$uri $ssl_client_verify';"))
    seen = []
    for pair in (None, certificate("me", by="foreign"), certificate("me")):
        path, _, verdict = text(one.port, tls=context(certificate=pair, versions=version)).partition(" ")
        seen.append(int(path.removeprefix("/seen-")) if path != "/" else 200)
        if verify != "off":
            expected = "NONE" if pair is None else "SUCCESS" if "authority" in pair.key.name else "FAILED:"
            assert verdict.startswith(expected), (pair, verdict)
    assert seen == VERIFIES[verify]


def test_what_is_known_of_a_client(balancer):
    variables = ["s_dn", "i_dn", "s_dn_legacy", "i_dn_legacy", "serial", "fingerprint", "v_start", "v_end", "v_remain",
                 "verify", "escaped_cert", "raw_cert"]
    one = balancer(server(f"ssl_verify_client optional; ssl_client_certificate {authority().certificate};",
                          location="return 200 '" + "|".join(f"$ssl_client_{name}" for name in variables) + "';"))
    pair = certificate("me, you")
    shown = dict(zip(variables, text(one.port, tls=context(certificate=pair)).split("|")))
    told = openssl("x509", "-in", pair.certificate, "-noout", "-serial", "-fingerprint", "-sha1", "-startdate", "-enddate")
    told = dict(line.split("=", 1) for line in told.splitlines())
    assert shown["s_dn"] == r"CN=me\, you,O=Tests" and shown["i_dn"] == "CN=authority,O=Tests"
    assert shown["s_dn_legacy"] == "/O=Tests/CN=me, you"
    assert shown["serial"] == told["serial"]
    assert shown["fingerprint"] == told["sha1 Fingerprint"].replace(":", "").lower()
    assert (shown["v_start"], shown["v_end"]) == (told["notBefore"], told["notAfter"])
    assert shown["v_remain"] in ("9", "10") and shown["verify"] == "SUCCESS"
    pem = pair.certificate.read_text()
    assert shown["raw_cert"].strip() == pem.strip()
    assert shown["escaped_cert"].startswith("-----BEGIN%20CERTIFICATE-----%0A")


def test_an_expired_certificate_says_so(balancer):
    one = balancer(server(f"ssl_verify_client optional; ssl_client_certificate {authority().certificate}; "
                          "error_page 495 =200 /bad;", location="return 200 $ssl_client_verify;"))
    assert text(one.port, tls=context(certificate=certificate("me", expired=True))) == "FAILED:certificate has expired"


def test_depth_and_lists_of_revoked_certificates(balancer, tmp_path):
    tmp_path.chmod(0o755)
    ca, revoked, good = authority(), certificate("revoked"), certificate("good")
    index, crl, conf = tmp_path / "index", tmp_path / "crl.pem", tmp_path / "ca.cnf"
    index.write_text("")
    (tmp_path / "number").write_text("01\n")
    conf.write_text(f"[ca]\ndefault_ca=one\n[one]\ndatabase={index}\ncrlnumber={tmp_path}/number\ndefault_md=sha256\n"
                    "default_crl_days=10\n")
    common = ("-config", conf, "-keyfile", ca.key, "-cert", ca.certificate)
    openssl("ca", *common, "-revoke", revoked.certificate)
    openssl("ca", *common, "-gencrl", "-out", crl)
    one = balancer(server(f"ssl_verify_client on; ssl_client_certificate {ca.certificate}; ssl_crl {crl}; "
                          "error_page 495 =200 /bad;", location="return 200 $ssl_client_verify;"))
    assert text(one.port, tls=context(certificate=good)) == "SUCCESS"
    assert text(one.port, tls=context(certificate=revoked)) == "FAILED:certificate revoked"


def test_a_host_that_asks_for_certificates_cannot_be_reached_by_another_name(balancer):
    asks = f"ssl_verify_client on; ssl_client_certificate {authority().certificate};"
    one = balancer(server() + server(asks, name="b.test", pairs=[certificate("b.test")]))
    assert fetch(one.port, host="b.test").status == 421
    assert fetch(one.port, name="b.test").status == 400
    assert text(one.port, name="b.test", tls=context(certificate=certificate("me"))) == "b.test"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kept", ["", "ssl_session_tickets off; ssl_session_cache shared:one:1m;"])
def test_sessions_go_on_also_after_a_reload(balancer, version, kept):
    text_of = server(kept, location="return 200 '$ssl_session_reused';")
    one = balancer(text_of, workers=2)
    tls = context(versions=version)
    session = None
    seen = ""
    for attempt in range(4):
        if attempt == 2 and ON_BALANZA:
            one.reload(text_of + "# changed")
            one.wait_error("reconfiguring|gracefully shutting down")
        with TlsClient(one.port, tls=tls, session=session) as client:
            seen += client.request(host="a.test").response().body.decode()
            session = client.tls.session
    assert seen == ".rrr"


def test_sessions_can_be_off(balancer):
    one = balancer(server("ssl_session_tickets off; ssl_session_cache off;", location="return 200 '$ssl_session_reused';"))
    tls = context(versions=ssl.TLSVersion.TLSv1_2)
    session, seen = None, ""
    for _ in range(2):
        with TlsClient(one.port, tls=tls, session=session) as client:
            seen += client.request(host="a.test").response().body.decode()
            session = client.tls.session
    assert seen == ".."


def test_keys_for_tickets_come_from_files(balancer, tmp_path):
    tmp_path.chmod(0o755)
    keys = []
    for number in range(2):
        keys.append(tmp_path / f"key{number}")
        keys[-1].write_bytes(os.urandom(80))
    tls = context(versions=ssl.TLSVersion.TLSv1_2)

    def ask(port, session=None):
        with TlsClient(port, tls=tls, session=session) as client:
            return client.request(host="a.test").response().body.decode(), client.tls.session

    def make(*keys):
        return balancer(server("".join(f"ssl_session_ticket_key {key};" for key in keys),
                               location="return 200 '$ssl_session_reused';"))

    first, both, second = make(keys[0]), make(keys[1], keys[0]), make(keys[1])
    seen, session = ask(first.port)
    assert seen == "." and ask(both.port, session)[0] == "r" and ask(second.port, session)[0] == "."


def test_handshakes_can_be_rejected(balancer):
    one = balancer("server { listen 127.0.0.1:PORT ssl default_server; ssl_reject_handshake on; }\n" + server())
    assert text(one.port) == "a.test"
    assert "unrecognized name" in refused(one.port, name="other.test", tls=context(verify=False)).lower().replace("_", " ")


def test_large_bodies_in_both_directions(balancer):
    origin = Origin(lambda request, _: answer(request.body))
    one = balancer(upstream([origin]) + server("client_max_body_size 0;", location="proxy_pass http://group;"))
    for size in (1, 16384, 100_000, 3_000_000):
        body = os.urandom(size)
        assert fetch(one.port, "/", method="POST", body=body).body == body
    with TlsClient(one.port) as client:
        for size in (10, 70_000, 10):
            body = os.urandom(size)
            client.request("POST", "/", host="a.test", body=body)
            assert client.response("POST").body == body


def test_files_and_requests_in_a_row(balancer):
    one = balancer(server("root html;", location=""), start=False)
    contents = os.urandom(2_000_000)
    (one.dir / "html/large").write_bytes(contents)
    one.start()
    with TlsClient(one.port) as client:
        client.send("GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n" * 3)
        for _ in range(3):
            assert client.response().body == contents
    assert fetch(one.port, "/large", headers={"Range": "bytes=5-1000004"}).body == contents[5:1_000_005]


def test_an_end_is_announced(balancer):
    """A client can tell a body that ends with the connection from one that was cut."""
    one = balancer(server(location="return 200 ok;"))
    with TlsClient(one.port) as client:
        client.tls.suppress_ragged_eofs = False
        client.send("GET / HTTP/1.0\r\n\r\n")
        assert client.rest().endswith(b"ok")


def test_garbage_and_slow_clients_harm_nobody(balancer):
    # A handshake of a client that is let in must not be cut, however busy the machine is.
    one = balancer("client_header_timeout 2s;" + server())
    idle = [Client(one.port) for _ in range(5)]
    partial = [Client(one.port).send(b"\x16\x03\x01\x02\x00\x01\x00") for _ in range(5)]
    for garbage in (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x16\x02" + bytes(100), bytes(range(256)),
                    b"\x16\x03\x01\xff\xff" + bytes(70_000)):
        with Client(one.port) as client:
            try:
                client.send(garbage)
                client.rest()
            except OSError:
                pass
    assert text(one.port) == "a.test"
    for client in idle + partial:
        assert client.closed()


def test_a_bad_certificate_keeps_the_old_configuration(balancer, tmp_path):
    tmp_path.chmod(0o755)
    used = tmp_path / "used.pem"
    used.write_bytes(certificate().certificate.read_bytes())
    text_of = (f"server {{ listen 127.0.0.1:PORT ssl; ssl_certificate {used}; "
               f"ssl_certificate_key {certificate().key}; return 200 ok; }}")
    one = balancer(text_of)
    used.write_bytes(certificate("b.test").certificate.read_bytes())
    one.reload()
    one.wait_error(r"does not belong to the certificate|key values mismatch")
    assert text(one.port) == "ok"
    used.write_bytes(certificate().certificate.read_bytes() + authority().certificate.read_bytes())
    one.reload()
    if ON_BALANZA:
        wait_for(lambda: openssl_client(one.port, "-showcerts").count("BEGIN CERTIFICATE") == 2)


@balanza_only("the messages are Balanza's")
@pytest.mark.parametrize("directives, message", [
    ("", 'no "ssl_certificate" is defined for the "listen ... ssl" directive'),
    ("ssl_certificate none.pem; ssl_certificate_key none.key;", "No such file or directory"),
    ("ssl_certificate CERT;", 'no "ssl_certificate_key" is defined for certificate'),
    ("ssl_certificate CERT; ssl_certificate_key OTHER;", "does not belong to the certificate"),
    ("ssl_certificate KEY; ssl_certificate_key KEY;", "there is no certificate in it"),
    ("ssl_certificate CERT; ssl_certificate_key CERT;", "there is no private key in it"),
    ("ssl_certificate CERT; ssl_certificate_key ENCRYPTED;", "the key is encrypted, and no password is given"),
    ("ssl_certificate CERT; ssl_certificate_key engine:x:y;", "engines"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_protocols TLSv1 TLSv1.1;", "does not have TLSv1 and TLSv1.1, and nothing else may be used"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_protocols TLSv1.2; ssl_ciphers RC4;", "TLS is not possible"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_ecdh_curve secp521r1;", "does not have secp521r1, and no other group is named"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_ecdh_curve nonsense;", 'unknown group "nonsense"'),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_verify_client on;", "no ssl_client_certificate"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_session_cache shared:x;", "invalid session cache"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_session_ticket_key KEY;", "must be 48 or 80 bytes"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_conf_command Engine x;", "is not possible"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_conf_command Options UnsafeLegacyRenegotiation;", "is not possible"),
    ("ssl_certificate CERT; ssl_certificate_key KEY; ssl_ocsp on;", '"ssl_ocsp on" is a setting of NGINX that Balanza does not have'),
])
def test_what_is_wrong_with_certificates_is_said(balancer, directives, message):
    pair = certificate()
    named = {"CERT": pair.certificate, "OTHER": certificate("b.test").key, "ENCRYPTED": encrypted(pair, "x"), "KEY": pair.key}
    for name, path in named.items():
        directives = directives.replace(f" {name};", f" {path};")
    one = balancer(f"server {{ listen 127.0.0.1:PORT ssl; {directives} }}", start=False)
    tested = one.test_config()
    assert tested.returncode != 0 and message in tested.stderr, tested.stderr


@balanza_only("NGINX has other cipher suites")
def test_what_does_not_exist_here_is_left_out_with_one_warning(balancer):
    mozilla = ("ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3; ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:"
               "DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-SHA; ssl_dhparam none.pem; ssl_ecdh_curve X25519:secp521r1;")
    one = balancer(server(mozilla) + server(mozilla, name="b.test"))
    assert text(one.port) == "a.test"
    said = one.test_config().stderr
    assert said.count("left out: DHE-RSA-AES128-GCM-SHA256, ECDHE-RSA-AES128-SHA") == 1
    assert "Balanza does not have TLSv1 and TLSv1.1" in said


@balanza_only("other processes")
def test_keys_are_in_no_dump_and_not_in_the_command_line(balancer):
    pair = certificate()
    one = balancer(server())
    assert text(one.port) == "a.test"
    secret = "".join(pair.key.read_text().splitlines()[1:3])[:40]
    dump = subprocess.run([*one.arguments, "-T"], capture_output=True, text=True, timeout=20)
    assert str(pair.key) in dump.stdout and secret not in dump.stdout + dump.stderr
    assert secret not in one.error_log()
    assert "BEGIN CERTIFICATE" not in dump.stdout


def test_openssl_reads_and_resumes(balancer, tmp_path):
    one = balancer(server(location="return 200 'reused: $ssl_session_reused';"))
    session = tmp_path / "session"
    request = b"GET / HTTP/1.0\r\n\r\n"
    first = openssl_client(one.port, "-CAfile", authority().certificate, "-ign_eof", "-sess_out", session, send=request)
    assert "Verify return code: 0 (ok)" in first and "reused: ." in first
    assert "reused: r" in openssl_client(one.port, "-ign_eof", "-sess_in", session, send=request)


def test_curl_verifies_the_certificate(balancer):
    one = balancer(server())
    done = subprocess.run(["curl", "-sS", "--cacert", authority().certificate, "--resolve", f"a.test:{one.port}:127.0.0.1",
                           f"https://a.test:{one.port}/"], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("a.test", "")




@balanza_only("the command is Balanza's")
def test_a_certificate_for_trying_things_out(balancer, tmp_path):
    def make(*more):
        return subprocess.run([binary(), "cert", "--self-signed", "a.test", "127.0.0.1", *more], cwd=tmp_path,
                              capture_output=True, text=True, timeout=20)

    tmp_path.chmod(0o755)
    made = make()
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "a.test.key").stat().st_mode & 0o777 == 0o600
    again = make()
    assert again.returncode != 0 and "--force" in again.stderr
    assert make("--force").returncode == 0
    one = balancer(f"server {{ listen 127.0.0.1:PORT ssl; {made.stdout} return 200 ok; }}")
    trusts = ssl.create_default_context(cafile=tmp_path / "a.test.pem")
    assert text(one.port, tls=trusts) == "ok" and text(one.port, name="127.0.0.1", tls=trusts) == "ok"


@balanza_only("NGINX does not look at the time")
def test_certificates_that_end_soon_are_warned_of(balancer):
    one = balancer(server(pairs=[certificate(expired=True)]) + server(name="b.test", pairs=[certificate("b.test")])
                   + server(name="c.test", pairs=[authority()]))
    said = one.test_config().stderr
    assert f'[warn] the certificate "{certificate(expired=True).certificate}" has expired' in said
    # It was made for ten days, a moment ago or some minutes.
    assert re.search(rf'\[warn\] the certificate "{certificate("b.test").certificate}" expires in (9|10) days', said)
    assert said.count("the certificate") == 2, said
