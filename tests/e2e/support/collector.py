"""A collector of spans: OTLP over gRPC, by grpcio and OpenTelemetry's own messages."""

import threading

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from .balancer import wait_for
from .grpc_server import GrpcServer

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


class Spans:
    """What a collector has been sent."""

    def __init__(self):
        self.requests = []
        self.gate, self.reject = threading.Event(), 0
        self.gate.set()

    def response(self, response):
        """What it says to a request that it has taken."""
        if self.reject:
            response.partial_success.rejected_spans = self.reject
            response.partial_success.error_message = "too many"
        return response

    def batches(self):
        """The spans of each request."""
        return [[span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
                for request in list(self.requests)]

    def spans(self):
        """All spans, in the order in which they came."""
        return [span for batch in self.batches() for span in batch]

    def wait_spans(self, count=1):
        wait_for(lambda: len(self.spans()) >= count, what=f"{count} spans")
        return self.spans()

    def resource(self):
        """The attributes of the resource of the last request."""
        return values(self.requests[-1].resource_spans[0].resource)


class Collector(Spans, GrpcServer):
    """Keeps what it is sent. `gate` holds requests until it is set; `reject` is how many spans of each it refuses."""

    def __init__(self, **options):
        Spans.__init__(self)
        self.metadata, self.fails = [], None
        handler = grpc.unary_unary_rpc_method_handler(
            self.export, request_deserializer=ExportTraceServiceRequest.FromString,
            response_serializer=ExportTraceServiceResponse.SerializeToString)
        GrpcServer.__init__(self, more=[grpc.method_handlers_generic_handler(SERVICE, {"Export": handler})], **options)

    def export(self, request, context):
        self.gate.wait(60)
        if not context.is_active():
            # The exporter has given this request up.
            return ExportTraceServiceResponse()
        self.metadata.append(dict(context.invocation_metadata()))
        # Read once: the test may take it back at any moment.
        if fails := self.fails:
            context.abort(fails, "not now")
        self.requests.append(request)
        return self.response(ExportTraceServiceResponse())


def values(message):
    """Attributes by name."""
    def plain(value):
        kind = value.WhichOneof("value")
        return [plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
    return {attribute.key: plain(attribute.value) for attribute in message.attributes}
