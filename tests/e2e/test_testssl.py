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


def findings(port, file):
    """What testssl.sh finds out about this server."""
    file.unlink(missing_ok=True)
    command = ["testssl", "--quiet", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1", "--jsonfile", str(file)]
    done = subprocess.run([*command, *CHECKS, f"https://a.test:{port}/"], capture_output=True, text=True, timeout=900)
    # What has no address is about the OpenSSL that testssl.sh uses.
    found = [finding for finding in json.loads(file.read_text()) if finding["ip"].endswith("127.0.0.1")]
    assert len(found) > 40, done.stdout + done.stderr
    return found


@balanza_only("what NGINX supports depends on its OpenSSL")
@pytest.mark.skipif(not shutil.which("testssl"), reason="testssl.sh is not installed")
@pytest.mark.timeout(1820)
def test_defaults_have_no_finding(balancer, tmp_path):
    one = balancer(f"server {{ listen 127.0.0.1:PORT ssl; {certificate().directives()} }}")
    found = findings(one.port, tmp_path / "found.json")
    # WARN is a check that could not be made: a busy machine may have been too slow for it.
    if any(finding["severity"] == "WARN" for finding in found):
        found = findings(one.port, tmp_path / "found.json")
    assert any(finding["id"] == "TLS1_3" for finding in found)
    serious = {finding["id"] for finding in found if finding["severity"] not in ("OK", "INFO", "LOW")}
    assert serious <= BY_DESIGN, [finding for finding in found if finding["id"] in serious]
