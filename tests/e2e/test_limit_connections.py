"""`limit_conn` in `http` and `stream`: how many at a time."""

import pathlib

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.client import Client, get
from support.holding import fill, gated
from support.http2 import Http2Client
from support.origin import proxy
from support.stream import Streaming, TcpServer

ZONE = "limit_conn_zone $arg_k zone=one:1m; log_format s '$status $limit_conn_status';"
LOG = "access_log logs/access.log s;"


def test_as_many_at_a_time(balancer):
    servers = gated(1)
    one = balancer(proxy(servers[0], http=ZONE, server=LOG, location="limit_conn one 3;"))
    assert fill(one, servers, [3], 8, target="/?key=k{}&k=a") == [200] * 3 + [503] * 5
    assert sorted(one.wait_log(8)) == ["200 PASSED"] * 3 + ["503 REJECTED"] * 5
    one.wait_error(r'\[error\] .* limiting connections by zone "one", client: 127.0.0.1')
    # All places are free again.
    servers[1].set()
    assert [get(one.port, "/?k=a").status for _ in range(4)] == [200] * 4


def test_keys_have_places_of_their_own(balancer):
    servers = gated(1)
    zones = ZONE + "limit_conn_zone $server_port zone=two:1m;"
    one = balancer(proxy(servers[0], http=zones, server=LOG, location=(
        "limit_conn one 1; limit_conn two 3; limit_conn_status 429; limit_conn_log_level info;")))
    # Four keys with one place each, three places together.
    targets = iter(["a", "a", "b", "c", "d", "d"])
    clients = []
    for key in targets:
        clients.append(Client(one.port).request(target=f"/?k={key}"))
        expected = len(clients)
        wait_for(lambda n=expected: servers[0][0].in_flight + len(one.access_log()) == n, what="the request")
    assert sorted(one.access_log()) == ["429 REJECTED"] * 3
    assert one.error_log().count('limiting connections by zone "one"') == 1
    assert one.error_log().count('limiting connections by zone "two"') == 2
    servers[1].set()
    assert [client.response().status for client in clients] == [200, 429, 200, 200, 429, 429]


def test_a_dry_run_lets_all_in(balancer):
    servers = gated(1)
    one = balancer(proxy(servers[0], http=ZONE, server=LOG, location="limit_conn one 1; limit_conn_dry_run on;"))
    assert fill(one, servers, [3], 3, target="/?key=k{}&k=a") == [200] * 3
    assert sorted(one.wait_log(3)) == ["200 PASSED"] + ["200 REJECTED_DRY_RUN"] * 2
    one.wait_error(r'limiting connections, dry run, by zone "one"')


def test_an_idle_connection_and_an_empty_key_have_no_place(balancer, origin):
    one = balancer(proxy([origin()], http=ZONE, server=LOG, location="limit_conn one 1;"))
    with Client(one.port) as first, Client(one.port) as second:
        for client in (first, second, first, second):
            assert client.get("/?k=a").status == 200
        assert first.get("/").status == 200
    assert one.wait_log(5)[-1] == "200 -"


def test_http2_streams_count_each(balancer):
    servers = gated(1)
    one = balancer(proxy(servers[0], http=ZONE, server=LOG + "http2 on;", location="limit_conn one 2;"))
    with Http2Client(one.port) as client:
        streams = [client.request(target="/?k=a") for _ in range(5)]
        wait_for(lambda: len(one.access_log()) == 3 and servers[0][0].in_flight == 2, what="three refusals")
        servers[1].set()
        assert sorted(client.response(stream).status for stream in streams) == [200] * 2 + [503] * 3


def test_workers_and_reloads_share_a_zone(balancer):
    servers = gated(1)
    text = proxy(servers[0], http=ZONE, location="limit_conn one 4; add_header X old always;")
    one = balancer(text, workers=3)
    clients = [Client(one.port).request(target="/?k=a") for _ in range(4)]
    wait_for(lambda: servers[0][0].in_flight == 4, what="four requests")
    one.reload(text.replace("one 4", "one 5").replace("old", "new"))
    wait_for(lambda: get(one.port, "/none?k=a", method="OPTIONS")["X"] == "new"
             if servers[0][0].in_flight >= 5 else clients.append(Client(one.port).request(target="/?k=a")),
             what="the other configuration")
    assert get(one.port, "/?k=a").status == 503
    assert servers[0][0].in_flight == 5
    servers[1].set()
    for client in clients:
        client.response()
    assert get(one.port, "/?k=a").status == 200


def test_a_full_zone_rejects_new_keys(balancer):
    servers = gated(1)
    # The smallest zone has places for less than 500 keys of 4 bytes.
    one = balancer(proxy(servers[0], http=ZONE.replace("1m", "32k"), location="limit_conn one 1;", server=LOG + "http2 on;"))
    clients, streams = [], []
    for number in range(500):
        if number % 100 == 0:
            clients.append(Http2Client(one.port))
        streams.append((clients[-1], clients[-1].request(target=f"/?k={number:04}")))
    wait_for(lambda: servers[0][0].in_flight + len(one.access_log()) == 500, 30, "500 requests")
    refused = len(one.access_log())
    assert 50 < refused < 200 and set(one.access_log()) == {"503 REJECTED"}
    assert "no memory" in one.error_log()
    servers[1].set()
    found = [client.response(stream).status for client, stream in streams]
    assert found.count(503) == refused and found.count(200) == 500 - refused
    for client in clients:
        client.close()
    with Http2Client(one.port) as client:
        assert client.get("/?k=new").status == 200


@pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")
@pytest.mark.parametrize("dry_run", ["off", "on"])
def test_sessions(dry_run):
    server = TcpServer("s")
    streaming = Streaming(f"limit_conn_zone $binary_remote_addr zone=one:1m; limit_conn_dry_run {dry_run}; server {{ "
                          f"listen 127.0.0.1:SPORT; proxy_pass {server.server}; limit_conn one 2; }}",
                          log="log_format s '$status $limit_conn_status'; access_log logs/stream.log s;")
    try:
        sessions = [streaming.connect() for _ in range(2)]
        assert [session.line() for session in sessions] == [b"s", b"s"]
        with streaming.connect() as third:
            assert third.rest() == b"" if dry_run == "off" else third.line() == b"s"
        words = ["503", "REJECTED"] if dry_run == "off" else ["200", "REJECTED_DRY_RUN"]
        assert streaming.lines(1) == [words]
        text = ", dry run," if dry_run == "on" else ""
        streaming.one.wait_error(rf'\[error\] .* limiting connections{text} by zone "one" while initializing session, '
                                 'client: 127.0.0.1, server: ')
        sessions[0].close()
        assert len(streaming.lines(2)) == 2
        with streaming.connect() as fourth:
            assert fourth.line() == b"s"
        sessions[1].close()
        assert sorted(streaming.lines(4))[:3] == [["200", "PASSED"]] * 3
    finally:
        server.stop()
