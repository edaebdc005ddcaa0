"""Pairs that the API changes and requests look up."""

import json

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.fast import FastServer
from support.ports import free_port

from test_api import ask, code, replace_worker, read

pytestmark = balanza_only("keyval is a part of NGINX Plus")

KEYVAL = """
keyval $arg_name $target zone=names;
keyval $remote_addr $kind zone=nets;
keyval $uri $part zone=parts;
keyval_zone zone=names:32k timeout=1h;
keyval_zone zone=nets:32k type=ip;
keyval_zone zone=parts:32k type=prefix state=DIR/tmp/parts.json;
server {
    listen 127.0.0.1:PORT;
    location / { return 200 "$target|$kind|$part"; }
    location /api { api write=on; }
}
"""
ZONES = "/api/9/http/keyvals"


def shown(port, target="/"):
    return get(port, target).text


def test_pairs_are_found_as_their_zone_says():
    one = Balancer(KEYVAL, workers=2)
    assert read(one.port, ZONES) == {"names": {}, "nets": {}, "parts": {}}
    assert ask(one.port, "POST", f"{ZONES}/names", {"a": "blue"}) == (201, None)
    assert ask(one.port, "POST", f"{ZONES}/nets/", {"127.0.0.0/8": "local", "10.0.0.0/8": "far"}) == (201, None)
    assert ask(one.port, "POST", f"{ZONES}/parts", {"/x": "x", "/x/y": "y"}) == (201, None)
    for _ in range(4):
        assert shown(one.port, "/x/yz?name=a") == "blue|local|y"
        assert shown(one.port, "/x?name=b") == "|local|x"
    assert read(one.port, f"{ZONES}/names?key=a") == {"a": "blue"}
    assert ask(one.port, "PATCH", f"{ZONES}/names", {"a": "green"}) == (204, None)
    assert shown(one.port, "/?name=a") == "green|local|"
    assert ask(one.port, "PATCH", f"{ZONES}/names", {"a": None}) == (204, None)
    assert ask(one.port, "DELETE", f"{ZONES}/nets") == (204, None)
    assert shown(one.port, "/?name=a") == "||"
    # NGINX's clients send the time of one pair so.
    assert ask(one.port, "POST", f"{ZONES}/names", {"c": {"value": "red", "expire": 1}}) == (201, None)
    wait_for(lambda: read(one.port, f"{ZONES}/names") == {}, what="the end of a pair")


def test_wrong_pairs_are_refused():
    one = Balancer(KEYVAL)
    assert ask(one.port, "POST", f"{ZONES}/names", {"a": "1"})[0] == 201
    assert code(ask(one.port, "POST", f"{ZONES}/names", {"b": "2", "a": "1"})) == (409, "KeyvalKeyExists")
    assert code(ask(one.port, "PATCH", f"{ZONES}/names", {"b": "2"})) == (404, "KeyvalKeyNotFound")
    assert code(ask(one.port, "GET", f"{ZONES}/names?key=b")) == (404, "KeyvalKeyNotFound")
    assert code(ask(one.port, "GET", f"{ZONES}/none")) == (404, "KeyvalNotFound")
    assert code(ask(one.port, "POST", f"{ZONES}/nets", {"10.0.0.0/33": "1"})) == (400, "KeyvalFormatError")
    assert code(ask(one.port, "POST", f"{ZONES}/names", {"b": 2})) == (400, "KeyvalFormatError")
    assert code(ask(one.port, "POST", f"{ZONES}/parts", {"b": {"value": "1", "expire": 5}})) == (400, "KeyvalFormatError")
    assert code(ask(one.port, "POST", f"{ZONES}/names", b"x")) == (415, "JsonError")
    value = "v" * 4000
    statuses = [ask(one.port, "POST", f"{ZONES}/parts", {str(number): value})[0] for number in range(12)]
    assert statuses == [201] * 7 + [507] * 5, "32 KiB hold seven of these"
    assert read(one.port, f"{ZONES}/names") == {"a": "1"}


def test_pairs_outlive_reloads_and_those_with_a_state_the_process():
    one = Balancer(KEYVAL)
    (one.dir / "tmp").chmod(0o777)
    ask(one.port, "POST", f"{ZONES}/names", {"a": "blue"})
    ask(one.port, "POST", f"{ZONES}/parts", {"/": "root"})
    assert json.loads((one.dir / "tmp/parts.json").read_text()) == {"/": "root"}
    one.reload()
    wait_for(lambda: read(one.port, "/api/9/nginx")["generation"] == 2, what="the second configuration")
    assert shown(one.port, "/?name=a") == "blue||root"
    replace_worker(one)
    assert shown(one.port, "/?name=a") == "||root"


def test_sessions_look_pairs_up():
    server, second = FastServer("a"), free_port()
    try:
        text = ("events { } http { access_log off; server { listen 127.0.0.1:PORT; location /api { api write=on; } } }\n"
                "stream { keyval $remote_addr $target zone=targets; keyval_zone zone=targets:32k;"
                f" server {{ listen 127.0.0.1:{second}; proxy_pass $target; }} }}")
        one = Balancer(text=text)
        with Client(second) as client:
            assert client.rest() == b"", "there is no pair"
        assert ask(one.port, "POST", "/api/9/stream/keyvals/targets", {"127.0.0.1": server.server})[0] == 201
        assert get(second, "/").body.strip() == b"a"
    finally:
        server.stop()
