"""Starts and ends the balancer under test: Balanza, or NGINX as the oracle (BALANCER=nginx)."""

import functools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import over_http2
from .ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[3]
KIND = os.environ.get("BALANCER", "balanza")
ON_NGINX = KIND == "nginx"
ON_BALANZA = not ON_NGINX

# Debian's package libnginx-mod-stream.
STREAM_MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"

# Every balancer of the running test, for its report on failure and its end.
started = []


def binary(kind=KIND):
    """The program to start."""
    if kind == "nginx":
        return os.environ.get("NGINX", shutil.which("nginx") or "/usr/sbin/nginx")
    if os.environ.get("BALANZA"):
        return os.environ["BALANZA"]
    found = [p for p in (ROOT / "target" / d / "balanza" for d in ("release", "debug")) if p.exists()]
    if not found:
        raise RuntimeError("no balanza binary: build it, or set BALANZA=/path/to/balanza")
    return str(max(found, key=lambda path: path.stat().st_mtime))


def environment():
    """For a balancer. NGINX takes inherited sockets from a variable of its own name; here such a variable names the binary."""
    return {name: value for name, value in os.environ.items() if name not in ("BALANZA", "NGINX")}


@functools.cache
def nginx_says():
    """Version and options of the NGINX under test."""
    return subprocess.run([binary("nginx"), "-V"], capture_output=True, text=True, check=True).stderr


def nginx_version():
    """Its three numbers; zeros without an NGINX."""
    try:
        return tuple(map(int, re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", nginx_says()).groups()))
    except FileNotFoundError:
        return 0, 0, 0


def wait_for(condition, seconds=40.0, what="condition", step=0.01):
    """Polls until the condition holds, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"timed out after {seconds} s waiting for {what}")
        time.sleep(step)


def for_oracle(text):
    """Brings a configuration to the meaning it has in the dialect's reference version: NGINX 1.22 neither speaks
    HTTP/1.1 to servers nor keeps their connections nor TLS 1.3 unless told, and Debian's build has its temporary files in /var."""
    extra = "".join(f"{name}_temp_path tmp/{name};\n" for name in
                    ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    if " ssl" in text and "ssl_protocols" not in text:
        extra += "ssl_protocols TLSv1.2 TLSv1.3;\n"
    if "http2 on;" in text:
        text = re.sub(r"(\blisten 127\.0\.0\.1:\d+[^;]*);", r"\1 http2;", text.replace("http2 on;", ""))
    if "proxy_http_version" not in text:
        extra += 'proxy_http_version 1.1; proxy_set_header Connection "";\n'
    text = re.sub(r"\bhttp\s*\{", lambda m: m[0] + "\n" + extra, text, count=1)
    # What a stream block says means the same there.
    text, begin, stream = text.partition("\nstream {")

    def keep(block):
        return block[0] if re.search(r"\bkeepalive\s+\d", block[0]) else block[1] + "    keepalive 32;\n}"

    return re.sub(r"(\bupstream\s+\S+\s*\{[^{}]*)\}", keep, text) + begin + stream


class Balancer:
    """One running balancer with a configuration of its own in a temporary directory.

    `http` is the inside of the http block (`PORT` in it is the port that was chosen); `text` a whole file instead.
    `limits` are commands of a shell that come first, such as `ulimit`.
    """

    def __init__(self, http="", *, text=None, main="", events="worker_connections 4096;", workers=1,
                 access_log=True, start=True, port=None, kind=KIND, limits=""):
        self.kind = kind
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="balancer-"))
        self.dir.chmod(0o755)
        for name in ("logs", "tmp", "html"):
            (self.dir / name).mkdir()
        self.port = port or free_port()
        self.main, self.events, self.workers, self.log_access = main, events, workers, access_log
        self.limits = limits
        self.process = None
        self.write(http, text)
        started.append(self)
        if start:
            self.start()

    def write(self, http="", text=None):
        """Replaces the configuration file."""
        if text is None:
            log = "access_log logs/access.log;" if self.log_access else "access_log off;"
            text = (f"worker_processes {self.workers};\n{self.main}\nevents {{ {self.events} }}\n"
                    f"http {{\n{log}\n{http}\n}}\n")
        text = text.replace("PORT", str(self.port)).replace("DIR", str(self.dir))
        if over_http2.CHOSEN and self.kind != "nginx":
            text = over_http2.with_http2(text)
        self.text = for_oracle(text) if self.kind == "nginx" else text
        self.config.write_text(self.text)

    @property
    def config(self):
        return self.dir / "nginx.conf"

    @property
    def arguments(self):
        loads = self.kind == "nginx" and "\nstream {" in self.text and "--with-stream=dynamic" in nginx_says()
        module = f"load_module {STREAM_MODULE}; " if loads else ""
        return [binary(self.kind), "-p", f"{self.dir}/", "-c", str(self.config), "-e", str(self.dir / "logs/error.log"),
                "-g", f"{module}daemon off; pid {self.dir}/balancer.pid; error_log {self.dir}/logs/error.log info;"]

    def start(self, **output):
        """Starts the process and waits until it listens; `output` is where stdout and stderr go instead of a file."""
        self.stderr = open(self.dir / "stderr.txt", "wb")
        # A shell sets the limits and becomes the balancer.
        limited = ["sh", "-c", f"{self.limits}; exec \"$@\"", "sh"] if self.limits else []
        output = {"stdout": self.stderr, "stderr": self.stderr, **output}
        self.process = subprocess.Popen([*limited, *self.arguments], stdin=subprocess.DEVNULL, cwd=self.dir,
                                        env=environment(), **output)
        try:
            wait_for(self._listening, what="the balancer to listen")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None
        return self

    def _listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the balancer ended with code {self.process.returncode}")
        # NGINX makes the file first and fills it then.
        if not read(self.dir / "balancer.pid"):
            return False
        # The kernel takes connections before a worker does.
        if "master_process off" not in self.text and not self._accepting():
            return False
        # Last, so that there is one such connection: each is a session of `stream`.
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _accepting(self):
        """Whether a worker waits for connections. NGINX's may do so in turn (accept_mutex), so there any worker will do."""
        workers = children(self.pid)
        if self.kind == "nginx":
            return bool(workers)
        listening = listeners(self.port)
        return any(listening & polled(pid) for pid in workers)

    def test_config(self, *extra):
        """Runs `-t` and returns the finished process."""
        return subprocess.run([*self.arguments, "-t", *extra], capture_output=True, text=True, timeout=60,
                              env=environment())

    @property
    def pid(self):
        return int((self.dir / "balancer.pid").read_text())

    def notify(self, number):
        os.kill(self.pid, number)

    def reload(self, http="", text=None):
        """Writes a new configuration and sends HUP; the caller waits for what it expects."""
        if http or text:
            self.write(http, text)
        self.notify(signal.SIGHUP)

    def upgrade(self):
        """Starts the binary again on the same sockets, and lets the old process finish what it has."""
        before = self.pid
        self.notify(signal.SIGUSR2)
        wait_for(lambda: (self.dir / "balancer.pid.oldbin").exists() and read(self.dir / "balancer.pid"),
                 what="the new process")
        new = self.pid
        wait_for(lambda: children(new), what="the new worker")
        self.wait_error(rf"\[notice\] {new}#{new}: start worker process")
        os.kill(before, signal.SIGQUIT)
        self.old, self.process = self.process, Adopted(new)

    def stop(self, number=signal.SIGTERM, seconds=30):
        """Ends the process and returns its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                for pid in [*children(self.process.pid), self.process.pid]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                self.process.wait()
                raise AssertionError(f"the balancer did not end {seconds} s after signal {number}") from None
        self.stderr.close()
        return self.process.returncode

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def error_log(self):
        return read(self.dir / "logs/error.log")

    def access_log(self, name="access.log"):
        """The lines of an access log."""
        return read(self.dir / "logs" / name).splitlines()

    def wait_log(self, count=1, name="access.log"):
        """Waits until the access log has so many lines (a line is written after the answer) and returns them."""
        wait_for(lambda: len(self.access_log(name)) >= count, what=f"{count} lines in {name}")
        return self.access_log(name)

    def wait_error(self, pattern, seconds=40):
        """Waits until a line of the error log matches."""
        return wait_for(lambda: re.search(pattern, self.error_log()), seconds, f"{pattern!r} in the error log")

    def workers_alive(self):
        """The process ids of its workers. It listens before it has any."""
        return wait_for(lambda: children(self.process.pid), what="a worker process")

    def rss(self):
        """Resident memory of all processes, in bytes."""
        page = os.sysconf("SC_PAGE_SIZE")
        pids = [self.process.pid, *children(self.process.pid)]
        pages = [read(f"/proc/{pid}/statm").split() for pid in pids]
        return sum(int(counts[1]) * page for counts in pages if counts)

    def report(self):
        """What a reader of a failed test wants to see."""
        errors = [line for line in self.error_log().splitlines() if "[info]" not in line and "[notice]" not in line]
        return "\n".join([f"configuration:\n{self.text}", f"stderr: {read(self.dir / 'stderr.txt')}",
                          "error log:", *errors[-30:], "access log:", *self.access_log()[-10:]])


class Adopted:
    """A process that another one has started, with the part of Popen that a balancer needs."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        stat = read(f"/proc/{self.pid}/stat")
        if not stat or stat.rpartition(")")[2].split()[0] == "Z":
            self.returncode = 0
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def wait(self, seconds=10):
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("an upgraded balancer", seconds)
            time.sleep(0.01)
        return self.returncode


def anonymous(pid):
    """Memory of a process that no file backs, in KiB."""
    return int(re.search(r"RssAnon:\s+(\d+)", read(f"/proc/{pid}/status"))[1])


def processor_time(pid):
    """Seconds that the threads of a process have run."""
    spent = [read(f"/proc/{pid}/task/{task}/schedstat").split() for task in os.listdir(f"/proc/{pid}/task")]
    return sum(int(one[0]) for one in spent if one) / 1e9


def listeners(port):
    """Inodes of the sockets that listen on this port, those for IPv6 if there are no others."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            next(lines)
            for line in lines:
                _, local, _, state, *_, inode = line.split()[:10]
                # They come first, before connections.
                if state != "0A":
                    break
                if int(local.rpartition(":")[2], 16) == port:
                    found.add(int(inode))
        # To make the other table, the kernel goes through all connections.
        if found:
            break
    return found


def polled(pid):
    """Inodes of the files that a process waits for with epoll."""
    try:
        files = [read(entry) for entry in os.scandir(f"/proc/{pid}/fdinfo")]
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {int(inode, 16) for text in files for inode in re.findall(r"^tfd:.* ino:(\w+)", text, re.M)}


def children(pid):
    """Processes that this one started, and theirs. /proc/PID/task/PID/children may leave some out while others end."""
    started_by = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (stat := read(f"/proc/{entry.name}/stat")):
            started_by.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))

    def below(parent):
        direct = sorted(started_by.get(parent, []))
        return direct + [deeper for child in direct for deeper in below(child)]

    return below(pid)


def read(path):
    """The text of a file, or nothing if it or its process is gone."""
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
