"""The algorithms of an upstream beyond the documents' examples: parameters, weights, several workers."""

import collections
import concurrent.futures
import threading
import time
import zlib

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.expect import CHI_SQUARE, balanza_only, chi_square
from support.hashing import ip_hash, ketama
from support.origin import answer, named, proxy


def ask(one, targets):
    """The servers that answered these targets."""
    answers = []
    # A connection is closed after keepalive_requests (1000).
    for start in range(0, len(targets), 900):
        with Client(one.port) as client:
            answers += [int(client.get(target).body) for target in targets[start:start + 900]]
    return answers


def weighted(weights):
    return [f"weight={weight}" for weight in weights]


@pytest.mark.parametrize("weights, expected", [
    ([5, 1, 1], "0010200"), ([1, 1, 1], "012"), ([2, 1], "010"), ([1, 2, 3], "210212"), ([4, 4, 2, 1], None),
])
def test_smooth_weighted_round_robin(balancer, weights, expected):
    servers = named(len(weights))
    one = balancer(proxy(servers, parameters=weighted(weights)))
    answers = "".join(map(str, ask(one, ["/"] * sum(weights) * 2)))
    assert answers[:sum(weights)] == answers[sum(weights):]
    if expected:
        # One worker starts as NGINX does.
        assert answers[:sum(weights)] == expected
    assert all(answers.count(str(index)) == 2 * weight for index, weight in enumerate(weights))


def plain_hash(weights):
    """A function from key to index of server, as `hash KEY` chooses."""
    def find(key):
        point = (zlib.crc32(key.encode()) >> 16 & 0x7fff) % sum(weights)
        for index, weight in enumerate(weights):
            point -= weight
            if point < 0:
                return index
    return find


@pytest.mark.parametrize("weights", [[1, 1, 1], [3, 1, 2], [10]])
def test_hash(balancer, weights):
    servers = named(len(weights))
    one = balancer(proxy(servers, parameters=weighted(weights), head='hash "$arg_key";'))
    keys = [f"user{number}" for number in range(300)]
    expected = list(map(plain_hash(weights), keys))
    assert ask(one, [f"/{number}?key={key}" for number, key in enumerate(keys)]) == expected


@pytest.mark.parametrize("weights", [[1, 1, 1], [3, 1, 2]])
def test_weighted_consistent_hash(balancer, weights):
    servers = named(3)
    one = balancer(proxy(servers, parameters=weighted(weights), head="hash $arg_key consistent;"))
    expected = ketama([server.server for server in servers], weights)
    keys = [f"key-{number}" for number in range(300)]
    assert ask(one, [f"/?key={key}" for key in keys]) == list(map(expected, keys))


def test_hash_goes_elsewhere_while_a_server_is_down(balancer):
    servers = named(3)
    one = balancer(proxy(servers, parameters=["", "down", ""], head="hash $arg_key;"))
    expected = plain_hash([1, 1, 1])
    for number in range(100):
        key = f"k{number}"
        index = int(get(one.port, f"/?key={key}").body)
        assert index == expected(key) if expected(key) != 1 else index != 1


def test_ip_hash_by_network(balancer):
    servers = named(4)
    one = balancer(proxy(servers, head="ip_hash;"))
    expected = ip_hash(4)
    for third in range(0, 256, 17):
        assert {int(get(one.port, source=f"127.0.{third}.{last}").body) for last in (1, 128, 254)} == {
            expected(f"127.0.{third}.0")}


def test_ip_hash_goes_elsewhere_when_its_server_dies(balancer):
    servers = named(3)
    one = balancer(proxy(servers, head="ip_hash;"))
    home = int(get(one.port).body)
    servers[home].stop()
    elsewhere = {int(get(one.port).body) for _ in range(20)}
    assert home not in elsewhere and len(elsewhere) == 1


@pytest.mark.parametrize("weights", [[1, 1, 1], [5, 2, 1]])
def test_random(balancer, weights):
    servers = named(3)
    one = balancer(proxy(servers, parameters=weighted(weights), head="random;"))
    tally = collections.Counter(ask(one, ["/"] * 1200))
    assert chi_square([tally[index] for index in range(3)], weights) < CHI_SQUARE[2]


def test_random_is_not_a_pattern(balancer):
    one = balancer(proxy(named(3), head="random;"))
    pairs = collections.Counter()
    answers = ask(one, ["/"] * 1800)
    pairs.update(zip(answers[::2], answers[1::2], strict=True))
    # Nine pairs, eight degrees of freedom.
    assert chi_square([pairs[a, b] for a in range(3) for b in range(3)]) < CHI_SQUARE[8]


@pytest.mark.parametrize("head", ["random two;", "random two least_conn;"])
def test_random_two_avoids_the_busy_server(balancer, head):
    gate = threading.Event()

    def held(request, connection):
        if request.target == "/hold":
            gate.wait(60)
        return answer("0")

    servers = named(1, held) + named(2, first=1)
    one = balancer(proxy(servers, head=f"zone z 64k; {head}"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # The other servers answer at once, so that in the end one request stays, at the first server.
        pending = []
        while servers[0].in_flight == 0 and len(pending) < 200:
            pending.append(pool.submit(get, one.port, "/hold", timeout=60))
            time.sleep(0.005)
        wait_for(lambda: sum(not one.done() for one in pending) == servers[0].in_flight, what="the end of the others")
        tally = collections.Counter(ask(one, ["/"] * 300))
        gate.set()
        assert all(future.result().status == 200 for future in pending)
    # Of two distinct servers the busy one always loses.
    assert tally[0] == 0 and chi_square([tally[1], tally[2]]) < CHI_SQUARE[2]


@balanza_only("least_time is in NGINX Plus only")
@pytest.mark.parametrize("head", ["least_time header;", "least_time last_byte;", "least_time header inflight;",
                                  "least_time last_byte inflight;", "random two least_time=header;",
                                  "random two least_time=last_byte;"])
def test_least_time_prefers_the_fast_server(balancer, head):
    def slow(request, connection):
        time.sleep(0.7)
        return answer("0")

    servers = named(1, slow) + named(1, first=1)
    one = balancer(proxy(servers, head=head))
    # On a busy machine the fast one is slow at times; if its first response is, that is forgotten after some time.
    wait_for(lambda: ask(one, ["/"] * 20).count(1) > 15, 80, "the fast server's large part")


@balanza_only("least_time is in NGINX Plus only")
def test_least_time_is_not_drawn_to_quick_errors(balancer):
    def work(index):
        def handle(request, connection):
            time.sleep(0.01)
            return answer(str(index))
        return handle

    broken = named(1, answer("", "500 Broken"))
    good = [named(1, work(index))[0] for index in (1, 2)]
    one = balancer(proxy(broken + good, head="least_time header;", parameters=["max_fails=0", "", ""],
                         location="proxy_next_upstream http_500;"))
    with Client(one.port) as client:
        assert all(client.get().status == 200 for _ in range(150))
    assert broken[0].count < 75, "an error within no time was taken for a fast answer"


@pytest.mark.parametrize("head", ["", "least_conn;", "random;", "ip_hash;", "hash $request_uri consistent;"])
def test_every_algorithm_with_two_workers_and_a_dead_server(balancer, head):
    servers = named(3)
    one = balancer(proxy(servers, head=f"zone z 64k; {head}", parameters=["fail_timeout=1s"] * 3), workers=2)
    servers[2].stop()
    for number in range(60):
        assert get(one.port, f"/{number}", source=f"127.0.{number}.1").status == 200
    assert servers[0].count + servers[1].count == 60 and min(servers[0].count, servers[1].count) > 5


def test_least_connections_counts_across_workers(balancer):
    gate = threading.Event()

    def handle(request, connection):
        gate.wait(60)
        return answer("x")

    servers = named(4, handle)
    one = balancer(proxy(servers, head="zone z 64k; least_conn;"), workers=2)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        pending = []
        for count in range(20):
            pending.append(pool.submit(get, one.port, timeout=60))
            wait_for(lambda expected=count + 1: sum(server.in_flight for server in servers) == expected,
                     what=f"{count + 1} requests at the servers")
        assert [server.in_flight for server in servers] == [5] * 4
        gate.set()
        assert all(future.result().status == 200 for future in pending)
