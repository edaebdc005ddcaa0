"""`balanza doctor`: on this machine as it is, and where limits are too low."""

import json
import os
import shutil
import subprocess

import pytest

from support.balancer import binary
from support.certificates import certificate
from support.expect import balanza_only
from support.faketime import needs_faketime

pytestmark = balanza_only("a command of Balanza")

PLAIN = """
worker_processes 1;
error_log logs/error.log;
pid logs/balanza.pid;
events { worker_connections 512; }
http {
    access_log logs/access.log;
    client_body_temp_path tmp/bodies;
    server { listen 127.0.0.1:8080; location / { proxy_pass http://127.0.0.1:9; } }
}
"""

as_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root for a network namespace")


@pytest.fixture
def doctor(open_dir):
    """Runs it with a configuration, after commands of a shell: the exit code and the checks by name."""
    for name in ("logs", "tmp"):
        (open_dir / name).mkdir()

    def run(text=PLAIN, before="", wrap=()):
        (open_dir / "nginx.conf").write_text(text)
        line = [binary("balanza"), "doctor", "--json", "-p", str(open_dir), "-c", "nginx.conf"]
        script = f"{before}\nexec \"$@\""
        done = subprocess.run([*wrap, "sh", "-ec", script, "sh", *line], capture_output=True, text=True, timeout=60)
        assert done.stdout, done.stderr
        value = json.loads(done.stdout)
        checks = {}
        for check in value["checks"]:
            checks.setdefault(check["check"], []).append(check)
        return done.returncode, checks

    return run


def states(checks):
    return {name: [one["state"] for one in found] for name, found in checks.items()}


def test_this_machine(doctor):
    """The exit code is that of the worst check, and all checks are there."""
    code, checks = doctor()
    found = {one["state"] for of_name in checks.values() for one in of_name}
    assert code == (2 if "error" in found else 1 if "warning" in found else 0), checks
    assert set(checks) == {"configuration", "reuseport", "listen backlog", "open files", "local ports", "listening ports",
                           "tcp_tw_reuse", "conntrack", "memory", "processors", "clock", "log", "temporary files", "disk"}
    assert states(checks)["configuration"] == ["ok"] and states(checks)["log"] == ["ok", "ok"]
    wrong = [one for of_name in checks.values() for one in of_name if one["state"] in ("warning", "error")]
    assert all(one["set"] for one in wrong), wrong


def test_a_table(open_dir):
    (open_dir / "nginx.conf").write_text("events { } http { server { listen 127.0.0.1:8080; } }")
    done = subprocess.run([binary("balanza"), "doctor", "-p", str(open_dir), "-c", "nginx.conf"], capture_output=True, text=True)
    # There is no directory for logs.
    assert done.returncode == 2 and "\x1b" not in done.stdout
    assert f"set: mkdir -p {open_dir}/logs" in done.stdout
    assert " errors, " in done.stdout


def test_wrong_configurations(doctor):
    code, checks = doctor("events { } http { no_such_directive; }")
    assert code == 2 and states(checks) == {"configuration": ["error"]}
    assert 'unknown directive "no_such_directive"' in checks["configuration"][0]["found"]
    assert checks["configuration"][0]["set"].startswith("balanza -t -c ")


def test_open_files(doctor):
    code, checks = doctor(before="ulimit -n 300")
    [check] = checks["open files"]
    assert check["state"] == "warning" and code >= 1 and "300 (limit of this shell)" in check["found"]
    # More connections than descriptors is what worker_rlimit_nofile is for.
    _, checks = doctor(PLAIN.replace("events", "worker_rlimit_nofile 1024; events"), before="ulimit -n 1024")
    assert states(checks)["open files"] == ["ok"], checks


@as_root
def test_sysctls(doctor):
    """What the kernel says is that of the network namespace."""
    stream = PLAIN + "stream { server { listen 127.0.0.1:9000; proxy_pass 127.0.0.1:9; } }"
    set_low = """
    cd /proc/sys/net
    echo 64 > core/somaxconn
    echo "8000 8099" > ipv4/ip_local_port_range
    echo 0 > ipv4/tcp_tw_reuse
    """
    code, checks = doctor(stream, before=set_low, wrap=["unshare", "-n"])
    assert code >= 1
    for name, command in [("listen backlog", "sysctl -w net.core.somaxconn=511"),
                          ("local ports", 'sysctl -w net.ipv4.ip_local_port_range="1024 65535"'),
                          ("listening ports", "sysctl -w net.ipv4.ip_local_reserved_ports=8080"),
                          ("tcp_tw_reuse", "sysctl -w net.ipv4.tcp_tw_reuse=1")]:
        [check] = checks[name]
        assert (check["state"], check["set"]) == ("warning", command), check
    # With the commands that it has printed, these are fine.
    commands = "\n".join(checks[name][0]["set"] + " > /dev/null" for name in ("listen backlog", "local ports", "tcp_tw_reuse", "listening ports"))
    _, checks = doctor(stream, before=f"{set_low}\ncd /\n{commands}\n", wrap=["unshare", "-n"])
    assert [states(checks)[name] for name in ("listen backlog", "local ports", "tcp_tw_reuse")] == [["ok"]] * 3, checks


def test_files(doctor, open_dir):
    text = PLAIN.replace("logs/access.log", "nowhere/access.log").replace("tmp/bodies", "nothing/bodies")
    code, checks = doctor(text)
    assert code == 2 and states(checks)["log"].count("error") == 1 and states(checks)["temporary files"] == ["error"]
    assert checks["temporary files"][0]["set"] == f"mkdir -p {open_dir}/nothing/bodies"


@as_root
def test_the_group_of_the_worker(doctor, open_dir):
    """The directory of a `state` file belongs to the second argument of `user`, as the worker does."""
    directory = open_dir / "state"
    directory.mkdir()
    shutil.chown(directory, "root", "daemon")
    directory.chmod(0o770)
    upstream = "http { upstream a { zone a 64k; state state/a.conf; }"
    for user, state in [("nobody daemon", "ok"), ("nobody", "error")]:
        _, checks = doctor(f"user {user};" + PLAIN.replace("http {", upstream))
        assert states(checks)["state file"] == [state], checks


@needs_faketime
def test_certificates(doctor):
    server = "server { listen 127.0.0.1:8443 ssl; location / { return 204; } %s }"

    def of(pair):
        _, checks = doctor(PLAIN.replace("server {", server % pair.directives() + " server {", 1))
        return states(checks)["certificate"]

    # It ends in ten days.
    assert of(certificate("doctor.test")) == ["warning"]
    assert of(certificate("doctor.test", expired=True)) == ["error"]


def test_memory_and_processors(doctor):
    _, checks = doctor(PLAIN.replace("worker_processes 1;", "worker_processes 500; worker_memory 100000g;"))
    assert states(checks)["memory"] == ["error"] and states(checks)["processors"] == ["warning"]
    assert checks["processors"][0]["set"] == "worker_processes auto;"
