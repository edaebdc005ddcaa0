"""`balanza lab`: experiments from the command line, and what goes wrong with them."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from support.balancer import ROOT, binary, read, wait_for
from support.expect import balanza_only

pytestmark = [balanza_only("has no lab"), pytest.mark.load, pytest.mark.timeout(120)]

PLAN = """
name = "small"
title = "A fast and a slow server"
repetitions = 2
systems = ["balanza", "nginx", "haproxy"]

[[farms]]
name = "two"
servers = [
    {{ name = "fast", target = {{ time = "2ms", concurrency = 1 }} }},
    {{ name = "slow", target = {{ time = "30ms", concurrency = 1 }} }},
]

[[algorithms]]
name = "RR"
balance = "round_robin"

[[algorithms]]
name = "LC"
balance = "least_conn"

[[loads]]
name = "20"
users = 20
duration = "{duration}"
warmup = "200ms"

[quick]
duration = "700ms"

[[checks]]
name = "lc-is-better"
says = "the fewest connections are better"
expression = 'rps("LC") > 1.2 * rps("RR")'
"""


@pytest.fixture
def directory(tmp_path):
    """Has the plan small.toml; afterwards no process that was started in it may be left."""
    (tmp_path / "small.toml").write_text(PLAN.format(duration="3s"))
    yield tmp_path
    try:
        nobody_left(tmp_path)
    finally:
        for pid in processes(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes(directory):
    """Processes whose working directory or environment is of this test; NGINX writes its title over the latter."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            pid = int(entry.name)
            marked = (f"LAB_TEST={directory}".encode() in (entry / "environ").read_bytes().split(b"\0")
                      or os.readlink(entry / "cwd").startswith(f"{directory}/"))
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if marked and state != "Z" and pid != os.getpid():
                found.append(pid)
        except (OSError, ValueError):
            continue
    return found


def words(pid):
    """The command line of a process, or nothing if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_stopped(pid):
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["T"]


def nobody_left(directory):
    """A group that is killed takes a moment to end."""
    wait_for(lambda: not processes(directory), 30, "the end of all processes")


def environment(directory, **more):
    return {**os.environ, "LAB_TEST": str(directory), "NO_COLOR": "1", **more}


def lab(directory, *words, status=0, **more):
    """Runs the command to its end; its standard output and error."""
    done = subprocess.run([binary(), "lab", *words], cwd=directory, env=environment(directory, **more),
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def start(directory, *words):
    """Runs the command beside the test."""
    return subprocess.Popen([binary(), "lab", *words], cwd=directory, env=environment(directory),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def runs(directory):
    return sorted(path.name for path in directory.glob("runs/*.json"))


def test_plans_are_listed_and_shown(directory):
    names = ["unicamp-2021", "unne-2023", "ugr-2012", "earlham-2017", "bhat-2021", "peers-2026", "hard-cases-2026",
             "churn-2026"]
    assert [plan["name"] for plan in json.loads(lab(directory, "list", "--json")[0])] == names
    assert all(name in lab(directory, "list")[0] for name in names)
    assert "listen-queue-at-250" in lab(directory, "show", "unicamp-2021")[0]
    # The text of a plan is a plan.
    (directory / "own.toml").write_text(lab(directory, "show", "peers-2026", "--toml")[0])
    assert "two_choices" in lab(directory, "show", "own.toml")[0]
    assert "did you mean unicamp-2021?" in lab(directory, "show", "unicamp-2012", status=1)[1]


def test_all_errors_of_a_plan(directory):
    text = PLAN.format(duration="3s").replace("least_conn", "lest_conn").replace('rps("RR")', 'rps("RRR")')
    (directory / "wrong.toml").write_text(text)
    _, error = lab(directory, "run", "wrong.toml", status=1)
    assert 'unknown balancing algorithm "lest_conn"' in error and "did you mean `least_conn`?" in error
    assert 'no algorithm "RRR"' in error and 'rps("RRR")' in error
    assert not (directory / "balanza-lab").exists()


@pytest.mark.timeout(600)
def test_a_run_with_its_report(directory):
    for repetitions in range(3, 8):  # What else runs on the machine may spoil an attempt, but not five.
        shutil.rmtree(directory / "balanza-lab", ignore_errors=True)
        words = ["run", "small.toml", "--quick", "--repetitions", str(repetitions), "--strict"]
        done = subprocess.run([binary(), "lab", *words], cwd=directory, env=environment(directory), capture_output=True,
                              text=True, timeout=200)
        out, error = done.stdout, done.stderr
        assert done.returncode in (0, 2), (done.returncode, out, error)
        if done.returncode == 0 and "LC is best" in out:
            break
    else:
        pytest.fail(out + error)
    assert "All 3 checks gave the expected result" in out
    assert f"{6 * repetitions}/{6 * repetitions}" in error
    results = directory / "balanza-lab/small-quick"
    for name in ["report.html", "report.md", "results.csv", "runs.csv", "summary.json", "plan.toml", "environment.json"]:
        assert (results / name).stat().st_size > 0, name
    assert len(runs(results)) == 6 * repetitions
    configurations = {path.name for path in results.glob("configurations/**/*") if path.is_file()}
    assert any("haproxy" in name for name in configurations) and any("nginx" in name for name in configurations)

    summary = json.loads(lab(directory, "report", str(results), "--json")[0])
    assert json.dumps(summary).count("lc-is-better") >= 3
    assert lab(directory, "report", str(results), "--csv")[0].startswith("Type,Name,")
    assert "# " in lab(directory, "report", str(results), "--markdown")[0]
    assert "LC" in lab(directory, "compare", str(results), str(results))[0]
    # What is there is not overwritten.
    _, error = lab(directory, "run", "small.toml", "--quick", "--repetitions", "3", status=1)
    assert "--resume" in error


def test_the_requests_of_a_log(directory):
    example = ROOT / "examples/lab/replay.toml"
    lab(directory, "run", str(example), "--quick", "--out", "out")
    lines = (ROOT / "examples/lab/access.log").read_text().splitlines()
    for name in runs(directory / "out"):
        measured = json.loads((directory / "out/runs" / name).read_text())["measured"]
        # The log's own times: between half a second and one and a half.
        begins = sorted(float(words[-6]) - float(words[-5]) for words in (line.split() for line in lines))
        due = sum(0.5 <= time - begins[0] < 1.5 for time in begins)
        assert abs(measured["ended"] - due) <= 1 and measured["ended"] == measured["answered"], (due, measured)
        assert measured["replayed"] == {"requests": len(lines), "unsendable": 0, "strange": 0, "exact": True}
        assert measured["sent_late"] >= 0 and not measured["closed_loop"]
    report = (directory / "out/report.md").read_text()
    assert f"the log has {len(lines)} requests that can be sent" in report
    # What a busy machine has delayed is told in one way or the other.
    assert "were sent more than 10 ms after they were due" in report or "the load generator was late" in report, report
    (directory / "own.toml").write_text(example.read_text().replace("access.log", "none.log"))
    _, error = lab(directory, "run", "own.toml", status=1)
    assert "cannot read the log none.log" in error and "No such file" in error, error


def test_some_of_a_plan(directory):
    lab(directory, "run", "small.toml", "--quick", "--only", "system=nginx,RR", "--out", "some")
    assert len(runs(directory / "some")) == 2
    _, error = lab(directory, "run", "small.toml", "--only", "RRR", status=1)
    assert 'did you mean "RR"?' in error


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_resumed(directory, end):
    running = start(directory, "run", "small.toml", "--only", "nginx", "--out", "out")
    wait_for(lambda: len(runs(directory / "out")) >= 1, 60, "a finished run")
    running.send_signal(end)
    _, error = running.communicate(timeout=30)
    assert running.returncode == 130, error
    assert "--resume" in error
    nobody_left(directory)
    kept = directory / "out/runs"
    # Runs that do not count are measured again.
    valid = [name for name in runs(directory / "out") if not json.loads((kept / name).read_text()).get("invalid")]
    before = {name: (kept / name).stat().st_mtime_ns for name in valid}
    assert 1 <= len(runs(directory / "out")) < 4

    lab(directory, "run", "small.toml", "--only", "nginx", "--out", "out", "--resume")
    assert len(runs(directory / "out")) == 4
    assert all((kept / name).stat().st_mtime_ns == written for name, written in before.items())


def test_a_killed_lab_leaves_nobody_behind(directory):
    running = start(directory, "run", "small.toml", "--only", "haproxy", "--out", "out")
    # Not `haproxy -v`, nor what is not HAProxy yet.
    wait_for(lambda: any(b"-db" in (line := words(pid)) and b"setpriv" not in line[0]
                         for pid in processes(directory)), 30, "a balancer")
    running.kill()
    running.communicate()
    nobody_left(directory)


@pytest.mark.parametrize("events", ["", 'events = [{ at = "2500ms", do = "kill", servers = ["slow"] }]\n'],
                         ids=["without-events", "with-events"])
def test_a_killed_server(directory, events):
    """What the plan does to one server does not excuse the end of another."""
    text = PLAN.format(duration="3s").replace("[[algorithms]]", f"{events}\n[[algorithms]]", 1)
    (directory / "small.toml").write_text(text)
    running = start(directory, "run", "small.toml", "--only", "nginx,RR", "--repetitions", "1", "--out", "out")

    def target():
        return next((pid for pid in processes(directory) if {b"target", b"fast"} <= set(words(pid))), None)

    pid = wait_for(target, 30, "a server")
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    out, error = running.communicate(timeout=60)
    # Either it is told and tried again, or it does not count.
    assert "trying again" in error or "excluded: " in error, error


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed")
def test_peers(directory):
    text = PLAN.format(duration="900ms").replace("repetitions = 2", "repetitions = 1").partition("[quick]")[0]
    # All of the time is measured, so that there are answers in it on a busy machine, too.
    text = text.replace('warmup = "200ms"', "")
    text = text.replace("[[loads]]", '[[algorithms]]\nname = "RR 2:1"\nbalance = "round_robin"\nweights = [2, 1]\n\n[[loads]]')
    text += '[[checks]]\nname = "some"\nsays = "It answers."\nexpression = \'rps("RR") > 1\'\n'
    (directory / "peers.toml").write_text(text)
    home = directory / "home"
    home.mkdir()
    outside = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    _, error = lab(directory, "run", "peers.toml", "--peers", "--only", "system=balanza,system=caddy", "--out", "out",
                   **outside)
    done = [json.loads((directory / "out/runs" / name).read_text()) for name in runs(directory / "out")]
    caddy = {run["algorithm"]: run["measured"] for run in done if run["system"] == "caddy"}
    assert set(caddy) == {"RR", "LC"} and len(done) == 5, error
    assert all(measured["answered"] > 0 and measured["answered"] == measured["ended"] for measured in caddy.values())
    assert error.count("left out: caddy, RR 2:1") == 1 and "no weights for Caddy" in error, error
    assert (directory / "out/configurations/caddy").is_dir()
    report = json.loads(lab(directory, "report", "out", "--json")[0])
    assert any(fact[0] == "Caddy" for fact in report["environment"]["facts"]), report["environment"]
    assert {check["system"] for check in report["summary"]["checks"]} == {"balanza"}
    assert not list(home.iterdir()), "Caddy keeps something outside of the directory of the results"


def test_peers_that_are_not_installed(directory):
    path = directory / "without-caddy"
    path.mkdir()
    for program in [*pathlib.Path("/usr/bin").iterdir(), *pathlib.Path("/usr/sbin").iterdir()]:
        if program.name != "caddy" and not (path / program.name).exists():
            (path / program.name).symlink_to(program)
    _, error = lab(directory, "run", "small.toml", "--peers", "--quick", "--only", "balanza,RR", "--repetitions", "1",
                   PATH=str(path))
    assert error.count("--peers adds Caddy, which is not installed: apt-get install caddy") == 1, error
    assert "1/1" in error


EVENTS = """
events = [
    {{ at = "200ms", do = "deploy" }},
    {{ at = "8s", do = "kill", servers = ["slow"], duration = "200ms" }},
    {{ at = "8s", do = "{action}", servers = ["fast"], duration = "{duration}" }},
]

[[algorithms]]"""


def with_events(load, **event):
    """The plan with a deploy, a crash and this event, once, with a load that lasts so long."""
    text = PLAN.format(duration=load).replace('repetitions = 2', 'repetitions = 1')
    text = text.partition("[quick]")[0]
    return text.replace("[[algorithms]]", EVENTS.format(**event), 1)


def test_servers_come_and_go_by_plan(directory):
    (directory / "events.toml").write_text(with_events("12s", action="freeze", duration="300ms"))
    _, error = lab(directory, "run", "events.toml", "--only", "RR", "--only", "system=balanza,system=haproxy",
                   "--out", "out")
    assert "trying again" not in error, error
    for name in runs(directory / "out"):
        run = json.loads((directory / "out/runs" / name).read_text())
        # A busy machine may make the load generator late; nothing else may speak against the run.
        assert all("load generator" in reason for reason in run.get("invalid", [])), run["invalid"]
        done = [(event["what"], event["server"]) for event in run["events"] if event["at"] is not None]
        deploy = [("stop", "fast"), ("start", "fast"), ("stop", "slow"), ("start", "slow")]
        assert [event for event in done if event in deploy][:4] == deploy, run["events"]
        assert {("kill", "slow"), ("freeze", "fast"), ("thaw", "fast")} <= set(done), run["events"]
        assert all(event["at"] >= event["planned"] for event in run["events"] if event["at"] and event["planned"])
        assert run["measured"]["answered"] > 0
        # All processes of a server count together.
        assert sorted(process["name"] for process in run["processes"] if process["role"] == "server") == ["fast", "slow"]
    report = (directory / "out/report.md").read_text()
    assert "| 8.00 s | fast | is frozen |" in report and "stops gracefully" in report, report
    assert "at 8s: freeze fast for 300ms" in lab(directory, "show", "events.toml")[0]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_lab_that_ends_early_leaves_no_frozen_server(directory, end):
    (directory / "events.toml").write_text(with_events("30s", action="freeze", duration="20s"))
    running = start(directory, "run", "events.toml", "--only", "nginx,RR", "--out", "out")
    wait_for(lambda: any(is_stopped(pid) for pid in processes(directory) if b"target" in words(pid)), 60, "a frozen server")
    running.send_signal(end)
    running.communicate(timeout=30)
    nobody_left(directory)


def test_missing_tools(directory, tmp_path):
    path = tmp_path / "empty"
    path.mkdir()
    text = PLAN.format(duration="1s").replace("users = 20", 'users = 20\ntool = "wrk"').replace('warmup = "200ms"', "")
    (directory / "tool.toml").write_text(text)
    found = lab(directory, "doctor", "--json", PATH=str(path))[0]
    assert "apt-get install" in found
    _, error = lab(directory, "run", "tool.toml", status=1, PATH=str(path))
    assert "wrk is not installed" in error and "doctor" in error


def test_what_could_not_be_run_is_kept_with_the_results(directory, tmp_path):
    path = tmp_path / "without-wrk"
    path.mkdir()
    for program in pathlib.Path("/usr/bin").iterdir():
        if program.name != "wrk":
            (path / program.name).symlink_to(program)
    text = PLAN.format(duration="500ms").replace(', "nginx", "haproxy"', "").replace("repetitions = 2", "repetitions = 1")
    text = text.partition("[quick]")[0]
    (directory / "part.toml").write_text(f'{text}\n[[loads]]\nname = "wrk"\nusers = 4\nduration = "500ms"\ntool = "wrk"\n')
    out, _ = lab(directory, "run", "part.toml", PATH=str(path))
    assert "wrk is not installed" in out
    # Here it is installed; where the experiment ran it was not.
    out, _ = lab(directory, "report", "balanza-lab/small")
    assert "wrk is not installed" in out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk(directory):
    disk = directory / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "none", disk], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        _, error = lab(directory, "run", "small.toml", "--quick", "--out", str(disk / "out"), status=1)
        assert "No space left on device" in error
        for path in (disk / "out/runs").glob("*.json"):
            json.loads(path.read_text())
        nobody_left(directory)
    finally:
        subprocess.run(["umount", disk], check=True)
