"""Answers that the configuration has in itself: conditions, statuses without a page, pages of errors, challenges."""

import pytest

from support.client import Client, get
from support.origin import answer, proxy

SERVER = "server { listen 127.0.0.1:PORT; default_type text/plain; %s }"


@pytest.mark.parametrize("headers, status", [
    ([("If-Unmodified-Since", "Tue, 14 Nov 2023 22:13:20 GMT")], 412), ([("If-Unmodified-Since", "x")], 412),
    ([("If-Match", '"x"')], 412), ([("If-Match", "*")], 200), ([("If-None-Match", "*")], 304), ([("If-None-Match", '"x"')], 200),
    ([("If-Modified-Since", "Tue, 14 Nov 2023 22:13:20 GMT")], 200),
    ([("If-None-Match", "*"), ("If-Modified-Since", "Tue, 14 Nov 2023 22:13:20 GMT")], 200),
])
def test_conditions_of_a_text(balancer, headers, status):
    one = balancer(SERVER % 'location / { return 200 "text"; } location /made { return 201 "made"; } error_page 500 =200 @page;'
                   'location @page { return 503 "text"; } location /failed { return 500; } location /list/ { alias /usr/; autoindex on; }')
    for path in ("/", "/failed", "/list/"):
        response = get(one.port, path, headers=headers)
        assert response.status == status, path
        if status == 304:
            assert "content-type" not in response.names() and "content-length" not in response.names()
    assert get(one.port, "/made", headers=headers).status == 201


def test_status_in_a_text(balancer):
    one = balancer(SERVER % 'error_page 404 /page; error_page 410 =200 /page; error_page 409 = /page;'
                   'location / { return 404; } location /gone { return 410; } location /conflict { return 409; }'
                   'location = /page { return 200 "for $status"; }')
    assert [get(one.port, path).text for path in ("/", "/gone", "/conflict", "/page")] == ["for 404", "for 200", "for 200", "for 200"]
    assert [get(one.port, path).status for path in ("/", "/gone", "/conflict")] == [404, 200, 200]


@pytest.mark.parametrize("status, page", [(404, True), (418, False), (417, False), (426, False), (429, True), (506, False), (507, True)])
def test_statuses_without_a_page(balancer, status, page):
    one = balancer(SERVER % f"location / {{ return {status}; }}")
    response = get(one.port)
    assert response.status == status
    assert bool(response.body) == page and (response["Content-Type"] == "text/html") == page
    assert response["Content-Length"] == str(len(response.body))


def test_challenge_is_that_of_the_server(balancer, origin):
    """The page of the subrequest's error has a field of its own, which is not the client's."""
    service = origin(answer("no", "401 Unauthorized", [("WWW-Authenticate", "Bearer")]))
    one = balancer(SERVER % (
        "proxy_intercept_errors on; error_page 401 @401; auth_request /auth;"
        """location @401 { add_header WWW-Authenticate Own always; return 401 "page"; }"""
        f"location = /auth {{ internal; auth_request off; proxy_pass http://{service.server}; }}"))
    response = get(one.port)
    assert (response.status, response.text, response.all("WWW-Authenticate")) == (401, "page", ["Bearer", "Own"])


@pytest.mark.http1("the end of the connection")
def test_page_of_a_refused_method(balancer, open_dir):
    """The page's URI may be that of the request."""
    (open_dir / "page").write_text("page")
    one = balancer(SERVER % f"root {open_dir}; error_page 405 =200 $uri;")
    response = get(one.port, "/page", method="TRACE")
    assert (response.status, response.text, response["Connection"]) == (200, "page", "close")


def test_bad_body_behind_an_error(balancer):
    """The text of an `error_page` looks at what has come of the body, as that of any location does."""
    one = balancer(SERVER % 'error_page 404 @404; location / { return 404; } location @404 { return 404 "not here"; }')
    with Client(one.port) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        response = client.response()
        assert (response.status, response["Connection"]) == (400, "close") and b"not here" not in response.body
        assert client.closed()
    with Client(one.port) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        assert client.response().text == "not here"


@pytest.mark.http1("reasons beside statuses")
def test_reason_of_an_error_page(balancer, origin):
    """It is not the server's, also if the status is."""
    one = balancer(SERVER % (
        "error_page 404 =200 @page; location /failed { return 404; }"
        f"location / {{ proxy_pass http://{origin(answer('x', '200 Fine')).server}; }}"
        f"location @page {{ proxy_pass http://{origin(answer('x', '200 Fine')).server}; }}"))
    assert [get(one.port, path).start for path in ("/", "/failed")] == ["HTTP/1.1 200 Fine", "HTTP/1.1 200 OK"]


def test_a_failed_condition_depends_on_the_encoding(balancer, open_dir):
    """What of a file and its compressed form is judged does."""
    for name in ("page", "page.gz"):
        (open_dir / name).write_text("page")
    one = balancer(SERVER % f"root {open_dir}; gzip_static on; gzip_vary on;")
    for field in ([("Accept-Encoding", "gzip")], []):
        response = get(one.port, "/page", headers=[("If-Match", '"x"'), *field])
        assert (response.status, response["Vary"]) == (412, "Accept-Encoding")


def test_body_is_not_invited_after_an_error(balancer):
    one = balancer(SERVER % 'error_page 403 @403; location / { return 403; } location @403 { return 403 "no"; }'
                   'location /text { return 200 "yes"; }')
    for path, text, interim in (("/", "no", 0), ("/text", "yes", 1)):
        with Client(one.port) as client:
            client.send(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            response = client.response()
            assert (response.text, len(response.interim)) == (text, interim)


@pytest.mark.parametrize("directives, changed", [
    ("sub_filter a b; sub_filter_types *;", b"bbb"), ("sub_filter a b; sub_filter_types text/plain;", b"aaa"),
])
def test_any_type_is_also_none(balancer, origin, directives, changed):
    one = balancer(proxy([origin(answer(b"aaa"))], location=f"sub_filter_once off; {directives}"))
    assert get(one.port).body == changed


def test_large_body_that_is_not_read_leaves_the_connection(balancer):
    """The response said keep-alive."""
    one = balancer(SERVER % 'client_max_body_size 1k; location / { return 200 "$request_method"; }')
    with Client(one.port) as client:
        body = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body * 10 + b"0\r\n\r\n")
        response = client.response()
        assert (response.text, response["Connection"]) == ("POST", "keep-alive")
        assert client.get().text == "GET"
