"""Load reports of servers: agents, SNMP, response fields, programs."""

import os
import re
import shutil
import socket
import subprocess
import textwrap
import time

import pytest

from support.ask import ask, tally
from support.balancer import wait_for
from support.client import get
from support.expect import CHI_SQUARE, balanza_only, chi_square
from support.holding import fill, gated
from support.origin import Origin, answer, named, proxy
from support.ports import free_port
from support.snmp import Snmpd

pytestmark = balanza_only("has no load reports")


class Agent(Origin):
    """Sends a line to each client, as HAProxy's agents do."""

    def __init__(self, line, **options):
        self.line = line
        self.asked = 0
        super().__init__(self.say, raw=True, **options)

    def say(self, connection):
        self.asked += 1
        if self.line is not None:
            connection.send(self.line)
        else:
            time.sleep(5)
        connection.close()


def agents(*lines):
    return [Agent(line) for line in lines]


def reporting(ports, more=("", "", "")):
    return [f"report=127.0.0.1:{agent.port} {text}" for agent, text in zip(ports, more, strict=False)]


def heard(one, servers, hosts=()):
    """Waits until this many servers have reported, and what the agents of these hosts said is in effect."""
    # A server whose report was late is logged again, so servers are counted, not lines.
    wait_for(lambda: len(set(re.findall(r'load report of ("[^"]+").*: heard', one.error_log()))) == servers, what="the first reports")
    # A report is logged just before it takes effect. The agent is asked again only afterwards.
    asked = [host.asked for host in hosts]
    wait_for(lambda: all(host.asked > before for host, before in zip(hosts, asked, strict=True)), what="other questions")


AGENT = "load_report agent port=1 interval=100ms;"
PATIENT = AGENT.replace(";", " stale=1000;")


def test_weights_of_agents(balancer):
    hosts = agents("100%\n", "50%\n", "weight:2\n")
    servers = named(3)
    one = balancer(proxy(servers, head=f"random; {AGENT}", parameters=reporting(hosts, ["", "", "weight=4"])))
    heard(one, 3)
    # 1, 1/2, and 2 instead of 4. While agents are late, the configured weights apply, so the test tries several times.
    wait_for(lambda: chi_square(tally(ask(one, 1400), 3), [2, 1, 4]) < CHI_SQUARE[2], what="shares of 2:1:4")
    hosts[0].line = "0%\n"
    wait_for(lambda: tally(ask(one, 60), 3)[0] == 0, what="nothing new at 0%")


@pytest.mark.parametrize("method", ["", "least_conn;", "hash $request_uri;", "balance maglev key=$request_uri;"])
def test_an_agent_drains_and_stops_its_server(balancer, method):
    hosts = agents("up ready 100%\n", "up ready\n", "up\n")
    servers = named(3)
    one = balancer(proxy(servers, head=f"{method} {PATIENT}", parameters=reporting(hosts)))

    def spread(condition, what):
        wait_for(lambda: condition(tally([get(one.port, f"/{n}").text for n in range(60)], 3)), what=what)

    spread(lambda counts: all(counts), "all of them")
    for word in ("drain\n", "maint\n", "down #out of memory\n", "FAIL\r\n", "stopped"):
        hosts[1].line = word
        spread(lambda counts: counts[1] == 0 and counts[0] and counts[2], f"nothing after {word!r}")
        hosts[1].line = "ready up\n"
        spread(lambda counts: all(counts), f"the end of {word!r}")
    log = one.error_log()
    assert "the server is down: out of memory" in log and "the server is draining" in log
    assert log.count("the server is down: out of memory") == 1, "one line for each change, not for each report"


def test_an_agent_limits_requests_in_flight(balancer):
    hosts = agents("maxconn:2\n", "maxconn:3,100%\n")
    servers = gated(2)
    one = balancer(proxy(servers[0], head=PATIENT, parameters=reporting(hosts)))
    heard(one, 2, hosts)
    assert fill(one, servers, [2, 3], 20) == [200] * 5 + [502] * 15


class HAProxy:
    """HAProxy with two servers of weight 4, the first with an agent."""

    def __init__(self, servers, agent, directory):
        self.port = free_port()
        config = directory / "haproxy.cfg"
        config.write_text(textwrap.dedent(f"""
            defaults
              mode http
              timeout connect 20s
              timeout client 60s
              timeout server 60s
              timeout check 10s
            listen all
              bind 127.0.0.1:{self.port}
              server a {servers[0].server} weight 4 agent-check agent-port {agent.port} agent-inter 100ms
              server b {servers[1].server} weight 4
            """))
        self.process = subprocess.Popen([shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", str(config)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.timeout(180)
def test_agents_mean_what_they_mean_to_haproxy(balancer, open_dir):
    """Agents send the same lines to both balancers, one after the other: the servers get the same shares."""
    servers = named(2)
    # Each balancer has its own agent, so that the test sees how often each one has asked.
    agent, theirs_too, whole = agents("100%\n", "100%\n", "100%\n")
    # Reports do not become stale, because HAProxy has no such limit.
    one = balancer(proxy(servers, head=AGENT.replace(";", " stale=1000;"),
                         parameters=reporting([agent, whole], ["weight=4", "weight=4"])))
    other = HAProxy(servers, theirs_too, open_dir)

    def share(balancer):
        return tally(ask(balancer, 80), 2)[0] / 80

    try:
        wait_for(lambda: not socket.socket().connect_ex(("127.0.0.1", other.port)), what="HAProxy")
        for line in ("50%", "maxconn:100", "drain", "75%", "ready", "maint", "up", "ready", "down #why", "ready", "25%",
                     "up", "75%,drain", "READY 100%", "nonsense 50%", "4", "0%", "up ready 100%", "stopped", "fail",
                     "up\r", "50% # maint"):
            asked = agent.asked, theirs_too.asked
            agent.line = theirs_too.line = line + "\n"
            # When a balancer asks a second time, it has applied the first answer.
            wait_for(lambda: agent.asked >= asked[0] + 3 and theirs_too.asked >= asked[1] + 3,  # noqa: B023
                     what="questions")
            # Not all workers may have applied it yet, so the test tries several times.
            wait_for(lambda: abs(share(one) - share(other)) < 0.12, what=f"the same share after {line!r}")  # noqa: B023
    finally:
        other.stop()


def test_what_is_stale_does_not_hold(balancer):
    hosts = agents("0%\n", "100%\n")
    servers = named(2)
    one = balancer(proxy(servers, head=AGENT, parameters=reporting(hosts)))
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="0%")
    hosts[0].stop()
    wait_for(lambda: tally(ask(one, 20), 2) == [10, 10], what="the configured weights")
    one.wait_error(r"connect\(\) failed \(111: Connection refused\)")
    one.wait_error("no load report for too long")
    log = one.error_log()
    assert log.count("connect() failed (111: Connection refused)") == 1, "written once"
    hosts[0].listen()
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="0% again")


def test_a_server_in_maintenance_stays_there_without_its_agent(balancer):
    hosts = agents("maint\n", "100%\n")
    one = balancer(proxy(named(2), head=AGENT, parameters=reporting(hosts)))
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="maintenance")
    hosts[0].stop()
    one.wait_error("no load report for too long")
    assert tally(ask(one, 20), 2) == [0, 20]


def test_reports_survive_a_reload_and_end_with_their_directive(balancer):
    hosts = agents("drain\n", "25%\n")
    servers = named(2)
    with_reports = proxy(servers, head=PATIENT, parameters=reporting(hosts))
    one = balancer(with_reports)
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the agent's word")
    one.reload(with_reports.replace("location /", "location /x { return 204; } location /"))
    wait_for(lambda: get(one.port, "/x").status == 204, what="the reload")
    assert tally(ask(one, 20), 2) == [0, 20]
    one.reload(proxy(servers))
    wait_for(lambda: tally(ask(one, 20), 2) == [10, 10], what="no reports")

    def is_left_alone():
        asked = hosts[0].asked
        time.sleep(0.5)
        return hosts[0].asked == asked

    wait_for(is_left_alone, what="the end of the questions")


def test_agents_that_make_no_sense(balancer):
    hosts = agents("it is 5 o'clock\n", None, "100%\n")
    servers = named(3)
    one = balancer(proxy(servers, head=AGENT.replace("100ms", "1s"), parameters=reporting(hosts)))
    one.wait_error("unknown word")
    one.wait_error("no answer in time")
    assert tally(ask(one, 30), 3) == [10, 10, 10]
    asked = hosts[0].asked
    wait_for(lambda: hosts[0].asked >= asked + 2, what="more questions")
    log = one.error_log()
    # What an agent says is written again if it was late in between.
    late = [log.count(f"agent at 127.0.0.1:{host.port}: no answer in time") for host in hosts]
    assert late[1] == 1 and 1 <= log.count("unknown word") <= 1 + late[0], log


def test_what_is_sent_to_an_agent(balancer):
    agent = Agent("100%\n")
    heard = []
    agent.handler = lambda connection: (heard.append(connection.reader.until(b"\n")), agent.say(connection))
    balancer(proxy(named(2), head='load_report agent port=1 interval=100ms "send=status\\n";',
                   parameters=reporting([agent, agent])))
    wait_for(lambda: heard, what="a question")
    assert heard[0] == b"status\n"


def test_loads_by_snmp(balancer):
    with Snmpd("0.90") as busy, Snmpd("0.10") as idle:
        servers = named(2)
        parameters = [f"report=127.0.0.1:{one.port}" for one in (busy, idle)]
        one = balancer(proxy(servers, head="balance least_load session_weight=1; load_report snmp interval=200ms;",
                             parameters=parameters))
        wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads")
        # An agent may have been asked before it was ready, which is logged too.
        before = one.error_log().count("cannot be reached")
        idle.kill()
        busy.kill()
        # Without loads, the numbers of connections decide.
        wait_for(lambda: tally(ask(one, 20), 2) == [10, 10], what="the loads to be stale")
        # The tie begins when the first load is stale. An agent that was killed during a query first has "no answer in time".
        wait_for(lambda: one.error_log().count("cannot be reached") - before >= 2, what="both messages")
        assert one.error_log().count("cannot be reached") - before == 2, "once for each agent"
        idle.start()
        busy.start()
        wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads again")


def test_loads_by_snmp_are_shares_of_other_algorithms(balancer):
    with Snmpd("3.0") as busy, Snmpd("1.0") as idle:
        parameters = [f"report=127.0.0.1:{one.port}" for one in (busy, idle)]
        one = balancer(proxy(named(2), head="random; load_report snmp interval=200ms full=4 stale=1000;",
                             parameters=parameters))
        heard(one, 2)
        # A quarter of the first server's capacity is free, and three quarters of the second one's. A report is logged just before
        # it takes effect.
        wait_for(lambda: chi_square(tally(ask(one, 800), 2), [1, 3]) < CHI_SQUARE[1], what="shares of 1:3")


def test_the_machines_own_load(balancer):
    with Snmpd() as snmpd:
        loads = [os.getloadavg()[0]]
        one = balancer(proxy(named(2), parameters=[f"report=127.0.0.1:{snmpd.port}"] * 2,
                             head="balance least_load session_weight=10; load_report snmp interval=100ms full=1 stale=1000;",
                             http='log_format why "$upstream_pick_reason"; access_log logs/why.log why;'))
        heard(one, 2)

        def is_reported():
            ask(one, 2)
            score = float(one.wait_log(1, "why.log")[-1].split("score=")[1].split()[0])
            loads.append(os.getloadavg()[0])
            # The request adds a tenth. The kernel and snmpd update the load only at intervals.
            return min(loads) - 1.0 < score - 0.1 < max(loads) + 1.0

        # Other programs may change the load between the two measurements.
        wait_for(is_reported, what="the machine's load", step=0.2)


@pytest.mark.parametrize("lines, community, more, message", [
    ((), "secret", "", "no answer in time"),
    ((), "public", "oid=1.3.6.1.4.1.2021.10.1.3.9", "not a number"),
    (('override 1.3.6.1.4.1.2021.10.1.3.1 octet_str "high"',), "public", "", "not a number"),
])
def test_snmp_agents_of_no_use(balancer, lines, community, more, message):
    with Snmpd(lines=lines, community=community) as snmpd:
        one = balancer(proxy(named(2), parameters=[f"report=127.0.0.1:{snmpd.port}"] * 2,
                             head="balance least_load session_weight=1; "
                                  f"load_report snmp interval=200ms timeout=100ms {more};"))
        one.wait_error(message)
        assert all(tally(ask(one, 20), 2))


def test_a_community_and_an_integer(balancer):
    lines = ("override 1.3.6.1.4.1.2021.10.1.5.1 integer 80",)
    with Snmpd(lines=lines, community="secret") as busy, Snmpd(
            lines=(lines[0].replace("80", "20"),), community="secret") as idle:
        parameters = [f"report=127.0.0.1:{one.port}" for one in (busy, idle)]
        one = balancer(proxy(named(2), parameters=parameters, head=(
            "balance least_load session_weight=1; load_report snmp interval=200ms community=secret "
            "oid=1.3.6.1.4.1.2021.10.1.5.1 full=100;")))
        wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads")


def loaded(loads):
    """Servers that send their load in each response; `loads` may change."""
    def server(index):
        def handle(request, connection):
            fields = [] if loads[index] is None else [("X-Load", loads[index])]
            return answer(str(index), headers=fields)
        return Origin(handle)
    return [server(index) for index in range(len(loads))]


def test_loads_in_responses(balancer):
    loads = ["80", "20"]
    servers = loaded(loads)
    # These loads do not depend on the requests.
    one = balancer(proxy(servers, head=(
        "balance least_load session_weight=1; load_report header X-Load full=100 stale_after=5s;")))
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads")
    assert get(one.port)["X-Load"] in loads, "the client receives the field"
    loads[1] = "95"
    wait_for(lambda: tally(ask(one, 20), 2) == [20, 0], what="the other way round")
    loads[:] = [None, "nonsense"]
    wait_for(lambda: all(tally(ask(one, 20), 2)), what="the loads to be stale")


def test_loads_in_responses_are_shares_of_other_algorithms(balancer):
    servers = loaded(["75", "25"])
    one = balancer(proxy(servers, head="random; load_report header x-load full=100 stale_after=10s;"))
    # Enough requests that each server gets at least one.
    ask(one, 60)
    heard(one, 2)
    wait_for(lambda: chi_square(tally(ask(one, 800), 2), [1, 3]) < CHI_SQUARE[1], what="shares of 1:3")


def program(one_dir, text, name="program.py"):
    path = one_dir / name
    path.write_text(textwrap.dedent(text))
    return path


def test_loads_of_a_program(balancer, open_dir):
    servers = named(2)
    state = open_dir / "state"
    state.write_text("0.9 0.1")
    path = program(open_dir, f"""
        import sys
        for line in sys.stdin:
            loads = open({str(state)!r}).read().split()
            for server, load in zip({[server.server for server in servers]!r}, loads):
                print(server, load, flush=True)
        """)
    one = balancer(proxy(servers, head=(
        f'balance least_load session_weight=1; load_report program "python3 {path}" interval=100ms stale=50;')))
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads")
    state.write_text("0.2 0.7")
    wait_for(lambda: tally(ask(one, 20), 2) == [20, 0], what="other loads")
    # The words of agents are accepted too.
    state.write_text("drain 100%")
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="words")


def test_a_program_that_dies_is_started_again(balancer, open_dir):
    servers = named(2)
    path = program(open_dir, f"""
        import os, sys, time
        open({str(open_dir / "pids")!r}, "a").write(f"{{os.getpid()}}\\n")
        while True:
            print("{servers[0].server} 0.9", flush=True)
            print("{servers[1].server} 0.1", flush=True)
            time.sleep(0.05)
        """)
    one = balancer(proxy(servers, head=(
        f'balance least_load session_weight=1; load_report program "python3 {path}" interval=100ms stale=50;')),
        workers=2)
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads")
    pids = (open_dir / "pids").read_text().split()
    assert len(pids) == 1, "one program for the process, not for each worker"
    os.kill(int(pids[0]), 9)
    wait_for(lambda: len((open_dir / "pids").read_text().split()) == 2, what="another start")
    one.wait_error("signal: 9|SIGKILL|its output ended")
    wait_for(lambda: tally(ask(one, 20), 2) == [0, 20], what="the loads again")
    second = int((open_dir / "pids").read_text().split()[1])
    one.stop()
    wait_for(lambda: not os.path.exists(f"/proc/{second}"), what="the program to end with the balancer")


def test_programs_that_say_nothing_or_nonsense(balancer, open_dir):
    servers = named(2)
    path = program(open_dir, "import sys\nfor line in sys.stdin: pass")
    head = 'balance least_load; load_report program "python3 {}" interval={} timeout={};'
    one = balancer(proxy(servers, head=head.format(path, "200ms", "50ms")))
    one.wait_error("load report program: no report within 50ms")
    path = program(open_dir, """
        import sys
        for line in sys.stdin:
            print("nobody 0.5", flush=True)
            print("127.0.0.1", flush=True)
        """, "nonsense.py")
    two = balancer(proxy(servers, head=head.format(path, "1s", "1s")))
    two.wait_error('load report program: "nobody 0.5" is not "SERVER LOAD"')
    time.sleep(2.2)
    # Logged once, although it happens each time.
    assert one.error_log().count("load report program") == 1
    assert two.error_log().count('load report program: "nobody 0.5"') == 1
    assert tally(ask(two, 20), 2) == [10, 10]
