"""The effects of single settings of TLS and HTTP/2, as a client or a server sees them."""

import os
import pathlib
import re
import signal
import ssl
import subprocess

import pytest
from h2.settings import SettingCodes

from support.balancer import children, wait_for
from support.certificates import DIR, Pair, authority, certificate, openssl
from support.client import Client, get
from support.expect import balanza_only
from support.http2 import Http2Client
from support.tls import TlsClient, context, refused, text

AGREED = "return 200 '$ssl_protocol $ssl_cipher $ssl_session_reused';"
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def server(name, more, location=AGREED):
    return (f"server {{ listen 127.0.0.1:PORT ssl; server_name {name}; {certificate('*.c.test').directives()} {more} "
            f"location / {{ {location} }} }}\n")


def records(port, name, version):
    """The lengths of the TLS records of the response to a request for /large."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context(versions=version).wrap_bio(incoming, outgoing, server_hostname=name)
    with Client(port) as client:
        def until(done):
            while True:
                try:
                    return done()
                except ssl.SSLWantReadError:
                    client.send(outgoing.read())
                    incoming.write(client.sock.recv(65536))
        until(session.do_handshake)
        session.write(f"GET /large HTTP/1.0\r\nHost: {name}\r\n\r\n".encode())
        client.send(outgoing.read())
        rest, lengths = client.rest(), []
    while rest:
        length = int.from_bytes(rest[3:5], "big")
        lengths.append(length)
        rest = rest[5 + length:]
    return lengths


@pytest.mark.parametrize("version, overhead", [(OLD, 24), (NEW, 17)])
def test_records_have_the_size_of_the_buffer(balancer, version, overhead):
    one = balancer(server("a.c.test", "ssl_buffer_size 4k; root html;", "") + server("b.c.test", "root html;", ""))
    (one.dir / "html/large").write_bytes(bytes(200_000))
    assert max(records(one.port, "a.c.test", version)) == 4096 + overhead
    assert max(records(one.port, "b.c.test", version)) == 16_384 + overhead


@balanza_only("suites are those of the default server")
def test_commands_of_openssl(balancer):
    commands = {"a": "Ciphersuites TLS_CHACHA20_POLY1305_SHA256", "b": "MinProtocol TLSv1.3", "c": "MaxProtocol TLSv1.2",
                "d": "Options -SessionTicket", "e": "Options ServerPreference,KTLS", "f": "Options PrioritizeChaCha"}
    ordered = "ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256;"
    one = balancer("".join(server(f"{name}.c.test", f"{ordered} ssl_conf_command {command};")
                           for name, command in commands.items()))

    def agreed(name, **options):
        return text(one.port, name=f"{name}.c.test", tls=context(**options)).rpartition(" ")[0]

    assert agreed("a") == "TLSv1.3 TLS_CHACHA20_POLY1305_SHA256" and agreed("f") == "TLSv1.3 TLS_AES_256_GCM_SHA384"
    assert agreed("b") == "TLSv1.3 TLS_AES_256_GCM_SHA384"
    assert "protocol version" in refused(one.port, name="b.c.test", tls=context(versions=OLD)).lower().replace("_", " ")
    assert agreed("c").startswith("TLSv1.2 ")
    # The client prefers the other suite.
    order = {"versions": OLD, "ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"}
    assert agreed("e", **order) == "TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384"
    assert agreed("f", **order) == "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256"
    for name, reused in (("d", "."), ("f", "r")):
        tls = context(versions=OLD)
        with TlsClient(one.port, name=f"{name}.c.test", tls=tls) as client:
            session = client.tls.session
        assert text(one.port, name=f"{name}.c.test", tls=tls, session=session)[-1] == reused, name


def test_the_depth_of_a_chain(balancer):
    middle, deep = Pair("middle"), Pair("deep")
    root = authority()
    for pair, issuer, more in ((middle, root, "basicConstraints=critical,CA:TRUE"), (deep, middle, "subjectAltName=DNS:deep")):
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", pair.key,
                "-out", DIR / "request", "-subj", f"/CN={pair.key.stem}")
        (DIR / "extensions").write_text(more)
        openssl("x509", "-req", "-in", DIR / "request", "-CA", issuer.certificate, "-CAkey", issuer.key, "-CAcreateserial",
                "-days", 10, "-extfile", DIR / "extensions", "-out", pair.certificate)
    deep.certificate.write_text(deep.certificate.read_text() + middle.certificate.read_text())
    asks = f"ssl_verify_client on; ssl_client_certificate {root.certificate}; error_page 495 =200 /bad;"
    shows = "return 200 $ssl_client_verify;"
    one = balancer(server("a.c.test", asks + "ssl_verify_depth 0;", shows) + server("b.c.test", asks, shows))
    tls = context(certificate=deep)
    assert text(one.port, name="a.c.test", tls=tls).startswith("FAILED:")
    assert text(one.port, name="b.c.test", tls=tls) == "SUCCESS"


@balanza_only("TLS 1.2 for servers unless it is told")
def test_what_is_offered_to_servers(balancer):
    settings = {"plain": "", "ciphers": "proxy_ssl_protocols TLSv1.2; proxy_ssl_ciphers ECDHE-ECDSA-CHACHA20-POLY1305;",
                "suites": "proxy_ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256;",
                "most": "proxy_ssl_conf_command MaxProtocol TLSv1.2;"}
    locations = "".join(f"location /{name} {{ proxy_pass https://unix:DIR/tls:/; {more} }}\n" for name, more in settings.items())
    one = balancer(f"server {{ listen 127.0.0.1:PORT; {locations} }}\n"
                   + server("a.c.test", "ssl_prefer_server_ciphers off;").replace("127.0.0.1:PORT", "unix:DIR/tls"))
    found = {name: get(one.port, f"/{name}").text.split()[:2] for name in settings}
    assert found["plain"] == ["TLSv1.3", "TLS_AES_256_GCM_SHA384"]
    assert found["ciphers"] == ["TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"]
    assert found["suites"] == ["TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"]
    assert found["most"][0] == "TLSv1.2"


@balanza_only("a virtual server's early data is that of the default server")
def test_early_data_is_for_sessions_that_the_server_keeps(balancer, tmp_path):
    cached = "ssl_session_tickets off; ssl_session_cache shared:one:1m;"
    one = balancer("".join(server(f"{name}.c.test", more, "return 200 'early: $ssl_early_data $request_uri ';") for name, more in (
        ("a", f"ssl_early_data on; {cached}"), ("b", "ssl_early_data on;"), ("c", cached))))
    request = tmp_path / "request"

    def ask(name, late, *arguments):
        done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{one.port}", "-servername", f"{name}.c.test", "-tls1_3",
                               "-ign_eof", *map(str, arguments)], input=late, capture_output=True, timeout=60)
        return (done.stdout + done.stderr).decode("latin-1")

    for name, early in (("a", True), ("b", False), ("c", False)):
        request.write_text(f"GET /early HTTP/1.0\r\nHost: {name}.c.test\r\n\r\n")
        session = tmp_path / name
        late = b"GET /late HTTP/1.0\r\n\r\n"
        ask(name, late, "-sess_out", session)
        # What comes after a response that ends the connection would reset it, and the client might lose the response.
        said = ask(name, b"" if early else late, "-sess_in", session, "-early_data", request)
        assert ("Early data was accepted" in said) == early, said
        assert f"{'early' if early else 'late'} " in said.rpartition("early: ")[2], said


@balanza_only("reads a list of settings for the whole connection")
def test_sizes_of_http2(balancer):
    one = balancer("""server { listen 127.0.0.1:PORT; http2 on; http2_body_preread_size 100k; root html;
                               location /small { http2_chunk_size 1k; } }""")
    for name in ("small", "large"):
        (one.dir / "html" / name).write_bytes(bytes(30_000))
    with Http2Client(one.port) as client:
        sizes = {}
        for name in ("small", "large"):
            stream = client.request(target=f"/{name}")
            seen = []
            take = client.take
            client.take = lambda stream, take=take, seen=seen: [seen.append(event) or event for event in take(stream)]
            assert len(client.response(stream).body) == 30_000
            client.take = take
            sizes[name] = max(len(event.data) for event in seen if hasattr(event, "data"))
        assert sizes == {"small": 1024, "large": 8192}
        assert client.h2.remote_settings[SettingCodes.INITIAL_WINDOW_SIZE] == 102_400


def numbers(pair):
    """The parts of an RSA key, in the forms that they may have in memory."""
    shown = openssl("pkey", "-in", pair.key, "-noout", "-text")
    for field in ("prime1", "prime2", "privateExponent"):
        digits = re.search(rf"{field}:\n((?: +[0-9a-f:]+\n)+)", shown)[1]
        number = bytes.fromhex(re.sub(r"[\s:]", "", digits)).lstrip(b"\0")
        yield from ((field, number), (f"{field} reversed", number[::-1]))
    # The first third is the modulus, which is also in the certificate.
    lines = pair.key.read_text().splitlines()
    yield from ((f"line {number}", lines[number].encode()) for number in range(10, len(lines) - 2))


def memory(pid):
    """The memory that a core file of a process would contain: all that is readable and not excluded from core files."""
    with open(f"/proc/{pid}/mem", "rb", 0) as file:
        for part in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", pathlib.Path(f"/proc/{pid}/smaps").read_text())[1:]:
            begin, end, mode = re.match(r"(\w+)-(\w+) (....)", part).groups()
            flags = re.search(r"VmFlags:(.*)", part)[1].split()
            if mode[0] == "r" and "dd" not in flags and "io" not in flags and "[v" not in part.partition("\n")[0]:
                file.seek(int(begin, 16))
                try:
                    yield file.read(int(end, 16) - int(begin, 16)) or b""
                except OSError:
                    # It has given this part back meanwhile.
                    continue


@balanza_only("its worker processes leave core files with keys")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_keys_are_in_no_core_file(balancer):
    """The worker has the keys only in the memory of its TLS library, and leaves no core file. Without keys it leaves one."""
    pair = certificate(kind="rsa")
    core = "worker_rlimit_core 4g; working_directory DIR/tmp;"
    plain = "server { listen 127.0.0.1:PORT; return 200 ok; }"
    one = balancer(f"{plain} server {{ listen unix:DIR/tls ssl; {pair.directives()} return 200 ok; }}", main=core)
    (one.dir / "tmp").chmod(0o777)
    [worker] = one.workers_alive()
    assert get(one.port).text == "ok"
    needles = dict(numbers(pair))

    def keys_of(pid):
        return {name for part in memory(pid) for name, needle in needles.items() if needle in part}

    # The supervisor wipes the keys after the worker has received them.
    wait_for(lambda: keys_of(one.process.pid) == set(), what="the supervisor to wipe the keys")
    # The worker has its signing key, which shows that the search can find keys.
    found = keys_of(worker)
    assert {name.partition(" ")[0] for name in found} == {"prime1", "prime2", "privateExponent"}, found
    assert "no core file is written" in one.test_config().stderr

    def crash():
        [worker] = one.workers_alive()
        os.kill(worker, signal.SIGABRT)
        one.wait_error(rf"worker process {worker} exited on signal 6")
        return worker

    crash()
    wait_for(lambda: get(one.port).text == "ok", what="another worker")
    assert list((one.dir / "tmp").glob("core*")) == []
    if pathlib.Path("/proc/sys/kernel/core_pattern").read_text().startswith("core"):
        other = balancer(plain, main=core.replace("DIR", str(one.dir)))
        # A worker that serves has all its settings.
        assert get(other.port).text == "ok"
        [worker] = children(other.process.pid)
        os.kill(worker, signal.SIGABRT)
        wait_for(lambda: list((one.dir / "tmp").glob("core*")), what="a core file")
