"""Fixtures: NGINX with the module loaded, and the servers of the end-to-end tests."""

import os
import pathlib
import re
import subprocess

import pytest

from support import balancer as balancers
from support.fixtures import clean_up, pytest_collection_modifyitems, pytest_runtest_makereport  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version():
    """That of the NGINX under test."""
    said = subprocess.run([balancers.binary("nginx"), "-v"], capture_output=True, text=True, check=True).stderr
    return re.search(r"nginx/([\d.]+)", said)[1]


def module():
    """The module built for it."""
    path = os.environ.get("MODULE", ROOT / "target/nginx-module" / version() / "ngx_http_balanza_module.so")
    assert pathlib.Path(path).exists(), f"{path} is missing: make nginx-module"
    return path


class Nginx(balancers.Balancer):
    """A running NGINX with the module. `zone` puts every upstream into shared memory; every worker has a listening
    socket of its own, so that all of them get requests."""

    def __init__(self, http="", *, zone=False, main="", **options):
        self.zone = zone
        super().__init__(http, main=f"load_module {module()};\n{main}", kind="nginx", **options)

    def write(self, http="", text=None):
        if self.zone:
            http = re.sub(r"\bupstream\s+(\S+)\s*\{", r"\g<0> zone \1 1m;", http)
        http = http.replace("127.0.0.1:PORT;", "127.0.0.1:PORT reuseport;")
        if self.log_access:
            http = 'log_format pids "$pid $status $upstream_addr"; access_log logs/pids.log pids;' + http
        super().write(http, text)

    def start(self):
        """Starts it and waits until all workers are there: the first serves before the last is forked."""
        super().start()
        if "master_process off" not in self.text:
            balancers.wait_for(lambda: len(self.workers_now()) >= self.workers, what="all workers")

    def pids(self):
        """The workers that served requests so far."""
        return {int(line.split()[0]) for line in self.access_log("pids.log")}

    def workers_now(self):
        return balancers.children(self.pid)

    def stop(self, *arguments, **options):
        code = super().stop(*arguments, **options)
        deaths = re.findall(r".*exited on signal.*", self.error_log())
        assert getattr(self, "may_die", False) or not deaths, deaths
        return code


@pytest.fixture
def nginx():
    """Starts NGINX: `nginx(http_block, …)`."""
    return Nginx


@pytest.fixture(params=[(1, False), (1, True), (4, False), (4, True)],
                ids=["1 worker", "1 worker, zone", "4 workers", "4 workers, zone"])
def any_nginx(request):
    """The same with one worker and four, with and without a zone."""
    workers, zone = request.param
    return lambda *arguments, **options: Nginx(*arguments, workers=workers, zone=zone, **options)


def pytest_report_header():
    return f"nginx {version()} ({balancers.binary('nginx')}), {module()}"
