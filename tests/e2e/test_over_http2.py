"""A few tests of other files with their requests over HTTP/2; CLIENT_HTTP=2 does it for all of them."""

import os
import re
import subprocess
import sys

import pytest

from support import over_http2
from support.balancer import ROOT
from support.expect import balanza_only

# Routes and files, bodies in both directions, and errors.
TESTS = ["test_static.py", "test_locations.py", "test_body_files.py"]


@balanza_only("no HTTP/2 on the same port")
@pytest.mark.skipif(over_http2.CHOSEN, reason="all tests do")
def test_the_same_answers_over_http2():
    ran = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:xdist", "-o", "addopts=-q --tb=short -p no:cacheprovider", *TESTS],
                         cwd=ROOT / "tests/e2e", env={**os.environ, "CLIENT_HTTP": "2"}, capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stdout[-6000:]
    over, instead = map(int, re.search(r"requests: (\d+) by HTTP/2, (\d+) by HTTP/1", ran.stdout).groups())
    assert over > instead, ran.stdout
