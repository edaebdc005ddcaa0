"""`shadow`: algorithms that run beside the one that decides, and their counters."""

import os
import signal

import pytest

from support.balancer import Balancer, wait_for
from support.client import get
from support.expect import balanza_only
from support.ports import free_port
from test_api import SERVERS, ask, code, read, reload, servers  # noqa: F401
from test_metrics import samples

pytestmark = balanza_only("shadows are Balanza's own")

CONFIGURATION = """
log_format chosen "$upstream_addr|$upstream_shadow_round_robin|$upstream_shadow_maglev|$upstream_shadow_least_conn|$status";
upstream backend {
    zone backend 64k;
    METHOD
    server 127.0.0.1:FIRST; server 127.0.0.1:SECOND;
}
server {
    listen 127.0.0.1:PORT;
    access_log logs/chosen.log chosen;
    location / { proxy_pass http://backend; }
    location /api { access_log off; api write=on; }
    location /look/ { access_log off; api; }
    location /metrics { access_log off; metrics; }
}
"""
SHADOWS = "/api/balanza/http/upstreams/backend/shadows"
NOTHING = {"picks": 0, "agreed": 0, "nobody": 0, "agreement": None}


def configuration(servers, method):
    text = CONFIGURATION.replace("FIRST", str(servers[0].port)).replace("SECOND", str(servers[1].port))
    return text.replace("METHOD", method)


def shadows(port, path=SHADOWS):
    """The shadows of an upstream, by name."""
    return {shadow["name"]: shadow for shadow in read(port, path)["shadows"]}


def visits(one, keys):
    for key in keys:
        assert get(one.port, f"/?key={key}").status == 200


def logged(one, count):
    return [line.split("|") for line in one.wait_log(count, "chosen.log")]


def test_choices_are_logged_and_counted(servers):
    one = Balancer(configuration(servers, "shadow round_robin; shadow maglev key=$arg_key;"), workers=1)
    keys = list(range(20)) * 2
    visits(one, keys)
    lines = logged(one, len(keys))
    addresses = [server.server for server in servers[:2]]
    homes = {}
    for key, (addr, round_robin, maglev, least_conn, status) in zip(keys, lines, strict=True):
        # The same algorithm agrees, each key has one server, and an algorithm that is not a shadow here makes no choice.
        assert (round_robin, least_conn, status) == (addr, "-", "200")
        assert homes.setdefault(key, maglev) == maglev and maglev in addresses
    assert set(homes.values()) == set(addresses)
    found = shadows(one.port)
    assert list(found) == ["round_robin", "maglev"]
    assert found["round_robin"] | {"agreement": 1, "picks": 40, "agreed": 40} == found["round_robin"]
    assert found["round_robin"]["deviation"] == {"shadow": 0, "real": 0} and "keys" not in found["round_robin"]
    maglev = found["maglev"]
    agreed = sum(addr == chosen for addr, _, chosen, _, _ in lines)
    assert (maglev["picks"], maglev["agreed"], maglev["nobody"]) == (40, agreed, 0)
    assert maglev["agreement"] == pytest.approx(agreed / 40)
    counts = [sum(chosen == address for _, _, chosen, _, _ in lines) for address in addresses]
    assert [server["shadow"] for server in maglev["servers"]] == counts
    assert [server["real"] for server in maglev["servers"]] == [20, 20]
    assert maglev["deviation"]["shadow"] == pytest.approx(abs(counts[0] / 40 - 0.5))
    assert maglev["keys"] == {"picks": 20, "moved": 0} and "sessions" not in maglev
    assert maglev["shadow"] == "shadow maglev key=$arg_key" and maglev["cost"]["timed"] >= 1
    assert "nothing about response times" in read(one.port, SHADOWS)["note"]
    assert list(read(one.port, "/api/balanza/http/upstreams/backend")["shadows"][1]) == list(maglev)


def test_a_shadow_changes_no_choice(servers):
    counts = []
    for method in ("", "shadow least_conn; shadow bounded_hash key=$arg_key; shadow join_idle_queue; shadow peak_ewma;"):
        one = Balancer(configuration(servers, f"hash $arg_key consistent; {method}"), workers=1)
        visits(one, range(60))
        counts.append([line[0] for line in logged(one, 60)])
        one.stop()
    assert counts[0] == counts[1]


def test_counts_outlive_reloads_and_changes_of_servers(servers):
    text = configuration(servers, "shadow rendezvous key=$arg_key;")
    one = Balancer(text, workers=2)
    visits(one, range(30))
    before = shadows(one.port)["rendezvous"]
    assert before["picks"] == 30
    reload(one)
    assert shadows(one.port)["rendezvous"]["picks"] == 30
    # When a server is removed, only its keys move.
    assert ask(one.port, "DELETE", f"{SERVERS}/0")[0] == 200
    # Each worker applies the change no later than with its next request.
    visits(one, range(30))
    after = shadows(one.port)["rendezvous"]
    assert after["picks"] == 60 and after["keys"] == {"picks": 30, "moved": before["servers"][0]["shadow"]}
    assert [server["shadow"] for server in after["servers"]] == [before["servers"][1]["shadow"] + 30]
    # A changed line creates a new shadow.
    reload(one, text.replace("$arg_key", "$uri"))
    assert shadows(one.port)["rendezvous"] | NOTHING == shadows(one.port)["rendezvous"]
    # Without the line there is no shadow.
    reload(one, text.replace("shadow rendezvous key=$arg_key;", ""))
    assert shadows(one.port) == {} and "shadows" not in read(one.port, "/api/balanza/http/upstreams/backend")
    visits(one, range(4))


def test_a_reset_counts_from_zero(servers):
    one = Balancer(configuration(servers, "shadow maglev key=$arg_key;"), workers=1)
    visits(one, range(10))
    assert code(ask(one.port, "DELETE", SHADOWS.replace("/api", "/look")))[0] == 405
    assert shadows(one.port)["maglev"]["picks"] == 10
    assert ask(one.port, "DELETE", SHADOWS)[0] == 204
    found = shadows(one.port)["maglev"]
    assert found | NOTHING == found and {(one["shadow"], one["real"]) for one in found["servers"]} == {(0, 0)}
    # The last choice of each key is kept.
    visits(one, range(10))
    assert shadows(one.port)["maglev"]["keys"] == {"picks": 10, "moved": 0}
    assert code(ask(one.port, "GET", SHADOWS.replace("backend", "none"))) == (404, "UpstreamNotFound")


def test_sessions_that_would_have_been_left_are_counted(servers):
    one = Balancer(configuration(servers, "shadow maglev key=$arg_key; shadow least_conn; sticky cookie srv;"), workers=1)
    cookie = get(one.port, "/?key=1").all("Set-Cookie")[0].split(";")[0]
    home = logged(one, 1)[0][0]
    for key in range(40):
        assert get(one.port, f"/?key={key}", headers=[("Cookie", cookie)]).status == 200
    lines = logged(one, 41)[1:]
    assert {addr for addr, *_ in lines} == {home}
    left = sum(maglev != home for _, _, maglev, _, _ in lines)
    found = shadows(one.port)
    assert found["maglev"]["sessions"] == {"picks": 40, "left": left} and 0 < left < 40
    # Sessions do not count as picks, and an algorithm without a hash is not asked for them.
    assert (found["maglev"]["picks"], found["least_conn"]["picks"]) == (1, 1) and "sessions" not in found["least_conn"]
    assert {least_conn for _, _, _, least_conn, _ in lines} == {"-"}


def test_retries_have_a_choice_each(servers):
    text = configuration(servers, "shadow round_robin;").replace(f"127.0.0.1:{servers[0].port};", "127.0.0.1:1 max_fails=0;")
    one = Balancer(text, workers=1)
    visits(one, range(2))
    lines = logged(one, 2)
    assert lines[0][0] == f"127.0.0.1:1, {servers[1].server}" and all(line[0] == line[1] for line in lines), lines
    found = shadows(one.port)["round_robin"]
    assert (found["agreement"], found["picks"]) == (1, sum(line[0].count(",") + 1 for line in lines))


STREAM = """
events { }
http { server { listen 127.0.0.1:PORT; location /api { api write=on; } } }
stream {
    log_format f '$upstream_addr|$upstream_shadow_round_robin|$upstream_shadow_hash';
    upstream u {
        zone u 64k; shadow round_robin; shadow hash key=$remote_port consistent;
        server 127.0.0.1:FIRST; server 127.0.0.1:SECOND;
    }
    server { listen 127.0.0.1:SPORT; proxy_pass u; access_log logs/stream.log f; }
}
"""


def test_counters_are_metrics(servers):
    one = Balancer(configuration(servers, "shadow maglev key=$arg_key; shadow least_conn;"), workers=1)
    visits(one, list(range(8)) * 2)
    found, values = shadows(one.port), samples(get(one.port, "/metrics").text)
    value = lambda name, labels: values[(f"balanza_upstream_shadow_{name}", labels + ',upstream="backend"')]
    for name, shadow in found.items():
        assert [value(what, f'shadow="{name}"') for what in ("picks", "agreed", "nobody")] == [16, shadow["agreed"], 0]
        for server in shadow["servers"]:
            assert value("server_picks", f'server="{server["server"]}",shadow="{name}"') == server["shadow"]
    assert [value(what, 'shadow="maglev"') for what in ("keys", "keys_moved")] == [8, 0]
    assert not any(name.endswith("_keys") and "least_conn" in labels for name, labels in values)


def test_sessions_of_a_stream_have_shadows(servers):
    port = free_port()
    text = STREAM.replace("SPORT", str(port)).replace("FIRST", str(servers[0].port))
    one = Balancer(text=text.replace("SECOND", str(servers[1].port)))
    for _ in range(12):
        get(port, "/")
    lines = [line.split("|") for line in one.wait_log(12, "stream.log")]
    assert all(addr == round_robin for addr, round_robin, _ in lines)
    path = "/api/balanza/stream/upstreams/u/shadows"
    found = shadows(one.port, path)
    assert (found["round_robin"]["agreed"], found["hash"]["picks"]) == (12, 12)
    assert found["hash"]["agreed"] == sum(addr == chosen for addr, _, chosen in lines)
    assert ask(one.port, "DELETE", path)[0] == 204
    assert shadows(one.port, path)["hash"]["picks"] == 0


def test_bad_lines_leave_the_old_configuration(servers):
    text = configuration(servers, "shadow maglev;")
    one = Balancer(text, workers=1)
    visits(one, range(3))
    one.write(text.replace("shadow maglev;", "shadow maglv;"))
    assert 'did you mean `maglev`?' in one.test_config().stderr
    os.kill(one.pid, signal.SIGHUP)
    one.wait_error("unknown balancing algorithm")
    visits(one, range(3))
    assert wait_for(lambda: shadows(one.port)["maglev"]["picks"] == 6, what="the same shadow")
