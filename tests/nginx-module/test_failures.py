"""Servers that are down, refuse or are full; one worker and four, with and without a zone."""

import time

import pytest

from support.ask import ask, tally
from support.balancer import wait_for
from support.client import get
from support.holding import fill, gated
from support.origin import Origin, answer, named, proxy, upstream
from support.ports import free_port

HEADS = ["two_choices;", "balance random;", "balance least_conn;", "balance round_robin;", "balance maglev;"]


@pytest.mark.parametrize("head", HEADS)
def test_the_first_server_is_down(any_nginx, head):
    one = any_nginx(proxy(named(3), head=head, parameters=["down", "", ""]))
    answers = {get(one.port, source=f"127.0.{n}.1").text for n in range(1, 41)}
    assert answers == {"1", "2"}


@pytest.mark.parametrize("head", HEADS)
def test_all_servers_are_down(any_nginx, head):
    servers = named(3)
    one = any_nginx(proxy(servers, head=head, parameters=["down"] * 3))
    assert [get(one.port).status for _ in range(8)] == [502] * 8
    one.wait_error("no live upstreams")
    assert not any(server.count for server in servers)


@pytest.mark.parametrize("head", HEADS)
def test_all_servers_refuse(any_nginx, head):
    """Each is tried once, then nobody is left; and when they are back, so is the service."""
    servers = named(3)
    for server in servers:
        server.stop()
    one = any_nginx(proxy(servers, head=head, parameters=["fail_timeout=1s"] * 3))
    assert [get(one.port).status for _ in range(8)] == [502] * 8
    # Workers write their lines in any order.
    first = max(one.wait_log(8, "pids.log"), key=len)
    assert sorted(first.split(" ", 2)[2].split(", ")) == sorted(server.server for server in servers)
    for server in servers:
        server.listen()
    wait_for(lambda: all(get(one.port).status == 200 for _ in range(6)), what="the servers' return")


@pytest.mark.parametrize("head", ["balance least_time;", "balance peak_ewma;", "balance combined;"])
def test_fast_errors_do_not_attract(any_nginx, head):
    """Whatever `proxy_next_upstream` names: here it names no status, and clients get the errors."""
    good = [Origin(lambda request, connection: time.sleep(0.005) or answer("x")) for _ in range(2)]
    servers = named(1, answer("", "500 Broken")) + good
    one = any_nginx(proxy(servers, head=head, parameters=["max_fails=0", "", ""]))
    errors = sum(get(one.port).status != 200 for _ in range(150))
    # By chance it may not be asked at all.
    assert errors == servers[0].count < 40, "a third would be 50"


@pytest.mark.parametrize("head", HEADS)
def test_only_backups_are_left(any_nginx, head):
    servers = named(4)
    servers[0].stop()
    one = any_nginx(proxy(servers, head=head, parameters=["fail_timeout=1s", "down", "backup", "backup"]))
    answers = [get(one.port, source=f"127.0.{n}.1") for n in range(1, 31)]
    assert {reply.status for reply in answers} == {200}
    assert {reply.text for reply in answers} == {"2", "3"}
    servers[0].listen()
    wait_for(lambda: {get(one.port).text for _ in range(8)} == {"0"}, what="the first server's return")


@pytest.mark.parametrize("head", HEADS)
def test_a_refused_connection_is_tried_elsewhere(any_nginx, head):
    servers = named(3)
    one = any_nginx(proxy(servers, head=head, parameters=["fail_timeout=60s"] * 3))
    servers[1].stop()
    answers = [get(one.port, source=f"127.0.{n}.1") for n in range(1, 61)]
    assert {reply.status for reply in answers} == {200}
    assert {reply.text for reply in answers} == {"0", "2"}
    # The failure counts for all workers, so it is found once, or by each that was under way.
    refused = one.error_log().count("Connection refused")
    assert 1 <= refused <= one.workers, refused


@pytest.mark.parametrize("head", HEADS)
def test_a_name_with_several_addresses(any_nginx, head):
    """`localhost` is 127.0.0.1 and ::1 here or only one of them; a name that is written twice is two servers as well."""
    port = free_port()
    first = Origin(answer("0"), port=port)
    http = (f"upstream group {{ {head} server localhost:{port}; server localhost:{port}; }}"
            "server { listen 127.0.0.1:PORT; location / { proxy_pass http://group; } }")
    one = any_nginx(http)
    assert [get(one.port).status for _ in range(20)] == [200] * 20
    assert first.count == 20


@pytest.mark.parametrize("head", HEADS)
def test_max_conns_holds_over_all_workers(any_nginx, head):
    servers = gated(3)
    one = any_nginx(proxy(servers[0], head=head, parameters=["max_conns=2"] * 3))
    assert fill(one, servers, [2, 2, 2], 16, source=lambda n: f"127.0.{n + 1}.1") == [200] * 6 + [502] * 10


def test_failures_close_a_server_for_its_time(any_nginx):
    servers = named(2)
    servers[0].stop()
    one = any_nginx(proxy(servers, head="balance round_robin;", parameters=["max_fails=2 fail_timeout=8s", ""]))
    for _ in range(24):
        assert get(one.port).text == "1"
    assert 2 <= one.error_log().count("Connection refused") <= 1 + one.workers
    servers[0].listen()
    wait_for(lambda: get(one.port).text == "0", what="the first server's return")


def test_kept_connections_that_close_are_no_end(any_nginx):
    """A server that closes every connection after its answer, behind `keepalive`."""
    servers = [Origin(lambda request, connection, name=name: (connection.send(answer(name)), connection.close()) and None)
               for name in "012"]
    one = any_nginx(proxy(servers, head="two_choices;", parameters=["max_fails=0"] * 3))
    assert [get(one.port).status for _ in range(60)] == [200] * 60


def once(name, second):
    """A server that answers the first request of each connection with its name; `second` has the later ones."""
    return Origin(lambda request, connection: answer(name) if connection.requests == 1 else second(connection))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("head", HEADS)
def test_a_closed_kept_connection_is_no_failure(any_nginx, head, count):
    """The server is tried again, also when all servers have closed theirs."""
    servers = [once(str(n), lambda connection: connection.close()) for n in range(count)]
    one = any_nginx(proxy(servers, head=head, parameters=["fail_timeout=60s"] * count))
    assert [get(one.port, source=f"127.0.{n}.1").status for n in range(1, 41)] == [200] * 40
    assert "temporarily disabled" not in one.error_log()


def test_a_post_is_not_repeated(nginx):
    server = once("0", lambda connection: connection.close())
    one = nginx(proxy([server], parameters=["fail_timeout=60s"], head="two_choices;"))
    assert [get(one.port, method=method).status for method in ("GET", "POST", "POST")] == [200, 502, 200]
    assert [request.method for request in server.requests] == ["GET", "POST", "POST"]


@pytest.mark.parametrize("second", [
    pytest.param(lambda connection: None, id="no answer"),
    pytest.param(lambda connection: connection.send(b"HTTP/1.1 200 O") or connection.close(), id="a part of one"),
    pytest.param(lambda connection: b"HTTP/1.1 200 OK\r\nX: " + b"x" * 9000, id="too large a head"),
])
def test_kept_connections_show_failures(nginx, second):
    servers = [once("0", second), *named(1, first=1)]
    one = nginx(proxy(servers, head="balance round_robin;", parameters=["fail_timeout=60s"] * 2,
                      location="proxy_read_timeout 5s;"))
    assert {get(one.port).text for _ in range(20)} >= {"1"}
    assert servers[0].count == 2
    one.wait_error("temporarily disabled")


def test_connections_are_kept(nginx):
    servers = named(3)
    one = nginx(proxy(servers, head="balance round_robin;"), zone=True)
    assert tally(ask(one, 90), 3) == [30, 30, 30]
    assert [len(server.connections) for server in servers] == [1, 1, 1]


def test_more_than_64_servers_may_be_tried(nginx):
    """A request that finds all of 80 servers closed tries each of them once."""
    ports = [free_port() for _ in range(80)]
    lines = "".join(f"server 127.0.0.1:{port};" for port in ports)
    one = nginx(f"upstream group {{ balance least_conn; {lines} }}"
                "server { listen 127.0.0.1:PORT; location / { proxy_pass http://group; } }")
    assert get(one.port).status == 502
    tried = one.wait_log(1, "pids.log")[0].split(" ", 2)[2].split(", ")
    assert len(tried) == len(set(tried)) == 80


def test_two_upstreams_do_not_mix(nginx):
    one_group, other = named(2), named(2, first=5)
    one = nginx(upstream(one_group, name="a", head="two_choices;") + upstream(other, name="b", head="balance random;") +
                "server { listen 127.0.0.1:PORT; location /a { proxy_pass http://a; }"
                " location /b { proxy_pass http://b; } location /c { proxy_pass http://a; proxy_intercept_errors on;"
                " error_page 404 = /b; } }", workers=2)
    assert {get(one.port, "/a").text for _ in range(20)} == {"0", "1"}
    assert {get(one.port, "/b").text for _ in range(20)} == {"5", "6"}


def test_a_request_may_have_two_upstreams(nginx):
    """An internal redirect goes to the next upstream; what it took of the first is given back."""
    first = [Origin(answer("no", status="404 Not Found")) for _ in range(2)]
    second = named(2)
    one = nginx(upstream(first, name="a", head="balance least_conn;", parameters=["max_conns=1"] * 2) +
                upstream(second, name="b", head="balance least_conn;", parameters=["max_conns=1"] * 2) +
                "server { listen 127.0.0.1:PORT; location / { proxy_pass http://a; proxy_intercept_errors on;"
                " error_page 404 = /b; } location /b { proxy_pass http://b; } }")
    assert [get(one.port).status for _ in range(20)] == [200] * 20
