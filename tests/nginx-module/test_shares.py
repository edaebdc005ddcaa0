"""The share of each server against closed forms, as in the proxy; one worker and four, with and without a zone."""

import concurrent.futures
import itertools

import pytest

from support.ask import ask, tally
from support.client import get
from support.expect import CHI_SQUARE, chi_square
from support.hashing import ip_hash, ketama
from support.holding import Holding
from support.origin import named, proxy

WEIGHTS = [1, 2, 5]


def many(one, count):
    """Answers to requests on several connections, so that all workers get some; one at a time, so that no server is busy."""
    return sum((ask(one, 25) for _ in range(count // 25)), [])


def two_of(weights):
    """Shares of an idle fleet when two different servers are drawn by weight and a fair coin decides."""
    total = sum(weights)
    shares = [0.0] * len(weights)
    for (i, v), (j, w) in itertools.permutations(enumerate(weights), 2):
        both = v / total * w / (total - v)
        shares[i] += both / 2
        shares[j] += both / 2
    return shares


@pytest.mark.parametrize("head, shares", [
    ("balance round_robin;", WEIGHTS),
    ("balance random;", WEIGHTS),
    ("balance least_conn;", WEIGHTS),
    ("two_choices;", two_of(WEIGHTS)),
    ("balance two_choices choices=3;", [1, 1, 1]),
])
def test_shares(any_nginx, head, shares):
    one = any_nginx(proxy(named(3), head=head, parameters=[f"weight={w}" for w in WEIGHTS]))
    counts = tally(many(one, 1600), 3)
    assert chi_square(counts, shares) < CHI_SQUARE[2], counts
    assert len(one.pids()) == one.workers


def test_one_worker_takes_turns_as_nginx_does(nginx):
    servers = named(3)
    parameters = ["weight=5", "weight=1", "weight=1"]
    for head in ("balance round_robin;", ""):
        one = nginx(proxy(servers, head=head, parameters=parameters))
        assert "".join(ask(one, 14)) == "0010200" * 2, head


def test_hashes_are_nginx_s_own(nginx):
    servers = named(4)
    parameters = ["weight=3", "", "weight=2", ""]
    keys = [f"/k{n}" for n in range(150)]
    for ours, theirs in [("balance hash key=$uri;", "hash $uri;"),
                         ("balance hash key=$uri consistent;", "hash $uri consistent;")]:
        answers = []
        for head in (ours, theirs):
            one = nginx(proxy(servers, head=head, parameters=parameters))
            answers.append([get(one.port, key).text for key in keys])
        assert answers[0] == answers[1], ours
        assert len(set(answers[0])) == 4


def test_ip_hash_is_nginx_s_own(nginx):
    servers = named(3)
    sources = [f"127.{n % 7 + 1}.{n % 250}.{n % 9 + 1}" for n in range(60)]
    answers = []
    for head in ("balance ip_hash;", "ip_hash;"):
        one = nginx(proxy(servers, head=head))
        answers.append([get(one.port, source=source).text for source in sources])
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 3


def test_two_choices_never_take_the_busier(any_nginx):
    """Whatever two of three servers are drawn, one of them is idle, if one request is held somewhere."""
    held = Holding(3)
    one = any_nginx(proxy(held.servers, head="two_choices;"))
    busy = held.send(one)
    for count in range(1, 31):
        index = held.send(one)
        assert index != busy
        held.release(index)
        # NGINX has given the server back when it writes the line, and sends the answer before.
        one.wait_log(count, "pids.log")
    held.release_all()


@pytest.mark.parametrize("head", ["balance least_conn;", "two_choices choices=3;"])
def test_least_is_least_over_all_workers(any_nginx, head):
    """With as many draws as servers, both are the exact least: no server is ever two ahead."""
    held = Holding(3)
    one = any_nginx(proxy(held.servers, head=head))
    for _ in range(12):
        held.send(one)
        counts = held.in_flight()
        assert max(counts) - min(counts) <= 1, counts
    for _ in range(4):
        held.release(0)
    # NGINX sees the end of a response a moment after the client.
    one.wait_log(4, "pids.log")
    for _ in range(3):
        assert held.send(one) == 0
    held.release_all()


@pytest.mark.parametrize("count", [40])
def test_many_servers_share_a_tournament(any_nginx, count):
    """Beyond 32 servers the workers share a structure; it has to be in memory that all of them see."""
    held = Holding(count)
    one = any_nginx(proxy(held.servers, head="balance least_conn;"))
    for _ in range(count):
        held.send(one)
    assert held.in_flight() == [1] * count
    held.release_all()


ALGORITHMS = ["round_robin", "least_conn", "ip_hash", "hash key=$arg_key", "maglev", "rendezvous", "bounded_hash",
              "hashed_ip", "last_server", "locality_least_conn", "random", "two_choices", "choices_with_memory", "least_time",
              "shortest_expected_delay", "never_queue", "first", "priority", "peak_ewma", "combined",
              "least_bandwidth", "join_idle_queue"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_serves_and_spares(nginx, algorithm):
    """Each on a real configuration with all that a server can be: weights, down, backup, and one that refuses."""
    servers = named(5)
    servers[1].stop()
    one = nginx(proxy(servers, head=f"balance {algorithm};",
                      parameters=["weight=2", "fail_timeout=30s", "down", "", "backup"]), workers=2, zone=True)

    def replies(count):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda n: get(one.port, f"/?key={n}", source=f"127.0.{n}.1"), range(1, count + 1)))

    first = replies(40)
    assert {reply.status for reply in first} == {200}
    assert {reply.text for reply in first} <= {"0", "3"}
    servers[0].stop()
    servers[3].stop()
    assert {reply.text for reply in replies(20)} == {"4"}


def test_all_names_are_in_this_file(nginx):
    one = nginx("upstream u { balance nothing; server 127.0.0.1:1; }", start=False)
    said = one.test_config().stderr
    names = said.split("there are: ")[1].split(" in ")[0].split(", ")
    tested = {name.split()[0] for name in ALGORITHMS}
    assert tested < set(names)
    for name in set(names) - tested:
        one = nginx(f"upstream u {{ balance {name}; server 127.0.0.1:1; }}", start=False)
        said = one.test_config().stderr
        assert "for which there is the Balanza proxy" in said or 'needs a "program"' in said, said
