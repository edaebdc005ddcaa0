"""Debian's PostgreSQL, and sessions of its client."""

import glob
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

from .balancer import wait_for
from .ports import free_port

_PROGRAMS = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
BIN = pathlib.Path(_PROGRAMS[-1]) if _PROGRAMS else None
PSQL = shutil.which("psql")


def _user():
    """It does not run as root."""
    if os.getuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def available():
    """What is missing, or nothing."""
    if BIN is None or not PSQL:
        return "no PostgreSQL"
    try:
        _user()
    except KeyError:
        return "no account for PostgreSQL"
    return ""


class Farm:
    """Servers with databases of their own, all copies of one."""

    def __init__(self, count):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="postgresql-"))
        self.dir.chmod(0o777)
        self.servers = []
        template = self.dir / "template"
        subprocess.run([BIN / "initdb", "-D", template, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8",
                        "--locale=C"], check=True, capture_output=True, cwd="/", **_user())
        for number in range(count):
            subprocess.run(["cp", "-r", template, self.dir / str(number)], check=True, cwd="/", **_user())
            self.servers.append(Postgres(self.dir / str(number)))
        for server in self.servers:
            wait_for(server.is_ready, what="PostgreSQL")

    def stop(self):
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Postgres:
    """A server, known by its port."""

    def __init__(self, data):
        self.port = free_port()
        self.server, self.name = f"127.0.0.1:{self.port}", str(self.port)
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
                    "max_connections": 50, "shared_buffers": "16MB", "autovacuum": "off", "max_wal_senders": 0,
                    "wal_level": "minimal"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen([BIN / "postgres", "-D", data, *options], stdin=subprocess.DEVNULL, cwd="/",
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_user())

    def is_ready(self):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        return subprocess.run([BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode == 0

    def kill(self):
        """Ends it and its sessions at once, without a word to its clients."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(20)


class Psql:
    """A session that stays open. `place` is the port of the server that it came to."""

    def __init__(self, port):
        self.process = subprocess.Popen(
            [PSQL, "-XqAt", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PGSSLMODE": "disable"}, text=True)
        self.place = self.ask("show port;")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, sql):
        """The first line that it says."""
        try:
            self.process.stdin.write(sql + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.kill()
        self.process.communicate()
