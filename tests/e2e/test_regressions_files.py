"""Files: temporary ones where the configuration wants them, and configurations that are no files or never end."""

import os
import pathlib
import pwd
import resource
import subprocess

import pytest

from support.balancer import ON_NGINX, binary, children, wait_for
from support.client import Client
from support.expect import balanza_only
from support.origin import answer, proxy

BODY = b"x" * 200_000


def post(client, body=BODY):
    client.request("POST", body=body)
    return client.response()


def files(directory):
    """Files below a directory, as paths relative to it."""
    return sorted(os.path.relpath(os.path.join(top, name), directory)
                  for top, _, names in os.walk(directory) for name in names)


@pytest.mark.parametrize("levels", ["", "1", "1 2", "3 3 3"])
def test_body_is_kept_where_client_body_temp_path_says(balancer, origin, levels):
    seen = []

    def handle(request, connection):
        seen.append((request["X-File"], os.path.exists(request["X-File"]), request.body == BODY))
        return answer("ok")

    server = origin(handle)
    one = balancer(proxy([server], location="proxy_set_header X-File $request_body_file; client_body_buffer_size 8k;"
                         f"client_body_temp_path bodies {levels};"))
    directory = one.dir / "bodies"
    with Client(one.port) as client:
        for _ in range(3):
            assert post(client).status == 200
    assert len({path for path, *_ in seen}) == 3
    for path, exists, whole in seen:
        # As in NGINX, the name is gone as soon as the file is open.
        assert whole and not exists
        name = os.path.basename(path)
        assert len(name) == 10 and name.isdigit()
        expected, rest = [], name
        for level in map(int, levels.split()):
            expected.append(rest[-level:])
            rest = rest[:-level]
        assert path == str(directory.joinpath(*expected, name))
    wait_for(lambda: not files(directory), what="the files to go")
    assert directory.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        assert directory.stat().st_uid == pwd.getpwnam("nobody").pw_uid


def open_files(one, directory):
    """Names of open files below a directory, of all processes of the balancer."""
    found = []
    for pid in [one.process.pid, *children(one.process.pid)]:
        for entry in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                path = os.readlink(entry)
            except OSError:
                continue
            if path.startswith(str(directory)):
                found.append(path)
    return found


def test_response_is_kept_where_proxy_temp_path_says(balancer, origin):
    size = 30_000_000
    server = origin(answer(bytes(size)))
    one = balancer(proxy([server], location="proxy_temp_path responses 1 2; proxy_buffers 4 8k;"))
    with Client(one.port, receive_buffer=4096) as client:
        client.request()
        wait_for(lambda: open_files(one, one.dir / "responses"), what="a temporary file")
        assert len(client.response().body) == size
        wait_for(lambda: not open_files(one, one.dir / "responses"), what="the file to go")


def test_missing_temporary_directory_is_an_error_of_the_request(balancer, origin):
    server = origin()
    one = balancer(proxy([server], location="client_body_buffer_size 8k; client_body_temp_path bodies;"))
    (one.dir / "bodies").rmdir()
    with Client(one.port) as client:
        client.request("POST", body=BODY)
        assert client.response().status == 500
    one.wait_error(r"\[crit\] .*\(2: No such file or directory\)")
    assert server.count == 0
    with Client(one.port) as client:
        assert client.get().status == 200


@pytest.mark.parametrize("path, reason", [("none/bodies", "2: No such file or directory"),
                                          ("nginx.conf", "20: Not a directory")])
def test_temporary_directory_that_cannot_be_made_is_refused(balancer, path, reason):
    one = balancer(f"server {{ listen 127.0.0.1:PORT; client_body_temp_path {path}; }}", start=False)
    if ON_NGINX and reason.startswith("20"):
        pytest.skip("NGINX finds out when it serves a request")
    tested = one.test_config()
    assert tested.returncode == 1
    assert f"mkdir() \"{one.dir}/{path}\" failed ({reason})" in tested.stderr


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


def judge(one, path, **options):
    """`-t` of a file, with 1 GB of memory and 20 s of processor time."""
    done = subprocess.run([binary(), "-t", "-p", str(one.dir), "-c", str(path), "-e", "stderr"], text=True,
                          capture_output=True, timeout=60, preexec_fn=limited, **options)
    assert done.returncode == 1, done
    return done.stderr


@balanza_only("reads them to the end")
@pytest.mark.address_space
@pytest.mark.parametrize("how", ["-c", "include"])
def test_what_is_no_file_is_refused(balancer, how):
    one = balancer(start=False)
    fifo = one.dir / "fifo"
    os.mkfifo(fifo)
    for path in [fifo, "/dev/zero", "/dev/urandom", "/dev/null"]:
        one.config.write_text(f"events {{ }} include {path};")
        text = judge(one, path if how == "-c" else one.config)
        assert f'open() "{path}" failed (not a regular file)' in text


@balanza_only("reads nothing from a pipe, and misses the events section")
@pytest.mark.address_space
def test_standard_input_is_read_if_it_is_a_file(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; }", start=False)
    text = subprocess.run([binary(), "-t", "-p", str(one.dir), "-c", "/dev/stdin"], stdin=open(one.config, "rb"),
                          capture_output=True, text=True, timeout=60)
    assert text.returncode == 0, text.stderr
    refused = judge(one, "/dev/stdin", stdin=subprocess.PIPE)
    assert "not a regular file" in refused


@balanza_only("stops at the first error")
@pytest.mark.address_space
@pytest.mark.parametrize("kind", ["wrong lines", "wrong lines in a large file", "words", "braces", "one long line"])
def test_endless_configuration_is_refused_in_bounds(balancer, kind):
    one = balancer(start=False)
    unit, count, message = {
        "wrong lines": ("x;\n", 600_000, "too many errors, only the first 1000 are shown"),
        "wrong lines in a large file": ("x;\n", 33_000_000, "(27: File too large)"),
        "words": ("x ", 8_000_000, "the configuration has more than 2000000 words"),
        "braces": ("x{", 8_000_000, "blocks are nested too deeply"),
        "one long line": ("x; ", 600_000, "too many errors, only the first 1000 are shown"),
    }[kind]
    one.config.write_text("events { }\n" + unit * count)
    text = judge(one, one.config)
    assert message in text
    assert len(text) < 1_000_000


@balanza_only("says nothing")
def test_alias_that_leaves_its_directory_is_warned_of(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; location /files { alias DIR/html/files/; } }", start=False)
    tested = one.test_config()
    assert tested.returncode == 0
    assert '"alias" ends with "/" and location "/files" does not' in tested.stderr


def test_alias_means_what_it_means_to_nginx(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; location /files { alias DIR/html/files/; } }", start=False)
    (one.dir / "html/files").mkdir()
    (one.dir / "html/secret").write_text("secret")
    one.start()
    with Client(one.port) as client:
        assert client.get("/files../secret").text == "secret"
