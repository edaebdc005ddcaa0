"""As much of Kubernetes' API server as the tests need: EndpointSlices by list and watch, with versions, bookmarks and
versions that are gone."""

import threading
import time

from .http_api import Api


class Kubernetes(Api):
    """The slices of services in namespaces."""

    def __init__(self, *, token=None, tls=None):
        self.slices, self.version, self.token = {}, 100, token
        # (version, type, slice), and the oldest version that a watch may begin from.
        self.history, self.oldest = [], 0
        self.changed = threading.Condition()
        # The version of the last event that a watch was told of.
        self.delivered = 0
        # Watches end after this time in any case, as those of a server that was told so.
        self.longest = 60
        super().__init__(self.serve, tls=tls)

    def apply(self, name, endpoints, *, service="web", namespace="default", ports=(("http", None),), family="IPv4"):
        """Creates or replaces a slice. Endpoints are `ADDRESS:PORT` or pairs of it and conditions; all have one port."""
        made, port = [], None
        for endpoint in endpoints:
            server, conditions = endpoint if isinstance(endpoint, tuple) else (endpoint, {"ready": True, "serving": True})
            address, _, port = server.rpartition(":")
            made.append({"addresses": [address.strip("[]")], "conditions": conditions, "nodeName": "n1"})
        with self.changed:
            self.version += 1
            kind = "MODIFIED" if (namespace, name) in self.slices else "ADDED"
            slice = {
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": {"name": name, "namespace": namespace, "resourceVersion": str(self.version),
                             "labels": {"kubernetes.io/service-name": service}},
                "endpoints": made,
                "ports": [{"name": name, "port": number or int(port or 1), "protocol": "TCP"} for name, number in ports]}
            self.slices[namespace, name] = slice
            self._tell(kind, slice)

    def delete(self, name, namespace="default"):
        with self.changed:
            self.version += 1
            slice = self.slices.pop((namespace, name))
            slice["metadata"]["resourceVersion"] = str(self.version)
            self._tell("DELETED", slice)

    def bookmark(self):
        """Other objects have changed, and watches are told of the version."""
        with self.changed:
            self.version += 10
            self._tell("BOOKMARK", {"kind": "EndpointSlice", "metadata": {"resourceVersion": str(self.version)}})

    def compact(self):
        """Watches cannot begin at versions before this one."""
        with self.changed:
            self.version += 10
            self.oldest = self.version
            self.history.clear()

    def end_watches(self):
        """As at the end of their time."""
        with self.changed:
            self.ends = time.monotonic()
            self.changed.notify_all()

    ends = 0.0

    def _tell(self, kind, slice):
        self.history.append((self.version, kind, slice))
        self.changed.notify_all()

    def serve(self, request):
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return request.answer({**status, "message": "Unauthorized", "code": 401}, 401)
        prefix, _, kind = request.path.rpartition("/")
        assert kind == "endpointslices", request.path
        namespace = prefix.removeprefix("/apis/discovery.k8s.io/v1/namespaces/")
        if namespace == "forbidden":
            message = 'endpointslices.discovery.k8s.io is forbidden: User "balanza" cannot list resource'
            return request.answer({**status, "message": message, "code": 403}, 403)
        label, _, service = request.query["labelSelector"].partition("=")
        assert label == "kubernetes.io/service-name"

        def wanted(slice):
            metadata = slice["metadata"]
            labels = metadata.get("labels")
            return labels is None or metadata["namespace"] == namespace and labels[label] == service

        if "watch" not in request.query:
            with self.changed:
                items = [slice for slice in self.slices.values() if wanted(slice)]
                version = str(self.version)
            return request.answer({"kind": "EndpointSliceList", "metadata": {"resourceVersion": version}, "items": items})
        assert request.query["allowWatchBookmarks"] == "true"
        seen = int(request.query["resourceVersion"])
        begun = time.monotonic()
        end = begun + min(self.longest, int(request.query["timeoutSeconds"]))
        with self.changed:
            if seen < self.oldest and seen % 2:
                return request.answer({**status, "message": "too old resource version", "code": 410}, 410)
        request.stream()
        while not request.ended() and time.monotonic() < end and self.ends < begun:
            with self.changed:
                if seen < self.oldest:
                    gone = {**status, "message": f"too old resource version: {seen} ({self.oldest})", "code": 410}
                    news = [(seen, "ERROR", gone)]
                else:
                    news = [it for it in self.history if it[0] > seen and wanted(it[2])]
                    if not news:
                        self.changed.wait(0.05)
            for version, kind, slice in news:
                request.line({"type": kind, "object": slice})
                seen = self.delivered = version
                if kind == "ERROR":
                    return
