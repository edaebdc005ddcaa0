"""OpenSSL's responder of OCSP with certificates of the test's choice, and what s_client sees of stapled responses."""

import pathlib
import re
import subprocess
import tempfile

from .balancer import wait_for
from .certificates import authority, openssl
from .faketime import shifted
from .ports import free_port

# A responder ends with its test, even if the test is killed.
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]


def serial(pair):
    return openssl("x509", "-in", pair.certificate, "-noout", "-serial").strip().partition("=")[2]


class Responder:
    """Answers for the certificates of an authority: those that it knows are good, or revoked.

    `signer` signs in place of the authority. Responses hold for `minutes` (None: they do not say it) and begin `shift` seconds
    from now.
    """

    def __init__(self, *known, revoked=(), by="authority", signer=None, minutes=60, shift=0, port=None, start=True):
        self.by, self.signer, self.minutes, self.shift = authority(by), signer, minutes, shift
        self.port = port or free_port()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ocsp-"))
        self.log = self.dir / "log"
        self.process = None
        self.know(*known, revoked=revoked)
        if start:
            self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def know(self, *good, revoked=()):
        """What it answers from its next start on."""
        lines = [f"V\t400101000000Z\t\t{serial(pair)}\tunknown\t/CN={serial(pair)}" for pair in good]
        lines += [f"R\t400101000000Z\t250101000000Z\t{serial(pair)}\tunknown\t/CN={serial(pair)}" for pair in revoked]
        (self.dir / "index").write_text("".join(f"{line}\n" for line in lines))

    def start(self):
        signer = self.signer or self.by
        before = [*WITH_PARENT, *(shifted(self.shift) if self.shift else ())]
        end = ["-nmin", str(self.minutes)] if self.minutes else []
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*before, "openssl", "ocsp", "-port", str(self.port), "-index", str(self.dir / "index"), "-CA",
                 str(self.by.certificate), "-rsigner", str(signer.certificate), "-rkey", str(signer.key), *end,
                 "-ignore_err"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            # It hangs after a connection without a request, so it is not asked.
            wait_for(lambda: b"waiting for OCSP client" in self.log.read_bytes(), what="the responder to listen")
        except BaseException:
            self.stop()
            raise

    @property
    def asked(self):
        """How many requests it has had since its last start."""
        return self.log.read_bytes().count(b"Received request")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def stapled(port, name="a.test", *options):
    """What a handshake shows of a certificate's status: "good" or another one; None without a response."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", name, "-status",
                           *map(str, options)], input=b"", capture_output=True, timeout=60)
    shown = done.stdout.decode("latin-1")
    assert "BEGIN CERTIFICATE" in shown, (done.stdout + done.stderr).decode("latin-1")
    if "OCSP response: no response sent" in shown:
        return None
    return re.search(r"Cert Status: (\w+)", shown)[1]


def stapled_serial(port, name="a.test"):
    """Of which certificate the response is."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", name, "-status"],
                          input=b"", capture_output=True, timeout=60)
    found = re.search(rb"Serial Number: (\w+)\s+Cert Status", done.stdout)
    return found and found[1].decode()
