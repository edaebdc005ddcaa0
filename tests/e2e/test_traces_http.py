"""`otel_exporter { protocol http/protobuf; }`: spans at a collector by OTLP over HTTP/1.1."""

import os
import re
import signal
import tempfile
import threading

import pytest

pytest.importorskip("grpc")
pytest.importorskip("opentelemetry.proto", reason="opentelemetry-proto is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402

from support.balancer import wait_for  # noqa: E402
from support.certificates import authority, certificate  # noqa: E402
from support.client import Client, get  # noqa: E402
from support.collector import Collector, values  # noqa: E402
from support.expect import balanza_only  # noqa: E402
from support.http_collector import HttpCollector  # noqa: E402
from support.origin import answer  # noqa: E402
from test_api import read  # noqa: E402
from test_traces import exporter, traced  # noqa: E402, F401

pytestmark = balanza_only("NGINX's module has gRPC only")

HTTP = "protocol http/protobuf; interval 20ms;"
# A collector answers the first attempt with an error: the next one comes after half a second at least.
PAUSE = 0.5


def counts(b):
    """What has become of the spans; the location of metrics has none."""
    found = re.findall(r'balanza_otel_spans\{result="(\w+)"\} (\d+)', get(b.port, "/metrics").text)
    return {result: int(count) for result, count in found}


METRICS = "location /metrics { otel_trace off; metrics; } location /api { otel_trace off; api; }"


def change(b, old, new):
    """Reloads with another configuration, and waits until it is in operation."""
    before = read(b.port, "/api/9/nginx")["generation"]
    b.reload(text=b.text.replace(old, new))
    wait_for(lambda: read(b.port, "/api/9/nginx")["generation"] == before + 1, what="the reload")


def spans_in(body):
    return [span for each in ExportTraceServiceRequest.FromString(body).resource_spans for span in each.scope_spans[0].spans]


def test_a_reload_goes_over_from_grpc_and_the_spans_are_the_same(traced):  # noqa: F811
    """The same requests give the same spans, except for identifiers, times and ports."""
    b, first = traced("otel_span_attr a $arg_a;",
                      http="otel_trace on; otel_trace_context propagate; otel_service_name shop; otel_resource_attr a.b c;",
                      server=f"location /fails {{ return 503 x; }} {METRICS}")

    def requests():
        for target in ("/a/b?a=1", "/fails", "/?a=%C3%A9"):
            get(b.port, target, headers=[("User-Agent", "test/1"), ("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01")])

    def plain(collector):
        spans = collector.wait_spans(3)
        for span in spans:
            assert span.trace_id.hex() == "ab" * 16 and len(span.span_id) == 8
            assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60 * 10**9
            for name in ("span_id", "start_time_unix_nano", "end_time_unix_nano"):
                span.ClearField(name)
            attributes = [each for each in span.attributes if each.key != "net.sock.peer.port"]
            del span.attributes[:]
            span.attributes.extend(attributes)
        return [span.SerializeToString(deterministic=True) for span in spans]

    requests()
    second = HttpCollector()
    expected = plain(first)
    change(b, exporter(first), exporter(second, HTTP))
    requests()
    assert plain(second) == expected
    assert len(first.spans()) == 3 and second.resource() == first.resource() == {"service.name": "shop", "a.b": "c"}
    assert set(second.lines) == {"POST /v1/traces HTTP/1.1"}
    # And back.
    change(b, exporter(second, HTTP), exporter(first))
    get(b.port, "/last")
    assert values(first.wait_spans(4)[3])["http.target"] == "/last" and len(second.spans()) == 3


def test_the_request_to_the_collector(traced):  # noqa: F811
    collector = HttpCollector()
    b, _ = traced(to=f"{collector.server}/in/traces?a=b", settings=f'{HTTP} header X-Key "a b"; header authorization "Bearer t";')
    get(b.port)
    collector.wait_spans()
    assert collector.lines == ["POST /in/traces?a=b HTTP/1.1"]
    fields = {name.lower(): value for name, value in collector.fields[0].items()}
    assert int(fields.pop("content-length")) > 0 and fields.pop("user-agent").startswith("balanza/")
    assert fields == {"host": f"127.0.0.1:{collector.port}", "content-type": "application/x-protobuf",
                      "x-key": "a b", "authorization": "Bearer t"}


def test_the_connection_is_kept_until_it_is_closed(traced):  # noqa: F811
    collector = HttpCollector()
    b, _ = traced(to=collector, settings=HTTP)
    for count in range(1, 5):
        get(b.port)
        collector.wait_spans(count)
    assert len(set(collector.connections)) == 1 and len(collector.requests) == 4
    collector.answers.append((200, {"Connection": "close"}, b""))
    get(b.port)
    wait_for(lambda: len(collector.lines) == 5, what="the request")
    get(b.port)
    collector.wait_spans(5)
    assert len(set(collector.connections)) == 2
    assert "spans lost" not in b.error_log()


def test_a_kept_connection_that_is_over_loses_nothing(traced, origin):  # noqa: F811
    """The collector closes one without an answer: the request goes out once more, on another connection."""
    arrived, closed = [], []

    def handle(request, connection):
        spans = spans_in(request.body)
        if len(arrived) == 1 and not closed:
            closed.append(spans)
            return connection.close()
        arrived.extend(spans)
        return answer(b"", "202 Accepted")

    one = origin(handle)
    b, _ = traced(to=f"http://{one.server}", settings=HTTP)
    for count in range(1, 4):
        get(b.port, f"/{count}")
        wait_for(lambda: len(arrived) == count, what=f"span {count}")
    assert [values(span)["http.target"] for span in arrived] == ["/1", "/2", "/3"]
    assert len(closed) == 1 and len(one.connections) == 2 and "spans lost" not in b.error_log()


def test_idle_connections_may_be_closed(traced):  # noqa: F811
    # Long enough for a connection on which the first request comes late.
    collector = HttpCollector(idle=3)
    b, _ = traced(to=collector, settings=HTTP)
    for count in range(1, 4):
        wait_for(lambda: collector.closed == count - 1, what="the end of the connection before")  # noqa: B023
        get(b.port)
        collector.wait_spans(count)
    assert len(set(collector.connections)) == 3 and "spans lost" not in b.error_log()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_is_not_wanted_yet_is_sent_again(traced, status):  # noqa: F811
    collector = HttpCollector()
    collector.answers += [(status, {}, b"not now")] * 2
    b, _ = traced(to=collector, settings=HTTP, server=METRICS)
    get(b.port)
    [span] = collector.wait_spans()
    assert values(span)["http.target"] == "/" and len(collector.times) == 3
    gaps = [after - before for before, after in zip(collector.times, collector.times[1:])]
    # The second pause is twice as long as the first.
    assert gaps[0] >= PAUSE * 0.95 and gaps[1] >= 2 * PAUSE * 0.95
    # The connection was good all the time.
    assert len(set(collector.connections)) == 1
    wait_for(lambda: counts(b) == {"exported": 1, "failed": 0, "dropped": 0}, what="the counters")
    assert "spans lost" not in b.error_log()


def test_the_collector_says_when(traced):  # noqa: F811
    collector = HttpCollector()
    # Without the field the two pauses would be 3 seconds at most.
    collector.answers += [(503, {"Retry-After": 2}, b""), (503, {"Retry-After": 2}, b"")]
    b, _ = traced(to=collector, settings=HTTP)
    get(b.port)
    collector.wait_spans()
    gaps = [after - before for before, after in zip(collector.times, collector.times[1:])]
    assert len(gaps) == 2 and min(gaps) >= 1.9


def test_requests_go_on_while_spans_wait_for_another_attempt(traced):  # noqa: F811
    """What has no room is dropped, as with a collector that is silent. Another exporter does not wait for this one."""
    first, second = HttpCollector(), HttpCollector()
    first.answers += [(503, {"Retry-After": 3600}, b"")] * 1000
    b, _ = traced(to=first, settings="protocol http/protobuf; interval 10ms; batch_size 2; batch_count 2;", server=METRICS)
    with Client(b.port) as client:
        for _ in range(100):
            assert client.get().status == 200
    wait_for(lambda: len(first.lines) == 1, what="the first request")
    assert counts(b)["dropped"] > 50
    b.wait_error("OpenTelemetry: spans lost: .*: too many wait for the collector")
    change(b, first.server, second.server)
    wait_for(lambda: get(b.port).status == 200 and second.spans(), what="a span at the other collector")
    # The old one has tried what waited once more, and no longer than that.
    wait_for(lambda: counts(b)["failed"] > 0, what="the end of the first exporter")


@pytest.mark.parametrize("status, fields, body, said", [
    (400, {"Content-Type": "application/x-protobuf"}, b"\x08\x03\x12\x08bad data", "status 400: bad data"),
    (404, {"Content-Type": "text/plain"}, b"404 page not found\n", "status 404: 404 page not found"),
    (301, {"Location": "/"}, b"", "status 301"),
    (500, {}, b"", "status 500"),
])
def test_refusals_drop_the_batch_and_are_said_once(traced, status, fields, body, said):  # noqa: F811
    collector = HttpCollector()
    collector.answers += [(status, fields, body)] * 3
    b, _ = traced(to=collector, settings=HTTP, server=METRICS)
    for count in range(1, 4):
        get(b.port)
        wait_for(lambda: counts(b)["failed"] == count, what=f"failure {count}")
    get(b.port)
    collector.wait_spans()
    assert len(collector.lines) == 4
    lost = re.findall(r"\[error\] .*OpenTelemetry: (.*)", b.error_log())
    assert lost == [f"spans lost: 1, sending to {collector.server}/v1/traces: the collector answers with {said}"]
    # Another reason is another line.
    collector.answers.append((401, {}, b""))
    get(b.port)
    b.wait_error("spans lost: 1, .* status 401")


def test_spans_that_were_refused_are_counted(traced):  # noqa: F811
    collector = HttpCollector()
    collector.reject = 1
    b, _ = traced(to=collector, settings=HTTP, server=METRICS)
    get(b.port)
    collector.wait_spans()
    b.wait_error("OpenTelemetry: spans lost: 1, sending to .*: too many")
    assert counts(b) == {"exported": 0, "failed": 1, "dropped": 0}


def test_no_request_waits_for_a_collector_that_is_silent(traced):  # noqa: F811
    collector = HttpCollector()
    collector.gate.clear()
    b, _ = traced(to=collector, settings="protocol http/protobuf; interval 10ms; batch_size 2; batch_count 2;", server=METRICS)
    with Client(b.port) as client:
        for _ in range(100):
            assert client.get().status == 200
        assert counts(b)["dropped"] > 50
        collector.gate.set()
        wait_for(lambda: sum(counts(b).values()) == 100, what="the last spans")
        assert counts(b)["exported"] == len(collector.spans())
    collector.gate.clear()
    get(b.port)
    assert b.stop(signal.SIGTERM, seconds=40) == 0


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("begin, more, is_taken", [
    # A success whose body has no end is a success, a head without an end is none.
    (CHUNKED, b"4\r\nabcd\r\n" * 1000, True),
    (b"HTTP/1.0 200 OK\r\n\r\n", b"a" * 1000, True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n", b"a" * 1000, True),
    (b"HTTP/1.1 500 Not OK\r\nContent-Length: 1000000000000\r\n\r\n", b"a" * 1000, False),
    (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 100, False),
    (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100, False),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", None, False),
    (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", None, False),
    (b"\x00" * 100, None, False),
    (b"", None, False),
])
def test_answers_without_end_and_without_sense_do_no_harm(traced, origin, begin, more, is_taken):  # noqa: F811
    arrived, quiet = [], threading.Event()

    def handle(request, connection):
        arrived.extend(spans_in(request.body))
        if quiet.is_set():
            return answer(b"")
        try:
            connection.send(begin)
            while more and connection.open:
                connection.send(more)
        except OSError:
            pass
        connection.close()

    one = origin(handle)
    b, _ = traced(to=f"http://{one.server}", settings=HTTP, server=METRICS)
    assert get(b.port).status == 200
    expected = {"exported": int(is_taken), "failed": int(not is_taken), "dropped": 0}
    wait_for(lambda: counts(b) == expected, what=f"{expected}")
    quiet.set()
    before = len(arrived)
    assert get(b.port, "/next").status == 200
    wait_for(lambda: counts(b)["exported"] == int(is_taken) + 1, what="the next span")
    assert values(arrived[-1])["http.target"] == "/next" and len(arrived) == before + 1


def test_a_collector_with_tls(traced):  # noqa: F811
    collector = HttpCollector(tls=certificate("localhost"))
    at = f"https://localhost:{collector.port}"
    b, _ = traced(to=at, settings=f"{HTTP} trusted_certificate {authority().certificate};", server=METRICS)
    for count in range(1, 4):
        get(b.port)
        collector.wait_spans(count)
    assert collector.alpn == "http/1.1" and len(set(collector.connections)) == 1
    other = HttpCollector(tls=certificate("a.test"))
    change(b, at, f"https://localhost:{other.port}")
    wait_for(lambda: get(b.port).status == 200 and "spans lost" in b.error_log(), what="the refusal")
    b.wait_error("OpenTelemetry: .* TLS handshake failed")
    assert other.lines == []


def test_a_unix_socket(traced, origin):  # noqa: F811
    arrived = []

    def handle(request, _connection):
        assert (request.target, request["Host"]) == ("/v1/traces", "localhost:4318")
        arrived.extend(spans_in(request.body))
        return answer(b"")

    # A directory that the worker's user may search.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        one = origin(handle, unix=f"{directory}/o.sock")
        os.chmod(one.unix, 0o666)
        b, _ = traced(to=one.server, settings=HTTP)
        get(b.port)
        wait_for(lambda: arrived, what="a span")
    assert one.errors == []


def test_the_end_sends_what_waits(traced):  # noqa: F811
    collector = HttpCollector()
    b, _ = traced(to=collector, settings="protocol http/protobuf; interval 1h;")
    get(b.port, "/one")
    assert b.stop(signal.SIGQUIT) == 0
    assert [values(span)["http.target"] for span in collector.wait_spans()] == ["/one"]


def test_the_end_sends_what_is_not_wanted_yet_once_more(traced):  # noqa: F811
    collector = HttpCollector()
    collector.answers.append((503, {"Retry-After": 3600}, b""))
    b, _ = traced(to=collector, settings=HTTP)
    get(b.port, "/one")
    wait_for(lambda: collector.answered, what="the first answer")
    assert b.stop(signal.SIGQUIT) == 0
    assert [values(span)["http.target"] for span in collector.wait_spans()] == ["/one"]


def test_grpc_is_tried_again_in_the_same_way(traced):  # noqa: F811
    import grpc
    b, collector = traced(server=METRICS)
    assert isinstance(collector, Collector)
    collector.fails = grpc.StatusCode.UNAVAILABLE
    get(b.port)
    wait_for(lambda: len(collector.metadata) >= 2, what="the second attempt")
    collector.fails = None
    collector.wait_spans()
    wait_for(lambda: counts(b) == {"exported": 1, "failed": 0, "dropped": 0}, what="the counters")
    collector.fails = grpc.StatusCode.INVALID_ARGUMENT
    get(b.port)
    b.wait_error("spans lost: 1, .* gRPC status 3 not now")
