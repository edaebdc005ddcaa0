"""`discover docker`: containers of a real daemon are the servers of an upstream; and a daemon that is played."""

import http.client
import json
import os
import time
import urllib.request

import pytest

from support.balancer import ON_NGINX, ROOT, Balancer, wait_for
from support.client import get
from support.docker import Daemon, Played, Unavailable, free_number
from support.members import comes_to, seen
from support.origin import named
from support.stream import Streaming

pytestmark = [
    pytest.mark.skipif(ON_NGINX, reason="a directive of Balanza"),
    # One daemon for all, if they run in one worker.
    pytest.mark.xdist_group("docker"),
]

API = "location /api { api; }"
SERVER = """server {
    listen 127.0.0.1:PORT;
    location / { proxy_pass http://app; proxy_connect_timeout 500ms; }
    location /brief { proxy_pass http://app; proxy_read_timeout 1s; proxy_next_upstream off; }
    location = /new { return 204; }
}"""


@pytest.fixture(scope="module")
def daemon():
    try:
        one = Daemon()
    except Unavailable as error:
        pytest.skip(str(error))
    yield one
    one.stop()


@pytest.fixture
def docker(daemon):
    yield daemon
    daemon.clear()


@pytest.fixture
def played(open_dir):
    one = Played(f"{open_dir}/docker.sock")
    yield one
    one.stop()


def upstream(docker, parameters=""):
    return f"upstream app {{ zone app 64k; discover docker {docker.url} {parameters}; }}\n{SERVER}"


MINE = "balanza.upstream=app"


def test_containers_come_and_go(docker, balancer):
    docker.run("one", labels=[MINE])
    docker.run("other", labels=["balanza.upstream=other"])
    docker.run("none")
    # A container that has just gone is no reason to leave it out when it comes back.
    one = balancer(upstream(docker, "max_fails=0"))
    comes_to(one, ["one"])
    docker.run("two", labels=[MINE, "balanza.weight=3"])
    wait_for(lambda: seen(one, 8) == {"one": 2, "two": 6}, what="the second")
    docker("pause", "one")
    # A paused container accepts connections and does not answer. While it is among the servers, some requests get 504.
    wait_for(lambda: set(seen(one, target="/brief")) == {"two"}, what="two alone")
    one.wait_error("has 1 servers(.|\n)*has 2 servers(.|\n)*has 1 servers")
    docker("unpause", "one")
    comes_to(one, ["one", "two"])
    docker("stop", "-t", "0", "two")
    comes_to(one, ["one"])
    docker("start", "two")
    comes_to(one, ["one", "two"])
    docker("rm", "-f", "one", "two")
    wait_for(lambda: get(one.port).status == 502, what="no server")


def test_ports_networks_and_labels(docker, balancer):
    docker.run("one", labels=["tier=web", "balanza.port=9000"], port=9000)
    docker.run("two", labels=["tier=web"], port=8001)
    docker.run("three", labels=["tier=db"])
    one = balancer(upstream(docker, "label=tier=web port=8001"))
    comes_to(one, ["one", "two"])
    docker("network", "create", "--subnet", f"10.214.{docker.number}.0/24", "second")
    try:
        docker("network", "connect", "second", "one")
        one.wait_error(r'container "one" is left out: it has several networks \(second, web\): set network=')
        comes_to(one, ["two"])
        two = balancer(upstream(docker, "label=tier=web port=8001 network=second"))
        comes_to(two, ["one"])
        two.wait_error(r'container "two" is left out: it is not in the network "second"')
    finally:
        docker.clear()
        docker("network", "rm", "second")


def test_networks_that_a_killed_daemon_left(docker):
    """This module's daemon is such a one to the next."""
    assert free_number(docker.number - 1) != docker.number


def test_a_health_check_decides(docker, balancer):
    # A command without a shell can only be written into an image.
    image = docker.dir / "checked"
    if not image.exists():
        image.mkdir()
        (image / "Dockerfile").write_text(
            'FROM server\nHEALTHCHECK --interval=200ms --retries=1 --timeout=5s CMD ["/server", "check", "8000"]\n')
    docker("build", "-q", "-t", "checked", str(image))
    docker.run("one", labels=[MINE])
    docker("run", "-d", "--name", "two", "--network", "web", "--label", MINE, "checked", "two")
    one = balancer(upstream(docker))
    comes_to(one, ["one", "two"])
    address = docker.address("two")
    fail(address, "/fail")
    comes_to(one, ["one"])
    fail(address, "/pass")
    comes_to(one, ["one", "two"])


def fail(address, target):
    connection = http.client.HTTPConnection(address, 8000, timeout=10)
    connection.request("GET", target)
    assert connection.getresponse().status == 200
    connection.close()


def test_a_daemon_that_restarts(docker, balancer):
    docker.run("one", "--restart", "always", labels=[MINE])
    one = balancer(upstream(docker))
    comes_to(one, {"one"})
    docker.kill()
    one.wait_error(r'\[error\].* upstream "app": Docker at unix:\S+: .*; its last 1 servers stay')
    docker.start()
    one.wait_error(r"\[notice\].* answers again")
    comes_to(one, ["one"])
    docker.run("two", labels=[MINE])
    comes_to(one, ["one", "two"])


def test_sessions_of_stream(docker):
    docker.run("one", labels=[MINE])
    one = Streaming(f"""upstream app {{ zone app 64k; discover docker {docker.url}; }}
        server {{ listen 127.0.0.1:SPORT; proxy_pass app; }}""")

    def ask():
        with one.connect() as session:
            session.send(b"GET / HTTP/1.1\r\n\r\n")
            return session.line().decode()

    wait_for(lambda: ask().startswith("HTTP/1.1 200"), what="an answer")


def test_played_states(played, balancer):
    servers = named(4)
    played.run("a", servers[0].server)
    played.run("b", servers[1].server, status="Up 1 second (health: starting)")
    played.run("c", servers[2].server, status="Up 1 minute (unhealthy)")
    one = balancer(upstream(played))
    comes_to(one, "0")
    played.run("b", servers[1].server, status="Up 1 minute (healthy)")
    comes_to(one, "01")
    played.run("a", servers[0].server, state="paused", status="Up 1 minute (Paused)")
    comes_to(one, "1")
    played.run("d", servers[3].server, labels={"balanza.upstream": "app", "balanza.backup": "true"})
    played.change("b", None)
    comes_to(one, "3")
    # Events that change nothing cost a list each, at most ten a second.
    lists = len([path for path, _ in played.requests if path == "/containers/json"])
    begun = time.monotonic()
    for _ in range(1000):
        played.change("a", played.containers["a"])
    assert len([path for path, _ in played.requests if path == "/containers/json"]) < lists + 20 + 15 * (time.monotonic() - begun)


def test_a_daemon_at_a_port(balancer):
    """TCP without TLS, as `dockerd -H tcp://…` and proxies for its socket have it; the API shows how the source is."""
    played = Played()
    try:
        played.run("a", named(1)[0].server)
        played.run("b", "127.0.0.1:1", labels={"balanza.upstream": "app", "balanza.weight": "heavy"})
        one = balancer(upstream(played) + f"\nserver {{ listen 127.0.0.2:PORT; {API} location /metrics {{ metrics; }} }}")
        comes_to(one, "0")
        asked = {path for path, _ in played.requests}
        assert asked == {"/containers/json", "/events"}

        def shown():
            with urllib.request.urlopen(f"http://127.0.0.2:{one.port}/api/balanza/http/upstreams/app/sources", timeout=20) as response:
                return json.load(response)

        source = {"name": f"Docker at {played.url}", "servers": 1, "wrong": 1, "error": None}
        found = shown()
        assert found["names"] == [] and found["sources"][0].pop("answered") and found["sources"] == [source]
    finally:
        played.stop()
    state = wait_for(lambda: next((it for it in shown()["sources"] if it["error"]), None), what="the loss")
    assert state["servers"] == 1 and state["answered"]
    with urllib.request.urlopen(f"http://127.0.0.2:{one.port}/metrics", timeout=20) as response:
        metrics = response.read().decode()
    labels = f'source="Docker at {played.url}",upstream="app"'
    assert f"balanza_upstream_source_up{{{labels}}} 0\n" in metrics
    assert f"balanza_upstream_source_servers{{{labels}}} 1\n" in metrics


def test_a_socket_without_rights(played, balancer):
    servers = named(1)
    played.run("a", servers[0].server)
    os.chmod(played.path, 0o600)
    if os.geteuid() != 0:
        pytest.skip("the worker is the tests' own user")
    one = balancer(upstream(played))
    one.wait_error(r"Docker at unix:\S+: cannot connect \(13: Permission denied\); no servers of it are known yet")
    os.chmod(played.path, 0o666)
    comes_to(one, "0")


def test_wrong_answers_keep_the_servers(played, balancer):
    servers = named(1)
    played.run("a", servers[0].server)
    one = balancer(upstream(played))
    comes_to(one, {"0"})
    served = played.handle

    def wrong(request):
        if request.path == "/containers/json":
            return request.answer({"message": "the daemon is shutting down"}, 500)
        return served(request)

    played.handle = wrong
    played.change("a", played.containers["a"])
    one.wait_error("status 500: the daemon is shutting down; its last 1 servers stay")
    assert set(seen(one)) == {"0"}
    played.handle = served
    one.wait_error("answers again")


def test_the_example(docker):
    docker.run("one", labels=["balanza.upstream=web"])
    text = (ROOT / "examples/docker.conf").read_text()
    text = text.replace("127.0.0.1:8080", "127.0.0.1:PORT").replace("unix:/var/run/docker.sock", docker.url)
    one = Balancer(text=text)
    comes_to(one, {"one"})
    docker.run("two", labels=["balanza.upstream=web"])
    comes_to(one, ["one", "two"])
