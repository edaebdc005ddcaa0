"""Which failures are tried again on another server, and which must not be."""

import socket
import threading
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.expect import here
from support.origin import answer, proxy

# Long enough for a server of the tests to answer on a busy machine.
QUICK = "proxy_read_timeout 3400ms; proxy_connect_timeout 3400ms;"


def closing(request, connection):
    connection.close()


def silent(request, connection):
    connection.reader.to_end()
    connection.close()


def garbage(request, connection):
    connection.send("not HTTP at all\0\r\n\r\n" if here(True, False) else "HTTP/1.1 200 OK\r\nX\0: 1\r\n\r\n")
    connection.close()


def status(code):
    return answer(f"error {code}", f"{code} Error")


FAILURES = {"error": closing, "timeout": silent, "invalid_header": garbage, "http_500": status(500),
            "http_502": status(502), "http_503": status(503), "http_504": status(504), "http_403": status(403),
            "http_404": status(404), "http_429": status(429)}
OWN = {"error": 502, "timeout": 504, "invalid_header": 502}


def pair(balancer, origin, failure, options="", method="GET", body=b"", **more):
    """A server that fails and one that works; returns the response and both servers."""
    bad, good = origin(FAILURES[failure]), origin(answer("good"))
    # The first server is tried first: the other one is its backup.
    location = (QUICK if failure == "timeout" else "") + options
    one = balancer(proxy([bad, good], parameters=["max_fails=0", "backup"], location=location, **more))
    response = get(one.port, "/", method, body=body)
    return one, response, bad, good


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("configured", [True, False])
def test_matrix(balancer, origin, failure, configured):
    others = "timeout" if failure == "error" else "error"
    one, response, bad, good = pair(
        balancer, origin, failure, f"proxy_next_upstream {failure if configured else others};")
    assert bad.count == 1
    if configured:
        assert (response.status, response.text, good.count) == (200, "good", 1)
    else:
        code = OWN.get(failure) or int(failure[5:])
        assert (response.status, good.count) == (code, 0)


@pytest.mark.parametrize("failure, retried", [
    ("error", True), ("timeout", True), ("invalid_header", False), ("http_500", False), ("http_502", False)])
def test_default(balancer, origin, failure, retried):
    _, response, _, good = pair(balancer, origin, failure)
    assert good.count == retried and (response.status == 200) == retried


@pytest.mark.parametrize("failure", ["error", "http_503"])
def test_off(balancer, origin, failure):
    _, response, _, good = pair(balancer, origin, failure, "proxy_next_upstream off;")
    assert good.count == 0 and response.status in (502, 503)


@pytest.mark.parametrize("failure", ["error", "timeout", "http_503"])
@pytest.mark.parametrize("method, repeated", [("POST", False), ("PATCH", False), ("LOCK", False), ("PUT", True),
                                              ("DELETE", True), ("GET", True)])
def test_non_idempotent_requests_are_not_repeated(balancer, origin, failure, method, repeated):
    body = b"" if method in ("GET", "DELETE") else b"data"
    _, response, bad, good = pair(
        balancer, origin, failure, "proxy_next_upstream error timeout http_503;", method, body)
    assert bad.count == 1 and good.count == repeated
    assert (response.status == 200) == repeated
    if repeated:
        assert (good.last.method, good.last.body) == (method, body)


@pytest.mark.parametrize("failure", ["error", "timeout", "http_503"])
def test_non_idempotent(balancer, origin, failure):
    _, response, _, good = pair(balancer, origin, failure,
                                "proxy_next_upstream error timeout http_503 non_idempotent;", "POST", b"data")
    assert response.status == 200 and (good.last.method, good.last.body) == ("POST", b"data")


def test_refused_connection_is_retried_even_for_post(balancer, origin):
    """Nothing was sent, so nothing is repeated."""
    bad, good = origin(), origin(answer("good"))
    bad.stop()
    one = balancer(proxy([bad, good], parameters=["", "backup"]))
    assert get(one.port, "/", "POST", body=b"data").text == "good"
    assert good.last.body == b"data"


@pytest.mark.http1("the end of the connection")
def test_no_retry_after_the_head_was_sent(balancer, origin):
    def half(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        time.sleep(0.05)
        connection.close()

    bad, good = origin(half), origin(answer("good"))
    one = balancer(proxy([bad, good], parameters=["", "backup"], location="proxy_buffering off;"))
    with Client(one.port) as client:
        assert client.request().rest().endswith(b"half")
    assert good.count == 0


@pytest.mark.parametrize("tries, used", [(1, 1), (2, 2), (3, 3), (0, 4)])
def test_tries(balancer, origin, tries, used):
    servers = [origin(closing) for _ in range(4)]
    one = balancer(proxy(servers, location=f"proxy_next_upstream_tries {tries};"))
    assert get(one.port).status == 502
    assert sum(server.count for server in servers) == used


def test_timeout_of_all_tries(balancer, origin):
    def late(request, connection):
        time.sleep(4)
        connection.close()

    servers = [origin(late) for _ in range(6)]
    one = balancer(proxy(servers, location="proxy_next_upstream_timeout 7800ms;"))
    # The first attempt takes four seconds, and more on a busy machine, and two take eight at least.
    assert get(one.port, timeout=40).status == 502
    assert sum(server.count for server in servers) == 2


def test_last_answer_is_passed_when_all_fail(balancer, origin):
    servers = [origin(status(503)) for _ in range(3)]
    one = balancer(proxy(servers, location="proxy_next_upstream http_503;"))
    response = get(one.port)
    assert (response.status, response.text) == (503, "error 503")
    assert [server.count for server in servers] == [1, 1, 1]


def test_every_attempt_is_logged(balancer, origin):
    servers = [origin(status(500)), origin(status(500)), origin(answer("good"))]
    one = balancer(proxy(servers, parameters=["max_fails=0"] * 2 + ["backup"],
                         http="log_format attempts '$upstream_addr|$upstream_status|$status';",
                         server="access_log logs/attempts.log attempts;",
                         location="proxy_next_upstream http_500;"))
    assert get(one.port).status == 200
    addresses, statuses, final = one.wait_log(name="attempts.log")[0].split("|")
    assert set(addresses.split(", ")[:2]) == {server.server for server in servers[:2]}
    assert addresses.split(", ")[2] == servers[2].server
    assert (statuses, final) == ("500, 500, 200", "200")


def test_read_timeout(balancer, origin):
    one = balancer(proxy([origin(silent)], location=QUICK))
    begin = time.monotonic()
    assert get(one.port, timeout=50).status == 504
    assert 0.9 < time.monotonic() - begin < 40
    one.wait_error(r"upstream timed out \(110: (Connection|Operation) timed out\) "
                   "while reading response header from upstream")


def test_read_timeout_counts_between_reads(balancer, origin):
    def steady(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for byte in b"01234567":
            time.sleep(0.8)
            connection.send(bytes([byte]))

    # All of it takes longer than the timeout.
    assert get(balancer(proxy([origin(steady)], location="proxy_read_timeout 5s;")).port).text == "01234567"


def test_connect_timeout(balancer, origin):
    # A full backlog answers no SYN: two connections fill it, the third waits.
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    time.sleep(0.05)
    one = balancer(f"server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass "
                   f"http://127.0.0.1:{full.getsockname()[1]}; {QUICK} }} }}")
    begin = time.monotonic()
    assert get(one.port, timeout=50).status == 504
    assert 0.9 < time.monotonic() - begin < 40
    one.wait_error("timed out.*while connecting to upstream")
    for one_socket in (*fillers, full):
        one_socket.close()


def test_send_timeout(balancer, origin):
    def stalled(connection):
        connection.reader.until(b"\r\n\r\n")
        ended.wait(60)

    ended = threading.Event()
    one = balancer(proxy([origin(stalled, raw=True)], server="client_max_body_size 0;",
                         location="proxy_send_timeout 300ms; proxy_read_timeout 50s;"))
    begin = time.monotonic()
    assert get(one.port, "/", "POST", body=bytes(30_000_000), timeout=49).status == 504
    # proxy_read_timeout is not what ended it.
    assert time.monotonic() - begin < 45
    ended.set()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_stale_kept_connection_is_replaced(balancer, origin, method):
    """The server closes a kept connection just when it is used again: no failure, and the client sees nothing."""
    def handle(connection):
        # Every connection serves one request, and ends when the second one arrives.
        connection.reader.until(b"\r\n\r\n")
        connection.send(answer("fresh"))
        if connection.reader.fill():
            connection.reset()

    server = origin(handle, raw=True)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        assert client.get().text == "fresh"
        response = client.get("/again", method)
        if method == "GET":
            assert response.text == "fresh"
        else:
            # It may have been processed, so it is not sent twice.
            assert response.status in (200, 502)
        assert client.get().status == 200
    wait_for(lambda: len(server.connections) >= 2, what="a fresh connection")


def test_closed_kept_connection_is_not_used(balancer, origin):
    server = origin()
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        for _ in range(5):
            assert client.get("/", "POST").status == 200
            server.hang_up()
            time.sleep(0.02)
    assert "[error]" not in one.error_log()
