"""The API: its objects, changes of servers that hold in all workers and outlive them, errors, and what it refuses."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

from support.balancer import ROOT, Balancer, children, wait_for
from support.certificates import authority, certificate
from support.client import Client, get
from support.expect import balanza_only
from support.fast import FastServer
from support.go import build
from support.ports import free_port

pytestmark = balanza_only("the API is a part of NGINX Plus")

API = """
upstream backend { zone backend 64k; server 127.0.0.1:ORIGIN; }
upstream empty { zone empty 64k; }
upstream fixed { server 127.0.0.1:ORIGIN; }
limit_req_zone $binary_remote_addr zone=one:1m rate=1000r/s;
limit_conn_zone $binary_remote_addr zone=addr:1m;
server {
    listen 127.0.0.1:PORT;
    status_zone shop;
    limit_conn addr 100;
    location / { proxy_pass http://backend; status_zone pages; limit_req zone=one burst=1000 nodelay; }
    location /off/ { proxy_pass http://fixed/; status_zone outer; location /off/inner/ { status_zone off; return 204; } }
    location /gone { status_zone pages; return 410; }
    location /api { api write=on; client_body_buffer_size 1k; }
    location /look/ { api; }
}
"""


@pytest.fixture
def servers():
    started = [FastServer(name) for name in ("a", "b", "c")]
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def one(servers):
    return Balancer(API.replace("ORIGIN", str(servers[0].port)), workers=2)


def ask(port, method, path, value=None, headers=()):
    """Status and value of an answer."""
    body = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
    with Client(port) as client:
        client.request(method, path, headers=[("Content-Type", "application/json"), *headers], body=body)
        response = client.response(method)
    if response is None:
        raise ConnectionError("closed without an answer")
    return response.status, json.loads(response.body) if response.body else None


def read(port, path):
    status, value = ask(port, "GET", path)
    assert status == 200, value
    return value


def reload(one, http=""):
    """Reloads, with another configuration or the same, and waits until it is in operation."""
    before = read(one.port, "/api/9/nginx")["generation"]
    one.reload(http)
    wait_for(lambda: read(one.port, "/api/9/nginx")["generation"] == before + 1, what="the reload")


def replace_worker(one, replace=lambda pid: os.kill(pid, signal.SIGKILL)):
    """Kills the worker process, or replaces it otherwise, and waits for the next one."""
    before = read(one.port, "/api/9/nginx")["pid"]
    replace(before)

    def is_new():
        try:
            return read(one.port, "/api/9/nginx")["pid"] != before
        except OSError:
            return False

    wait_for(is_new, what="another worker process")


def counted(port, path, requests):
    """The object of a zone once it has so many requests."""
    return wait_for(lambda: (found := read(port, path))["requests"] == requests and found, what=f"{requests} requests")


def code(answer):
    status, value = answer
    assert value["error"]["status"] == status and value["request_id"] and value["href"], value
    return status, value["error"]["code"]


SERVERS = "/api/9/http/upstreams/backend/servers"


def test_every_path_of_the_table_answers(one):
    for path in ("/api", "/api/"):
        assert read(one.port, path) == list(range(1, 10))
    root = read(one.port, "/api/9/")
    assert root == ["nginx", "processes", "connections", "slabs", "http", "resolvers", "ssl", "license", "workers"]
    for name in root:
        for end in ("", "/"):
            assert read(one.port, f"/api/9/{name}{end}") is not None
    for name in read(one.port, "/api/9/http"):
        assert isinstance(read(one.port, f"/look/9/http/{name}/"), dict), name
    about = read(one.port, "/api/9/nginx")
    assert about["address"] == "127.0.0.1" and about["generation"] == 1 and about["pid"] in children(one.pid)
    assert about["ppid"] == one.pid and about["load_timestamp"] <= about["timestamp"]
    assert read(one.port, "/api/9/nginx?fields=pid,generation") == {"pid": about["pid"], "generation": 1}


def test_counts_are_what_was_asked(one):
    for _ in range(7):
        assert get(one.port, "/").status == 200
    for _ in range(3):
        assert get(one.port, "/gone").status == 410
    get(one.port, "/off/x")
    get(one.port, "/off/inner/x")
    # A request is counted when its response is sent.
    zone = counted(one.port, "/api/9/http/location_zones/pages", 10)
    assert zone["responses"]["codes"] == {"200": 7, "410": 3}
    assert zone["responses"]["4xx"] == 3 and zone["responses"]["total"] == 10 and zone["discarded"] == 0
    counted(one.port, "/api/9/http/location_zones/outer", 1)
    assert read(one.port, "/api/9/http/location_zones?fields=requests") == {"pages": {"requests": 10}, "outer": {"requests": 1}}
    # The request that asks is in flight.
    shop = wait_for(lambda: (found := read(one.port, "/api/9/http/server_zones")["shop"])["processing"] == 1 and found,
                    what="the end of the other requests")
    assert shop["requests"] == shop["responses"]["total"] + 1 >= 13
    assert wait_for(lambda: read(one.port, "/api/9/http/requests")["current"] == 1, what="one request in flight")
    peer, = read(one.port, "/api/9/http/upstreams/backend")["peers"]
    assert (peer["id"], peer["requests"], peer["responses"]["codes"], peer["state"]) == (0, 7, {"200": 7}, "up")
    assert peer["response_time_hist"]["count"] == 7 == sum(peer["response_time_hist"]["buckets"].values())
    limits = read(one.port, "/api/9/http/limit_reqs/one")
    assert limits == {"passed": 7, "delayed": 0, "rejected": 0, "delayed_dry_run": 0, "rejected_dry_run": 0}
    assert read(one.port, "/api/9/http/limit_conns")["addr"]["passed"] >= 12
    # Both workers' requests are in the sum.
    workers = read(one.port, "/api/9/workers")
    total = read(one.port, "/api/9/http/requests")["total"]
    assert len(workers) == 2 and 0 < sum(worker["http"]["requests"]["total"] for worker in workers) < total


def test_a_reset_begins_at_zero(one):
    for _ in range(5):
        get(one.port, "/")
    counted(one.port, "/api/9/http/location_zones/pages", 5)
    paths = ["http/location_zones/pages", "http/server_zones/shop", "http/upstreams/backend", "http/limit_reqs/one",
             "http/limit_conns/addr", "connections", "workers/0", "workers/1", "ssl", "processes", "http/requests"]
    for path in paths:
        assert ask(one.port, "DELETE", f"/api/9/{path}") == (204, None), path
        assert code(ask(one.port, "DELETE", f"/look/9/{path}")) == (405, "MethodDisabled")
    assert read(one.port, "/api/9/http/location_zones/pages")["requests"] == 0
    assert read(one.port, "/api/9/http/upstreams/backend")["peers"][0]["requests"] == 0
    assert read(one.port, "/api/9/http/limit_reqs/one")["passed"] == 0
    assert read(one.port, "/api/9/http/requests")["total"] < 8
    get(one.port, "/")
    one.reload()
    wait_for(lambda: read(one.port, "/api/9/nginx")["generation"] == 2, what="the second configuration")
    assert counted(one.port, "/api/9/http/location_zones/pages", 1)["responses"]["codes"] == {"200": 1}


def test_servers_are_added_changed_and_removed(one, servers):
    added = {"server": servers[1].server, "weight": 3, "max_conns": 7, "max_fails": 2, "fail_timeout": "21s",
             "slow_start": "12s"}
    status, found = ask(one.port, "POST", SERVERS, added)
    expected = {"id": 1, "backup": False, "down": False, **added}
    assert (status, found) == (201, expected)
    assert code(ask(one.port, "POST", f"{SERVERS}/", added)) == (409, "EntryExists")
    assert ask(one.port, "PATCH", f"{SERVERS}/1", {**expected, "weight": 1, "slow_start": "0s"}) == \
        (200, {**expected, "weight": 1, "slow_start": "0s"})
    # Both servers serve, whichever worker has the connection.
    assert {get(one.port, "/").body.strip() for _ in range(20)} == {b"a", b"b"}
    status, changed = ask(one.port, "PATCH", f"{SERVERS}/0", {"drain": True})
    assert status == 200 and changed["drain"] is True
    assert {get(one.port, "/").body.strip() for _ in range(10)} == {b"b"}
    assert [peer["state"] for peer in read(one.port, "/api/9/http/upstreams/backend")["peers"]] == ["draining", "up"]
    status, left = ask(one.port, "DELETE", f"{SERVERS}/0")
    assert status == 200 and [server["id"] for server in left] == [1]
    assert code(ask(one.port, "GET", f"{SERVERS}/0")) == (404, "UpstreamServerNotFound")
    # A number is not used again.
    assert ask(one.port, "POST", SERVERS, {"server": servers[2].server})[1]["id"] == 2
    # A server with another address is another server.
    status, moved = ask(one.port, "PATCH", f"{SERVERS}/2", {"server": servers[0].server})
    assert status == 200 and moved["server"] == servers[0].server and moved["id"] == 0 or moved["id"] == 3


def test_an_upstream_may_be_empty(one, servers):
    path = "/api/9/http/upstreams/empty/servers"
    assert read(one.port, path) == []
    assert ask(one.port, "POST", path, {"server": servers[1].server})[1]["id"] == 0
    assert ask(one.port, "DELETE", f"{path}/0") == (200, [])


def test_changes_outlive_reload_death_of_the_worker_and_upgrade(one, servers):
    ask(one.port, "POST", SERVERS, {"server": servers[1].server, "max_fails": 4})
    ask(one.port, "PATCH", f"{SERVERS}/0", {"down": True})

    def check():
        found = [(server["server"], server["max_fails"], server["down"]) for server in read(one.port, SERVERS)]
        assert found == [(servers[0].server, 1, True), (servers[1].server, 4, False)]
        assert get(one.port, "/").body.strip() == b"b"

    check()
    one.reload()
    wait_for(lambda: read(one.port, "/api/9/nginx")["generation"] == 2, what="the second configuration")
    check()
    replace_worker(one)
    check()
    assert read(one.port, "/api/9/processes") == {"respawned": 1}
    assert wait_for(lambda: read(one.port, "/api/balanza/events"), what="an event")[0]["kind"] == "respawn"
    replace_worker(one, lambda _: one.upgrade())
    check()


def test_what_is_wrong_has_a_code(one):
    upstreams = "/api/9/http/upstreams"
    expected = {
        ("GET", "/api/10"): (404, "UnknownVersion"),
        ("GET", "/api/9/nothing"): (404, "PathNotFound"),
        ("GET", "/api/9/stream"): (404, "PathNotFound"),
        ("GET", f"{upstreams}/none"): (404, "UpstreamNotFound"),
        ("GET", f"{SERVERS}/7"): (404, "UpstreamServerNotFound"),
        ("GET", f"{SERVERS}/x"): (400, "UpstreamBadServerId"),
        ("GET", "/api/9/http/server_zones/none"): (404, "ServerZoneNotFound"),
        ("GET", "/api/9/http/location_zones/none"): (404, "LocationZoneNotFound"),
        ("GET", "/api/9/http/limit_reqs/none"): (404, "LimitReqNotFound"),
        ("GET", "/api/9/http/limit_conns/none"): (404, "LimitConnNotFound"),
        ("GET", "/api/9/http/caches/none"): (404, "CacheNotFound"),
        ("GET", "/api/9/slabs/none"): (404, "SlabNotFound"),
        ("GET", "/api/9/resolvers/none"): (404, "ResolverZoneNotFound"),
        ("GET", "/api/9/workers/2"): (404, "WorkerNotFound"),
        ("PUT", "/api/9/nginx"): (405, "MethodDisabled"),
        ("POST", f"{upstreams}/fixed/servers"): (400, "UpstreamStatic"),
        ("DELETE", "/api/9/nginx"): (405, "MethodDisabled"),
        ("DELETE", f"{SERVERS}/7"): (404, "UpstreamServerNotFound"),
    }
    found = {request: code(ask(one.port, *request, {"server": "127.0.0.1:1"} if request[0] == "POST" else None))
             for request in expected}
    assert found == expected
    assert code(ask(one.port, "POST", SERVERS, b"{")) == (415, "JsonError")
    assert code(ask(one.port, "POST", SERVERS, {"weight": 1})) == (400, "UpstreamConfFormatError")
    assert code(ask(one.port, "PATCH", f"{SERVERS}/0", {"backup": True})) == (400, "UpstreamConfFormatError")
    assert code(ask(one.port, "POST", SERVERS, {"server": "127.0.0.1:1", "x": 1})) == (400, "UpstreamConfFormatError")
    assert code(ask(one.port, "POST", SERVERS, b"[" + b" " * 3000 + b"]")) == (413, "BodyReadError")
    # Nothing of that has changed anything.
    assert len(read(one.port, SERVERS)) == 1


@pytest.mark.parametrize("headers, allowed", [
    ([], True),
    ([("Origin", "http://evil.test")], False),
    ([("Origin", "null")], False),
    ([("Origin", "http://example.test.evil.test")], False),
    ([("Origin", "http://example.test")], True),
    ([("Sec-Fetch-Site", "cross-site")], False),
    ([("Sec-Fetch-Site", "same-site")], False),
    ([("Sec-Fetch-Site", "same-origin"), ("Origin", "https://example.test")], True),
])
def test_pages_of_other_sites_change_nothing(one, headers, allowed):
    status, value = ask(one.port, "PATCH", f"{SERVERS}/0", {"weight": 5}, headers)
    assert status == (200 if allowed else 403)
    assert allowed or value["error"]["code"] == "CrossSiteRequest"
    assert read(one.port, f"{SERVERS}/0")["weight"] == (5 if allowed else 1)


def test_a_form_of_a_page_changes_nothing(one):
    with Client(one.port) as client:
        headers = [("Origin", "http://example.test"), ("Content-Type", "text/plain")]
        client.request("POST", SERVERS, headers=headers, body=b'{"server":"127.0.0.1:1"}')
        response = client.response()
        assert response.status == 403 and not response.all("access-control-allow-origin")
    assert len(read(one.port, SERVERS)) == 1


def test_writers_at_the_same_time_lose_nothing(one):
    """Sixteen writers add two servers each, while the configuration is reloaded."""
    def add(number):
        return ask(one.port, "POST", SERVERS, {"server": f"127.0.0.2:{1000 + number}", "down": True})[0]

    with concurrent.futures.ThreadPoolExecutor(16) as writers:
        adding = [writers.submit(add, number) for number in range(32)]
        for _ in range(3):
            os.kill(one.pid, signal.SIGHUP)
        statuses = [done.result() for done in adding]
    # A full queue refuses, and changes nothing.
    assert set(statuses) <= {201, 503} and statuses.count(201) >= 1
    assert len(read(one.port, SERVERS)) == 1 + statuses.count(201)


STREAM = """
worker_processes 2;
events { worker_connections 512; }
http { access_log off; server { listen 127.0.0.1:PORT; location /api { api write=on; } } }
stream {
    limit_conn_zone $binary_remote_addr zone=sessions:1m;
    upstream shells { zone shells 64k; server 127.0.0.1:ORIGIN; }
    server { listen 127.0.0.1:SECOND; status_zone door; limit_conn sessions 10; proxy_pass shells; }
}
"""


def test_streams_are_counted_and_changed(servers):
    second = free_port()
    text = STREAM.replace("ORIGIN", str(servers[0].port)).replace("SECOND", str(second))
    one = Balancer(text=text)
    for _ in range(4):
        assert get(second, "/").status == 200
    assert read(one.port, "/api/9/stream") == ["server_zones", "limit_conns", "upstreams", "keyvals"]
    zone = wait_for(lambda: (found := read(one.port, "/api/9/stream/server_zones/door"))["sessions"]["total"] == 4 and found,
                    what="the ends of the sessions")
    assert zone["processing"] == 0 and zone["connections"] == 4 and zone["sessions"]["2xx"] == 4
    assert zone["received"] > 0 and zone["sent"] > 0
    assert read(one.port, "/api/9/stream/limit_conns")["sessions"]["passed"] == 4
    path = "/api/9/stream/upstreams/shells"
    peer, = read(one.port, path)["peers"]
    assert peer["connections"] == 4 and "requests" not in peer
    address = servers[1].server
    assert ask(one.port, "POST", f"{path}/servers", {"server": address})[0] == 201
    assert code(ask(one.port, "PATCH", f"{path}/servers/1", {"route": "a"})) == (400, "UpstreamConfFormatError")
    assert ask(one.port, "DELETE", f"{path}/servers/0")[0] == 200
    assert {get(second, "/").body.strip() for _ in range(6)} == {b"b"}


def test_handshakes_are_counted():
    second = free_port()
    secure = f"server {{ listen 127.0.0.1:{second} ssl; {certificate().directives()} return 200; }}"
    one = Balancer("server { listen 127.0.0.1:PORT; location /api { api; } } " + secure)
    context = ssl.create_default_context(cafile=str(authority().certificate))
    with context.wrap_socket(socket.create_connection(("127.0.0.1", second)), server_hostname="a.test") as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(100)
    with socket.create_connection(("127.0.0.1", second)) as client:
        client.sendall(b"\x16\x03\x01\x00\x05hello")
        with contextlib.suppress(ConnectionResetError):
            client.recv(100)
    expected = {"handshakes": 1, "handshakes_failed": 1, "session_reuses": 0}
    assert wait_for(lambda: (found := read(one.port, "/api/9/ssl"))["handshakes_failed"] and found, what="a failure") == expected


@pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")
def test_the_client_of_nginx_plus_works(servers):
    second = free_port()
    text = (pathlib.Path(ROOT) / "tests/e2e/go-client/nginx.conf").read_text()
    one = Balancer(text=text.replace("ORIGIN", str(servers[0].port)).replace("SECOND", str(second)))
    program = build("go-client")
    ran = subprocess.run([program, f"http://127.0.0.1:{one.port}/api"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
