"""nginx-prometheus-exporter, unmodified, in both of its modes: each of its metrics is there, with the values of the API."""

import contextlib
import re
import shutil
import subprocess

import pytest

from support.balancer import Balancer, wait_for
from support.client import get
from support.expect import balanza_only
from support.fast import FastServer
from support.go import build
from support.ports import free_port

from test_api import counted, read
from test_metrics import samples

pytestmark = [pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed"), pytest.mark.timeout(600)]

PLUS = """
worker_processes 2;
events { worker_connections 512; }
http {
    access_log off;
    resolver 127.0.0.1:9 status_zone=names;
    resolver_timeout 1s;
    limit_req_zone $binary_remote_addr zone=one:1m rate=1000r/s;
    limit_conn_zone $binary_remote_addr zone=addr:1m;
    upstream backend { zone backend 64k; server 127.0.0.1:ORIGIN max_conns=9; server 127.0.0.1:9 down; }
    server {
        listen 127.0.0.1:PORT;
        status_zone shop;
        location / { proxy_pass http://backend; status_zone pages; limit_req zone=one burst=1000 nodelay; limit_conn addr 100; }
        location /named { set $name a.test; proxy_pass http://$name; }
        location /api { api; }
        location /metrics { metrics; }
    }
}
stream {
    limit_conn_zone $binary_remote_addr zone=sessions:1m;
    upstream shells { zone shells 64k; server 127.0.0.1:ORIGIN; }
    server { listen 127.0.0.1:SECOND; status_zone door; limit_conn sessions 10; proxy_pass shells; }
}
"""

# What the exporter has, by what is configured.
EXPECTED = {
    "nginxplus_": ["up", "connections_accepted", "connections_dropped", "connections_active", "connections_idle",
                   "http_requests_total", "http_requests_current", "ssl_handshakes", "ssl_handshakes_failed", "ssl_session_reuses"],
    'nginxplus_server_zone_{server_zone="shop"': ["processing", "requests", "responses", "responses_codes", "discarded", "received", "sent"],
    'nginxplus_location_zone_{location_zone="pages"': ["requests", "responses", "responses_codes", "discarded", "received", "sent"],
    'nginxplus_upstream_{upstream="backend"': ["keepalive", "zombies"],
    'nginxplus_upstream_server_{server="127.0.0.1:ORIGIN",upstream="backend"': [
        "state", "active", "limit", "requests", "responses", "responses_codes", "sent", "received", "fails", "unavail", "header_time",
        "response_time"],
    'nginxplus_stream_server_zone_{server_zone="door"': ["processing", "connections", "sessions", "discarded", "received", "sent"],
    'nginxplus_stream_upstream_{upstream="shells"': ["zombies"],
    'nginxplus_stream_upstream_server_{server="127.0.0.1:ORIGIN",upstream="shells"': [
        "state", "active", "limit", "connections", "connect_time", "first_byte_time", "response_time", "sent", "received", "fails", "unavail"],
    'nginxplus_limit_request_{zone="one"': ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"],
    'nginxplus_limit_connection_{zone="addr"': ["passed", "rejected", "rejected_dry_run"],
    'nginxplus_stream_limit_connection_{zone="sessions"': ["passed", "rejected", "rejected_dry_run"],
    'nginxplus_resolver_{resolver="names"': ["name", "srv", "addr", "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused",
                                             "timedout", "unknown"],
    "nginxplus_worker_": ["connection_accepted", "connection_dropped", "connection_active", "connection_idle", "http_requests_total",
                          "http_requests_current"],
}


@contextlib.contextmanager
def exporter(*arguments):
    """The port of a running exporter."""
    port = free_port()
    command = [build("go-exporter", "github.com/nginx/nginx-prometheus-exporter"), f"--web.listen-address=127.0.0.1:{port}",
               "--nginx.timeout=30s", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers():
        assert process.poll() is None, "the exporter has ended"
        try:
            return get(port, "/").status == 200
        except OSError:
            return False

    try:
        wait_for(answers, seconds=60, what="the exporter")
        yield port
    finally:
        process.kill()
        process.wait()


def metrics_of(port):
    """The samples without comments on them, by name and labels; Go's own metrics are left out."""
    text = get(port, "/metrics", timeout=40).text
    assert "error" not in text.partition("\n")[0], text
    lines = [line for line in text.splitlines() if re.match(r"(# TYPE )?nginx", line)]
    return samples("\n".join(lines) + "\n")


@balanza_only("the API is a part of NGINX Plus")
def test_the_exporter_of_nginx_plus_misses_nothing():
    server = FastServer("a")
    try:
        second = free_port()
        one = Balancer(text=PLUS.replace("ORIGIN", str(server.port)).replace("SECOND", str(second)))
        for _ in range(5):
            assert get(one.port, "/").status == 200
        for _ in range(3):
            assert get(second, "/").status == 200
        # Nothing answers this question; a resolver is listed once it was asked.
        assert get(one.port, "/named").status == 502
        counted(one.port, "/api/9/http/location_zones/pages", 5)
        wait_for(lambda: read(one.port, "/api/9/stream/server_zones/door")["sessions"]["total"] == 3, what="the ends of the sessions")
        with exporter("--nginx.plus", f"--nginx.scrape-uri=http://127.0.0.1:{one.port}/api") as port:
            found = metrics_of(port)
        own = metrics_of(one.port)
    finally:
        server.stop()
    assert found["nginxplus_up", ""] == 1
    missing = []
    for begin, names in EXPECTED.items():
        prefix, _, labels = begin.replace("ORIGIN", str(server.port)).partition("{")
        missing += [prefix + name for name in names
                    if not any(known == prefix + name and labels in of for known, of in found)]
    assert missing == []
    peer = f'server="127.0.0.1:{server.port}",upstream="backend"'
    session = f'server="127.0.0.1:{server.port}",upstream="shells"'
    values = {
        ("nginxplus_location_zone_responses_codes", 'code="200",location_zone="pages"'): 5,
        ("nginxplus_upstream_server_requests", peer): 5,
        ("nginxplus_upstream_server_limit", peer): 9,
        ("nginxplus_upstream_server_state", peer): 1,
        ("nginxplus_upstream_server_state", 'server="127.0.0.1:9",upstream="backend"'): 3,
        ("nginxplus_stream_upstream_server_connections", session): 3,
        ("nginxplus_stream_server_zone_sessions", 'code="2xx",server_zone="door"'): 3,
        ("nginxplus_limit_request_passed", 'zone="one"'): 5,
        ("nginxplus_limit_connection_passed", 'zone="addr"'): 5,
        ("nginxplus_stream_limit_connection_passed", 'zone="sessions"'): 3,
    }
    assert {key: found.get(key) for key in values} == values
    assert {labels.split(",")[0] for name, labels in found if name == "nginxplus_worker_connection_accepted"} == {'id="0"', 'id="1"'}

    # `metrics` has the same names, and no other ones that look like the exporter's.
    def plain(of):
        return {(name, frozenset(re.findall(r'\w+="[^"]*"', labels))) for name, labels in of if name.startswith("nginxplus_")}

    assert {name for name, _ in plain(own)} <= {name for name, _ in plain(found)}
    values = {(name, frozenset(re.findall(r'\w+="[^"]*"', labels))): value for (name, labels), value in own.items()}
    for name in ("nginxplus_upstream_server_requests", "nginxplus_limit_request_passed", "nginxplus_stream_server_zone_sessions"):
        compared = {(name, frozenset(re.findall(r'\w+="[^"]*"', of))): value for (known, of), value in found.items() if known == name}
        assert compared and {key: values.get(key) for key in compared} == compared


def test_the_exporter_reads_stub_status():
    one = Balancer("server { listen 127.0.0.1:PORT; location / { return 204; } location = /status { stub_status; } }")
    for _ in range(4):
        get(one.port, "/")
    with exporter(f"--nginx.scrape-uri=http://127.0.0.1:{one.port}/status") as port:
        found = metrics_of(port)
    names = {"up", "connections_accepted", "connections_active", "connections_handled", "connections_reading", "connections_writing",
             "connections_waiting", "http_requests_total"}
    assert {name for name, _ in found} - {"nginx_exporter_build_info"} == {f"nginx_{name}" for name in names}
    assert found["nginx_up", ""] == 1 and found["nginx_connections_writing", ""] == 1
    assert found["nginx_http_requests_total", ""] >= 5 and found["nginx_connections_accepted", ""] >= 5
