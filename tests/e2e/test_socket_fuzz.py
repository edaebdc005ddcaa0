"""Garbled traffic from clients and from servers: no answer may go to another request, and the balancer must live.

SOCKET_FUZZ_SECONDS is how long it runs (60). The seed is printed; SOCKET_FUZZ_SEED and SOCKET_FUZZ_FIRST (the number of a
connection) repeat what was sent.
"""

import os
import random
import re
import socket
import threading

import pytest

from support.balancer import children
from support.client import get
from support.expect import balanza_only
from support.messages import Ended, Reader, read_response
from support.origin import answer, named
from support.wire_fuzz import Foreign, Fuzz, Servers, ids, make_id, mutate

SECONDS = float(os.environ.get("SOCKET_FUZZ_SECONDS", 60))
SEED = os.environ.get("SOCKET_FUZZ_SEED") or f"{random.SystemRandom().getrandbits(48):012x}"
FIRST = int(os.environ.get("SOCKET_FUZZ_FIRST", 0))


@pytest.fixture
def servers():
    one = Servers(SEED)
    yield one
    one.stop()


@balanza_only("answers some ambiguous requests")
@pytest.mark.timeout(SECONDS + 180)
def test_no_answer_goes_to_another_request(balancer, servers):
    print(f"repeat with SOCKET_FUZZ_SEED={SEED} SOCKET_FUZZ_FIRST=<connection>")
    good = named(1, answer("alive"))[0]
    one = balancer(f"""
        # Garbled answers end connections; a POST on a connection that ends just then is not repeated.
        upstream intact {{ server 127.0.0.1:{servers.port} max_fails=0; keepalive 8; }}
        upstream garbled {{ server 127.0.0.1:{servers.port} max_fails=0; keepalive 8; }}
        proxy_read_timeout 500ms;
        server {{
            listen 127.0.0.1:PORT;
            location / {{ proxy_pass http://garbled; }}
            location /intact/ {{ proxy_pass http://intact; proxy_read_timeout 30s; }}
            location /once/ {{ proxy_pass http://garbled; proxy_set_header Connection close; }}
            location /alive {{ proxy_pass http://{good.server}; }}
        }}""", workers=2, access_log=False)
    processes = children(one.process.pid)
    fuzz = Fuzz(one.port, SEED)
    connections = fuzz.run(SECONDS, FIRST)
    print(f"{connections} connections, {fuzz.garbled} with a broken request, {fuzz.answers} answers to intact requests, "
          f"{servers.served} requests at the servers")
    assert get(one.port, "/alive").text == "alive"
    assert children(one.process.pid) == processes, "a process has ended"
    assert not re.search(r"panic|\[alert\]|\[emerg\]", one.error_log() + (one.dir / "stderr.txt").read_text())
    assert fuzz.garbled > SECONDS and fuzz.answers > SECONDS, "the machine did next to nothing"


# That it finds what it is for: relays with one mistake each, and nothing else between client and server.

class Relay:
    """Passes requests to one kept connection for each of its clients' threads, or to one for all."""

    def __init__(self, server, mistake):
        self.server, self.mistake, self.count = server, mistake, 0
        self.lock = threading.Lock()
        self.upstream = None
        self.last = b""
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        reader = Reader(sock)
        sock.settimeout(1)
        with sock:
            try:
                while head := reader.until(b"\r\n\r\n"):
                    length = re.search(rb"\r\nContent-Length: (\d+)\r\n", head)
                    # None of the relays knows more of framing than this.
                    if b"chunked" in head.lower():
                        body = reader.until(b"0\r\n\r\n") if b"X-Trailer" not in bytes(reader.buffer) else None
                        if body is None:
                            return
                    else:
                        body = reader.exactly(int(length[1])) if length else b""
                    sock.sendall(self._pass(head + body, head.split(b" ")[0].decode("latin-1")))
            except (OSError, Ended, ValueError, AssertionError, IndexError):
                return

    def _pass(self, data, method):
        with self.lock:
            self.count += 1
            try:
                if self.upstream is None:
                    self.upstream = Reader(socket.create_connection(("127.0.0.1", self.server), 1))
                if self.mistake != "keeps what is left over":
                    self.upstream.buffer.clear()
                self.upstream.sock.sendall(data)
                self.upstream.seen.clear()
                answered = read_response(self.upstream, method)
                if answered is None:
                    raise OSError
                whole = bytes(self.upstream.seen)
                if answered.framing == "close" or answered["Connection"] == "close":
                    self.upstream = None
            except (OSError, Ended, ValueError, AssertionError, IndexError):
                self.upstream = None
                raise OSError from None
            whole, self.last = (self.last, whole) if self.mistake == "mixes up" and self.count % 10 == 0 else (whole, whole)
            if self.mistake == "changes a byte" and self.count % 10 == 0:
                whole = whole[:-1] + b"!"
            return whole


@pytest.mark.parametrize("mistake", ["mixes up", "changes a byte", "keeps what is left over"])
def test_a_mistake_is_found(servers, mistake):
    relay = Relay(servers.port, mistake)
    with pytest.raises(Foreign):
        Fuzz(relay.port, SEED).run(30)
    relay.listener.close()


def test_ids_and_mutations():
    one = make_id("seed", 7, 3)
    assert ids("seed", b"xx%syy" % one) == [(7, 3)]
    assert ids("other", one) == []
    rng = random.Random(1)
    changed = [mutate(rng, one) for _ in range(2000)]
    assert sum(other != one for other in changed) > 1900
    # What is still valid is the same id: no mutation makes another one.
    assert {found for other in changed for found in ids("seed", other)} == {(7, 3)}
    assert mutate(random.Random(5), one) == mutate(random.Random(5), one), "the seed decides"
