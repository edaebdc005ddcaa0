"""A server and clients of gRPC, by grpcio, for messages of bytes."""

import concurrent.futures
import threading
import time

import grpc

from . import origin
from .ports import free_port

SERVICE = "test.Echo"


class GrpcServer:
    """The service `test.Echo` with a method of each kind."""

    def __init__(self, name=b"", *, tls=None, options=(), port=None, more=()):
        self.name = name
        self.calls = []
        self.cancelled = threading.Event()
        self.executor = concurrent.futures.ThreadPoolExecutor(64)
        self.grpc = grpc.server(self.executor, options=options)
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Down": grpc.unary_stream_rpc_method_handler(self.down),
            "Up": grpc.stream_unary_rpc_method_handler(self.up),
            "Both": grpc.stream_stream_rpc_method_handler(self.both),
            "Slow": grpc.unary_unary_rpc_method_handler(self.slow),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
        }
        self.grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers), *more))
        self.port = port or free_port()
        address = f"127.0.0.1:{self.port}"
        if tls:
            with open(tls.key, "rb") as key, open(tls.certificate, "rb") as certificate:
                pair = (key.read(), certificate.read())
            self.grpc.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            self.grpc.add_insecure_port(address)
        self.grpc.start()
        origin.started.append(self)

    @property
    def server(self):
        return f"127.0.0.1:{self.port}"

    def note(self, method, context):
        self.calls.append((method, dict(context.invocation_metadata()), context.time_remaining()))

    def unary(self, message, context):
        self.note("Unary", context)
        context.send_initial_metadata((("x-head", "h"), ("x-head-bin", b"\0\xff")))
        context.set_trailing_metadata((("x-tail", "t"), ("x-tail-bin", b"\1\2")))
        return self.name + message

    def down(self, message, context):
        self.note("Down", context)
        for index in range(int(message)):
            yield b"%d" % index

    def up(self, messages, context):
        self.note("Up", context)
        return b"".join(messages)

    def both(self, messages, context):
        context.add_callback(self.cancelled.set)
        self.note("Both", context)
        for message in messages:
            yield message.upper()

    def slow(self, message, context):
        context.add_callback(self.cancelled.set)
        self.note("Slow", context)
        end = time.monotonic() + float(message)
        while context.is_active() and time.monotonic() < end:
            time.sleep(0.01)
        return b"late"

    def fail(self, message, context):
        self.note("Fail", context)
        context.set_trailing_metadata((("x-why", "test"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: 50%")

    def stop(self):
        self.grpc.stop(0)
        self.executor.shutdown(wait=False)


class Calls:
    """The methods of the service by a channel of its own."""

    def __init__(self, port, *, tls=None, options=()):
        options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), *options)
        address = f"127.0.0.1:{port}"
        if tls:
            with open(tls, "rb") as roots:
                credentials = grpc.ssl_channel_credentials(roots.read())
            options += (("grpc.ssl_target_name_override", "a.test"),)
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(address, options)
        self.unary = self.channel.unary_unary(f"/{SERVICE}/Unary")
        self.down = self.channel.unary_stream(f"/{SERVICE}/Down")
        self.up = self.channel.stream_unary(f"/{SERVICE}/Up")
        self.both = self.channel.stream_stream(f"/{SERVICE}/Both")
        self.slow = self.channel.unary_unary(f"/{SERVICE}/Slow")
        self.fail = self.channel.unary_unary(f"/{SERVICE}/Fail")
        self.missing = self.channel.unary_unary(f"/{SERVICE}/Missing")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
