"""What happens in the day, by its hour. Each function does it to the farm and says what was done.

`event.classes` names the losses that no balancer can prevent in this event; everything else that is lost is a defect.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from support.balancer import children, wait_for

import farm as farms

HERE = pathlib.Path(__file__).resolve().parent


def on_killed_worker(sent, event):
    """The connection was open, or being opened, when its process was killed. Nobody may be refused, for its socket lives on."""
    spared = sent.problem.startswith(("status", "ConnectionRefusedError"))
    return 0 < sent.opened <= event.gone and sent.ended >= event.moment and not spared


def datagram_in_flight(sent, event):
    return sent.kind == "datagram" and sent.began <= event.gone and sent.ended >= event.moment


def not_repeatable(sent, event):
    """A POST was at the server that went; the balancer must not send it twice."""
    return sent.kind in ("post", "upload") and sent.problem in ("status 502", "status 504") and event.server in sent.server


def session_of_server(sent, event):
    """A long session was with the server that went, or began with it as it went."""
    return (sent.kind in ("line", "websocket") and sent.opened <= event.gone
            and sent.server in ("", event.name_of_server))


def datagram_of_server(sent, _event):
    """UDP does not tell whether a server lives until a datagram has come to nothing."""
    return sent.kind == "datagram"


def needs_the_disk(sent, event):
    """A body that does not fit into memory has nowhere to go."""
    return sent.kind == "upload" and sent.problem == "status 500"


class Day:
    """The events. `hour` is how many seconds an hour of the day takes."""

    def __init__(self, farm, ledger, hour):
        self.farm, self.ledger, self.hour = farm, ledger, hour
        self.serials = []

    def wait(self, hours, least=0.0):
        time.sleep(max(self.hour * hours, least))

    # The balancer's own life.

    def reload(self, _event):
        before = self.farm.generation()
        self.farm.signal_by_name("reload")
        wait_for(lambda: self.farm.generation() > before, 30, "the reload")
        return "`balanza -s reload`"

    def many_reloads(self, event):
        for _ in range(10):
            self.reload(event)
        return "ten reloads, one after the other"

    def wrong_reload(self, event):
        before = self.farm.generation()
        self.farm.configure(wrong="htttp { }\n")
        self.farm.signal_by_name("reload", code=1)
        self.farm.one.notify(signal.SIGHUP)
        self.farm.one.wait_error(r"\[emerg\].*htttp")
        self.farm.configure()
        if self.farm.generation() != before:
            raise AssertionError("a wrong configuration was taken over")
        self.reload(event)
        return "a reload with a mistake, by `-s reload` and by HUP: refused; then a right one"

    def kill_worker(self, event):
        worker = self.farm.worker()
        event.classes = {"on a connection of the killed process": on_killed_worker,
                         "a datagram in the killed process": datagram_in_flight}
        event.moment = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not pathlib.Path(f"/proc/{worker}/exe").exists(), what="the end of the worker")
        event.gone = time.monotonic()
        wait_for(lambda: [pid for pid in children(self.farm.one.pid) if pid != worker], what="the next worker")
        return "SIGKILL to the worker process; its supervisor starts another"

    def kill_supervisor(self, _event):
        one, worker = self.farm.one, self.farm.worker()
        os.kill(one.pid, signal.SIGKILL)
        one.process.wait(40)
        self.wait(0.2, 2)
        one.start()
        wait_for(lambda: not pathlib.Path(f"/proc/{worker}/exe").exists() or self.farm.worker() != worker, 60, "the next worker")
        return "SIGKILL to the supervisor; two seconds later it is started again and takes the sockets over"

    def upgrade(self, _event):
        self.farm.one.upgrade()
        return "USR2, then QUIT: another process with the same sockets"

    def rotate_logs(self, _event):
        logs = self.farm.dir / "logs"
        for name in ("access.log", "error.log"):
            number = len(list(logs.glob(f"{name}.*"))) + 1
            (logs / name).rename(logs / f"{name}.{number}")
        self.farm.signal_by_name("reopen")
        wait_for(lambda: (logs / "access.log").exists(), what="the new log")
        return "logs renamed, `balanza -s reopen`"

    def renew_certificate(self, event):
        self.serials.append(self.farm.renew())
        self.reload(event)
        # New handshakes use the new certificate. A worker thread may apply the reload a moment later than the others.
        reloaded, new = time.monotonic(), [self.serials[-1]] * 3
        wait_for(lambda: [serial for began, serial in list(self.farm.certificates) if began > reloaded][-3:] == new, 60,
                 "handshakes with the new certificate")
        return "another certificate for the same name, `-s reload`: new handshakes have it"

    @staticmethod
    def fill(path):
        """Takes what is left of a disk, to the last byte."""
        with open(path, "ab", buffering=0) as file:
            for size in (1 << 20, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass

    def full_disk(self, event):
        event.classes = {"a body larger than its buffer, which needs the full disk": needs_the_disk}
        path = self.farm.dir / "logs/filler"
        # Bodies that had files before leave their space when they are answered; it is taken, too.
        for _ in range(20):
            self.fill(path)
            status = self.farm.upload()
            if status == "500":
                break
        self.wait(0.8, 2)
        path.unlink()
        after = self.farm.upload()
        if (status, after) != ("500", "200"):
            raise AssertionError(f"an upload had {status} with a full disk, and {after} after it")
        return "the disk of logs and temporary files is full; then it has space again"

    # Servers.

    def deploy(self, _event):
        named = self.farm.named
        for name in list(self.farm.servers):
            for upstream in ("app", "lines", "datagrams"):
                self.farm.operate("drain", upstream, name)
            # Servers of a name leave by the name.
            if name in named:
                self.farm.move_name([other for other in named if other != name])
            # What was chosen before is on its way.
            time.sleep(0.5)
            self.farm.apps[name].stop()
            self.farm.apps[name].start()
            for upstream in ("app", "lines", "datagrams"):
                self.farm.operate("undrain", upstream, name)
            if name in named:
                self.farm.move_name(named)
        return "each server in turn: `balanza drain`, SIGTERM, the new version, `balanza undrain`"

    def deploy_without_drain(self, event):
        name = event.name_of_server = self.farm.servers[-1]
        event.server, event.moment = self.farm.apps[name].http, time.monotonic()
        event.classes = {"a POST that met the end of its server": not_repeatable,
                         "a session that met the end of its server": session_of_server,
                         "a datagram that met the end of its server": datagram_of_server}
        self.farm.apps[name].stop()
        event.gone = time.monotonic()
        self.farm.apps[name].start()
        return f"{name} gets SIGTERM and is started again, and the balancer is not told"

    def crash(self, event):
        name = event.name_of_server = self.farm.servers[0]
        event.server, event.moment = self.farm.apps[name].http, time.monotonic()
        event.classes = {"a POST in flight on the dead server": not_repeatable,
                         "a session with the dead server": session_of_server,
                         "a datagram to the dead server": datagram_of_server}
        self.farm.apps[name].stop(signal.SIGKILL)
        event.gone = time.monotonic()
        self.wait(0.5, 2)
        self.farm.apps[name].start()
        return f"SIGKILL to {name}; half an hour later it is back"

    def freeze(self, event):
        name = event.name_of_server = self.farm.servers[1]
        event.server, event.moment = self.farm.apps[name].http, time.monotonic()
        event.classes = {"a POST at the frozen server": not_repeatable,
                         "a datagram at the frozen server": datagram_of_server}
        self.farm.apps[name].send(signal.SIGSTOP)
        time.sleep(6)
        self.farm.apps[name].send(signal.SIGCONT)
        return f"{name} is stopped for six seconds (SIGSTOP): it accepts and does not answer"

    def add_by_api(self, _event):
        for name in farms.MORE:
            self.farm.apps[name].start()
            self.farm.api("POST", "http/upstreams/app/servers", f'{{"server": "{self.farm.apps[name].http}"}}')
        return "two more servers, by the API"

    def remove_by_api(self, _event):
        for name in farms.MORE:
            address = self.farm.apps[name].http
            self.farm.operate("drain", "app", name)
            time.sleep(0.5)
            self.farm.api("DELETE", f"http/upstreams/app/servers/{self.farm.number_of('app', address)}")
            self.farm.apps[name].stop()
        return "the two are drained and removed, by the API"

    def add_by_reload(self, event):
        for name in farms.MORE:
            self.farm.apps[name].start()
        self.farm.servers = farms.FIRST + farms.MORE
        self.farm.configure()
        self.reload(event)
        return "two more servers in the configuration, reload"

    def remove_by_reload(self, event):
        self.farm.servers = list(farms.FIRST)
        self.farm.configure()
        self.reload(event)
        time.sleep(1)
        for name in farms.MORE:
            self.farm.apps[name].stop()
        return "the two leave the configuration, reload; they end a second later"

    # Around it.

    def name_moves(self, _event):
        self.farm.move_name(["s3", "s4"])
        self.wait(0.4, 3)
        return "`app.example` has two other addresses"

    def name_moves_back(self, _event):
        self.farm.move_name(["s1", "s2", "s3"])
        self.wait(0.4, 3)
        return "`app.example` has three addresses"

    def name_server_dies(self, _event):
        self.farm.names.kill()
        self.wait(0.8, 4)
        self.farm.names.start()
        return "the name server is dead; then it is back"

    def attack(self, _event):
        seconds = max(0.9 * self.hour, 4)
        ports = [str(farms.PORTS[name]) for name in ("http", "tls")]
        subprocess.run([sys.executable, HERE / "attack.py", str(seconds), *ports], check=True)
        return "a flood, heads that never end, malformed requests, resets of HTTP/2, from four addresses"


# Processes are replaced early, so that the last one lives for most of the day and its memory can be compared.
TIMETABLE = [
    (0.5, "reload"), (1.0, "renew_certificate"), (1.5, "kill_supervisor"), (2.2, "kill_worker"), (3.0, "upgrade"),
    (3.6, "wrong_reload"), (4.2, "rotate_logs"), (6.5, "deploy"), (7.5, "add_by_api"), (8.0, "remove_by_api"),
    (8.4, "add_by_reload"), (9.0, "crash"), (9.7, "many_reloads"), (10.2, "name_moves"), (11.0, "full_disk"),
    (12.0, "rotate_logs"), (12.3, "freeze"), (13.0, "deploy_without_drain"), (13.5, "renew_certificate"),
    (14.0, "attack"), (15.0, "reload"), (15.3, "name_server_dies"), (16.3, "name_moves_back"), (17.0, "deploy"),
    (18.5, "wrong_reload"), (19.0, "crash"), (19.7, "remove_by_reload"), (20.3, "many_reloads"), (21.0, "renew_certificate"),
    (21.5, "rotate_logs"), (23.5, "reload"),
]
