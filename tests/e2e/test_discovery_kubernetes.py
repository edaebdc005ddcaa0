"""`discover kubernetes`: the endpoints of a service are the servers of an upstream. The API server is played: list and
watch, with versions, bookmarks, ends of watches and versions that are gone."""

import os
import pathlib
import ssl
import time

import pytest

from support.balancer import ON_NGINX, ROOT, Balancer, wait_for
from support.certificates import authority, certificate
from support.client import get
from support.kubernetes import Kubernetes
from support.members import SERVER, comes_to, seen
from support.origin import Origin, answer
from support.ports import free_port
from support.stream import Streaming

pytestmark = pytest.mark.skipif(ON_NGINX, reason="a directive of Balanza")

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
DRAINING = {"ready": False, "serving": True, "terminating": True}
STARTING = {"ready": False, "serving": False, "terminating": False}


@pytest.fixture
def kubernetes():
    one = Kubernetes()
    yield one
    one.stop()


def pods(count):
    """Servers on one port of different addresses, as pods are."""
    port = free_port()
    addresses = [f"127.0.0.{index + 1}" for index in range(count)]
    for index, address in enumerate(addresses):
        Origin(answer(str(index)), port=port, address=address)
    return [f"{address}:{port}" for address in addresses]


def upstream(kubernetes, parameters="service=default/web", inside=""):
    return f"upstream app {{ zone app 64k; {inside} discover kubernetes {kubernetes.url} {parameters}; }}\n{SERVER}"


def test_endpoints_come_and_go(kubernetes, balancer):
    pod = pods(4)
    kubernetes.apply("web-a", [pod[0], (pod[1], STARTING)])
    kubernetes.apply("other-a", [pod[3]], service="other")
    kubernetes.apply("web-x", [pod[3]], namespace="test")
    one = balancer(upstream(kubernetes))
    comes_to(one, {"0"})
    kubernetes.apply("web-a", [pod[0], pod[1]])
    comes_to(one, "01")
    kubernetes.apply("web-b", [pod[2]])
    comes_to(one, "012")
    kubernetes.delete("web-a")
    comes_to(one, "2")
    assert [query.get("resourceVersion") for _, query in kubernetes.requests] == [None, "103"], "one watch"


def test_an_endpoint_that_terminates_keeps_its_clients(kubernetes, balancer):
    pod = pods(2)
    kubernetes.apply("web-a", [pod[0], pod[1]])
    one = balancer(upstream(kubernetes, inside="sticky cookie pod;"))
    first = wait_for(lambda: next((it for it in (get(one.port),) if it.text == "0"), None), what="a client of the first")
    cookie = [("Cookie", first["Set-Cookie"].split(";")[0])]
    kubernetes.apply("web-a", [(pod[0], DRAINING), pod[1]])
    comes_to(one, "1")
    assert get(one.port, headers=cookie).text == "0"
    kubernetes.apply("web-a", [pod[1]])
    wait_for(lambda: get(one.port, headers=cookie).text == "1", what="its end")


def test_a_watch_goes_on_where_the_last_one_ended(kubernetes, balancer):
    pod = pods(3)
    kubernetes.apply("web-a", [pod[0]])
    one = balancer(upstream(kubernetes))
    comes_to(one, {"0"})
    kubernetes.bookmark()
    wait_for(lambda: kubernetes.delivered == 111, what="the bookmark")
    kubernetes.end_watches()
    kubernetes.apply("web-a", [pod[1]])
    comes_to(one, "1")
    wait_for(lambda: len(kubernetes.requests) == 3, what="the next watch")
    versions = [query.get("resourceVersion") for _, query in kubernetes.requests]
    assert versions[:2] == [None, "101"] and versions[2] in ("111", "112"), "from the bookmark's, without another list"
    assert "[error]" not in one.error_log()


@pytest.mark.parametrize("odd", [True, False], ids=["refused", "in the stream"])
def test_slices_are_listed_again_when_the_version_is_gone(kubernetes, balancer, odd):
    pod = pods(2)
    kubernetes.version += not odd
    kubernetes.apply("web-a", [pod[0]])
    one = balancer(upstream(kubernetes))
    comes_to(one, {"0"})
    wait_for(lambda: len(kubernetes.requests) == 2, what="the watch")
    # A change that no watch is told of.
    with kubernetes.changed:
        kubernetes.apply("web-a", [pod[1]])
        kubernetes.compact()
        kubernetes.ends = time.monotonic()
    comes_to(one, "1")
    assert sum("watch" not in query for _, query in kubernetes.requests) == 2
    assert "[error]" not in one.error_log()


def test_a_lost_api_server_keeps_the_servers(kubernetes, balancer):
    pod = pods(2)
    kubernetes.apply("web-a", [pod[0]])
    one = balancer(upstream(kubernetes))
    comes_to(one, {"0"})
    kubernetes.stop()
    one.wait_error(r'\[error\].* upstream "app": service "default/web" of Kubernetes at \S+: .*; its last 1 servers stay')
    assert set(seen(one)) == {"0"}
    kubernetes.start()
    kubernetes.apply("web-a", [pod[1]])
    comes_to(one, "1")
    one.wait_error(r"\[notice\].* answers again")


def test_ports_are_chosen(kubernetes, balancer):
    pod = pods(1)
    port = int(pod[0].rsplit(":", 1)[1])
    kubernetes.apply("web-a", [pod[0]], ports=[("http", port), ("metrics", 1)])
    comes_to(balancer(upstream(kubernetes, "service=default/web port=http")), {"0"})
    comes_to(balancer(upstream(kubernetes, f"service=default/web port={port}")), {"0"})
    one = balancer(upstream(kubernetes))
    one.wait_error('slice "web-a" is left out: it has several ports: set port=')
    assert get(one.port).status == 502


def test_tls_and_tokens(balancer, open_dir):
    pod = pods(1)
    chain = certificate("localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain.certificate, chain.key)
    kubernetes = Kubernetes(token="first", tls=tls)
    kubernetes.url = kubernetes.url.replace("127.0.0.1", "localhost")
    kubernetes.apply("web-a", [pod[0]])
    token = pathlib.Path(open_dir) / "token"
    token.write_text("first")
    access = f"token_file={token} ca={authority().certificate}"
    one = balancer(upstream(kubernetes, f"service=default/web {access}"))
    comes_to(one, {"0"})
    kubernetes.bookmark()
    wait_for(lambda: kubernetes.delivered == kubernetes.version, what="the watch that is to end")
    # Tokens are renewed.
    kubernetes.token = "second"
    kubernetes.end_watches()
    one.wait_error("status 401: Unauthorized; its last 1 servers stay")
    token.write_text("second")
    one.wait_error("answers again")
    two = balancer(upstream(kubernetes, f"service=forbidden/web {access}"))
    two.wait_error("status 403: endpointslices.discovery.k8s.io is forbidden: .*no servers of it are known yet")
    # Not the certificate's name, and not its authority.
    kubernetes.url = kubernetes.url.replace("localhost", "127.0.0.1")
    three = balancer(upstream(kubernetes, f"service=default/web {access}"))
    three.wait_error("TLS handshake failed .*certificate")
    assert "first" not in one.error_log() and "second" not in one.error_log().replace("seconds", "")
    kubernetes.stop()


def test_sessions_of_stream(kubernetes, tcp_servers):
    servers = tcp_servers(2)
    kubernetes.apply("db-a", [f"127.0.0.1:{servers[0].port}"], service="db")
    one = Streaming(f"""upstream app {{ zone app 64k; discover kubernetes {kubernetes.url} service=default/db; }}
        server {{ listen 127.0.0.1:SPORT; proxy_pass app; }}""")
    wait_for(lambda: one.ask() == "s0", what="the first server")
    kubernetes.apply("db-a", [f"127.0.0.1:{servers[1].port}"], service="db")
    wait_for(lambda: one.ask() == "s1", what="the other server")


def test_the_example(open_dir):
    pod = pods(2)
    kubernetes = Kubernetes(token="account")
    kubernetes.apply("web-a", [pod[0]], namespace="shop")
    token = pathlib.Path(open_dir) / "token"
    token.write_text("account")
    text = (ROOT / "examples/kubernetes.conf").read_text()
    text = text.replace("127.0.0.1:8080", "127.0.0.1:PORT")
    text = text.replace("discover kubernetes ", f"discover kubernetes {kubernetes.url} token_file={token} ")
    one = Balancer(text=text)
    comes_to(one, {"0"})
    kubernetes.apply("web-a", [pod[0], pod[1]], namespace="shop")
    comes_to(one, "01")
    kubernetes.stop()


@pytest.mark.parametrize("source, message", [
    ("service=default/web", f'cannot load certificate "{ACCOUNT}"'),
    ("http://127.0.0.1:8001", 'no "service=" in "discover kubernetes"'),
    ("http://127.0.0.1:8001 service=web", 'invalid service "web"'),
    ("http://127.0.0.1:8001 service=Default/web", 'invalid service "Default/web"'),
])
def test_wrong_parameters(balancer, source, message):
    if source.startswith("service=default") and os.path.exists(ACCOUNT):
        pytest.skip("in a cluster")
    one = balancer(f"upstream app {{ zone app 64k; discover kubernetes {source}; }}\n{SERVER}", start=False)
    assert message in one.test_config().stderr
