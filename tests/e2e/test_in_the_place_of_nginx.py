"""Balanza as /usr/sbin/nginx: what Debian's init script, logrotate's file and certbot do with NGINX works with Balanza.

The machine's own programs and files are used, in a mount namespace in which changes are laid over them.
"""

import pathlib
import shutil
import subprocess

import pytest

from support.balancer import binary, wait_for
from support.certificates import certificate
from support.expect import balanza_only
from support.ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = [pathlib.Path(path) for path in ("/usr/sbin/nginx", "/etc/init.d/nginx", "/etc/logrotate.d/nginx", "/usr/bin/dpkg-divert")]


def can_lay_over():
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w && "
               "mount -t overlay o -o lowerdir=/usr/sbin,upperdir=/mnt/u,workdir=/mnt/w /usr/sbin"]
    return subprocess.run(command, capture_output=True).returncode == 0


pytestmark = [balanza_only("Balanza in the place of NGINX"),
              pytest.mark.skipif(not all(path.exists() for path in NEEDED), reason="needs Debian's NGINX"),
              pytest.mark.skipif(not can_lay_over(), reason="needs root and overlay file systems")]

CONFIGURATION = """
user www-data;
pid /run/nginx.pid;
error_log /var/log/nginx/error.log notice;
events { worker_connections 512; }
http {
    access_log /var/log/nginx/access.log;
    server { listen 127.0.0.1:PORT; server_name a.test; location / { return 200 "ANSWER\\n"; } }
}
"""


class Machine:
    """Debian with NGINX and Balanza's package, as far as it concerns /usr/sbin/nginx."""

    def __init__(self, directory):
        self.dir, self.port = directory, free_port()
        layers = "\n".join(
            f"mkdir -p {directory}/over{path}/u {directory}/over{path}/w && mount -t overlay over -o "
            f"lowerdir={path},upperdir={directory}/over{path}/u,workdir={directory}/over{path}/w {path}"
            for path in ("/usr", "/etc", "/var/lib", "/var/log", "/run"))
        script = f"""set -e
            mount --make-rprivate /
            mkdir {directory}/over && mount -t tmpfs over {directory}/over
            {layers}
            cp {binary("balanza")} /usr/bin/balanza
            mkdir -p /usr/lib/balanza
            sed s,@BIN@,/usr/bin,g {ROOT}/packaging/as-nginx.sh > /usr/lib/balanza/as-nginx
            chmod 755 /usr/lib/balanza/as-nginx
            rm -f /usr/sbin/policy-rc.d /etc/nginx/sites-enabled/* /var/log/nginx/*
            touch {directory}/ready; exec sleep 1000"""
        # These describe sockets to NGINX and Balanza.
        self.inside = subprocess.Popen(["unshare", "-m", "env", "-u", "NGINX", "-u", "BALANZA", "sh", "-c", script])
        wait_for(lambda: (directory / "ready").exists() or self.inside.poll() is not None, 60, "the machine")
        assert self.inside.poll() is None

    def run(self, command, code=0):
        done = subprocess.run(["nsenter", "-m", "-t", str(self.inside.pid), "env", "-u", "NGINX", "-u", "BALANZA", "sh", "-c", command],
                              capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
        assert done.returncode == code, (command, done.stdout, done.stderr, self.log())
        return done.stdout + done.stderr

    def log(self):
        return subprocess.run(["nsenter", "-m", "-t", str(self.inside.pid), "cat", "/var/log/nginx/error.log"],
                              capture_output=True, text=True).stdout[-3000:]

    def configure(self, answer):
        text = CONFIGURATION.replace("PORT", str(self.port)).replace("ANSWER", answer)
        (self.dir / "nginx.conf").write_text(text)
        self.run(f"cp {self.dir}/nginx.conf /etc/nginx/nginx.conf")

    def ask(self, path="/"):
        """The Server field and the body."""
        done = subprocess.run(["curl", "-s", "-D", "-", f"http://127.0.0.1:{self.port}{path}"], capture_output=True, text=True)
        head, _, body = done.stdout.partition("\n\n")
        server = [line.split(": ")[1] for line in head.splitlines() if line.startswith("Server: ")]
        return (server[0].split("/")[0] if server else None), body.strip()

    def answers(self, answer, server="balanza"):
        wait_for(lambda: self.ask() == (server, answer), what=f"{server} with {answer}")

    def read(self, path):
        return self.run(f"cat {path}")

    def end(self):
        self.run("[ ! -s /run/nginx.pid ] || kill -TERM $(cat /run/nginx.pid)")
        self.inside.kill()
        self.inside.wait()


@pytest.fixture
def machine(open_dir):
    made = Machine(open_dir)
    try:
        made.configure("first")
        yield made
    finally:
        made.end()


@pytest.fixture
def running(machine):
    """Started by Debian's init script."""
    machine.run("/usr/lib/balanza/as-nginx on")
    machine.run("/etc/init.d/nginx start")
    machine.answers("first")
    return machine


def test_the_program_is_changed_and_changed_back(machine):
    assert "nginx/" in machine.run("nginx -v") and "is not balanza" in machine.run("/usr/lib/balanza/as-nginx status")
    for _ in range(2):
        machine.run("/usr/lib/balanza/as-nginx on")
    assert "balanza" in machine.run("nginx -V") and "is balanza" in machine.run("/usr/lib/balanza/as-nginx status")
    assert "/usr/sbin/nginx.distrib" in machine.run("dpkg-divert --list /usr/sbin/nginx")
    assert "nginx version: nginx/" in machine.run("/usr/sbin/nginx.distrib -v")
    for _ in range(2):
        machine.run("/usr/lib/balanza/as-nginx off")
    assert "balanza" not in machine.run("nginx -V") + machine.run("dpkg-divert --list /usr/sbin/nginx")
    machine.run("/usr/lib/balanza/as-nginx", code=1)


def test_a_file_in_the_way_is_kept(machine):
    machine.run("echo mine > /usr/sbin/nginx.distrib")
    assert "in the way" in machine.run("/usr/lib/balanza/as-nginx on", code=1)
    assert machine.read("/usr/sbin/nginx.distrib") == "mine\n" and "balanza" not in machine.run("nginx -V")


@pytest.mark.parametrize("command", ["nginx -t && nginx -s reload", "/etc/init.d/nginx reload", "invoke-rc.d nginx reload",
                                     "kill -HUP $(cat /run/nginx.pid)"])
def test_commands_that_reload(running, command):
    running.configure("second")
    running.run(command)
    running.answers("second")


def test_a_wrong_configuration_is_refused(running):
    running.configure('"; wrong on; return 200 "')
    assert "wrong" in running.run("nginx -t", code=1)
    running.run("nginx -s reload", code=1)
    running.answers("first")


def test_the_init_script_upgrades_and_stops(running):
    before = running.read("/run/nginx.pid")
    assert running.run("/etc/init.d/nginx status")
    running.run("/etc/init.d/nginx upgrade")
    wait_for(lambda: running.read("/run/nginx.pid") != before, what="another process")
    running.answers("first")
    running.run("/etc/init.d/nginx reload")
    running.run("/etc/init.d/nginx stop")
    # The process from before the upgrade may not have ended yet.
    wait_for(lambda: running.ask() == (None, ""), what="the end")


@pytest.mark.parametrize("rotate", ["invoke-rc.d nginx rotate", "/etc/init.d/nginx rotate", "kill -USR1 $(cat /run/nginx.pid)",
                                    "nginx -s reopen"])
def test_commands_that_reopen_logs(running, rotate):
    running.run("mv /var/log/nginx/access.log /var/log/nginx/old.log")
    running.run(rotate)
    wait_for(lambda: "no" not in running.run("[ -e /var/log/nginx/access.log ] || echo no"), what="the new log")
    # A worker has the new file a moment after it was made.
    wait_for(lambda: running.ask("/between") and "/between" in running.read("/var/log/nginx/access.log"), what="the worker")
    running.ask("/after")
    wait_for(lambda: "/after" in running.read("/var/log/nginx/access.log"), what="the request in the new log")
    assert "/after" not in running.read("/var/log/nginx/old.log")


@pytest.mark.skipif(not shutil.which("logrotate", path="/usr/sbin:/usr/bin"), reason="needs logrotate")
def test_logrotate_with_the_file_of_debians_nginx(running):
    running.ask("/before")
    wait_for(lambda: "/before" in running.read("/var/log/nginx/access.log"), what="the request in the log")
    running.run("logrotate -f /etc/logrotate.d/nginx")
    wait_for(lambda: "reopening logs" in running.read("/var/log/nginx/error.log*"), what="the reopening")
    # A worker has the new file a moment after it was made.
    wait_for(lambda: running.ask("/between") and "/between" in running.read("/var/log/nginx/access.log"), what="the worker")
    running.ask("/after")
    wait_for(lambda: "/after" in running.read("/var/log/nginx/access.log"), what="the request in the new log")
    old = running.read("/var/log/nginx/access.log.1")
    assert "/before" in old and "/after" not in old


@pytest.mark.skipif(not shutil.which("certbot"), reason="needs certbot and its plugin for NGINX")
def test_certbot_installs_a_certificate(running):
    pair, tls = certificate("a.test"), free_port()
    # What an authority would have given, as certbot keeps it.
    lineage = running.dir / "lineage.sh"
    lineage.write_text(f"""set -e
        cd /etc && mkdir -p letsencrypt/live/a.test letsencrypt/archive/a.test letsencrypt/renewal
        cp {pair.certificate} letsencrypt/archive/a.test/cert1.pem; cp {pair.certificate} letsencrypt/archive/a.test/chain1.pem
        cp {pair.certificate} letsencrypt/archive/a.test/fullchain1.pem; cp {pair.key} letsencrypt/archive/a.test/privkey1.pem
        printf 'version = 2.1.0\\narchive_dir = /etc/letsencrypt/archive/a.test\\n' > letsencrypt/renewal/a.test.conf
        for name in cert chain fullchain privkey; do
            ln -s ../../archive/a.test/${{name}}1.pem letsencrypt/live/a.test/$name.pem
            echo "$name = /etc/letsencrypt/live/a.test/$name.pem" >> letsencrypt/renewal/a.test.conf
        done
        printf '[renewalparams]\\nauthenticator = nginx\\ninstaller = nginx\\n' >> letsencrypt/renewal/a.test.conf""")
    running.run(f"sh {lineage}")
    assert "a.test" in running.run("certbot certificates")
    said = running.run(f"certbot install --nginx --non-interactive --cert-name a.test -d a.test --no-redirect --https-port {tls}")
    assert "Successfully deployed" in said, said
    assert f"{tls} ssl" in running.read("/etc/nginx/nginx.conf")

    def shows(pair):
        """Whether clients get this certificate."""
        shown = [subprocess.run(command, shell=True, capture_output=True, text=True).stdout for command in (
            f"openssl s_client -connect 127.0.0.1:{tls} -servername a.test </dev/null | openssl x509 -noout -serial",
            f"openssl x509 -noout -serial -in {pair.certificate}")]
        return shown[0] == shown[1]

    wait_for(lambda: shows(pair), what="the certificate")
    # A renewal leaves other files and runs the hook of the lineage.
    renewed = certificate("a.test", "rsa")
    running.run(f"cp {renewed.certificate} /etc/letsencrypt/archive/a.test/fullchain1.pem; "
                f"cp {renewed.key} /etc/letsencrypt/archive/a.test/privkey1.pem; nginx -s reload")
    wait_for(lambda: shows(renewed), what="the renewed certificate")
    running.answers("first")
