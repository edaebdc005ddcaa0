"""How the module is compiled for an NGINX."""

import os
import subprocess

import pytest

from conftest import ROOT
from support.client import get
from support.origin import named, proxy


@pytest.mark.skipif("MODULE" in os.environ, reason="the module under test was built elsewhere")
def test_the_directory_may_have_any_name(nginx, tmp_path, monkeypatch):
    """NGINX's configure takes `.S` in the whole path of its own directory for the suffix of a source file."""
    # The library has been compiled for the module under test, and the directory's name would compile it again.
    cargo = tmp_path / "cargo"
    cargo.write_text("#!/bin/sh\n")
    cargo.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(tmp_path / "tmp.Source")}
    built = subprocess.run([ROOT / "scripts/build-nginx-module.sh"], env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    monkeypatch.setenv("MODULE", built.stdout.strip())
    one = nginx(proxy(named(2), head="balance round_robin;"))
    assert {get(one.port).text for _ in range(2)} == {"0", "1"}
