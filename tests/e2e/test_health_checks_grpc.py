"""`health_check type=grpc`, with servers of grpcio."""

import pytest

grpc = pytest.importorskip("grpc")

from support.balancer import wait_for  # noqa: E402
from support.certificates import certificate  # noqa: E402
from support.expect import balanza_only  # noqa: E402
from support.grpc_server import Calls, GrpcServer  # noqa: E402
from support.http2_server import upstream  # noqa: E402

pytestmark = balanza_only("health_check is a directive of NGINX Plus")


class HealthyServer(GrpcServer):
    """Has the service of health checks too: `statuses` by service, or `code` as an error."""

    def __init__(self, name=b"", **options):
        self.statuses, self.code, self.asked = {"": 1}, None, []
        super().__init__(name, **options)

    def check(self, message, context):
        # The name is field 1 of the question.
        service = message[2:].decode()
        self.asked.append((service, dict(context.invocation_metadata())))
        if self.code:
            context.abort(self.code, "no")
        if service not in self.statuses:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return bytes([8, self.statuses[service]])


def served(name=b"", **options):
    server = HealthyServer.__new__(HealthyServer)
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(lambda message, context: server.check(message, context))}
    health = grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)
    server.__init__(name, more=[health], **options)
    return server


def passed(servers, parameters, target="grpc://group"):
    return (upstream(servers, head="zone group 64k;") +
            "server { listen 127.0.0.1:PORT; http2 on; location / { grpc_set_header X-Own own;"
            f" grpc_pass {target}; health_check interval=50ms mandatory {parameters}; }} }}")


def answering(port):
    """The names of the servers that answer calls, or an error."""
    names = set()
    with Calls(port) as calls:
        for _ in range(10):
            try:
                names.add(calls.unary(b"", timeout=20))
            except grpc.RpcError as error:
                names.add(error.code())
    return names


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_is_not_serving_gets_no_calls(balancer, tls):
    servers = [served(name, tls=certificate("a.test") if tls else None) for name in (b"0", b"1")]
    one = balancer(passed(servers, "type=grpc", "grpcs://group" if tls else "grpc://group"))
    wait_for(lambda: answering(one.port) == {b"0", b"1"}, what="both")
    assert servers[0].asked[0][0] == "" and servers[0].asked[0][1]["x-own"] == "own"
    servers[0].statuses[""] = 2
    one.wait_error("unhealthy: the service is not serving")
    assert answering(one.port) == {b"1"}
    servers[0].statuses[""] = 1
    wait_for(lambda: answering(one.port) == {b"0", b"1"}, what="both again")
    servers[1].code = grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: answering(one.port) == {b"0"}, what="the other")


def test_the_service_that_is_asked_for(balancer):
    servers = [served(b"0"), served(b"1")]
    servers[0].statuses["shop.Cart"] = 1
    one = balancer(passed(servers, "type=grpc grpc_service=shop.Cart"))
    # Server 1 does not know it.
    wait_for(lambda: answering(one.port) == {b"0"}, what="the server with the service")
    assert {service for service, _ in servers[0].asked} == {"shop.Cart"}


def test_a_server_without_the_protocol_of_checks(balancer):
    servers = [GrpcServer(b"0")]
    one = balancer(passed(servers, "type=grpc grpc_status=12"))
    wait_for(lambda: answering(one.port) == {b"0"}, what="12 is the right status")
    one.reload(passed(servers, "type=grpc"))
    one.wait_error("unhealthy: grpc-status 12")
    assert answering(one.port) != {b"0"}
