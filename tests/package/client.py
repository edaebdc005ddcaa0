#!/usr/bin/env python3
"""Sends requests until standard input ends, on kept and on new connections, and prints what became of them.

  client.py URL

Each thread waits for an answer before it sends the next request. A kept connection that the server closes between two
requests is opened again, as every client does; a request that gets no answer, or another one than 200, is a failure.
"""

import http.client
import sys
import threading
import urllib.parse

url = urllib.parse.urlsplit(sys.argv[1])
over = threading.Event()
lock = threading.Lock()
answered, reopened, failures = 0, 0, []


def request(connection):
    connection.request("GET", url.path or "/")
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise http.client.HTTPException(f"status {response.status}")
    return response.will_close


def send(keep):
    global answered, reopened
    connection = None
    while not over.is_set():
        fresh = connection is None
        if fresh:
            connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=30)
        try:
            closing = request(connection)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            connection = None
            # Closed while it was idle: the server has seen nothing of the request.
            idle = not fresh and isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError))
            with lock:
                reopened += idle
                if not idle:
                    failures.append(f"{'kept' if keep else 'new'}: {error!r}")
            continue
        with lock:
            answered += 1
        if closing or not keep:
            connection.close()
            connection = None


threads = [threading.Thread(target=send, args=(keep,)) for keep in (True, True, False, False)]
for thread in threads:
    thread.start()
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(f"{answered} answered, {len(failures)} failed, {reopened} kept connections found closed and opened again")
for failure in failures[:10]:
    print(failure)
sys.exit(1 if failures or not answered else 0)
