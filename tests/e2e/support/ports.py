"""Free ports of 127.0.0.1, below the range that the kernel gives to outgoing connections."""

import os
import random
import socket
import threading

# Suites that run beside each other have ranges of their own. Those from 20000 on are the lab's and the crates' own tests'.
FIRST, LAST = map(int, os.environ.get("TEST_PORTS", "11000-20000").split("-"))
_lock = threading.Lock()


def _start():
    # Workers of pytest-xdist draw from different slices, so that two of them do not race for one port.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:] or 0) % 8
    width = (LAST - FIRST) // 8
    return FIRST + worker * width, width


_base, _width = _start()
_next = random.randrange(_width)


def _is_free(port, kind):
    with socket.socket(type=kind) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port():
    """A port of TCP and UDP that nobody has, different at each call."""
    global _next
    with _lock:
        for _ in range(_width):
            port = _base + _next
            _next = (_next + 1) % _width
            if all(_is_free(port, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)):
                return port
    raise RuntimeError("no free port")


def free_ports(count):
    """Several ports."""
    return [free_port() for _ in range(count)]
