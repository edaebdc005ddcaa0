"""Servers that fail, die and come back; reload and graceful end under load."""

import signal
import threading
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.fast import FastServer
from support.load import Load
from support.origin import answer, named, proxy, upstream
from support.ports import free_port


def failing(request, connection):
    connection.close()


def test_max_fails_and_fail_timeout(balancer):
    bad, good = named(1, failing)[0], named(1)[0]
    one = balancer(proxy([bad, good], parameters=["max_fails=2 fail_timeout=1s", ""]))
    with Client(one.port) as client:
        def tried():
            """How often 20 requests try the server that fails, and how often it has its fail_timeout behind it meanwhile."""
            before, begin = bad.count, time.monotonic()
            assert [client.get().status for _ in range(20)] == [200] * 20
            return bad.count - before, int(time.monotonic() - begin)

        count, passed = tried()
        assert 2 <= count <= 2 + passed, "it is left alone after max_fails failures"
        # NGINX counts whole seconds, so fail_timeout has surely passed only after two.
        time.sleep(2.1)
        # One request tries it again after fail_timeout; a failure closes it for another.
        count, passed = tried()
        assert 1 <= count <= 1 + passed
        bad.handler = lambda request, connection: answer("back")
        time.sleep(2.1)
        assert tried()[0] >= 8, "it works again and gets its share"


def test_max_fails_of_zero_never_gives_up(balancer):
    bad, good = named(1, failing)[0], named(1)[0]
    one = balancer(proxy([bad, good], parameters=["max_fails=0", ""]))
    with Client(one.port) as client:
        assert [client.get().status for _ in range(20)] == [200] * 20
    assert bad.count == 10


@pytest.mark.parametrize("code, counts", [("404", False), ("403", False), ("503", True), ("429", True)])
def test_what_counts_as_a_failure(balancer, code, counts):
    bad, good = named(1, answer("", f"{code} X"))[0], named(1)[0]
    one = balancer(proxy([bad, good], location=f"proxy_next_upstream http_{code};"))
    with Client(one.port) as client:
        for _ in range(20):
            assert client.get().status == 200
    # The default is one failure in ten seconds.
    assert bad.count == (1 if counts else 10)


def test_backup_is_used_only_when_no_other_is_left(balancer):
    servers = named(3)
    one = balancer(proxy(servers, parameters=["fail_timeout=1s", "fail_timeout=1s", "backup"]))
    with Client(one.port) as client:
        assert {client.get().text for _ in range(10)} == {"0", "1"}
        servers[0].stop()
        assert [client.get().text for _ in range(10)] == ["1"] * 10
        servers[1].stop()
        assert [client.get().text for _ in range(10)] == ["2"] * 10
        servers[1].listen()
        time.sleep(1.2)
        wait_for(lambda: client.get().text == "1", what="the server's return")
        assert [client.get().text for _ in range(5)] == ["1"] * 5


def test_down_servers_get_nothing(balancer):
    servers = named(3)
    one = balancer(proxy(servers, parameters=["down", "", "down"]))
    with Client(one.port) as client:
        assert {client.get().text for _ in range(10)} == {"1"}
    assert [server.count for server in servers] == [0, 10, 0]


def test_all_down(balancer):
    servers = named(2)
    one = balancer(proxy(servers, parameters=["fail_timeout=1s"] * 2))
    for server in servers:
        server.stop()
    with Client(one.port) as client:
        for _ in range(20):
            response = client.get()
            assert response.status == 502 and "502 Bad Gateway" in response.text
        one.wait_error("connect\\(\\) failed \\(111: Connection refused\\) while connecting to upstream")
        one.wait_error("no live upstreams while connecting to upstream")
        for server in servers:
            server.listen()
        time.sleep(1.3)
        wait_for(lambda: client.get().status == 200, what="recovery")


def test_single_server_is_never_given_up(balancer):
    server = named(1, failing)[0]
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        assert [client.get().status for _ in range(5)] == [502] * 5
    assert server.count == 5


@pytest.mark.load
def test_killed_server_loses_no_get(balancer):
    """SIGKILL of one of three servers under load, and its return."""
    servers = [FastServer(str(index)) for index in range(3)]
    try:
        one = balancer(proxy(servers, parameters=["fail_timeout=1s"] * 3), workers=2)
        with Load(one.port, clients=8) as load, Load(one.port, clients=2, keep_alive=False) as short:
            for _ in range(2):
                time.sleep(0.6)
                servers[1].kill()
                time.sleep(1)
                servers[1].start()
                before = servers[1].requests()
                wait_for(lambda mark=before + 100: servers[1].requests() > mark, what="work for the restarted server",
                         step=0.2)
            wait_for(lambda: load.done > 500 and short.done > 50, 30, "many requests")
        assert load.failures == [] and short.failures == []
    finally:
        for server in servers:
            server.stop()


def numbered(server, number):
    """A configuration that tells its number: in a field of every answer, and at /generation without the server."""
    return proxy([server], server=f"keepalive_requests 100000000; add_header X-Generation {number} always;"
                 f"location = /generation {{ return 200 {number}; }}")


def wait_generation(one, number):
    wait_for(lambda: get(one.port, "/generation").text == str(number), what="the new configuration")


@pytest.mark.load
def test_reload_every_second_under_load(balancer):
    """No request fails and no kept connection is closed."""
    server = FastServer("x")
    try:
        one = balancer(numbered(server, 0), workers=2)
        with Load(one.port, clients=4) as kept, Load(one.port, clients=2, keep_alive=False) as short:
            for number in range(1, 6):
                time.sleep(1)
                one.reload(numbered(server, number))
                wait_generation(one, number)
            wait_for(lambda: short.done > 50, 30, "many requests")
        assert short.failures == []
        assert kept.failures == [], kept.failures[:3]
        if one.kind == "balanza":
            assert kept.connections == 4, f"connections were closed by a reload: {kept.ends}"
    finally:
        server.stop()


def test_kept_connection_sees_the_new_configuration(balancer, origin):
    server = origin()
    one = balancer(numbered(server, 1))
    with Client(one.port) as client:
        assert client.get()["X-Generation"] == "1"
        one.reload(numbered(server, 2))
        wait_generation(one, 2)
        if one.kind == "balanza":
            assert client.get()["X-Generation"] == "2"
        else:
            assert client.closed()


def test_request_in_flight_survives_a_reload(balancer, origin):
    gate = threading.Event()

    def handle(request, connection):
        gate.wait(60)
        return answer("slow")

    server = origin(handle)
    one = balancer(numbered(server, 1))
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: server.in_flight == 1, what="the request at the server")
        one.reload(numbered(origin(), 2))
        wait_generation(one, 2)
        gate.set()
        response = client.response()
        assert (response.text, response["X-Generation"]) == ("slow", "1")


@pytest.mark.parametrize("broken, message", [
    ("nonsense on;", 'unknown directive "nonsense"'), ("server { listen 127.0.0.1:PORT; ", "unexpected end of file"),
    ("server { listen 127.0.0.1:PORT; location / { proxy_pass http://no-such-host.invalid; } }", "host not found"),
    ("server { listen 192.0.2.1:80; }", "bind() to 192.0.2.1:80 failed"),
])
def test_bad_configuration_keeps_the_old_one(balancer, origin, broken, message):
    one = balancer(numbered(origin(), 1))
    with Client(one.port) as client:
        assert client.get()["X-Generation"] == "1"
        one.reload(broken)
        wait_for(lambda: message in one.error_log(), what=f"{message!r} in the error log")
        assert get(one.port)["X-Generation"] == "1"
        assert client.get()["X-Generation"] == "1"


def test_reload_adds_and_removes_servers(balancer):
    servers = named(3)
    one = balancer(proxy(servers[:2]))
    assert {get(one.port).text for _ in range(8)} == {"0", "1"}
    one.reload(proxy(servers[1:]))
    wait_for(lambda: {get(one.port).text for _ in range(8)} == {"1", "2"}, what="the new servers")


def test_reload_moves_the_listening_address(balancer, origin):
    one = balancer(proxy([origin()]))
    first = one.port
    one.port = free_port()
    one.reload(proxy([origin("new")]))
    wait_for(lambda: not refused(one.port), what="the new address")
    assert get(one.port).text == "new"
    wait_for(lambda: refused(first), what="the end of the old address")


def refused(port):
    try:
        Client(port).close()
        return False
    except ConnectionResetError:
        # The socket was closed between the handshake and the end of connect().
        return False
    except ConnectionRefusedError:
        return True


@pytest.mark.http1("reads the body's bytes from the socket")
def test_quit_finishes_what_is_in_flight(balancer, origin):
    gate = threading.Event()

    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nfour")
        gate.wait(60)
        connection.send("more")

    server = origin(handle)
    one = balancer(proxy([server], location="proxy_buffering off;", server="location = /idle { return 204; }"))
    idle = Client(one.port)
    assert idle.get("/idle").status == 204
    with Client(one.port) as client:
        client.request()
        assert client.reader.until(b"four")
        one.notify(signal.SIGQUIT)
        wait_for(lambda: refused(one.port), what="the end of listening")
        assert idle.closed(), "idle connections are closed at once"
        assert one.process.poll() is None
        gate.set()
        assert client.reader.exactly(4) == b"more" and client.closed()
    assert one.process.wait(15) == 0
    assert not (one.dir / "balancer.pid").exists()


def test_worker_shutdown_timeout(balancer, origin):
    server = origin(lambda request, connection: connection.reader.to_end() or None)
    one = balancer(proxy([server]), main="worker_shutdown_timeout 1s;")
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: server.in_flight == 1, what="the request at the server")
        begin = time.monotonic()
        one.notify(signal.SIGQUIT)
        assert one.process.wait(15) == 0
        assert time.monotonic() - begin > 0.7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_fast_stop(balancer, origin, number):
    server = origin(lambda request, connection: connection.reader.to_end() or None)
    one = balancer(proxy([server]))
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: server.in_flight == 1, what="the request at the server")
        one.notify(number)
        assert one.process.wait(15) == 0


def test_reopen_logs(balancer, origin):
    one = balancer(proxy([origin()]))
    get(one.port, "/one")
    one.wait_log()
    (one.dir / "logs/access.log").rename(one.dir / "logs/access.log.1")
    one.notify(signal.SIGUSR1)
    wait_for(lambda: (one.dir / "logs/access.log").exists(), what="the new file")

    def logged():
        get(one.port, "/two")
        return any("/two" in line for line in one.access_log())
    wait_for(logged, what="a line in the new file")
    assert "/one" in one.access_log("access.log.1")[0]


def test_counters_survive_a_reload(balancer):
    """max_conns counts requests that began before the reload."""
    gate = threading.Event()

    def handle(request, connection):
        gate.wait(60)
        return answer("x")

    servers = named(1, handle) + named(1, first=1)
    text = upstream(servers, parameters=["max_conns=1", "backup"], head="zone z 64k;")
    http = text + ("server { listen 127.0.0.1:PORT; location = /generation { return 200 NUMBER; }"
                   "location / { proxy_pass http://group; } }")
    one = balancer(http.replace("NUMBER", "1"))
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: servers[0].in_flight == 1, what="the request at the server")
        one.reload(http.replace("NUMBER", "2"))
        wait_generation(one, 2)
        if one.kind == "balanza":
            assert [get(one.port).text for _ in range(5)] == ["1"] * 5
            assert servers[0].most_in_flight == 1
        gate.set()
        assert client.response().status == 200
