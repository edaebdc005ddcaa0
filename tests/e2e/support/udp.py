"""UDP servers that say who they are, and clients that keep their port."""

import socket
import threading

from .ports import free_port


class UdpServer:
    """Answers each datagram with what `handle(data)` returns: a list of datagrams; by default its name and the data."""

    def __init__(self, name="", handle=None, port=None, address="127.0.0.1"):
        self.name, self.handle = name, handle or (lambda data: [b"%s:%s" % (name.encode(), data)])
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((address, port or free_port()))
        self.server = "%s:%d" % self.sock.getsockname()
        self.port = self.sock.getsockname()[1]
        self.got, self.clients = [], []
        self.running = True
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        with self.sock:
            while True:
                data, client = self.sock.recvfrom(65536)
                if not self.running:
                    return
                self.got.append(data)
                self.clients.append(client)
                for answer in self.handle(data):
                    self.sock.sendto(answer, client)

    @property
    def sockets(self):
        """From how many sockets of the balancer datagrams have come."""
        return len(set(self.clients))

    def stop(self):
        """The port is closed: the system refuses what comes from now on."""
        self.running = False
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join(10)


class UdpClient:
    """Sends from one port."""

    def __init__(self, port, source="127.0.0.1", to="127.0.0.1"):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((source, 0))
        self.sock.settimeout(30)
        self.to = (to, port)
        self.port = self.sock.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendto(data, self.to)

    def receive(self, seconds=30):
        """The next datagram; None if none comes. It must come from the address that was asked."""
        self.sock.settimeout(seconds)
        try:
            data, sender = self.sock.recvfrom(65536)
        except TimeoutError:
            return None
        assert sender == self.to
        return data

    def ask(self, data=b"?"):
        self.send(data)
        return self.receive()
