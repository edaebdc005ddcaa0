"""How many configurations of the kinds that public repositories have can be loaded, and what is refused.

The files of corpus/ are accepted by NGINX. corpus/refused.txt names those that Balanza refuses, with its message.
`scripts/test.sh compatibility -s -k share` prints how many load."""

import pathlib
import re

import pytest

from differential import files
from support import certificates
from support.balancer import Balancer

CORPUS = pathlib.Path(__file__).parent / "corpus"
REFUSED = dict(line.split(": ", 1) for line in (CORPUS / "refused.txt").read_text().splitlines())
NAMES = sorted(path.stem for path in CORPUS.glob("*.conf"))


def brought_here(text, directory):
    """With paths, ports and names of this machine."""
    pair = certificates.certificate()
    text = re.sub(r"(ssl_(?:client_)?certificate)\s+[^;]*;", rf"\1 {pair.certificate};", text)
    text = re.sub(r"ssl_certificate_key\s+[^;]*;", f"ssl_certificate_key {pair.key};", text)
    text = text.replace("/etc/nginx/", f"{directory}/etc/").replace("/var/log/nginx/", f"{directory}/")
    text = re.sub(r"/var/cache/\S+|/var/tmp/nginx", f"{directory}/cache", text)
    text = re.sub(r"^\s*(?:pid|user|load_module)\s[^;]*;", "", text, flags=re.M)
    # Names that only a network of containers knows.
    text = re.sub(r"((?:\bserver|_pass)\s+(?:\w+://)?)[a-z][\w-]*(:\d+)", r"\g<1>127.0.0.1\2", text)
    text = re.sub(r"(\blisten\s+(?:\S*:)?)(\d{2,3})\b(?!\.)", lambda match: f"{match[1]}{20_000 + int(match[2])}", text)
    # Tests of IPv6 are elsewhere; not each machine has it.
    return re.sub(r"\blisten\s+\[::\][^;]*;", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_configuration_loads(name, open_dir):
    files.make(open_dir)
    text = brought_here((CORPUS / f"{name}.conf").read_text(), open_dir)
    nginx, balanza = (Balancer(text=text, kind=kind, start=False).test_config() for kind in ("nginx", "balanza"))
    assert nginx.returncode == 0, nginx.stderr
    errors = [line for line in balanza.stderr.splitlines() if "[emerg]" in line]
    if name in REFUSED:
        assert balanza.returncode == 1 and REFUSED[name] in balanza.stderr, f"it loads, or is refused otherwise: {errors}"
    else:
        assert balanza.returncode == 0, errors


def test_share_of_what_loads():
    assert set(REFUSED) <= set(NAMES)
    share = 1 - len(REFUSED) / len(NAMES)
    print(f"{share:.0%} of {len(NAMES)} configurations load")
    assert share >= 0.75
