"""Certificates whose files are named by variables, and `ssl_certificate_cache`."""

import os
import re
import ssl
import subprocess

import pytest

from support.balancer import wait_for
from support.certificates import authority, certificate
from support.expect import balanza_only
from support.http2 import Http2Client
from support.stream import Streaming
from support.tls import TlsClient, context, refused, text

NAMED = "ssl_certificate certs/$ssl_server_name.pem; ssl_certificate_key certs/$ssl_server_name.key;"
# Nothing is forgotten and nothing is looked at again, however slow the machine is.
KEPT = "inactive=1h valid=1h"


def server(more="", *, certificates=NAMED, listen="ssl", body="$ssl_server_name", name="a.test b.test"):
    return (f"server {{ listen 127.0.0.1:PORT {listen}; server_name {name}; {certificates} {more} "
            f"location / {{ return 200 '{body}'; }} }}\n")


class Files:
    """A balancer with a directory of certificates that its workers may read."""

    def __init__(self, balancer, http, names=("a.test", "b.test"), **options):
        self.one = balancer(http, start=False, **options)
        (self.one.dir / "certs").mkdir()
        for name in names:
            self.put(name, certificate(name))
        self.one.start()
        self.port = self.one.port

    def put(self, name, pair):
        """Replaces the files of a name, each at once."""
        for suffix, source in ((".pem", pair.certificate), (".key", pair.key)):
            self.write(name + suffix, source.read_bytes())

    def write(self, name, contents):
        new = self.one.dir / "certs" / f"{name}.new"
        new.write_bytes(contents)
        new.chmod(0o644)
        new.rename(self.one.dir / "certs" / name)


def shown(port, name="a.test", **options):
    """The certificate that a client gets."""
    with TlsClient(port, name=name, tls=context(verify=False, **options)) as client:
        return client.tls.getpeercert(True)


def der(pair):
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def another(name="a.test"):
    return certificate(name, by="foreign")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_name_chooses_the_file(balancer, version):
    files = Files(balancer, server(body="$ssl_server_name $scheme $ssl_protocol"), workers=2)
    for name in ("a.test", "b.test", "a.test"):
        assert text(files.port, name=name, tls=context(versions=version)).split()[:2] == [name, "https"]
        assert shown(files.port, name, versions=version) == der(certificate(name))


def test_a_key_of_each_kind(balancer):
    kinds = "".join(f"ssl_certificate certs/$ssl_server_name-{kind}.pem; "
                    f"ssl_certificate_key certs/$ssl_server_name-{kind}.key;" for kind in ("rsa", "ec"))
    files = Files(balancer, server(certificates=kinds), names=())
    for name in ("a.test", "b.test"):
        for kind in ("rsa", "ec"):
            files.put(f"{name}-{kind}", certificate(name, kind=kind))
    for name in ("a.test", "b.test"):
        for ciphers, kind in (("ECDHE-RSA-AES128-GCM-SHA256", "rsa"), ("ECDHE-ECDSA-AES128-GCM-SHA256", "ec")):
            got = shown(files.port, name, versions=ssl.TLSVersion.TLSv1_2, ciphers=ciphers)
            assert got == der(certificate(name, kind=kind))


def test_what_one_name_lacks_is_no_harm_to_others(balancer):
    files = Files(balancer, server())
    worker = files.one.workers_alive()
    with TlsClient(files.port) as before:
        for _ in range(3):
            assert "internal error" in refused(files.port, name="c.test").lower().replace("_", " ")
        assert text(files.port, name="b.test") == "b.test"
        assert before.request(host="a.test").response().body == b"a.test"
    files.one.wait_error(r'\[error\] .*cannot load certificate "[^"]*certs/c\.test\.pem".*No such file or directory'
                         r'.* while SSL handshaking, client: 127\.0\.0\.1')
    # The files come later, without a reload.
    files.put("c.test", certificate("c.test"))
    assert text(files.port, name="c.test") == "c.test"
    assert files.one.workers_alive() == worker
    # A client without a name gets what the variables say then.
    assert refused(files.port, name=None, tls=context(verify=False))
    files.one.wait_error(r'cannot load certificate "[^"]*certs/\.pem"')


@balanza_only("the messages are Balanza's")
@pytest.mark.parametrize("cache", ["", f"ssl_certificate_cache max=10 {KEPT};"])
def test_what_is_wrong_with_a_file_is_said(balancer, cache):
    files = Files(balancer, server(cache))
    good = certificate()
    secret = good.key.read_text().splitlines()[1]
    wrong = {"text.pem": b"nothing", "large.pem": bytes(2 << 20), "mismatch.pem": good.certificate.read_bytes(),
             "mismatch.key": certificate("b.test").key.read_bytes(), "keyless.pem": good.certificate.read_bytes(),
             "swapped.pem": good.key.read_bytes()}
    for name, contents in wrong.items():
        files.write(name, contents)
    (files.one.dir / "certs/directory.pem").mkdir()
    os.mkfifo(files.one.dir / "certs/fifo.pem")
    os.chmod(files.one.dir / "certs/fifo.pem", 0o666)
    messages = {"text": "there is no certificate in it", "large": "File too large", "directory": "Is a directory",
                "fifo": "not a regular file", "mismatch": "the key does not belong to the certificate",
                "keyless": "No such file or directory", "swapped": "there is no certificate in it"}
    if os.geteuid() == 0:
        # The workers have another account.
        files.write("private.pem", good.certificate.read_bytes())
        files.write("private.key", good.key.read_bytes())
        (files.one.dir / "certs/private.key").chmod(0o600)
        messages["private"] = "Permission denied"
    for name, message in messages.items():
        for _ in range(2):
            assert refused(files.port, name=name, tls=context(verify=False))
        part = "certificate key" if name in ("mismatch", "keyless", "private") else "certificate"
        files.one.wait_error(rf'cannot load {part} "{files.one.dir}/certs/{name}\.\w+": .*{message}')
        assert shown(files.port) == der(good)
    assert secret not in files.one.error_log()


@balanza_only("NGINX opens what such a name leads to")
def test_a_name_leads_nowhere_else(balancer):
    files = Files(balancer, server())
    for name in ("../certs/a.test", ".hidden", "certs/../a.test"):
        subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{files.port}", "-servername", name],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        files.one.wait_error(f'cannot load a certificate: "{re.escape(name)}" is no name of a host')
    assert text(files.port) == "a.test"


@balanza_only("there is no cache")
def test_files_are_looked_at_when_their_time_is_over(balancer):
    files = Files(balancer, server("ssl_certificate_cache max=10 inactive=1h valid=1s;"), workers=2)
    for pair in (certificate(), another(), certificate()):
        files.put("a.test", pair)
        wait_for(lambda: all(shown(files.port) == der(pair) for _ in range(8)), what="the new certificate")


@balanza_only("there is no cache")
def test_a_kept_half_of_a_replaced_pair_is_read_again(balancer):
    common = ("ssl_certificate certs/$ssl_server_name.pem; ssl_certificate_key certs/$key.key; "
              f"ssl_certificate_cache max=10 {KEPT};")
    files = Files(balancer, "map $ssl_server_name $key { default a.test; }\n" + server(certificates=common))
    files.put("b.test", certificate())
    assert shown(files.port) == der(certificate())
    for name in ("a.test", "b.test"):
        files.put(name, another())
    # Of b.test the certificate is new and the key is kept; of a.test it is then the other way round.
    assert shown(files.port, "b.test") == der(another())
    assert shown(files.port) == der(another())
    assert "cannot load" not in files.one.error_log()


@balanza_only("there is no cache")
def test_a_cache_keeps_what_is_valid(balancer):
    files = Files(balancer, server(f"ssl_certificate_cache max=10 {KEPT};"))
    assert shown(files.port) == der(certificate())
    files.put("a.test", another())
    for _ in range(20):
        assert shown(files.port) == der(certificate())
    # A failed load is not kept.
    assert refused(files.port, name="c.test")
    files.put("c.test", certificate("c.test"))
    assert shown(files.port, "c.test") == der(certificate("c.test"))
    # Another configuration has another cache.
    files.one.reload()
    wait_for(lambda: shown(files.port) == der(another()), what="the new certificate")


@pytest.mark.parametrize("cache", ["", pytest.param("ssl_certificate_cache off;", marks=balanza_only("no cache"))])
def test_without_a_cache_files_are_read_for_each_handshake(balancer, cache):
    inherited = cache and f"ssl_certificate_cache max=10 {KEPT};\n"
    files = Files(balancer, inherited + server(cache))
    for pair in (certificate(), another(), certificate()):
        files.put("a.test", pair)
        assert shown(files.port) == der(pair)


@balanza_only("there is no cache")
@pytest.mark.parametrize("most, is_kept", [(4, True), (3, False), (2, False)])
def test_certificates_and_keys_are_counted_and_the_oldest_go(balancer, most, is_kept):
    files = Files(balancer, server(f"ssl_certificate_cache max={most} {KEPT};"))
    assert shown(files.port) == der(certificate())
    files.put("a.test", another())
    assert shown(files.port, "b.test") == der(certificate("b.test"))
    assert shown(files.port) == der(certificate() if is_kept else another())


def test_texts_in_variables(balancer):
    pairs = {name: certificate(name) for name in ("a.test", "b.test")}
    maps = "".join(f"map $ssl_server_name ${variable} {{ " + "".join(
        f"{name} \"{getattr(pair, variable).read_text()}\"; " for name, pair in pairs.items()) + "}\n"
        for variable in ("certificate", "key"))
    one = balancer(maps + server(certificates="ssl_certificate data:$certificate; ssl_certificate_key data:$key;"))
    for name, pair in pairs.items():
        assert shown(one.port, name) == der(pair)
    assert refused(one.port, name="c.test")
    one.wait_error('cannot load certificate "data:')
    assert pairs["a.test"].key.read_text().splitlines()[1] not in one.error_log()


def test_maps_choose_for_clients_without_a_name(balancer):
    maps = "map $ssl_server_name $file { default b.test; a.test a.test; }\n"
    files = Files(balancer, maps + server(certificates="ssl_certificate certs/$file.pem; ssl_certificate_key certs/$file.key;",
                                          body="$file $server_addr $remote_addr"))
    assert shown(files.port) == der(certificate())
    for name in (None, "other.test"):
        assert shown(files.port, name) == der(certificate("b.test"))
    # A request has its own values.
    assert text(files.port, name="a.test") == "a.test 127.0.0.1 127.0.0.1"


def test_servers_with_and_without_variables(balancer):
    files = Files(balancer, server(name="a.test")
                  + server(name="c.test", certificates=certificate("c.test").directives()))
    assert shown(files.port, "c.test") == der(certificate("c.test"))
    assert shown(files.port) == der(certificate())
    # One file with a variable is enough: the others of its server are read by the workers, too.
    files.one.reload(server(certificates="ssl_certificate certs/$ssl_server_name.pem; ssl_certificate_key certs/a.test.key;"))
    wait_for(lambda: refused_quietly(files.port, "b.test"), what="a key of another certificate")
    assert shown(files.port) == der(certificate())


def refused_quietly(port, name):
    try:
        shown(port, name)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_go_on(balancer, version):
    files = Files(balancer, server(body="$ssl_session_reused"), workers=2)
    tls, session, seen = context(versions=version), None, ""
    for _ in range(3):
        with TlsClient(files.port, tls=tls, session=session) as client:
            seen += client.request(host="a.test").response().body.decode()
            session = client.tls.session
    assert seen == ".rr"


def test_clients_show_certificates(balancer):
    asks = f"ssl_verify_client on; ssl_client_certificate {authority().certificate};"
    files = Files(balancer, server(asks, body="$ssl_client_verify"))
    assert text(files.port, tls=context(certificate=certificate("me"))) == "SUCCESS"
    assert "400" in text(files.port)


def test_http2(balancer):
    http = "server { listen 127.0.0.1:PORT ssl; http2 on; " + NAMED + " location / { return 200 $ssl_server_name; } }"
    files = Files(balancer, http)
    for name in ("a.test", "b.test"):
        with Http2Client(files.port, tls=context(alpn=["h2"]), name=name) as client:
            assert client.sock.getpeercert(True) == der(certificate(name))
            assert client.get(host=name).body == name.encode()


@pytest.mark.parametrize("cache", ["", pytest.param("ssl_certificate_cache max=10;", marks=balanza_only("no cache"))])
def test_stream(cache):
    one = Streaming(f"server {{ listen 127.0.0.1:SPORT ssl; {cache} {NAMED} return $ssl_server_name; }}")
    certs = one.one.dir / "certs"
    certs.mkdir()
    for name in ("a.test", "b.test"):
        for suffix, source in ((".pem", certificate(name).certificate), (".key", certificate(name).key)):
            (certs / (name + suffix)).write_bytes(source.read_bytes())
            (certs / (name + suffix)).chmod(0o644)

    def told(name):
        with TlsClient(one.stream_port, name=name) as client:
            assert client.tls.getpeercert(True) == der(certificate(name))
            return client.rest()

    assert told("a.test") == b"a.test"
    assert refused_quietly(one.stream_port, "c.test")
    one.one.wait_error(r'\[error\] .*cannot load certificate "[^"]*c\.test\.pem".*No such file')
    assert told("b.test") == b"b.test"


@balanza_only("the parameters are newer")
@pytest.mark.parametrize("value, message", [
    ("max=0", 'invalid parameter "max=0"'), ("max=x", 'invalid parameter "max=x"'), ("on", 'invalid parameter "on"'),
    ("max=5 valid=x", 'invalid parameter "valid=x"'), ("inactive=5s", 'must have the "max" parameter'),
])
def test_what_is_wrong_with_a_cache_is_said(balancer, value, message):
    tested = balancer(server(f"ssl_certificate_cache {value};"), start=False).test_config()
    assert tested.returncode != 0 and message in tested.stderr, tested.stderr
