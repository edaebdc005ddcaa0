"""Fields that once went wrong: lines that a client could add, redirects inside the balancer, leftovers of others."""

import re
import time

import pytest

from support.client import Client, get
from support.expect import balanza_only, here
from support.origin import answer, proxy

# Each has the client's decoded path in a field of the answer.
SPLITTING = {
    "add_header": "location /crlf { add_header X-U $uri; return 200 x; }",
    "add_header always": "location /crlf { add_header X-U $uri always; return 404; }",
    "add_header of a proxied answer": "location /crlf { add_header X-U $uri; proxy_pass http://group; }",
    "add_trailer": "location /crlf { add_trailer X-U $uri; proxy_pass http://group/chunked; }",
    "return": "location /crlf { return 302 http://h$uri; }",
    "return of a path": "location /crlf { return 301 $uri; }",
    "capture": "location ~ (?s)^/crlf(.*)$ { return 302 /x$1; }",
    "error_page": "location /crlf { error_page 404 http://h$uri; return 404; }",
    "proxy_redirect": "location /crlf { proxy_redirect http://old/ http://new$uri; proxy_pass http://group/moved; }",
    "set": "location /crlf { set $copy a$uri; add_header X-U $copy; return 204; }",
}


@balanza_only("writes a variable's line ends into the head")
@pytest.mark.parametrize("end", ["%0d%0a", "%0a", "%0d"])
@pytest.mark.parametrize("way", SPLITTING)
def test_no_field_comes_from_the_path(balancer, origin, way, end):
    def handle(request, connection):
        if request.target.startswith("/moved"):
            return answer("", "302 Found", [("Location", "http://old/")])
        if request.target.startswith("/chunked"):
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        return answer("x")

    one = balancer(proxy([origin(handle)], server=SPLITTING[way]))
    with Client(one.port) as client:
        fields = [("Connection", "close, TE"), ("TE", "trailers")]
        data = client.request(target=f"/crlf{end}Set-Cookie:%20a=b", headers=fields).rest()
    assert data.startswith(b"HTTP/1.1 ")
    assert not re.search(rb"[\r\n]Set-Cookie", data, re.IGNORECASE), data


@balanza_only("writes a variable's line ends into the head")
@pytest.mark.parametrize("options", [
    "proxy_pass http://group; proxy_set_header X-U $uri;", "proxy_pass http://group$uri;",
    "proxy_pass http://group; proxy_set_header Host $uri;",
])
def test_no_field_reaches_the_server_from_the_path(balancer, origin, options):
    server = origin()
    one = balancer(proxy([server], server=f"location /crlf {{ {options} }}"))
    response = get(one.port, "/crlf%0d%0aX-Admin:%20yes")
    assert response is not None
    for connection in server.connections:
        assert not re.search(rb"[\r\n]X-Admin", connection.seen), connection.seen


def protected(balancer, origin, target, headers=()):
    """A balancer whose server sends it to a file behind an internal location, and the client's answer."""
    def handle(request, connection):
        if request.target != "/":
            return answer("the server")
        return answer("", headers=[("X-Accel-Redirect", target), *headers])

    one = balancer(proxy([origin(handle)], server="location /prot/ { internal; alias html/prot/; }"
                         "location = /secret.txt { internal; alias html/secret.txt; }"), start=False)
    (one.dir / "html/prot").mkdir()
    (one.dir / "html/prot/a b.txt").write_text("a file")
    (one.dir / "html/secret.txt").write_text("secret")
    one.start()
    with Client(one.port) as client:
        first = client.get()
        assert client.get().body == first.body
    return first


@pytest.mark.parametrize("target", [
    "/prot/../secret.txt", "/prot/%2e%2e/secret.txt", "/prot/..%2fsecret.txt", "/prot/a/../../secret.txt", "/prot/..",
    "/../secret.txt",
])
def test_accel_redirect_upwards_is_refused(balancer, origin, target):
    response = protected(balancer, origin, target)
    assert response.status == 404 and "secret" not in response.text


@pytest.mark.parametrize("target", ["/prot/a%20b.txt", "/prot/%61 b.txt", "/prot/a%20b.txt?arguments"])
def test_accel_redirect_is_decoded(balancer, origin, target):
    response = protected(balancer, origin, target)
    assert (response.status, response.text) == (200, "a file")


def test_accel_redirect_keeps_fields_of_the_server(balancer, origin):
    kept = [("Content-Type", "x/y"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Content-Disposition", "d"),
            ("Cache-Control", "max-age=7"), ("Expires", "Thu, 01 Jan 2032 00:00:00 GMT")]
    response = protected(balancer, origin, "/prot/a%20b.txt", [*kept, ("Accept-Ranges", "none"), ("X-Other", "1"), ("ETag", '"server"')])
    assert (response.status, response.text) == (200, "a file")
    for name in {name for name, _ in kept}:
        assert response.all(name) == [value for key, value in kept if key == name], name
    assert response["X-Other"] is None and response["ETag"] != '"server"'
    # The server's and the file's.
    assert sorted(response.all("Accept-Ranges")) == ["bytes", "none"]
    assert response.all("Content-Length") == ["6"]


@pytest.mark.parametrize("way", ["redirect", "intercept"])
def test_accel_limit_rate_holds_for_what_takes_the_place_of_the_response(balancer, origin, way):
    fields = [("X-Accel-Limit-Rate", "1000")] + [("X-Accel-Redirect", "/page")] * (way == "redirect")
    server = origin(answer("x", "200 OK" if way == "redirect" else "503 Busy", fields))
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; proxy_intercept_errors on; error_page 503 /page;
        location / {{ proxy_pass http://{server.server}; }} location /page {{ return 200 "{'p' * 2500}$limit_rate"; }} }}""")
    begun = time.monotonic()
    assert get(one.port).body.endswith(b"p1000")
    assert time.monotonic() - begun > 1.5


def test_an_intercepted_401_keeps_the_challenge(balancer, origin):
    challenges = [("WWW-Authenticate", "Basic realm=a")] + [("WWW-Authenticate", "Bearer")] * here(1, 0)
    server = origin(answer("x", "401 Unauthorized", [*challenges, ("X-Other", "1")]))
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; proxy_intercept_errors on; error_page 401 402 /page;
        location / {{ proxy_pass http://{server.server}; }} location /page {{ return 200 page; }} }}""")
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get()
            assert (response.status, response.text, response["X-Other"]) == (401, "page", None)
            assert response.all("WWW-Authenticate") == [value for _, value in challenges]


@balanza_only("leaves the field in the head")
@pytest.mark.parametrize("page, status", [
    ("location = /page { return 404; }", 404), ("location = /page { alias html/missing; }", 404),
    ("location = /page { deny all; }", 403), ("location = /page { proxy_pass http://127.0.0.1:1; }", 502),
])
def test_covered_redirect_leaves_no_location(balancer, page, status):
    one = balancer(f"server {{ listen 127.0.0.1:PORT; {page}"
                   "location /r { error_page 302 /page; return 302 /elsewhere; } }")
    with Client(one.port) as client:
        for _ in range(2):
            response = client.get("/r")
            assert response.status == status and response["Location"] is None
