"""Behaviour of name servers: silence, errors, answers over TCP, addresses of both families."""

import json
import os
import random
import socket
import urllib.request

import pytest

from support.balancer import ON_NGINX, wait_for
from support.client import get
from support.dns import NXDOMAIN, SERVFAIL, SILENCE, NameServer, Scripted
from support.members import SERVER, comes_to, seen
from support.origin import Origin, answer
from support.ports import free_port
from support.stream import Streaming, TcpServer

pytestmark = pytest.mark.skipif(ON_NGINX, reason="resolve is newer than NGINX 1.22")


def farm(*addresses):
    """Servers on one port; each responds with the last digit of its address."""
    port = free_port()
    return [Origin(answer(address[-1]), port=port, address=address) for address in addresses], port


API = "server { listen 127.0.0.2:PORT; location / { api; } }\n"


def shown(one, path):
    """The API's response."""
    with urllib.request.urlopen(f"http://127.0.0.2:{one.port}{path}", timeout=20) as response:
        return json.load(response)


def upstream(port, inside="zone app 64k;", parameters=""):
    return f"upstream app {{ {inside} server app.example:{port} resolve {parameters}; }}\n{SERVER}"


def test_addresses_that_cannot_be_asked_for_stay_while_others_change(balancer):
    _, port = farm("127.0.0.2", "127.0.0.3", "::1")
    a, aaaa = ("app.example", "A"), ("app.example", "AAAA")
    with Scripted({a: ["127.0.0.2"], aaaa: ["::1"]}) as dns:
        # Silence is to last for some seconds only.
        one = balancer(f"resolver {dns.address}; resolver_timeout 6s;\n{upstream(port)}{API}")
        comes_to(one, "21")
        dns.answers = {a: ["127.0.0.3"], aaaa: SERVFAIL}
        comes_to(one, "31")
        one.wait_error(r"some addresses of app\.example could not be asked for \(2: Server failure\)")
        # The query is repeated, but the failure is logged once.
        before = dns.asked[aaaa]
        wait_for(lambda: dns.asked[aaaa] > before, what="another question")
        assert set(seen(one)) == {"3", "1"}
        assert one.error_log().count("some addresses") == 1
        name = shown(one, "/balanza/http/upstreams/app/sources")["names"][0]
        assert name.pop("answered")
        assert name == {"name": "app.example", "servers": 2, "wrong": 0, "error": "2: Server failure"}
        # No query is answered, so all known addresses stay.
        dns.answers = {a: SERVFAIL, aaaa: SILENCE}
        one.wait_error(r"app\.example could not be resolved \(\d+: ")
        assert set(seen(one)) == {"3", "1"}
        dns.answers = {a: ["127.0.0.3"], aaaa: []}
        comes_to(one, "3")
        dns.answers = {a: NXDOMAIN, aaaa: NXDOMAIN}
        wait_for(lambda: get(one.port).status == 502, what="the end of the name")


def test_a_silent_name_server_is_passed_over_and_large_answers_come_by_tcp(balancer):
    _, port = farm("127.0.0.2", "127.0.0.3")
    answers = {("app.example", "A"): ["127.0.0.2", "127.0.0.3"]}
    with Scripted({("app.example", "A"): SILENCE}) as silent, Scripted(answers, truncated=["app.example"]) as good:
        one = balancer(f"resolver {silent.address} {good.address} ipv6=off;\n{upstream(port)}", workers=3)
        wait_for(lambda: set(seen(one, 4)) == {"2", "3"}, what="an answer of the other name server")
        # One thread queries both in rotation, for all workers.
        wait_for(lambda: silent.asked["app.example", "A"] and good.asked["app.example", "A"] >= 2, what="rotation")
        assert good.asked["app.example", "A"] + silent.asked["app.example", "A"] < 20


def test_without_any_name_server_there_are_no_servers_until_one_answers(balancer):
    _, port = farm("127.0.0.2")
    dead, late = free_port(), Scripted({("app.example", "A"): SILENCE})
    with late:
        # An address where nothing listens fails at once, a silent name server after `resolver_timeout`.
        settings = f"resolver 127.0.0.1:{dead} {late.address} ipv6=off; resolver_timeout 1s;"
        one = balancer(f"{settings}\n{upstream(port)}")
        assert get(one.port).status == 502
        one.wait_error(r"app\.example could not be resolved \(110: Operation timed out\)")
        late.answers = {("app.example", "A"): ["127.0.0.2"]}
        comes_to(one, "2")


def test_a_new_address_begins_slowly(balancer):
    _, port = farm("127.0.0.2", "127.0.0.3")
    a = ("app.example", "A")
    with Scripted({a: ["127.0.0.2"]}) as dns:

        def started():
            one = balancer(f"resolver {dns.address} ipv6=off;\n{upstream(port, parameters='slow_start=1h')}{API}")
            return seen(one, 4) == {"2": 4} and one

        # A start waits a second for the first addresses, which do not start slowly; later ones do.
        one = wait_for(started, what="a start with an address")
        dns.answers = {a: ["127.0.0.2", "127.0.0.3"]}
        wait_for(lambda: len(shown(one, "/9/http/upstreams/app")["peers"]) == 2, what="the new address")
        # Its full share would be 30 of 60.
        assert seen(one, 60)["3"] <= 18


def test_sessions_to_a_host_that_a_variable_names():
    servers = [TcpServer("a")]
    port = servers[0].port
    with Scripted({("127.0.0.1.example", "A"): ["127.0.0.1"], ("127.0.0.1.bad.example", "A"): SERVFAIL}, ttl=60) as dns:
        streaming = Streaming(f"""resolver {dns.address} ipv6=off; resolver_timeout 8s;
server {{ listen 127.0.0.1:SPORT; proxy_pass $remote_addr.example:{port}; }}
server {{ listen 127.0.0.2:SPORT; proxy_pass $remote_addr.bad.example:{port}; }}
server {{ listen 127.0.0.3:SPORT; proxy_pass $remote_addr.none.example:{port}; }}
""")

        def asked(address):
            with socket.create_connection((address, streaming.stream_port), 30, ("127.0.0.1", 0)) as sock:
                return sock.recv(100).decode()

        assert asked("127.0.0.1") == "a\n"
        # A question is repeated if there is no answer for two seconds.
        count = dns.asked["127.0.0.1.example", "A"]
        assert asked("127.0.0.1") == "a\n"
        assert dns.asked["127.0.0.1.example", "A"] == count >= 1, "the answer is cached"
        assert asked("127.0.0.2") == asked("127.0.0.3") == ""
        log = streaming.one.error_log()
        assert "127.0.0.1.bad.example could not be resolved (2: Server failure)" in log
        assert "127.0.0.1.none.example could not be resolved (3: Host not found)" in log


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace and port 53")
def test_the_name_servers_of_the_system_are_asked(balancer):
    """Uses another /etc/resolv.conf, in a separate mount namespace for the balancer."""
    _, port = farm("127.0.0.2")
    # Suites that run beside each other need addresses of their own.
    address = f"127.53.{random.randrange(256)}.{random.randrange(1, 255)}"
    with NameServer({"app.example": ["127.0.0.2"]}, listen=address, port=53) as dns:
        resolv = dns.dir / "resolv.conf"
        resolv.write_text("# a comment\nsearch example\nnameserver fe80::1%lo\nnameserver " + address + "\n")
        elsewhere = f"exec unshare -m sh -c 'mount --bind {resolv} /etc/resolv.conf && exec \"$@\"' sh \"$@\""
        one = balancer(f"resolver system ipv6=off;\n{upstream(port)}", limits=elsewhere)
        comes_to(one, "2")
