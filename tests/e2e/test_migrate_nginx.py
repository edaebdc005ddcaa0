"""`balanza migrate` beside a running NGINX: its page, and its commands, which lose no request either way."""

import collections
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import pytest

from support.balancer import binary, children, read, wait_for
from support.expect import balanza_only
from support.ports import free_port

pytestmark = [balanza_only("from NGINX to Balanza"),
              pytest.mark.skipif(not pathlib.Path("/usr/sbin/nginx").exists(), reason="needs Debian's NGINX"),
              pytest.mark.skipif(not shutil.which("bash"), reason="the commands are bash's")]

CONFIGURATION = """
worker_processes 2;
pid DIR/nginx.pid;
error_log DIR/logs/error.log notice;
MAIN
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path DIR/tmp/body; proxy_temp_path DIR/tmp/proxy; fastcgi_temp_path DIR/tmp/fastcgi;
    uwsgi_temp_path DIR/tmp/uwsgi; scgi_temp_path DIR/tmp/scgi;
    server { listen 127.0.0.1:PORT OPTIONS; location / { return 200 "ok\\n"; } }
}
"""


class Nginx:
    """A daemon with a program of its own, which the commands may replace."""

    def __init__(self, directory, main="", options="", globals=()):
        self.dir, self.port = directory, free_port()
        for name in ("logs", "tmp"):
            (directory / name).mkdir()
        self.program, self.config, self.pid_file = directory / "nginx", directory / "nginx.conf", directory / "nginx.pid"
        shutil.copy("/usr/sbin/nginx", self.program)
        text = CONFIGURATION.replace("DIR", str(directory)).replace("PORT", str(self.port))
        self.config.write_text(text.replace("MAIN", main).replace("OPTIONS", options))
        self.environment = {name: value for name, value in os.environ.items() if name not in ("NGINX", "BALANZA")}
        self.process = subprocess.Popen([self.program, *globals, "-p", f"{directory}/", "-c", self.config],
                                        env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True)
        wait_for(self.pid, what="NGINX's pid file")
        wait_for(lambda: self.server() == "nginx", what="NGINX")

    def pid(self, suffix=""):
        try:
            return int(pathlib.Path(f"{self.pid_file}{suffix}").read_text())
        except (OSError, ValueError):
            return 0

    def server(self):
        """Who answers: the name in the Server field."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("GET", "/")
            return connection.getresponse().getheader("Server").split("/")[0]
        except OSError:
            return None

    def page(self):
        done = subprocess.run([binary("balanza"), "migrate", self.config, "--json"], capture_output=True, text=True,
                              timeout=60, env=self.environment)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def do(self, steps):
        for step in steps:
            done = subprocess.run(["bash", "-c", step["command"]], capture_output=True, text=True, timeout=60,
                                  env=self.environment, cwd="/")
            assert done.returncode == 0, (step, done.stdout, done.stderr, self.log())

    def workers(self):
        """The worker processes of the old NGINX."""
        old = self.pid(".oldbin")
        return [pid for pid in (children(old) if old else []) if read(f"/proc/{pid}/cmdline").startswith("nginx: worker")]

    def log(self):
        return (self.dir / "logs/error.log").read_text()

    def stop(self):
        for suffix in ("", ".oldbin"):
            pid = self.pid(suffix)
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 15)
                wait_for(lambda pid=pid: not pathlib.Path(f"/proc/{pid}/root").exists() or self.pid(suffix) != pid,
                         what="its end")
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(30)


class Load:
    """Clients with a connection for each request, and clients that keep theirs; counts what they get."""

    def __init__(self, port):
        self.port, self.counts, self.going = port, collections.Counter(), True
        self.first = self.last = None
        kinds = (False, False, False, True)
        # The requests that each client has begun.
        self.begun = [0] * len(kinds)
        self.threads = [threading.Thread(target=self.run, args=one) for one in enumerate(kinds)]
        for thread in self.threads:
            thread.start()

    def run(self, number, keep):
        connection = None
        while self.going:
            self.begun[number] += 1
            is_new = connection is None
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                connection.request("GET", "/")
                response = connection.getresponse()
                response.read()
                self.counts[response.status, response.getheader("Server").split("/")[0]] += 1
                if not keep or response.getheader("Connection") == "close":
                    connection.close()
                    connection = None
            except OSError as error:
                # A server may close a kept connection at any time, and clients repeat the request (RFC 9112, 9.3.1).
                self.counts["lost" if is_new else "closed", type(error).__name__] += 1
                self.last = time.monotonic()
                self.first = self.first or self.last
                connection = None
            except http.client.HTTPException as error:
                self.counts["lost" if is_new else "closed", type(error).__name__] += 1
                connection = None

    def served(self, name):
        return self.counts[200, name]

    def wait(self, name, count=200):
        before, begun = self.served(name), list(self.begun)

        def served():
            # What each client was at has been counted.
            all_went_on = all(now > then for then, now in zip(begun, self.begun, strict=True))
            return all_went_on and self.served(name) >= before + count

        wait_for(served, what=f"responses of {name}")

    def end(self):
        self.going = False
        for thread in self.threads:
            thread.join(30)
        return self.counts

    def lost(self):
        """Requests on new connections that were not answered."""
        return sum(count for key, count in dict(self.counts).items() if key[0] == "lost")


@pytest.fixture
def nginx(open_dir):
    started = []
    # The commands set it.
    setting = pathlib.Path("/proc/sys/net/ipv4/tcp_migrate_req")
    before = setting.read_text() if setting.exists() else None

    def start(**options):
        started.append(Nginx(open_dir, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()
    if before and setting.read_text() != before:
        setting.write_text(before)


@pytest.mark.parametrize("options", ["", "reuseport"])
def test_over_and_back_without_a_refused_connection(nginx, options):
    one = nginx(options=options)
    page = one.page()
    assert page["gap"] is None and page["process"] == one.pid() and page["nginx"]["version"]
    load = Load(one.port)
    try:
        load.wait("nginx")
        one.do(page["over"])
        wait_for(lambda: not one.workers(), what="the end of NGINX's workers")
        wait_for(lambda: one.server() == "balanza", what="Balanza")
        load.wait("balanza")
        lost = [load.lost()]
        # Not what was hoped for: NGINX serves again, because its master process has waited.
        one.do(page["undo"])
        wait_for(lambda: one.server() == "nginx", what="NGINX")
        wait_for(lambda: not one.pid(".oldbin"), what="the end of Balanza")
        load.wait("nginx")
        lost.append(load.lost())
        # Over for good.
        one.do(page["over"] + page["finish"])
        wait_for(lambda: not one.pid(".oldbin"), what="the end of NGINX")
        load.wait("balanza")
        lost.append(load.lost())
        # And back all the same.
        one.do(page["back"])
        wait_for(lambda: not one.pid(".oldbin"), what="the end of Balanza")
        load.wait("nginx")
    finally:
        load.end()
    assert not load.counts["lost", "ConnectionRefusedError"], load.counts
    # A connection that a worker of NGINX has accepted and not read yet when it ends is reset, as on a reload of NGINX: at
    # most one of each client, twice here. None is lost where Balanza ends.
    lost.append(load.lost())
    assert lost[0] <= len(load.threads) and lost[2] - lost[1] <= len(load.threads), load.counts
    assert lost[1] == lost[0] and lost[3] == lost[2], (lost, load.counts)
    assert load.served("balanza") >= 400 and load.served("nginx") >= 600
    # Its program is what it was.
    assert one.program.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("words", [1, 2])
def test_directives_of_the_command_line_are_a_part_of_the_configuration(nginx, words):
    """`-g` as Debian's service has it, and a directive that both warn of. Its quotes are lost in the title."""
    text = "daemon on; master_process on; worker_cpu_affinity 01 01 01;"
    one = nginx(globals=["-g", text] if words == 2 else [f"-g{text}"])
    page = one.page()
    assert page["gap"] is None and page["process"] == one.pid()
    assert [warning["place"] for warning in page["warnings"]] == ["command line:1"], page["warnings"]
    assert "worker_cpu_affinity" in page["warnings"][0]["message"]
    assert f" -g '{text}' -c " in page["over"][0]["command"]
    one.do(page["over"] + page["finish"])
    wait_for(lambda: one.server() == "balanza", what="Balanza")


def test_nginx_in_the_foreground_has_a_gap(nginx):
    one = nginx(main="daemon off;")
    page = one.page()
    assert "daemon off" in page["gap"] and not page["undo"]
    load = Load(one.port)
    try:
        load.wait("nginx")

        def go_over():
            return subprocess.Popen(["bash", "-c", page["over"][-1]["command"]], env=one.environment, cwd="/",
                                    stdin=subprocess.DEVNULL)

        # Balanza begins at once, while NGINX may still listen.
        after = go_over()
        one.process.wait(30)
        one.process = after

        def serves():
            # It waits for the port for two seconds, and NGINX may need longer on a busy machine.
            if one.process.poll() is not None:
                one.process = go_over()
            return one.server() == "balanza"

        wait_for(serves, what="Balanza")
        load.wait("balanza")
    finally:
        load.end()
    # That is why there is another way. The bound only says that it ends by itself.
    if load.first:
        assert load.last - load.first < 40


def test_the_page_names_what_differs_and_what_is_missing(open_dir):
    config = open_dir / "nginx.conf"
    config.write_text("""
    load_module modules/ngx_http_lua_module.so;
    events { debug_connection 127.0.0.1; }
    http {
        upstream a { server 127.0.0.1:1 fail_timeout=5s; }
        server { listen 127.0.0.1:8081; location / { fastcgi_pass 127.0.0.1:9000; } location /l { content_by_lua_block x; } }
    }
    """)
    line = [binary("balanza"), "migrate", config]
    done = subprocess.run([*line, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    page = json.loads(done.stdout)
    assert page["modules"] == ["ngx_http_lua_module"] and page["process"] is None, "that of another configuration"
    messages = " ".join(error["message"] for error in page["errors"])
    assert "fastcgi_pass" in messages and "content_by_lua_block" in messages
    assert any(error["place"].endswith("nginx.conf:6") for error in page["errors"])
    touched = [row["what"] for row in page["differences"]]
    assert "`fail_timeout=10s`" in touched and "`debug_connection`" in touched
    assert not any("UDP" in row for row in touched)
    text = subprocess.run(line, capture_output=True, text=True, timeout=60).stdout
    for part in ("Does not work yet", "Missing, has to be changed", "Differs on purpose", "Go over"):
        assert f"\n{part}" in text, text
