"""The runbook of docs/operations.md: each symptom is produced, and the page's commands show it and end it."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import time

import pytest

from support.balancer import ROOT, Balancer, binary, wait_for
from support.certificates import authority, certificate
from support.client import Client, get, get_if_room
from support.expect import balanza_only
from support.faketime import needs_faketime
from support.load import Load
from support.origin import answer
from support.ports import free_port

pytestmark = balanza_only("the runbook is Balanza's")

PAGE = (ROOT / "docs/operations.md").read_text()
RUNBOOK = PAGE.partition("\n## Runbook\n")[2].partition("\n## ")[0]
ALERTS = ROOT / "examples/alerts.yml"

# What the page says to copy.
LOG = re.search(r"^log_format runbook .*?;\naccess_log .*?;$", RUNBOOK, re.MULTILINE | re.DOTALL)[0]

HTTP = LOG + """
error_log logs/error.log info;
proxy_read_timeout READ;
upstream app { zone app 64k; SERVERS }
server {
    listen 127.0.0.1:PORT;
    location / { proxy_pass http://app; }
    location /api { api write=on; access_log off; }
    location /metrics { metrics; access_log off; }
    MORE
}
"""


def page_commands():
    """The lines of the chapter's blocks that are marked as `sh`."""
    blocks = re.findall(r"^```sh\n(.*?)^```", RUNBOOK, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


class Shop:
    """A balancer as the page has it: in its directory, with shop.conf and logs/balanza.pid."""

    def __init__(self, servers="", more="", read="5s", main="", **options):
        self.http = HTTP.replace("SERVERS", servers).replace("MORE", more).replace("READ", read)
        self.one = Balancer(self.http, main=main, **options)
        self.dir = self.one.dir
        self.link()

    def link(self):
        (self.dir / "shop.conf").symlink_to("nginx.conf")
        (self.dir / "logs/balanza.pid").symlink_to("../balancer.pid")
        (self.dir / "bin").mkdir()
        (self.dir / "bin/balanza").symlink_to(pathlib.Path(binary("balanza")).resolve())

    @property
    def port(self):
        return self.one.port

    def do(self, start, server="", code=0):
        """Runs the command of the page that begins with this, for this balancer and this server."""
        found = [line for line in page_commands() if line.startswith(start)]
        assert found, f"the page has no command that begins with {start}"
        text = found[0].replace("127.0.0.1:8080", f"127.0.0.1:{self.port}").replace("127.0.0.1:8001", server)
        environment = {name: value for name, value in os.environ.items() if name not in ("NGINX", "BALANZA")}
        environment["PATH"] = f"{self.dir}/bin:{environment['PATH']}"
        done = subprocess.run(["bash", "-c", text], cwd=self.dir, capture_output=True, text=True, timeout=60, env=environment)
        assert code is None or done.returncode == code, (text, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def lines(self, count):
        self.one.wait_log(count, "runbook.log")

    def metrics(self):
        return get(self.port, "/metrics").text


def by_server(text):
    """What the first awk line prints: requests, failures and mean by server."""
    rows = re.findall(r"^(\S+) +(\d+) requests +(\d+) failed +mean ([\d.]+)", text, re.MULTILINE)
    return {server: (int(requests), int(failed), float(mean)) for server, requests, failed, mean in rows}


SERVERS_LINE = "awk -F'\"' '{n=split("
STATUS_LINE = "awk -F'\"' '{split($1,h"


def test_one_server_is_slow(origin):
    def slow(_request, _connection):
        time.sleep(0.5)
        return answer("slow")

    bad, good = origin(slow), origin(lambda _request, _connection: answer("good"))
    names = [f"127.0.0.1:{server.port}" for server in (bad, good)]
    shop = Shop("".join(f"server {name};" for name in names))
    for _ in range(10):
        get(shop.port)
    shop.lines(10)
    rows = by_server(shop.do(SERVERS_LINE))
    assert rows[names[0]][0] == rows[names[1]][0] == 5
    assert rows[names[0]][2] >= 0.5 > rows[names[1]][2], rows
    assert names[0] in shop.do("balanza status app")
    assert "draining" in shop.do("balanza drain app", names[0])
    assert {get(shop.port).text for _ in range(5)} == {"good"}
    assert " up " in shop.do("balanza undrain app", names[0])
    shop.do("balanza set-weight app", names[0])
    assert {get(shop.port).text for _ in range(4)} == {"good", "slow"}


def test_everything_is_502_504_or_503(origin):
    # Refused: no server accepts connections.
    refused = Shop(f"server 127.0.0.1:{free_port()}; server 127.0.0.1:{free_port()};")
    assert [get(refused.port).status for _ in range(3)] == [502] * 3
    refused.lines(3)
    counts = refused.do(STATUS_LINE)
    assert re.search(r"^1 502 of 502, 502$", counts, re.MULTILINE), counts
    assert all(row[1] for row in by_server(refused.do(SERVERS_LINE)).values())
    assert int(refused.do("grep -c -e 'connect() failed'", code=2).splitlines()[0]) >= 2
    assert "no live upstreams" in refused.one.error_log()
    # They do not answer.
    silent = origin(lambda _request, _connection: time.sleep(5))
    hanging = Shop(f"server 127.0.0.1:{silent.port};", read="200ms")
    assert get(hanging.port).status == 504
    hanging.lines(1)
    assert "1 504 of 504" in hanging.do(STATUS_LINE)
    assert "timed out (110: Connection timed out)" in hanging.one.error_log()
    # A limit of the balancer, and an answer of the server.
    busy = origin(lambda _request, _connection: answer(status="503 Service Unavailable"))
    limited = Shop(f"server 127.0.0.1:{busy.port};", more="location = /own { return 503; }")
    assert (get(limited.port).status, get(limited.port, "/own").status) == (503, 503)
    limited.lines(2)
    counts = limited.do(STATUS_LINE)
    assert "1 503 of 503" in counts and "1 503 of -" in counts


def test_a_reload_is_refused(origin):
    server = origin(lambda _request, _connection: answer("old"))
    shop = Shop(f"server 127.0.0.1:{server.port};")
    assert shop.do("grep emerg") == "no reload was refused\n"
    shop.one.reload(shop.http + "no_such_directive on;")
    shop.one.wait_error(r"\[emerg\].*no_such_directive")
    assert "no_such_directive" in shop.do("balanza -t -p . -c shop.conf", code=1)
    assert "no_such_directive" in shop.do("grep emerg")
    assert get(shop.port).text == "old" and "\nbalanza_configuration_generation 1\n" in shop.metrics()


def test_the_disk_is_full(origin):
    server = origin(lambda _request, _connection: answer("served"))
    shop = Shop(f"server 127.0.0.1:{server.port};", more="location /full { proxy_pass http://app; access_log /dev/full runbook; }")
    assert [get(shop.port, "/full").text for _ in range(3)] == ["served"] * 3
    wait_for(lambda: 'write to "/dev/full"' in (shop.dir / "stderr.txt").read_text(), what="the message on standard error")
    assert " disk " in shop.do("balanza doctor -p . -c shop.conf | grep -A1")
    if os.geteuid() == 0 and shutil.which("unshare"):
        # In a namespace in which the logs are on a small file system.
        script = (f"mount -t tmpfs -o size=4m none {shop.dir}/logs && dd if=/dev/zero of={shop.dir}/logs/big bs=1M 2>/dev/null; "
                  f"cd {shop.dir} && {binary('balanza')} doctor -p . -c shop.conf")
        said = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60).stdout
        assert re.search(rf"^error +disk +{shop.dir}/logs: 0 %", said, re.MULTILINE), said


@needs_faketime
def test_a_certificate_has_expired(open_dir):
    old, new = certificate("shop.test", expired=True), certificate("shop.test")
    for source, target in ((old.certificate, "shop.pem"), (old.key, "shop.key")):
        shutil.copy(source, open_dir / target)
    port = free_port()
    shop = Shop("server 127.0.0.1:1;", more=f"listen 127.0.0.1:{port} ssl; ssl_certificate {open_dir}/shop.pem; "
                f"ssl_certificate_key {open_dir}/shop.key;")

    def connect():
        context = ssl.create_default_context(cafile=str(authority().certificate))
        with Client(port) as client:
            context.wrap_socket(client.sock, server_hostname="shop.test").close()

    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect()
    said = subprocess.run([binary("balanza"), "doctor", "-p", ".", "-c", "shop.conf"], cwd=shop.dir, capture_output=True, text=True)
    assert said.returncode == 2 and re.search(r"^error +certificate .*ended \d+ days ago", said.stdout, re.MULTILINE), said.stdout
    shutil.copy(new.certificate, open_dir / "shop.pem")
    shutil.copy(new.key, open_dir / "shop.key")
    shop.one.reload()

    def works():
        try:
            connect()
            return True
        except ssl.SSLError:
            return False

    wait_for(works, what="the new certificate")


def test_too_many_connections(origin):
    server = origin(lambda _request, _connection: time.sleep(0.5) or answer("late"))
    shop = Shop(f"server 127.0.0.1:{server.port};", events="worker_connections 10;")
    clients = []
    for _ in range(20):
        client = Client(shop.port)
        client.request()
        clients.append(client)
    shop.one.wait_error("worker_connections are not enough")
    assert int(shop.do("grep -c -e 'are not enough'").splitlines()[0]) >= 1
    for client in clients:
        client.close()

    def others():
        answered = get_if_room(shop.port, "/api/9/connections")
        return json.loads(answered.body)["active"] - 1 if answered else None

    wait_for(lambda: others() == 0, what="the end of the clients")
    assert int(re.search(r"^nginxplus_connections_dropped (\d+)", shop.metrics(), re.MULTILINE)[1]) > 0
    shop.one.events = "worker_connections 200;"
    shop.one.reload(shop.http)
    shop.one.wait_error("reconfigur|reload")
    wait_for(lambda: "\nbalanza_configuration_generation 2\n" in shop.metrics(), what="the new configuration")
    clients = [Client(shop.port).request() for _ in range(20)]
    assert [client.response().status for client in clients] == [200] * 20
    for client in clients:
        client.close()


def test_memory_grows(origin):
    server = origin(lambda _request, _connection: answer("served"))
    shop = Shop(f"server 127.0.0.1:{server.port};", main="worker_memory 1m;")
    said = shop.do("ps -o rss,args")
    assert "worker process" in said and "master process" in said

    def refused():
        try:
            get(shop.port, timeout=1)
        except Exception:
            pass
        return "worker_memory is not enough" in shop.do("grep worker_memory")

    wait_for(refused, what="the limit")
    shop.one.main = "worker_memory 500m;"
    shop.one.reload(shop.http)

    def served():
        try:
            return get(shop.port, timeout=1).text == "served"
        except Exception:
            return False

    wait_for(served, what="an answer")


def test_under_attack(origin):
    server = origin(lambda _request, _connection: answer("served"))
    shop = Shop(f"server 127.0.0.1:{server.port};")
    for _ in range(30):
        get(shop.port, "/login", source="127.0.0.66")
    for _ in range(3):
        get(shop.port, "/")
    shop.lines(33)
    assert shop.do("awk '{c[$4]++}").splitlines()[0] == "30 127.0.0.66"
    assert shop.do("awk -F'\"' '{c[$8]++}").splitlines()[0].startswith("30 GET /login ")
    # The page's limits, with the attacker's address.
    block = re.search(r"### Under attack\n.*?```nginx\n(.*?)^```", RUNBOOK, re.DOTALL | re.MULTILINE)[1]
    zones, inside = block.partition("server {\n")[0], block.partition("server {\n")[2].rpartition("}")[0]
    inside = inside.replace("203.0.113.0/24", "127.0.0.66")
    http = HTTP.replace("SERVERS", f"server 127.0.0.1:{server.port};").replace("MORE", inside).replace("READ", "5s")
    shop.one.reload(zones + http)
    wait_for(lambda: get(shop.port, source="127.0.0.66").status == 403, what="the refusal")
    assert [get(shop.port, source="127.0.0.7").status for _ in range(20)] == [200] * 20
    # From several clients at once, so that the rate is exceeded on a slow machine, too.
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        wait_for(lambda: 503 in pool.map(lambda _: get(shop.port, source="127.0.0.7").status, range(160)), what="a refusal")
    assert get(shop.port, source="127.0.0.8").status == 200
    assert re.search(r'^nginxplus_limit_request_rejected\{zone="clients"\} [1-9]', shop.metrics(), re.MULTILINE)


def test_a_deploy_without_an_error(servers):
    """One server after the other is drained, replaced and taken in again, under load."""
    shop = Shop("".join(f"server {server.server};" for server in servers))
    with Load(shop.port, clients=3, keep_alive=False) as load:
        for server in servers:
            wait_for(lambda seen=load.done: load.done > seen + 50, what="requests")
            shop.do("balanza drain app", server.server)
            server.kill()
            server.start()
            shop.do("balanza undrain app", server.server)
    assert not load.failures and load.done > 100


def test_every_symptom_has_its_parts():
    sections = RUNBOOK.split("\n### ")[1:]
    assert len(sections) == 9
    for section in sections:
        for part in ("Look", "Do", "By itself"):
            assert f"- **{part}**: " in section, (part, section[:60])


def test_alerts_are_valid_and_lead_to_the_page():
    anchors = {re.sub(r"[^a-z0-9 -]", "", line[4:].lower() if line.startswith("### ") else line[3:].lower()).strip().replace(" ", "-")
               for line in PAGE.splitlines() if line.startswith(("## ", "### "))}
    links = re.findall(r"docs/operations\.md#(\S+)", ALERTS.read_text())
    assert links and set(links) <= anchors, set(links) - anchors


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (Debian's package prometheus)")
def test_promtool_accepts_the_alerts_and_they_fire(tmp_path):
    checked = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (tmp_path / "test.yml").write_text(f"""
rule_files: [{ALERTS}]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - {{series: 'up{{job="balanza",instance="lb"}}', values: '1x30'}}
      - {{series: 'nginxplus_upstream_server_state{{instance="lb",upstream="app",server="a"}}', values: '4x30'}}
      - {{series: 'nginxplus_upstream_server_state{{instance="lb",upstream="app",server="b"}}', values: '3x30'}}
      - {{series: 'nginxplus_connections_dropped{{instance="lb"}}', values: '0+5x30'}}
      - {{series: 'nginxplus_server_zone_requests{{instance="lb",server_zone="shop"}}', values: '0+100x30'}}
      - {{series: 'nginxplus_server_zone_responses{{instance="lb",server_zone="shop",code="5xx"}}', values: '0+10x30'}}
      - {{series: 'balanza_upstream_response_seconds_bucket{{instance="lb",upstream="s",server="fast",le="0.01"}}', values: '0+10x30'}}
      - {{series: 'balanza_upstream_response_seconds_bucket{{instance="lb",upstream="s",server="fast",le="+Inf"}}', values: '0+10x30'}}
      - {{series: 'balanza_upstream_response_seconds_bucket{{instance="lb",upstream="s",server="slow",le="0.01"}}', values: '0x30'}}
      - {{series: 'balanza_upstream_response_seconds_bucket{{instance="lb",upstream="s",server="slow",le="0.5"}}', values: '0+10x30'}}
      - {{series: 'balanza_upstream_response_seconds_bucket{{instance="lb",upstream="s",server="slow",le="+Inf"}}', values: '0+10x30'}}
    promql_expr_test:
      - expr: 'count by (alertname) (ALERTS{{alertstate="firing"}})'
        eval_time: 12m
        exp_samples:
""" + "".join(f"          - {{labels: '{{alertname=\"{name}\"}}', value: 1}}\n" for name in
              ("BalanzaUpstreamWithoutServer", "BalanzaServerFailed", "BalanzaErrors", "BalanzaServerSlow",
               "BalanzaConnectionsDropped")))
    fired = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert fired.returncode == 0, fired.stdout + fired.stderr


def test_metrics_of_the_alerts_exist(origin):
    server = origin(lambda _request, _connection: answer("served"))
    shop = Shop(f"server 127.0.0.1:{server.port};", more="location /l { limit_req zone=one; proxy_pass http://app; } } "
                "limit_req_zone $binary_remote_addr zone=one:1m rate=100r/s; server { listen 127.0.0.1:%d;" % free_port())
    get(shop.port)
    there = set(re.findall(r"^(\w+)[{ ]", shop.metrics(), re.MULTILINE))
    names = set(re.findall(r"\b(?:nginxplus|balanza)_\w+", ALERTS.read_text()))
    assert len(names) > 8 and names <= there, names - there
    # Labels by which the rules group.
    assert re.search(r'^nginxplus_server_zone_responses\{server_zone="[^"]*",code="5xx"\}', shop.metrics(), re.MULTILINE)
    assert re.search(r'^balanza_upstream_response_seconds_bucket\{server="[^"]*",upstream="app",le=', shop.metrics(), re.MULTILINE)
