"""The page of `balanza migrate` for ten configurations of the corpus: what works, what differs, what is missing.

The pages are in pages/; `BALANZA_UPDATE_PAGES=1 scripts/test.sh compatibility -k migrate` writes them.
"""

import json
import os
import pathlib
import re
import subprocess

import pytest

from differential import files
from support.balancer import binary
from support.certificates import certificate
from test_corpus import CORPUS, REFUSED, brought_here

PAGES = pathlib.Path(__file__).parent / "pages"
NAMES = ["django-gunicorn", "grpc", "kubernetes-api", "laravel-php", "many-hosts", "microservices", "nextjs-cache", "node-tls",
         "ssi-pages", "webdav"]


def migrate(directory, name, *more):
    """What it prints, with the paths of this run replaced; its exit code."""
    config = directory / "nginx.conf"
    # Lines must be those of the corpus.
    config.write_text(brought_here((CORPUS / f"{name}.conf").read_text(), directory))
    environment = {key: value for key, value in os.environ.items() if key not in ("BALANZA", "NGINX")}
    done = subprocess.run([binary("balanza"), "migrate", config, "--nginx", "/nowhere/nginx", *more], capture_output=True,
                          text=True, timeout=60, env=environment)
    pair = certificate()
    text = done.stdout.replace(str(pair.certificate), "CERTIFICATE").replace(str(pair.key), "KEY")
    text = text.replace(binary("balanza"), "balanza").replace(f"{directory}/nginx.conf", "/etc/nginx/nginx.conf")
    return text.replace(f"{directory}/etc", "/etc/nginx").replace(str(directory), "DIR"), done.returncode


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_real_configuration(name, open_dir):
    files.make(open_dir)
    text, code = migrate(open_dir, name)
    assert code == (2 if name in REFUSED else 0), text
    assert ("\nDoes not work yet\n" in text) == (name in REFUSED)
    page = PAGES / f"{name}.txt"
    if os.environ.get("BALANZA_UPDATE_PAGES"):
        PAGES.mkdir(exist_ok=True)
        page.write_text(text)
    assert text == page.read_text(), "BALANZA_UPDATE_PAGES=1 writes the page"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_has_its_line_and_a_way_out(name, open_dir):
    files.make(open_dir)
    text, _ = migrate(open_dir, name, "--json")
    errors = json.loads(text)["errors"]
    assert bool(errors) == (name in REFUSED)
    lines = (CORPUS / f"{name}.conf").read_text().splitlines()
    for error in errors:
        directive = re.match(r'"(\w+)"', error["message"])
        line = int(error["place"].rpartition(":")[2])
        assert directive is None or directive[1] in lines[line - 1], error
        assert error["hint"], error
