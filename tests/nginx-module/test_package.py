"""The package's module loads into the distribution's own NGINX."""

import os
import shutil
import subprocess

import pytest

from conftest import ROOT
from support.ask import ask, tally
from support.origin import named, proxy


@pytest.mark.skipif(not shutil.which("dpkg-deb") or "NGINX" in os.environ, reason="no Debian, or not its NGINX")
def test_the_package_works(nginx, tmp_path, monkeypatch):
    done = subprocess.run([ROOT / "scripts/package-nginx-module.sh"], capture_output=True, text=True, check=True)
    package = done.stdout.strip()
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    assert "Package: libnginx-mod-http-balanza" in fields and "nginx-abi-" in fields
    tmp_path.chmod(0o755)
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    monkeypatch.setenv("MODULE", str(tmp_path / "usr/lib/nginx/modules/ngx_http_balanza_module.so"))
    loads = (tmp_path / "usr/share/nginx/modules-available/mod-http-balanza.conf").read_text()
    assert loads == "load_module modules/ngx_http_balanza_module.so;\n"
    one = nginx(proxy(named(3), head="balance least_conn;"))
    assert tally(ask(one, 30), 3) == [10, 10, 10]
