"""What once went wrong around a reload: keys of hash, log files, connections to servers that left."""

import concurrent.futures
import signal
import threading

from support.balancer import wait_for
from support.client import get
from support.origin import answer, named, upstream


def hashed(servers, key, number, maps=""):
    """A group that hashes this key, and its configuration's number at /generation."""
    return (maps + upstream(servers, head=f"hash {key};") + "server { listen 127.0.0.1:PORT;"
            f"location = /generation {{ return 200 {number}; }} location / {{ proxy_pass http://group; }} }}")


def wait_generation(one, number):
    wait_for(lambda: get(one.port, "/generation").text == str(number), what="the new configuration")


def spread(one, varying, constant):
    """How many servers answer when one argument varies and the other one stays."""
    return len({get(one.port, f"/?{varying}={number}&{constant}=same").text for number in range(24)})


def wait_hashed(one, key, other):
    """Waits until one argument decides and the other does not: NGINX's old worker takes a last connection or two."""
    wait_for(lambda: spread(one, key, other) > 1 and spread(one, other, key) == 1, what=f"the hash of {key}")


def test_reload_changes_the_key_of_a_hash(balancer):
    servers = named(4)
    one = balancer(hashed(servers, "$arg_a", 1))
    wait_hashed(one, "a", "b")
    one.reload(hashed(servers, "$arg_b", 2))
    wait_generation(one, 2)
    wait_hashed(one, "b", "a")
    one.reload(hashed(servers, "$arg_a consistent", 3))
    wait_generation(one, 3)
    wait_hashed(one, "a", "b")


def test_reload_removes_a_map_before_the_hashed_one(balancer):
    """The key's variable has another place afterwards."""
    servers = named(4)
    first, second = "map $arg_x $m1 { default $arg_x; }\n", "map $arg_y $m2 { default $arg_y; }\n"
    one = balancer(hashed(servers, "$m2", 1, first + second))
    wait_hashed(one, "y", "x")
    before = [get(one.port, f"/?y={number}").text for number in range(24)]
    one.reload(hashed(servers, "$m2", 2, second))
    wait_generation(one, 2)
    wait_hashed(one, "y", "x")
    assert [get(one.port, f"/?y={number}").text for number in range(24)] == before
    one.reload(hashed(servers, "$m2", 3, second.replace("m2", "m0") + second + first))
    wait_generation(one, 3)
    assert [get(one.port, f"/?y={number}").text for number in range(24)] == before
    text = one.error_log() + (one.dir / "stderr.txt").read_text()
    assert "panick" not in text and "exited on signal" not in text


def test_logs_are_reopened_after_a_reload(balancer, origin):
    servers = [origin()]
    one = balancer(hashed(servers, "$uri", 1))
    get(one.port, "/one")
    one.wait_log()
    for number in range(2, 4):
        one.reload(hashed(servers, "$uri", number))
        wait_generation(one, number)
    log = one.dir / "logs/access.log"
    log.rename(one.dir / "logs/access.log.1")
    one.notify(signal.SIGUSR1)
    wait_for(log.exists, what="the new file")

    def logged():
        get(one.port, "/two")
        return any("/two" in line for line in one.access_log())
    wait_for(logged, what="a line in the new file", step=0.05)
    old = len(one.access_log("access.log.1"))
    for _ in range(5):
        get(one.port, "/three")
    wait_for(lambda: sum("/three" in line for line in one.access_log()) == 5, what="five lines in the new file")
    assert len(one.access_log("access.log.1")) == old, "the old file is still written"


def test_idle_connections_to_servers_that_left_are_closed(balancer):
    gate = threading.Event()

    def handle(request, connection):
        gate.wait(30)
        return answer("old")

    old, new = named(1, handle), named(1)
    text = "keepalive_timeout 5s; keepalive 16;"
    server = "server { listen 127.0.0.1:PORT; location / { proxy_pass http://group; } }"
    one = balancer(upstream(old, head=text) + server)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(get, one.port) for _ in range(4)]
        wait_for(lambda: old[0].in_flight == 4, what="four requests at the server")
        gate.set()
        assert [future.result().text for future in pending] == ["old"] * 4
    assert [connection.open for connection in old[0].connections] == [True] * 4
    one.reload(upstream(new, head=text) + server)
    wait_for(lambda: get(one.port).text == "0", what="the new server")
    wait_for(lambda: not any(connection.open for connection in old[0].connections), 40,
             "the end of the old server's connections")

