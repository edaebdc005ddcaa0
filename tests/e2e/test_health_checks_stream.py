"""`health_check` and `match` of `stream`."""

import pathlib
import ssl
import time

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.certificates import authority, certificate
from support.expect import balanza_only
from support.origin import Origin
from support.stream import Streaming

pytestmark = [balanza_only("health_check is a directive of NGINX Plus"),
              pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")]


class Server:
    """Says its name, unless the client begins with "PING": that is a check, which it answers with `health`."""

    def __init__(self, name, health=b"+PONG\r\n", *, silent=False, tls=None):
        self.name, self.health, self.silent, self.checks, self.heard = name, health, silent, 0, []
        self.origin = Origin(self.serve, raw=True, tls=tls)
        self.server = self.origin.server

    def serve(self, connection):
        connection.sock.settimeout(5)
        first = connection.sock.recv(100)
        self.heard.append(first)
        if not first.startswith(b"ask"):
            self.checks += 1
            if self.health is None:
                time.sleep(10)
            else:
                connection.send(self.health)
                # What comes behind the expected answer makes no difference.
                time.sleep(0.02)
        else:
            connection.send(self.name + "\n")
        connection.close()


MATCH = "match redis { send PING\\r\\n; expect ~ ^.PONG; }"


def text(servers, check="match=redis", *, match=MATCH, more=""):
    lines = "".join(f"server {server.server};" for server in servers)
    return (f"{match} upstream group {{ zone group 64k; {lines} }} server {{ listen 127.0.0.1:SPORT;"
            f" proxy_pass group; health_check interval=50ms mandatory {check}; {more} }}")


def goes_to(streaming, expected):
    def answering():
        found = set()
        for _ in range(10):
            with streaming.connect() as session:
                session.send(b"ask")
                found.add(session.rest().decode().strip())
        return found

    wait_for(lambda: answering() == expected, what=f"sessions at {expected}")


DEFECTS = {"another answer": b"-LOADING\r\n", "nothing": None, "an end": b""}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_send_and_expect(defect):
    servers = [Server("0"), Server("1")]
    streaming = Streaming(text(servers, more="health_check_timeout 300ms;"))
    goes_to(streaming, {"0", "1"})
    assert b"PING\r\n" in servers[0].heard
    servers[0].health = defect
    goes_to(streaming, {"1"})
    servers[0].health = b"+PONG\r\n"
    goes_to(streaming, {"0", "1"})


@pytest.mark.parametrize("expect,right,wrong", [
    ("expect +PONG;", b"+PONG and more", b"++PONG"),
    ("expect \\x00\\xffok;", b"\0\xffok", b"\0\xfeok"),
    ("expect ~* pong$;", b"...Pong", b"ponger"),
])
def test_expected_bytes(expect, right, wrong):
    servers = [Server("0", right), Server("1", wrong)]
    streaming = Streaming(text(servers, match=f"match redis {{ send PING; {expect} }}",
                               more="health_check_timeout 300ms;"))
    goes_to(streaming, {"0"})
    servers[0].health, servers[1].health = wrong, right
    goes_to(streaming, {"1"})


def test_without_match_a_connection_is_enough():
    servers = [Server("0"), Server("1")]
    streaming = Streaming(text(servers, "", match=""))
    goes_to(streaming, {"0", "1"})
    servers[0].origin.stop()
    wait_for(lambda: "the server is unhealthy: connect() failed" in streaming.one.error_log(), what="a failed check")
    goes_to(streaming, {"1"})
    servers[0].origin.listen()
    goes_to(streaming, {"0", "1"})


def test_an_answer_in_pieces():
    def slowly(connection):
        first = connection.sock.recv(100)
        if first.startswith(b"ask"):
            connection.send("0\n")
        else:
            connection.slowly("+PONG", pause=0.01)
        connection.close()

    streaming = Streaming(text([Origin(slowly, raw=True)], match="match redis { send PING; expect +PONG; }"))
    goes_to(streaming, {"0"})


def test_checks_speak_tls_and_send_the_header_of_proxy_protocol_where_sessions_do():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate("a.test").certificate, certificate("a.test").key)
    server = Server("0", tls=tls)
    more = (f"proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority().certificate};"
            "proxy_ssl_name {};")
    streaming = Streaming(text([server], more=more.format("a.test")))
    goes_to(streaming, {"0"})
    streaming.reload(text([server], more=more.format("b.test")))
    wait_for(lambda: "certificate verify error" in streaming.one.error_log(), what="a failed check")
    plain = Server("1")
    Streaming(text([plain], more="proxy_protocol on;"))
    wait_for(lambda: plain.heard, what="a check")
    assert plain.heard[0].startswith(b"PROXY UNKNOWN\r\n")
