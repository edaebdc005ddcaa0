"""The method of an upstream, chosen at run time: in all workers, without losing a request, over reloads and workers' deaths."""

import threading

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer
from support.ports import free_port
from support.stream import Session, TcpServer
from test_api import ask, code, read, reload, replace_worker

pytestmark = balanza_only("methods change at run time in Balanza only")

CONFIGURATION = """
map $arg_key $mapped { default x; }
upstream backend { zone backend 64k; METHOD server 127.0.0.1:FIRST; server 127.0.0.1:SECOND weight=2; }
upstream fixed { server 127.0.0.1:FIRST; }
server { listen 127.0.0.1:PORT; location / { proxy_pass http://backend; } location /api { api write=on; } location /look { api; } }
"""
UPSTREAM = "/api/balanza/http/upstreams/backend"


def configuration(servers, method=""):
    ports = [str(server.port) for server in servers]
    return CONFIGURATION.replace("FIRST", ports[0]).replace("SECOND", ports[1]).replace("METHOD", method)


def choose(one, method, path=UPSTREAM):
    status, value = ask(one.port, "PATCH", path, {"method": method})
    assert status == 200, value
    return value


def goes_by_key(one):
    """Whether requests with one key go to one server, and other keys to both: new connections come to both workers."""
    same = {get(one.port, "/?key=k").text for _ in range(16)}
    return len(same) == 1 and len({get(one.port, f"/?key={nth}").text for nth in range(64)}) == 2


def test_a_method_holds_in_all_workers_until_it_is_taken_back(servers):
    one = Balancer(configuration(servers), workers=2)
    assert not goes_by_key(one)
    before = read(one.port, UPSTREAM)
    assert (before["method"], before["configured_method"]) == ("balance round_robin",) * 2
    shown = choose(one, "hash $arg_key consistent")
    assert (shown["method"], shown["configured_method"]) == ("hash $arg_key consistent", "balance round_robin")
    assert (shown["algorithm"], shown["parameters"]["consistent"]) == ("hash", "on")
    wait_for(lambda: goes_by_key(one), what="the method in both workers")
    # The numbers of the servers stay, and so do their counters.
    assert [server["id"] for server in shown["servers"]] == [server["id"] for server in before["servers"]]

    reload(one)
    assert goes_by_key(one) and read(one.port, UPSTREAM)["method"] == "hash $arg_key consistent"
    replace_worker(one)
    assert goes_by_key(one) and read(one.port, UPSTREAM)["method"] == "hash $arg_key consistent"

    choose(one, None)
    wait_for(lambda: not goes_by_key(one), what="the configuration's method")
    assert read(one.port, UPSTREAM)["method"] == "balance round_robin"
    texts = wait_for(lambda: len(found := [event["text"] for event in read(one.port, "/api/balanza/events") if event["kind"] == "method"]) == 2
                     and found, what="events")
    assert texts == ['the method is "hash $arg_key consistent"; the configuration has "balance round_robin"',
                     'the method is "balance round_robin" again, as in the configuration']


def test_a_reload_with_another_method_ends_it(servers):
    one = Balancer(configuration(servers, "least_conn;"), workers=2)
    assert read(one.port, UPSTREAM)["configured_method"] == "least_conn"
    choose(one, "hash $arg_key")
    one.reload(configuration(servers, "random two;"))
    wait_for(lambda: read(one.port, UPSTREAM)["method"] == "random two", what="the configuration's method")
    choose(one, "hash $arg_key")
    # The method of the configuration by its own words is not a change.
    assert choose(one, "random two ;")["configured_method"] == "random two"
    one.reload(configuration(servers, "least_conn;"))
    wait_for(lambda: read(one.port, UPSTREAM)["method"] == "least_conn", what="the configuration's method")


def test_requests_in_flight_go_on():
    gate = threading.Event()

    def slow(_request, _connection):
        gate.wait(90)
        return answer("ok")

    origins = [Origin(slow), Origin(slow)]
    one = Balancer(configuration(origins), workers=2)
    clients = [Client(one.port) for _ in range(12)]
    for client in clients:
        client.request("GET", "/")
    active = lambda: sum(server["active"] for server in read(one.port, UPSTREAM)["servers"])
    wait_for(lambda: active() == 12, what="requests in flight")
    for method in ("least_conn", "hash $arg_key", "balance peak_ewma", "random two", "balance maglev key=$remote_addr", None):
        choose(one, method)
    assert active() == 12
    gate.set()
    for client in clients:
        assert client.response().status == 200
        client.close()
    wait_for(lambda: active() == 0, what="the end of the requests")
    for origin in origins:
        origin.stop()


def test_every_method_that_the_api_names_can_be_tried(servers):
    one = Balancer(configuration(servers), workers=1)
    tried = 0
    for method in read(one.port, "/api/balanza/methods"):
        status, value = ask(one.port, "PATCH", UPSTREAM, {"method": method})
        # Some need something else in the upstream, and say so.
        assert status == 200 or "needs" in value["error"]["text"] or "without" in value["error"]["text"], value
        tried += status == 200
        assert get(one.port, "/").status == 200
    assert tried > 10


def test_what_is_wrong_is_said_as_for_a_configuration(servers):
    one = Balancer(configuration(servers, "least_conn;"), workers=1)

    def refused(value, path=UPSTREAM):
        status, answered = ask(one.port, "PATCH", path, value)
        assert status == 400 and answered["error"]["code"] == "UpstreamConfFormatError", answered
        return answered["error"]["text"]

    assert 'invalid value "1" of "choices"' in refused({"method": "two_choices choices=1"})
    assert "did you mean" in refused({"method": "lest_conn"})
    assert 'unknown "no_such" variable' in refused({"method": "hash $no_such"})
    assert "mapped" in refused({"method": "hash $mapped"})
    assert "load_report" in refused({"method": "balance least_load"})
    assert "only the configuration may name" in refused({"method": "balance external program=/bin/true"})
    for wrong in ({}, {"method": 3}, {"method": ""}, {"method": "least_conn", "x": 1}, {"method": "least_conn; server 127.0.0.1:1"},
                  {"method": "include /etc/passwd"}, {"method": "server 127.0.0.1:1"}, {"method": "least_conn } }"}):
        refused(wrong)
    assert code(ask(one.port, "PATCH", "/api/balanza/http/upstreams/fixed", {"method": "least_conn"})) == (400, "UpstreamStatic")
    assert code(ask(one.port, "PATCH", "/api/balanza/http/upstreams/none", {"method": "least_conn"})) == (404, "UpstreamNotFound")
    assert code(ask(one.port, "PATCH", "/look/balanza/http/upstreams/backend", {"method": None})) == (405, "MethodDisabled")
    assert read(one.port, UPSTREAM)["method"] == "least_conn"


def test_a_method_of_stream():
    started = [TcpServer("a"), TcpServer("b")]
    port = free_port()
    one = Balancer(text="worker_processes 2; events { } http { access_log off; server { listen 127.0.0.1:PORT; location /api { api write=on; } } }"
                   f" stream {{ upstream shells {{ zone shells 64k; server {started[0].server}; server {started[1].server}; }}"
                   f" server {{ listen 127.0.0.1:{port}; proxy_pass shells; }} }}")
    upstream = "/api/balanza/stream/upstreams/shells"

    def names():
        found = set()
        for _ in range(12):
            with Session(port) as session:
                found.add(session.line())
        return found

    assert len(names()) == 2
    assert code(ask(one.port, "PATCH", upstream, {"method": "least_time header"}))[0] == 400
    choose(one, "least_time first_byte", upstream)
    choose(one, "hash $remote_addr", upstream)
    wait_for(lambda: len(names()) == 1, what="the method in both workers")
    for server in started:
        server.stop()
