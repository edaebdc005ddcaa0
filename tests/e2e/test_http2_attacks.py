"""HTTP/2 clients that attack: each attack ends its connection and costs little memory and processor time."""

import threading
import time

import h2.errors
import pytest

from support.balancer import processor_time
from support.client import Client
from support.expect import balanza_only
from support.http2 import Http2Client, Reset, get, proxied, server
from support.origin import Origin, answer

pytestmark = balanza_only("our limits")

CALM = h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def reason_of_the_end(sock):
    """The code of the GOAWAY that a connection ends with."""
    received = b""
    while piece := sock.recv(65_536):
        received += piece
    codes = []
    while received:
        length, kind = int.from_bytes(received[:3], "big"), received[3]
        if kind == 7:
            codes.append(int.from_bytes(received[13:17], "big"))
        received = received[9 + length:]
    return codes[-1]


class Cost:
    """What an attack costs the worker's processor, in ordinary requests over HTTP/1."""

    def __init__(self, one):
        self.one, [self.worker] = one, one.workers_alive()
        self.begun = processor_time(self.worker)

    def of_each(self, count):
        """Of each of so many frames, heads or requests since the beginning."""
        spent = processor_time(self.worker) - self.begun
        with Client(self.one.port) as client:
            begun = processor_time(self.worker)
            for _ in range(300):
                client.get()
            ordinary = (processor_time(self.worker) - begun) / 300
        return spent / count / ordinary


def test_a_head_without_end_ends_the_connection(balancer):
    """CONTINUATION frames without number, and a head that is small on the wire and large in memory."""
    one = balancer(server("return 200 ok;"))
    before, cost, sent = one.rss(), Cost(one), 0
    with Http2Client(one.port) as client:
        client.send_raw(frame(1, 0, 1, bytes([0x82, 0x86, 0x84])))
        piece = b"\x00\x01a\x7f\x81\x1d" + b"b" * 284
        try:
            for sent in range(200_000):
                client.send_raw(frame(9, 0, 1, piece))
        except (ConnectionResetError, BrokenPipeError):
            pass
        else:
            pytest.fail("58 MB of a head were read")
    assert cost.of_each(sent) < 1
    cost = Cost(one)
    with Http2Client(one.port) as client:
        # One field of 4,000 bytes in the table, and 16,000 names of it in each head.
        head, field = bytes([0x82, 0x86, 0x84]), b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000
        for stream in range(1, 41, 2):
            try:
                client.send_raw(frame(1, 5, stream, head + (field if stream == 1 else b"\xbe" * 16_000)))
            except (ConnectionResetError, BrokenPipeError):
                break
        client.sock.settimeout(1)
        try:
            while client.sock.recv(65_536):
                pass
        except (TimeoutError, ConnectionResetError):
            pass
    assert one.rss() - before < 32 << 20
    # Each of these heads would have 64 MB of fields.
    assert cost.of_each(20) < 20
    assert get(one.port).text == "ok"


@pytest.mark.parametrize("kind, payload", [(3, 8), (8, 0)], ids=["by the client", "by us, for an error of the client"])
def test_requests_that_are_given_up_at_once_end_the_connection(balancer, kind, payload):
    """Rapid reset: each costs the client little. A window that grows by nothing makes us reset the stream."""
    origin = Origin(lambda *_: time.sleep(0.2) or answer("ok"))
    one = balancer(proxied(origin))
    cost = Cost(one)
    with Http2Client(one.port, timeout=20) as client:
        head = bytes([0x82, 0x86, 0x84, 0x41, 0x01]) + b"a"
        try:
            for stream in range(1, 20_001, 2):
                client.send_raw(frame(1, 5, stream, head) + frame(kind, 0, stream, payload.to_bytes(4, "big")))
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert reason_of_the_end(client.sock) == CALM
    assert origin.count < 1000
    origin.handler = lambda *_: answer("ok")
    assert cost.of_each(stream // 2 + 1) < 1
    assert get(one.port).text == "ok"


@pytest.mark.parametrize("name, flood", [
    ("ping", frame(6, 0, 0, b"12345678") * 100),
    ("settings", frame(4, 0, 0) * 100),
    ("empty data", frame(0, 0, 1) * 100),
    ("priority", frame(2, 0, 3, b"\0\0\0\0\x10") * 100),
    ("unknown", frame(99, 0, 0, b"x" * 100) * 100),
])
def test_frames_without_content_end_the_connection(balancer, name, flood):
    one = balancer(proxied(Origin()))
    before, cost = one.rss(), Cost(one)
    with Http2Client(one.port, timeout=20) as client:
        client.request("POST", end=False, headers=[("content-length", "9")])
        stop = threading.Event()

        def read():
            try:
                while not stop.is_set() and client.sock.recv(65_536):
                    pass
            except OSError:
                pass
            stop.set()

        reader = threading.Thread(target=read)
        reader.start()
        sent = 0
        try:
            while sent < 64 << 20 and not stop.is_set():
                client.send_raw(flood)
                sent += len(flood)
        except (ConnectionResetError, BrokenPipeError):
            pass
        stop.set()
        client.close()
        reader.join(20)
    assert sent < 64 << 20
    assert one.rss() - before < 32 << 20
    assert cost.of_each(sent // len(flood) * 100) < 0.2
    assert get(one.port).text == "ok\n"


def test_clients_that_do_not_read_hold_little(balancer):
    """100 requests for large answers, and a window of nothing: memory is bounded and the streams end."""
    one = balancer("send_timeout 3s; " + server("root html;"))
    (one.dir / "html/file").write_bytes(bytes(1 << 20))
    get(one.port, "/file")
    before, cost = one.rss(), Cost(one)
    with Http2Client(one.port, window=0) as client:
        streams = [client.request(target="/file") for _ in range(100)]
        time.sleep(0.3)
        assert one.rss() - before < 16 << 20
        for stream in streams:
            with pytest.raises(Reset):
                client.response(stream)
    assert cost.of_each(100) < 30
    # And one that has all the windows it could want, and does not read from its socket.
    with Http2Client(one.port, window=(1 << 31) - 1) as client:
        client.h2.increment_flow_control_window((1 << 31) - 65_536)
        for _ in range(100):
            client.request(target="/file")
        time.sleep(0.3)
        assert one.rss() - before < 48 << 20
    assert get(one.port, "/file").status == 200
