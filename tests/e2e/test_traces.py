"""`otel_…`: spans of requests at a collector, and the context that clients and servers see."""

import re
import signal
import socket

import pytest

grpc = pytest.importorskip("grpc")
pytest.importorskip("opentelemetry.proto", reason="opentelemetry-proto is not installed")

from support.balancer import wait_for  # noqa: E402
from support.certificates import authority, certificate  # noqa: E402
from support.client import Client, get  # noqa: E402
from support.collector import Collector, values  # noqa: E402
from support.expect import balanza_only  # noqa: E402
from support.http2 import Http2Client  # noqa: E402
from support.origin import answer  # noqa: E402
from support.ports import free_port  # noqa: E402
from support.tls import context  # noqa: E402
from test_api import reload  # noqa: E402

pytestmark = balanza_only("Debian's has no ngx_otel_module")

TRACE, PARENT, STATE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7"
FROM_CLIENT = [("Traceparent", f"00-{TRACE}-{PARENT}-01"), ("Tracestate", STATE)]


def exporter(collector, settings="interval 20ms;"):
    return f"otel_exporter {{ endpoint {getattr(collector, 'server', collector)}; {settings} }}\n"


@pytest.fixture
def traced(balancer, origin):
    """A balancer that sends spans to a collector; its server answers with the context that it was sent."""
    def make(location="", *, settings="interval 20ms;", http="otel_trace on;", server="", listen="", to=None, **options):
        def handle(request, _connection):
            return answer("body", headers=[(f"X-{name}", request[name] or "none") for name in ("traceparent", "tracestate")])
        one = origin(handle)
        collector = to or Collector()
        made = balancer(exporter(collector, settings) + http + f"""
            log_format t '$otel_trace_id $otel_span_id $otel_parent_id $otel_parent_sampled';
            server {{ listen 127.0.0.1:PORT {listen}; http2 on; server_name shop.test; access_log logs/access.log t; {server}
                location / {{ proxy_pass http://{one.server}; {location} }} }}""", **options)
        return made, collector
    return make


@pytest.mark.http1("the protocol in a span")
def test_a_span_of_a_proxied_request(traced):
    b, collector = traced()
    with Client(b.port) as client:
        own = client.sock.getsockname()[1]
        client.get("/a/b?c=d", headers={"User-Agent": "test/1"})
    [span] = collector.wait_spans()
    found = values(span)
    assert found == {
        "http.method": "GET", "http.target": "/a/b?c=d", "http.route": "/", "http.scheme": "http", "http.flavor": "1.1",
        "http.user_agent": "test/1", "http.request_content_length": 0, "http.response_content_length": 4,
        "http.status_code": 200, "net.host.name": "shop.test", "net.host.port": b.port,
        "net.sock.peer.addr": "127.0.0.1", "net.sock.peer.port": own,
    }
    assert (span.name, span.kind, span.status.code, span.trace_state) == ("/", 2, 0, "")
    assert len(span.trace_id) == 16 and len(span.span_id) == 8 and span.parent_span_id == b""
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60 * 10**9
    assert collector.resource() == {"service.name": "unknown_service:balanza"}
    scope = collector.requests[0].resource_spans[0].scope_spans[0].scope
    assert scope.name == "balanza" and scope.version
    # The log has the same identifiers.
    assert b.wait_log() == [f"{span.trace_id.hex()} {span.span_id.hex()} - 0"]


def test_spans_of_all_kinds_of_answers(traced):
    server = f"""location /file {{ root html; }} location /return {{ return 404; }} location /fails {{ return 503 x; }}
        location = /exact {{ return 204; }} location ~ ^/r\\d {{ return 200 x; }}
        location /dead {{ proxy_pass http://127.0.0.1:{free_port()}; }}
        location /moved {{ error_page 404 /page; return 404; }} location /page {{ return 200 page; }}
        location /large {{ client_max_body_size 1; return 200; }} rewrite ^/old /exact;"""
    b, collector = traced(server=server)
    (b.dir / "html/file").write_text("static")
    expected = {"/file": (200, "/file", 0), "/return": (404, "/return", 0), "/fails": (503, "/fails", 2),
                "/exact": (204, "/exact", 0), "/r1": (200, "^/r\\d", 0), "/dead": (502, "/dead", 2),
                "/moved": (404, "/page", 0), "/none": (200, "/", 0), "/old": (204, "/exact", 0)}
    for target, (status, *_) in expected.items():
        assert get(b.port, target).status == status, target
    with Client(b.port) as client:
        assert client.request("POST", "/large", body=b"12345").response().status == 413
    spans = {values(span)["http.target"]: span for span in collector.wait_spans(len(expected) + 1)}
    for target, (status, route, code) in expected.items():
        found = values(spans[target])
        assert (found["http.status_code"], found["http.route"], spans[target].status.code) == (status, route, code), target
    assert values(spans["/large"])["http.status_code"] == 413
    assert values(spans["/large"])["http.request_content_length"] == 5
    assert len({span.trace_id for span in spans.values()}) == len(spans)


def test_http2_and_tls(traced):
    pair = certificate("a.test")
    b, collector = traced("otel_trace_context propagate;", listen="ssl", server=pair.directives())
    with Http2Client(b.port, tls=context(alpn=["h2"])) as client:
        found = client.get("/", headers=FROM_CLIENT)
    [span] = collector.wait_spans()
    assert found["x-traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01" and found["x-tracestate"] == STATE
    assert (values(span)["http.flavor"], values(span)["http.scheme"]) == ("2.0", "https")


@pytest.mark.parametrize("mode", ["ignore", "extract", "inject", "propagate"])
@pytest.mark.parametrize("has_parent", [False, True])
def test_contexts(traced, mode, has_parent):
    b, collector = traced(f"otel_trace_context {mode};")
    found = get(b.port, headers=FROM_CLIENT if has_parent else [])
    [span] = collector.wait_spans()
    continues = has_parent and mode in ("extract", "propagate")
    assert (span.trace_id.hex() == TRACE) == continues
    assert span.parent_span_id.hex() == (PARENT if continues else "")
    assert span.trace_state == (STATE if continues else "")
    sent = (found["X-traceparent"], found["X-tracestate"])
    if mode in ("inject", "propagate"):
        assert sent == (f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01", STATE if continues else "none")
    else:
        assert sent == ((FROM_CLIENT[0][1], STATE) if has_parent else ("none", "none"))
    parent = f"{PARENT} 1" if continues else "- 0"
    assert b.wait_log() == [f"{span.trace_id.hex()} {span.span_id.hex()} {parent}"]


@pytest.mark.parametrize("fields", [
    [("traceparent", f"00-{TRACE}-{PARENT}-01"), ("traceparent", f"00-{TRACE}-{PARENT}-01")],
    [("traceparent", f"00-{TRACE.upper()}-{PARENT}-01")],
    [("traceparent", f"00-{'0' * 32}-{PARENT}-01")],
    [("traceparent", f"00-{TRACE}-{'0' * 16}-01")],
    [("traceparent", f"ff-{TRACE}-{PARENT}-01")],
    [("traceparent", f"00-{TRACE}-{PARENT}-01-x")],
    [("traceparent", "00-" + "a" * 4000)],
    [("traceparent", "")],
    [("tracestate", STATE)],
    # The context is no field of the connection, whatever the client says.
    [("Connection", "traceparent, tracestate")],
])
def test_what_is_not_valid_is_not_continued(traced, fields):
    b, collector = traced("otel_trace_context propagate;")
    found = get(b.port, headers=fields)
    [span] = collector.wait_spans()
    assert span.trace_id.hex() != TRACE and span.parent_span_id == b"" and span.trace_state == ""
    assert found["X-traceparent"] == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"
    assert found["X-tracestate"] == "none"


def test_an_invalid_state_is_left_out(traced):
    b, collector = traced("otel_trace_context propagate;")
    found = get(b.port, headers=[FROM_CLIENT[0], ("tracestate", "a=b"), ("tracestate", "A B")])
    [span] = collector.wait_spans()
    assert span.trace_id.hex() == TRACE and span.trace_state == "" and found["X-tracestate"] == "none"
    get(b.port, headers=[FROM_CLIENT[0], ("tracestate", "a=b"), ("tracestate", "c=d")])
    assert collector.wait_spans(2)[1].trace_state == "a=b, c=d"


def test_who_has_a_span(traced):
    """`off` by default, by a variable, and by what the client says."""
    server = """location /off { otel_trace off; return 204; } location /by { otel_trace $arg_t; return 204; }
        location /parent { otel_trace $otel_parent_sampled; otel_trace_context propagate; return 200 $http_traceparent; }"""
    b, collector = traced(server=server)
    for target in ("/off", "/by", "/by?t=off", "/by?t=of", "/by?t=on", "/by?t=1"):
        assert get(b.port, target).status == 204
    parent = f"00-{TRACE}-{PARENT}"
    sent = [get(b.port, "/parent", headers=[("traceparent", f"{parent}-{flag}")]).text for flag in ("00", "01")]
    assert [(text[:36], text[-3:]) for text in sent] == [(f"00-{TRACE}-", "-00"), (f"00-{TRACE}-", "-01")]
    assert get(b.port, "/last").status == 200
    spans = collector.wait_spans(4)
    assert [values(span)["http.target"] for span in spans] == ["/by?t=on", "/by?t=1", "/parent", "/last"]
    assert spans[2].span_id.hex() == sent[1][36:52]


def test_samples_by_the_trace(traced):
    http = 'split_clients $otel_trace_id $sampled { 50% on; * off; } otel_trace $sampled;'
    b, collector = traced(http=http)
    with Client(b.port) as client:
        for _ in range(200):
            client.get()
    logged = {line.split()[0] for line in b.wait_log(200)}
    # One that is sampled for certain comes last.
    assert len(logged) == 200
    b.stop(signal.SIGQUIT)
    spans = collector.spans()
    # Binomial: 20 of 200 are 11 standard deviations away.
    assert 20 < len(spans) < 180 and {span.trace_id.hex() for span in spans} <= logged


def test_names_and_attributes(traced):
    b, collector = traced("""otel_span_name "shop $request_method"; otel_span_attr order $arg_id;
        otel_span_attr http.response.header.content.type $sent_http_x_traceparent; otel_span_attr "é" $http_x_raw;""",
                          http="""otel_trace on; otel_service_name shop; otel_resource_attr a.b "c d";
        otel_span_attr inherited not;""")
    get(b.port, "/?id=7", headers=[("X-Raw", "\xff")])
    [span] = collector.wait_spans()
    found = values(span)
    assert span.name == "shop GET" and found["order"] == "7" and "inherited" not in found
    assert found["http.response.header.content.type"] == ["none"]
    assert found["é"] in ("\ufffd", "ÿ")
    assert collector.resource() == {"service.name": "shop", "a.b": "c d"}


def test_every_server_that_is_tried_has_the_same_parent(balancer, origin):
    sent = []

    def fails(request, connection):
        sent.append(request["traceparent"])
        connection.close()

    def works(request, _connection):
        sent.append(request["traceparent"])
        return answer("body")

    servers, collector = [origin(fails), origin(works)], Collector()
    b = balancer(exporter(collector) + f"""otel_trace on; otel_trace_context inject;
        upstream u {{ balance first; server {servers[0].server} max_conns=9; server {servers[1].server} max_conns=9; }}
        server {{ listen 127.0.0.1:PORT; otel_span_attr tried $upstream_status; location / {{ proxy_pass http://u; }} }}""")
    assert get(b.port).text == "body"
    [span] = collector.wait_spans()
    assert sent == [f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"] * 2
    assert values(span)["tried"] == "502, 200"


def test_batches(traced):
    """A batch goes when it is full, the rest with the interval."""
    b, collector = traced(settings="interval 100ms; batch_size 3; batch_count 100;")
    with Client(b.port) as client:
        for _ in range(7):
            client.get()
    collector.wait_spans(7)
    assert max(map(len, collector.batches())) <= 3
    assert len({span.span_id for span in collector.spans()}) == 7


def test_fields_of_the_exporter(traced):
    b, collector = traced(settings='interval 20ms; header X-Key "a b"; header authorization "Bearer t";')
    get(b.port)
    collector.wait_spans()
    found = collector.metadata[0]
    assert (found["x-key"], found["authorization"]) == ("a b", "Bearer t")
    assert found["user-agent"].startswith("balanza/")


def test_a_collector_with_tls(traced):
    collector = Collector(tls=certificate("localhost"))
    at = f"https://localhost:{collector.port}"
    b, _ = traced(to=at, settings=f"interval 20ms; trusted_certificate {authority().certificate};")
    get(b.port)
    collector.wait_spans()
    other = Collector(tls=certificate("a.test"))
    b.reload(text=b.text.replace(at, f"https://localhost:{other.port}"))
    wait_for(lambda: get(b.port).status == 200 and "spans lost" in b.error_log(), what="the refusal")
    b.wait_error("OpenTelemetry: .* TLS handshake failed")
    assert other.spans() == []


def test_no_request_waits_for_a_collector_that_is_silent(traced):
    """What does not fit is dropped and counted; when it answers again, spans come again."""
    b, collector = traced(settings="interval 10ms; batch_size 2; batch_count 2;",
                          server="location /metrics { otel_trace off; metrics; } location /api { otel_trace off; api; }")
    collector.gate.clear()
    with Client(b.port) as client:
        def counts():
            found = re.findall(r'balanza_otel_spans\{result="(\w+)"\} (\d+)', client.get("/metrics").text)
            return {result: int(count) for result, count in found}

        for _ in range(100):
            assert client.get().status == 200
        # Two batches have room, and a span or two beside them.
        assert counts()["dropped"] > 50
        # Reloads make no room.
        for _ in range(10):
            reload(b)
            for _ in range(10):
                assert client.get().status == 200
        wait_for(lambda: counts()["dropped"] > 185, what="the spans that have no room")
        collector.gate.set()
        b.wait_error(r"\[error\] .*OpenTelemetry: spans lost: \d+")
        wait_for(lambda: sum(counts().values()) == 200, what="the last spans")
        assert counts()["exported"] == len(collector.spans())
        before = len(collector.spans())
        wait_for(lambda: client.get().status == 200 and len(collector.spans()) > before, what="another span")


def test_a_collector_that_is_dead_or_refuses(traced):
    port = free_port()
    b, _ = traced(to=f"127.0.0.1:{port}", settings="interval 10ms;")
    with Client(b.port) as client:
        for _ in range(50):
            assert client.get().status == 200
        b.wait_error(rf"\[error\] .*OpenTelemetry: spans lost: \d+, sending to http://127.0.0.1:{port}: cannot connect")
        # It is said once a minute.
        assert len(re.findall("OpenTelemetry", b.error_log())) == 1
        collector = Collector(port=port)
        wait_for(lambda: client.get().status == 200 and collector.spans(), what="a span")
        collector.fails = grpc.StatusCode.UNAVAILABLE
        for _ in range(20):
            assert client.get().status == 200
        collector.fails = None
        before = len(collector.spans())
        wait_for(lambda: client.get().status == 200 and len(collector.spans()) > before, what="another span")


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100, None])
def test_a_collector_that_is_none(traced, says):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(40)
    b, _ = traced(to=f"127.0.0.1:{listener.getsockname()[1]}", settings="interval 10ms;")
    assert get(b.port).status == 200
    peer, _ = listener.accept()
    if says is not None:
        peer.sendall(says)
        peer.close()
        b.wait_error(r"OpenTelemetry: spans lost: \d+")
    assert get(b.port).status == 200
    assert b.stop(signal.SIGQUIT) == 0
    listener.close()


def test_spans_that_were_refused_are_counted(traced):
    b, collector = traced()
    collector.reject = 1
    get(b.port)
    collector.wait_spans()
    b.wait_error("OpenTelemetry: spans lost: 1, sending to .*: too many")


def test_a_reload_and_the_end_lose_nothing(traced):
    b, collector = traced(settings="interval 1h;", server="location /long { return 204; }")
    get(b.port, "/one")
    assert collector.spans() == []
    # The worker's part of the old configuration goes, and its spans with it.
    b.reload(text=b.text.replace("return 204", "return 205"))
    wait_for(lambda: get(b.port, "/long").status == 205, what="the new configuration")
    assert "/one" in [values(span)["http.target"] for span in collector.wait_spans(1)]
    get(b.port, "/two")
    assert b.stop(signal.SIGQUIT) == 0
    wait_for(lambda: values(collector.spans()[-1])["http.target"] == "/two", what="the last span")


def test_a_reload_changes_the_collector(traced):
    b, first = traced()
    get(b.port, "/one")
    first.wait_spans()
    second = Collector()
    b.reload(text=b.text.replace(first.server, second.server).replace("otel_trace on;", "otel_trace on; otel_service_name b;"))
    wait_for(lambda: get(b.port, "/two").status == 200 and second.spans(), what="a span at the other collector")
    assert second.resource() == {"service.name": "b"}
    # A reload that fails keeps it.
    b.reload(text=b.text.replace(f"endpoint {second.server};", "endpoint a:b;"))
    b.wait_error(r"invalid port in endpoint")
    before = len(second.spans())
    get(b.port, "/three")
    second.wait_spans(before + 1)


def test_the_end_does_not_wait_for_a_silent_collector(traced):
    b, collector = traced(settings="interval 10ms;")
    collector.gate.clear()
    get(b.port)
    assert b.stop(signal.SIGTERM, seconds=40) == 0
    collector.gate.set()
