"""`proxy_store`: responses of servers that are kept as files."""

import os
import shutil
import signal
import threading

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.origin import answer

DATE = "Thu, 01 Jan 2032 00:00:00 GMT"
LARGE = bytes(range(256)) * 2000


def bodies(request, connection):
    """Bodies in every framing."""
    match request.target:
        case "/none":
            return answer(b"")
        case "/chunked":
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
        case "/to-close":
            connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")
            return connection.close()
        case "/large":
            return answer(LARGE)
        case "/cut":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
            return connection.close()
        case "/status":
            return answer(b"text", "203 Other")
        case "/missing":
            return answer(b"text", "404 Not Found")
        case "/no-content":
            return b"HTTP/1.1 204 No Content\r\n\r\n"
    return answer(b"text", headers=[("Last-Modified", DATE)])


@pytest.fixture
def storing(balancer, origin):
    """A balancer that keeps responses in html/, and their server."""
    def make(store="on", more="", handler=bodies):
        server = origin(handler)
        return balancer(f"""server {{ listen 127.0.0.1:PORT; root DIR/html;
            location / {{ proxy_store {store}; {more} proxy_pass http://{server.server}; }} }}""", main="user root;"), server
    return make


def stored(one, name):
    """What is kept under this name, once it is there."""
    path = one.dir / "html" / name
    wait_for(path.exists, what=f"the file {name}")
    return path.read_bytes()


@pytest.mark.parametrize("name, body", [
    ("text", b"text"), ("none", b""), ("chunked", b"abcdefg"), ("to-close", b"until the end"), ("large", LARGE),
    ("a/b/text", b"text"),
])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_bodies_are_kept(storing, name, body, version):
    one, _ = storing()
    assert get(one.port, f"/{name}", version=version).body == body
    assert stored(one, name) == body
    assert list((one.dir / "tmp").rglob("*0*")) == []


@pytest.mark.parametrize("target", ["/cut", "/status", "/missing", "/no-content"])
def test_only_whole_responses_of_status_200_are_kept(storing, target):
    one, _ = storing()
    with Client(one.port) as client:
        client.request(target=target, headers=[("Connection", "close")]).rest()
    get(one.port, "/text")
    stored(one, "text")
    assert os.listdir(one.dir / "html") == ["text"]


def test_head_keeps_nothing(storing):
    one, _ = storing()
    assert get(one.port, "/text", "HEAD").status == 200
    get(one.port, "/other")
    stored(one, "other")
    assert os.listdir(one.dir / "html") == ["other"]


def test_a_path_with_variables_and_the_time(storing):
    one, _ = storing("DIR/html/kept/$host$uri.html")
    assert get(one.port, "/x").body == b"text"
    assert stored(one, "kept/example.test/x.html") == b"text"
    assert (one.dir / "html/kept/example.test/x.html").stat().st_mtime == 1956528000


@pytest.mark.parametrize("access, file, directory", [
    ("", 0o600, 0o700), ("proxy_store_access group:r;", 0o640, 0o750),
    ("proxy_store_access user:rw group:rw all:r;", 0o664, 0o775), ("proxy_store_access all:rw;", 0o606, 0o707),
])
def test_modes(storing, access, file, directory):
    one, _ = storing(more=access)
    get(one.port, "/d/text")
    stored(one, "d/text")
    umask = os.umask(0o22)
    os.umask(umask)
    assert (one.dir / "html/d/text").stat().st_mode & 0o777 == file
    assert (one.dir / "html/d").stat().st_mode & 0o777 == directory & ~umask


def test_a_file_is_replaced_as_a_whole(storing):
    answers = [b"first", b"second"]
    one, _ = storing(handler=lambda *_: answer(answers.pop(0)))
    get(one.port, "/f")
    assert stored(one, "f") == b"first"
    get(one.port, "/f")
    wait_for(lambda: stored(one, "f") == b"second", what="the second file")


def test_a_mirror_of_what_was_asked_for_once(balancer, origin):
    """The use that the directive is for."""
    server = origin(bodies)
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; root DIR/html; location / {{ error_page 404 = @fetch; log_not_found off; }}
        location @fetch {{ proxy_store on; proxy_pass http://{server.server}; }} }}""", main="user root;")
    for _ in range(3):
        assert get(one.port, "/dir/text").body == b"text"
        stored(one, "dir/text")
    assert server.count == 1


def test_a_response_is_kept_though_its_client_has_gone(storing):
    go = threading.Event()

    def slow(_, connection):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin")
        go.wait(20)
        return b"-end!"
    one, server = storing(handler=slow)
    with Client(one.port) as client:
        client.request(target="/slow")
        wait_for(lambda: server.count == 1, what="the request")
    go.set()
    assert stored(one, "slow") == b"begin-end!"


def test_without_buffering_nothing_is_kept(storing):
    one, _ = storing(more="proxy_buffering off;")
    assert get(one.port, "/text").body == b"text"
    assert os.listdir(one.dir / "html") == []


def test_a_file_that_cannot_have_its_name(storing):
    one, _ = storing("DIR/html")
    assert get(one.port, "/text").body == b"text"
    one.wait_error(r'rename\(\) ".*" to ".*/html" failed')
    assert list((one.dir / "tmp").rglob("*0*")) == []


@pytest.mark.skipif(not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat("/tmp").st_dev,
                    reason="needs another file system")
def test_another_file_system(balancer, origin):
    server = origin(bodies)
    directory = f"/dev/shm/balancer-store-{os.getpid()}"
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; location / {{ proxy_store {directory}$uri; proxy_pass http://{server.server}; }} }}""",
                   main="user root;")
    try:
        for _ in range(2):
            assert get(one.port, "/large").body == LARGE
        wait_for(lambda: os.path.exists(f"{directory}/large"), what="the file")
        with open(f"{directory}/large", "rb") as file:
            assert file.read() == LARGE
        # The second copy may still be on its way under its temporary name.
        one.stop(signal.SIGQUIT)
        assert os.listdir(directory) == ["large"]
    finally:
        one.stop()
        shutil.rmtree(directory, ignore_errors=True)
