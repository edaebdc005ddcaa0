"""The settings that TLS has by default, as testssl.sh sees them."""

import json
import shutil
import subprocess

import pytest

from support.certificates import certificate
from support.expect import balanza_only

# The order of the ciphers is the client's choice, as in NGINX and as Mozilla advises where all of them are good.
BY_DESIGN = {"cipher_order"}


@balanza_only("what NGINX supports depends on its OpenSSL")
@pytest.mark.skipif(not shutil.which("testssl"), reason="testssl.sh is not installed")
@pytest.mark.parametrize("prefer, expected", [("", BY_DESIGN), ("ssl_prefer_server_ciphers on;", set())])
def test_defaults_have_no_finding(balancer, tmp_path, prefer, expected):
    one = balancer(f"server {{ listen 127.0.0.1:PORT ssl; {certificate().directives()} {prefer} }}")
    found = tmp_path / "found.json"
    checks = ["--protocols", "--std", "--fs", "--server-preference", "--vulnerable"] if not prefer else ["--server-preference"]
    command = ["testssl", "--quiet", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1", "--jsonfile", str(found)]
    done = subprocess.run([*command, *checks, f"https://a.test:{one.port}/"], capture_output=True, text=True, timeout=110)
    findings = json.loads(found.read_text())
    # What has no address is about the OpenSSL that testssl.sh uses.
    of_server = [finding for finding in findings if finding["ip"].endswith("127.0.0.1")]
    assert len(of_server) > (40 if not prefer else 5), done.stdout + done.stderr
    assert any(finding["id"] == "TLS1_3" or prefer for finding in of_server)
    serious = {finding["id"] for finding in of_server if finding["severity"] not in ("OK", "INFO", "LOW")}
    assert serious <= expected, [finding for finding in of_server if finding["id"] in serious]
