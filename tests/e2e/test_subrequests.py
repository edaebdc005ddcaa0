"""Requests that are part of a client's request: `auth_request` and `mirror`."""

import threading

import pytest

from support.balancer import ON_BALANZA, wait_for
from support.client import Client, get
from support.expect import here
from support.http2 import Http2Client
from support.origin import answer

LOG = "log_format w '$request_method $uri $status $upstream_status'; access_log logs/w.log w;"


@pytest.fixture
def guarded(balancer, origin):
    """A balancer that asks a service for each request below /, and the service. `service` answers a request of it."""
    def make(service, inside="", *, http="", location="location / { PASS INSIDE }", auth=""):
        app, asked = origin("app"), origin(service)
        location = location.replace("PASS", f"auth_request /auth; proxy_pass http://{app.server};")
        one = balancer(f"""{LOG} {http} server {{ listen 127.0.0.1:PORT; {location.replace("INSIDE", inside)}
            location = /auth {{ internal; proxy_pass http://{asked.server}/check?a=1; proxy_pass_request_body off;
                proxy_set_header Content-Length ""; proxy_set_header X-Original-URI $request_uri;
                proxy_set_header X-Method $request_method; {auth} }} }}""")
        return one, app, asked
    return make


def by_token(request, _):
    """A service that knows one token."""
    match request["Authorization"]:
        case "Bearer good":
            return answer(b"", "200 OK", [("X-User", "ada"), ("X-Group", "eng")])
        case "Bearer poor":
            return answer(b"no", "403 Forbidden")
        case "Bearer odd":
            return answer(b"no", "302 Found", [("Location", "/login")])
        case _:
            return answer(b"who?", "401 Unauthorized", [("WWW-Authenticate", 'Bearer realm="one"')])


@pytest.mark.parametrize("token, status", [("good", 200), ("poor", 403), (None, 401), ("odd", 500)])
def test_the_service_decides(guarded, token, status):
    one, app, asked = guarded(by_token)
    headers = [("Authorization", f"Bearer {token}")] if token else []
    response = get(one.port, "/some/page?x=1", headers=headers)
    assert response.status == status
    assert app.count == (status == 200)
    assert response["WWW-Authenticate"] == ('Bearer realm="one"' if status == 401 else None)
    assert (asked.last.method, asked.last.target) == ("GET", "/check?a=1")
    assert asked.last["X-Original-URI"] == "/some/page?x=1" and asked.last["X-Method"] == "GET"
    assert (b"auth request unexpected status: 302" in one.error_log().encode()) == (status == 500)


def test_variables_of_the_subrequest(guarded):
    one, app, _ = guarded(by_token, """auth_request_set $user $upstream_http_x_user; auth_request_set $at $uri;
        auth_request_set $code $upstream_status; proxy_set_header X-User "$user $code $at";
        add_header X-Group $upstream_http_x_group; add_header X-Mine $user;""")
    response = get(one.port, "/page", headers=[("Authorization", "Bearer good")])
    assert app.last["X-User"] == "ada 200 /auth"
    assert response["X-Mine"] == "ada" and response["X-Group"] is None


def test_variables_are_set_whatever_the_answer_is(guarded):
    one, _, _ = guarded(by_token, """auth_request_set $code $upstream_status; error_page 401 403 = @login;""",
                        location="""location / { PASS INSIDE } location @login { return 418 "code $code"; }""")
    assert get(one.port, "/page").body == b"code 401"
    assert get(one.port, "/page", headers=[("Authorization", "Bearer poor")]).body == b"code 403"


def test_variables_that_a_request_and_its_subrequest_share(guarded):
    one, app, _ = guarded(by_token, """set $mark before; proxy_set_header X-Mark $mark; proxy_set_header X-Kind $kind;""",
                          http="map $uri $kind { /auth auth; default other; }", auth="set $mark $mark-$kind-after;")
    get(one.port, "/page", headers=[("Authorization", "Bearer good")])
    # The map is evaluated once, in the subrequest.
    assert app.last["X-Mark"] == "before-auth-after" and app.last["X-Kind"] == "auth"


def test_a_body_stays_for_the_application(guarded):
    one, app, asked = guarded(by_token)
    with Client(one.port) as client:
        for body in (b"a" * 10, b"b" * 100_000):
            response = client.get("/upload", "POST", headers=[("Authorization", "Bearer good")], body=body)
            assert response.status == 200 and app.last.body == body and app.last.method == "POST"
            assert asked.last.method == "GET" and asked.last.body == b"" and asked.last["X-Method"] == "POST"


def test_connections_to_the_service_are_kept(guarded):
    one, _, asked = guarded(lambda *_: answer(b"yes"), http="upstream group { server 127.0.0.1:1; keepalive 4; }")
    for _ in range(5):
        assert get(one.port, "/").status == 200
    assert asked.count == 5
    assert len(asked.connections) == here(1, 5)


@pytest.mark.parametrize("service, status", [
    (lambda *_: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 200),
    (lambda *_: b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nbegin", 200),
    (lambda *_: b"HTTP/1.1 204 No Content\r\n\r\n", 200),
    (lambda *_: b"nonsense\r\n\r\n", 500),
    (lambda _, connection: connection.close(), 500),
])
def test_the_head_is_enough(guarded, service, status):
    one, _, _ = guarded(service)
    assert get(one.port, "/").status == status


def test_a_service_that_is_not_there(guarded):
    one, app, asked = guarded(by_token)
    asked.stop()
    assert get(one.port, "/").status == 500 and app.count == 0
    one.wait_error("auth request unexpected status: 502")


@pytest.mark.parametrize("auth, status", [
    ("return 204;", 200), ("return 401;", 401), ("return 200 text;", 200), ("return 301 /x;", 500),
    ("auth_request /auth; return 403;", 403), ("deny all; return 204;", 200),
    ("try_files /none =403;", 403), ("try_files /none @ok;", 200), ("error_page 403 = @ok; return 403;", 200),
    ("proxy_intercept_errors on; error_page 401 = @ok; auth_request off;", 200),
])
def test_phases_of_the_location(balancer, origin, auth, status):
    service = origin(by_token)
    location = auth if "return" in auth or "try_files" in auth else f"{auth} proxy_pass http://{service.server};"
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; root html;
        location / {{ auth_request /auth; try_files /a.txt =404; }}
        location = /auth {{ internal; {location} }}
        location @ok {{ return 204; }} }}""", start=False)
    (one.dir / "html/a.txt").write_text("text")
    one.start()
    assert get(one.port, "/").status == status
    assert get(one.port, "/auth").status == 404


def test_inheritance_and_off(balancer):
    one = balancer("""auth_request /no; server { listen 127.0.0.1:PORT;
        location / { return 204; } location /open { auth_request off; try_files /x @open; }
        location /shut { try_files /x @open; } location /other { auth_request /yes; try_files /x @yes; }
        location @open { auth_request off; return 200 open; }
        location @yes { auth_request /yes; return 200 yes; }
        location = /no { return 403; } location = /yes { return 200; } }""")
    # "return" comes before the access phase.
    assert [get(one.port, path).status for path in ("/", "/open", "/shut", "/other")] == [204, 200, 403, 200]


def test_the_rewriting_of_the_server_comes_first(balancer, origin):
    app = origin("app")
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; set $seen "$seen$uri,";
        location / {{ auth_request /auth; proxy_set_header X-Seen $seen; proxy_pass http://{app.server}; }}
        location = /auth {{ return 204; }} }}""")
    get(one.port, "/p")
    assert app.last["X-Seen"] == "/p,/auth,"


def test_address_rules_come_before(guarded):
    one, _, asked = guarded(by_token, "deny all;")
    assert get(one.port, "/", headers=[("Authorization", "Bearer good")]).status == 403
    assert asked.count == 0


def test_a_client_that_leaves_ends_the_question(guarded, balancer):
    release = threading.Event()

    def service(_, connection):
        release.wait(20)
        return answer(b"")
    one, app, asked = guarded(service)
    with Client(one.port) as client:
        client.request(target="/page")
        wait_for(lambda: asked.count == 1, what="the question")
    assert one.wait_log(1, "w.log")[-1].startswith("GET /page 499")
    release.set()
    assert get(one.port, "/page").status == 200 and app.count == 1


def test_a_question_that_ends_early_gives_its_slot_back(balancer, origin):
    go = threading.Event()

    def service(_, connection):
        go.wait(20)
        return answer(b"")
    app, asked = origin("app"), origin(service)
    one = balancer(f"""upstream service {{ server {asked.server} max_conns=1; }} server {{ listen 127.0.0.1:PORT;
        location / {{ auth_request /auth; proxy_pass http://{app.server}; }} location = /auth {{ proxy_pass http://service; }} }}""")
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: asked.count == 1, what="the question")
        assert get(one.port, "/").status == 500
    one.wait_error("client prematurely closed connection")
    go.set()
    wait_for(lambda: get(one.port, "/").status == 200, what="the slot")


@pytest.mark.parametrize("logs", [False, True])
def test_subrequests_in_the_access_log(guarded, logs):
    one, _, _ = guarded(by_token, http="log_subrequest on;" if logs else "")
    get(one.port, "/page", headers=[("Authorization", "Bearer good")])
    expected = ["GET /auth 200 200"] * logs + ["GET /page 200 200"]
    assert one.wait_log(len(expected), "w.log") == expected


@pytest.mark.http1("the protocol in a log")
def test_an_error_of_a_subrequest_names_it(guarded):
    one, _, asked = guarded(by_token)
    asked.stop()
    get(one.port, "/page")
    text = one.wait_error(r"connect\(\) failed")
    assert 'request: "GET /page HTTP/1.1", subrequest: "/auth"' in one.error_log(), text


@pytest.mark.parametrize("method, body", [("GET", b""), ("POST", b"p" * 50_000)])
def test_by_http2(guarded, mirrored, method, body):
    one, app, asked = guarded(by_token, http="http2 on;", auth="proxy_set_header X-Protocol \"$server_protocol $http2\";")
    two, copied, copy = mirrored(server="http2 on;")
    with Http2Client(one.port) as client:
        response = client.get("/page", method, body=body, headers=[("authorization", "Bearer good")])
        assert response.status == 200 and app.last.body == body
        assert asked.last["X-Protocol"] == "HTTP/2.0 h2c"
        assert client.get("/page", method, body=body).status == 401
    with Http2Client(two.port) as client:
        assert client.get("/page", method, body=body).status == 200
        wait_for(lambda: copy.count == 2, what="both copies")
    assert {request.body for request in copy.requests} == {copied.last.body} == {body}


def test_a_subrequest_changes_no_protocol(guarded, balancer, origin):
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    upgrade = "proxy_set_header Connection upgrade; proxy_set_header Upgrade websocket;"
    one, app, _ = guarded(lambda *_: switch, auth=upgrade)
    assert [get(one.port, "/").status for _ in range(2)] == [500, 500]
    assert app.count == 0
    server = origin(switch).server
    two = balancer(f"server {{ listen 127.0.0.1:PORT; http2 on; location / {{ {upgrade} proxy_pass http://{server}; }} }}")
    if ON_BALANZA:
        with Http2Client(two.port) as client:
            assert client.get("/").status == 502


# mirror

@pytest.fixture
def mirrored(balancer, origin):
    """A balancer whose requests are mirrored to two servers."""
    def make(options="", handler="mirror", *, mirrors="mirror /m1; mirror /m2;", server=""):
        app, copy = origin("app"), origin(handler)
        one = balancer(f"""{LOG} server {{ listen 127.0.0.1:PORT; {server}
            location / {{ {mirrors} {options} proxy_pass http://{app.server}; }}
            location /m {{ internal; proxy_pass http://{copy.server}/copy$request_uri; }} }}""")
        return one, app, copy
    return make


@pytest.mark.parametrize("method, body", [("GET", b""), ("POST", b"small"), ("PUT", b"l" * 300_000), ("DELETE", b"")])
def test_mirrors_get_the_request(mirrored, method, body):
    one, app, copy = mirrored()
    response = get(one.port, "/page?x=1", method, body=body, headers=[("X-Mine", "1")])
    assert response.body == b"app" and app.last.body == body
    wait_for(lambda: copy.count == 2, what="both copies")
    for request in copy.requests:
        assert (request.method, request.target, request.body) == (method, "/copy/page?x=1", body)
        assert request["X-Mine"] == "1"


def test_a_chunked_body_is_mirrored(mirrored):
    one, app, copy = mirrored("proxy_request_buffering off;")
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        client.send("2\r\nde\r\n0\r\n\r\n")
        assert client.response("POST").body == b"app"
    wait_for(lambda: copy.count == 2, what="both copies")
    assert app.last.body == b"abcde" and {request.body for request in copy.requests} == {b"abcde"}


def test_mirrors_without_the_body(mirrored):
    one, app, copy = mirrored("mirror_request_body off;", server="proxy_pass_request_body off; proxy_set_header Content-Length '';")
    assert get(one.port, "/", "POST", body=b"body").status == 200
    wait_for(lambda: copy.count == 2, what="both copies")
    assert {(request.method, request.body) for request in copy.requests} == {("POST", b"")}


@pytest.mark.parametrize("handler", [
    answer("x", "500 Oops"), answer("x", "302 Found", [("Location", "/")]), b"nonsense\r\n\r\n",
    answer(headers=[("Set-Cookie", "a=b")]), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
])
def test_answers_of_mirrors_are_ignored(mirrored, handler):
    one, _, copy = mirrored(handler=handler)
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get("/")
            assert (response.status, response.body, response["Set-Cookie"]) == (200, b"app", None)
    wait_for(lambda: copy.count == 4, what="all copies")


@pytest.mark.http1("requests one after the other on a connection")
def test_a_slow_mirror_delays_the_next_request_only(mirrored):
    release = threading.Event()

    def wait(_, connection):
        release.wait(20)
        return answer("x")
    one, app, copy = mirrored(handler=wait, mirrors="mirror /m1;")
    with Client(one.port) as client:
        assert client.get("/1").body == b"app"
        wait_for(lambda: copy.count == 1, what="the copy")
        assert one.access_log("w.log") == []
        client.request(target="/2")
        # As in NGINX: the request ends with its mirrors.
        client.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.response()
        client.sock.settimeout(10)
        release.set()
        assert client.response().body == b"app"
    assert one.wait_log(2, "w.log") == ["GET /1 200 200", "GET /2 200 200"]


def test_a_mirror_goes_on_without_the_client(mirrored):
    release = threading.Event()

    def wait(_, connection):
        release.wait(20)
        return answer("x")
    one, _, copy = mirrored(handler=wait, mirrors="mirror /m1;")
    assert get(one.port, "/").body == b"app"
    wait_for(lambda: copy.count == 1, what="the copy")
    assert one.access_log("w.log") == []
    release.set()
    assert one.wait_log(1, "w.log") == ["GET / 200 200"]


def test_mirrors_see_variables_and_have_their_own(mirrored):
    one, app, copy = mirrored("set $mark main; proxy_set_header X-Mark $mark;", mirrors="mirror /m1;",
                              server="location /m1 { internal; proxy_set_header X-Mark $mark; proxy_set_header X-Uri "
                                     "$uri?$args; proxy_pass http://COPY; }".replace("COPY", "127.0.0.1:1"))
    assert get(one.port, "/?q=1").status == 200
    assert app.last["X-Mark"] == "main"
    one.wait_error("connect")


def test_mirror_is_inherited_until_off(mirrored):
    one, _, copy = mirrored(mirrors="mirror off;", server="mirror /m1; location /a { return 200 a; } "
                                                          "location /f { try_files /x @f; } location @f { proxy_pass http://127.0.0.1:1; }")
    assert get(one.port, "/").body == b"app"
    assert get(one.port, "/a").body == b"a"
    assert get(one.port, "/f").status == 502
    wait_for(lambda: copy.count == 1, what="the copy of the last request")
    assert copy.last.target == "/copy/f"


def test_mirrors_in_the_access_log(mirrored):
    one, _, _ = mirrored(server="log_subrequest on;", mirrors="mirror /m1;")
    get(one.port, "/page")
    assert one.wait_log(2, "w.log") == ["GET /m1 200 200", "GET /page 200 200"]
