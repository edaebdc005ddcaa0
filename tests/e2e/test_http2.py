"""HTTP/2 with clients: what a request is, bodies and windows, what is refused, and how a connection ends.

Attacks are in test_http2_attacks.py.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import h2.errors
import pytest

from support.balancer import ON_BALANZA, ROOT, wait_for
from support.certificates import certificate
from support.client import Client
from support.client import get as get_http1
from support.expect import balanza_only
from support.http2 import Http2Client, Reset, get, proxied, server
from support.origin import Origin, answer, upstream
from support.tls import context

PROTOCOL_ERROR = h2.errors.ErrorCodes.PROTOCOL_ERROR


def tls_server(location, more=""):
    return server(location, more + certificate().directives(), "ssl")


def test_a_request_is_what_it_is_in_http_1(balancer):
    shown = "$request|$request_method|$uri|$args|$host|$http_host|$server_protocol|$http2|$scheme|$http_x|$http_cookie"
    one = balancer(server(f"return 200 '{shown}';"))
    found = get(one.port, "/a%20b/../c?d=e", headers=[("x", "1"), ("cookie", "a=1"), ("cookie", "b=2")],
                host="Shop.test:81")
    assert found.status == 200
    assert found.text == ("GET /a%20b/../c?d=e HTTP/2.0|GET|/c|d=e|shop.test|Shop.test:81|HTTP/2.0|h2c|http|1|a=1; b=2")
    assert found["connection"] is None and found["content-length"] == str(len(found.body))
    assert {"server", "date", "content-type"} <= set(found.names())


def test_tls_agrees_on_the_protocol(balancer):
    one = balancer(tls_server("return 200 '$http2 $server_protocol $ssl_alpn_protocol';"))
    assert get(one.port, tls=context(alpn=["h2", "http/1.1"]), host="a.test").text == "h2 HTTP/2.0 h2"
    tls = context(alpn=["http/1.1"])
    with Client(one.port) as client:
        client.use(tls.wrap_socket(client.sock, server_hostname="a.test"))
        assert client.get(host="a.test").text == " HTTP/1.1 http/1.1"


@pytest.mark.http1("a server without HTTP/2")
@balanza_only("NGINX 1.22 has one protocol for an address")
def test_a_server_that_does_not_speak_it(balancer):
    one = balancer(tls_server("return 200 '$server_protocol';").replace("http2 on;", ""))
    with Client(one.port) as client:
        client.use(context(alpn=["h2", "http/1.1"]).wrap_socket(client.sock, server_hostname="a.test"))
        assert client.sock.selected_alpn_protocol() == "http/1.1"
        assert client.get(host="a.test").text == "HTTP/1.1"
    # On a plain port it is a request of an unknown version.
    other = balancer(server("return 200 ok;").replace("http2 on;", ""))
    with Client(other.port) as client:
        assert client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").response().status == 505


@pytest.mark.http1("both on a port")
@balanza_only("NGINX 1.22 speaks HTTP/2 alone on a plain port")
def test_a_plain_port_speaks_both(balancer):
    one = balancer(server("return 200 '$server_protocol';"))
    assert get(one.port).text == "HTTP/2.0"
    assert get_http1(one.port).text == "HTTP/1.1"
    # However the first bytes come in pieces.
    with Client(one.port) as client:
        client.send("P")
        time.sleep(0.05)
        client.send("OST / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.response().text == "HTTP/1.1"
    with Client(one.port) as client:
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":
            client.send(bytes([byte]))
            time.sleep(0.002)
        client.send(b"\0\0\0\4\0\0\0\0\0")
        assert client.reader.exactly(9)[3] == 4, "settings"
    # What is neither has no answer.
    with Client(one.port) as client:
        assert client.send("INVALID CONNECTION PREFACE\r\n\r\n").closed()


@balanza_only("NGINX 1.22 has no directive for it")
def test_the_parameter_of_listen_is_the_same(balancer):
    text = "server { listen 127.0.0.1:PORT http2; location / { return 200 $server_protocol; } }"
    one = balancer(text)
    assert get(one.port).text == "HTTP/2.0"
    checked = one.test_config()
    assert checked.returncode == 0
    assert 'the "listen ... http2" directive is deprecated, use the "http2" directive instead' in checked.stderr


def test_servers_get_the_request_in_http_1(balancer):
    origin = Origin(lambda request, _: answer(request.body[::-1], headers=[("X-Length", len(request.body))]))
    one = balancer(proxied(origin, "proxy_set_header X-Was $server_protocol; proxy_set_header Host $host;"))
    found = get(one.port, "/a?b", "POST", body=b"abc", headers=[("X-Y", "z"), ("te", "trailers"), ("cookie", "a=1"),
                                                              ("cookie", "b=2")])
    assert (found.status, found.text, found["x-length"]) == (200, "cba", "3")
    request = origin.last
    assert request.start == "POST /a?b HTTP/1.1"
    assert (request["host"], request["x-was"], request["x-y"]) == ("example.test", "HTTP/2.0", "z")
    assert request["cookie"] == "a=1; b=2" and request["content-length"] == "3"


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_a_body_without_a_length(balancer, buffering):
    origin = Origin(lambda request, _: answer(request.body))
    one = balancer(proxied(origin, f"proxy_request_buffering {buffering}; client_max_body_size 10m;"))
    body = bytes(range(256)) * 1000
    found = get(one.port, method="POST", body=body, length=False)
    assert found.body == body
    assert origin.last.framing == ("length" if buffering == "on" else "chunked")


def test_many_requests_share_a_connection(balancer):
    """Answers come in the order of the servers, and each belongs to its request."""
    together = threading.Event()

    def slow(request, _):
        if origin.most_in_flight > 20:
            together.set()
        # None before so many are there.
        together.wait(60)
        time.sleep((7 * int(request.target[1:]) % 20) / 100)
        return answer(request.target)

    origin = Origin(slow)
    one = balancer(proxied(origin))
    with Http2Client(one.port, timeout=40) as client:
        streams = {client.request(target=f"/{index}"): f"/{index}" for index in range(100)}
        for stream, target in streams.items():
            assert client.response(stream).text == target
    assert origin.most_in_flight > 20
    assert len(one.wait_log(100)) == 100


@pytest.mark.parametrize("window", [1, 100, 65_535, 1 << 24])
@pytest.mark.parametrize("length", [True, False])
def test_responses_keep_to_the_windows(balancer, window, length):
    body = bytes(range(256)) * (2 if window == 1 else 40 if window == 100 else 8000)

    def handler(_, connection):
        if length:
            return answer(body)
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 50_000):
            piece = body[start:start + 50_000]
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send("0\r\n\r\n")

    one = balancer(proxied(Origin(handler)))
    with Http2Client(one.port, window=window) as client:
        found = client.get()
        assert found.body == body
        assert found["content-length"] == (str(len(body)) if length else None)
        assert found["transfer-encoding"] is None
        # The connection is good for more.
        assert client.get().body == body


def test_files_and_parts_of_them(balancer):
    one = balancer(server("root html;"))
    body = bytes(range(256)) * 4000
    (one.dir / "html/file").write_bytes(body)
    (one.dir / "html/empty").write_bytes(b"")
    with Http2Client(one.port) as client:
        assert client.get("/file").body == body
        head = client.get("/file", "HEAD")
        assert (head.status, head["content-length"], head.body) == (200, str(len(body)), b"")
        part = client.get("/file", headers=[("range", "bytes=10-19")])
        assert (part.status, part.body) == (206, body[10:20])
        parts = client.get("/file", headers=[("range", "bytes=0-1,500000-500009")])
        assert parts.status == 206 and body[500000:500010] in parts.body
        assert client.get("/empty").body == b""
        fresh = client.get("/file", headers=[("if-none-match", head["etag"])])
        assert (fresh.status, fresh.body) == (304, b"")
        assert client.get("/none").status == 404


def test_pages_and_redirects(balancer):
    one = balancer(server("return 301 /there;", more="location /none { return 204; } location /e { return 500; } "
                                                     "error_page 500 /page; location /page { return 200 page; }"))
    with Http2Client(one.port) as client:
        moved = client.get()
        assert (moved.status, moved["location"]) == (301, f"http://example.test:{one.port}/there")
        assert client.get("/none").status == 204
        page = client.get("/e")
        assert (page.status, page.text) == (500, "page")


def test_a_body_that_is_too_large_is_answered(balancer):
    one = balancer(proxied(Origin(), "client_max_body_size 1000;"))
    with Http2Client(one.port) as client:
        stream = client.request("POST", body=b"x" * 60_000)
        assert client.response(stream).status == 413
        assert client.get().status == 200
    with Http2Client(one.port) as client:
        stream = client.request("POST", body=b"x" * 60_000, length=False)
        assert client.response(stream).status == 413
        assert client.get().status == 200


def test_a_body_that_does_not_come(balancer):
    one = balancer(proxied(Origin(), "client_body_timeout 300ms;"))
    with Http2Client(one.port) as client:
        stream = client.request("POST", headers=[("content-length", "10")], end=False)
        with pytest.raises(Reset):
            client.response(stream)
        assert client.get().status == 200
    assert '" 408 ' in one.wait_log(1)[0]


def test_trailers(balancer):
    """Those of a server, and our own."""
    origin = Origin(lambda *_: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
                               b"2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n")
    one = balancer(proxied(origin, "add_trailer X-Own $status; " + ("proxy_pass_trailers on;" if ON_BALANZA else "")))
    found = get(one.port)
    assert (found.text, found.trailers) == ("ok", ([("x-sum", "7")] if ON_BALANZA else []) + [("x-own", "200")])


def test_a_client_that_gives_up(balancer):
    """Its request ends at the server too, and the others on the connection go on."""
    gone = threading.Event()

    def handler(request, connection):
        if request.target == "/slow":
            connection.sock.settimeout(15)
            if connection.sock.recv(1) == b"":
                gone.set()
            return None
        return answer("ok")

    one = balancer(proxied(Origin(handler)))
    with Http2Client(one.port) as client:
        slow = client.request(target="/slow")
        assert client.get().text == "ok"
        time.sleep(0.3)
        client.h2.reset_stream(slow)
        client.flush()
        assert gone.wait(15)
        assert client.get().text == "ok"
    assert any("GET /slow" in line and '" 499 ' in line for line in one.wait_log(3))


def test_a_server_that_breaks_off(balancer):
    """A client must not take what it got for the whole."""
    origin = Origin(lambda _, connection: (connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc"),
                                           connection.close()) and None)
    one = balancer(proxied(origin))
    with Http2Client(one.port) as client:
        stream = client.request()
        with pytest.raises(Reset):
            client.response(stream)
        assert client.get("/", "HEAD").status in (200, 502)


REFUSED_BY_PROTOCOL = {
    "a field of a connection": [("connection", "close")],
    "transfer-encoding": [("transfer-encoding", "chunked")],
    "upgrade": [("upgrade", "websocket")],
    "keep-alive": [("keep-alive", "1")],
    "te": [("te", "gzip")],
    "capitals": [("X-Capital", "1")],
    "an unknown pseudo-field": [(":unknown", "1")],
    "a second path": [(":path", "/other")],
}


@balanza_only("NGINX answers some with 400, and passes others")
@pytest.mark.parametrize("name", REFUSED_BY_PROTOCOL)
def test_malformed_requests_are_errors_of_their_stream(balancer, name):
    origin = Origin()
    one = balancer(proxied(origin))
    with Http2Client(one.port) as client:
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/"), *REFUSED_BY_PROTOCOL[name]]
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, fields, end_stream=True)
        client.flush()
        with pytest.raises(Reset) as reset:
            client.response(stream)
        assert reset.value.code == PROTOCOL_ERROR
        assert client.get().status == 200
    assert origin.count == 1


@balanza_only("NGINX takes some of them")
@pytest.mark.parametrize("options, status", [
    ({"headers": [("host", "other.test")]}, 400),
    ({"host": None}, 400),
    ({"host": "a b"}, None),
    ({"host": "user@a"}, 400),
    ({"method": "TRACE"}, 405),
    ({"headers": [("content-length", "x")]}, None),
    ({"target": "/\0"}, None),
    ({"target": "no-slash"}, None),
    ({"target": "/" + "x" * 9000}, 414),
    ({"headers": [("x", "y" * 9000)]}, 400),
    ({"headers": [("x", "y")] * 1001}, 400),
])
def test_requests_that_no_server_gets(balancer, options, status):
    origin = Origin()
    one = balancer(proxied(origin))
    with Http2Client(one.port) as client:
        stream = client.request(**options)
        if status:
            assert client.response(stream).status == status
        else:
            with pytest.raises(Reset):
                client.response(stream)
        assert client.get().status == 200
    assert origin.count == 1


def test_more_requests_than_allowed_at_once(balancer):
    gate = threading.Event()
    origin = Origin(lambda *_: gate.wait(60) and answer("ok"))
    one = balancer(proxied(origin).replace("http2 on;", "http2 on; http2_max_concurrent_streams 4;"))
    with Http2Client(one.port) as client:
        client.read()
        assert client.h2.remote_settings.max_concurrent_streams == 4
        client.h2.remote_settings[3] = 100
        client.h2.remote_settings.acknowledge()
        streams = [client.request() for _ in range(6)]
        for stream in streams[4:]:
            with pytest.raises(Reset) as reset:
                client.response(stream)
            assert reset.value.code == h2.errors.ErrorCodes.REFUSED_STREAM
        gate.set()
        assert [client.response(stream).text for stream in streams[:4]] == ["ok"] * 4


def test_a_connection_ends_after_its_requests(balancer):
    one = balancer(server("keepalive_requests 3; return 200 ok;"))
    with Http2Client(one.port) as client:
        for _ in range(3):
            assert client.get().text == "ok"
        assert client.to_end() == 0


def test_an_idle_connection_ends(balancer):
    one = balancer(server("keepalive_timeout 2s; return 200 ok;"))
    with Http2Client(one.port) as client:
        assert client.get().text == "ok"
        assert client.to_end() == 0


def test_nothing_is_lost_when_the_balancer_ends(balancer):
    """The client is told, requests under way are answered, and the process is gone then."""
    gate = threading.Event()
    origin = Origin(lambda request, _: (request.target == "/idle" or gate.wait(60)) and answer("ok"))
    one = balancer(proxied(origin))
    with Http2Client(one.port) as client, Http2Client(one.port) as idle:
        assert idle.get("/idle").text == "ok"
        streams = [client.request() for _ in range(5)]
        wait_for(lambda: origin.in_flight == 5, what="the requests")
        one.notify(signal.SIGQUIT)
        assert idle.to_end() == 0
        gate.set()
        for stream in streams:
            assert client.response(stream).text == "ok"
        assert client.to_end() == 0
        one.process.wait(30)


@balanza_only("NGINX closes idle connections at once")
def test_no_request_is_lost_in_reloads(balancer):
    """Clients that keep their connection and open another when they are told to: of requests that the server has not
    refused, all are answered."""
    one = balancer(server("return 200 ok;"))
    counts = {"ok": 0, "lost": 0, "again": 0}
    over = threading.Event()

    def run():
        client = Http2Client(one.port)
        while not over.is_set():
            if client.goaway or client.ended:
                client.close()
                client = Http2Client(one.port)
            try:
                ok = client.get(method="POST", body=b"x" * 10).text == "ok"
                counts["ok" if ok else "lost"] += 1
            except Reset:
                counts["again"] += 1
            except Exception:
                counts["lost"] += 1
                client = Http2Client(one.port)
        client.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(10):
        one.reload(server("return 200 ok;", f"# {number}\n"))
        time.sleep(0.3)
    wait_for(lambda: counts["ok"] > 100 or counts["lost"], what="many requests")
    over.set()
    for thread in threads:
        thread.join()
    assert counts["lost"] == 0, counts


def test_the_socket_that_requests_share_is_known(balancer, tmp_path):
    path = tmp_path / "socket"
    one = balancer(server('return 200 "$tcpinfo_rtt $tcpinfo_rttvar $tcpinfo_snd_cwnd $tcpinfo_rcv_space.";', f"listen unix:{path};"))
    assert re.fullmatch(rb"[1-9]\d* \d+ [1-9]\d* [1-9]\d*\.", get(one.port).body)
    done = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "--unix-socket", path, "http://a.test/"], capture_output=True, text=True, timeout=20)
    assert done.stdout == "   ."


def test_curl_and_nghttp(balancer):
    one = balancer(tls_server("return 200 '$server_protocol';"))
    done = subprocess.run(["curl", "-sk", "--http2", f"https://127.0.0.1:{one.port}/", "-w", " %{http_version}"],
                          capture_output=True, text=True, timeout=20)
    assert done.stdout == "HTTP/2.0 2"
    done = subprocess.run(["nghttp", "-ny", "--stat", f"https://127.0.0.1:{one.port}/"], capture_output=True, text=True,
                          timeout=20)
    assert re.search(r"\b200\b.*/", done.stdout), done.stdout


@pytest.mark.load
def test_h2load(balancer):
    one = balancer("keepalive_requests 100000; " + server("return 200 ok;"))
    done = subprocess.run(["h2load", "-n", "20000", "-c", "16", "-m", "100", f"http://127.0.0.1:{one.port}/"],
                          capture_output=True, text=True, timeout=60)
    assert "20000 succeeded, 0 failed" in done.stdout, done.stdout


@pytest.fixture(scope="module")
def h2spec():
    """The conformance test, built once from its pinned sources."""
    if not shutil.which("go"):
        pytest.skip("go is not installed, which builds h2spec")
    program = ROOT / "target/h2spec"
    program.parent.mkdir(exist_ok=True)
    with open(program.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            subprocess.run(["go", "build", "-o", str(program), "github.com/summerwind/h2spec/cmd/h2spec"],
                           cwd=ROOT / "tests/h2spec", check=True, timeout=600,
                           env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"})
    return program


# The time of the first includes that of building it.
@pytest.mark.timeout(700)
@balanza_only("NGINX 1.22 fails some")
@pytest.mark.parametrize("tls", [False, True])
def test_h2spec(balancer, h2spec, tls):
    # A server that reads the request's body, so that what comes behind its head finds the stream open.
    origin = Origin("some bytes of a body")
    one = balancer(upstream([origin], name="u") + (tls_server if tls else server)("proxy_pass http://u;"))
    flags = ["-t", "-k"] if tls else []
    done = subprocess.run([str(h2spec), "-h", "127.0.0.1", "-p", str(one.port), "-o", "10", *flags],
                          capture_output=True, text=True, timeout=100)
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in done.stdout, done.stdout[-3000:]
