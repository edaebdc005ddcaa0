"""Runs the commands of a page one after the other, as a reader at a terminal would."""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from pages import ROOT, blocks
from support.balancer import binary, wait_for
from support.ports import free_port

# Commands that this test does not run, and why.
NOT_RUN = {
    r"(sudo|apt|apt-get|dpkg) ": "changes the system",
    r"systemctl ": "needs systemd",
    r"(docker|podman|podman-compose|buildah) ": "needs a container engine",
    r"kubectl ": "needs a cluster",
    r"(cargo|rustup) ": "compiles or downloads for minutes",
    r"scripts/install": "changes the system",
    r"(tar .*|cd |\./)balanza": "needs the files of a release",
}

# The same for single pages.
NOT_RUN_ON = {
    "CONTRIBUTING.md": {r"(export )?(NGINX|MODULE)=\$\(|tests/nginx-module/": "compiles for minutes"},
    "docs/from-nginx.md": {r"(nginx|balanza -c /etc/nginx/nginx.conf) -s quit": "stops the NGINX that runs here"},
    "docs/simulator.md": {r"pip install|dask |.*dask://|balanza-sweep ": "needs Dask; tests/simulation has a cluster"},
    "docs/install.md": {r"(curl|sha256sum|gpg) ": "needs the installed package, a container or the files of a release"},
}

# A command that serves until Ctrl-C, and what it is given in addition; what follows in the page is run beside it.
SERVES = {r"balanza demo( |$)(?!.*--print-config)": "--port 0", r"balanza target (?!--help)": ""}

# A command that takes longer than a test may: Ctrl-C ends it when it has begun, and its exit status says so.
LONG = {r"balanza lab run ": 130}

# What makes a command quick enough.
SHORTER = {
    r"balanza simulate (?!bins|sweep|.*--(list|print))": "--replications 2",
    r"balanza recommend (?!.*--(sample|help))": "--replications 2",
}

# A command whose exit status depends on the machine: its own nginx.conf may have directives that Balanza refuses.
EITHER = [r"\S*balanza -t -c /etc/nginx/nginx.conf( -e stderr)?$"]

# Only for commands that hang: on a busy machine everything takes longer.
SECONDS = 400


@dataclasses.dataclass
class Command:
    """A command of a page: where it is, its text, and whether the page says that it fails."""

    line: int
    text: str
    fails: bool

    def matches(self, patterns):
        return next((pattern for pattern in patterns if re.match(pattern, self.text)), None)


def commands(text):
    """The commands of a page's blocks that are marked as `sh`. A comment "fails: …" says that the command does."""
    found = []
    for start, language, body in blocks(text):
        if language != "sh":
            continue
        lines = iter(enumerate(body.splitlines(), start + 1))
        for number, line in lines:
            command, _, comment = re.sub(r"(^|\s)#\s*", r"\1\0", line).partition("\0")
            command = command.rstrip()
            while command.endswith("\\"):
                command = command[:-1].rstrip() + " " + next(lines)[1].strip()
            here = re.search(r"<<'?(\w+)'?", command)
            if here:
                for _, more in lines:
                    command += "\n" + more
                    if more == here[1]:
                        break
                else:
                    raise ValueError(f"the here-document in line {number} has no end")
            if command:
                found.append(Command(number, command, comment.startswith("fails")))
    return found


def looks_like_a_command(line):
    """Whether a line of a block that is not marked as `sh` should be."""
    return re.match(r"(\$ |sudo |make |cargo |balanza -|balanza [a-z]+ |target/|scripts/|tests/|benches/|curl |kill |apt)", line)


def three_ports():
    """The first of three free ports that follow each other."""
    found = [free_port()]
    while len(found) < 3:
        port = free_port()
        found = [*found, port] if port == found[-1] + 1 else [port]
    return found[0]


class Session:
    """A shell in a directory that looks like the source tree, with the program under test in target/release and target/demo."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="docs-"))
        self.dir.chmod(0o755)
        self.home, self.cwd = self.dir / "home", self.dir / "balanza"
        for path in (self.home, self.cwd / "target/release", self.cwd / "target/demo", self.dir / "bin"):
            path.mkdir(parents=True)
        for path in ROOT.iterdir():
            if path.name not in ("target", ".git"):
                (self.cwd / path.name).symlink_to(path)
        for place in (self.cwd / "target/release/balanza", self.cwd / "target/demo/balanza", self.dir / "bin/balanza"):
            place.symlink_to(pathlib.Path(binary("balanza")).resolve())
        own = {name: value for name, value in os.environ.items()
               if not re.match(r"(BALANZA|BALANCER|NGINX|PYTEST|TESTS|WORKERS|VENV|XDG_)", name)}
        self.env = own | {"HOME": str(self.home), "PATH": f"{self.dir}/bin:{own['PATH']}:/usr/sbin"}
        if (pathlib.Path(sys.prefix) / "requirements.txt").exists():
            self.env["VENV"] = sys.prefix
        free = three_ports()
        self.ports = {8001: free, 8002: free + 1, 8003: free + 2, 8080: free_port()}
        self.beside = []

    def start(self, text):
        """Starts a command; its end leaves the shell's directory and variables in a file for the next one."""
        text = re.sub(r"127\.0\.0\.1:(\d+)", lambda m: f"127.0.0.1:{self.ports.get(int(m[1]), m[1])}", text)
        state = self.dir / "state"
        state.unlink(missing_ok=True)
        script = f"{text}\nstatus=$?\n{{ pwd; env -0; }} > {state}\nexit $status"
        # Ctrl-C reaches the command, not the shell around it, as with a shell at a terminal.
        self.output = self.dir / "output"
        with open(self.output, "wb") as output:
            return subprocess.Popen(["bash", "--noprofile", "--norc", "-c", f"trap : INT\n{script}"], cwd=self.cwd,
                                    env=self.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                    start_new_session=True)

    def take_state(self):
        text = (self.dir / "state").read_text()
        directory, _, variables = text.partition("\n")
        self.cwd = pathlib.Path(directory)
        self.env = dict(one.split("=", 1) for one in variables.split("\0") if "=" in one)

    def run(self, text, seconds=SECONDS):
        """Runs a command to its end: status and output."""
        process = self.start(text)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end(process, signal.SIGKILL)
            raise AssertionError(f"still running after {seconds} s: {text}\n{self.said()}") from None
        if (self.dir / "state").exists():
            self.take_state()
        return status, self.said()

    def said(self):
        return self.output.read_text(errors="replace")

    def begun(self, text, process, output):
        wait_for(lambda: process.poll() is not None or output.stat().st_size > 0, SECONDS, f"output of {text}")
        time.sleep(1)

    def end(self, process, number):
        if process.poll() is None:
            os.killpg(process.pid, number)
        return process.wait(60)

    def follow(self, command, page=""):
        """Does what a reader of a page does with a command; the problem, if there is one."""
        text = command.text
        if command.matches(NOT_RUN) or command.matches(NOT_RUN_ON.get(page, ())):
            return None
        if text.startswith("make "):
            # The recipes are other tests' subject: the targets must exist.
            status, said = self.run(f"make -n {text[5:]}")
            return None if status == 0 else f"make -n ended with {status}\n{said}"
        if re.match(r"(\w+=\S+ )*benches/", text):
            return self.has_options(text)
        if found := command.matches(SERVES):
            process = self.start(f"{text} {SERVES[found]}")
            self.begun(text, process, self.output)
            if process.poll() is not None:
                return f"ended with {process.returncode}\n{self.said()}"
            if found.startswith("balanza target"):
                self.beside.append(process)
                return None
            status = self.end(process, signal.SIGINT)
            return None if status == 0 else f"ended with {status} after Ctrl-C\n{self.said()}"
        if found := command.matches(LONG):
            process = self.start(text)
            self.begun(text, process, self.output)
            status = self.end(process, signal.SIGINT)
            return None if status == LONG[found] else f"ended with {status} after Ctrl-C\n{self.said()}"
        if found := command.matches(SHORTER):
            head, redirection, file = text.partition(" >")
            text = f"{head} {SHORTER[found]}{redirection}{file}"
        status, said = self.run(text)
        if command.matches(EITHER):
            return None if status in (0, 1) and re.search("test is successful|test failed", said) else f"ended with {status}\n{said}"
        if command.fails:
            return None if status not in (0, 126, 127) else f"ended with {status}, and the text says that it fails\n{said}"
        return None if status == 0 else f"ended with {status}\n{said}"

    def has_options(self, text):
        """Benchmarks take minutes: their options and scenarios must exist."""
        program, *words = text.split("benches/", 1)[1].split()
        status, said = self.run(f"benches/{program} --help")
        missing = [word for word in words if word.startswith("--") and word not in said]
        known = said + (ROOT / "benches" / program).read_text()
        missing += [words[at + 1] for at, word in enumerate(words) if word == "--only" and words[at + 1] not in known]
        return None if status == 0 and not missing else f"--help ended with {status} and lacks {missing}\n{said}"

    def close(self):
        """Ends what the commands have left running."""
        for process in self.beside:
            self.end(process, signal.SIGINT)
        for file in self.dir.rglob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGTERM)
            except (FileNotFoundError, ProcessLookupError, ValueError):
                continue
            wait_for(lambda: not file.exists(), what="the balancer's end")
        shutil.rmtree(self.dir, ignore_errors=True)
