"""Configuration files as people write them, brought to ports and directories of a test.

Comments of a file say what its requests are made of:

    # targets: /a /b?c        what is asked for, beside what is asked everywhere
    # hosts: one.test two.test
    # field: X-Name: value    a field that some requests have
    # down: 10.0.0.2:8080     servers that are stopped after two thirds of the requests
    # balanced: why           only requests that both pass on
"""

import dataclasses
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass
class Configuration:
    name: str
    text: str
    targets: list
    hosts: list
    fields: list
    down: list
    servers: list
    # Every request must take its turn among several servers.
    balanced: bool

    def brought_to(self, directory, servers, resolver):
        """The text for a balancer: `servers` are the running ones by the address in the file, `resolver` knows
        the names among these."""
        text = self.text.replace("/var/www", f"{directory}/www").replace("/etc/nginx/", f"{directory}/etc/")
        text = text.replace("/var/log/nginx/", "DIR/logs/")
        text = re.sub(r"^\s*(?:pid|user)\s[^;]*;", "", text, flags=re.M)
        text = re.sub(r"worker_processes\s+\w+;", "worker_processes 1;", text)
        text = re.sub(r"\blisten\s+(?:\*:)?80\b", "listen 127.0.0.1:PORT", text)
        for address, one in servers.items():
            host = address.partition(":")[0]
            here = one.server if host[0].isdigit() else f"{host}:{one.port}"
            text = re.sub(rf"(?<![\w.]){re.escape(address)}(?!\d)", here, text)
        return text.replace("10.0.0.53", resolver)


def read(name):
    text = (HERE / "configurations" / f"{name}.conf").read_text()

    def words(what):
        return [word for line in re.findall(rf"^# {what}: (.*)", text, flags=re.M) for word in line.split()]

    fields = [tuple(line.split(": ", 1)) for line in re.findall(r"^# field: (.*)", text, flags=re.M)]
    servers = sorted(set(re.findall(r"\b(?:10\.0\.0\.\d+|\w+\.example):\d+", text)))
    return Configuration(name, text, words("targets"), words("hosts") or ["example.test"], fields, words("down"), servers,
                         bool(re.search("^# balanced:", text, flags=re.M)))


def names():
    return sorted(path.stem for path in (HERE / "configurations").glob("*.conf"))
