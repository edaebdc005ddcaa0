"""As much of a Consul agent as the tests need: the health of services, with blocking queries."""

import threading

from .http_api import Api


class Consul(Api):
    """`services` are those of the catalog: each a dict with Name, ID, Address, Port, Tags, Weights, Meta, Status, dc."""

    def __init__(self, token=None):
        self.services, self.index, self.token = {}, 10, token
        self.changed = threading.Condition()
        super().__init__(self.serve)

    def register(self, name, number, server, *, status="passing", weight=1, tags=(), meta=None, dc="dc1", address=None):
        """An instance; `server` is `ADDRESS:PORT`."""
        host, port = server.rsplit(":", 1)
        with self.changed:
            self.services[f"{name}-{number}"] = {
                "name": name, "status": status, "dc": dc, "entry": {
                    "Node": {"Node": "n1", "Address": "127.0.0.1", "Datacenter": dc},
                    "Service": {"ID": f"{name}-{number}", "Service": name, "Tags": list(tags), "Meta": meta or {},
                                "Address": host if address is None else address, "Port": int(port),
                                "Weights": {"Passing": weight, "Warning": 1}},
                    "Checks": [{"Status": status}]}}
            self._change()

    def status(self, name, number, status):
        with self.changed:
            self.services[f"{name}-{number}"]["status"] = status
            self._change()

    def deregister(self, name, number):
        with self.changed:
            del self.services[f"{name}-{number}"]
            self._change()

    def restore(self, index):
        """The index is another one, as after a restored snapshot."""
        with self.changed:
            self.index = index
            self.changed.notify_all()

    def _change(self):
        self.index += 1
        self.changed.notify_all()

    def serve(self, request):
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return request.answer(b"Permission denied: token with AccessorID '00000000' lacks permission", 403)
        name = request.path.removeprefix("/v1/health/service/")
        with self.changed:
            asked = int(request.query.get("index", 0))
            wait = int(request.query.get("wait", "300s")[:-1])
            if asked and asked == self.index:
                self.changed.wait_for(lambda: asked != self.index or self.server is None, wait)
            wanted = set(request.queries.get("tag", []))
            found = [it["entry"] for it in self.services.values()
                     if it["name"] == name and ("passing" not in request.query or it["status"] == "passing")
                     and it["dc"] == request.query.get("dc", "dc1") and wanted <= set(it["entry"]["Service"]["Tags"])]
            index = self.index
        request.answer(found, headers={"X-Consul-Index": index})
