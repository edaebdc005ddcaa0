"""Fast servers for tests under load: one NGINX process each, with exact counters, that can be killed and restarted."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from .balancer import binary, wait_for
from .client import get
from .ports import free_port


class FastServer:
    """Answers every request with a short text; /status has NGINX's counters."""

    def __init__(self, text="ok", directives=""):
        self.port = free_port()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="server-"))
        temporary = "".join(f"{name}_temp_path {self.dir}/{name};" for name in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.dir / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {self.dir}/pid; error_log {self.dir}/error.log;"
            "events { worker_connections 8192; }"
            f"http {{ access_log off; {temporary} keepalive_requests 100000000; server {{"
            f"listen 127.0.0.1:{self.port} backlog=4096; {directives}"
            f'location / {{ return 200 "{text}\\n"; }} location = /status {{ stub_status; }} }} }}')
        self.process = None
        self.start()

    @property
    def server(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        # NGINX takes inherited sockets from a variable of its own name; here such a variable names the binary.
        environment = {name: value for name, value in os.environ.items() if name != "NGINX"}
        self.process = subprocess.Popen(
            [binary("nginx"), "-p", str(self.dir), "-e", f"{self.dir}/error.log", "-c", f"{self.dir}/nginx.conf"],
            env=environment)
        wait_for(self._answers, what="a server to start")

    def _answers(self):
        try:
            return get(self.port, "/status").status == 200
        except OSError:
            return False

    def kill(self):
        """Ends it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def requests(self):
        """Requests since its start; those for this counter are among them, so differences have one too many."""
        return int(re.search(r"\d+ \d+ (\d+)", get(self.port, "/status").text)[1])

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
