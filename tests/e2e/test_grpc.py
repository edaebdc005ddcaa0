"""`grpc_pass`, with the server and the client of grpcio."""

import queue
import threading
import time

import pytest

grpc = pytest.importorskip("grpc")

from support.balancer import wait_for  # noqa: E402
from support.certificates import authority, certificate  # noqa: E402
from support.client import Client  # noqa: E402
from support.expect import balanza_only  # noqa: E402
from support.grpc_server import Calls, GrpcServer  # noqa: E402
from support.http2 import Http2Client, get  # noqa: E402
from support.http2_server import Http2Server, upstream  # noqa: E402
from support.ports import free_port  # noqa: E402

PASS = "grpc_pass grpc://group;"


def passed(servers, location="", *, http="", server="", target=PASS, head="", listen=""):
    return (upstream(servers, head=head) + "log_format s '$status $upstream_status $upstream_addr';" + http +
            f"server {{ listen 127.0.0.1:PORT {listen}; http2 on; {server} access_log logs/access.log s;"
            f" location / {{ {target} {location} }} }}\n")


def code(call):
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code()


def test_calls_of_every_kind(balancer):
    one = GrpcServer()
    b = balancer(passed([one]))
    with Calls(b.port) as calls:
        assert calls.unary(b"hello", timeout=10) == b"hello"
        assert list(calls.down(b"100", timeout=10)) == [b"%d" % index for index in range(100)]
        assert calls.up(iter([b"a" * 1000] * 100), timeout=10) == b"a" * 100_000
        assert list(calls.both(iter([b"a", b"b", b"c"]), timeout=10)) == [b"A", b"B", b"C"]
    assert [method for method, *_ in one.calls] == ["Unary", "Down", "Up", "Both"]
    assert [line.split()[:2] for line in b.wait_log(4)] == [["200", "200"]] * 4


def test_large_messages(balancer):
    one = GrpcServer()
    b = balancer(passed([one], "client_max_body_size 0;"))
    message = bytes(range(256)) * 12_000
    with Calls(b.port) as calls:
        for _ in range(3):
            assert calls.unary(message, timeout=20) == message


def test_metadata_and_trailers(balancer):
    one = GrpcServer()
    b = balancer(passed([one], "grpc_set_header X-Set $remote_addr; add_header X-Added a;"))
    with Calls(b.port) as calls:
        response, call = calls.unary.with_call(b"x", timeout=10, metadata=(("x-own", "1"), ("x-own-bin", b"\0\1")))
        assert response == b"x"
        head, tail = dict(call.initial_metadata()), dict(call.trailing_metadata())
        assert (head["x-head"], head["x-head-bin"], head["x-added"]) == ("h", b"\0\xff", "a")
        assert (tail["x-tail"], tail["x-tail-bin"]) == ("t", b"\1\2")
    asked = one.calls[0][1]
    assert (asked["x-own"], asked["x-own-bin"], asked["x-set"]) == ("1", b"\0\1", "127.0.0.1")


def test_a_status_of_the_server(balancer):
    one = GrpcServer()
    b = balancer(passed([one]))
    with Calls(b.port) as calls:
        with pytest.raises(grpc.RpcError) as error:
            calls.fail(b"x", timeout=10)
        found = error.value
        assert (found.code(), found.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "no: 50%")
        assert dict(found.trailing_metadata())["x-why"] == "test"
        assert code(lambda: calls.missing(b"x", timeout=10)) == grpc.StatusCode.UNIMPLEMENTED
        assert calls.unary(b"x", timeout=10) == b"x"


def test_both_directions_at_the_same_time(balancer):
    """Each message is answered before the next one is sent."""
    one = GrpcServer()
    b = balancer(passed([one]))
    messages = queue.Queue()
    with Calls(b.port) as calls:
        answers = calls.both(iter(messages.get, None), timeout=30)
        for index in range(50):
            messages.put(b"m%d" % index)
            assert next(answers) == b"M%d" % index
        messages.put(None)
        assert list(answers) == []


def test_a_deadline(balancer):
    one = GrpcServer()
    b = balancer(passed([one]))
    with Calls(b.port) as calls:
        # Time enough to reach the server.
        assert code(lambda: calls.slow(b"30", timeout=5)) == grpc.StatusCode.DEADLINE_EXCEEDED
    assert one.calls[0][2] <= 5, "the server knows it"
    assert one.cancelled.wait(20)


def test_a_call_that_is_cancelled(balancer):
    one = GrpcServer()
    b = balancer(passed([one]))
    with Calls(b.port) as calls:
        call = calls.slow.future(b"60")
        wait_for(lambda: one.calls)
        call.cancel()
        assert one.cancelled.wait(40)
        one.cancelled.clear()
        messages = queue.Queue()
        messages.put(b"a")
        answers = calls.both(iter(messages.get, None))
        assert next(answers) == b"A"
        answers.cancel()
        assert one.cancelled.wait(40)
        messages.put(None)
        assert calls.unary(b"x", timeout=10) == b"x"


@pytest.mark.parametrize("to_client", [True, False])
def test_over_tls(balancer, to_client):
    one = GrpcServer(tls=certificate("a.test"))
    more = (f"grpc_ssl_verify on; grpc_ssl_trusted_certificate {authority().certificate}; grpc_ssl_name a.test;"
            " grpc_ssl_server_name on;")
    server = certificate("a.test").directives() if to_client else ""
    b = balancer(passed([one], more, target="grpc_pass grpcs://group;", server=server, listen="ssl" if to_client else ""))
    with Calls(b.port, tls=authority().certificate if to_client else None) as calls:
        assert calls.unary(b"secret", timeout=10) == b"secret"
        assert list(calls.both(iter([b"a"]), timeout=10)) == [b"A"]


def test_a_certificate_for_another_name(balancer):
    one = GrpcServer(tls=certificate("other.test"))
    more = f"grpc_ssl_verify on; grpc_ssl_trusted_certificate {authority().certificate}; grpc_ssl_name a.test;"
    b = balancer(passed([one], more, target="grpc_pass grpcs://group;"))
    with Calls(b.port) as calls:
        assert code(lambda: calls.unary(b"x", timeout=10)) == grpc.StatusCode.UNAVAILABLE
    b.wait_error("upstream SSL certificate does not match|certificate verify error")
    assert not one.calls


def test_two_servers_take_turns(balancer):
    servers = [GrpcServer(b"0"), GrpcServer(b"1")]
    b = balancer(passed(servers))
    with Calls(b.port) as calls:
        answers = [calls.unary(b"", timeout=10) for _ in range(20)]
    assert sorted(answers) == [b"0"] * 10 + [b"1"] * 10
    assert [len(one.calls) for one in servers] == [10, 10]


def test_a_server_that_is_down_is_passed_over(balancer):
    one = GrpcServer()
    down = type("Down", (), {"server": f"127.0.0.1:{free_port()}"})
    b = balancer(passed([down, one]))
    with Calls(b.port) as calls:
        for _ in range(4):
            assert calls.unary(b"x", timeout=10) == b"x"
    assert "111: Connection refused) while connecting to upstream" in b.error_log()
    assert f'upstream: "grpc://{down.server}"' in b.error_log()


def test_a_server_that_comes_back(balancer):
    one = GrpcServer()
    b = balancer(passed([one]))
    with Calls(b.port) as calls:
        assert calls.unary(b"x", timeout=10) == b"x"
        one.grpc.stop(0).wait()
        time.sleep(0.1)
        GrpcServer(b"again ", port=one.port)
        wait_for(lambda: answered(calls) == b"again x")


def answered(calls):
    try:
        return calls.unary(b"x", timeout=10)
    except grpc.RpcError:
        return None


ERROR_PAGES = """
    error_page 502 = /unavailable;
    error_page 504 = /deadline;
    location = /unavailable { internal; default_type application/grpc; add_header grpc-status 14;
        add_header grpc-message "no server"; return 204; }
    location = /deadline { internal; default_type application/grpc; add_header grpc-status 4;
        add_header grpc-message "too late"; return 204; }
"""


@pytest.mark.parametrize("pages", [True, False])
def test_errors_of_the_balancer(balancer, pages):
    one = GrpcServer()
    down = type("Down", (), {"server": f"127.0.0.1:{free_port()}"})
    server = ERROR_PAGES if pages else ""
    with Calls(balancer(passed([down], server=server)).port) as calls:
        with pytest.raises(grpc.RpcError) as error:
            calls.unary(b"x", timeout=10)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert ("no server" if pages else "502") in error.value.details()
    with Calls(balancer(passed([one], "grpc_read_timeout 300ms;", server=server)).port) as calls:
        with pytest.raises(grpc.RpcError) as error:
            calls.slow(b"10", timeout=10)
        expected = grpc.StatusCode.DEADLINE_EXCEEDED if pages else grpc.StatusCode.UNAVAILABLE
        assert error.value.code() == expected
        assert ("too late" if pages else "504") in error.value.details()


def test_what_the_server_is_asked(balancer):
    one = Http2Server(lambda stream: stream.answer(b"", headers=[("content-type", "application/grpc"),
                                                                 ("server", "theirs"), ("x-hide", "1"),
                                                                 ("x-accel-limit-rate", "1")],
                                                   trailers=[("grpc-status", "0")]))
    b = balancer(passed([one], "grpc_hide_header X-Hide; grpc_pass_header X-Accel-Limit-Rate;"
                               " grpc_ignore_headers X-Accel-Limit-Rate;"))
    with Http2Client(b.port) as client:
        found = client.get("/a%20b/C?d=e", "POST", body=b"x" * 10, headers=[("te", "trailers"), ("x-a", "1"),
                                                                          ("content-type", "application/grpc")])
    assert found.trailers == [("grpc-status", "0")]
    assert found["x-hide"] is None and found["server"] != "theirs" and found["x-accel-limit-rate"] == "1"
    asked = one.last
    assert (asked[":path"], asked[":authority"], asked[":method"]) == ("/a%20b/C?d=e", "group", "POST")
    assert (asked["te"], asked["x-a"], asked["content-length"]) == ("trailers", "1", "10")
    assert get(b.port, method="POST").status == 200 and one.last["te"] is None


def test_host_and_other_fields_that_are_set(balancer):
    one = Http2Server(lambda stream: stream.answer(b"ok"))
    b = balancer(passed([one], "grpc_set_header Host shop.test; grpc_set_header X-A '';",
                        http="grpc_set_header X-Http 1;"))
    assert get(b.port, headers=[("x-a", "1"), ("x-b", "2")]).text == "ok"
    asked = one.last
    assert (asked[":authority"] or asked["host"]) == "shop.test"
    assert asked["x-a"] is None and asked["x-b"] == "2" and asked["x-http"] is None


@pytest.mark.parametrize("target", ["grpc_pass $scheme_;", "grpc_pass grpc://$where;", "grpc_pass $where;"])
def test_an_address_with_variables(balancer, target):
    one = Http2Server(lambda stream: stream.answer(stream[":authority"].encode()))
    if "scheme_" in target:
        target = "set $scheme_ grpc://group; " + target
    b = balancer(passed([one], target=target.replace("grpc_pass", f"set $where {one.server}; grpc_pass", 1)))
    assert get(b.port).text == ("group" if "scheme_" in target else one.server)
    assert get(b.port).status == 200


def test_an_address_that_is_none(balancer):
    one = Http2Server()
    b = balancer(passed([one], target="set $where $arg_a; grpc_pass grpc://$where;"))
    assert get(b.port, "/?a=127.0.0.1/x").status == 500
    assert get(b.port, "/?a=").status == 500
    assert not one.requests


def test_intercepted_errors(balancer):
    one = Http2Server(lambda stream: stream.answer(b"theirs", status=503, trailers=[("grpc-status", "14")]))
    text = "error_page 503 /ours;"
    more = " location = /ours { return 200 ours; }"
    b = balancer(passed([one], text, server=more))
    assert get(b.port).text == "theirs"
    b = balancer(passed([one], text + "grpc_intercept_errors on;", server=more))
    found = get(b.port)
    assert (found.status, found.text) == (503, "ours") and not found.trailers


def test_next_upstream(balancer):
    bad = Http2Server(lambda stream: stream.answer(b"bad", status=503))
    good = Http2Server(lambda stream: stream.answer(b"good"))
    b = balancer(passed([bad, good], "grpc_next_upstream error http_503;"))
    assert [get(b.port).text for _ in range(4)] == ["good"] * 4
    b = balancer(passed([bad, good], "grpc_next_upstream http_503; grpc_next_upstream_tries 1;"))
    assert {get(b.port).text for _ in range(4)} == {"good", "bad"}


@balanza_only("NGINX 1.22 speaks HTTP/2 alone on a plain port")
def test_grpc_by_http_1(balancer):
    """A client of HTTP/1.1 gets the trailers if it asks for them."""
    one = Http2Server(lambda stream: stream.answer(b"abc", trailers=[("grpc-status", "0")]))
    b = balancer(passed([one]))
    with Client(b.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nContent-Length: 3\r\n\r\nxyz")
        found = client.response()
    assert found.body == b"abc" and [(name.lower(), value) for name, value in found.trailers] == [("grpc-status", "0")]
    assert one.last.body == b"xyz"


def test_a_client_that_is_silent(balancer):
    """`client_body_timeout` holds between the messages of a client."""
    one = GrpcServer()
    b = balancer(passed([one], "client_body_timeout 4s;"))
    messages = queue.Queue()
    with Calls(b.port) as calls:
        answers = calls.both(iter(messages.get, None), timeout=20)
        messages.put(b"a")
        assert next(answers) == b"A"
        with pytest.raises(grpc.RpcError) as error:
            next(answers)
        assert error.value.code() != grpc.StatusCode.DEADLINE_EXCEEDED
        messages.put(None)
    assert one.cancelled.wait(20)


def test_a_server_that_is_silent_in_a_stream(balancer):
    one = Http2Server(lambda stream: (stream.head(headers=[("content-type", "application/grpc")]), time.sleep(30)))
    # Time enough for the head, which belongs to the answer.
    b = balancer(passed([one], "grpc_read_timeout 8s;"))
    with Http2Client(b.port) as client:
        stream = client.request(method="POST", body=b"x")
        with pytest.raises(Exception, match="reset"):
            client.response(stream)
    b.wait_error("upstream timed out .110: Connection timed out. while reading upstream")


@balanza_only("it has a connection for each call")
def test_many_calls_share_a_connection(balancer):
    one = GrpcServer()
    b = balancer(passed([one]))
    with Calls(b.port) as calls:
        futures = [calls.slow.future(b"0.3", timeout=20) for _ in range(40)]
        assert [future.result() for future in futures] == [b"late"] * 40
    # The server decides how many calls a connection may have.
    assert 1 <= connections_to(one.port) <= 5


def connections_to(port):
    """Established connections to a local port, of either side once."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(1 for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01")


def test_calls_of_many_clients(balancer):
    servers = [GrpcServer(), GrpcServer()]
    b = balancer(passed(servers, head="least_conn;"))
    failures = []

    def client(number):
        with Calls(b.port) as calls:
            for index in range(20):
                message = b"%d %d" % (number, index)
                if calls.unary(message, timeout=20) != message:
                    failures.append(message)
                if list(calls.both(iter([message]), timeout=20)) != [message.upper()]:
                    failures.append(message)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and sum(len(one.calls) for one in servers) == 8 * 40
