"""An application server of the day: HTTP/1.1 with WebSockets on PORT, lines over TCP on PORT + 1, datagrams on PORT + 2.

    server.py NAME ADDRESS PORT JOURNAL

Every answer has the server's name. The journal has a line for each POST that was carried out. SIGTERM ends it as
applications end: it listens no more, answers what it has, says goodbye on long sessions and waits for the clients' goodbye.
"""

import asyncio
import base64
import hashlib
import os
import signal
import sys
import urllib.parse

GOODBYE = b"goodbye\n"


class Server:
    """What the connections of this process share."""

    def __init__(self, name, journal):
        self.name, self.ending = name, False
        self.connections, self.sessions = set(), set()
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def carried_out(self, ident):
        os.write(self.journal, f"{ident}\n".encode())

    def end(self):
        """No more new work; ends what is idle."""
        self.ending = True
        for connection in list(self.connections):
            if not connection.busy:
                connection.transport.close()
        for session in list(self.sessions):
            session.goodbye()


class Http(asyncio.Protocol):
    """A connection of HTTP/1.1. One request at a time, as balancers send them."""

    def __init__(self, server):
        self.server, self.buffer, self.working, self.websocket = server, b"", False, None

    @property
    def busy(self):
        """A request is being received or answered, or it is a session."""
        return self.working or self.websocket or self.buffer

    def connection_made(self, transport):
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, _error):
        self.server.connections.discard(self)
        self.server.sessions.discard(self.websocket)

    def data_received(self, data):
        self.buffer += data
        if self.websocket:
            self.buffer = self.websocket.received(self.buffer)
        elif not self.working:
            self.next_request()

    def next_request(self):
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        start, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(fields.get("content-length", 0))
        if len(rest) < length:
            return
        self.buffer, body = rest[length:], rest[:length]
        method, target, _ = start.split(" ")
        if "sec-websocket-key" in fields:
            self.become_websocket(fields["sec-websocket-key"])
            return
        self.working = True
        query = dict(urllib.parse.parse_qsl(target.partition("?")[2]))
        if method == "POST":
            self.server.carried_out(fields.get("x-id", "-"))
        text = f"{self.server.name} {fields.get('x-id', '-')} {hashlib.sha1(body).hexdigest()}\n"
        answer = text.ljust(int(query.get("size", 0)), ".").encode()
        pause = int(query.get("pause", 0)) / 1000
        asyncio.get_running_loop().call_later(pause, self.answer, answer)

    def answer(self, body):
        if self.transport.is_closing():
            return
        close = "Connection: close\r\n" if self.server.ending else ""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n{close}\r\n"
        self.transport.write(head.encode() + body)
        self.working = False
        if self.server.ending:
            self.transport.close()
        elif self.buffer:
            self.next_request()

    def become_websocket(self, key):
        accept = base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        self.websocket = WebSocket(self.server, self.transport)


class WebSocket:
    """Short texts back with the server's name in front, until the client has answered the goodbye."""

    def __init__(self, server, transport):
        self.server, self.transport = server, transport
        server.sessions.add(self)

    def received(self, data):
        while len(data) >= 6 and len(data) >= 6 + (length := data[1] & 127):
            mask, payload = data[2:6], data[6:6 + length]
            text = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
            if data[0] & 15 == 8:
                if not self.server.ending:
                    self.transport.write(b"\x88\x00")
                self.transport.close()
                return b""
            self.send(self.server.name.encode() + b" " + text)
            data = data[6 + length:]
        return data

    def send(self, text):
        self.transport.write(bytes([0x81, len(text)]) + text)

    def goodbye(self):
        self.transport.write(b"\x88\x00")


class Lines(asyncio.Protocol):
    """Lines back with the server's name in front; a client that has read `goodbye` says it, too."""

    def __init__(self, server):
        self.server, self.buffer = server, b""

    def connection_made(self, transport):
        self.transport = transport
        self.server.sessions.add(self)

    def connection_lost(self, _error):
        self.server.sessions.discard(self)

    def data_received(self, data):
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            if line + b"\n" == GOODBYE:
                self.transport.close()
                return
            self.transport.write(self.server.name.encode() + b" " + line + b"\n")

    def goodbye(self):
        self.transport.write(GOODBYE)


class Datagrams(asyncio.DatagramProtocol):
    """Datagrams back with the server's name in front."""

    def __init__(self, server):
        self.server = server

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, client):
        self.transport.sendto(self.server.name.encode() + b" " + data, client)


async def main(name, address, port, journal):
    server, loop = Server(name, journal), asyncio.get_running_loop()
    listening = [await loop.create_server(lambda: Http(server), address, port, backlog=1024),
                 await loop.create_server(lambda: Lines(server), address, port + 1, backlog=1024)]
    datagrams, _ = await loop.create_datagram_endpoint(lambda: Datagrams(server), (address, port + 2))
    asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    await asked.wait()
    for one in listening:
        one.close()
    server.end()
    for _ in range(200):
        if not server.connections and not server.sessions:
            break
        await asyncio.sleep(0.05)
    datagrams.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
