"""Real servers behind `stream`: Redis."""

import collections
import concurrent.futures
import pathlib
import threading

import pytest

from support import redis
from support.balancer import ON_NGINX, STREAM_MODULE, wait_for
from support.stream import Streaming

pytestmark = [
    pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module"),
    pytest.mark.skipif(not redis.PROGRAM, reason="no redis-server"),
]


@pytest.fixture
def farm():
    """Three servers that know their number."""
    servers = [redis.Redis() for _ in range(3)]
    for number, server in enumerate(servers):
        with redis.Client(server.port) as client:
            client("SET", "number", number)
    yield servers
    for server in servers:
        server.stop()


def balanced(servers, method, parameters=""):
    list_of_servers = " ".join(f"server {server.server} {parameters};" for server in servers)
    return Streaming(f"upstream u {{ zone u 64k; {method} {list_of_servers} }}\n"
                     "server { listen 127.0.0.1:SPORT; proxy_pass u; }", workers=2)


def test_least_conn_spreads_long_sessions(farm):
    streaming = balanced(farm, "least_conn;")
    clients, places = [], []
    for _ in range(12):
        # One at a time: two workers that choose at the same moment do not see each other's choice.
        clients.append(redis.Client(streaming.stream_port))
        places.append(clients[-1]("GET", "number"))
    assert collections.Counter(places) == {b"0": 4, b"1": 4, b"2": 4}
    # The sessions of one server end; the next ones fill its place.
    for client, place in zip(clients, places):
        if place == b"1":
            client("QUIT")
            client.sock.close()
    streaming.lines(4)
    more = [redis.Client(streaming.stream_port) for _ in range(4)]
    assert [client("GET", "number") for client in more] == [b"1"] * 4
    # Pipelines and large values pass whole.
    value = bytes(range(256)) * 4096
    assert more[0]("SET", "large", value) == b"OK" and more[1]("GET", "large") == value


def test_consistent_hashing_keeps_clients_and_moves_few(farm):
    streaming = balanced(farm, "hash $remote_addr consistent;", "max_fails=1 fail_timeout=60s")
    # So many that the clients of a server do not all move to one of the others by chance, whatever the ports are.
    sources = [f"127.0.0.{last}" for last in range(2, 132)]

    def place(source):
        with redis.Client(streaming.stream_port, source) as client:
            return client("GET", "number")

    before = {source: place(source) for source in sources}
    assert before == {source: place(source) for source in sources}
    assert set(before.values()) == {b"0", b"1", b"2"}
    farm[2].kill()
    after = {source: place(source) for source in sources}
    assert all(after[source] == before[source] for source in sources if before[source] != b"2")
    assert {after[source] for source in sources if before[source] == b"2"} == {b"0", b"1"}


def test_a_server_killed_under_load(farm):
    """Only the sessions of the server that was killed break, and their clients find another one at once."""
    streaming = balanced(farm, "least_conn;", "max_fails=1 fail_timeout=60s")
    broken, counts = collections.Counter(), collections.Counter()
    killed = threading.Event()

    def connect():
        """A session that works; one that begins while the server dies may break as well."""
        for _ in range(5):
            try:
                client = redis.Client(streaming.stream_port)
                return client, client("GET", "number")
            except OSError:
                broken[b"1"] += 1
        raise AssertionError("no server is reached")

    def run(number):
        client, place = connect()
        for step in range(150):
            try:
                client("INCR", f"counter{number}")
            except OSError:
                broken[place] += 1
                client, place = connect()
                client("INCR", f"counter{number}")
            counts[number] += 1
            if number == 0 and step == 50:
                farm[1].kill()
                killed.set()
            if step == 100:
                assert killed.wait(60), "nobody ends before the server does"
        return place

    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        last = list(pool.map(run, range(9)))
    assert all(counts[number] == 150 for number in range(9)), "every command was answered in the end"
    assert set(broken) <= {b"1"} and b"1" not in last
    wait_for(lambda: len(streaming.one.access_log("stream.log")) >= sum(broken.values()), what="the log")
