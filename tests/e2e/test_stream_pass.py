"""`pass` in `stream`: another listening socket of the same process serves the connection."""

import json
import socket
import ssl
import struct

import pytest

from support.balancer import ON_NGINX, Balancer, wait_for
from support.certificates import certificate
from support.client import Client
from support.http2 import Http2Client
from support.ports import free_port
from support.stream import Session, TcpServer
from support.tls import TlsClient, context, fetch

pytestmark = pytest.mark.skipif(ON_NGINX, reason="NGINX 1.22 has no pass")

SAYS = ("return 200 '{\"scheme\": \"$scheme\", \"client\": \"$remote_addr:$remote_port\", \"server\": \"$server_addr:"
        "$server_port\", \"name\": \"$ssl_server_name\", \"protocol\": \"$server_protocol\", \"proxy\": "
        "\"$proxy_protocol_addr\", \"connection\": \"$connection\"}';")


class Passing:
    """A balancer whose http listens on `port` and whose stream listens on `stream`."""

    def __init__(self, stream, http=f"server {{ listen 127.0.0.1:PORT; location / {{ {SAYS} }} }}", workers=1, log=""):
        self.stream, self.other, self.more = free_port(), free_port(), free_port()
        text = (f"worker_processes {workers}; events {{ worker_connections 256; }}\n"
                f"http {{ log_format line '$remote_addr $status $request'; access_log logs/http.log line; {http} }}\n"
                f"stream {{ {log} {stream} }}\n")
        self.one = Balancer(text=self.ports(text))
        self.port = self.one.port

    def ports(self, text):
        return text.replace("SPORT", str(self.stream)).replace("OPORT", str(self.other)).replace("MPORT", str(self.more))

    def ask(self, port=None, **options):
        with Client(port or self.stream, **options) as client:
            return json.loads(client.get("/").body), client.sock.getsockname()


def test_http_serves_a_connection_that_stream_has_accepted():
    """The client is seen as it is, and the address is the one that it was passed to."""
    one = Passing("server { listen 127.0.0.1:SPORT; pass 127.0.0.1:PORT; }", workers=2)
    for _ in range(8):
        with Client(one.stream) as client:
            answers = [json.loads(client.get("/").body) for _ in range(3)]
            host, port = client.sock.getsockname()
        assert all(answer == answers[0] for answer in answers)
        assert answers[0]["client"] == f"{host}:{port}"
        assert answers[0]["server"] == f"127.0.0.1:{one.port}"
        assert answers[0]["scheme"] == "http"


def test_many_requests_and_large_answers_go_through():
    data = "x" * 100_000
    one = Passing("server { listen 127.0.0.1:SPORT; pass 127.0.0.1:PORT; }",
                  http="server { listen 127.0.0.1:PORT; root html; }")
    (one.one.dir / "html" / "large").write_text(data)
    with Client(one.stream) as client:
        assert [client.get("/large").body.decode() == data for _ in range(20)] == [True] * 20


def test_no_session_is_logged_and_the_client_counts_once():
    """As in NGINX the session leaves no line: the line is that of what serves it."""
    one = Passing("server { listen 127.0.0.1:SPORT; pass 127.0.0.1:PORT; } server { listen 127.0.0.1:OPORT; return x; }",
                  http="server { listen 127.0.0.1:PORT; location / { return 204; } location /s { stub_status; } }",
                  log="log_format s '$server_port'; access_log logs/stream.log s;")

    def counted():
        with Client(one.port) as client:
            lines = client.get("/s").body.decode().split("\n")
        return [int(lines[2].split()[0]), int(lines[0].split(":")[1])]
    accepted, _ = counted()
    for _ in range(5):
        with Client(one.stream) as client:
            assert client.get("/").status == 204
    # The probe itself is the sixth.
    assert counted()[0] == accepted + 6
    wait_for(lambda: counted()[1] == 1, what="all clients but the probe have gone")
    with Session(one.other) as session:
        assert session.rest() == b"x"
    assert one.one.wait_log(1, "stream.log") == [str(one.other)]


def test_after_tls_the_client_s_scheme_is_https():
    """The example of NGINX's page: TLS ends in `stream`, and http serves what was in it."""
    one = Passing(f"server {{ listen 127.0.0.1:SPORT ssl; {certificate().directives()} pass 127.0.0.1:PORT; }}")
    answer = json.loads(fetch(one.stream, "/").body)
    assert (answer["scheme"], answer["name"], answer["protocol"]) == ("https", "a.test", "HTTP/1.1")


def test_http2_over_tls_that_ends_in_stream():
    """Without `http2` the address speaks HTTP/1.1; with it the client's preface is enough."""
    one = Passing(f"server {{ listen 127.0.0.1:SPORT ssl; ssl_alpn h2; {certificate().directives()} "
                  "pass 127.0.0.1:PORT; }",
                  http=f"server {{ listen 127.0.0.1:PORT; http2 on; location / {{ {SAYS} }} }}")
    with Http2Client(one.stream, tls=context(alpn=["h2"])) as connection:
        answer = json.loads(connection.get("/").body)
    assert (answer["scheme"], answer["protocol"]) == ("https", "HTTP/2.0")


def test_what_was_read_ahead_is_not_lost():
    """The address is chosen by the name in the client's first message, which the server of TLS needs again."""
    pairs = {name: certificate(name) for name in ("a.test", "b.test")}
    http = "".join(f"server {{ listen 127.0.0.1:{port} ssl; {pairs[name].directives()} location / {{ {SAYS} }} }}"
                   for name, port in (("a.test", "PORT"), ("b.test", "MPORT")))
    one = Passing("map $ssl_preread_server_name $to { a.test 127.0.0.1:PORT; b.test 127.0.0.1:MPORT; "
                  "c.test 127.0.0.1:OPORT; } server { listen 127.0.0.1:SPORT; ssl_preread on; pass $to; } "
                  f"server {{ listen 127.0.0.1:OPORT ssl; {certificate('c.test').directives()} return 'stream'; }}",
                  http=http)
    for name, port in (("a.test", one.port), ("b.test", one.more)):
        answer = json.loads(fetch(one.stream, "/", name=name).body)
        assert (answer["name"], answer["server"]) == (name, f"127.0.0.1:{port}")
    with socket.create_connection(("127.0.0.1", one.stream), 10) as sock:
        with context().wrap_socket(sock, server_hostname="c.test") as tls:
            assert tls.recv(100) == b"stream"


def test_a_name_chooses_who_serves():
    """The usual form: servers of one address by their names, most passed on, one relayed as it is."""
    server = TcpServer("relay", handle=lambda sock: sock.sendall(sock.recv(5)[:1]))
    one = Passing(
        f"server {{ listen 127.0.0.1:SPORT default_server; ssl_preread on; proxy_pass {server.server}; }} "
        "server { listen 127.0.0.1:SPORT; server_name *.test; pass 127.0.0.1:PORT; }",
        http=f"server {{ listen 127.0.0.1:PORT ssl; {certificate().directives()} location / {{ {SAYS} }} }}")
    assert json.loads(fetch(one.stream, "/").body)["name"] == "a.test"
    with Session(one.stream) as session:
        session.send(b"plain")
        assert session.rest() == b"p"


def test_the_client_behind_a_proxy_is_passed_on():
    one = Passing("server { listen 127.0.0.1:SPORT proxy_protocol; set_real_ip_from 127.0.0.0/8; pass 127.0.0.1:PORT; }")
    with Session(one.stream) as session:
        session.send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = json.loads(session.rest().split(b"\r\n\r\n", 1)[1])
    assert (answer["client"], answer["proxy"]) == ("192.0.2.7:4711", "192.0.2.7")


def test_a_header_of_the_proxy_protocol_behind_what_was_read_ahead():
    """The address passed to expects the header, which the first one has read as the client's first bytes."""
    one = Passing("server { listen 127.0.0.1:SPORT; ssl_preread on; pass 127.0.0.1:PORT; }",
                  http=f"server {{ listen 127.0.0.1:PORT proxy_protocol; location / {{ {SAYS} }} }}")
    with Session(one.stream) as session:
        session.send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert json.loads(session.rest().split(b"\r\n\r\n", 1)[1])["proxy"] == "192.0.2.7"


def test_an_address_behind_the_wildcard_and_a_unix_socket():
    one = Passing("server { listen 127.0.0.1:SPORT; pass 127.0.0.2:PORT; } "
                  "server { listen 127.0.0.1:OPORT; pass unix:logs/none.sock; }",
                  http=f"server {{ listen PORT; location / {{ return 200 any; }} }} "
                       f"server {{ listen 127.0.0.2:PORT; location / {{ return 200 two; }} }}")
    with Client(one.stream) as client:
        assert client.get("/").body == b"two"
    with Session(one.other) as session:
        assert session.rest() == b""
    one.one.wait_error('port not found for "unix:logs/none.sock"')


def test_a_unix_socket():
    one = Passing("server { listen 127.0.0.1:SPORT; pass unix:DIR/logs/a.sock; }",
                  http=f"server {{ listen 127.0.0.1:PORT; return 204; }} "
                       f"server {{ listen unix:DIR/logs/a.sock; location / {{ {SAYS} }} }}")
    answer, (host, port) = one.ask()
    assert answer["client"] == f"{host}:{port}"


def test_places_of_limit_conn_are_kept_until_the_client_goes():
    one = Passing("limit_conn_zone $binary_remote_addr zone=z:64k; "
                  "server { listen 127.0.0.1:SPORT; limit_conn z 1; pass 127.0.0.1:PORT; }")
    with Client(one.stream) as client:
        client.get("/")
        with Session(one.stream) as second:
            second.send(b"GET / HTTP/1.0\r\n\r\n")
            assert second.rest() == b"", "there is room for one"
        client.get("/")
    wait_for(lambda: _served(one.stream), what="the place is free again")


def _served(port):
    with Session(port) as session:
        session.send(b"GET / HTTP/1.0\r\n\r\n")
        return b"200 OK" in session.rest()


@pytest.mark.parametrize(("servers", "said"), [
    ("server { listen 127.0.0.1:SPORT; pass 127.0.0.1:1; }", 'port not found for "127.0.0.1:1"'),
    ("server { listen 127.0.0.1:SPORT; pass 127.0.0.1:OPORT; } server { listen 127.0.0.1:OPORT; pass 127.0.0.1:SPORT; }",
     "stream pass cycle"),
    ("map $remote_addr $to { default localhost:1; } server { listen 127.0.0.1:SPORT; pass $to; }",
     'no addresses in pass "localhost:1"'),
    ("map $remote_addr $to { default 127.0.0.1; } server { listen 127.0.0.1:SPORT; pass $to; }",
     'no port in pass "127.0.0.1"'),
    ("map $remote_addr $to { default 127.0.0.1:x; } server { listen 127.0.0.1:SPORT; pass $to; }",
     'invalid port in pass "127.0.0.1:x"'),
])
def test_a_connection_that_cannot_be_passed_ends(servers, said):
    one = Passing(servers)
    with Session(one.stream) as session:
        assert session.rest() == b""
    one.one.wait_error(said)
    assert one.ask(one.port)[0]["scheme"] == "http"


def test_tls_inside_tls_is_refused():
    one = Passing(f"server {{ listen 127.0.0.1:SPORT ssl; {certificate().directives()} pass 127.0.0.1:PORT; }}",
                  http=f"server {{ listen 127.0.0.1:PORT ssl; {certificate().directives()} return 204; }}")
    with TlsClient(one.stream) as client:
        try:
            answered = client.get("/")
        except (ConnectionError, ssl.SSLError):
            # The request has come before the end of the connection, which then is a reset.
            answered = None
        assert answered is None
    one.one.wait_error("speaks TLS already was passed")


def test_datagrams_cannot_be_passed():
    one = Passing("server { listen 127.0.0.1:SPORT udp; pass 127.0.0.1:PORT; }")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", one.stream))
        one.one.wait_error("cannot pass udp connection")


def test_a_reload_and_a_drain():
    """A connection that was passed goes on over a reload, is served by the new configuration, and is finished by quit."""
    text = "server { listen 127.0.0.1:SPORT; pass 127.0.0.1:PORT; }"
    one = Passing(text, http="server { listen 127.0.0.1:PORT; return 200 old; }")
    with Client(one.stream) as client:
        assert client.get("/").body == b"old"
        one.one.reload(text=one.ports(
            "worker_processes 1; events { worker_connections 256; }\n"
            "http { access_log off; server { listen 127.0.0.1:PORT; return 200 new; } }\n"
            f"stream {{ {text} }}\n"))
        wait_for(lambda: one_answer(one.stream) == b"new", what="the new configuration")
        assert client.get("/").body == b"new"
    one.one.stop()


def one_answer(port):
    with Client(port) as client:
        return client.get("/").body


def test_a_client_that_resets_leaves_nothing():
    one = Passing("server { listen 127.0.0.1:SPORT; pass 127.0.0.1:PORT; }")
    for _ in range(20):
        sock = socket.create_connection(("127.0.0.1", one.stream), 10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(b"GET / HT")
        sock.close()
    assert one.ask()[0]["scheme"] == "http"
