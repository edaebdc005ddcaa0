"""Long sessions and datagrams: WebSockets, lines over TCP, datagrams over UDP."""

import asyncio
import base64
import time

TIMEOUT = 30
# Messages of a session, and the seconds between them.
MESSAGES, PAUSE = 60, 1.0


async def websocket(load, port):
    """Sessions one after the other. Each message is answered; a goodbye of the server ends a session."""
    while not load.ending.is_set():
        sent = load.ledger.begin("websocket")
        try:
            async with asyncio.timeout(TIMEOUT):
                began = time.monotonic()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened = sent.opened = began
                key = base64.b64encode(load.key()).decode()
                writer.write(f"GET /session HTTP/1.1\r\nHost: day.test\r\nX-Id: {sent.id}\r\nConnection: Upgrade\r\n"
                             f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ")[1])
            load.ledger.end(sent, "", "" if status == 101 else f"status {status}")
        except (asyncio.IncompleteReadError, OSError, TimeoutError) as error:
            load.ledger.end(sent, "", f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.2)
            continue
        if status == 101:
            await _session(load, "websocket", Frames(reader, writer), opened)
        writer.close()


async def lines(load, port):
    """The same with lines over TCP, by `stream`."""
    while not load.ending.is_set():
        opened = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            sent = load.ledger.begin("line")
            load.ledger.end(sent, "", f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.2)
            continue
        await _session(load, "line", Text(reader, writer), opened)
        writer.close()


class Frames:
    """WebSocket messages of at most 125 bytes. `receive` is nothing for the server's goodbye."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, text):
        # With a mask of zeros, the text is its own masked form.
        self.writer.write(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)

    async def receive(self):
        head = await self.reader.readexactly(2)
        payload = await self.reader.readexactly(head[1] & 127)
        return None if head[0] & 15 == 8 else payload

    def goodbye(self):
        self.writer.write(b"\x88\x80" + bytes(4))


class Text:
    """Lines."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, text):
        self.writer.write(text + b"\n")

    async def receive(self):
        line = await self.reader.readuntil(b"\n")
        return None if line == b"goodbye\n" else line[:-1]

    def goodbye(self):
        self.writer.write(b"goodbye\n")


async def _session(load, kind, channel, opened):
    server = ""
    for _ in range(MESSAGES):
        await load.pause(PAUSE)
        if load.ending.is_set():
            break
        sent, leaving = load.ledger.begin(kind, opened), False
        try:
            async with asyncio.timeout(TIMEOUT):
                channel.send(sent.id.encode())
                answer = await channel.receive()
                while answer is None:
                    # The server's goodbye crossed the message, which is answered still.
                    leaving = True
                    answer = await channel.receive()
        except (asyncio.IncompleteReadError, OSError, TimeoutError) as error:
            load.ledger.end(sent, server, f"{type(error).__name__}: {error}")
            return
        server, _, ident = answer.decode().partition(" ")
        load.ledger.end(sent, server, "" if ident == sent.id else f"the answer of another message: {answer!r}")
        if leaving:
            break
    try:
        channel.goodbye()
    except OSError:
        pass


class Answer(asyncio.DatagramProtocol):
    """The first datagram that comes."""

    def __init__(self):
        self.came = asyncio.get_running_loop().create_future()

    def datagram_received(self, data, _address):
        if not self.came.done():
            self.came.set_result(data)

    def error_received(self, error):
        if not self.came.done():
            self.came.set_exception(error)


async def datagram(load, port):
    """A question and its answer, from a port of its own."""
    sent = load.ledger.begin("datagram")
    try:
        transport, answer = await asyncio.get_running_loop().create_datagram_endpoint(
            Answer, remote_addr=("127.0.0.1", port))
    except OSError as error:
        load.ledger.end(sent, "", f"{type(error).__name__}: {error}")
        return
    try:
        transport.sendto(sent.id.encode())
        async with asyncio.timeout(TIMEOUT / 3):
            server, _, ident = (await answer.came).decode().partition(" ")
        load.ledger.end(sent, server, "" if ident == sent.id else "the answer of another datagram")
    except (OSError, TimeoutError) as error:
        load.ledger.end(sent, "", f"{type(error).__name__}: {error}")
    finally:
        transport.close()
