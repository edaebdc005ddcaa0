"""What runs otherwise than configured, and why the last requests went where they went."""

import time

from support.balancer import Balancer, wait_for
from support.client import get
from support.expect import balanza_only
from test_api import SERVERS, ask, code, read, reload

pytestmark = balanza_only("diff and picks are Balanza's own")

CONFIGURATION = """
upstream backend { zone backend 64k; METHOD server 127.0.0.1:FIRST; server 127.0.0.1:SECOND; server 127.0.0.9:1 backup; }
upstream fixed { server 127.0.0.1:FIRST; }
server { listen 127.0.0.1:PORT; location / { proxy_pass http://backend; } location /fixed { proxy_pass http://fixed; } LOCATION }
"""
PICKS = "/api/balanza/http/upstreams/backend/picks"
API = "location /api { api write=on; }"


def configuration(servers, method="", location=API):
    text = CONFIGURATION.replace("FIRST", str(servers[0].port)).replace("SECOND", str(servers[1].port))
    return text.replace("METHOD", method).replace("LOCATION", location)


def test_a_difference_is_what_was_changed(servers):
    one = Balancer(configuration(servers), workers=1)
    diff = lambda: read(one.port, "/api/balanza/diff")
    assert diff() == {"http": {}, "stream": {}}
    ask(one.port, "PATCH", f"{SERVERS}/0", {"weight": 3, "route": "r", "drain": True})
    ask(one.port, "DELETE", f"{SERVERS}/1")
    ask(one.port, "POST", SERVERS, {"server": "127.0.0.8:80", "weight": 2})
    ask(one.port, "PATCH", "/api/balanza/http/upstreams/backend", {"method": "least_conn"})
    found, = diff()["http"].values()
    assert found["method"] == {"configured": "balance round_robin", "running": "least_conn"}
    assert found["changed"] == [{"server": servers[0].server, "by": "api", "parameters": {
        "weight": {"configured": 1, "running": 3}, "route": {"configured": None, "running": "r"},
        "drain": {"configured": None, "running": True}}}]
    assert found["removed"] == [{"server": servers[1].server, "by": "api"}]
    added, = found["added"]
    assert (added["server"], added["weight"], added["by"], added["max_fails"]) == ("127.0.0.8:80", 2, "api", 1)
    # A reload with the same file changes nothing; one that has taken the changes over leaves no difference.
    reload(one)
    assert diff()["http"] == {"backend": found}
    ask(one.port, "PATCH", f"{SERVERS}/0", {"weight": 1, "route": "", "drain": False})
    ask(one.port, "POST", SERVERS, {"server": servers[1].server})
    ask(one.port, "PATCH", "/api/balanza/http/upstreams/backend", {"method": None})
    number = next(server["id"] for server in read(one.port, SERVERS) if server["server"] == "127.0.0.8:80")
    ask(one.port, "DELETE", f"{SERVERS}/{number}")
    assert diff() == {"http": {}, "stream": {}}
    assert code(ask(one.port, "DELETE", "/api/balanza/diff")) == (405, "MethodDisabled")


def test_a_file_is_named_as_the_source(servers):
    one = Balancer(f"upstream backend {{ zone backend 64k; server_list DIR/servers; }} server {{ listen 127.0.0.1:PORT; {API} }}", start=False)
    file = one.dir / "servers"
    file.write_text(f"server {servers[0].server};\nserver 127.0.0.7:80;\n")
    one.start()
    diff = lambda: read(one.port, "/api/balanza/diff")["http"]
    assert diff() == {}
    newer = one.dir / "servers.new"
    newer.write_text(f"server {servers[0].server} weight=4;\nserver {servers[1].server};\n")
    newer.rename(file)
    found, = wait_for(lambda: list(diff().values()), what="a difference")
    assert [(one["server"], one["by"]) for one in found["added"]] == [(servers[1].server, "file")]
    assert found["removed"] == [{"server": "127.0.0.7:80", "by": "file"}]
    assert found["changed"] == [{"server": servers[0].server, "by": "file", "parameters": {"weight": {"configured": 1, "running": 4}}}]


def test_choices_are_shown_with_their_reasons(servers):
    one = Balancer(configuration(servers, "least_conn;"), workers=2)
    assert read(one.port, PICKS) == []
    # Requests with pauses: each of them is looked at.
    for _ in range(4):
        get(one.port, "/")
        time.sleep(0.06)
    picks = wait_for(lambda: len(found := read(one.port, PICKS)) == 4 and found, what="the choices")
    assert [pick["time"] for pick in picks] == sorted((pick["time"] for pick in picks), reverse=True)
    addresses = {server.server: number for number, server in enumerate(servers)}
    for pick in picks:
        assert addresses[pick["server"]] == pick["id"] and pick["reason"].startswith("least_conn")
        assert "probability" not in pick and pick["score"] == 0 and pick["runner_up"]["server"] in addresses and pick["runner_up"]["id"] != pick["id"]
    # They outlive a reload, and a server that has gone has no name.
    ask(one.port, "DELETE", f"{SERVERS}/1")
    reload(one)
    assert {pick["server"] for pick in read(one.port, PICKS)} <= {servers[0].server, None}


def test_random_choices_are_shown_with_their_probability(servers):
    one = Balancer(configuration(servers, "random;").replace("server 127.0.0.9:1 backup;", ""), workers=1)
    get(one.port, "/")
    # Two servers of equal weight; nothing in the configuration asks for the variable.
    pick, = wait_for(lambda: read(one.port, PICKS), what="the choice")
    assert pick["probability"] == 0.5 and pick["server"] in {server.server for server in servers}


def test_a_busy_upstream_is_sampled(servers):
    one = Balancer(configuration(servers, "balance peak_ewma;"), workers=1)
    for _ in range(300):
        get(one.port, "/")
    picks = read(one.port, PICKS)
    assert 1 <= len(picks) <= 32
    assert read(one.port, "/api/balanza/http/upstreams/fixed/picks") == []
    assert code(ask(one.port, "GET", "/api/balanza/http/upstreams/none/picks")) == (404, "UpstreamNotFound")
