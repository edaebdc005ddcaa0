"""Prometheus' format, what Balanza's own API shows, and the commands that read it."""

import math
import re
import shutil
import subprocess

import pytest

from support.balancer import Balancer, binary, wait_for
from support.client import get
from support.expect import balanza_only
from support.fast import FastServer

from test_api import ask, code, read

pytestmark = balanza_only("these are Balanza's own")

CONFIGURATION = """
upstream backend { zone backend 64k; least_conn; server 127.0.0.1:ORIGIN; }
server {
    listen 127.0.0.1:PORT;
    status_zone "shop \\\\ \\"1\\"";
    location / { proxy_pass http://backend; status_zone pages; }
    location /api { api write=on; }
    location /metrics { metrics; }
}
"""
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')


def samples(text):
    """The samples by name and labels, checked for the format's rules."""
    found, kinds, current = {}, {}, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in kinds, f"{current} stands in two places"
            kinds[current] = kind
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        base = re.sub(r"_(bucket|sum|count)$", "", name) if kinds[current] == "histogram" else name
        assert base == current, line
        key = (name, labels or "")
        assert key not in found, f"{line} is there twice"
        found[key] = float(value)
    for name, kind in kinds.items():
        if kind == "histogram":
            series = {}
            for (sample, labels), value in found.items():
                if sample == f"{name}_bucket":
                    rest, _, bound = labels.rpartition("le=")
                    series.setdefault(rest.rstrip(","), []).append((float(bound.strip('"').replace("+Inf", "inf")), value))
            for labels, buckets in series.items():
                assert buckets == sorted(buckets) and [value for _, value in buckets] == sorted(v for _, v in buckets)
                assert buckets[-1] == (math.inf, found[(f"{name}_count", labels)])
    return found


def test_metrics_have_the_format_and_the_names():
    server = FastServer("a")
    try:
        one = Balancer(CONFIGURATION.replace("ORIGIN", str(server.port)), workers=2)
        for _ in range(6):
            get(one.port, "/")
        response = get(one.port, "/metrics")
        assert response["content-type"].startswith("text/plain; version=0.0.4")
        zone = 'server_zone="shop \\\\ \\"1\\""'
        peer = f'server="127.0.0.1:{server.port}",upstream="backend"'

        def settled():
            found = samples(get(one.port, "/metrics").text)
            pages = found.get(("nginxplus_location_zone_responses_codes", 'location_zone="pages",code="200"'))
            answered = found.get(("nginxplus_server_zone_responses", f'{zone},code="2xx"'))
            ended = found["balanza_upstream_response_seconds_count", peer] == pages == 6
            # The other worker may be counting a request at this moment.
            counted = found["nginxplus_server_zone_requests", zone] - 1 == answered
            return ended and counted and found["nginxplus_server_zone_processing", zone] == 1 and found

        found = wait_for(settled, what="the end of the requests")
        assert found["nginxplus_up", ""] == 1
        # All have been answered but the request that asks.
        assert found["nginxplus_server_zone_responses", f'{zone},code="2xx"'] \
            == found["nginxplus_server_zone_requests", zone] - 1 >= 7
        assert found["nginxplus_location_zone_responses_codes", 'location_zone="pages",code="200"'] == 6
        assert found["nginxplus_upstream_server_requests", peer] == 6
        assert found["nginxplus_upstream_server_state", peer] == 1
        assert found["balanza_upstream_response_seconds_count", peer] == 6
        assert 0 < found["balanza_upstream_response_seconds_sum", peer] < 60
        assert get(one.port, "/metrics", "POST").status == 405
    finally:
        server.stop()


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_reads_the_metrics():
    """Every line is read. What promtool advises concerns names, which are those of the exporter."""
    server = FastServer("a")
    try:
        one = Balancer(CONFIGURATION.replace("ORIGIN", str(server.port)), workers=2)
        get(one.port, "/")
        text = get(one.port, "/metrics").text
    finally:
        server.stop()

    def check(text):
        return subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)

    checked = check(text)
    assert checked.returncode in (0, 3) and "error while linting" not in checked.stderr, checked.stderr
    # Of what is Balanza's own it says nothing but that a text of help is missing.
    own = [line for line in checked.stderr.splitlines() if line.startswith("balanza_") and "no help text" not in line]
    assert own == []
    # It finds what is not a metric.
    assert "error while linting" in check(text + 'balanza{x=1} 1\n').stderr


def test_own_numbers_and_events():
    server, other = FastServer("a"), FastServer("b")
    try:
        one = Balancer(CONFIGURATION.replace("ORIGIN", str(server.port)))
        # The thread looks at the servers each second, first when it starts.
        wait_for(lambda: read(one.port, "/api/balanza/events"), what="the first event")
        for _ in range(10):
            get(one.port, "/")

        def settled():
            found = read(one.port, "/api/balanza/http/upstreams/backend")
            return found["times_all"]["count"] == 10 and found

        found = wait_for(settled, what="the end of the requests")
        assert found["algorithm"] == "least_conn" and found["changeable"] is True and found["times_all"]["count"] == 10
        first, = found["servers"]
        assert first["times"]["count"] == first["times_all"]["count"] == 10
        assert 0 < first["times"]["p50"] <= first["times"]["p95"] <= first["times"]["p99_9"]
        assert set(first["rate"]) == {"last", "minute", "quarter_hour"} and first["history"]["step"] == 10
        wait_for(lambda: read(one.port, "/api/balanza/http/location_zones")["pages"]["times_all"]["count"] == 10,
                 what="the end of the requests")
        servers = "/api/9/http/upstreams/backend/servers"
        ask(one.port, "POST", servers, {"server": other.server})

        def events(kind):
            return [event for event in read(one.port, "/api/balanza/events") if event["kind"] == kind]

        added, = wait_for(lambda: events("added"), what="an event")
        assert (added["server"], added["upstream"], added["protocol"]) == (other.server, "backend", "http")
        ask(one.port, "PATCH", f"{servers}/1", {"drain": True})
        state, = wait_for(lambda: events("state"), what="an event")
        assert state["text"] == "was up, is draining"
        drained = read(one.port, "/api/balanza/http/upstreams")["backend"]["servers"][1]["drain"]
        assert (drained["begun_with"], drained["left"]) == (0, 0)
        ask(one.port, "DELETE", f"{servers}/1")
        assert wait_for(lambda: events("removed"), what="an event")[0]["id"] > state["id"]
        one.reload()
        assert wait_for(lambda: events("reload"), what="an event")
        newest = read(one.port, f"/api/balanza/events?since={state['id']}")
        assert [event["kind"] for event in newest if event["kind"] != "state"] == ["removed", "reload"]
        assert read(one.port, "/api/balanza") == ["access", "diff", "events", "experiments", "methods", "http", "stream"]
        assert code(ask(one.port, "GET", "/api/balanza/x")) == (404, "PathNotFound")
        assert code(ask(one.port, "POST", "/api/balanza/events")) == (405, "MethodDisabled")
    finally:
        server.stop()
        other.stop()


def test_commands_ask_the_api():
    server = FastServer("a")
    try:
        one = Balancer(CONFIGURATION.replace("ORIGIN", str(server.port)))
        get(one.port, "/")
        url = f"http://127.0.0.1:{one.port}/api"

        def run(*arguments):
            return subprocess.run([binary(), *arguments, "--url", url], capture_output=True, text=True, timeout=60)

        top = run("top", "--once")
        head, row = top.stdout.splitlines()
        assert head.split()[:5] == ["upstream", "server", "state", "weight", "active"]
        assert row.split()[:4] == ["backend", server.server, "up", "1"]
        assert '"generation": 1' in run("api", "GET", "/9/nginx").stdout
        servers = "/9/http/upstreams/backend/servers"
        assert run("api", "patch", f"{servers}/0", '{"weight":4}').returncode == 0
        assert read(one.port, f"/api{servers}/0")["weight"] == 4
        failed = run("api", "GET", f"{servers}/9")
        assert failed.returncode == 1 and "UpstreamServerNotFound" in failed.stderr
    finally:
        server.stop()
