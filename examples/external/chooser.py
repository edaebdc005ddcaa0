#!/usr/bin/env python3
"""Chooses servers for `balance external`: clients from the office get the first server, all others the least busy one.

Each worker of the balancer starts this program and keeps it. A question and its answer are one line each:

    pick 17 203.0.113.7 0:2.0000:3:app1:8080 1:1.0000:0:app2:8080
    17 1

The words of a question are the number of the choice, the request's key (here the client's address) and the servers that
may be chosen: index, weight, requests in flight, name. The answer repeats the number and names an index, or "-" to leave
the choice to least_conn.
"""

import sys

OFFICE = "192.0.2."


def choose(key, servers):
    """The index of the server for a request."""
    if key.startswith(OFFICE):
        return servers[0][0]
    # The one that would be the least busy with this request.
    return min(servers, key=lambda server: (server[2] + 1) / server[1])[0]


def main():
    for line in sys.stdin:
        _, number, key, *words = line.split()
        servers = []
        for word in words:
            index, weight, in_flight, _name = word.split(":", 3)
            servers.append((int(index), float(weight), int(in_flight)))
        # An answer that stays in a buffer is late.
        print(number, choose(key, servers), flush=True)


if __name__ == "__main__":
    main()
