"""What operators see and set: stub_status, syslog, compressed logs, how connections end, machine-readable diagnostics."""

import gzip
import json
import os
import re
import signal
import socket
import subprocess

import pytest

from support.balancer import ON_NGINX, Balancer, binary, read, wait_for
from support.client import Client, get
from support.expect import balanza_only

STATUS = re.compile(rb"Active connections: (\d+) \nserver accepts handled requests\n (\d+) (\d+) (\d+) \n"
                    rb"Reading: (\d+) Writing: (\d+) Waiting: (\d+) \n")


def body_of(port, path, head="GET"):
    with Client(port) as client:
        client.send(f"{head} {path} HTTP/1.1\r\nHost: a\r\n\r\n")
        return client.response(head)


def numbers(port):
    response = body_of(port, "/status")
    found = STATUS.fullmatch(response.body)
    assert found, response.body
    return dict(zip(("active", "accepts", "handled", "requests", "reading", "writing", "waiting"), map(int, found.groups()),
                    strict=True))


STUB = "server { listen 127.0.0.1:PORT; location = /status { stub_status; } location = /v { return 200 $connections_active; } }"


def test_stub_status_counts_connections_and_requests():
    one = Balancer(STUB)
    before = numbers(one.port)
    with Client(one.port) as idle, Client(one.port) as reading:
        idle.send("GET /v HTTP/1.1\r\nHost: a\r\n\r\n")
        assert int(idle.response().body) >= 1
        reading.send("GET /v HTTP/1.1\r\nHo")
        now = wait_for(lambda: (found := numbers(one.port))["reading"] == 1 and found["waiting"] == 1 and found,
                       what="a connection that waits and one that is read from")
        assert now["active"] == 3 and now["writing"] == 1
        assert now["requests"] >= before["requests"] + 2 and now["accepts"] == now["handled"] >= before["accepts"] + 3
    assert wait_for(lambda: numbers(one.port)["active"] == 1, what="the end of the connections")


def test_stub_status_is_text_for_get_and_head_only():
    one = Balancer(STUB)
    assert get(one.port, "/status")["content-type"] == "text/plain"
    assert body_of(one.port, "/status", "HEAD").status == 200
    with Client(one.port) as client:
        client.send("POST /status HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        assert client.response().status == 405


@pytest.fixture(params=["udp", "unix"])
def receiver(request, tmp_path):
    if request.param == "udp":
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{server.getsockname()[1]}"
    else:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        server.bind(str(tmp_path / "log"))
        os.chmod(tmp_path / "log", 0o777)
        for directory in (tmp_path, *tmp_path.parents):
            if directory.stat().st_uid == os.getuid() and str(directory).startswith("/tmp/"):
                directory.chmod(0o755)
        name = f"unix:{tmp_path / 'log'}"
    server.settimeout(20)
    with server:
        yield name, server


TIME = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"


def test_access_log_to_syslog(receiver):
    name, server = receiver
    one = Balancer(f"""log_format short '$request_method $uri';
        server {{ listen 127.0.0.1:PORT; location / {{ return 204; }}
            access_log syslog:server={name},facility=local3,severity=notice,tag=edge_1,nohostname short;
            access_log syslog:server={name} short; }}""")
    get(one.port, "/a")
    lines = sorted(server.recv(9999).decode() for _ in range(2))
    host = re.escape(socket.gethostname().lower())
    assert re.fullmatch(rf"<157>{TIME} edge_1: GET /a", lines[0]), lines
    assert re.fullmatch(rf"<190>{TIME} (?i:{host}) nginx: GET /a", lines[1]), lines


def test_error_log_to_syslog(receiver):
    name, server = receiver
    one = Balancer(f"""server {{ listen 127.0.0.1:PORT; root html;
        error_log syslog:server={name},facility=daemon,nohostname error; }}""")
    get(one.port, "/missing")
    line = server.recv(9999).decode()
    assert re.match(rf"<27>{TIME} nginx: \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d \[error\] \d+#\d+: ", line), line
    assert "missing" in line and not line.endswith("\n")


@pytest.mark.parametrize("parameters", ["gzip=9", "gzip buffer=4k"])
def test_a_compressed_access_log(parameters):
    one = Balancer(f"""keepalive_requests 9999; log_format short '$uri'; server {{ listen 127.0.0.1:PORT; location / {{ return 204; }}
            access_log logs/a.gz short {parameters} flush=1h; }}""")
    with Client(one.port) as client:
        for i in range(1500):
            client.send(f"GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n")
            client.response()
    one.stop(signal.SIGQUIT)
    lines = gzip.decompress((one.dir / "logs/a.gz").read_bytes()).decode().splitlines()
    assert lines == [f"/{i}" for i in range(1500)]


def connection_field(port, agent, method="GET"):
    with Client(port) as client:
        client.send(f"{method} / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\nContent-Length: 0\r\n\r\n")
        return client.response()["connection"]


SAFARI = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_6) AppleWebKit/533 Version/5.0 Safari/533"
MSIE = "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0)"


@pytest.mark.parametrize(("setting", "agent", "method", "expected"), [
    ("", MSIE, "POST", "close"), ("", MSIE, "GET", "keep-alive"), ("", MSIE.replace("5.0)", "5.1; SV1)"), "POST", "keep-alive"),
    ("", SAFARI, "GET", "keep-alive"), ("keepalive_disable safari;", SAFARI, "GET", "close"),
    ("keepalive_disable safari;", SAFARI.replace("Safari", "Chrome/1 Safari"), "GET", "keep-alive"),
    ("keepalive_disable none;", MSIE, "POST", "keep-alive"), ("keepalive_disable msie6 safari;", MSIE, "POST", "close"),
])
def test_keepalive_disable(setting, agent, method, expected):
    one = Balancer(f"{setting} server {{ listen 127.0.0.1:PORT; location / {{ return 200 x; }} }}")
    assert connection_field(one.port, agent, method) == expected


@pytest.mark.parametrize(("setting", "lingers"), [("off", False), ("always", True)])
def test_lingering_close(setting, lingers):
    one = Balancer(f"lingering_close {setting}; lingering_timeout 30s; server {{ listen 127.0.0.1:PORT; return 200 x; }}")
    with Client(one.port) as client:
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        client.response()
        wait_for(lambda: client.sock.recv(1) == b"", what="the end of the response")
        # One that lingers reads what comes; one that has closed answers with a reset.
        client.sock.sendall(b"x" * 1000)

        def is_reset():
            try:
                client.sock.sendall(b"x")
                return False
            except OSError:
                return True

        if lingers:
            assert not any(is_reset() for _ in range(20))
        else:
            wait_for(is_reset, what="a reset")


@balanza_only("it has no such option")
def test_diagnostics_for_programs(tmp_path):
    file = tmp_path / "n.conf"
    file.write_text("events { }\nhttp {\n  server { listen 127.0.0.1:1; gzip_disable x; }\n"
                    "  server { listen 127.0.0.1:1; gzip_disable x; sendfil on; }\n}\n")
    ran = subprocess.run([binary(), "-t", "--json", "-e", "stderr", "-c", file], capture_output=True, text=True)
    problems = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 1 and ran.stderr == ""
    unknown = next(problem for problem in problems if problem["severity"] == "error")
    assert (unknown["line"], unknown["column"], unknown["file"]) == (4, 48, str(file))
    assert unknown["message"] == 'unknown directive "sendfil"' and unknown["hint"] == "did you mean `sendfile`?"
    ran = subprocess.run([binary(), "-t", "-e", "stderr", "-c", file], capture_output=True, text=True)
    lines = ran.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if "sendfil" in line)
    assert lines[at + 1] == "balanza: [hint] did you mean `sendfile`?"


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGTERM])
def test_the_end_of_a_worker_is_logged(how):
    one = Balancer("server { listen 127.0.0.1:PORT; return 204; }", main="error_log logs/notice.log notice;")
    # A worker that has not started does not end within the second that it has.
    assert get(one.port).status == 204
    one.process.send_signal(how)
    one.process.wait(40)
    log = (one.dir / "logs/notice.log").read_text()
    # After TERM it has a second to end; a busy machine may stop it for longer, and then it is killed.
    killed = r"|\[alert\] .*worker process \d+ exited on signal 9" if how == signal.SIGTERM else ""
    assert re.search(rf"\[notice\] .*worker process \d+ exited with code 0{killed}", log), log


def test_worker_settings_are_obeyed(tmp_path):
    here = sorted(os.sched_getaffinity(0))
    mask = bin(1 << here[-1])[2:]
    one = Balancer("server { listen 127.0.0.1:PORT; return 204; }",
                   main=f"""worker_priority 7; worker_cpu_affinity {mask}; worker_rlimit_core 12345;
                            working_directory /; env A_SETTING=of_the_file;""")
    get(one.port, "/")

    def workers():
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(one.process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in children.stdout.split()]

    worker = wait_for(workers, what="the worker")[0]
    threads = [int(thread) for thread in os.listdir(f"/proc/{worker}/task")]
    named = [thread for thread in threads
             if ON_NGINX or read(f"/proc/{worker}/task/{thread}/comm").startswith("worker 0")]
    assert named and all(os.sched_getaffinity(thread) == {here[-1]} for thread in named)
    assert all(os.getpriority(os.PRIO_PROCESS, thread) == 7 for thread in named)
    assert os.readlink(f"/proc/{worker}/cwd") == "/"
    limits = open(f"/proc/{worker}/limits").read()
    assert re.search(r"Max core file size +12345 +12345", limits), limits
    assert ON_NGINX or b"A_SETTING=of_the_file" in open(f"/proc/{worker}/environ", "rb").read()
