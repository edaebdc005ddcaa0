"""Fixtures and hooks that every directory of end-to-end tests uses."""

import pathlib
import shutil
import tempfile

import pytest

from . import balancer as balancers
from . import origin as origins
from . import over_http2
from .browser import Browser
from .fast import FastServer
from .stream import TcpServer


@pytest.fixture
def balancer():
    """Starts balancers: `balancer(http_block, …)`."""
    return balancers.Balancer


@pytest.fixture
def origin():
    """Starts raw servers: `origin(handler)`."""
    return origins.Origin


@pytest.fixture
def servers():
    """Two fast servers, which answer with "a" and "b". A file that needs others has a fixture of its own."""
    started = [FastServer(name) for name in ("a", "b")]
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def browser():
    """A browser with an empty page."""
    one = Browser()
    yield one
    one.close()


@pytest.fixture
def open_dir():
    """A directory that workers may use as well, who are nobody when the tests are root."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.when == "call":
        for index, one in enumerate(balancers.started):
            report.sections.append((f"balancer {index}", one.report()))


@pytest.fixture(autouse=True)
def clean_up():
    yield
    problems = []
    for one in balancers.started:
        try:
            one.stop()
        except AssertionError as error:
            problems.append(str(error))
        one.remove()
    balancers.started.clear()
    for one in list(origins.started):
        one.stop()
    origins.started.clear()
    assert not problems, problems


@pytest.fixture
def tcp_servers():
    """Starts servers: `tcp_servers(count)` echo behind a line with their names, `tcp_servers(handle=f)` runs f."""
    started = []

    def start(count=1, handle=None, **options):
        new = [TcpServer(f"s{len(started) + index}", handle, **options) for index in range(count)]
        started.extend(new)
        return new

    yield start
    for server in started:
        server.stop()


def pytest_collection_modifyitems(items):
    for item in items:
        if over_http2.CHOSEN and (mark := item.get_closest_marker("http1")):
            item.add_marker(pytest.mark.skip(reason=f"HTTP/1: {mark.args[0]}"))
    # Tests that load the machine run in one worker, one after the other.
    for item in items:
        if item.get_closest_marker("load") or item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.xdist_group("load"))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["requests"] = dict(over_http2.counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    over_http2.counts.update(getattr(node, "workeroutput", {}).get("requests", {}))


def pytest_terminal_summary(terminalreporter):
    if over_http2.CHOSEN:
        terminalreporter.write_line("requests: {HTTP/2} by HTTP/2, {HTTP/1} by HTTP/1".format_map(over_http2.counts))


def pytest_report_header():
    return f"balancer: {balancers.KIND} ({balancers.binary()})"
