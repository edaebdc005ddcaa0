"""The description of the API: schemathesis sends requests made of it and compares every answer with it. And the methods that a path names."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from support.balancer import Balancer
from support.client import Client
from support.expect import balanza_only
from support.fast import FastServer
from support.ports import free_port
from test_api import ask, code, read

pytestmark = balanza_only("the API is a part of NGINX Plus")

CONFIGURATION = """
worker_processes 2;
events { worker_connections 512; }
http {
    access_log off;
    keyval_zone zone=targets:1m timeout=1h;
    keyval_zone zone=nets:1m type=ip;
    keyval $remote_addr $target zone=targets;
    keyval $remote_addr $net zone=nets;
    limit_req_zone $binary_remote_addr zone=one:1m rate=1000r/s;
    limit_conn_zone $binary_remote_addr zone=addr:1m;
    upstream backend { zone backend 64k; least_conn; queue 9; server 127.0.0.1:ORIGIN; server 127.0.0.2:1 backup; }
    upstream fixed { server 127.0.0.1:ORIGIN; }
    server {
        listen 127.0.0.1:PORT;
        status_zone shop;
        location / { proxy_pass http://backend; status_zone pages; limit_req zone=one; limit_conn addr 9; }
        location /api { api write=on; client_body_buffer_size 64k; }
        location /look/ { api; }
    }
}
stream {
    keyval_zone zone=doors:1m;
    keyval $remote_addr $door zone=doors;
    limit_conn_zone $binary_remote_addr zone=sessions:1m;
    upstream shells { zone shells 64k; server 127.0.0.1:ORIGIN; }
    server { listen 127.0.0.1:SECOND; status_zone door; limit_conn sessions 10; proxy_pass shells; }
}
"""

# TRACE is refused for every path of a server, as by NGINX, before anything knows that the API is there.
METHODS = """
[phases.coverage]
unexpected-methods = ["PUT", "QUERY", "POST", "PATCH", "DELETE", "OPTIONS"]
"""

# Without these most requests are for objects that do not exist.
NAMES = {
    "/http/upstreams": {"upstream": "backend", "server": 0}, "/stream/upstreams": {"upstream": "shells", "server": 0},
    "/http/server_zones": {"zone": "shop"}, "/http/location_zones": {"zone": "pages"}, "/http/keyvals": {"zone": "targets"},
    "/http/limit_reqs": {"zone": "one"}, "/http/limit_conns": {"zone": "addr"}, "/stream/server_zones": {"zone": "door"},
    "/stream/limit_conns": {"zone": "sessions"}, "/stream/keyvals": {"zone": "doors"}, "/workers": {"worker": 1},
}


@pytest.fixture
def one():
    server = FastServer("a")
    yield Balancer(text=CONFIGURATION.replace("ORIGIN", str(server.port)).replace("SECOND", str(free_port())))
    server.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("location, named", [("api", True), ("api", False), ("look", True)],
                         ids=["objects that exist", "any objects", "read only"])
def test_answers_are_as_described(one, tmp_path, location, named):
    settings = METHODS
    for path, names in NAMES.items() if named else ():
        values = ", ".join(f'"path.{name}" = {json.dumps(value)}' for name, value in names.items())
        settings += f'\n[[operations]]\ninclude-path-regex = "{path}/"\nparameters = {{ {values} }}\n'
    (tmp_path / "schemathesis.toml").write_text(settings)
    # DELETE resets most objects and does not remove them. What is valid by the schema may still be wrong: addresses of
    # servers, for example.
    run = subprocess.run(
        [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", tmp_path / "schemathesis.toml", "run",
         f"http://127.0.0.1:{one.port}/{location}/9/openapi.json", "--generation-deterministic", "--max-examples", "4",
         "--no-shrink", "--continue-on-failure", "--exclude-checks", "ensure_resource_availability,use_after_free,positive_data_acceptance",
         "--phases", "examples,coverage,fuzzing", "--request-timeout", "20", "--warnings", "off", "--no-color"],
        capture_output=True, text=True, timeout=590, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert int(re.search(r"([\d,]+) generated", run.stdout)[1].replace(",", "")) > 500, run.stdout[-3000:]
    assert read(one.port, "/api/9/nginx")["generation"] == 1


def test_the_description_is_linked_and_says_what_is_allowed_here(one):
    with Client(one.port) as client:
        client.request("GET", "/api/")
        response = client.response()
    assert response["link"] == '</api/9/openapi.json>; rel="service-desc"'
    described, read_only = read(one.port, "/api/9/openapi.json"), read(one.port, "/look/9/openapi.json")
    assert (described["servers"], read_only["servers"]) == ([{"url": "/api"}], [{"url": "/look"}])
    methods = lambda document: {method for item in document["paths"].values() for method in item} - {"parameters"}
    assert methods(described) == {"get", "post", "patch", "delete"} and methods(read_only) == {"get"}
    # Every path that needs no name answers.
    for path in described["paths"]:
        if "{" not in path:
            read(one.port, f"/api{path}")


@pytest.mark.parametrize("path, methods, read_only", [
    ("/9/nginx", "GET, HEAD, OPTIONS", "GET, HEAD, OPTIONS"),
    ("/9/http/upstreams/backend/servers", "GET, HEAD, POST, OPTIONS", "GET, HEAD, OPTIONS"),
    ("/9/http/upstreams/backend/servers/0", "GET, HEAD, PATCH, DELETE, OPTIONS", "GET, HEAD, OPTIONS"),
    ("/9/stream/keyvals/doors/", "GET, HEAD, POST, PATCH, DELETE, OPTIONS", "GET, HEAD, OPTIONS"),
])
def test_allow_names_the_methods_of_the_path(one, path, methods, read_only):
    for location, expected in (("/api", methods), ("/look", read_only)):
        with Client(one.port) as client:
            for method, status in (("OPTIONS", 204), ("PUT", 405)):
                client.request(method, location + path)
                response = client.response(method)
                assert (response.status, response["allow"]) == (status, expected)
                assert (response.body == b"") == (method == "OPTIONS")


def test_a_number_of_an_event_is_checked(one):
    assert code(ask(one.port, "GET", "/api/balanza/events?since=soon")) == (400, "EventBadId")
    assert read(one.port, f"/api/balanza/events?since={2**53 - 1}") == []
