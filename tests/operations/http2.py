"""Requests of HTTP/2 over TLS that share a few connections."""

import asyncio
import time

import h2.config
import h2.events
import h2.exceptions

from support.http2 import Connection as ServesAfterGoaway

TIMEOUT = 30
CONNECTIONS = 3
# A client opens another connection after so many requests, as browsers do after a while.
REQUESTS = 2000


class Connection:
    """One connection. It is not used for new requests once the balancer has said GOAWAY."""

    def __init__(self, reader, writer, opened):
        self.reader, self.writer, self.opened = reader, writer, opened
        config = h2.config.H2Configuration(header_encoding="utf-8")
        self.h2 = ServesAfterGoaway(config)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1 << 24)
        self.streams, self.requests, self.leaving = {}, 0, False
        self.flush()
        self.reading = asyncio.create_task(self.read())

    def flush(self):
        self.writer.write(self.h2.data_to_send())

    async def read(self):
        problem = "the connection has ended"
        try:
            while data := await self.reader.read(65_536):
                for event in self.h2.receive_data(data):
                    self.on(event)
                self.flush()
        except (OSError, h2.exceptions.ProtocolError) as error:
            problem = f"{type(error).__name__}: {error}"
        self.leaving = True
        for stream in list(self.streams):
            self.done(stream, problem)

    def on(self, event):
        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.ConnectionTerminated):
            self.leaving = True
            for later in [one for one in self.streams if event.last_stream_id is not None and one > event.last_stream_id]:
                self.done(later, "refused by GOAWAY")
        elif stream not in self.streams:
            return
        elif isinstance(event, h2.events.ResponseReceived):
            self.streams[stream]["fields"] = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            self.streams[stream]["body"] += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.StreamReset):
            self.done(stream, f"reset with {event.error_code}")
        elif isinstance(event, h2.events.StreamEnded):
            self.done(stream, "")

    def done(self, stream, problem):
        state = self.streams.pop(stream)
        if not state["future"].done():
            state["future"].set_result((problem, state["fields"], bytes(state["body"])))

    def request(self, target, ident):
        stream = self.h2.get_next_available_stream_id()
        self.requests += 1
        future = asyncio.get_running_loop().create_future()
        self.streams[stream] = {"future": future, "fields": {}, "body": bytearray()}
        self.h2.send_headers(stream, [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"),
                                      (":path", target), ("x-id", ident)], end_stream=True)
        self.flush()
        return future

    async def close(self):
        while self.streams:
            await asyncio.sleep(0.1)
        self.writer.close()


class Multiplexed:
    """Takes the connections in turn."""

    def __init__(self, ledger, port, tls):
        self.ledger, self.port, self.tls = ledger, port, tls
        self.slots, self.locks = [None] * CONNECTIONS, [asyncio.Lock() for _ in range(CONNECTIONS)]
        self.turn, self.closing = 0, set()

    async def connection(self, sent):
        self.turn = slot = (self.turn + 1) % CONNECTIONS
        async with self.locks[slot]:
            one = self.slots[slot]
            if one is None or one.leaving or one.requests >= REQUESTS:
                if one:
                    task = asyncio.create_task(one.close())
                    self.closing.add(task)
                    task.add_done_callback(self.closing.discard)
                # As in `clients.Connection.open`.
                sent.opened = time.monotonic()
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.port, ssl=self.tls(["h2"]), server_hostname="a.test")
                one = self.slots[slot] = Connection(reader, writer, sent.opened)
            return one

    async def get(self, target):
        sent = self.ledger.begin("http2")
        server = ""
        try:
            async with asyncio.timeout(TIMEOUT):
                one = await self.connection(sent)
                sent.opened = one.opened
                problem, fields, body = await one.request(target, sent.id)
            words = body.decode("latin-1").split(" ", 2)
            if not problem and fields.get(":status") != "200":
                server, problem = fields.get("x-server", ""), f"status {fields.get(':status')}"
            elif not problem and (len(words) < 3 or words[1] != sent.id):
                problem = f"the answer of another request: {body[:60]!r}"
            elif not problem:
                server = words[0]
        except (OSError, TimeoutError, h2.exceptions.ProtocolError) as error:
            problem = f"{type(error).__name__}: {error}"
        self.ledger.end(sent, server, problem)

    def close(self):
        for one in self.slots:
            if one:
                one.writer.close()
