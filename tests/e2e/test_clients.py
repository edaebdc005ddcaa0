"""The load generators that people use, each with a bounded load and no failure by its own count."""

import re
import shutil
import subprocess

import pytest

from support.client import get
from support.fast import FastServer
from support.origin import proxy

pytestmark = pytest.mark.load


def tool(name, *arguments, timeout=60):
    """Runs a tool and returns all that it prints."""
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    result = subprocess.run([name, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    return result.stdout + result.stderr


def number(pattern, text):
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


@pytest.fixture
def farm(balancer):
    """A balancer in front of three fast servers, and how many requests it logged."""
    servers = [FastServer("x" * 200) for _ in range(3)]
    yield balancer(proxy(servers), workers=2)
    for server in servers:
        server.stop()


@pytest.mark.parametrize("keep", [[], ["-k"]])
def test_ab(farm, keep):
    text = tool("ab", "-n", 4000, "-c", 32, *keep, f"http://127.0.0.1:{farm.port}/")
    assert number(r"Complete requests:\s+(\d+)", text) == 4000
    assert number(r"Failed requests:\s+(\d+)", text) == 0 and "Non-2xx" not in text
    if keep:
        assert number(r"Keep-Alive requests:\s+(\d+)", text) > 3900
    assert len(farm.wait_log(4000)) == 4000


@pytest.mark.parametrize("headers", [[], ["-H", "Connection: close"]])
def test_wrk(farm, headers):
    text = tool("wrk", "-t1", "-c32", "-d2s", "--timeout", "20s", *headers, f"http://127.0.0.1:{farm.port}/")
    assert "Non-2xx" not in text and "Socket errors" not in text, text
    assert number(r"(\d+) requests in", text) > 200


def test_siege(farm, tmp_path):
    (tmp_path / "siegerc").write_text("protocol = HTTP/1.1\nconnection = keep-alive\nbenchmark = true\n")
    text = tool("siege", "-R", tmp_path / "siegerc", "-b", "-c", 10, "-r", 100, f"http://127.0.0.1:{farm.port}/")
    # Siege of some versions prints JSON, of others a table.
    assert number(r'[Ff]ailed[ _]transactions"?:\s+(\d+)', text) == 0
    assert number(r'[Ss]uccessful[ _]transactions"?:\s+(\d+)', text) == 1000


@pytest.mark.parametrize("calls", [1, 10])
def test_httperf(farm, calls):
    text = tool("httperf", "--hog", "--server", "127.0.0.1", "--port", farm.port, "--uri", "/", "--num-conn", 500,
                "--num-call", calls, "--rate", 400, "--timeout", 10)
    assert number(r"Errors: total (\d+)", text) == 0
    assert number(r"2xx=(\d+)", text) == 500 * calls


def test_h2load_in_http_1_mode(farm):
    text = tool("h2load", "--h1", "-n", 8000, "-c", 32, f"http://127.0.0.1:{farm.port}/")
    assert number(r"(\d+) succeeded", text) == 8000
    assert number(r"(\d+) failed", text) == 0 and number(r"(\d+) errored", text) == 0


def test_curl(farm, tmp_path):
    (tmp_path / "upload").write_bytes(b"u" * 300_000)
    base = f"http://127.0.0.1:{farm.port}"
    text = tool("curl", "-sS", "-w", "%{http_code} %{num_connects}\n", "-o", "/dev/null", f"{base}/[1-20]")
    lines = text.split("\n")[:20]
    assert lines[0] == "200 1" and lines[1:] == ["200 0"] * 19
    # 405: the servers answer GET only; what matters is that the whole body was taken and answered.
    text = tool("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{size_upload}", "-T", tmp_path / "upload", base)
    assert re.fullmatch(r"(200|405) (300000|0)", text.strip()), text
    assert tool("curl", "-sS", "-I", base).startswith("HTTP/1.1 200 OK")
    assert tool("curl", "-sS", "--http1.0", base) == "x" * 200 + "\n"
    assert tool("curl", "-sS", "--http2", base) == "x" * 200 + "\n", "an offer of h2c is not an error"


def test_counts_agree(farm):
    """Every request of a tool is one line of the log."""
    tool("ab", "-n", 3000, "-c", 16, "-k", f"http://127.0.0.1:{farm.port}/counted")
    assert get(farm.port, "/end").status == 200
    lines = farm.wait_log(3001)
    assert sum('"GET /counted ' in line and '" 200 ' in line for line in lines) == 3000
