"""Names that change: `resolver`, `server … resolve`, `service=`, hosts in variables."""

import collections
import concurrent.futures
import time

import pytest

from support.balancer import wait_for
from support.client import Client, get
from support.dns import NameServer
from support.expect import balanza_only
from support.members import SERVER, seen
from support.origin import Origin, answer
from support.ports import free_port
from support.stream import Streaming, TcpServer


def farm(count):
    """Servers on one port of 127.0.0.1, 127.0.0.2 and so on; each answers with the last byte of its address."""
    port = free_port()
    return [Origin(answer(str(last)), port=port, address=f"127.0.0.{last}") for last in range(1, count + 1)], port


def upstream(port, parameters="", *, name="app.example", inside="zone app 64k;"):
    return f"upstream app {{ {inside} server {name}{port and f':{port}'} resolve {parameters}; }}\n"


def is_known(one):
    """Waits until the name has addresses: a start waits no longer than a second."""
    wait_for(lambda: get(one.port).status == 200, what="the first addresses")


@balanza_only("resolve is newer than the reference")
def test_servers_come_and_go_with_their_name(balancer):
    _, port = farm(3)
    with NameServer({"app.example": ["127.0.0.1", "127.0.0.2"]}) as dns:

        def started():
            one = balancer(f"resolver {dns.address} ipv6=off;\n{upstream(port)}{SERVER}")
            return seen(one) == {"1": 6, "2": 6} and one

        # A start waits a second for the first answer, which may take longer on a busy machine.
        one = wait_for(started, what="a start whose first request has servers")
        dns.set({"app.example": ["127.0.0.3", "127.0.0.2"]})
        wait_for(lambda: set(seen(one)) == {"2", "3"}, what="the new address")
        assert seen(one) == {"2": 6, "3": 6}
        # The last good answer stays when the name server is gone, through a reload as well.
        dns.kill()
        one.reload(f"resolver {dns.address} ipv6=off;\n{upstream(port, 'weight=2')}{SERVER}")
        wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
        for _ in range(3):
            assert set(seen(one)) == {"2", "3"}
            time.sleep(0.7)


@balanza_only("resolve is newer than the reference")
def test_requests_are_not_lost_while_servers_change(balancer):
    _, port = farm(3)
    pairs = [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.3"], ["127.0.0.3", "127.0.0.1"]]
    with NameServer({"app.example": pairs[0]}) as dns:
        limits = "keepalive_requests 10000000; keepalive_time 1h;"
        one = balancer(f"{limits} resolver {dns.address} ipv6=off;\n{upstream(port)}{SERVER}", workers=2)
        is_known(one)
        over = False

        def ask_on():
            statuses, servers = collections.Counter(), set()
            with Client(one.port) as client:
                while not over:
                    response = client.get("/")
                    statuses[response.status] += 1
                    servers.add(response.text)
            return statuses, servers

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(ask_on) for _ in range(4)]
            for pair in [*pairs[1:], pairs[0]]:
                dns.set({"app.example": pair})
                wait_for(lambda: set(seen(one)) == {address[-1] for address in pair}, what=f"{pair}")
            over = True
            results = [future.result() for future in running]
        assert sum((statuses for statuses, _ in results), collections.Counter()).keys() == {200}
        assert set().union(*(servers for _, servers in results)) == {"1", "2", "3"}


@balanza_only("resolve is newer than the reference")
def test_a_name_without_addresses_gets_502_until_it_has_some(balancer):
    _, port = farm(1)
    with NameServer({"other.example": ["127.0.0.1"]}) as dns:
        one = balancer(f"resolver {dns.address} ipv6=off;\n{upstream(port)}{SERVER}")
        assert get(one.port, "/").status == 502
        one.wait_error(r"app\.example could not be resolved \(3: Host not found\)")
        dns.set({"app.example": ["127.0.0.1"]})
        wait_for(lambda: get(one.port, "/").status == 200, what="the address")
        # A name that is taken away has no servers, as in NGINX.
        dns.set({"other.example": ["127.0.0.1"]})
        wait_for(lambda: get(one.port, "/").status == 502, what="the end of the name")


@balanza_only("resolve is newer than the reference")
def test_services_have_ports_weights_and_backups(balancer):
    servers = [Origin(answer(str(index))) for index in range(3)]
    services = [f"_http._tcp.app.example,s{index}.example,{server.port},{priority},{weight}"
                for index, (server, priority, weight) in enumerate(zip(servers, (1, 1, 2), (3, 1, 1)))]
    services.append(f"_http._tcp.app.example,gone.example,{servers[2].port},0,1")
    names = {f"s{index}.example": ["127.0.0.1"] for index in range(3)}
    with NameServer(names, services=services) as dns:
        one = balancer(f"resolver {dns.address} ipv6=off;\n{upstream('', 'service=http max_fails=0')}{SERVER}")
        # A priority without addresses does not count.
        wait_for(lambda: seen(one) == {"0": 9, "1": 3}, what="the shares by weight")
        one.wait_error(r"gone\.example could not be resolved \(3: Host not found\) while resolving service http of app\.example")
        servers[0].stop()
        servers[1].stop()
        assert seen(one, 4) == {"2": 4}


@balanza_only("the upstream's own resolver is newer than the reference")
def test_an_upstream_has_its_own_resolver(balancer):
    _, port = farm(2)
    with NameServer({"app.example": ["127.0.0.1"]}) as outer, NameServer({"app.example": ["127.0.0.2"]}) as inner:
        own = f"zone app 64k; resolver {inner.address} valid=1s ipv6=off; resolver_timeout 5s;"
        one = balancer(f"resolver {outer.address} ipv6=off;\n{upstream(port, inside=own)}{SERVER}")
        is_known(one)
        assert seen(one, 4) == {"2": 4}


@balanza_only("resolve is newer than the reference")
@pytest.mark.parametrize(("method", "others"), [("hash $arg_key consistent", 0), ("balance maglev key=$arg_key", 0.1)])
def test_hashing_moves_only_the_keys_of_an_address_that_goes(balancer, method, others):
    """Maglev moves a few more: its table gives places of the others away while it is filled."""
    _, port = farm(4)
    with NameServer({"app.example": [f"127.0.0.{last}" for last in (1, 2, 3, 4)]}) as dns:
        inside = f"zone app 64k; {method};"
        one = balancer(f"resolver {dns.address} ipv6=off;\n{upstream(port, inside=inside)}{SERVER}")
        is_known(one)
        keys = range(120)
        before = [get(one.port, f"/?key={key}").text for key in keys]
        assert set(before) == {"1", "2", "3", "4"}
        dns.set({"app.example": [f"127.0.0.{last}" for last in (1, 2, 3)]})
        gone = before.index("4")
        wait_for(lambda: get(one.port, f"/?key={gone}").text != "4", what="three servers")
        now = [get(one.port, f"/?key={key}").text for key in keys]
        moved = sum(then != "4" and then != here for then, here in zip(before, now))
        assert "4" not in now and moved <= others * len(keys), moved


def test_hosts_in_variables(balancer):
    _, port = farm(2)
    with NameServer({"app.example": ["127.0.0.1", "127.0.0.2"]}, ttl=60) as dns:
        one = balancer(f"""resolver {dns.address} ipv6=off;
server {{
 listen 127.0.0.1:PORT;
 location / {{ proxy_pass http://$arg_host:{port}; }}
 location /none/ {{ resolver 127.0.0.1:{free_port()}; resolver_timeout 1s; proxy_pass http://$arg_host:{port}; }}
}}
server {{ listen 127.0.0.1:PORT; server_name other; }}
""")
        assert get(one.port, "/?host=app.example").status == 200
        # A question is repeated if there is no answer for two seconds. NGINX chooses an address at random.
        asked = dns.asked("app.example")
        assert set(seen(one, 24, "/?host=app.example")) == {"1", "2"}
        assert dns.asked("app.example") == asked >= 1, "the answer is kept"
        assert get(one.port, "/?host=no.example").status == 502
        assert "no.example could not be resolved (3: Host not found)" in one.error_log()
        assert get(one.port, "/none/?host=app.example").status == 502
        assert "app.example could not be resolved (110: Operation timed out)" in one.error_log()


def test_a_host_that_refuses_is_followed_by_the_next_address(balancer):
    servers, port = farm(2)
    with NameServer({"app.example": ["127.0.0.1", "127.0.0.2"]}) as dns:
        servers[0].stop()
        one = balancer(f"""resolver {dns.address} ipv6=off;
server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://$arg_host:{port}; }} }}""")
        assert seen(one, 6, "/?host=app.example") == {"2": 6}


def test_a_host_in_a_variable_without_a_resolver(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; location / { proxy_pass http://$arg_host:80; } }")
    assert get(one.port, "/?host=app.example").status == 502
    assert "no resolver defined to resolve app.example" in one.error_log()


@balanza_only("system is Balanza's own word")
def test_the_name_servers_of_the_system(balancer):
    one = balancer("resolver system;\nserver { listen 127.0.0.1:PORT; location / { return 204; } }")
    assert get(one.port, "/").status == 204


@balanza_only("resolve is newer than the reference")
def test_names_of_sessions():
    server = TcpServer("s")
    port = int(server.server.rsplit(":")[1])
    with NameServer({"app.example": ["127.0.0.1"]}) as dns:
        streaming = Streaming(f"""resolver {dns.address} ipv6=off;
upstream app {{ zone app 64k; server app.example:{port} resolve; }}
server {{ listen 127.0.0.1:SPORT; proxy_pass app; }}
""")
        wait_for(lambda: streaming.ask() == "s", what="the first address")
        server.stop()


@balanza_only("resolve is newer than the reference")
@pytest.mark.parametrize("count", [200])
def test_many_names_stay_known_and_bounded(balancer, count):
    _, port = farm(1)
    names = {f"n{index}.example": ["127.0.0.1"] for index in range(count)}
    with NameServer(names) as dns:
        servers = "\n".join(f"server {name}:{port} resolve;" for name in names)
        one = balancer(f"resolver {dns.address} ipv6=off;\nupstream app {{ zone app 64k;\n{servers}\n}}\n{SERVER}")
        is_known(one)
        assert seen(one, 20) == {"1": 20}
        # Each is asked for again and again.
        wait_for(lambda: all(dns.asked(name) >= 2 for name in ("n0.example", f"n{count - 1}.example")), what="answers")
        assert "could not be resolved" not in one.error_log()
