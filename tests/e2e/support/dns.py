"""Name servers on ports of their own: Debian's dnsmasq, with names of the test's choice, and one that answers what it is told."""

import collections
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

from .ports import free_port


class NameServer:
    """`names` has the addresses of each name; `services` lines for dnsmasq's --srv-host. Answers hold for `ttl` seconds."""

    def __init__(self, names=None, *, services=(), ttl=1, listen="127.0.0.1", port=None):
        self.listen, self.port, self.ttl, self.services = listen, port or free_port(), ttl, list(services)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dns-"))
        # It gives up root, and reads the file again then.
        self.dir.chmod(0o755)
        self.hosts = self.dir / "hosts"
        self.process = None
        self._write(names or {})
        self.start()

    @property
    def address(self):
        return f"{self.listen}:{self.port}"

    def _write(self, names):
        lines = [f"{address} {name}" for name, addresses in names.items() for address in addresses]
        # In one step: it may be reading the file for an earlier signal.
        new = self.dir / "new"
        new.write_text("\n".join(lines) + "\n")
        new.chmod(0o644)
        new.replace(self.hosts)

    def set(self, names):
        """Gives the names other addresses."""
        self._write(names)
        self.process.send_signal(signal.SIGHUP)

    def start(self):
        program = shutil.which("dnsmasq") or "/usr/sbin/dnsmasq"
        self.log = self.dir / "log"
        services = [f"--srv-host={line}" for line in self.services]
        self.process = subprocess.Popen(
            [program, "--keep-in-foreground", "--conf-file=/dev/null", f"--pid-file={self.dir}/pid",
             f"--port={self.port}", f"--listen-address={self.listen}", "--bind-interfaces", "--no-resolv", "--no-hosts",
             f"--addn-hosts={self.hosts}", f"--local-ttl={self.ttl}", f"--neg-ttl={self.ttl}", "--local=/example/",
             "--log-queries", "--log-facility=-", *services],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(self.log, "wb"))
        self._wait()

    def _wait(self):
        """Until it answers: it listens before, but takes no notice of signals then."""
        question = b"\0\1\1\0\0\1\0\0\0\0\0\0" + wire_name("ready.example") + b"\0\1\0\1"
        end = time.monotonic() + 40
        while time.monotonic() < end:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.settimeout(0.2)
                try:
                    probe.connect((self.listen, self.port))
                    probe.send(question)
                    probe.recv(512)
                    return
                except ConnectionRefusedError:
                    time.sleep(0.01)
                except TimeoutError:
                    pass
        raise AssertionError(self.log.read_text())

    def asked(self, name):
        """How often it was asked for the addresses of IPv4 of a name."""
        return self.log.read_text(errors="replace").lower().count(f"query[a] {name}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


SILENCE, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, NOTAUTH = None, 1, 2, 3, 4, 5, 9


def wire_name(name):
    """A name as messages have it."""
    labels = [label.encode() for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def wire_record(text):
    """The type and the data of a record: an address, "CNAME other.example", or "SRV priority weight port host.example"."""
    match text.split():
        case ["CNAME", host]:
            return 5, wire_name(host)
        case ["SRV", *numbers, host]:
            return 33, struct.pack(">HHH", *map(int, numbers)) + wire_name(host)
        case [address]:
            family, kind = (socket.AF_INET6, 28) if ":" in address else (socket.AF_INET, 1)
            return kind, socket.inet_pton(family, address)


class Scripted:
    """A name server that answers what it is told: `answers` has, by name and type ("A", "AAAA" or "SRV"), a list of records
    (`wire_record`) or one of the words above. Records behind a CNAME are those of the name that it leads to. Names in
    `truncated` are answered by TCP only. `asked` counts the questions by UDP."""

    TYPES = {1: "A", 28: "AAAA", 33: "SRV"}

    def __init__(self, answers=None, *, truncated=(), ttl=1):
        self.answers, self.truncated, self.ttl = answers or {}, truncated, ttl
        self.asked = collections.Counter()
        self.tcp = socket.create_server(("127.0.0.1", free_port()), backlog=64)
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        threading.Thread(target=self._datagrams, daemon=True).start()
        threading.Thread(target=self._connections, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def _answer(self, question, by_tcp):
        """The message that answers one; none for silence."""
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1:at + 1 + length].decode().lower())
            at += 1 + length
        name, kind = ".".join(labels), self.TYPES.get(int.from_bytes(question[at + 1:at + 3]))
        self.asked[name, kind] += not by_tcp
        answer, flags = self.answers.get((name, kind), []), 0x8180
        if answer is SILENCE:
            return None
        if isinstance(answer, int):
            flags, answer = flags | answer, []
        elif name in self.truncated and not by_tcp:
            flags, answer = flags | 0x200, []
        owner, records = b"\xc0\x0c", b""
        for kind, data in map(wire_record, answer):
            records += owner + struct.pack(">HHIH", kind, 1, self.ttl, len(data)) + data
            if kind == 5:
                owner = data
        return question[:2] + struct.pack(">HHHHH", flags, 1, len(answer), 0, 0) + question[12:at + 5] + records

    def _datagrams(self):
        while True:
            try:
                question, client = self.udp.recvfrom(4096)
                if not question:
                    # The socket was shut down.
                    return
                if message := self._answer(question, False):
                    self.udp.sendto(message, client)
            except OSError:
                return

    def _connections(self):
        while True:
            try:
                client, _ = self.tcp.accept()
            except OSError:
                return
            try:
                with client, client.makefile("rwb") as file:
                    question = file.read(int.from_bytes(file.read(2)))
                    if question and (message := self._answer(question, True)):
                        file.write(len(message).to_bytes(2) + message)
            except OSError:
                pass  # This client has gone, not the next one.

    def stop(self):
        for sock in (self.udp, self.tcp):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
