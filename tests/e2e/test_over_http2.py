"""Runs a few tests of other files with their requests over HTTP/2. With CLIENT_HTTP=2, all tests run this way."""

import os
import re
import subprocess
import sys

import pytest

from support import over_http2
from support.balancer import ROOT
from support.expect import balanza_only

# Files and ranges, bodies, servers and their failures, errors, filters.
TESTS = {
    "test_static.py": ["file_with_its_fields", "methods_of_a_file", "range", "conditions", "add_header"],
    "test_proxy.py": ["proxy_set_header", "request_can_be_changed", "x_accel_redirect", "intercept_errors"],
    "test_next_upstream.py": ["default", "last_answer_is_passed_when_all_fail", "stale_kept_connection_is_replaced"],
    "test_filters.py": ["gzip_of_files", "a_server_that_breaks_off", "all_of_them_in_order"],
}


@balanza_only("no HTTP/2 on the same port")
@pytest.mark.skipif(over_http2.CHOSEN, reason="all tests do")
@pytest.mark.timeout(500)
def test_the_same_answers_over_http2():
    chosen = [f"{file}::test_{name}" for file, names in TESTS.items() for name in names]
    ran = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:xdist", "-o", "addopts=-q --tb=short -p no:cacheprovider", *chosen],
                         cwd=ROOT / "tests/e2e", env={**os.environ, "CLIENT_HTTP": "2"}, capture_output=True, text=True, timeout=480)
    assert ran.returncode == 0, ran.stdout[-6000:]
    over, instead = map(int, re.search(r"requests: (\d+) by HTTP/2, (\d+) by HTTP/1", ran.stdout).groups())
    assert over > instead, ran.stdout
