"""`balanza explain`: a request is found in the logs by its id, and its way is told."""

import gzip
import json
import subprocess
import threading
import time

import pytest

from support.balancer import Balancer, binary, wait_for
from support.client import get
from support.expect import balanza_only
from support.origin import answer
from support.ports import free_port

pytestmark = balanza_only("a command of Balanza's own")

ID = "0123456789abcdef0123456789abcdef"


def explain(one, *arguments, url=None):
    words = [binary(), "explain", "-p", one.dir, "-c", one.config, *arguments]
    if url:
        words += ["--url", url]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def configuration(log, upstream="", location="proxy_pass http://app;", more=""):
    return (f"{log}\nupstream app {{ zone app 64k; {upstream} }}\n"
            f"server {{ listen 127.0.0.1:PORT; location / {{ {location} }} location /api {{ api; }} {more} }}")


@pytest.fixture(scope="module")
def advised():
    """The directives that the command itself names, for a configuration without the id of a request."""
    one = Balancer(configuration("", "server 127.0.0.1:1;"))
    done = explain(one, ID)
    assert done.returncode == 1 and "no access log of" in done.stderr and "has $request_id" in done.stderr
    return done.stderr[done.stderr.index("log_format"):]


@pytest.mark.http1("the protocol in a log")
def test_a_request_that_went_on_to_another_server(advised, origin):
    good, dead = origin(answer("fine")), free_port()
    one = Balancer(configuration(advised, f"server 127.0.0.1:{dead}; server {good.server};"), workers=1)
    url = f"http://127.0.0.1:{one.port}/api"
    for _ in range(2):
        assert get(one.port, "/shop?x=1").body == b"fine"
    lines = one.wait_log(2, "explain.log")
    number = next(line.split()[1] for line in lines if f"127.0.0.1:{dead}, " in line)
    done = explain(one, number, url=url)
    assert done.returncode == 0, done.stderr
    for part in (r"GET /shop?x=1 HTTP/1.1", f"127.0.0.1:{dead} could not be reached or gave no answer (502), and the request "
                 f"went on to {good.server}.", "round_robin turn", "connect() failed (111: Connection refused)"):
        assert part in done.stdout, done.stdout
    told = json.loads(explain(one, number, "--json", url=url).stdout)
    assert told["status"] == 200
    assert [(it["server"], it["status"]) for it in told["attempts"]] == [(f"127.0.0.1:{dead}", 502), (good.server, 200)]
    assert told["attempts"][1]["state_now"] == "up" and told["attempts"][1]["reason"].startswith("round_robin")
    assert "connect() failed" in told["error_log"][0] and told["line"] in one.access_log("explain.log")
    # The explanation holds without the API.
    alone = explain(one, number, url="http://127.0.0.1:1/api")
    assert alone.returncode == 0 and "the API cannot be reached" in alone.stdout and "went on to" in alone.stdout


def test_how_likely_a_random_choice_was(advised, origin):
    good, dead = origin(answer("fine")), free_port()
    log = advised.replace('"$upstream_pick_reason"', '"$upstream_pick_reason" "$upstream_choice_probability"')
    servers = f"random; server 127.0.0.1:{dead} weight=3; server {good.server};"
    one = Balancer(configuration(log, servers), workers=1)
    for number in range(1, 21):
        assert get(one.port, "/").body == b"fine"
        line = one.wait_log(number, "explain.log")[-1]
        if f"127.0.0.1:{dead}, " in line:
            break
    told = explain(one, line.split()[1])
    # Three of four draws find the server that is down. After it draws find the other, unless 21 in a row do not.
    shown = [row.split() for row in told.stdout.splitlines() if row.startswith("  127.0.0.1:")]
    attempts = json.loads(explain(one, line.split()[1], "--json").stdout)["attempts"]
    first, second = [attempt["probability"] for attempt in attempts]
    assert "75%" in shown[0] and first == pytest.approx(0.75, abs=1e-3), told.stdout
    assert second in (pytest.approx(1 - 0.75**21, abs=1e-3), pytest.approx(0.75**21, abs=1e-3)), told.stdout
    assert ("99.8%" if second > 0.5 else "0.238%") in shown[1], told.stdout


def test_what_took_the_time(advised, origin):
    gate = threading.Event()
    slow = origin(lambda _request, _connection: gate.wait(30) and answer("late"))
    one = Balancer(configuration(advised, f"server {slow.server};"))
    asking = threading.Thread(target=get, args=(one.port,))
    asking.start()
    wait_for(lambda: slow.count == 1, what="the request")
    # Longer than anything else on its way, also on a busy machine.
    time.sleep(3)
    gate.set()
    asking.join()
    number = one.wait_log(1, "explain.log")[0].split()[1]
    assert f"went by waiting for the answer of {slow.server}." in explain(one, number).stdout


def test_requests_without_a_server(advised):
    one = Balancer(configuration(advised, "server 127.0.0.1:1 down;", more="location /own { return 404; }"))
    assert get(one.port, "/own").status == 404 and get(one.port, "/").status == 502
    numbers = [line.split()[1] for line in one.wait_log(2, "explain.log")]
    assert "No server was asked: Balanza answered by itself" in explain(one, numbers[0]).stdout
    assert 'No server of upstream "app" could be chosen' in explain(one, numbers[1]).stdout


def test_ids_of_clients_and_other_logs(origin):
    one = Balancer(configuration("log_format own escape=json '{\"id\":\"$http_x_request_id\",\"uri\":\"$request_uri\",\"s\":\"$status\","
                                 "\"up\":\"$upstream_addr\"}'; access_log logs/own.log own;", f"server {origin().server};"))
    for name in ("one", 'a"b', "one\\"):
        get(one.port, f"/{len(name)}", headers=[("X-Request-ID", name)])
    lines = one.wait_log(3, "own.log")
    found = json.loads(explain(one, "one", "--json").stdout)
    assert found["line"] == lines[0] and found["status"] == 200 and len(found["attempts"]) == 1
    # A log that was rotated away and compressed.
    old = one.dir / "logs/own.log.1.gz"
    old.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    assert json.loads(explain(one, "one", old, "--json").stdout)["log"] == str(old)
    missing = explain(one, "two")
    assert missing.returncode == 1 and "no request has the id two in" in missing.stderr
    gone = explain(one, "two", one.dir / "logs/none.log")
    assert gone.returncode == 1 and "none.log: No such file" in gone.stderr


@pytest.mark.http1("a target that HTTP/2 refuses")
def test_what_a_client_sends_is_no_command_for_the_terminal(advised, origin):
    one = Balancer(configuration(advised.replace("'$msec", "escape=none '$msec").replace("$remote_addr", "$http_x"), f"server {origin().server};"))
    get(one.port, "/", headers=[("X", "\x1b[31mred")])
    number = one.wait_log(1, "explain.log")[0].split()[1]
    done = explain(one, number)
    assert done.returncode == 0 and "\x1b" not in done.stdout
