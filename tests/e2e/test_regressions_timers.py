"""Timers that once went wrong: lost ones, early ones, and work where there was only something to wait for."""

import concurrent.futures
import os
import select
import time

import pytest

from support.balancer import children, read, wait_for
from support.client import Client
from support.expect import balanza_only
from support.origin import answer, proxy

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

# A socket that lingers is there for longer than the tests wait for its end.
LINGERING = "lingering_timeout 60s; lingering_time 60s;"


def worker(one):
    """The process that serves."""
    return wait_for(lambda: children(one.process.pid), what="a worker")[0]


@pytest.mark.http1("reads the socket as the bytes come")
def test_read_timeout_after_a_long_relay(balancer, origin):
    """A busy relay, then silence: the timeout counts from there, for every one of several connections."""
    block = (b"10000\r\n" + bytes(65536) + b"\r\n") * 4

    def handle(connection):
        connection.reader.until(b"\r\n\r\n")
        connection.send(CHUNKED)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            connection.send(block)
        connection.reader.fill()

    one = balancer(proxy([origin(handle, raw=True)], location="proxy_read_timeout 1s;"))

    def silence(_):
        """Seconds between the last byte and the end; None when there was no end."""
        buffer = bytearray(1 << 20)
        with Client(one.port, timeout=15) as client:
            # A server that was too late to begin: 504, and the end all the same.
            client.request(headers=[("Connection", "close")])
            last = time.monotonic()
            try:
                while client.sock.recv_into(buffer):
                    last = time.monotonic()
            except TimeoutError:
                return None
            return time.monotonic() - last

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        quiet = list(pool.map(silence, range(6)))
    assert all(seconds is not None and seconds < 9 for seconds in quiet), quiet


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("leave", ["close", "reset"])
def test_client_leaves_an_event_stream(balancer, origin, before, leave, buffering):
    """Nothing is to be sent, and still it is seen at once, on the first request of a connection too."""
    def handle(request, connection):
        if request.target == "/before":
            return answer("x")
        connection.send(CHUNKED + b"5\r\nevent\r\n")
        connection.reader.fill()
        connection.close()
        return None

    server = origin(handle)
    one = balancer(proxy([server], location=f"proxy_read_timeout 60s; proxy_buffering {buffering};"))
    client = Client(one.port)
    for _ in range(before):
        assert client.get("/before").text == "x"
    client.request(target="/events")
    assert client.reader.until(b"event")
    getattr(client, leave)()
    wait_for(lambda: server.in_flight == 0, 20, "the end of the server's connection")
    assert server.errors == []


def work(pid):
    """What a process has used: seconds of processor time, and how often its threads went to sleep."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    sleeps = sum(int(line.split()[1]) for task in os.listdir(f"/proc/{pid}/task")
                 for line in read(f"/proc/{pid}/task/{task}/status").splitlines() if line.startswith("voluntary_ctxt_switches"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), sleeps


@pytest.mark.http1("reads the socket as the bytes come")
@pytest.mark.parametrize("source", ["file", "proxied", "proxy_limit_rate"])
def test_limited_downloads_cost_no_time(balancer, origin, source):
    rate = "proxy_limit_rate 100k;" if source == "proxy_limit_rate" else "limit_rate 100k;"
    one = balancer(proxy([origin(answer(bytes(10_000_000)))], location=rate,
                         server="location /file { alias html/big; limit_rate 100k; }"), start=False)
    (one.dir / "html/big").write_bytes(bytes(10_000_000))
    one.start()
    clients = [Client(one.port).request(target="/file" if source == "file" else "/") for _ in range(8)]
    sockets, pid = [client.sock for client in clients], worker(one)

    def read_for(seconds, least=0):
        """Reads for so long and until so much has come: the bytes and the seconds."""
        got, begin = 0, time.monotonic()
        while (passed := time.monotonic() - begin) < seconds or got < least:
            assert passed < 40, f"{got} bytes in {passed} s"
            for sock in select.select(sockets, [], [], max(seconds - passed, 0.1))[0]:
                got += len(sock.recv(1 << 20))
        return got, passed

    def is_quiet():
        before = work(pid)[0]
        # The rate is given out each second; what the server sends is read only between.
        got, _ = read_for(1.1)
        # A worker that the system stops uses no time and sends nothing.
        return got > 100_000 and work(pid)[0] - before < 0.05

    # The worker's start, and the server's bytes on their way into files, are no part of it.
    wait_for(is_quiet, what="the downloads to be under way")
    used, slept = work(pid)
    got, passed = read_for(2, 8 * 100_000)
    now_used, now_slept = work(pid)
    for client in clients:
        client.close()
    # Bytes that were delayed before this measurement arrive in it as well.
    assert got < 8 * 100_000 * (passed + 5), "the rate is kept"
    assert now_used - used < 0.1 * passed, f"{now_used - used} s of processor time in {passed} s"
    assert now_slept - slept < 150 * passed, f"woken {now_slept - slept} times in {passed} s"


@pytest.mark.parametrize("buffering", [
    pytest.param("on", marks=balanza_only("ends a buffered response although the client reads again")), "off"])
def test_send_timeout_counts_from_the_blocked_write(balancer, origin, buffering):
    """A server that is quiet for longer than send_timeout, then more than the client takes at once."""
    def handle(request, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 20000005\r\n\r\nfirst")
        time.sleep(5.3)
        connection.send(bytes(20_000_000))

    one = balancer(proxy([origin(handle)], server="send_timeout 5s;",
                         location=f"proxy_buffering {buffering}; proxy_max_temp_file_size 0;"))
    with Client(one.port, receive_buffer=200_000) as client:
        client.request(headers=[("Connection", "close")])
        assert client.reader.until(b"first")
        select.select([client.sock], [], [], 20)
        time.sleep(0.3)
        count = len(client.rest())
    assert count == 20_000_000


def sockets(one):
    """How many sockets the worker has open."""
    base, count = f"/proc/{worker(one)}/fd", 0
    for name in os.listdir(base):
        try:
            count += os.readlink(f"{base}/{name}").startswith("socket:")
        except FileNotFoundError:
            pass
    return count


def settled(one):
    """The same once it stays: the connection that found the worker ready may still be open."""
    # One that is served from its begin to its end: before it the worker may still be starting, with fewer sockets.
    with Client(one.port) as client:
        client.finish()
        client.rest()
    counts = [-1] * 25

    def steady():
        counts.append(sockets(one))
        return len(set(counts[-25:])) == 1

    wait_for(steady, what="the worker to be idle", step=0.02)
    return counts[-1]


@pytest.mark.parametrize("sent", [
    pytest.param("GET / HTTP/1.1\r\nHost: a\r\n", id="head"),
    pytest.param("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", id="body"),
])
def test_socket_of_a_slow_client_is_closed_at_once(balancer, origin, sent):
    one = balancer(proxy([origin()], server=f"client_header_timeout 2s; client_body_timeout 2s; {LINGERING}"))
    before = settled(one)
    with Client(one.port, timeout=15) as client:
        client.send(sent)
        client.rest()
        # Our end stays open: there is nobody to linger for.
        wait_for(lambda: sockets(one) == before, 20, "the end of the client's socket")
    assert " 408 " in one.wait_log()[0]


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("leave", ["close", "finish", "reset"])
def test_socket_of_a_client_that_left_in_its_body(balancer, origin, leave, buffering):
    one = balancer(proxy([origin()], server=LINGERING, location=f"proxy_request_buffering {buffering};"))
    before = settled(one)
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab")
        wait_for(lambda: sockets(one) > before, what="the connection")
        time.sleep(0.05)
        getattr(client, leave)()
        wait_for(lambda: sockets(one) == before, 20, "the end of the sockets")


@pytest.mark.parametrize("leave", ["close", "finish"])
def test_socket_of_a_client_that_left_is_closed_at_once(balancer, origin, leave):
    def handle(request, connection):
        connection.reader.fill()
        connection.close()

    server = origin(handle)
    one = balancer(proxy([server], server=LINGERING))
    before = settled(one)
    with Client(one.port) as client:
        client.request()
        wait_for(lambda: server.in_flight == 1, what="the request at the server")
        assert sockets(one) == before + 2
        getattr(client, leave)()
        wait_for(lambda: sockets(one) == before, 20, "the end of both sockets")
        assert " 499 " in one.wait_log()[0]
