"""Which servers an upstream has at present, as its clients see it."""

import collections

from .balancer import wait_for
from .client import get

SERVER = "server { listen 127.0.0.1:PORT; location / { proxy_pass http://app; } location = /new { return 204; } }"


def seen(one, count=12, target="/"):
    """Which servers answer, and how often."""
    return collections.Counter(get(one.port, target).text for _ in range(count))


def comes_to(one, expected):
    """Waits until these servers answer, and no others."""
    wait_for(lambda: set(seen(one)) == set(expected), what=f"{expected}")
