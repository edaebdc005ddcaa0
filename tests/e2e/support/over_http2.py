"""The client for `CLIENT_HTTP=2`: the same requests, over HTTP/2 if HTTP/2 can express them.

The first request decides the protocol of a connection: HTTP/2 with prior knowledge, or HTTP/1 for raw bytes and for requests
with fields or forms that exist only in HTTP/1. The tests check the same things in a response of either protocol.
"""

import collections
import os
import re

from .http2 import Http2Client, Reset
from .messages import Ended

CHOSEN = os.environ.get("CLIENT_HTTP") == "2"

# Connection-specific fields of HTTP/1 (RFC 9113, 8.2.2), and fields that an HTTP/2 client must not send as they are.
OF_HTTP1 = {"connection", "expect", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}

# The number of requests by protocol, for the report at the end of a run.
counts = collections.Counter()


def of_http1(method, target, host, fields, version):
    """Whether only HTTP/1 can express a request."""
    return (version != "HTTP/1.1" or host is None or not target.startswith("/") or method == "CONNECT"
            or not re.fullmatch(r"[!-~]+", target) or not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", host)
            or any(name.lower() in OF_HTTP1 or not re.fullmatch(r"[!#-'*+.0-9A-Z^-z|~-]+", name) or value != str(value).strip()
                   for name, value in fields))


# Ports of balancers that accept both protocols.
ports = set()


def with_http2(text):
    """Adds HTTP/2 to the servers of a configuration and records their ports."""
    before, begin, http = re.split(r"(?m)(^\s*http\s*\{|\Z)", text, maxsplit=1)
    http, stream, rest = re.split(r"(?m)(^\s*stream\s*\{|\Z)", http, maxsplit=1)
    if "http2 off" in http:
        return text
    if "http2 on" not in http and begin:
        begin += " http2 on;"
    ports.update(int(port) for port in re.findall(r"listen (?:[\d.*]+:)?(\d+)(?![^;]* ssl)", http))
    return before + begin + http + stream + rest


def over_http2(http1):
    """A class like this raw HTTP/1 client, which sends its requests over HTTP/2."""

    class Client(http1):
        # None until the protocol has been decided.
        http2 = None

        def __init__(self, port, **options):
            super().__init__(port, **options)
            self.is_http1 = port not in ports
            self.streams = collections.deque()
            self.missing = 0

        def use(self, sock):
            super().use(sock)
            self.is_http1 = True

        def send(self, data):
            if self.http2 and self.missing:
                data = data.encode("latin-1") if isinstance(data, str) else data
                self.missing -= len(data)
                self.http2.send(self.streams[-1], data, end=self.missing <= 0)
                return self
            assert not self.http2, "raw bytes on an HTTP/2 connection"
            self.is_http1 = True
            return super().send(data)

        def request(self, method="GET", target="/", *, host="example.test", headers=(), body=b"", version="HTTP/1.1"):
            fields = list(headers.items() if isinstance(headers, dict) else headers)
            if not self.http2 and (self.is_http1 or of_http1(method, target, host, fields, version)):
                counts["HTTP/1"] += 1
                self.is_http1 = True
                return super().request(method, target, host=host, headers=headers, body=body, version=version)
            counts["HTTP/2"] += 1
            self.http2 = self.http2 or Http2Client.on(self.sock)
            announced = [int(value) for name, value in fields if name.lower() == "content-length" and value.isdigit()]
            self.missing = max(announced, default=0) - len(body) if not body else 0
            self.streams.append(self.http2.request(method, target, host=host, headers=fields, body=body,
                                                   end=self.missing <= 0))
            return self

        def response(self, method="GET"):
            if not self.http2:
                return super().response(method)
            try:
                message = self.http2.response(self.streams.popleft())
            except (Reset, Ended) as error:
                if error.message is None:
                    return None
                raise Ended(error.message.body) from None
            if self.http2.goaway:
                message.headers.append(("connection", "close"))
            return message

        def answered(self, seconds):
            if not self.http2:
                return super().answered(seconds)
            before = self.sock.gettimeout()
            self.sock.settimeout(seconds)
            try:
                while not self.http2.events.get(self.streams[0]) and self.http2.read():
                    pass
                return True
            except TimeoutError:
                return False
            finally:
                self.sock.settimeout(before)

        def closed(self):
            if not self.http2:
                return super().closed()
            try:
                self.http2.to_end()
                return True
            except TimeoutError:
                return False

    return Client
