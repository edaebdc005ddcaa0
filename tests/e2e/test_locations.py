"""Which server and which location answers: server_name, default_server, location, set, map, return, allow, deny."""

import socket

import pytest

from support.balancer import Balancer, started
from support.client import Client, exchange, get
from support.origin import answer, proxy



def shared(http):
    """One balancer for a whole table."""
    one = Balancer(http)
    started.remove(one)
    yield one
    one.stop()
    one.remove()


LOCATIONS = """
server {
    listen 127.0.0.1:PORT;
    location / { return 200 "root"; }
    location = / { return 200 "exact root"; }
    location = /exact { return 200 "exact"; }
    location /prefix { return 200 "prefix"; }
    location /prefix/longer/ { return 200 "longer"; }
    location ^~ /static/ { return 200 "no regex"; }
    location ~ \\.php$ { return 200 "php"; }
    location ~* \\.JPG$ { return 200 "jpg"; }
    location ~ ^/user/(?<name>[a-z]+)/(\\d+)$ { return 200 "user $name $2 $1"; }
    location ~ \\.(png|gif)$ { return 200 "first $1"; }
    location ~ \\.png$ { return 200 "second"; }
    location "/with space" { return 200 "space"; }
    location /outer/ {
        location /outer/inner/ { return 200 "inner"; }
        location ~ \\.php$ { return 200 "nested php"; }
        location = /outer/exact.php { return 200 "nested exact"; }
        return 200 "outer";
    }
    location /%25/ { return 200 "percent"; }
    location /fall/ { error_page 404 = @named; return 404; }
    location @named { return 200 "named $uri"; }
    location ~ ^/~home { return 200 "tilde"; }
    location /dup/ { location ^~ /dup/a/ { return 200 "dup a"; } return 200 "dup"; }
}
"""

MATCHES = [
    ("/", "exact root"), ("/?a=b", "exact root"), ("//", "exact root"), ("/./", "exact root"), ("/x/..", "exact root"),
    ("/other", "root"), ("/exact", "exact"), ("/exact/", "root"), ("/exactly", "root"), ("/%65xact", "exact"),
    ("/prefix", "prefix"), ("/prefixes", "prefix"), ("/prefix/longer", "prefix"), ("/prefix/longer/", "longer"),
    ("/prefix/longer/x", "longer"), ("/prefix//longer///x", "longer"), ("/prefix/a/../longer/x", "longer"),
    ("/prefix/x.php", "php"), ("/static/x.php", "no regex"), ("/static", "root"), ("/a/b.php", "php"),
    ("/a.php/b", "root"), ("/a.PHP", "root"), ("/a.jpg", "jpg"), ("/a.Jpg", "jpg"), ("/a.png", "first png"),
    ("/a.gif", "first gif"), ("/user/ann/42", "user ann 42 ann"), ("/user/Ann/42", "root"),
    ("/with%20space/x", "space"), ("/outer/", "outer"), ("/outer/x", "outer"), ("/outer/inner/x", "inner"),
    ("/outer/a.php", "nested php"), ("/outer/inner/a.php", "nested php"), ("/outer/exact.php", "nested exact"),
    ("/fall/x%20y", "named /fall/x y"), ("/~home", "tilde"), ("/%7Ehome", "tilde"), ("/exact%23fragment", "root"),
    # "^~" of a nested location holds back the regular expressions beside it, not those further out.
    ("/dup/a/x.php", "php"), ("/dup/a/x", "dup a"), ("/dup/b.php", "php"),
]


@pytest.fixture(scope="module")
def locations():
    yield from shared(LOCATIONS)


@pytest.mark.parametrize("target, expected", MATCHES)
def test_location(locations, target, expected):
    assert get(locations.port, target).text == expected


SERVERS = """
map $server_name $shown { '' nameless; default $server_name; }
server { listen 127.0.0.1:PORT; server_name first.test; return 200 "first"; }
server { listen 127.0.0.1:PORT default_server; server_name fallback.test; return 200 "default"; }
server { listen 127.0.0.1:PORT; server_name exact.test www.exact.test; return 200 "exact $server_name $host"; }
server { listen 127.0.0.1:PORT; server_name *.wild.test; return 200 "leading"; }
server { listen 127.0.0.1:PORT; server_name *.deep.wild.test; return 200 "deeper"; }
server { listen 127.0.0.1:PORT; server_name .dot.test; return 200 "dot"; }
server { listen 127.0.0.1:PORT; server_name mail.*; return 200 "trailing"; }
server { listen 127.0.0.1:PORT; server_name ~^(?<sub>[a-z]+)\\.regex\\.test$; return 200 "regex $sub"; }
server { listen 127.0.0.1:PORT; server_name ~^late; return 200 "late"; }
server { listen 127.0.0.1:PORT; server_name ""; return 200 "no host $shown"; }
"""

HOSTS = [
    ("first.test", "first"), ("unknown.test", "default"), ("fallback.test", "default"),
    ("exact.test", "exact exact.test exact.test"), ("www.exact.test", "exact exact.test www.exact.test"),
    ("EXACT.Test:81", "exact exact.test exact.test"), ("exact.test.", "exact exact.test exact.test"),
    ("a.wild.test", "leading"), ("a.b.wild.test", "leading"), ("wild.test", "default"),
    ("x.deep.wild.test", "deeper"), ("dot.test", "dot"), ("a.dot.test", "dot"), ("xdot.test", "default"),
    ("mail.anything", "trailing"), ("mail.a.b", "trailing"), ("mail.dot.test", "dot"), ("mail", "default"),
    ("shop.regex.test", "regex shop"), ("shop2.regex.test", "default"), ("later.on", "late"),
    ("127.0.0.1", "default"), ("[::1]:80", "default"),
]


@pytest.fixture(scope="module")
def servers():
    yield from shared(SERVERS)


@pytest.mark.parametrize("host, expected", HOSTS)
def test_server_name(servers, host, expected):
    assert get(servers.port, host=host).text == expected


def test_server_without_host(servers):
    assert exchange(servers.port, "GET / HTTP/1.0\r\n\r\n").text == "no host nameless"


def test_servers_by_address(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; return 200 one; }"
                   "server { listen 127.0.0.2:PORT; return 200 two; }"
                   "server { listen *:PORT; return 200 any; }")
    answers = []
    for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
        with socket.create_connection((address, one.port), 30) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answers.append(connection.makefile("rb").read().rpartition(b"\r\n")[2])
    assert answers == [b"one", b"two", b"any"]


def test_listen_on_ipv6_and_unix(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; listen [::1]:PORT; listen unix:DIR/front.sock; "
                   'return 200 "$server_addr $remote_addr"; }')
    assert get(one.port).text == "127.0.0.1 127.0.0.1"
    with Client(0, unix=one.dir / "front.sock") as client:
        assert client.get().text.endswith("unix:")
    try:
        connection = socket.create_connection(("::1", one.port), 30)
    except OSError:
        pytest.skip("no IPv6 here")
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert connection.makefile("rb").read().endswith(b"\r\n::1 ::1")


@pytest.mark.parametrize("what, status, fields, body", [
    ("200 hello", 200, {"Content-Type": "text/plain"}, "hello"),
    ('200 "$request_method $arg_x"', 200, {}, "GET 1"),
    ("204", 204, {}, ""),
    ("301 /new", 301, {"Location": "http://example.test:PORT/new"}, None),
    ("302 https://other.test/$arg_x", 302, {"Location": "https://other.test/1"}, None),
    ("303 $scheme://h/$uri", 303, {"Location": "http://h//go"}, None),
    ("307 //h/", 307, {"Location": "http://example.test:PORT//h/"}, None),
    ("308 /p?$args", 308, {"Location": "http://example.test:PORT/p?x=1"}, None),
    ("https://only.url/", 302, {"Location": "https://only.url/"}, None),
    ("404 'not here'", 404, {}, "not here"),
    ("418 teapot", 418, {}, "teapot"),
    ("503", 503, {"Content-Type": "text/html"}, None),
])
def test_return(balancer, what, status, fields, body):
    one = balancer(f"server {{ listen 127.0.0.1:PORT; default_type text/plain; location /go {{ return {what}; }} }}")
    response = get(one.port, "/go?x=1")
    assert response.status == status
    for name, value in fields.items():
        assert response[name] == value.replace("PORT", str(one.port))
    if body is not None:
        assert response.text == body


@pytest.mark.http1("the end of the connection")
def test_return_444_closes(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; return 444; }")
    with Client(one.port) as client:
        assert client.request().rest() == b""
    assert " 444 0 " in one.wait_log()[0]


@pytest.mark.parametrize("options, location", [
    ("", "http://a.test:PORT/dir/?q"), ("port_in_redirect off;", "http://a.test/dir/?q"),
    ("absolute_redirect off;", "/dir/?q"), ("server_name_in_redirect on;", "http://named.test:PORT/dir/?q"),
])
def test_redirect_to_a_directory(balancer, options, location):
    one = balancer(f"server {{ listen 127.0.0.1:PORT; server_name named.test; root html; {options} }}")
    (one.dir / "html/dir").mkdir()
    response = get(one.port, "/dir?q", host="a.test")
    assert (response.status, response["Location"]) == (301, location.replace("PORT", str(one.port)))


def test_redirect_to_a_proxied_prefix(balancer, origin):
    server = origin()
    one = balancer(proxy([server], server="location /app/ { proxy_pass http://group; }").replace(
        "location / {", "location = /none {"))
    response = get(one.port, "/app")
    assert (response.status, response["Location"]) == (301, f"http://example.test:{one.port}/app/")
    assert get(one.port, "/app/").status == 200 and get(one.port, "/apps").status == 404


MAPS = """
map $arg_k $mapped { default other; one 1; "two words" 2; ~^re(?<rest>.*)$ "regex $rest"; ~*^CASE caseless; '' empty;
                     \\default literal; up $arg_v; }
map $host $by_host { hostnames; default none; *.wild.test leading; .dot.test dot; mail.* trailing; exact.test exact; }
map $arg_k$arg_v $both { ab yes; default no; }
server {
    listen 127.0.0.1:PORT;
    set $first "a-$arg_k";
    set $second "$first-b";
    location / { set $third "${second}c"; return 200 "$mapped|$by_host|$both|$first|$third"; }
}
"""


@pytest.mark.parametrize("query, host, expected", [
    ("k=one", "x", "1|none|no|a-one|a-one-bc"), ("k=ONE", "x", "1|none|no|a-ONE|a-ONE-bc"),
    ("k=two%20words", "x", "other|none|no|a-two%20words|a-two%20words-bc"), ("", "x", "empty|none|no|a-|a--bc"),
    ("k=reach", "a.wild.test", "regex ach|leading|no|a-reach|a-reach-bc"),
    ("k=case9", "dot.test", "caseless|dot|no|a-case9|a-case9-bc"),
    ("k=default", "b.dot.test", "literal|dot|no|a-default|a-default-bc"),
    ("k=up&v=val", "mail.org", "val|trailing|no|a-up|a-up-bc"), ("k=a&v=b", "exact.test", "other|exact|yes|a-a|a-a-bc"),
    ("K=one", "x", "1|none|no|a-one|a-one-bc"), ("k=one&k=two", "x", "1|none|no|a-one|a-one-bc"),
])
def test_set_and_map(balancer, query, host, expected):
    assert get(balancer(MAPS).port, f"/?{query}", host=host).text == expected


@pytest.mark.parametrize("source, path, status", [
    ("127.0.0.1", "/", 403), ("127.0.0.9", "/", 200), ("127.0.1.1", "/", 403), ("127.0.2.77", "/", 200),
    ("127.0.0.1", "/open", 200), ("127.0.0.9", "/none", 403), ("127.0.1.1", "/inherit", 403),
])
def test_allow_and_deny(balancer, source, path, status):
    one = balancer("server { listen 127.0.0.1:PORT; root html; allow 127.0.0.9; allow 127.0.2.0/24; allow ::1;"
                   "deny all; location = /open { allow all; } location = /none { deny all; }"
                   "location = /inherit { default_type text/x; } }")
    for name in ("index.html", "open", "none", "inherit"):
        (one.dir / "html" / name).write_text("file")
    assert get(one.port, path, source=source).status == status
    if status == 403:
        one.wait_error("access forbidden by rule")


def test_internal_is_not_reachable(balancer, origin):
    one = balancer(proxy([origin(answer("inside"))], server=(
        "location /secret/ { internal; proxy_pass http://group; }"
        "location /open { error_page 404 /secret/x; return 404; }")))
    assert get(one.port, "/secret/x").status == 404
    response = get(one.port, "/open")
    assert (response.status, response.text) == (404, "inside")
