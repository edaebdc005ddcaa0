"""The settings that TLS has by default, as testssl.sh sees them."""

import json
import shutil
import subprocess

import pytest

from support.certificates import certificate
from support.expect import balanza_only

# The order of the ciphers is the client's choice, as in NGINX and as Mozilla advises where all of them are good.
BY_DESIGN = {"cipher_order"}
CHECKS = ["--protocols", "--std", "--fs", "--server-preference", "--vulnerable"]


@balanza_only("what NGINX supports depends on its OpenSSL")
@pytest.mark.skipif(not shutil.which("testssl"), reason="testssl.sh is not installed")
@pytest.mark.timeout(920)
def test_defaults_have_no_finding(balancer, tmp_path):
    one = balancer(f"server {{ listen 127.0.0.1:PORT ssl; {certificate().directives()} }}")
    found = tmp_path / "found.json"
    command = ["testssl", "--quiet", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1", "--jsonfile", str(found)]
    done = subprocess.run([*command, *CHECKS, f"https://a.test:{one.port}/"], capture_output=True, text=True, timeout=900)
    findings = json.loads(found.read_text())
    # What has no address is about the OpenSSL that testssl.sh uses.
    of_server = [finding for finding in findings if finding["ip"].endswith("127.0.0.1")]
    assert len(of_server) > 40, done.stdout + done.stderr
    assert any(finding["id"] == "TLS1_3" for finding in of_server)
    serious = {finding["id"] for finding in of_server if finding["severity"] not in ("OK", "INFO", "LOW")}
    assert serious <= BY_DESIGN, [finding for finding in of_server if finding["id"] in serious]
