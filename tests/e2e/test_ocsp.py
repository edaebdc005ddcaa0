"""OCSP stapling: responses of OpenSSL's responder, seen by s_client."""

import contextlib
import re
import socket
import time

import pytest

from support.balancer import ON_BALANZA, wait_for
from support.certificates import authority, certificate, openssl
from support.dns import NameServer
from support.expect import balanza_only
from support.ocsp import Responder, serial, stapled, stapled_serial
from support.origin import answer
from support.tls import text


def server(pair, responder, more="", name="a.test", verify="on"):
    url = f"ssl_stapling_responder {responder};" if responder else ""
    return (f"server {{ listen 127.0.0.1:PORT ssl; server_name {name}; {pair.directives()} ssl_stapling on; {url} "
            f"ssl_stapling_verify {verify}; ssl_trusted_certificate {authority().certificate}; {more} return 200 ok; }}\n")


def status(one, expected, name="a.test"):
    """Waits for a status: NGINX asks the responder only when a client has asked for the status."""
    wait_for(lambda: stapled(one.port, name) == expected, what=f"the status {expected}", step=0.1)


def log(one):
    return (one.dir / "logs/error.log").read_text()


def keeps(one, expected, seconds=1.5):
    """The status stays so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert stapled(one.port) == expected, log(one)
        time.sleep(0.1)


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_good_certificate(balancer, kind):
    pair = certificate("a.test", kind)
    with Responder(pair) as responder:
        one = balancer(server(pair, responder.url))
        status(one, "good")
        assert stapled(one.port, "a.test", "-tls1_2") == "good"
        # A client that does not ask gets none, and is served as ever.
        assert text(one.port) == "ok"


def test_the_responder_that_the_certificate_names(balancer, tmp_path):
    responder = Responder(start=False)
    pair = certificate("aia.test")
    extensions = tmp_path / "extensions"
    extensions.write_text(f"subjectAltName=DNS:a.test\nauthorityInfoAccess=OCSP;URI:{responder.url},caIssuers;URI:http://a.test/")
    openssl("x509", "-req", "-in", pair.key.with_suffix(".csr"), "-CA", authority().certificate, "-CAkey", authority().key,
            "-CAcreateserial", "-extfile", extensions, "-out", pair.certificate)
    responder.know(pair)
    responder.start()
    with responder:
        one = balancer(server(pair, None))
        status(one, "good")


def test_a_delegate_of_the_issuer_may_sign(balancer, tmp_path):
    pair, delegate, other = certificate("a.test"), certificate("delegate"), certificate("no delegate")
    extensions = tmp_path / "extensions"
    extensions.write_text("extendedKeyUsage=OCSPSigning")
    openssl("x509", "-req", "-in", delegate.key.with_suffix(".csr"), "-CA", authority().certificate, "-CAkey",
            authority().key, "-CAcreateserial", "-extfile", extensions, "-out", delegate.certificate)
    with Responder(pair, signer=delegate) as responder:
        one = balancer(server(pair, responder.url))
        status(one, "good")
    # Issued by the same authority, but not for this purpose.
    with Responder(pair, signer=other) as responder:
        one = balancer(server(pair, responder.url))
        stapled(one.port)
        wait_for(lambda: "OCSP" in log(one), what="a message")
        keeps(one, None)


def test_a_response_of_a_wrong_key(balancer):
    pair = certificate("a.test")
    with Responder(pair, signer=authority("impostor")) as responder:
        # NGINX takes it without ssl_stapling_verify.
        one = balancer(server(pair, responder.url, verify="off" if ON_BALANZA else "on"))
        stapled(one.port)
        wait_for(lambda: "OCSP" in log(one), what="a message")
        keeps(one, None)
        assert text(one.port) == "ok"
        if ON_BALANZA:
            assert log(one).count("it is not signed by the issuer of the certificate or in its name") == 1


@pytest.mark.parametrize("shift, message", [(-7200, "it has expired"), (7200, "it is not valid yet")])
def test_a_response_of_another_time(balancer, shift, message):
    pair = certificate("a.test")
    with Responder(pair, shift=shift, minutes=10) as responder:
        one = balancer(server(pair, responder.url))
        stapled(one.port)
        wait_for(lambda: "OCSP" in log(one), what="a message")
        keeps(one, None)
        if ON_BALANZA:
            assert message in log(one)


@balanza_only("without nextUpdate, a response holds for ever")
def test_a_response_without_an_end_holds_for_a_day(balancer):
    pair = certificate("a.test")
    with Responder(pair, minutes=None) as responder:
        one = balancer(server(pair, responder.url))
        status(one, "good")
    with Responder(pair, minutes=None, shift=-25 * 3600) as responder:
        one = balancer(server(pair, responder.url))
        wait_for(lambda: "it has expired" in log(one), what="a message")
        keeps(one, None, 0.5)


def test_a_response_for_another_certificate(balancer, origin):
    """The responder knows the request and answers with what it has signed for another certificate."""
    pair, other = certificate("a.test"), certificate("b.test")
    with Responder(pair, other) as responder:
        response = responder.dir / "response"
        openssl("ocsp", "-issuer", authority().certificate, "-serial", f"0x{serial(other)}", "-url", responder.url,
                "-respout", response, "-noverify")
    other = origin(answer(response.read_bytes(), headers=[("Content-Type", "application/ocsp-response")]))
    one = balancer(server(pair, f"http://{other.server}"))
    stapled(one.port)
    wait_for(lambda: "OCSP" in log(one), what="a message")
    keeps(one, None)
    if ON_BALANZA:
        assert "it is for another certificate" in log(one)


def test_a_revoked_certificate(balancer):
    """As in NGINX, it is not stapled; the good response before it is not shown any more."""
    pair = certificate("a.test")
    with Responder(pair, minutes=1, shift=-56) as responder:
        one = balancer(server(pair, responder.url))
        status(one, "good")
        responder.stop()
        responder.know(revoked=[pair])
        responder.shift, responder.minutes = 0, 60
        responder.start()
        if ON_BALANZA:
            wait_for(lambda: "the certificate is revoked" in log(one), what="a message")
        status(one, None)
        keeps(one, None)


@balanza_only("the responder is asked again after 5 minutes")
def test_a_response_is_fetched_again_before_it_expires(balancer):
    pair = certificate("a.test")
    with Responder(pair, minutes=1, shift=-50) as responder:
        one = balancer(server(pair, responder.url))
        status(one, "good")
        keeps(one, "good", 12)
        assert responder.asked >= 2
        # Without the responder it is shown until it expires, and no longer.
        responder.stop()
        # At least half of its ten seconds are left.
        assert stapled(one.port) == "good", log(one)
        status(one, None)
        assert text(one.port) == "ok"
        # Each reason is logged once. A fetch that was in progress when the responder ended has another reason.
        reasons = re.findall(r'stapling for "[^"]*": (.*), while .*; the last response is sent until it expires', log(one))
        assert reasons and len(reasons) == len(set(reasons)), reasons
        responder.start()
        status(one, "good")
        wait_for(lambda: "has sent a valid response again" in log(one), what="a message")


@balanza_only("the responder is asked again after 5 minutes")
def test_a_responder_that_comes_later(balancer):
    pair = certificate("a.test")
    with Responder(pair, start=False) as responder:
        one = balancer(server(pair, responder.url))
        wait_for(lambda: "OCSP stapling" in log(one), what="a message")
        assert stapled(one.port) is None
        responder.start()
        status(one, "good")
        assert log(one).count("while fetching from") == 1


def test_no_handshake_waits_for_a_silent_responder(balancer):
    pair = certificate("a.test")
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as attempts:
        silent.settimeout(60)
        one = balancer(server(pair, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        # NGINX asks the responder when a client has asked for the status.
        assert stapled(one.port) is None

        def is_served_meanwhile():
            attempt = attempts.enter_context(silent.accept()[0])
            assert stapled(one.port) is None
            return is_open(attempt)

        wait_for(is_served_meanwhile, seconds=120, what="a handshake while the responder is asked")
        wait_for(lambda: "no answer in time" in log(one), seconds=60, what="a message") if ON_BALANZA else None


def is_open(connection):
    """Whether the other side, which has sent a request, has not closed the connection."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
        return False
    except BlockingIOError:
        return True


def test_several_certificates_have_their_own_responses(balancer):
    pairs = {name: certificate(name) for name in ("a.test", "b.test", "c.test")}
    with Responder(pairs["a.test"], pairs["b.test"], revoked=[pairs["c.test"]]) as responder:
        one = balancer("".join(server(pair, responder.url, name=name) for name, pair in pairs.items()))
        for name in ("a.test", "b.test"):
            status(one, "good", name)
            assert stapled_serial(one.port, name) == serial(pairs[name])
        assert stapled(one.port, "c.test") is None


def test_two_kinds_of_keys_in_one_server(balancer):
    pairs = [certificate("a.test", "rsa"), certificate("a.test", "ec")]
    with Responder(*pairs) as responder:
        one = balancer(server(pairs[0], responder.url, pairs[1].directives()))
        for algorithm, pair in (("RSA+SHA256", pairs[0]), ("ECDSA+SHA256", pairs[1])):
            asks = ("-tls1_2", "-sigalgs", algorithm)
            wait_for(lambda: stapled(one.port, "a.test", *asks) == "good", what=algorithm, step=0.1)


@balanza_only("a reload begins without responses")
def test_a_reload_keeps_the_response(balancer):
    pair = certificate("a.test")
    with Responder(pair) as responder:
        one = balancer(server(pair, responder.url), workers=2)
        status(one, "good")
        asked = responder.asked
        responder.stop()
        for step in range(3):
            one.reload(server(pair, responder.url, f"add_header X {step};"))
            assert stapled(one.port) == "good"
            wait_for(lambda: text(one.port) == "ok")
            keeps(one, "good", 0.5)
        assert responder.asked == asked and "while fetching" not in log(one)
        # Another certificate under the same name has no response yet.
        other = certificate("a.test", "rsa")
        one.reload(server(other, responder.url))
        wait_for(lambda: stapled(one.port) is None, what="the other certificate")


@balanza_only("the name must be known at the start")
def test_a_name_that_the_resolver_knows(balancer):
    pair = certificate("a.test")
    names = NameServer({"ocsp.example": ["127.0.0.1"]})
    with Responder(pair) as responder:
        url = f"http://ocsp.example:{responder.port}"
        one = balancer(server(pair, url, f"resolver {names.address} ipv6=off;"))
        status(one, "good")
    names.stop()


def test_a_response_from_a_file(balancer, tmp_path):
    pair = certificate("a.test")
    tmp_path.chmod(0o755)
    response = tmp_path / "response"
    with Responder(pair) as responder:
        openssl("ocsp", "-issuer", authority().certificate, "-cert", pair.certificate, "-url", responder.url, "-respout",
                response, "-noverify")
    one = balancer(server(pair, None, f"ssl_stapling_file {response};"))
    status(one, "good")
    one = balancer(server(pair, None, f"ssl_stapling_file {response};").replace("ssl_stapling on", "ssl_stapling off"))
    keeps(one, None, 0.5)


def test_nothing_to_ask(balancer):
    """As in NGINX, a warning, and the server works."""
    pair = certificate("a.test")
    one = balancer(server(pair, None))
    keeps(one, None, 0.5)
    assert '"ssl_stapling" ignored, no OCSP responder URL' in report(one)
    one = balancer(server(pair, "http://127.0.0.1:1/").replace(f"ssl_trusted_certificate {authority().certificate};", ""))
    keeps(one, None, 0.5)
    assert '"ssl_stapling" ignored, ' in report(one)
    one = balancer(server(pair, "https://127.0.0.1:1/"))
    keeps(one, None, 0.5)
    assert '"ssl_stapling" ignored, invalid URL prefix in OCSP responder "https://127.0.0.1:1/"' in report(one)


def report(one):
    return (one.dir / "stderr.txt").read_text() + log(one)
