"""Regular expressions that PCRE2 gave up on once counted as "no match", which let requests past a location's rules."""

import pytest

from support.client import Client, exchange, get
from support.expect import balanza_only, here
from support.origin import answer, proxy

BUFFERS = "large_client_header_buffers 4 32k;"
# PCRE2's usual stack of 32 KiB is too small for these from some 1,500 bytes on.
DEEP = {
    "groups": (r"^/(\w+/)*private$", lambda length: "/" + "ab/" * (length // 3) + "private"),
    "alternatives": (r"^/(?:a|b|[^/])*\.php$", lambda length: "/" + "ab" * (length // 2) + ".php"),
}
# Ends in exponentially many ways, none of which matches.
ENDLESS = "^/e(?:x+)+$"
ENDLESS_URI = "/e" + "x" * 64 + "!"
UNDECIDED = r"\[alert\] .*pcre2_match\(\) failed: -47"


@pytest.mark.parametrize("length", [100, 3_000, 30_000])
@pytest.mark.parametrize("kind", DEEP)
def test_long_path_does_not_pass_an_access_rule(balancer, kind, length):
    pattern, path = DEEP[kind]
    one = balancer(f'server {{ listen 127.0.0.1:PORT; {BUFFERS} location ~ "{pattern}" {{ return 403; }}'
                   "location / { return 200 open; } }")
    assert get(one.port, path(length)).status == 403
    assert get(one.port, path(length)[:-1] + "/e").status in (200, 500)
    assert get(one.port, "/other").status == 200


@pytest.mark.parametrize("place", ["location", "server_name", "map", "proxy_redirect"])
def test_long_subjects_are_matched_everywhere(balancer, origin, place):
    long = "/a" * 1600 + "/private"
    pattern = r"(?:/\w+)*/private$"
    server = origin(lambda *_: answer(headers=[("Location", f"http://old{long}")], status="302 Found"))
    text = {
        "location": f'location ~ "^{pattern}" {{ return 200 found; }}',
        "server_name": "return 200 no; } server { listen 127.0.0.1:PORT; large_client_header_buffers 4 32k;"
                       r' server_name "~^(\w+\.)*private$"; return 200 found;',
        "map": "location / { return 200 $found; }",
        "proxy_redirect": f'location / {{ proxy_redirect "~^http://old{pattern}" http://new/;'
                          f"proxy_pass http://{server.server}; }}",
    }[place]
    one = balancer(f'map $uri $found {{ "~^{pattern}" found; default no; }}'
                   f"server {{ listen 127.0.0.1:PORT; {BUFFERS} {text} }}")
    host = "ab." * 1500 + "private" if place == "server_name" else "a"
    response = get(one.port, long, host=host)
    if place == "proxy_redirect":
        assert response["Location"] == "http://new/"
    else:
        assert response.text == "found"


def test_undecided_location_is_an_error(balancer):
    one = balancer(f'server {{ listen 127.0.0.1:PORT; location ~ "{ENDLESS}" {{ return 403; }}'
                   "location / { return 200 open; } }")
    assert get(one.port, ENDLESS_URI).status == 500
    one.wait_error(UNDECIDED + here(r" \(match limit exceeded\)", "") + ' on "/exx.*! *" using')
    assert get(one.port, "/exx").status == 403
    assert get(one.port, "/other").status == 200


def test_undecided_server_name_is_an_error(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; return 200 open; }"
                   'server { listen 127.0.0.1:PORT; server_name "~^(?:x+)+$"; return 403; }')
    response = get(one.port, host="x" * 64 + "-")
    # NGINX closes the connection.
    assert here(response and response.status, response) == here(500, None)
    one.wait_error(UNDECIDED)
    assert get(one.port, host="xxx").status == 403
    assert get(one.port, host="other").status == 200


@balanza_only("takes a map's default value")
@pytest.mark.parametrize("use", ["return", "set", "add_header", "add_header to an error", "root", "proxy_pass",
                                 "proxy_set_header", "hash", "error_page", "limit_rate", "access_log"])
def test_undecided_map_is_an_error_wherever_it_is_used(balancer, origin, use):
    """NGINX goes on with the default value, which may be the one that opens what the map closes."""
    server = origin()
    location = {
        "return": "return 200 $m;",
        "set": "set $a $m; return 200 $a;",
        "add_header": "add_header X $m; return 200;",
        "add_header to an error": "add_header X $m always; return 404;",
        "root": "root DIR/$m;",
        "proxy_pass": "proxy_pass http://$m;",
        "proxy_set_header": "proxy_set_header X $m; proxy_pass http://group;",
        "hash": "proxy_pass http://hashed;",
        "error_page": "error_page 404 /$m; return 404;",
        "limit_rate": "limit_rate $m; return 200;",
        "access_log": "access_log logs/m.log m if=$m; return 200;",
    }[use]
    one = balancer(proxy([server], server=f"location /e {{ {location} }}").replace(
        "server {", f'map $uri $m {{ "~{ENDLESS}" 1; default group; }} log_format m "<$m>$status";'
        f"upstream hashed {{ hash $m; server {server.server}; }} server {{", 1), start=False)
    one.start()
    status = get(one.port, ENDLESS_URI).status
    one.wait_error(UNDECIDED)
    if use == "access_log":
        # The answer has gone; the line is not lost.
        assert status == 200 and one.wait_log(1, "m.log") == ["<->200"]
    else:
        assert status == 500
    assert server.count == 0
    with Client(one.port) as client:
        assert client.get("/").status == 200


@balanza_only("passes the server's Location on")
def test_undecided_redirect_is_an_error(balancer, origin):
    server = origin(lambda *_: answer(headers=[("Location", ENDLESS_URI)], status="302 Found"))
    one = balancer(proxy([server], location=f'proxy_redirect "~{ENDLESS}" /;'))
    assert get(one.port).status == 500
    one.wait_error(UNDECIDED)


def test_invalid_utf8_is_an_error_for_a_utf8_pattern(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; location ~ (*UTF8)/admin { return 403; }"
                   "location / { return 200 open; } }")

    def status(path):
        return exchange(one.port, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()).status

    assert status("/%c3%a9/admin") == 403
    assert status("/%ff/admin") == 500
    one.wait_error(r"\[alert\] .*pcre2_match\(\) failed: -\d+")


@balanza_only("does not warn")
def test_nested_repeats_before_an_access_rule_are_warned_of(balancer):
    one = balancer(r"""server { listen 127.0.0.1:PORT;
        location ~ ^/a(\w+/)*private$ { return 403; }
        location ~ ^/b(\w+/)*private$ { deny all; }
        location ~ ^/c(\w+/)*private$ { internal; }
        location ~ ^/d(\w+/)*private$ { location ~ x$ { allow 127.0.0.1; deny all; } }
        location ~ ^/e(\w+/)*public$ { return 200; }
        location ~ ^/f\w+/private$ { deny all; } }""", start=False)
    tested = one.test_config()
    assert tested.returncode == 0
    warned = [line.split('"')[1][:3] for line in tested.stderr.splitlines() if "repeats without limit" in line]
    assert warned == ["^/a", "^/b", "^/c", "^/d"], tested.stderr
