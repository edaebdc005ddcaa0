"""`health_check` and `match`: servers that fail, hang, die, flap and lie, and what clients see of it."""

import collections
import re
import ssl
import threading
import time

import pytest

from support.ask import ask, tally
from support.balancer import wait_for
from support.certificates import authority, certificate
from support.client import get
from support.expect import balanza_only
from support.origin import Origin, answer, named, proxy
from support.ports import free_port

pytestmark = balanza_only("health_check is a directive of NGINX Plus")

ZONE = "zone group 64k;"
FAST = "health_check interval=50ms uri=/health"


class Checked:
    """A server whose answer to checks can be changed; `checks` are the requests of checks, `asked` the others."""

    def __init__(self, name, health=answer("ok"), **options):
        self.name, self.health, self.checks, self.asked = name, health, [], []
        self.origin = Origin(self.handle, **options)
        self.server = self.origin.server

    def handle(self, request, connection):
        if request.target.split("?")[0] != "/health":
            self.asked.append(request)
            return answer(self.name)
        self.checks.append((request, connection))
        return self.health(request, connection) if callable(self.health) else self.health


def checked(count, **options):
    return [Checked(str(index), **options) for index in range(count)]


def checks(parameters="", *, servers, more="", **options):
    return proxy(servers, head=ZONE, location=f"{FAST} {parameters}; {more}", **options)


def balancer_of(balancer, servers, parameters="", **options):
    return balancer(checks(parameters, servers=servers, **options), workers=2)


def spread(one, servers, count=40):
    """Which servers answer; none of them while requests fail."""
    answers = [get(one.port) for _ in range(count)]
    if any(response.status != 200 for response in answers):
        return None
    return [number > 0 for number in tally([response.text for response in answers], servers)]


def goes_to(one, expected):
    """Waits until exactly these servers get requests."""
    wait_for(lambda: spread(one, len(expected)) == expected, what=f"requests at {expected}")


def hang(request, connection):
    time.sleep(20)


DEFECTS = {
    "500": answer("no", "500 Internal Server Error"),
    "404": answer("no", "404 Not Found"),
    "hangs": hang,
    "closes": lambda request, connection: connection.close(),
    "is no HTTP": b"hello\r\n\r\n",
    "announces more than it sends": lambda request, connection: (connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"), connection.close())[0],
    "never ends its body": lambda request, connection: (connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"), hang(request, connection))[0],
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_a_server_that_fails_its_check_gets_no_requests_until_it_passes(balancer, defect):
    servers = checked(3)
    one = balancer_of(balancer, servers, more="proxy_read_timeout 3s;")
    goes_to(one, [True, True, True])
    servers[1].health = defect
    one.wait_error(rf"health check of \"{servers[1].server}\" in upstream \"group\": the server is unhealthy")
    before = len(servers[1].asked)
    assert tally(ask(one, 60), 3)[1] == 0 and len(servers[1].asked) == before
    servers[1].health = answer("ok", "204 No Content", length=False)
    goes_to(one, [True, True, True])
    # It gets requests before that is written.
    one.wait_error("the server is healthy")


def test_a_server_that_dies_is_found_out_before_a_client_meets_it(balancer):
    servers = checked(2)
    one = balancer_of(balancer, servers, more="proxy_next_upstream off;")
    goes_to(one, [True, True])
    servers[0].origin.stop()
    one.wait_error("the server is unhealthy")
    assert tally(ask(one, 50), 2) == [0, 50]
    servers[0].origin.listen()
    goes_to(one, [True, True])


def test_all_servers_down_and_back(balancer):
    servers = checked(2)
    one = balancer_of(balancer, servers)
    for server in servers:
        server.health = DEFECTS["500"]
    wait_for(lambda: get(one.port).status == 502, what="no server")
    before = [len(server.asked) for server in servers]
    assert [get(one.port).status for _ in range(10)] == [502] * 10
    assert [len(server.asked) for server in servers] == before
    for server in servers:
        server.health = answer("ok")
    goes_to(one, [True, True])


def test_fails_and_passes_are_counted_in_a_row(balancer):
    [flapping, steady] = servers = checked(2)
    # Every other check passes, or all do as the test says.
    passes = None

    def flap(*_):
        return answer("ok") if (len(flapping.checks) % 2 if passes is None else passes) else DEFECTS["500"]

    def flaps():
        """So many checks that four in a row would be among them."""
        seen = len(flapping.checks)
        wait_for(lambda: len(flapping.checks) >= seen + 18, what="checks")

    flapping.health = flap
    one = balancer_of(balancer, servers, "fails=2 passes=3")
    flaps()
    assert "unhealthy" not in one.error_log(), "never two failures in a row"
    passes = False
    one.wait_error("the server is unhealthy: status 500")
    passes = None
    flaps()
    assert "the server is healthy" not in one.error_log(), "never three passed checks in a row"
    passes = True
    goes_to(one, [True, True])
    one.wait_error("the server is healthy")
    # The log has both as changes.
    assert len(re.findall("the server is (?:un)?healthy", one.error_log())) == 2


def test_a_check_that_lies_harms_nobody_but_its_server(balancer):
    """The check says yes and requests fail: passive checks do the rest."""
    servers = checked(2)
    lying = servers[0]
    lying.handle_all = lying.origin.handler
    lying.origin.handler = lambda request, connection: (
        lying.handle_all(request, connection) if request.target == "/health" else DEFECTS["500"])
    one = balancer_of(balancer, servers, more="proxy_next_upstream error timeout http_500;")
    assert tally(ask(one, 50), 2) == [0, 50]


# What is asked


def test_a_check_is_a_request_with_the_settings_of_its_location(balancer):
    [server] = servers = checked(1)
    one = balancer(checks("", servers=servers, http="map $uri $seen { default $uri-$args-$request_method; }",
                          more="proxy_set_header X-Own own; proxy_set_header X-Seen $seen; "
                               "proxy_set_header Host checks.test;").replace("uri=/health", "uri=/health?a=b"))
    wait_for(lambda: server.checks, what="a check")
    request, _ = server.checks[0]
    assert (request.method, request.target) == ("GET", "/health?a=b")
    assert (request["Host"], request["X-Own"], request["X-Seen"]) == ("checks.test", "own", "/health-a=b-GET")
    assert request["Connection"] == "close"
    assert get(one.port).status == 200


def test_the_uri_of_a_proxy_pass_is_not_for_checks(balancer):
    [server] = servers = checked(1)
    balancer(checks("", servers=servers).replace("http://group;", "http://group/base/;"))
    wait_for(lambda: len(server.checks) > 1, what="checks at /health")
    assert server.asked == []
    assert server.checks[0][0]["Host"] == "group"


def test_keepalive_time_keeps_connections_for_checks(balancer):
    kept, closed = checked(1)[0], checked(1)[0]
    balancer(checks("keepalive_time=10s", servers=[kept]))
    balancer(checks("", servers=[closed]))
    wait_for(lambda: min(len(kept.checks), len(closed.checks)) >= 8, what="checks")
    assert len({id(connection) for _, connection in kept.checks[:8]}) == 1
    assert len({id(connection) for _, connection in closed.checks[:8]}) == 8
    # One that the server has closed meanwhile is no failure.
    kept.origin.hang_up()
    seen = len(kept.checks)
    wait_for(lambda: len(kept.checks) >= seen + 3, what="checks on another connection")


def test_another_port_is_asked(balancer):
    health = Origin(answer("bad", "503 Unavailable"))
    [server, other] = named(2)
    one = balancer(proxy([server, other], head=ZONE, location=f"health_check interval=50ms port={health.port};"))
    wait_for(lambda: get(one.port).status == 502, what="both are unhealthy by what the port says")
    assert health.count >= 2
    health.handler = lambda *_: answer("good")
    goes_to(one, [True, True])


def test_checks_speak_tls_where_requests_do(balancer):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate("a.test").certificate, certificate("a.test").key)
    names = []
    tls.sni_callback = lambda _sock, name, _context: names.append(name)
    server = Checked("0", tls=tls)
    trusts = (f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority().certificate};"
              "proxy_ssl_server_name on; proxy_ssl_name {};")
    text = checks("mandatory", servers=[server], more=trusts.format("a.test")).replace("http://group", "https://group")
    one = balancer(text)
    wait_for(lambda: get(one.port).status == 200, what="a passed check")
    assert server.checks and "a.test" in names
    one.reload(text.replace("proxy_ssl_name a.test", "proxy_ssl_name b.test"))
    one.wait_error("unhealthy: upstream SSL certificate verify error")
    wait_for(lambda: get(one.port).status == 502, what="the worker's new configuration")


def test_one_checker_for_all_workers(balancer):
    servers = checked(2)
    begun = time.monotonic()
    balancer(checks("", servers=servers).replace("interval=50ms", "interval=200ms"), workers=4)
    wait_for(lambda: len(servers[0].checks) >= 6, what="checks")
    count = len(servers[0].checks)
    passed = time.monotonic() - begun
    assert count <= passed / 0.2 + 2, "each interval has one check, not one for each worker"


def test_checks_are_no_requests_of_an_algorithm(balancer):
    servers = checked(3)
    one = balancer(checks("", servers=servers, http="log_format a '$upstream_addr';",
                          more="access_log logs/access.log a;").replace("50ms", "10ms"), workers=1)
    for _ in range(5):
        seen = len(servers[0].checks)
        wait_for(lambda seen=seen: len(servers[0].checks) > seen, what="a check")
        # The round robin goes on where it was.
        assert ask(one, 3) == ["0", "1", "2"]
    assert len(one.access_log()) <= 15, "the access log has no checks"


def test_jitter_spreads_checks(balancer):
    times = []
    server = Checked("0")
    server.health = lambda *_: (times.append(time.monotonic()), answer("ok"))[1]
    balancer(checks("jitter=200ms", servers=[server]).replace("50ms", "20ms"))
    wait_for(lambda: len(times) >= 15, what="checks")
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert max(gaps) - min(gaps) > 0.05 and len({round(gap, 2) for gap in gaps}) > 4


# What the answer must be


MATCHES = [
    ("status 200;", answer("x"), answer("x", "201 Created")),
    ("status 200-299 304;", answer("x", "201 Created"), answer("x", "302 Found")),
    ("status ! 500-599;", answer("x", "404 Not Found"), answer("x", "503 No")),
    ("header X-State = up;", answer(headers=[("x-state", "up")]), answer(headers=[("X-State", "upper")])),
    ("header X-State != up;", answer(headers=[("X-State", "x")]), answer(headers=[("X-State", "up")])),
    ("header X-State ~ ^u.$;", answer(headers=[("X-State", "up")]), answer(headers=[("X-State", "down")])),
    ("header X-State !~* ^DOWN;", answer(headers=[("X-State", "up")]), answer(headers=[("X-State", "down")])),
    ("header X-State;", answer(headers=[("X-State", "")]), answer()),
    ("header ! X-State;", answer(), answer(headers=[("X-State", "up")])),
    ('body ~ "all is (well|fine)";', answer("today all is fine"), answer("all is lost")),
    ("body !~ maintenance;", answer("ok"), answer("in maintenance")),
    ("status 200; body ~ ok; header Content-Length = 2;", answer("ok"), answer("ok!")),
    ("require $load_ok $upstream_http_x_load;", answer(headers=[("X-Load", "3")]), answer(headers=[("X-Load", "9")])),
    ("require $upstream_http_x_load;", answer(headers=[("X-Load", "1")]), answer(headers=[("X-Load", "0")])),
]


@pytest.mark.parametrize("expected,right,wrong", MATCHES, ids=[match[0] for match in MATCHES])
def test_match(balancer, expected, right, wrong):
    servers = [Checked("0", right), Checked("1", wrong)]
    http = f"map $upstream_http_x_load $load_ok {{ ~^[1-5]$ 1; default 0; }} match right {{ {expected} }}"
    one = balancer(checks("mandatory match=right", servers=servers, http=http))
    goes_to(one, [True, False])
    servers[0].health, servers[1].health = wrong, right
    goes_to(one, [False, True])


def test_a_body_in_pieces_and_one_that_is_large(balancer):
    body = b"x" * 200_000 + b"needle" + b"y" * 1_000_000
    pieces = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnee\r\n3\r\ndle\r\n0\r\n\r\n"
    far = b"x" * 300_000 + b"needle"
    servers = [Checked("0", answer(body)), Checked("1", pieces), Checked("2", answer(far))]
    one = balancer(checks("mandatory match=right", servers=servers, http="match right { body ~ needle; }"))
    # The first 256k count.
    goes_to(one, [True, True, False])


# Before the first check, and after a reload


def test_no_request_comes_before_a_mandatory_check_has_passed(balancer):
    gate = threading.Event()
    [slow, ready] = servers = checked(2)
    slow.health = lambda *_: gate.wait(20) and answer("ok")
    one = balancer_of(balancer, servers, "mandatory")
    goes_to(one, [False, True])
    assert slow.asked == []
    gate.set()
    goes_to(one, [True, True])


def test_without_mandatory_servers_are_healthy_until_a_check_says_otherwise(balancer):
    gate = threading.Event()
    [server] = servers = checked(1)
    server.health = lambda *_: gate.wait(20) and answer("ok")
    one = balancer_of(balancer, servers)
    assert get(one.port).status == 200
    gate.set()


@pytest.mark.parametrize("parameters,status", [("mandatory", 502), ("mandatory persistent", 200), ("", 200)])
def test_a_reload_and_what_is_known(balancer, parameters, status):
    [server] = servers = checked(1)
    one = balancer(checks(parameters, servers=servers))
    wait_for(lambda: len(server.checks) > 1 and get(one.port).status == 200, what="a passed check")
    gate = threading.Event()
    server.health = lambda *_: gate.wait(20) and answer("ok")
    text = checks(parameters, servers=servers, more="proxy_set_header X-Generation 2;", server="location = /new { return 204; }")
    one.reload(text)
    # Checks begin a moment before the worker has the new configuration.
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    wait_for(lambda: server.checks[-1][0]["X-Generation"] == "2", what="a check of the new configuration")
    assert get(one.port).status == status
    gate.set()
    wait_for(lambda: get(one.port).status == 200, what="the server again")


def test_an_unhealthy_server_stays_so_over_a_reload_and_is_free_without_checks(balancer):
    servers = checked(2)
    servers[0].health = DEFECTS["500"]
    one = balancer(checks("", servers=servers))
    goes_to(one, [False, True])
    gate = threading.Event()
    servers[0].health = lambda *_: gate.wait(20) and answer("ok")
    one.reload(checks("", servers=servers, more="proxy_set_header X-Generation 2;"))
    wait_for(lambda: servers[0].checks[-1][0]["X-Generation"] == "2", what="a check of the new configuration")
    assert tally(ask(one, 20), 2) == [0, 20]
    one.reload(proxy(servers, head=ZONE, server="location = /new { return 204; }"))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    gate.set()
    goes_to(one, [True, True])
    seen = len(servers[0].checks)
    time.sleep(0.2)
    assert len(servers[0].checks) <= seen + 1


def test_a_new_server_is_checked_at_once(balancer):
    [first, second] = servers = checked(2)
    text = checks("mandatory", servers=servers[:1]).replace("50ms", "1h")
    one = balancer(text)
    wait_for(lambda: get(one.port).status == 200, what="the first check")
    one.reload(checks("mandatory persistent", servers=servers).replace("50ms", "1h"))
    goes_to(one, [True, True])
    assert len(second.checks) == 1


def test_several_checks_of_an_upstream(balancer):
    servers = checked(2)
    second = (" location /other { proxy_pass http://group; health_check interval=50ms uri=/second match=second; }\n}\n")
    text = checks("", servers=servers, http="match second { body ~ 1; }")
    one = balancer(text.rstrip().removesuffix("}") + second)
    # The second check asks for the name: that of server 0 does not match.
    goes_to(one, [False, True])


def test_servers_marked_down_are_not_checked(balancer):
    servers = checked(2)
    one = balancer(proxy(servers, head=ZONE, location=f"{FAST};", parameters=["", "down"]))
    wait_for(lambda: len(servers[0].checks) > 3, what="checks")
    assert servers[1].checks == [] and get(one.port).status == 200


def test_slow_start_begins_when_a_server_is_healthy_again(balancer):
    servers = checked(2)
    one = balancer(proxy(servers, head=ZONE, location=f"{FAST};", parameters=["slow_start=300s", ""]))
    goes_to(one, [True, True])
    assert tally(ask(one, 40), 2) == [20, 20]
    servers[0].health = DEFECTS["500"]
    goes_to(one, [False, True])
    servers[0].health = answer("ok")
    one.wait_error("the server is healthy")
    # A sixteenth of the weight at first.
    assert tally(ask(one, 170), 2)[0] <= 30


def test_many_servers(balancer):
    counted = collections.Counter()
    health = Origin(lambda request, _: (counted.update([request["X-N"]]), answer("ok"))[1], backlog=4096)
    lines = "".join(f"server 127.0.{n // 250}.{n % 250 + 1}:{free_port()};" for n in range(300))
    one = balancer(f"upstream group {{ {ZONE} {lines} }} server {{ listen 127.0.0.1:PORT; location / {{"
                   f" proxy_pass http://group; health_check interval=1h port={health.port}; }} }}")
    # Only the addresses of the first server answer: the others are found out too.
    one.wait_error("the server is unhealthy")
    wait_for(lambda: len(re.findall("the server is unhealthy", one.error_log())) == 299, what="all others")
    # The log may be faster than the threads of the server.
    wait_for(counted.total, what="the check of the first")
    assert counted.total() == 1
