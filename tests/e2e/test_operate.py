"""`balanza status`, `drain`, `undrain` and `set-weight` on a running balancer."""

import json
import subprocess

import pytest

from support.balancer import Balancer, binary, wait_for
from support.client import get
from support.expect import balanza_only
from support.holding import Holding
from support.ports import free_port

pytestmark = balanza_only("commands for Balanza's API")

CONFIGURATION = """
worker_processes 2;
events { worker_connections 512; }
http {
    upstream app { zone app 64k; server 127.0.0.1:FIRST fail_timeout=10m; server 127.1:SECOND fail_timeout=10m; }
    upstream fixed { server 127.0.0.1:FIRST; }
    server {
        listen 127.0.0.1:PORT;
        location / { proxy_pass http://app; }
        location /fixed { proxy_pass http://fixed/; }
        location /api { api write=on; }
        location /look { api; }
    }
}
stream {
    upstream app { zone sessions 64k; server 127.0.0.1:FIRST; server 127.0.0.1:SECOND; }
    upstream shells { zone shells 64k; server 127.0.0.1:FIRST; server 127.0.0.1:SECOND; }
    server { listen 127.0.0.1:DOOR; proxy_pass shells; }
}
"""


@pytest.fixture
def one(servers):
    text = CONFIGURATION.replace("FIRST", str(servers[0].port)).replace("SECOND", str(servers[1].port))
    return Balancer(text=text.replace("DOOR", str(free_port())))


def run(one, *words, api="api", code=0):
    url = ["--url", f"http://127.0.0.1:{one.port}/{api}"]
    done = subprocess.run([binary("balanza"), *words, *url], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code in (0, 2) or not done.stderr else done.stderr


def read(one, *words, code=0):
    return json.loads(run(one, *words, "--json", code=code))


def who(one, count=10):
    return {get(one.port).text.strip() for _ in range(count)}


def test_status(one, servers):
    found = read(one, "status")
    names = {(it["protocol"], it["upstream"], it["name"]) for it in found}
    assert ("http", "app", f"127.1:{servers[1].port}") in names and ("stream", "shells", servers[0].server) in names
    assert {it["state"] for it in found} == {"up"}
    table = run(one, "status", "fixed")
    assert table.splitlines()[0].split()[:3] == ["upstream", "server", "state"]
    assert table.splitlines()[1].split()[:4] == ["fixed", "http", servers[0].server, "up"]
    assert "no upstream \"shop\"; there are: app (http), fixed (http), " in run(one, "status", "shop", code=1)


def test_status_of_failures(one, servers):
    servers[1].kill()
    assert who(one, 4) == {"a"}
    assert "unavail" in {it["state"] for it in read(one, "status", "app", "--protocol", "http", code=1)}
    servers[0].kill()
    # The only server of an upstream is never given up, so this takes the group of two.
    wait_for(lambda: get(one.port).status == 502, what="an upstream without a server")
    read(one, "status", "app", "--protocol", "http", code=2)
    one.stop()
    assert "--url" in run(one, "status", code=3)


def test_drain_and_undrain(one, servers):
    assert who(one) == {"a", "b"}
    [changed] = read(one, "drain", "app", servers[0].server, "--protocol", "http", "--wait")
    assert changed["state"] == "draining" and changed["active"] == 0
    assert who(one) == {"b"}
    # It was taken out on purpose: that is no alarm.
    run(one, "status", "app", "--protocol", "http")
    [changed] = read(one, "undrain", "app", servers[0].server, "--protocol", "http")
    assert changed["state"] == "up" and who(one) == {"a", "b"}


def test_names_of_the_configuration(one, servers):
    changed = read(one, "drain", "app", f"127.1:{servers[1].port}", "--protocol", "http")
    assert {it["state"] for it in changed} == {"draining"} and who(one) == {"a"}


def test_sessions_of_stream(one, servers):
    [changed] = read(one, "drain", "shells", servers[0].server, "--wait")
    assert (changed["protocol"], changed["state"]) == ("stream", "draining")
    [changed] = read(one, "undrain", "shells", servers[0].server)
    assert changed["state"] == "up"


def test_a_deadline(one, servers):
    drain = ["drain", "app", servers[0].server, "--protocol", "http", "--deadline", "0.2"]
    read(one, *drain)
    wait_for(lambda: "down" in {it["state"] for it in read(one, "status", "app", "--protocol", "http")}, what="the deadline")
    assert who(one) == {"b"}
    [changed] = read(one, "undrain", "app", servers[0].server, "--protocol", "http")
    assert changed["state"] == "up" and who(one) == {"a", "b"}


def test_set_weight(one, servers):
    [changed] = read(one, "set-weight", "app", servers[0].server, "9", "--protocol", "http")
    assert changed["weight"] == 9
    texts = [get(one.port).text.strip() for _ in range(40)]
    assert texts.count("a") > 20, texts
    run(one, "set-weight", "app", servers[0].server, "0", code=2)


def test_errors_say_what_to_do(one, servers):
    there_are = run(one, "drain", "app", "10.9.9.9", "--protocol", "http", code=1)
    assert "has no server \"10.9.9.9\"; there are: " in there_are and servers[0].server in there_are
    assert "add --protocol http or --protocol stream" in run(one, "drain", "app", servers[0].server, code=1)
    assert "zone fixed 64k;" in run(one, "drain", "fixed", servers[0].server, code=1)
    read_only = run(one, "set-weight", "app", servers[0].server, "2", "--protocol", "http", api="look", code=1)
    assert "api write=on;" in read_only
    assert "cannot be reached" not in read_only
    assert who(one) == {"a", "b"}


def test_waiting_for_the_last_request():
    held = Holding(2)
    ports = [server.port for server in held.servers]
    text = CONFIGURATION.replace("127.1", "127.0.0.1").replace("FIRST", str(ports[0])).replace("SECOND", str(ports[1]))
    one = Balancer(text=text.replace("DOOR", str(free_port())))
    index = held.send(one)
    drain = ["drain", "app", f"127.0.0.1:{ports[index]}", "--protocol", "http", "--wait"]
    assert "1 requests are left" in run(one, *drain, "--timeout", "0.5", code=4)
    waiting = subprocess.Popen([binary("balanza"), *drain, "--json", "--url", f"http://127.0.0.1:{one.port}/api"],
                               stdout=subprocess.PIPE, text=True)
    # New requests go to the other server, while the one in flight keeps the command waiting.
    assert [held.send(one), held.send(one)] == [1 - index] * 2
    assert waiting.poll() is None
    held.release(index)
    out, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 0 and json.loads(out)[0]["active"] == 0
    held.release_all()


def test_an_experiment(one, servers):
    assert run(one, "experiment", "list") == "no experiments\n"
    start = ("experiment", "start", "app", "--protocol", "http")
    assert "add --protocol" in run(one, "experiment", "start", "app", "--arm", "random", code=1)
    assert 'missing \\"arms\\"'.replace("\\", "") in run(one, *start, code=1)
    assert "did you mean" in run(one, *start, "--arm", "lest_conn", code=1)
    assert "MethodDisabled" in run(one, *start, "--arm", "random", api="look", code=1)
    shown = run(one, *start, "--arm", "random", "--arm", "least_conn", "--block", "10m", "--errors", "5%", "--p99", "1s", "--seed", "3",
                "--p99-ratio", "2", "--requests", "10", "--rounds", "9", "--washout", "1s")
    assert shown.startswith('upstream app (http): running, block 1 of 27: "') and "washout" in shown
    assert [line.split("  ")[0] for line in shown.splitlines()[2:5]] == ["balance round_robin", "random", "least_conn"]
    found = read(one, "experiment", "show", "app", "--protocol", "http")
    expected = {"block": "600s", "errors": "5%", "p99": "1s", "seed": 3, "p99_ratio": 2.0, "requests": 10, "rounds": 9, "washout": "1s"}
    assert found["settings"] == expected
    assert "ExperimentRunning" in run(one, *start, "--arm", "random", code=1)
    assert run(one, "experiment", "list").splitlines()[1].split()[:3] == ["app", "http", "running"]
    assert "stopped, it was stopped by the API" in run(one, "experiment", "stop", "app", "--protocol", "http")
    assert "ExperimentNotRunning" in run(one, "experiment", "stop", "app", "--protocol", "http", code=1)
    assert "no upstream" in run(one, "experiment", "show", "nothing", code=1)
    assert "ExperimentNotFound" in run(one, "experiment", "show", "shells", code=1)
    run(one, *start, "--arm", "random", "--block", "200ms", "--rounds", "1")
    done = run(one, "experiment", "show", "app", "--protocol", "http", "--wait")
    assert done.startswith("upstream app (http): completed, all blocks have run")
    run(one, *start, "--arm", "random", "--block", "10m")
    for server in servers:
        server.stop()

    def ended():
        get(one.port)
        return read(one, "experiment", "list")[0]["state"] != "running"

    wait_for(ended, what="the end")
    assert "disturbed, no server is up" in run(one, "experiment", "show", "app", "--protocol", "http", code=2)
    unreachable = subprocess.run([binary("balanza"), "experiment", "list", "--url", f"http://127.0.0.1:{free_port()}/api"],
                                 capture_output=True, text=True, timeout=60)
    assert unreachable.returncode == 3
