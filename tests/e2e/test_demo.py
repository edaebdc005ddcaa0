"""`balanza demo`: every algorithm by its name, and commands that can be typed as they are printed."""

import fcntl
import itertools
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from support.balancer import ON_BALANZA, binary, wait_for
from support.client import get
from support.expect import balanza_only
from support.ports import free_port

pytestmark = balanza_only("has no demo")


def names():
    if not ON_BALANZA:
        return []
    listed = subprocess.run([binary(), "algorithms", "--json"], capture_output=True, check=True, timeout=60)
    return [entry["name"] for entry in json.loads(listed.stdout)]


@pytest.mark.parametrize("name", names())
def test_every_name_gives_a_configuration_that_loads(tmp_path, name):
    printed = subprocess.run([binary(), "demo", "--algorithm", name, "--print-config"], capture_output=True, text=True,
                             check=True, timeout=60)
    (tmp_path / "nginx.conf").write_text(printed.stdout)
    (tmp_path / "logs").mkdir()
    tested = subprocess.run([binary(), "-t", "-p", f"{tmp_path}/", "-c", str(tmp_path / "nginx.conf")],
                            capture_output=True, text=True, timeout=60)
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
        dashboard = re.search(r"http://127\.0\.0\.1:\d+(/dashboard)", text)
        assert dashboard and b"<title>Balanza</title>" in get(int(found[2]), dashboard[1]).body
        assert json.loads(get(int(found[2]), "/api/balanza/access").body) == {"write": True}
        # The commands that it suggests are complete: no directory has to be on the PATH.
        suggested = re.findall(r"^ +(\S+ demo .*) --versus least_conn$", text, re.M)
        assert len(suggested) == 1, text
        subprocess.run([*shlex.split(suggested[0]), "--print-config"], check=True, capture_output=True, timeout=60)
    finally:
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 0 and "Stopped: " in rest, rest


def test_tls():
    """The command that is printed verifies the demo's certificate, and the load speaks HTTP/2 and resumes sessions."""
    demo = subprocess.Popen([binary(), "demo", "--tls", "--port", str(free_port()), "--load", "100"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = []
        # On a busy machine the first lines may show new sessions alone.
        for line in itertools.islice(demo.stdout, 60):
            lines.append(line)
            negotiated = re.search(r", 0 failed \| HTTP/2 over TLSv1\.3, TLS_\w+, \w+; [\d.]+ handshakes/s, (\d+)% resumed", line)
            if negotiated and int(negotiated[1]) > 0:
                break
        else:
            pytest.fail("".join(lines))
        curl = re.search(r"curl .*--cacert (\S+) https://.*", "".join(lines))
        assert len(curl[0]) < 80, curl
        answer = subprocess.run(shlex.split(curl[0]), capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0 and answer.stdout.startswith("HTTP/2 200"), answer
        assert Path(curl[1]).with_suffix(".key").stat().st_mode & 0o777 == 0o600
    finally:
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 0 and not Path(curl[1]).exists(), rest


class OnTerminal:
    """A demo on a terminal of its own: what it draws, and keys to press."""

    def __init__(self, *options, columns=100):
        self.screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.set_blocking(self.screen, False)
        self.text = ""
        self.seen = 0

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([binary(), "demo", "--port", str(free_port()), *options], stdin=terminal,
                                        stdout=terminal, stderr=terminal, preexec_fn=take_terminal)
        os.close(terminal)

    def read(self):
        try:
            while piece := os.read(self.screen, 65536):
                self.text += re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", piece.decode(errors="replace"))
        except OSError:  # There is nothing to read now, or the terminal is closed.
            pass
        return self.text

    def press(self, keys):
        self.seen = len(self.read())
        os.write(self.screen, keys.encode())

    def shows(self, pattern, what=None):
        """Waits until a picture that was drawn since the last key has a line that matches."""
        def shown():
            is_over = self.process.poll() is not None
            found = re.search(pattern, self.read()[self.seen:])
            assert found or not is_over, f"the demo ended: {self.text[-2000:]}"
            return found
        wait_for(shown, 30, what or pattern)

    def end(self):
        self.press("q")
        wait_for(lambda: "Stopped: " in self.read(), 30, "the end")
        assert self.process.wait(60) == 0

    def leftovers(self):
        """The balancer's process and directory."""
        self.read()
        return int(re.search(r"kill -HUP (\d+)", self.text)[1]), Path(re.search(r"(/\S+)/nginx.conf", self.text)[1])


@pytest.fixture
def terminal():
    started = []

    def start(*options, **more):
        started.append(OnTerminal(*options, **more))
        return started[-1]
    yield start
    for demo in started:
        demo.process.kill()
        demo.process.wait()
        os.close(demo.screen)


def test_keys_change_the_farm_and_it_is_shown(terminal):
    demo = terminal("--load", "100")
    demo.shows(r"round_robin +\d\d+ req/s")
    demo.press("2s")
    demo.shows(r"s2 +slow 1/8 ")
    demo.press("3k")
    demo.shows(r"s3 +killed .* [1-9]\d*\r?\n", "failed attempts at the killed server")
    demo.press("r")
    demo.shows(r"s3 +1/4 ")
    demo.press("1t")
    demo.shows(r"s1 +stopped ")
    demo.press("1r+")
    demo.shows(r"load 135 requests/s")
    demo.press("aleast_conn\r")
    demo.shows(r"> reloaded: least_conn")
    demo.shows(r"[\r\n]  least_conn +\d+ req/s", "its heading")
    demo.press("alest_conn\r")
    demo.shows(r"> refused, least_conn goes on: unknown directive")
    _, directory = demo.leftovers()
    assert "least_conn;" in (directory / "nginx.conf").read_text(), "the file is as it was"
    demo.press("v")
    demo.shows(r"\u25b6 \S+ +\d+ req/s", "a second farm")
    demo.end()
    assert not directory.exists()


def test_a_reload_by_hand_is_shown(terminal):
    demo = terminal("--load", "20")
    demo.shows(r"round_robin +\d+ req/s")
    pid, directory = demo.leftovers()
    file = directory / "nginx.conf"
    file.write_text(file.read_text().replace("zone servers 64k;", "zone servers 64k; ip_hash;"))
    os.kill(pid, signal.SIGHUP)
    demo.shows(r"[\r\n]  ip_hash +\d+ req/s", "the new heading")
    demo.end()


def test_an_overloaded_farm_says_so(terminal):
    demo = terminal("--load", "1500", "--algorithm", "least_conn")
    demo.shows(r"OVERLOAD: 1500 requests/s for servers that can answer 700")
    demo.shows(r"\d+ not sent", "requests that are held back")
    demo.end()


def test_a_narrow_terminal_keeps_what_matters(terminal):
    demo = terminal("--load", "50", columns=44)
    demo.shows(r"s3 +\d+ +[\d.]+% +\d+ ms +0")
    demo.end()


def test_nothing_is_left_behind_when_it_is_killed(terminal):
    demo = terminal("--load", "20", "--versus", "least_conn")
    demo.shows(r"least_conn +\d+ req/s")
    pids = [int(pid) for pid in re.findall(r"kill -HUP (\d+)", demo.text)]
    directories = [Path(path) for path in re.findall(r"(/\S+)/nginx.conf", demo.text)]
    assert len(pids) == 2 and len(directories) == 2 and all(path.exists() for path in directories)
    demo.process.kill()
    demo.process.wait()

    def gone(pid):
        try:
            return ") Z " in Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True

    wait_for(lambda: all(gone(pid) for pid in pids), 30, "the end of the balancers")
    wait_for(lambda: not any(path.exists() for path in directories), 30, "the end of their files")
