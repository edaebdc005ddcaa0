"""Where NGINX sends a key: its consistent hash and its hash of client addresses, from their published definitions."""

import bisect
import zlib


def ketama(servers, weights=None):
    """A function from key to index of server, as `hash KEY consistent` chooses: 160 points for each unit of weight,
    each the CRC-32 of host, NUL, port and the point before it."""
    points = {}
    ring = []
    for index, server in enumerate(servers):
        host, _, port = server.rpartition(":")
        base = zlib.crc32(host.encode() + b"\0" + port.encode())
        previous = 0
        for _ in range(160 * (weights[index] if weights else 1)):
            previous = zlib.crc32(previous.to_bytes(4, "little"), base)
            ring.append((previous, index))
    for value, index in sorted(ring, key=lambda point: point[0]):
        points.setdefault(value, index)
    values = sorted(points)

    def find(key):
        at = bisect.bisect_left(values, zlib.crc32(key.encode()))
        return points[values[at % len(values)]]

    return find


def ip_hash(count):
    """A function from IPv4 address to index of one of `count` equal servers, as `ip_hash` chooses: the first three
    octets, h = (h * 113 + octet) mod 6271 from 89."""

    def find(address):
        value = 89
        for octet in address.split(".")[:3]:
            value = (value * 113 + int(octet)) % 6271
        return value % count

    return find
