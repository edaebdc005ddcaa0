"""The files for Kubernetes and compose that people copy: they are valid, and the configurations in them work."""

import pathlib
import re
import signal
import subprocess
import sys
import threading

import pytest

from support.balancer import ROOT, Balancer, binary, wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.origin import answer
from support.ports import free_port

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

pytestmark = balanza_only("files for Balanza")

MANIFESTS = ROOT / "examples/kubernetes/balanza.yaml"
COMPOSE = ROOT / "packaging/container/compose.yaml"
LABELS = {"app.kubernetes.io/name": "balanza"}


@pytest.fixture(scope="module")
def objects():
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFESTS.read_text())}


@pytest.fixture
def pod(objects):
    return objects["Deployment"]["spec"]["template"]["spec"]


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def test_objects_belong_together(objects, pod):
    assert set(objects) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    deployment, service = objects["Deployment"]["spec"], objects["Service"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == LABELS
    assert service["selector"] == objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == LABELS
    [container] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= set(ports)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "admin"}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    configuration = objects["ConfigMap"]["data"]["nginx.conf"]
    listens = {int(port) for port in re.findall(r"listen (\d+);", configuration)}
    assert listens == set(ports.values())
    # What it writes is in a volume, as the rest is read only.
    mounts = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    written = re.findall(r"(?:pid|_temp_path) (/\S+);", configuration)
    assert len(written) == 3 and all(any(path.startswith(f"{mount}/") for mount in mounts) for path in written)
    assert objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["admin"])


def test_there_is_time_for_the_last_requests(objects, pod):
    shutdown = seconds(re.search(r"worker_shutdown_timeout (\S+);", objects["ConfigMap"]["data"]["nginx.conf"])[1])
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause + shutdown + 5 <= pod["terminationGracePeriodSeconds"]
    # The image ends with QUIT, which lets it finish.
    assert "STOPSIGNAL SIGQUIT" in (ROOT / "packaging/container/Containerfile").read_text()


def test_the_schema_of_kubernetes_accepts_them():
    done = subprocess.run([pathlib.Path(sys.executable).parent / "kubernetes-validate", "--strict", MANIFESTS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_serves_and_ends_as_the_pod_does(objects, origin):
    gate = threading.Event()
    app = origin(lambda request, _connection: ("slow" not in request.start or gate.wait(30)) and answer("served"))
    admin = free_port()
    text = objects["ConfigMap"]["data"]["nginx.conf"]
    for path in ("/run/balanza", "/var/lib/balanza"):
        text = text.replace(path, "DIR/tmp")
    text = text.replace("listen 8080;", "listen 127.0.0.1:PORT;").replace("listen 8081;", f"listen 127.0.0.1:{admin};")
    # There is no name server here that knows the pods; -g has the pid file and the log.
    text = text.replace("server app:8080 resolve slow_start=10s", f"server 127.0.0.1:{app.port}")
    text = re.sub(r"\n *(pid|error_log) [^;]*;|/dev/stdout", lambda found: "logs/access.log" if "stdout" in found[0] else "", text)
    one = Balancer(text=text)
    assert get(one.port).text == "served"
    assert get(admin, "/healthz").text == "ok\n" and "nginxplus_up 1" in get(admin, "/metrics").text
    assert get(admin, "/api/9/http/upstreams").status == 200 and get(admin, "/dashboard").status == 200
    assert get(admin, "/api/9/nginx", source="127.0.0.2").status == 403
    with Client(one.port) as client:
        client.request(target="/slow")
        wait_for(lambda: app.in_flight, what="the request at the server")
        one.process.send_signal(signal.SIGQUIT)
        one.wait_error("gracefully shutting down|SIGQUIT")
        gate.set()
        assert client.response().text == "served"
    assert one.process.wait(30) == 0


def test_the_configuration_is_valid_as_it_stands(objects, tmp_path):
    (tmp_path / "nginx.conf").write_text(re.sub(r"/run/balanza|/var/lib/balanza", str(tmp_path),
                                                objects["ConfigMap"]["data"]["nginx.conf"]))
    done = subprocess.run([binary("balanza"), "-t", "-p", tmp_path, "-c", "nginx.conf", "-e", "stderr"], capture_output=True, text=True)
    assert done.returncode == 0 and "[warn]" not in done.stderr, done.stderr


def test_the_compose_file(tmp_path):
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    balancer = services.pop("balancer")
    assert set(balancer["depends_on"]) == set(services)
    farm = (COMPOSE.parent / balancer["volumes"][0].split(":")[0]).read_text()
    assert set(re.findall(r"server (\S+):9001;", farm)) == set(services)
    for name, service in services.items():
        command = service["command"]
        assert command[:5] == ["target", "--listen", "0.0.0.0:9001", "--name", name]
    # A server of the farm answers with this command.
    port = free_port()
    command = [word.replace("0.0.0.0:9001", f"127.0.0.1:{port}") for word in services["server-1"]["command"]]
    server = subprocess.Popen([binary("balanza"), *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def answers():
        try:
            return get(port).status == 200
        except OSError:
            return False

    try:
        wait_for(answers, what="the server")
        one = Balancer(farm_here(farm, port))
        assert get(one.port).status == 200
    finally:
        server.terminate()
        server.wait(30)


def farm_here(farm, port):
    """The http block of the farm's configuration with a server of this machine."""
    inside = farm.partition("http {")[2].rpartition("}")[0]
    inside = re.sub(r"server server-\d:9001;", "", inside).replace("least_conn;", f"least_conn; server 127.0.0.1:{port};")
    return re.sub(r"access_log off;|/var/lib/balanza", lambda found: "" if "log" in found[0] else "tmp", inside).replace(
        "listen 8080;", "listen 127.0.0.1:PORT;")
