"""Debian's snmpd on a port of its own, unprivileged, with a load of the test's choice or the machine's own."""

import os
import pathlib
import shutil
import subprocess
import tempfile

from .ports import free_port

# laLoad.1 of UCD-SNMP-MIB: the load of the last minute, a text such as "0.35".
LA_LOAD = "1.3.6.1.4.1.2021.10.1.3.1"


class Snmpd:
    """`load` replaces the machine's own laLoad.1; `lines` are more of its configuration."""

    def __init__(self, load=None, *, community="public", lines=(), port=None):
        self.port = port or free_port()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="snmpd-"))
        override = [f'override {LA_LOAD} octet_str "{load}"'] if load is not None else []
        self.config = self.dir / "snmpd.conf"
        self.config.write_text("\n".join([f"rocommunity {community} 127.0.0.1", *override, *lines]) + "\n")
        self.process = None
        self.start()

    def start(self):
        program = shutil.which("snmpd") or "/usr/sbin/snmpd"
        self.log = open(self.dir / "log", "wb")
        self.process = subprocess.Popen(
            [program, "-f", "-Lo", "-C", "-c", str(self.config), "-p", str(self.dir / "pid"),
             f"udp:127.0.0.1:{self.port}"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            # It keeps a file of the same name as its configuration there.
            env={**os.environ, "SNMP_PERSISTENT_DIR": str(self.dir / "state"), "MIBS": ""})

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.kill()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
