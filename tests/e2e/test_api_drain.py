"""Draining with a deadline: what is left is shown, and closed when the time is over; it can be called off, and outlives reloads and workers."""

import threading

import pytest

from support.balancer import Balancer, wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer
from support.ports import free_port
from support.stream import Session, TcpServer
from support.udp import UdpClient, UdpServer
from test_api import ask, code, read, reload, replace_worker

pytestmark = balanza_only("drain_timeout is Balanza's own")

API = "listen 127.0.0.1:PORT; location /api { api write=on; }"


def set_server(one, number, values, upstream="http/upstreams/backend"):
    status, value = ask(one.port, "PATCH", f"/api/9/{upstream}/servers/{number}", values)
    assert status == 200, value
    return value


def server(one, number, upstream="http/upstreams/backend"):
    return read(one.port, f"/api/balanza/{upstream}")["servers"][number]


def draining(one, number, upstream="http/upstreams/backend"):
    """What is shown of a drain once the API has looked at the server."""
    return wait_for(lambda: server(one, number, upstream).get("drain"), what="a server that drains")


def cut_off(one):
    return wait_for(lambda: [event for event in read(one.port, "/api/balanza/events") if event["kind"] == "cut_off"], what="an event")


@pytest.fixture
def farm():
    """Two servers, the first of which answers only when it is told to."""
    gate = threading.Event()

    def slow(request, _connection):
        if request.target.startswith("/slow"):
            gate.wait(90)
        return answer("first")

    origins = [Origin(slow), Origin("second")]
    servers = "".join(f"server 127.0.0.1:{origin.port};" for origin in origins)
    one = Balancer(f"upstream backend {{ zone backend 64k; {servers} keepalive 8; }} server {{ {API}"
                   " location / { proxy_pass http://backend; } }", workers=2)
    yield one
    gate.set()
    for origin in origins:
        origin.stop()


def test_sessions_are_closed_at_the_deadline():
    first, second = TcpServer("first"), TcpServer("second")
    port = free_port()
    one = Balancer(text=f"worker_processes 2; events {{ }} http {{ access_log off; server {{ {API} }} }} stream {{"
                   f" upstream shells {{ zone shells 64k; server {first.server}; server {second.server}; }}"
                   f" server {{ listen 127.0.0.1:{port}; proxy_pass shells; }} }}")
    shells = "stream/upstreams/shells"
    sessions = {}
    opened = []
    while len(opened) < 4 or len(sessions) < 2:
        session = Session(port)
        sessions.setdefault(session.line().decode().strip(), []).append(session)
        opened.append(session)
    held = len(sessions["first"])
    set_server(one, 0, {"drain": True, "drain_timeout": "9s"}, shells)
    shown = draining(one, 0, shells)
    assert shown["left"] == held and 0 < shown["seconds_left"] <= 9
    # New sessions go elsewhere, and the old ones go on.
    with Session(port) as session:
        assert session.line().decode().strip() == "second"
    event, = cut_off(one)
    assert event["text"] == f"is down: the time to drain is over, {held} in flight were closed"
    assert server(one, 0, shells)["state"] == "down"
    for session in sessions["first"]:
        assert session.rest() == b""
    for session in sessions["second"]:
        session.send(b"still\n")
        assert session.line().strip() == b"still"
        session.close()
    wait_for(lambda: server(one, 0, shells)["active"] == 0, what="no sessions left")
    first.stop(), second.stop()


def test_sessions_of_udp_end_at_the_deadline():
    first, second = UdpServer("first"), UdpServer("second")
    port = free_port()
    one = Balancer(text=f"worker_processes 1; events {{ }} http {{ access_log off; server {{ {API} }} }} stream {{"
                   f" upstream games {{ zone games 64k; server {first.server}; server {second.server}; }}"
                   f" server {{ listen 127.0.0.1:{port} udp; proxy_pass games; }} }}")
    games = "stream/upstreams/games"
    with UdpClient(port) as client:
        client.sock.sendto(b"1", client.to)
        assert client.sock.recv(100) == b"first:1"
        assert server(one, 0, games)["active"] == 1
        set_server(one, 0, {"drain": True, "drain_timeout": "0s"}, games)
        wait_for(lambda: server(one, 0, games)["active"] == 0, what="the end of the session")
        client.sock.sendto(b"2", client.to)
        assert client.sock.recv(100) == b"second:2"
    first.stop(), second.stop()


def test_requests_without_an_answer_go_to_another_server(farm):
    # Connections that are kept are asked first, and a request on one of them may be repeated on another one.
    assert {get(farm.port, "/").text for _ in range(16)} == {"first", "second"}
    # Each worker begins with a server of its own.
    clients = [Client(farm.port) for _ in range(6)]
    for client in clients:
        client.request("GET", "/slow")
    wait_for(lambda: server(farm, 0)["active"] >= 1, what="requests at the server")
    set_server(farm, 0, {"drain": True, "drain_timeout": "0s"})
    for client in clients:
        response = client.response()
        assert (response.status, response.text) == (200, "second")
        client.close()
    assert server(farm, 0)["state"] == "down" and cut_off(farm)[0]["upstream"] == "backend"
    assert read(farm.port, "/api/9/http/upstreams/backend/servers/0")["down"] is True
    # It can be used again.
    set_server(farm, 0, {"down": False})
    assert {get(farm.port, "/").text for _ in range(8)} == {"first", "second"}


def test_a_deadline_can_be_called_off(farm):
    set_server(farm, 0, {"drain": True, "drain_timeout": "8s"})
    assert "deadline" in draining(farm, 0)
    # The server drains on, or serves again; neither is set down when the other's deadline has passed.
    set_server(farm, 0, {"drain_timeout": None})
    assert "deadline" not in draining(farm, 0)
    set_server(farm, 0, {"drain_timeout": "8s"})
    set_server(farm, 0, {"drain": False})
    set_server(farm, 1, {"drain": True, "drain_timeout": "9s"})
    wait_for(lambda: server(farm, 1)["state"] == "down", what="the deadline of the other server")
    assert server(farm, 0)["state"] == "up" and len(cut_off(farm)) == 1


def test_a_deadline_outlives_a_reload_and_a_worker(farm):
    set_server(farm, 0, {"drain": True, "drain_timeout": "1h"})
    deadline = draining(farm, 0)["deadline"]
    reload(farm)
    assert draining(farm, 0)["deadline"] == deadline
    replace_worker(farm)
    shown = draining(farm, 0)
    assert shown["deadline"] == deadline and 3000 < shown["seconds_left"] <= 3600
    # The new process keeps deadlines too.
    set_server(farm, 1, {"drain": True, "drain_timeout": "100ms"})
    wait_for(lambda: server(farm, 1)["state"] == "down", what="the deadline")
    assert server(farm, 0)["state"] == "draining"


def test_a_deadline_needs_a_server_that_drains(farm):
    servers = "/api/9/http/upstreams/backend/servers"
    for method, path, values in [("PATCH", f"{servers}/0", {"drain_timeout": "3s"}),
                                 ("PATCH", f"{servers}/0", {"drain": True, "drain_timeout": 3}),
                                 ("PATCH", f"{servers}/0", {"drain": True, "drain_timeout": "soon"}),
                                 ("PATCH", f"{servers}/0", {"drain": True, "down": True, "drain_timeout": "3s"}),
                                 ("POST", servers, {"server": "127.0.0.9:1", "drain": True, "drain_timeout": "3s"})]:
        assert code(ask(farm.port, method, path, values)) == (400, "UpstreamConfFormatError"), values
    assert {one["state"] for one in read(farm.port, "/api/balanza/http/upstreams/backend")["servers"]} == {"up"}
