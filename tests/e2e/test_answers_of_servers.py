"""What becomes of a server's response: its cookies, ranges of it, fields that it sends twice."""

import subprocess

import pytest

from support.client import Client, get
from support.expect import balanza_only, here
from support.origin import answer, ending, proxy

BODY = bytes(range(256)) * 400


def cookies(balancer, origin, rules, *sent, target="/"):
    server = origin(answer("x", headers=[("Set-Cookie", cookie) for cookie in sent]))
    return get(balancer(proxy([server], location=rules)).port, target).all("Set-Cookie")


@pytest.mark.parametrize("rules, sent, expected", [
    ("proxy_cookie_domain a.test b.test;", "n=v; Domain=a.test; Path=/", "n=v; Domain=b.test; Path=/"),
    ("proxy_cookie_domain .a.test .b.test;", "n=v; domain=A.TEST", "n=v; domain=b.test"),
    ("proxy_cookie_domain a.test b.test;", "n=v; Domain=.a.test", "n=v; Domain=.b.test"),
    ("proxy_cookie_domain a.test b.test;", "n=v;  Domain = x.a.test;Secure", "n=v;  Domain = x.a.test;Secure"),
    ("proxy_cookie_domain x y; proxy_cookie_domain a.test b.test;", "n=v; domain=a.test", "n=v; domain=b.test"),
    ("proxy_cookie_domain ~^(.*)\\.a\\.test$ $1.b.test;", "n=v; domain=Www.A.test; x", "n=v; domain=Www.b.test; x"),
    ("proxy_cookie_domain $arg_from $arg_to;", "n=v; domain=one.test", "n=v; domain=two.test"),
    ("proxy_cookie_domain off;", "n=v; domain=a.test", "n=v; domain=a.test"),
    ("proxy_cookie_path /one/ /;", "n=v; Path=/one/two", "n=v; Path=/two"),
    ("proxy_cookie_path /one/ /;", "n=v; Path=/One/two", "n=v; Path=/One/two"),
    ("proxy_cookie_path ~*^/one/(.*)$ /$1/x;", "n=v; path=/ONE/two", "n=v; path=/two/x"),
    ("proxy_cookie_path ~^/one/ /;", "n=v; path=/ONE/two", "n=v; path=/ONE/two"),
    ("proxy_cookie_path / \"/; HttpOnly\";", "n=v; path=/a", "n=v; path=/; HttpOnlya"),
    ("proxy_cookie_path / /x/; proxy_cookie_domain a b;", "n=v;path=/;domain=a;  Max-Age = 1", "n=v; path=/x/; domain=b; Max-Age=1"),
    ("proxy_cookie_path / /x/;", "n; path=/", "n; path=/"),
    ("proxy_cookie_flags n secure httponly samesite=strict;", "n=v", "n=v; Secure; HttpOnly; SameSite=Strict"),
    ("proxy_cookie_flags N secure;", "n=v; path=/", "n=v; path=/; Secure"),
    ("proxy_cookie_flags other secure;", "n=v", "n=v"),
    ("proxy_cookie_flags ~^N nosecure nohttponly nosamesite;", "n=v; secure; SameSite=Lax; HTTPONLY; a", "n=v; a"),
    ("proxy_cookie_flags n samesite=lax;", "n=v; samesite=none; secure", "n=v; SameSite=Lax; secure"),
    ("proxy_cookie_flags n samesite=lax;", "n=v; samesite=LAX; a", "n=v; samesite=LAX; a"),
    ("proxy_cookie_flags n secure; proxy_cookie_flags ~. httponly;", "n=v", "n=v; Secure"),
    ("proxy_cookie_flags n $arg_flag $arg_none;", "n=v", "n=v; HttpOnly"),
    ("proxy_cookie_flags n nonsense;", "n=v; Domain=a", "n=v; Domain=a"),
])
def test_a_cookie_is_changed(balancer, origin, rules, sent, expected):
    assert cookies(balancer, origin, rules, sent, target="/?from=one.test&to=two.test&flag=httponly") == [expected]


def test_every_cookie_is_changed_and_levels_inherit(balancer, origin):
    server = origin(answer("x", headers=[("Set-Cookie", "a=1; path=/"), ("X", "1"), ("Set-Cookie", "b=2; path=/y")]))
    one = balancer(proxy([server], http="proxy_cookie_path / /app/;", server="location /off { proxy_pass http://group; "
                         "proxy_cookie_path off; }"))
    assert get(one.port).all("Set-Cookie") == ["a=1; path=/app/", "b=2; path=/app/y"]
    assert get(one.port, "/off").all("Set-Cookie") == ["a=1; path=/", "b=2; path=/y"]


@balanza_only("NGINX would begin another field")
def test_a_cookie_with_a_line_end_is_left_out(balancer, origin):
    rules = "proxy_cookie_path / $uri;"
    assert cookies(balancer, origin, rules, "a=1; path=/", "b=2", target="/x%0d%0aInjected:1") == ["b=2"]


def part(one, field, method="GET", **options):
    return get(one.port, "/", method, headers=[("Range", field)], **options)


@pytest.mark.parametrize("way", ["length", "filtered", "off"])
def test_ranges_of_a_server_that_knows_none(balancer, origin, way):
    fields = [("ETag", '"1"'), ("Accept-Ranges", "none"), ("Content-Type", "text/x")]
    server = origin(answer(BODY, headers=fields))
    settings = {"length": "", "off": "max_ranges 0;", "filtered": "charset a; source_charset b; charset_types *;"}[way]
    http = f"charset_map b a {{ 41 42; }} {settings}" if way == "filtered" else settings
    one = balancer(proxy([server], http=http, location="proxy_force_ranges on;"))
    response = part(one, "bytes=1000-50999")
    if way == "off":
        assert response.status == 200 and response.body == BODY and response["Accept-Ranges"] is None
        return
    # What the map does not name and ASCII does not have becomes a "?".
    table = bytes(0x42 if byte == 0x41 else byte if byte < 0x80 else 0x3f for byte in range(256))
    expected = BODY.translate(table) if way == "filtered" else BODY
    assert (response.status, response["Content-Range"]) == (206, f"bytes 1000-50999/{len(BODY)}")
    assert response.body == expected[1000:51000] and response["Accept-Ranges"] is None
    assert part(one, "bytes=-5").body == expected[-5:]
    # The whole, and the next request, are as they were.
    with Client(one.port) as client:
        assert client.get(headers=[("Range", "bytes=3-3")]).body == expected[3:4]
        whole = client.get()
        assert (whole.status, whole.body, whole["Accept-Ranges"]) == (200, expected, "bytes")
    # One range is made, not several.
    assert part(one, "bytes=0-0,2-2").status == 200
    head = part(one, "bytes=0-9", "HEAD")
    assert (head.status, head["Content-Length"], head.body) == (206, "10", b"")


def test_no_such_range_of_a_server(balancer, origin):
    server = origin(answer(BODY))
    one = balancer(proxy([server], location="proxy_force_ranges on;"))
    response = part(one, f"bytes={len(BODY)}-")
    assert (response.status, response["Content-Range"]) == (416, f"bytes */{len(BODY)}")
    assert b"416" in response.body


@pytest.mark.parametrize("condition, status", [('"1"', 206), ('"2"', 200), ('W/"1"', 200),
                                               ("Tue, 14 Nov 2023 22:13:20 GMT", 206), ("Tue, 14 Nov 2023 22:13:21 GMT", 200)])
def test_ranges_of_what_has_not_changed(balancer, origin, condition, status):
    server = origin(answer(BODY, headers=[("ETag", '"1"'), ("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")]))
    one = balancer(proxy([server], location="proxy_force_ranges on;"))
    response = get(one.port, headers=[("Range", "bytes=0-9"), ("If-Range", condition)])
    assert response.status == status and response.body == (BODY[:10] if status == 206 else BODY)


def test_ranges_only_of_complete_answers_of_known_length(balancer, origin):
    servers = [origin(answer("error", "404 Not Found")), origin(ending(answer("endless", length=False)))]
    for server, status in zip(servers, (404, 200)):
        response = part(balancer(proxy([server], location="proxy_force_ranges on;")), "bytes=0-1")
        assert response.status == status and response["Content-Range"] is None and len(response.body) > 2


FIELDS = ["Content-Type", "Expires", "Last-Modified", "ETag", "Location", "Refresh"]


@pytest.mark.parametrize("name", FIELDS)
def test_of_some_fields_the_client_gets_the_first(balancer, origin, name):
    """NGINX does so since 1.23."""
    server = origin(answer("x", headers=[(name, "one"), ("X-Other", "1"), (name, "two"), ("X-Other", "2")]))
    one = balancer(proxy([server], location="proxy_redirect off;"))
    response = get(one.port)
    old = {"Content-Type": ["two"]}.get(name, ["one", "two"])
    assert response.all(name) == here(["one"], old) and response.all("X-Other") == ["1", "2"]
    if here(True, False):
        assert f'upstream sent duplicate header line: "{name}: two", previous value: "{name}: one", ignored' in one.error_log()


def test_a_challenge_is_passed_once(balancer, origin):
    challenges = [("WWW-Authenticate", "Basic realm=a"), ("WWW-Authenticate", "Digest realm=b")]
    server = origin(answer("x", "401 Unauthorized", headers=challenges))
    one = balancer(proxy([server], http="proxy_intercept_errors on;", server="error_page 401 /401.html; "
                         "location /401.html { internal; return 401 sorry; }"))
    response = get(one.port)
    assert (response.status, response.body) == (401, b"sorry")
    assert response.all("WWW-Authenticate") == here([value for _, value in challenges], ["Basic realm=a"])


@balanza_only("has no such setting")
def test_sizes_of_the_buffers_of_a_connection(balancer, origin):
    """The system doubles what it is told, for its own accounts."""
    seen = []

    def handler(request, connection):
        local, peer = connection.sock.getsockname()[1], connection.sock.getpeername()[1]
        seen.append(subprocess.run(["ss", "-Htmn", f"sport = :{peer} and dport = :{local}"], capture_output=True, text=True).stdout)
        return answer("x")

    server = origin(handler)
    one = balancer(proxy([server], location="proxy_socket_rcvbuf 20k; proxy_socket_sndbuf 24k;"))
    assert get(one.port).status == 200
    assert f"rb{2 * 20 * 1024}," in seen[0] and f"tb{2 * 24 * 1024}," in seen[0]
