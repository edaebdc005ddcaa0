"""`discover etcd`: the keys of a real etcd are the servers of an upstream, in `http` and in `stream`."""

import collections
import pathlib
import os
import re
import signal
import time

import pytest

from support.balancer import ON_NGINX, children, wait_for
from support.client import Client, get
from support.etcd import PROGRAM, Etcd, encoded
from support.members import SERVER, comes_to, seen
from support.origin import named
from support.ports import free_port
from support.stream import Streaming
from test_api import ask, read, reload, replace_worker

pytestmark = [
    pytest.mark.skipif(ON_NGINX, reason="a directive of Balanza"),
    pytest.mark.skipif(PROGRAM is None, reason="etcd is not installed (Debian's etcd-server)"),
]


@pytest.fixture
def etcd():
    one = Etcd()
    yield one
    one.stop()


def upstream(source, inside="zone app 64k;", kind="etcd "):
    return f"upstream app {{ {inside} discover {kind}{source}; }}\n{SERVER}"


def with_api(source, inside=""):
    """An upstream with servers of its own beside those of a source, and the API."""
    api = "location /api { api write=on; } location / "
    return upstream(source, f"zone app 64k; {inside}").replace("location / ", api, 1)


def test_servers_come_and_go_with_their_keys(etcd, balancer):
    servers = named(3)
    etcd.put("/web/a", servers[0].server)
    etcd.put("/other/a", servers[2].server)
    etcd.put("/web/b", f"{servers[1].server} weight=2")
    one = balancer(upstream(f"{etcd.url} prefix=/web/"))
    wait_for(lambda: seen(one) == {"0": 4, "1": 8}, what="the first answer")
    etcd.put("/web/c", servers[2].server)
    comes_to(one, "012")
    etcd.delete("/web/b")
    comes_to(one, "02")
    etcd.put("/web/a", f"{servers[0].server} down")
    comes_to(one, "2")
    etcd.put("/web/a", '{"address": "%s", "backup": true}' % servers[1].server)
    wait_for(lambda: "1" not in seen(one) and "0" not in seen(one), what="a backup")
    etcd.delete("/web/c")
    comes_to(one, "1")
    etcd.delete("/web/a")
    wait_for(lambda: get(one.port).status == 502, what="no server")


def test_a_lost_source_keeps_the_servers(etcd, balancer):
    servers = named(2)
    etcd.put("/web/a", servers[0].server)
    one = balancer(upstream(f"{etcd.url} prefix=/web/"))
    comes_to(one, {"0"})
    etcd.kill()
    one.wait_error(r'\[error\].* upstream "app": etcd at http://\S+: .*; its last 1 servers stay')
    assert set(seen(one)) == {"0"}
    # Through a reload as well.
    one.reload(upstream(f"{etcd.url} prefix=/web/", "zone app 64k; least_conn;"))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    assert set(seen(one)) == {"0"}
    etcd.start()
    etcd.put("/web/b", servers[1].server)
    comes_to(one, "01")
    one.wait_error(r"\[notice\].* answers again")
    log = [line for line in one.error_log().splitlines() if "servers stay" in line]
    reasons = [re.sub(r".*etcd at \S+ ", "", line) for line in log]
    assert len(reasons) == len(set(reasons)), "each reason is logged once"


def test_another_process_begins_with_the_last_servers(etcd, balancer):
    servers = named(3)
    etcd.put("/web/a", servers[0].server)
    etcd.put("/other/a", servers[2].server)
    one = balancer(upstream(f"{etcd.url} prefix=/web/"))
    comes_to(one, {"0"})
    etcd.put("/web/b", f"{servers[1].server} weight=2")
    wait_for(lambda: seen(one) == {"0": 4, "1": 8}, what="the second")
    etcd.kill()
    one.wait_error("its last 2 servers stay")
    # Another worker, and then another binary.
    worker = one.workers_alive()[0]
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in children(one.pid) and children(one.pid), what="another worker")
    one.wait_error("its last 2 servers stay(.|\\n)*its last 2 servers stay")
    assert seen(one) == {"0": 4, "1": 8}
    one.upgrade()
    assert set(seen(one)) == {"0", "1"}
    # Another source begins without them.
    one.reload(upstream(f"{etcd.url} prefix=/other/"))
    wait_for(lambda: get(one.port).status == 502, what="the reload")
    etcd.start()
    comes_to(one, "2")


def test_what_stays_keeps_its_counters(etcd, balancer):
    servers = named(2)
    etcd.put("/web/a", servers[0].server)
    one = balancer(with_api(f"{etcd.url} prefix=/web/"))
    comes_to(one, "0")
    for _ in range(5):
        get(one.port)
    etcd.put("/web/b", servers[1].server)
    comes_to(one, "01")

    def peers():
        found = read(one.port, "/api/9/http/upstreams/app")["peers"]
        return {peer["server"]: peer["requests"] for peer in found}

    first = peers()
    assert first.keys() == {servers[0].server, servers[1].server}
    assert first[servers[0].server] >= 5 + 6
    # Another parameter of the same server.
    etcd.put("/web/a", f"{servers[0].server} weight=3")
    wait_for(lambda: seen(one, 4) == {"0": 3, "1": 1}, what="the weight")
    assert peers()[servers[0].server] > first[servers[0].server]


def test_no_request_is_lost_while_servers_change(etcd, balancer):
    servers = named(3)
    etcd.put("/web/a", servers[0].server)
    one = balancer(upstream(f"{etcd.url} prefix=/web/"), workers=2)
    comes_to(one, "0")
    statuses = collections.Counter()
    with Client(one.port) as client:
        for index in range(60):
            etcd.put("/web/a", servers[(index + 1) % 3].server)
            for _ in range(10):
                statuses[client.get("/").status] += 1
    assert statuses == {200: 600}


def test_a_wrong_key_is_left_out_and_named(etcd, balancer):
    servers = named(2)
    etcd.put_all({"/web/a": servers[0].server, "/web/b": "app.example:80", "/web/c": "127.0.0.1:1 colour=red"})
    one = balancer(upstream(f"{etcd.url} prefix=/web/"))
    comes_to(one, {"0"})
    one.wait_error(r'key "/web/b" is left out: "app.example:80" is not an IP address with a port')
    one.wait_error(r'key "/web/c" is left out: invalid parameter "colour=red" \(possible: weight=')
    etcd.put("/web/b", servers[1].server)
    comes_to(one, "01")
    assert one.error_log().count('"/web/c" is left out') == 1


def test_keys_are_read_again_after_a_compaction(etcd, balancer):
    servers = named(2)
    etcd.put("/web/a", servers[0].server)
    one = balancer(upstream(f"{etcd.url} prefix=/web/"))
    comes_to(one, {"0"})
    etcd.kill()
    one.wait_error("servers stay")
    etcd.start()
    for _ in range(20):
        etcd.put("/web/x", "127.0.0.1:1 down")
    etcd.put("/web/a", servers[1].server)
    etcd.compact()
    comes_to(one, "1")


def test_a_source_that_is_not_there_yet(etcd, balancer):
    servers = named(1)
    etcd.put("/web/a", servers[0].server)
    etcd.kill()
    begun = time.monotonic()
    one = balancer(upstream(f"{etcd.url} prefix=/web/"))
    assert time.monotonic() - begun < 15, "a start does not wait for a source"
    assert get(one.port).status == 502
    one.wait_error("no servers of it are known yet")
    etcd.start()
    comes_to(one, "0")


def test_users_and_passwords(etcd, balancer, open_dir):
    servers = named(1)
    etcd.put("/web/a", servers[0].server)
    etcd("/v3/auth/user/add", name="root", password="root's")
    etcd("/v3/auth/user/grant", user="root", role="root")
    etcd("/v3/auth/role/add", name="web")
    key, end = encoded("/web/"), encoded("/web0")
    etcd("/v3/auth/role/grant", name="web", perm={"permType": "READ", "key": key, "range_end": end})
    etcd("/v3/auth/user/add", name="balanza", password="secret")
    etcd("/v3/auth/user/grant", user="balanza", role="web")
    etcd("/v3/auth/enable")
    password = pathlib.Path(open_dir) / "password"
    password.write_text("secret\n")
    one = balancer(upstream(f"{etcd.url} prefix=/web/ user=balanza password_file={password}"))
    comes_to(one, {"0"})
    password.write_text("wrong\n")
    two = balancer(upstream(f"{etcd.url} prefix=/web/ user=balanza password_file={password}"))
    two.wait_error(r"status 400: .*authentication failed, invalid user ID or password")
    assert "wrong" not in two.error_log()
    three = balancer(upstream(f"{etcd.url} prefix=/web/"))
    three.wait_error(r"etcd at \S+: status 400: .*user name is empty")


def test_many_servers_in_one_burst(etcd, balancer):
    """A change costs as much as the upstream has servers: changes that come together are adopted together."""
    one = balancer(upstream(f"{etcd.url} prefix=/web/", "zone app 64k; random;"))
    keys = {f"/web/{index}": f"127.1.{index // 200}.{index % 200 + 1}:1 down" for index in range(3_000)}
    begun = time.monotonic()
    etcd.put_all(keys)
    wait_for(lambda: re.search(r"has 3000 servers", one.error_log()), 100, "all servers")
    changes = re.findall(r"etcd at \S+ has (\d+) servers", one.error_log())
    seconds = time.monotonic() - begun
    assert len(changes) <= 10 * seconds + 2, f"{len(changes)} changes in {seconds} s"
    servers = named(1)
    etcd.put("/web/real", servers[0].server)
    comes_to(one, "0")


def test_stream(etcd, tcp_servers):
    servers = tcp_servers(2)
    etcd.put("/tcp/a", f"127.0.0.1:{servers[0].port}")
    text = f"""upstream app {{ zone app 64k; discover etcd {etcd.url} prefix=/tcp/; }}
        server {{ listen 127.0.0.1:SPORT; proxy_pass app; }}"""
    one = Streaming(text)
    wait_for(lambda: one.ask() == "s0", what="the first server")
    etcd.put("/tcp/b", f"127.0.0.1:{servers[1].port}")
    etcd.delete("/tcp/a")
    wait_for(lambda: one.ask() == "s1", what="the other server")


def test_sources_names_and_servers_go_together(etcd, balancer):
    servers = named(4)
    etcd.put("/one/a", servers[1].server)
    etcd.put("/two/a", servers[2].server)
    text = f"""upstream app {{ zone app 64k; server {servers[0].server};
        discover etcd {etcd.url} prefix=/one/ weight=2; discover etcd {etcd.url} prefix=/two/ backup; }}\n{SERVER}"""
    one = balancer(text)
    wait_for(lambda: seen(one) == {"0": 4, "1": 8}, what="the servers of both")
    # A reload without one of the sources.
    one.reload(text.replace(f"discover etcd {etcd.url} prefix=/one/ weight=2;", ""))
    comes_to(one, "0")
    one.reload(text.replace("prefix=/one/", "prefix=/two/"))
    comes_to(one, "02")


@pytest.mark.parametrize("source, message", [
    ("ectd http://127.0.0.1:1", 'unknown source "ectd" in "discover"'),
    ("etcd 127.0.0.1:2379 prefix=/a", 'invalid scheme in URL "127.0.0.1:2379" of "discover"'),
    ("etcd http://127.0.0.1:2379", 'no "prefix=" in "discover etcd"'),
    ("etcd https://etcd prefix=/a", 'no "ca=" for https in "discover"'),
    ("etcd http://root:secret@etcd prefix=/a", 'a user or a password in the URL of "discover"'),
    ("etcd http://etcd prefix=/a user=a", '"user=" needs "password_file="'),
    ("etcd http://etcd prefix=/a perfix=/b", 'invalid parameter "perfix=/b"'),
    ("etcd http://etcd prefix=/a ca=/no/such/file", 'cannot load certificate "/no/such/file"'),
])
def test_wrong_sources(balancer, source, message):
    one = balancer(upstream(source, kind=""), start=False, port=free_port())
    result = one.test_config()
    assert result.returncode == 1 and message in result.stderr
    assert "secret" not in result.stderr.replace(one.text, "")


def test_a_zone_is_needed(balancer):
    one = balancer(upstream("http://127.0.0.1:1 prefix=/a", inside=""), start=False)
    assert '"discover" requires upstream "app" to be in shared memory' in one.test_config().stderr


OWN = "/api/9/http/upstreams/app/servers"


def test_servers_that_an_upstream_cannot_have_block_nothing(etcd, balancer):
    servers = named(3)
    etcd.put("/web/a", servers[0].server)
    source, own = f"{etcd.url} prefix=/web/", f"server {servers[1].server};"
    one = balancer(with_api(source, own))
    comes_to(one, "01")
    # More priorities than an algorithm can have.
    etcd.put_all({f"/web/{index}": f"127.1.1.1:{index} priority={index}" for index in range(1, 301)})
    refused = r'\[error\].* the servers of upstream "app" stay as they were: .*too many priorities'
    one.wait_error(refused)
    assert set(seen(one)) == {"0", "1"}
    assert ask(one.port, "POST", OWN, {"server": servers[2].server})[0] == 201
    assert set(seen(one)) == {"0", "1", "2"}
    reload(one, with_api(source, f"least_conn; {own}"))
    comes_to(one, "012")
    replace_worker(one)
    comes_to(one, "012")
    # Another process, which has never had anything else of the source.
    two = balancer(with_api(source, own))
    two.wait_error(refused)
    assert set(seen(two)) == {"1"}
    assert ask(two.port, "POST", OWN, {"server": servers[2].server})[0] == 201
    assert set(seen(two)) == {"1", "2"}
    etcd("/v3/kv/deleterange", key=encoded("/web/1"), range_end=encoded("/web/:"))
    comes_to(two, "012")
    comes_to(one, "012")


def test_a_refused_reload_keeps_the_servers_of_a_lost_source(etcd, balancer):
    servers = named(2)
    etcd.put("/web/a", servers[0].server)

    def text(prefix, key):
        zone = f"limit_req_zone {key} zone=z:64k rate=1000r/s;"
        return f"{zone}\n{with_api(f'{etcd.url} prefix={prefix}', f'server {servers[1].server};')}"

    one = balancer(text("/web/", "$arg_a"))
    comes_to(one, "01")
    etcd.kill()
    one.wait_error("its last 1 servers stay")
    # Another key of a zone is refused, after the new source was asked.
    one.reload(text("/other/", "$arg_b"))
    one.wait_error("limit_req .*\"z\" uses the .*key")
    one.wait_error("no servers of it are known yet(.|\\n)*its last 1 servers stay")
    assert ask(one.port, "PATCH", f"{OWN}/0", {"weight": 2})[0] == 200
    assert seen(one) == {"0": 4, "1": 8}


def test_a_chosen_method_and_backups_of_a_source(etcd, balancer):
    servers = named(2)
    text = with_api(f"{etcd.url} prefix=/web/", f"server {servers[0].server};")
    one = balancer(text)
    assert ask(one.port, "PATCH", "/api/balanza/http/upstreams/app", {"method": "hash $arg_key consistent"})[0] == 200
    etcd.put("/web/a", f"{servers[1].server} backup")
    peers = lambda: len(read(one.port, "/api/9/http/upstreams/app")["peers"])
    wait_for(lambda: peers() == 2, what="the backup")
    assert set(seen(one)) == {"0"}
    reload(one, f"{text}\n")
    assert peers() == 2
    assert ask(one.port, "PATCH", f"{OWN}/0", {"down": True})[0] == 200
    comes_to(one, "1")
    assert read(one.port, "/api/balanza/http/upstreams/app")["method"] == "hash $arg_key consistent"
