"""`balanza demo`: every algorithm by its name, and commands that can be typed as they are printed."""

import json
import re
import shlex
import signal
import subprocess

import pytest

from support.balancer import ON_BALANZA, binary
from support.client import get
from support.expect import balanza_only
from support.ports import free_port

pytestmark = balanza_only("has no demo")


def names():
    if not ON_BALANZA:
        return []
    listed = subprocess.run([binary(), "algorithms", "--json"], capture_output=True, check=True, timeout=20)
    return [entry["name"] for entry in json.loads(listed.stdout)]


@pytest.mark.parametrize("name", names())
def test_every_name_gives_a_configuration_that_loads(tmp_path, name):
    printed = subprocess.run([binary(), "demo", "--algorithm", name, "--print-config"], capture_output=True, text=True,
                             check=True, timeout=20)
    (tmp_path / "nginx.conf").write_text(printed.stdout)
    (tmp_path / "logs").mkdir()
    tested = subprocess.run([binary(), "-t", "-p", f"{tmp_path}/", "-c", str(tmp_path / "nginx.conf")],
                            capture_output=True, text=True, timeout=20)
    assert tested.returncode == 0 and "warn" not in tested.stderr, tested.stderr
    if name != "round_robin":
        assert re.search(rf"^ +(balance )?{name}\b", printed.stdout, re.M), printed.stdout


# Each of these needs something beside its name: probes, reports, limits, a program.
@pytest.mark.parametrize("algorithm", ["peak_ewma", "prequal", "least_load", "first", "external",
                                       "bounded_hash $uri balance_factor=150"])
def test_a_real_start(algorithm):
    demo = subprocess.Popen([binary(), "demo", "--port", str(free_port()), "--load", "20", "--algorithm", algorithm],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        introduction = []
        for line in demo.stdout:
            introduction.append(line)
            if "least_conn" in line:
                break
        text = "".join(introduction)
        found = re.search(r"Balancing by (.*) on http://127\.0\.0\.1:(\d+)/", text)
        assert found and found[1] == algorithm, text
        answers = [get(int(found[2]), f"/{number}") for number in range(12)]
        assert {answer.status for answer in answers} == {200}
        assert {answer["X-Server"] for answer in answers} <= {"s1", "s2", "s3"}
        # The commands that it suggests are complete: no directory has to be on the PATH.
        suggested = re.findall(r"^ +(\S+ demo .*)$", text, re.M)
        assert len(suggested) == 2, text
        for command in suggested:
            subprocess.run([*shlex.split(command), "--print-config"], check=True, capture_output=True, timeout=20)
    finally:
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=20)
    assert demo.returncode == 0 and "Stopped: " in rest, rest
