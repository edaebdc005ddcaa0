"""A Docker daemon of the test's own, with its own data, network and socket; and one that is played."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

from .http_api import Api

DOCKERFILE = """FROM scratch
COPY server /server
EXPOSE 8000
ENTRYPOINT ["/server"]
"""


class Unavailable(Exception):
    """Why no daemon can run here."""


def free_number(first):
    """N from 1 to 250 without a route to 10.213.N.0/24 or 10.214.N.0/24, the networks of a daemon.

    A daemon that was killed leaves its bridges. Docker then makes others with the same addresses, and the kernel sends to the first.
    """
    routes = pathlib.Path("/proc/net/route").read_text().splitlines()[1:]
    networks = (bytes.fromhex(route.split()[1])[::-1] for route in routes)
    taken = {network[2] for network in networks if network[:2] in (b"\x0a\xd5", b"\x0a\xd6")}
    return next(number for number in (step % 250 + 1 for step in range(first, first + 250)) if number not in taken)


class Daemon:
    """dockerd, with an image `server` whose containers answer with their names, and a network `web`."""

    def __init__(self):
        program = shutil.which("dockerd") or "/usr/sbin/dockerd"
        if not os.path.exists(program) or not shutil.which("docker"):
            raise Unavailable("no dockerd (Debian's docker.io)")
        if os.geteuid() != 0:
            raise Unavailable("dockerd needs root")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="docker-"))
        self.dir.chmod(0o755)
        self.socket = self.dir / "docker.sock"
        self.url = f"unix:{self.socket}"
        self.number = free_number(os.getpid() % 250)
        self.arguments = [program, "--data-root", str(self.dir / "data"), "--exec-root", str(self.dir / "exec"),
                          "--pidfile", str(self.dir / "pid"), "-H", f"unix://{self.socket}", "--bridge=none",
                          "--iptables=false", "--ip6tables=false", "--storage-driver=vfs"]
        self.process = None
        try:
            self.start()
            self.make()
        except (subprocess.CalledProcessError, Unavailable) as error:
            why = getattr(error, "stderr", None) or str(error)
            self.stop()
            raise Unavailable(f"Docker does not work here: {why.strip()[-300:]}") from None

    def start(self):
        with open(self.dir / "log", "ab") as log:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(600):
            if self.process.poll() is not None:
                raise Unavailable((self.dir / "log").read_text())
            if subprocess.run(["docker", "version"], env=self.environment, capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        else:
            raise Unavailable("dockerd does not answer")
        # The worker process is nobody.
        self.socket.chmod(0o666)

    def make(self):
        image = self.dir / "image"
        image.mkdir()
        source = pathlib.Path(__file__).with_name("docker_server.c")
        subprocess.run(["cc", "-O1", "-static", "-o", image / "server", source], check=True, capture_output=True, text=True)
        (image / "Dockerfile").write_text(DOCKERFILE)
        self("build", "-q", "-t", "server", str(image))
        self("network", "create", "--subnet", f"10.213.{self.number}.0/24", "web")
        # A container at all: the kernel or another sandbox may refuse it.
        self("run", "--rm", "server", "check", "1", check=False)
        self.run("first")
        self("rm", "-f", "first")

    @property
    def environment(self):
        return {**os.environ, "DOCKER_HOST": f"unix://{self.socket}"}

    def __call__(self, *words, check=True):
        done = subprocess.run(["docker", *words], env=self.environment, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
        return done.stdout.strip()

    def run(self, name, *options, labels=(), port=8000, network="web"):
        """Starts a container that answers with its name."""
        options = [*options, *(word for label in labels for word in ("--label", label))]
        self("run", "-d", "--name", name, "--network", network, "--stop-signal", "KILL", *options, "server", name, str(port))
        return name

    def address(self, name, network="web"):
        networks = json.loads(self("inspect", name))[0]["NetworkSettings"]["Networks"]
        return networks[network]["IPAddress"]

    def clear(self):
        """Removes all containers."""
        names = self("ps", "-aq").split()
        if names:
            self("rm", "-f", *names)

    def kill(self):
        """The daemon ends, and its containers with it."""
        self.process.terminate()
        self.process.wait(60)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            names = self("ps", "-aq", check=False).split()
            if names:
                self("rm", "-f", *names, check=False)
            self("network", "rm", "web", check=False)
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Played(Api):
    """As much of the daemon's interface as the tests need: answers of dockerd 20.10, and what none has."""

    def __init__(self, path=None):
        self.containers, self.changed, self.version = {}, threading.Condition(), 0
        super().__init__(self.serve, path=path)

    def run(self, name, server, *, labels=None, status="Up 2 seconds", state="running", networks=("web",)):
        address, port = server.rsplit(":", 1)
        network = {"IPAMConfig": None, "Gateway": "127.0.0.1", "IPAddress": address, "IPPrefixLen": 24, "GlobalIPv6Address": ""}
        self.change(name, {
            "Id": name * 8, "Names": [f"/{name}"], "Image": "server", "Command": f"/server {name}", "Created": 1795612432,
            "Ports": [{"PrivatePort": int(port), "Type": "tcp"}],
            "Labels": {"balanza.upstream": "app"} if labels is None else labels, "State": state, "Status": status,
            "HostConfig": {"NetworkMode": "web"},
            "NetworkSettings": {"Networks": {name: network for name in networks}}, "Mounts": []})

    def change(self, name, container, tell=True):
        with self.changed:
            if container is None:
                del self.containers[name]
            else:
                self.containers[name] = container
            self.version += tell
            self.changed.notify_all()

    def serve(self, request):
        if request.path == "/containers/json":
            wanted = json.loads(request.query["filters"])
            label, _, value = wanted["label"][0].partition("=")
            return request.answer([it for it in self.containers.values() if it["Labels"].get(label) == value])
        assert request.path == "/events"
        # A client that has the head knows this version, and is sent every later one.
        seen = self.version
        request.stream()
        while not request.ended():
            with self.changed:
                self.changed.wait_for(lambda: self.version != seen, 0.05)
                news, seen = self.version != seen, self.version
            if news:
                request.line({"Type": "container", "Action": "start", "time": int(time.time())})
