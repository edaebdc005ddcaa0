"""`sticky cookie`, `sticky route` and `sticky learn`, and servers that drain."""

import email.utils
import hashlib
import re
import threading
import time

import pytest

from support.ask import ask, tally
from support.balancer import wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.holding import gated
from support.origin import Origin, answer, named, proxy

pytestmark = balanza_only("sticky came with 1.29")


def sid(server):
    """What `sticky` knows a server by."""
    return hashlib.md5(server.server.encode()).hexdigest()


def visit(one, cookie=None, target="/", **options):
    """One request; the server that answered and the Set-Cookie fields."""
    headers = [("Cookie", cookie)] if cookie else []
    response = get(one.port, target, headers=headers, **options)
    assert response.status == 200, response.start
    return int(response.text), response.all("Set-Cookie")


def test_a_cookie_brings_clients_back(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="sticky cookie srv;"), workers=2)
    for _ in range(6):
        home, cookies = visit(one)
        assert cookies == [f"srv={sid(servers[home])}"]
        for _ in range(5):
            # NGINX sends it with each response.
            assert visit(one, f"a=b; srv={sid(servers[home])}") == (home, cookies)
    assert {visit(one)[0] for _ in range(90)} == {0, 1, 2}
    # A cookie that names no server counts as none.
    assert {visit(one, "srv=nobody")[0] for _ in range(90)} == {0, 1, 2}


@pytest.mark.parametrize("parameters, expected", [
    ("path=/app", "; path=/app"),
    ("domain=.example.com path=/", "; domain=.example.com; path=/"),
    ("domain=$arg_d", "; domain=here"),
    ("domain=$arg_none", ""),
    ("httponly secure", "; httponly; secure"),
    ("samesite=lax", "; samesite=lax"),
    ("samesite=$arg_s path=/", "; samesite=None; path=/"),
    ("samesite=$arg_d", "; samesite=strict"),
    ("expires=max", "; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000"),
    ("path=/ expires=max secure httponly samesite=strict domain=x",
     "; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000; domain=x; httponly; secure; samesite=strict; path=/"),
])
def test_attributes_of_the_cookie(balancer, parameters, expected):
    servers = named(2)
    one = balancer(proxy(servers, head=f"sticky cookie id {parameters};"))
    home, cookies = visit(one, target="/?d=here&s=None")
    assert cookies == [f"id={sid(servers[home])}{expected}"]


def test_a_cookie_that_expires(balancer):
    servers = named(2)
    one = balancer(proxy(servers, head="sticky cookie id expires=1h;"))
    _, (cookie,) = visit(one)
    date, age = re.fullmatch(r"id=[0-9a-f]{32}; expires=(\w{3}, \d\d-\w{3}-\d\d \d\d:\d\d:\d\d GMT); max-age=(\d+)",
                             cookie).groups()
    assert age == "3600"
    assert abs(email.utils.parsedate_to_datetime(date.replace("-", " ")).timestamp() - time.time() - 3600) < 60


def test_a_variable_cannot_add_attributes_or_fields(balancer):
    one = balancer(proxy(named(2), server="set $d 'x';", head="sticky cookie id domain=$http_d;"))
    with Client(one.port) as client:
        response = client.get(headers=[("D", "a; path=/evil")])
        assert "evil" not in response["Set-Cookie"]


def test_a_server_that_fails_is_left_and_the_cookie_changes(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="sticky cookie srv;"))
    cookie = f"srv={sid(servers[1])}"
    assert visit(one, cookie)[0] == 1
    servers[1].stop()
    home, cookies = visit(one, cookie)
    # One field, for the server that answered.
    assert home != 1 and cookies == [f"srv={sid(servers[home])}"]
    servers[1].listen()
    assert visit(one, f"srv={sid(servers[home])}")[0] == home


def test_a_full_server_is_left(balancer):
    slow, gate = gated(2)
    one = balancer(proxy(slow, head="sticky cookie srv;", parameters=["max_conns=1", ""]))
    cookie = ("Cookie", f"srv={sid(slow[0])}")
    with Client(one.port) as first, Client(one.port) as second:
        first.request(headers=[cookie])
        wait_for(lambda: slow[0].in_flight == 1, what="the first request at its server")
        second.request(headers=[cookie])
        wait_for(lambda: slow[1].in_flight == 1, what="the second request at the other server")
        gate.set()
        assert (first.response().text, second.response().text) == ("0", "1")


def test_returning_clients_have_room_beyond_the_soft_limit(balancer):
    slow, gate = gated(2)
    one = balancer(proxy(slow, head="sticky cookie srv;", parameters=["soft_max_conns=1 max_conns=2", ""]))
    cookie = [("Cookie", f"srv={sid(slow[0])}")]
    clients = [Client(one.port) for _ in range(5)]
    # Two that return, a third that finds the server full, and two new ones.
    for number, (client, headers) in enumerate(zip(clients, [cookie, cookie, cookie, (), ()], strict=True), 1):
        client.request(headers=headers)
        wait_for(lambda expected=number: sum(server.in_flight for server in slow) == expected,
                 what=f"{number} requests at the servers")
    gate.set()
    assert [client.response().text for client in clients] == ["0", "0", "1", "1", "1"]


def test_who_drains_serves_returning_clients_only(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="sticky cookie srv;", parameters=["", "drain", ""]))
    assert tally(ask(one, 30), 3) == [15, 0, 15]
    returning = [("Cookie", f"srv={sid(servers[1])}")]
    assert tally(ask(one, 20, headers=returning), 3) == [0, 20, 0]


def test_sticky_requests_count_as_turns(balancer):
    servers = named(2)
    one = balancer(proxy(servers, head="sticky cookie srv;"))
    returning = f"srv={sid(servers[0])}"
    answers = []
    for _ in range(10):
        visit(one, returning)
        answers.append(visit(one)[0])
    # The returning client takes each turn of the first server, so new clients go to the other.
    assert answers.count(1) >= 9, answers


@pytest.mark.parametrize("method", ["least_conn;", "ip_hash;", "hash $request_uri;", "random two;",
                                    "balance maglev key=$request_uri;"])
def test_any_method_chooses_for_new_clients(balancer, method):
    servers = named(4)
    one = balancer(proxy(servers, head=f"{method} sticky cookie srv;"))
    for index, server in enumerate(servers):
        answers = ask(one, 6, headers=[("Cookie", f"srv={sid(server)}")])
        assert answers == [str(index)] * 6


def test_a_route_names_the_server(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="sticky route $cookie_route $arg_route;",
                         parameters=["route=a", "route=b", ""]))
    assert [visit(one, "route=b") for _ in range(3)] == [(1, [])] * 3
    # The first variable that is not empty counts, even if it names no server.
    assert [visit(one, "route=a", "/?route=b")[0] for _ in range(3)] == [0] * 3
    assert [visit(one, target="/?route=b")[0] for _ in range(3)] == [1] * 3
    assert {visit(one, "route=x", "/?route=b")[0] for _ in range(30)} == {0, 1, 2}
    # Without a route its address names it.
    assert [visit(one, f"route={sid(servers[2])}")[0] for _ in range(3)] == [2] * 3


def test_a_route_with_a_cookie(balancer):
    servers = named(2)
    one = balancer(proxy(servers, head="sticky cookie srv;", parameters=["route=left", "route=right"]))
    home, cookies = visit(one)
    assert cookies == [f"srv={['left', 'right'][home]}"]
    assert visit(one, "srv=right")[0] == 1


def test_servers_of_one_route_stand_in_for_each_other(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="sticky route $arg_route;", parameters=["route=a", "route=a", "route=b"]))
    assert visit(one, target="/?route=a")[0] == 0
    servers[0].stop()
    assert {visit(one, target="/?route=a")[0] for _ in range(4)} == {1}


def test_who_was_on_a_backup_goes_back(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="sticky cookie srv;", parameters=["fail_timeout=4s", "backup", "backup"]))
    servers[0].stop()
    home, _ = visit(one)
    assert home in (1, 2)
    other = 3 - home
    # Bound to a backup while the backups serve.
    assert [visit(one, f"srv={sid(servers[other])}")[0] for _ in range(4)] == [other] * 4
    servers[0].listen()
    wait_for(lambda: visit(one, f"srv={sid(servers[other])}")[0] == 0, what="the way back")


def sessions(count, field="Set-Cookie"):
    """Servers that begin a session with `/login` and answer with their index."""
    def server(index):
        def handle(request, connection):
            headers = []
            if request.target.startswith("/login"):
                name = request.target.partition("?")[2] or f"s{index}-{time.monotonic_ns()}"
                headers = [(field, f"session={name}" if field == "Set-Cookie" else name)]
            return answer(str(index), headers=headers)
        return Origin(handle)
    return [server(index) for index in range(count)]


LEARN = "sticky learn create=$upstream_cookie_session lookup=$cookie_session zone=clients:64k"


@pytest.mark.parametrize("more", ["", "header"])
def test_sessions_are_learnt(balancer, more):
    servers = sessions(3)
    # Four workers: the table is theirs together.
    one = balancer(proxy(servers, head=f"{LEARN} {more};"), workers=4)
    for number in range(12):
        home, _ = visit(one, target=f"/login?user{number}")
        # Each on a connection of its own, so that other workers answer as well.
        assert [visit(one, f"session=user{number}")[0] for _ in range(6)] == [home] * 6
    assert {visit(one, "session=unknown")[0] for _ in range(90)} == {0, 1, 2}


def test_sessions_outlive_a_reload_with_other_servers(balancer):
    servers = sessions(3)
    one = balancer(proxy(servers, head=f"{LEARN};"))
    homes = {name: visit(one, target=f"/login?{name}")[0] for name in ("ann", "bob", "cid", "dora")}
    one.reload(proxy(servers[:0:-1], head=f"{LEARN};", server="location = /new { return 204; }"))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    for name, home in homes.items():
        answers = {visit(one, f"session={name}")[0] for _ in range(6)}
        assert answers == ({home} if home else {1, 2} & answers)


def test_a_session_is_forgotten(balancer):
    servers = sessions(2)
    one = balancer(proxy(servers, head=f"{LEARN} timeout=6s;"))
    home, _ = visit(one, target="/login?x")
    # Longer than the timeout together, and each much shorter.
    for _ in range(4):
        time.sleep(1.6)
        # Every use makes it young again.
        assert visit(one, "session=x")[0] == home
    time.sleep(6.6)
    assert {visit(one, "session=x")[0] for _ in range(30)} == {0, 1}


def test_a_session_moves_with_its_server(balancer):
    servers = sessions(3)
    one = balancer(proxy(servers, head=f"{LEARN};"))
    home, _ = visit(one, target="/login?x")
    servers[home].stop()
    elsewhere, _ = visit(one, "session=x")
    assert elsewhere != home
    servers[home].listen()
    # It lives where it was served last, as in NGINX.
    assert [visit(one, "session=x")[0] for _ in range(5)] == [elsewhere] * 5


def test_a_failed_answer_begins_no_session(balancer):
    def broken(request, connection):
        return answer("no", "503 Service Unavailable", headers=[("Set-Cookie", "session=x")])

    good = sessions(1)[0]
    bad = Origin(broken)
    one = balancer(proxy([bad, good], head=f"{LEARN};", location="proxy_next_upstream http_503;"))
    assert get(one.port, "/login?x").text == "0"
    assert get(one.port, headers=[("Cookie", "session=x")]).text == "0"


@pytest.mark.http1("reads the head's bytes from the socket")
def test_sessions_begin_with_the_end_of_a_response_or_with_its_head(balancer):
    """A response that takes its time: only with `header` the session is known before its end."""
    def handle(request, connection, name):
        if request.target == "/login":
            connection.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: session=x\r\nContent-Length: 1\r\n\r\n")
            gate.wait(20)
            return name.encode()
        return answer(name)

    for more, known in (("", False), ("header", True)):
        gate = threading.Event()
        servers = [Origin(lambda request, connection, name=str(index): handle(request, connection, name))
                   for index in range(2)]
        one = balancer(proxy(servers, head=f"{LEARN} {more};", location="proxy_buffering off;"))
        with Client(one.port) as client:
            client.request(target="/login")
            assert client.reader.until(b"Content-Length")
            during = {visit(one, "session=x")[0] for _ in range(6)}
            gate.set()
            assert client.reader.until(b"\r\n\r\n")
            home = int(client.reader.exactly(1))
        assert during == ({home} if known else {0, 1})
        assert {visit(one, "session=x")[0] for _ in range(6)} == {home}


def test_the_reason_is_the_bond(balancer):
    servers = named(2)
    one = balancer(proxy(servers, head="sticky cookie srv;",
                         http='log_format why "$upstream_pick_reason"; access_log logs/why.log why;'))
    visit(one)
    visit(one, f"srv={sid(servers[1])}")
    assert one.wait_log(2, "why.log") == ["round_robin turn", "sticky"]
