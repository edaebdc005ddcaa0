"""`discover consul`: the instances of a service are the servers of an upstream. The agent is played, with blocking queries."""

import pathlib

import pytest

from support.balancer import ON_NGINX, ROOT, Balancer, wait_for
from support.consul import Consul
from support.members import SERVER, comes_to, seen
from support.origin import named
from support.stream import Streaming

pytestmark = pytest.mark.skipif(ON_NGINX, reason="a directive of Balanza")


@pytest.fixture
def consul():
    one = Consul()
    yield one
    one.stop()


def upstream(consul, parameters="service=web"):
    return f"upstream app {{ zone app 64k; discover consul {consul.url} {parameters}; }}\n{SERVER}"


def test_instances_come_and_go(consul, balancer):
    servers = named(4)
    consul.register("web", 0, servers[0].server)
    consul.register("web", 1, servers[1].server, weight=2)
    consul.register("other", 0, servers[3].server)
    one = balancer(upstream(consul))
    wait_for(lambda: seen(one) == {"0": 4, "1": 8}, what="the first answer")
    # A service without an address is at its node's.
    consul.register("web", 2, servers[2].server, address="")
    comes_to(one, "012")
    consul.status("web", 1, "critical")
    comes_to(one, "02")
    consul.status("web", 1, "passing")
    comes_to(one, "012")
    consul.deregister("web", 0)
    consul.register("web", 2, servers[2].server, meta={"balanza": "down"})
    comes_to(one, "1")
    queries = [query for path, query in consul.requests if path == "/v1/health/service/web"]
    assert "index" not in queries[0] and all(int(query["index"]) > 0 for query in queries[1:])
    assert len(queries) <= 8, "a query waits for a change"


def test_tags_and_datacenters(consul, balancer):
    servers = named(4)
    consul.register("web", 0, servers[0].server, tags=["v1", "blue"])
    consul.register("web", 1, servers[1].server, tags=["v2", "blue"])
    consul.register("web", 2, servers[2].server, tags=["v2", "blue"], dc="west")
    consul.register("web", 3, servers[3].server, tags=["v2"])
    comes_to(balancer(upstream(consul, "service=web tag=v2 tag=blue")), {"1"})
    comes_to(balancer(upstream(consul, "service=web tag=v2 datacenter=west")), {"2"})


def test_an_index_that_goes_back_begins_again(consul, balancer):
    servers = named(2)
    consul.register("web", 0, servers[0].server)
    one = balancer(upstream(consul))
    comes_to(one, {"0"})
    consul.restore(3)
    wait_for(lambda: len(consul.requests) >= 3, what="the queries after it")
    assert [query.get("index") for _, query in consul.requests[:3]] == [None, "11", None]
    consul.register("web", 0, servers[1].server)
    comes_to(one, "1")


def test_a_lost_agent_keeps_the_servers(consul, balancer):
    servers = named(2)
    consul.register("web", 0, servers[0].server)
    one = balancer(upstream(consul))
    comes_to(one, {"0"})
    consul.stop()
    one.wait_error(r'\[error\].* upstream "app": service "web" of Consul at http://\S+: .*; its last 1 servers stay')
    assert set(seen(one)) == {"0"}
    consul.start()
    consul.register("web", 0, servers[1].server)
    comes_to(one, "1")
    one.wait_error(r"\[notice\].* answers again")


def test_tokens_are_read_from_a_file(balancer, open_dir):
    servers = named(1)
    consul = Consul(token="s3cret-token")
    consul.register("web", 0, servers[0].server)
    file = pathlib.Path(open_dir) / "token"
    file.write_text("expired\n")
    one = balancer(upstream(consul, f"service=web token_file={file}"))
    one.wait_error("status 403: Permission denied.*no servers of it are known yet")
    # A file that is renewed is read again.
    file.write_text("s3cret-token\n")
    comes_to(one, "0")
    assert "expired" not in one.error_log() and "s3cret" not in one.error_log()
    consul.stop()


def test_wrong_answers_keep_the_servers(consul, balancer):
    servers = named(2)
    consul.register("web", 0, servers[0].server)
    one = balancer(upstream(consul))
    comes_to(one, {"0"})
    served, answers = consul.handle, iter([
        lambda request: request.answer(b"<html>", headers={"X-Consul-Index": 99}),
        lambda request: request.answer({"no": "list"}, headers={"X-Consul-Index": 99}),
        lambda request: request.answer([]),
        lambda request: request.answer(b"No cluster leader", 500),
    ])
    done = []

    def wrong(request):
        step = next(answers, None)
        if step is None:
            done.append(True)
            return served(request)
        return step(request)

    consul.handle = wrong
    consul.restore(50)
    wait_for(lambda: done, 40, what="all wrong answers")
    for reason in ("the answer is not JSON", "the answer is not a list", "the answer has no X-Consul-Index",
                   "status 500: No cluster leader"):
        one.wait_error(reason + ".*; its last 1 servers stay")
    assert set(seen(one)) == {"0"}


def test_stream(consul, tcp_servers):
    servers = tcp_servers(2)
    consul.register("db", 0, f"127.0.0.1:{servers[0].port}")
    one = Streaming(f"""upstream app {{ zone app 64k; discover consul {consul.url} service=db; }}
        server {{ listen 127.0.0.1:SPORT; proxy_pass app; }}""")
    wait_for(lambda: one.ask() == "s0", what="the first server")
    consul.register("db", 0, f"127.0.0.1:{servers[1].port}")
    wait_for(lambda: one.ask() == "s1", what="the other server")


def test_the_example():
    servers = named(2)
    consul = Consul()
    consul.register("web", 0, servers[0].server, tags=["production"])
    text = (ROOT / "examples/consul.conf").read_text()
    text = text.replace("127.0.0.1:8080", "127.0.0.1:PORT").replace("http://127.0.0.1:8500", consul.url)
    one = Balancer(text=text)
    comes_to(one, {"0"})
    consul.register("web", 1, servers[1].server, tags=["production"])
    comes_to(one, "01")
    consul.stop()


def test_wrong_parameters(balancer):
    one = balancer(f"upstream app {{ zone app 64k; discover consul http://127.0.0.1; }}\n{SERVER}", start=False)
    assert 'no "service=" in "discover consul"' in one.test_config().stderr
