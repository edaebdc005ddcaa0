"""`experiment`: methods of an upstream that take turns, what is measured of each, and what ends it."""

import os
import signal
import socket
import threading
import time
import types

import pytest

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.fast import FastServer
from support.load import Load
from support.origin import Origin, answer
from support.ports import free_port
from support.stream import Session, TcpServer
from test_api import ask, code, read, reload, replace_worker, servers  # noqa: F401
from test_metrics import samples

pytestmark = balanza_only("experiments are Balanza's own")

CONFIGURATION = """
log_format arms "$upstream_addr|$upstream_experiment";
upstream backend {
    zone backend 64k;
    EXPERIMENT
    server 127.0.0.1:FIRST; server 127.0.0.1:SECOND;
}
upstream fixed { server 127.0.0.1:FIRST; }
server {
    listen 127.0.0.1:PORT;
    access_log logs/arms.log arms;
    location / { add_header X-Upstream $upstream_addr; proxy_pass http://backend; }
    location /api { access_log off; api write=on; }
    location /look/ { access_log off; api; }
    location /metrics { access_log off; metrics; }
}
"""
UPSTREAM = "/api/balanza/http/upstreams/backend"
EXPERIMENT = UPSTREAM + "/experiment"
OWN = "balance round_robin"
ARM = "hash $arg_key"
# So that nothing ends by itself.
LONG = f"experiment block=10m rounds=1000 seed=1; experiment_arm {ARM};"


def configuration(servers, experiment=""):
    text = CONFIGURATION.replace("FIRST", str(servers[0].port)).replace("SECOND", str(servers[1].port))
    return text.replace("EXPERIMENT", experiment)


def begin(one, value=None, path=EXPERIMENT):
    status, shown = ask(one.port, "POST", path, value)
    assert (status, shown.get("state")) == (201, "running"), shown
    return shown


def state(one, path=EXPERIMENT):
    return read(one.port, path)["state"]


def wait_state(one, expected, path=EXPERIMENT):
    return wait_for(lambda: (found := read(one.port, path))["state"] == expected and found, what=expected)


def wait_arm(one, arm, path=EXPERIMENT):
    return wait_for(lambda: read(one.port, path).get("now", {}).get("arm") == arm, seconds=60, what=f"the arm {arm}")


def is_own(one):
    """The upstream has its own method, and nothing is different from the configuration."""
    return read(one.port, UPSTREAM)["method"] == OWN and read(one.port, "/api/balanza/diff")["http"] == {}


def events(one):
    found = read(one.port, "/api/balanza/events")
    return [(event["kind"], event["text"]) for event in found if event["kind"] in ("experiment", "method")]


def test_blocks_alternate_and_each_request_counts_for_its_arm(servers):
    text = f"experiment block=500ms washout=100ms rounds=4 seed=7; experiment_arm {ARM};"
    one = Balancer(configuration(servers, text), workers=2)
    ready = read(one.port, EXPERIMENT)
    assert (ready["state"], [arm["name"] for arm in ready["arms"]]) == ("ready", [OWN, ARM])
    get(one.port, "/?key=k")
    with Load(one.port, clients=3, target="/?key=k") as load:
        begun = begin(one)
        assert begun["settings"] | {"block": "500ms", "washout": "100ms", "rounds": 4, "seed": 7} == begun["settings"]
        seen = set()
        def ended():
            found = read(one.port, EXPERIMENT)
            if "now" in found:
                seen.add((found["now"]["block"], found["now"]["arm"]))
            return found["state"] == "completed" and found
        done = wait_for(ended, seconds=60, what="the end")
    assert not load.failures
    assert done["blocks"]["planned"] == 8
    if done["blocks"]["complete"] == 8:
        assert [arm["blocks"] for arm in done["arms"]] == [4, 4]
    # In each round each arm has a block; the seed says which comes first.
    by_round = {}
    for block, arm in seen:
        by_round.setdefault(block // 2, []).append((block, arm))
    for blocks in by_round.values():
        assert len({arm for _, arm in blocks}) == len(blocks)
    wait_for(lambda: is_own(one), what="the method of the upstream")
    lines = [line.split("|") for line in one.wait_log(load.done + 1, "arms.log")]
    # Outside the experiment, and in washouts, there is no arm.
    assert lines[0][1] == "-" and any(arm == "-" for _, arm in lines[1:])
    for arm in done["arms"]:
        addresses = [address for address, name in lines if name == arm["name"]]
        assert 0 < arm["requests"] <= len(addresses) and arm["failed"] == 0
        if done["blocks"]["complete"] == 8:
            # A request that a busy machine ends after its block counts for none: at most one of each client.
            assert len(addresses) - arm["requests"] <= 3 * arm["blocks"]
        assert len(set(addresses)) == (1 if arm["name"] == ARM else 2)
        assert 0 < arm["p50"] <= arm["p99"] and arm["rate"] > 0
    kinds = events(one)
    assert [kind for kind, _ in kinds] == ["experiment", "experiment"], kinds
    assert "an experiment begins, 8 blocks" in kinds[0][1] and f'the method is "{OWN}" again' in kinds[1][1]


@pytest.mark.http1("reasons beside statuses")
def test_a_guard_ends_it_and_the_method_comes_back():
    good, broken = FastServer("good"), FastServer("broken", "location = /page { return 500; }")
    method = "hash $arg_key"
    text = configuration([good, broken], f"{method}; experiment block=1s rounds=1000 errors=5% requests=20; experiment_arm random;")
    one = Balancer(text, workers=2)
    # With this key the method of the upstream never uses the server that is broken; the arm does.
    key = next(key for key in range(100) if get(one.port, f"/?key={key}").text == "good\n")
    with Load(one.port, clients=2, target=f"/page?key={key}") as load:
        begin(one)
        ended = wait_for(lambda: (found := read(one.port, EXPERIMENT))["state"] == "guard" and found, seconds=60, what="the guard")
        assert read(one.port, UPSTREAM)["method"] == method
        failures, done = len(load.failures), load.done
        wait_for(lambda: load.done > done + 50, what="further requests")
        # At most those that were in flight.
        assert len(load.failures) <= failures + load.clients
    assert load.failures and set(load.failures) == {"answer HTTP/1.1 500 Internal Server Error"}
    reason = ended["ended"]["reason"]
    assert reason.startswith('guard in arm "random": ') and "requests failed; 5% may" in reason, reason
    one.wait_error(r'upstream "backend": the experiment has ended, guard in arm "random"')
    assert any("guard in arm" in text for _, text in events(one))
    # It may begin once more.
    begin(one)
    for server in (good, broken):
        server.stop()


# A busy machine may hold up the good server for some tenths of a second.
@pytest.mark.parametrize("patience", [10, 1], ids=["clients that wait", "clients that go away"])
def test_a_server_that_does_not_answer_is_found_out(patience):
    """Its attempts end after their block, by a time-out that is longer than the washout, or with the client."""
    good, silent = FastServer("good"), socket.create_server(("127.0.0.1", 0), backlog=1024)
    method = "hash $arg_key"
    # With this seed the arm is first: it has failed before a busy machine can make the good server late in the other's turn.
    experiment = "experiment block=1s washout=100ms rounds=1000 errors=5% requests=20 seed=3; experiment_arm random;"
    text = configuration([good, types.SimpleNamespace(port=silent.getsockname()[1])], f"{method}; {experiment}")
    text = text.replace("http://backend;", "http://backend; proxy_read_timeout 1500ms;")
    text = text.replace(f":{silent.getsockname()[1]};", f":{silent.getsockname()[1]} max_fails=0;")
    one = Balancer(text, workers=2)
    # With this key the method of the upstream never uses the silent server; the arm does.
    key = next(key for key in range(100) if get(one.port, f"/?key={key}")["X-Upstream"] == good.server)
    ended = threading.Event()

    def ask_on():
        while not ended.is_set():
            ask_with_patience(one, key, patience)

    clients = [threading.Thread(target=ask_on) for _ in range(30)]
    try:
        begin(one)
        for client in clients:
            client.start()
        found = wait_for(lambda: (found := read(one.port, EXPERIMENT))["state"] == "guard" and found, seconds=60, what="the guard")
    finally:
        ended.set()
        for client in clients:
            client.join()
    reason = found["ended"]["reason"]
    assert reason.startswith('guard in arm "random": ') and "requests failed; 5% may" in reason, reason
    silent.close()
    good.stop()


def ask_with_patience(one, key, patience):
    try:
        get(one.port, f"/?key={key}", timeout=patience)
    except OSError:
        pass


def test_a_stop_goes_back_and_conflicts_are_refused(servers):
    one = Balancer(configuration(servers), workers=2)
    assert code(ask(one.port, "GET", EXPERIMENT)) == (404, "ExperimentNotFound")
    assert code(ask(one.port, "DELETE", EXPERIMENT)) == (404, "ExperimentNotRunning")
    shown = begin(one, {"arms": [ARM, "least_conn ;"], "block": "500ms", "rounds": 1000, "errors": "10%", "p99": "2s",
                        "p99_ratio": 3, "requests": 50})
    assert [arm["name"] for arm in shown["arms"]] == [OWN, ARM, "least_conn"]
    expected = {"block": "500ms", "washout": "83ms", "errors": "10%", "p99": "2s", "p99_ratio": 3, "requests": 50}
    assert shown["settings"] | expected == shown["settings"] and shown["settings"]["seed"] >= 0
    wait_arm(one, "least_conn")
    assert code(ask(one.port, "PATCH", UPSTREAM, {"method": "random"})) == (409, "ExperimentRunning")
    assert code(ask(one.port, "POST", EXPERIMENT, {"arms": ["random"]})) == (409, "ExperimentRunning")
    # Servers may be changed meanwhile.
    path = "/api/9/http/upstreams/backend/servers"
    assert ask(one.port, "POST", path, {"server": servers[2].server})[0] == 201
    listed = read(one.port, "/look/balanza/experiments")
    assert [(it["protocol"], it["upstream"], it["state"]) for it in listed] == [("http", "backend", "running")]
    assert code(ask(one.port, "DELETE", "/look/balanza/http/upstreams/backend/experiment")) == (405, "MethodDisabled")
    assert {get(one.port, "/").status for _ in range(10)} == {200}
    status, stopped = ask(one.port, "DELETE", EXPERIMENT)
    assert (status, stopped["state"]) == (200, "stopped") and "now" not in stopped
    assert read(one.port, UPSTREAM)["method"] == OWN
    assert ask(one.port, "PATCH", UPSTREAM, {"method": "random"})[0] == 200
    # Then the chosen method is what the arms are compared with, and what comes back.
    assert begin(one, {"arms": ["least_conn"]})["arms"][0]["name"] == "random"
    ask(one.port, "DELETE", EXPERIMENT)
    assert read(one.port, UPSTREAM)["method"] == "random"


def test_what_is_wrong_is_said(servers):
    one = Balancer(configuration(servers), workers=1)

    def refused(value, path=EXPERIMENT):
        status, answered = ask(one.port, "POST", path, value)
        assert status == 400 and answered["error"]["code"] == "UpstreamConfFormatError", answered
        return answered["error"]["text"]

    assert 'missing "arms"' in refused({}) and 'missing "arms"' in refused(b"")
    assert "did you mean" in refused({"arms": ["lest_conn"]})
    assert "is an arm already" in refused({"arms": [OWN]}) and "is an arm already" in refused({"arms": ["random"] * 2})
    assert "more than 8 arms" in refused({"arms": [f"hash $arg_{nth}" for nth in range(8)]})
    assert "max_conns" in refused({"arms": ["random"], "full": "90%"})
    assert "longer than half" in refused({"arms": ["random"], "block": "10s", "washout": "6s"})
    for wrong in ({"block": "99ms"}, {"block": 60}, {"rounds": 0}, {"rounds": "3"}, {"errors": "5"}, {"errors": 5}, {"seed": -1},
                  {"p99_ratio": 0.5}, {"x": 1}, {"arms": "random"}, {"arms": [3]}, {"requests": None}):
        refused({"arms": ["random"]} | wrong)
    fixed = "/api/balanza/http/upstreams/fixed/experiment"
    assert code(ask(one.port, "POST", fixed, {"arms": ["random"]})) == (400, "UpstreamStatic")
    assert code(ask(one.port, "POST", EXPERIMENT, b"{")) == (415, "JsonError")
    assert is_own(one)


def test_reloads(servers):
    text = configuration(servers, LONG.replace("10m", "500ms"))
    one = Balancer(text, workers=2)
    begin(one)
    wait_arm(one, ARM)
    # The same configuration, and one that changes something else: it goes on.
    reload(one)
    reload(one, text.replace("location /metrics", "location /other"))
    assert state(one) == "running"
    wait_arm(one, OWN)
    wait_arm(one, ARM)
    before = read(one.port, EXPERIMENT)["blocks"]["complete"]
    wait_for(lambda: read(one.port, EXPERIMENT)["blocks"]["complete"] > before, what="further blocks")
    # Another experiment in the configuration ends it, and so does another method.
    reload(one, text.replace("seed=1", "seed=2"))
    assert "another experiment" in wait_state(one, "disturbed")["ended"]["reason"]
    assert is_own(one)
    begin(one)
    wait_arm(one, ARM)
    reload(one, text.replace("experiment block", "least_conn; experiment block"))
    assert "another method" in wait_state(one, "disturbed")["ended"]["reason"]
    assert read(one.port, UPSTREAM)["method"] == "least_conn"
    begin(one)
    reload(one, text.replace("backend", "other"))
    assert read(one.port, "/api/balanza/experiments")[0]["state"] == "ready"


def test_a_worker_process_that_dies_ends_it(servers):
    one = Balancer(configuration(servers, LONG.replace("10m", "500ms start=on")), workers=2)
    wait_arm(one, ARM)
    replace_worker(one)
    assert read(one.port, UPSTREAM)["method"] == OWN
    one.wait_error(r'\[warn\].*the experiment of upstream "backend" has ended with its worker process')
    # `start=on` is for the start of the program, and for a configuration that is new. It is looked at once a second.
    reload(one)
    time.sleep(1.2)
    assert state(one) == "ready" and is_own(one)
    begin(one)


def test_it_begins_with_the_configuration(servers):
    text = configuration(servers, LONG.replace("seed=1", "seed=1 start=on"))
    one = Balancer(text, workers=1)
    wait_state(one, "running")
    assert ask(one.port, "DELETE", EXPERIMENT)[0] == 200
    # What was stopped does not begin again with the same configuration.
    reload(one)
    reload(one, text.replace("location /metrics", "location /other"))
    assert state(one) == "stopped" and is_own(one)
    reload(one, text.replace("seed=1", "seed=3"))
    assert wait_state(one, "running")["settings"]["seed"] == 3


def test_it_ends_when_no_server_is_up(servers):
    one = Balancer(configuration(servers, LONG), workers=1)
    begin(one)
    for server in servers[:2]:
        server.stop()

    def ended():
        get(one.port, "/")
        return state(one) == "disturbed"

    wait_for(ended, what="the end")
    assert read(one.port, EXPERIMENT)["ended"]["reason"] == "no server is up"
    assert is_own(one)


def test_metrics_name_the_arm_that_runs(servers):
    one = Balancer(configuration(servers, LONG), workers=1)
    assert not any("experiment" in name for name, _ in samples(get(one.port, "/metrics").text))
    shown = begin(one)
    values = samples(get(one.port, "/metrics").text)
    arms = {name: values[("balanza_upstream_experiment_arm", f'arm="{name}",upstream="backend"')] for name in (OWN, ARM)}
    assert arms == {name: float(name == shown["now"]["arm"]) for name in (OWN, ARM)}
    assert values[("balanza_upstream_experiment_block", 'upstream="backend"')] == 0


def test_a_full_upstream_ends_it():
    gate = threading.Event()

    def slow(_request, _connection):
        gate.wait(60)
        return answer("ok")

    origins = [Origin(slow), Origin(slow)]
    text = configuration(origins, "experiment block=10m full=50%; experiment_arm least_conn;")
    for origin in origins:
        text = text.replace(f":{origin.port};", f":{origin.port} max_conns=2;", 1)
    # Its slots cannot be used while others are up.
    text = text.replace("upstream backend {", f"upstream backend {{ server 127.0.0.1:{free_port()} backup max_conns=40;")
    one = Balancer(text, workers=1)
    begin(one)
    clients = [Client(one.port) for _ in range(3)]
    for client in clients:
        client.request("GET", "/")
    reason = wait_for(lambda: (found := read(one.port, EXPERIMENT))["state"] == "guard" and found, seconds=60, what="the guard")
    assert "full on average; the limit is 50%" in reason["ended"]["reason"]
    gate.set()
    for client in clients:
        assert client.response().status == 200
        client.close()
    for origin in origins:
        origin.stop()


def test_sessions_of_a_stream():
    started = [TcpServer("a"), TcpServer("b")]
    port = free_port()
    one = Balancer(text="worker_processes 2; events { } http { access_log off; server { listen 127.0.0.1:PORT; location /api { api write=on; } } }"
                   f" stream {{ upstream shells {{ zone shells 64k; server {started[0].server}; server {started[1].server}; }}"
                   f" server {{ listen 127.0.0.1:{port}; proxy_pass shells; }} }}")
    path = "/api/balanza/stream/upstreams/shells/experiment"
    begin(one, {"arms": ["hash $remote_addr"], "block": "500ms", "washout": "0", "rounds": 1000}, path)

    def names():
        found = set()
        for _ in range(6):
            with Session(port) as session:
                found.add(session.line())
        return found

    for count in (1, 2, 1):
        wait_for(lambda: len(names()) == count, seconds=60, what=f"{count} servers")
    # A block that a busy machine ends late does not count, so further sessions come.
    wait_for(lambda: names() and all(arm["requests"] for arm in read(one.port, path)["arms"]), seconds=60, what="both arms")
    assert ask(one.port, "DELETE", path)[0] == 200
    for server in started:
        server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_the_program_ends_while_it_runs(servers, number):
    one = Balancer(configuration(servers, LONG), workers=2)
    begin(one)
    os.kill(one.pid, number)
    assert one.process.wait(20) == 0
