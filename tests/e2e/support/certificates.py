"""Authorities, certificates and keys, made by openssl when they are needed first."""

import functools
import pathlib
import subprocess
import tempfile

from .faketime import shifted

_DIR = tempfile.TemporaryDirectory(prefix="certificates-")
DIR = pathlib.Path(_DIR.name)
DIR.chmod(0o755)

KINDS = {"ec": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
         "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "ed25519": ["-algorithm", "ed25519"]}


def openssl(*arguments, before=()):
    done = subprocess.run([*before, "openssl", *map(str, arguments)], cwd=DIR, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Pair:
    """A certificate and its key: files."""

    def __init__(self, name):
        self.certificate, self.key = DIR / f"{name}.pem", DIR / f"{name}.key"

    def directives(self, prefix="ssl"):
        return f"{prefix}_certificate {self.certificate}; {prefix}_certificate_key {self.key};"


def authority(name="authority"):
    """A certificate that signs others."""
    return _authority(name)


@functools.cache
def _authority(name):
    pair = Pair(name)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
            "-keyout", pair.key, "-out", pair.certificate, "-subj", f"/O=Tests/CN={name}", "-addext", "keyUsage=keyCertSign,cRLSign")
    return pair


def certificate(name="a.test", kind="ec", by="authority", expired=False):
    """A certificate for a host or a person, signed by an authority; with `expired` it ended a year ago."""
    return _certificate(name, kind, by, expired)


# A second one of the same name would overwrite the files of the first.
@functools.cache
def _certificate(name, kind, by, expired):
    issuer = authority(by)
    pair = Pair(f"{name}-{kind}-{by}-{expired}".replace("*", "any"))
    openssl("genpkey", *KINDS[kind], "-out", pair.key)
    request, extensions = pair.key.with_suffix(".csr"), pair.key.with_suffix(".ext")
    openssl("req", "-new", "-key", pair.key, "-subj", f"/O=Tests/CN={name}", "-out", request)
    extensions.write_text(f"subjectAltName=DNS:{name.split(',')[0]}")
    openssl("x509", "-req", "-in", request, "-CA", issuer.certificate, "-CAkey", issuer.key, "-CAcreateserial",
            "-days", 10, "-extfile", extensions, "-out", pair.certificate,
            before=shifted(-365 * 86_400) if expired else ())
    return pair


def encrypted(pair, password):
    """A copy of a key, encrypted with a password."""
    path = pair.key.with_suffix(".encrypted")
    openssl("pkcs8", "-topk8", "-in", pair.key, "-out", path, "-passout", f"pass:{password}")
    return path
