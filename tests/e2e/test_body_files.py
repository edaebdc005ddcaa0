"""`client_body_in_file_only`: bodies of requests in files."""

import pathlib

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.origin import answer

BODIES = [b"x", b"y" * 1000, b"z" * 100_000]


def files(one):
    return [path for path in (one.dir / "bodies").rglob("*") if path.is_file()]


@pytest.fixture
def keeping(balancer, origin):
    """A balancer that keeps bodies in files below DIR/bodies, and a server that reads the one it is told of."""
    def make(how, more="", levels=""):
        def read(request, _):
            path = request["X-File"]
            return answer(pathlib.Path(path).read_bytes() if path else b"none")
        app = origin(read)
        one = balancer(f"""client_body_in_file_only {how};
            server {{ listen 127.0.0.1:PORT; client_body_temp_path bodies{levels}; location / {{ proxy_set_header X-File $request_body_file; {more}
            proxy_pass http://{app.server}; }} }}""", main="user root;")
        return one, app
    return make


@pytest.mark.http1("chunks, behind another request")
@pytest.mark.parametrize("levels", ["", " 1 2"])
@pytest.mark.parametrize("how", ["on", "clean"])
def test_every_body_is_in_a_file(keeping, how, levels):
    one, app = keeping(how, levels=levels)
    with Client(one.port) as client:
        for body in BODIES:
            assert client.get("/", "POST", body=body).body == body == app.last.body
        client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        assert client.response("POST").body == b"abc"
        assert client.get("/").body == b"none"
    if how == "on":
        assert sorted(path.read_bytes() for path in files(one)) == sorted([*BODIES, b"abc"])
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in files(one))
    else:
        wait_for(lambda: files(one) == [], what="the files to go")


def test_the_name_is_enough(keeping):
    one, app = keeping("clean", "proxy_pass_request_body off; proxy_set_header Content-Length '';")
    assert get(one.port, "/", "POST", body=b"in the file").body == b"in the file"
    assert app.last.body == b""


@pytest.mark.parametrize("options, target, seen", [
    ("proxy_set_body 'b=$request_body';", "/", b"b=name=x"),
    ("proxy_pass_request_body off; proxy_set_header Content-Length ''; proxy_set_header X-Body $request_body;", "/", b""),
])
def test_a_body_is_read_even_if_it_is_not_passed(balancer, origin, options, target, seen):
    app = origin("app")
    one = balancer(f"server {{ listen 127.0.0.1:PORT; location / {{ {options} proxy_pass http://{app.server}; }} }}")
    with Client(one.port) as client:
        for _ in range(2):
            client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n")
            client.send("name=x")
            assert client.response("POST").body == b"app"
            assert app.last.body == seen and app.last["X-Body"] == ("name=x" if not seen else None)


def test_a_body_that_is_not_buffered_has_no_file(keeping):
    one, app = keeping("on", "proxy_request_buffering off;")
    assert get(one.port, "/", "POST", body=b"body").body == b"none"
    assert app.last.body == b"body" and files(one) == []


def test_the_body_of_a_request_that_is_not_buffered(balancer, origin):
    app = origin("app")
    one = balancer(f"""log_format b "[$request_body]"; access_log logs/b.log b; server {{ listen 127.0.0.1:PORT;
        location / {{ proxy_request_buffering off; proxy_set_header X-Body $request_body; proxy_pass http://{app.server}; }} }}""")
    with Client(one.port) as client:
        # One that has come with the head has a variable.
        client.send("POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyPOST /next HTTP/1.1\r\nHost: x\r\n"
                    "Content-Length: 2\r\n\r\nxy")
        assert [client.response("POST").body for _ in range(2)] == [b"app", b"app"]
        assert [(request.body, request["X-Body"]) for request in app.requests] == [(b"body", "body"), (b"xy", "xy")]
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + "l" * 50_000)
        wait_for(lambda: len(app.connections[-1].seen) > 1000, what="the first part")
        client.send("l" * 50_000)
        assert client.response("POST").body == b"app"
        assert app.last.body == b"l" * 100_000
    assert one.wait_log(3, "b.log")[:2] == ["[body]", "[xy]"]


def test_off_leaves_no_name(keeping):
    one, app = keeping("off", "client_body_buffer_size 1k;")
    get(one.port, "/small", "POST", body=b"body")
    assert app.last["X-File"] is None and files(one) == []


def test_mirrors_share_the_file(balancer, origin):
    app, copy = origin("app"), origin("copy")
    one = balancer(f"""client_body_in_file_only clean;
        server {{ listen 127.0.0.1:PORT; client_body_temp_path bodies; location / {{ mirror /m; proxy_pass http://{app.server}; }}
        location /m {{ proxy_set_header X-File $request_body_file; proxy_pass http://{copy.server}; }} }}""", main="user root;")
    assert get(one.port, "/", "POST", body=b"b" * 200_000).body == b"app"
    wait_for(lambda: copy.count == 1, what="the copy")
    assert copy.last.body == app.last.body == b"b" * 200_000
    assert copy.last["X-File"].startswith(f"{one.dir}/bodies/")
    wait_for(lambda: files(one) == [], what="the file to go")
