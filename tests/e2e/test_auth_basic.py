"""`auth_basic` with files of htpasswd, `satisfy`, and `auth_delay`."""

import base64
import concurrent.futures
import hashlib
import shutil
import subprocess
import time

import pytest

from support.balancer import ON_BALANZA, processor_time, wait_for
from support.client import Client, get
from support.expect import balanza_only, here

htpasswd = pytest.mark.skipif(not shutil.which("htpasswd"), reason="no htpasswd")


def basic(user, password):
    return ("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


def config(location, more="", server=""):
    # `return` would answer before anybody is asked.
    return (f"log_format s '$status [$remote_user]'; server {{ listen 127.0.0.1:PORT; access_log logs/access.log s; {server} "
            f"location / {{ {location} try_files /none @in; }} location @in {{ return 200 'in $remote_user'; }} {more} }}")


AUTH = "auth_basic 'closed site'; auth_basic_user_file users;"


@pytest.fixture
def guarded(balancer):
    def start(location=AUTH, more="", users="ann:{PLAIN}secret\n", server="", **options):
        one = balancer(config(location, more, server), start=False, **options)
        (one.dir / "users").write_text(users)
        return one.start()

    return start


def made_by_htpasswd(*options, password="secret"):
    found = subprocess.run(["htpasswd", "-nb", *options, "u", password], capture_output=True, text=True, check=True)
    return found.stdout.strip().partition(":")[2]


def salted_sha1(password, salt=b"pepper"):
    return "{SSHA}" + base64.b64encode(hashlib.sha1(password.encode() + salt).digest() + salt).decode()


def test_who_has_the_password(guarded):
    one = guarded()
    refused = get(one.port)
    assert refused.status == 401 and refused["WWW-Authenticate"] == 'Basic realm="closed site"'
    assert "<h1>401 " in refused.text
    found = get(one.port, headers=[basic("ann", "secret")])
    assert found.status == 200 and found.text == "in ann" and found["WWW-Authenticate"] is None
    for user, password in [("ann", "Secret"), ("ann", ""), ("ann", "secretx"), ("bob", "secret"), ("an", "secret")]:
        assert get(one.port, headers=[basic(user, password)]).status == 401
    assert one.wait_log(7)[1:4] == ["200 [ann]", "401 [ann]", "401 [ann]"] and one.access_log()[0] == "401 [-]"
    one.wait_error(r"\[info\] .* no user/password was provided for basic authentication, client: 127.0.0.1")
    one.wait_error(r'\[error\] .* user "ann": password mismatch, client: 127.0.0.1')
    one.wait_error(rf'\[error\] .* user "bob" was not found in "{one.dir}/users", client: 127.0.0.1')


@pytest.mark.parametrize("value", ["", "Basic", "Basic ", "Bearer YW5uOnNlY3JldA==", "Basic %%%%", "Basic YW5u",
                                   "Basic OnNlY3JldA==", "Basic YW5uOnNlY3JldA=="])
def test_forms_of_the_field(guarded, value):
    one = guarded()
    assert get(one.port, headers=[("Authorization", value)]).status == (200 if value.endswith("YW5uOnNlY3JldA==")
                                                                        and value.startswith("Basic") else 401)


@pytest.mark.parametrize("value", ["basic YW5uOnNlY3JldA==", "BASIC   YW5uOnNlY3JldA==", "Basic YW5uOnNlY3JldA"])
def test_loose_forms_of_the_field(guarded, value):
    assert get(guarded().port, headers=[("Authorization", value)]).status == 200


@htpasswd
@pytest.mark.parametrize("options", ["-m", "-s", "-p", "-d", "-B -C 4", "ssha"])
def test_kinds_of_hashes(guarded, options):
    secret = salted_sha1("secret") if options == "ssha" else made_by_htpasswd(*options.split())
    if options == "-p":
        secret = "{PLAIN}" + secret
    one = guarded(users=f"# users\nother:{{PLAIN}}x\n\nann:{secret}:a comment\nend:{{PLAIN}}y")
    for password, status in [("secret", 200), ("Secret", 401), ("secret", 200), ("", 401)]:
        assert get(one.port, headers=[basic("ann", password)]).status == status
    assert get(one.port, headers=[basic("end", "y")]).status == 200


@pytest.mark.parametrize("kind", ["-1", "-apr1", "-5", "-6"])
def test_kinds_of_crypt(guarded, kind):
    made = subprocess.run(["openssl", "passwd", kind, "-salt", "saltsalt", "secret"], capture_output=True, text=True, check=True)
    one = guarded(users=f"ann:{made.stdout}")
    assert [get(one.port, headers=[basic("ann", password)]).status for password in ("secret", "x")] == [200, 401]


def test_a_change_of_the_file_holds_at_once(guarded):
    one = guarded()
    assert get(one.port, headers=[basic("ann", "secret")]).status == 200
    (one.dir / "users").write_text("ann:{PLAIN}new\nbob:{PLAIN}b\n")
    assert get(one.port, headers=[basic("ann", "secret")]).status == 401
    assert get(one.port, headers=[basic("bob", "b")]).status == 200
    (one.dir / "users").unlink()
    assert get(one.port, headers=[basic("bob", "b")]).status == 403
    one.wait_error(r'\[error\] .* open\(\) ".*/users" failed \(2: No such file or directory\)')
    (one.dir / "users").mkdir()
    assert get(one.port, headers=[basic("bob", "b")]).status == 500


def test_variables_and_off(guarded):
    one = guarded("auth_basic $arg_realm; auth_basic_user_file $document_root/../$arg_file;", server=AUTH,
                  more="location /off { auth_basic off; try_files /none @in; } location /server { try_files /none @in; }")
    assert get(one.port, "/?realm=off").status == 200
    refused = get(one.port, "/?realm=here&file=none")
    assert refused.status == 401 and refused["WWW-Authenticate"] == 'Basic realm="here"'
    assert get(one.port, "/?realm=x&file=users", headers=[basic("ann", "secret")]).status == 200
    assert get(one.port, "/?realm=x&file=none", headers=[basic("ann", "secret")]).status == 403
    assert get(one.port, "/off").status == 200 and get(one.port, "/server").status == 401


@pytest.mark.parametrize("satisfy, rules, password, status", [
    ("all", "allow 127.0.0.1; deny all;", True, 200), ("all", "allow 127.0.0.1; deny all;", False, 401),
    ("all", "deny all;", True, 403), ("any", "allow 127.0.0.1; deny all;", False, 200),
    ("any", "deny all;", True, 200), ("any", "deny all;", False, 401), ("any", "", True, 200), ("any", "", False, 401),
    ("any", "deny 10.0.0.0/8;", False, 401), ("all", "allow unix:; deny unix:;", False, 401),
])
def test_satisfy(guarded, satisfy, rules, password, status):
    one = guarded(f"satisfy {satisfy}; {rules} {AUTH}")
    found = get(one.port, headers=[basic("ann", "secret")] if password else [])
    assert found.status == status and (found["WWW-Authenticate"] is not None) == (status == 401)
    assert ("access forbidden by rule" in one.error_log()) == (status == 403)


def test_any_without_a_password_is_forbidden(guarded):
    one = guarded("satisfy any; deny all;")
    assert get(one.port).status == 403
    one.wait_error("access forbidden by rule")


def test_clients_of_a_unix_socket(guarded):
    one = guarded("deny unix:; allow all;", server="listen unix:DIR/socket;",
                  more="location /only { allow unix:; deny all; try_files /none @in; }")
    with Client(0, unix=str(one.dir / "socket")) as client:
        assert client.get().status == 403 and client.get("/only").status == 200
    assert get(one.port).status == 200 and get(one.port, "/only").status == 403


def test_an_error_page_asks_for_the_password_too(guarded):
    one = guarded(AUTH + "error_page 401 /page;", more="location /page { return 200 'page'; }")
    refused = get(one.port)
    assert refused.status == here(401, 401) and refused.text == "page"
    assert refused["WWW-Authenticate"] == 'Basic realm="closed site"'


def test_auth_delay(guarded):
    one = guarded(AUTH + "auth_delay 400ms;")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: get(one.port).status, range(4))) == [401] * 4
    assert time.monotonic() - begin > 0.35
    assert get(one.port, headers=[basic("ann", "secret")]).status == 200
    one.wait_error(r"\[info\] .* delaying unauthorized request")


def test_a_delayed_refusal_ends_with_its_client(guarded):
    one = guarded(AUTH + "auth_delay 1h;")
    with Client(one.port) as client:
        client.request()
        one.wait_error("delaying unauthorized request")
    assert one.wait_log()[0] == "499 [-]"


@htpasswd
@balanza_only("computes in the worker")
def test_a_slow_hash_holds_no_other_request(guarded):
    # The hash of a cost of 4, which now takes thousands of times as long to compute, and is no password's.
    slow_hash = made_by_htpasswd("-B", "-C", "4").replace("$04$", "$17$")
    one = guarded(users=f"ann:{slow_hash}", more="location /open { return 200 open; }")
    with Client(one.port, timeout=60) as slow:
        slow.request(headers=[basic("ann", "secret")])
        # The worker has the request, and serves others while it is computed.
        time.sleep(0.02)
        assert get(one.port, "/open", timeout=60).text == "open"
        assert one.wait_log() == ["200 [-]"]
        slow.close()


@htpasswd
@balanza_only("computes each time")
def test_a_right_password_is_remembered(guarded):
    one = guarded(users=f"ann:{made_by_htpasswd('-B', '-C', '10')}")

    def seconds():
        """What a request takes of a processor, whatever else it has to do."""
        begin = sum(map(processor_time, one.workers_alive()))
        assert get(one.port, headers=[basic("ann", "secret")], timeout=60).status == 200
        return sum(map(processor_time, one.workers_alive())) - begin

    first = seconds()
    assert min(seconds() for _ in range(5)) < first / 2
    assert get(one.port, headers=[basic("ann", "Secret")], timeout=60).status == 401


@pytest.mark.parametrize("secret", ["", "plain text", "-hirteen-char", "$9$a$b", "$2y$05$short"])
def test_malformed_hashes_let_nobody_in(guarded, secret):
    one = guarded(users=f"ann:{secret}\nbob:{{PLAIN}}b\n")
    for password in ("", "plain text", secret):
        assert get(one.port, headers=[basic("ann", password)]).status in (401, 500)
    assert get(one.port, headers=[basic("bob", "b")]).status == 200
    wait_for(lambda: "[error]" in one.error_log() or not ON_BALANZA, what="a line in the error log")
