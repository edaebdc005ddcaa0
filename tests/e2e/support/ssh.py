"""Debian's OpenSSH: servers that say their number, and clients."""

import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

from .balancer import read, wait_for
from .ports import free_port

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
SSH = shutil.which("ssh")


class Farm:
    """Servers with one key for all, as servers behind one name must have."""

    def __init__(self, count):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ssh-"))
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / name], check=True)
        if os.getuid() == 0:
            # Debian's service makes it before it starts the server.
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self.servers = [Sshd(self.dir, number) for number in range(count)]
        for server in self.servers:
            wait_for(server.is_listening, what="sshd")

    def client(self, port, command, *, source="127.0.0.1", **options):
        """A session that runs a command."""
        settings = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "BatchMode": "yes",
                    "IdentitiesOnly": "yes", "LogLevel": "ERROR", "ConnectTimeout": "60"}
        arguments = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        return subprocess.Popen([SSH, "-F", "none", "-i", self.dir / "user", "-b", source, *arguments, "-p", str(port),
                                 "-l", getpass.getuser(), "127.0.0.1", command], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def place(self, port, source="127.0.0.1"):
        """The number of the server that a session comes to."""
        out, err = self.client(port, "echo $NUMBER", source=source).communicate(timeout=60)
        assert out, err
        return int(out)

    def stop(self):
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Sshd:
    """One server."""

    def __init__(self, directory, number):
        self.port = free_port()
        self.server = f"127.0.0.1:{self.port}"
        config = directory / f"sshd-{number}.conf"
        config.write_text(f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nPidFile none\n"
                          f"AuthorizedKeysFile {directory}/user.pub\nStrictModes no\nUsePAM no\nUseDNS no\n"
                          f"PermitRootLogin yes\nPasswordAuthentication no\nSetEnv NUMBER={number}\n"
                          "MaxStartups 100\n")
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=open(directory / f"sshd-{number}.log", "wb"),
                                        start_new_session=True)

    def is_listening(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        """Kills it and its sessions: each is a process below it."""
        if self.process.poll() is None:
            _kill_tree(self.process.pid)
            self.process.wait()


def _kill_tree(pid):
    """Those below first, so that none is lost sight of."""
    for child in read(f"/proc/{pid}/task/{pid}/children").split():
        _kill_tree(int(child))
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
