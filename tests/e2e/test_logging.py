"""Access logs: each variable has the value that NGINX gives it for the same request."""

import json
import os
import re
import shutil
import time

import pytest

from support.balancer import KIND, ON_BALANZA, Balancer, wait_for
from support.client import Client, get
from support.expect import balanza_only
from support.origin import Origin, answer, proxy, started, upstream
from support.ports import free_port

# Equal to the oracle's, once ports and directories are taken out.
EXACT = """args arg_x arg_none binary_remote_addr body_bytes_sent connection_requests content_length content_type
cookie_a document_root document_uri host hostname http_referer http_user_agent https is_args limit_rate pipe
proxy_add_x_forwarded_for proxy_host proxy_port query_string realpath_root remote_addr remote_user request request_body
request_completion request_filename request_length request_method request_uri scheme sent_http_content_type
sent_http_content_length sent_http_location sent_http_x_added sent_http_set_cookie sent_http_transfer_encoding
sent_http_last_modified server_addr server_name server_port server_protocol status uri upstream_addr
upstream_bytes_received upstream_status upstream_response_length upstream_http_x_up upstream_cookie_c
mapped user_set""".split()

# Own error pages are not as long as NGINX's.
PAGES = {"not found", "redirect", "close", "bad", "bad length", "bad gateway"}
OF_A_PAGE = {"body_bytes_sent", "sent_http_content_length"}
# What is known of a request that could not be read is not the same.
UNREAD = {"request_length", "server_protocol", "pipe"}

# Differ from request to request: their form is checked.
SHAPES = {
    "bytes_sent": r"\d+", "connection": r"\d+", "connection_time": r"\d+\.\d{3}", "msec": r"\d{10}\.\d{3}",
    "nginx_version": r"1\.\d+\.\d+", "pid": r"\d+", "remote_port": r"\d+", "request_id": r"[0-9a-f]{32}",
    "request_time": r"\d+\.\d{3}", "request_body_file": r"-|/.*",
    "tcpinfo_rtt": r"\d+", "tcpinfo_rttvar": r"\d+", "tcpinfo_snd_cwnd": r"\d+", "tcpinfo_rcv_space": r"\d+",
    "time_iso8601": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d",
    "time_local": r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}",
    "upstream_bytes_sent": r"-|\d+(, \d+)*", "upstream_connect_time": r"-|(\d+\.\d{3}|-)(, (\d+\.\d{3}|-))*",
    "upstream_header_time": r"-|(\d+\.\d{3}|-)(, (\d+\.\d{3}|-))*",
    "upstream_response_time": r"-|(\d+\.\d{3}|-)(, (\d+\.\d{3}|-))*",
}

HOST = "Host: Log.test:8080\r\n"
REQUESTS = {
    "plain": f"GET /p?x=1&y=%20 HTTP/1.1\r\n{HOST}\r\n",
    "all fields": (f"GET /p/a%20b/../c?x=%22&y HTTP/1.1\r\n{HOST}User-Agent: Mozilla \"5\" \\ é\r\n"
                   "Referer: http://r/\r\nCookie: b=1; a=2\r\nX-Test: one\r\nX-Test: two\r\nX-Forwarded-For: 10.0.0.1\r\n"
                   "Authorization: Basic YW5uOnNlY3JldA==\r\nContent-Type: a/b\r\n\r\n"),
    "body": f"POST /p HTTP/1.1\r\n{HOST}Content-Length: 5\r\nContent-Type: text/x\r\n\r\nhello",
    "chunked body": f"POST /p HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "head": f"HEAD /p HTTP/1.1\r\n{HOST}\r\n",
    "not found": f"GET /missing HTTP/1.1\r\n{HOST}\r\n",
    "file": f"GET /file.txt HTTP/1.1\r\n{HOST}\r\n",
    "redirect": f"GET /go HTTP/1.1\r\n{HOST}\r\n",
    "close": f"GET /go HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n",
    "http 1.0": "GET /p HTTP/1.0\r\n\r\n",
    "bad": "NONSENSE\r\n\r\n",
    "bad length": f"GET /p HTTP/1.1\r\n{HOST}Content-Length: x\r\n\r\n",
    "retried": f"GET /retry HTTP/1.1\r\n{HOST}\r\n",
    "bad gateway": f"GET /dead HTTP/1.1\r\n{HOST}\r\n",
    "chunked answer": f"GET /chunked HTTP/1.1\r\n{HOST}\r\n",
    "internal redirect": f"GET /moved-inside HTTP/1.1\r\n{HOST}\r\n",
}


def handle(request, connection):
    if request.target == "/chunked":
        return (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nSet-Cookie: s=1\r\n\r\n"
                b"3\r\nabc\r\n0\r\n\r\n")
    return answer("" if request.method == "HEAD" else "body\n",
                  headers=[("X-Up", "u"), ("Content-Type", "text/o"), ("Set-Cookie", "c=42; path=/")])


def configuration(server, dead):
    values = ",".join(f'"{name}":"${name}"' for name in [*EXACT, *SHAPES])
    default = "|".join(f"${name}" for name in EXACT)
    return f"""
    log_format all escape=json '{{{values}}}';
    log_format default_escape '{default}';
    map $arg_x $mapped {{ default "m:$arg_x"; }}
    {upstream([server])}
    upstream retry {{ server 127.0.0.1:{dead} max_fails=0; server {server.server} backup; }}
    server {{
        listen 127.0.0.1:PORT; server_name log.test other.test; root html; add_header X-Added "a b";
        access_log logs/all.log all; access_log logs/default.log default_escape;
        set $user_set "s $request_method";
        location /p {{ proxy_pass http://group; proxy_set_header X-Body $request_body; }}
        location /chunked {{ proxy_pass http://group; }}
        location /retry {{ proxy_pass http://retry; }}
        location /dead {{ proxy_pass http://127.0.0.1:{dead}; }}
        location /go {{ return 302 /there; }}
        location /moved-inside {{ error_page 404 = /p/inside; return 404; }}
    }}"""


def run(kind, http, name):
    """Sends one of the requests. Returns the values of one log and the line of the other, equal in all runs but for SHAPES."""
    one = Balancer(http, kind=kind)
    (one.dir / "html/file.txt").write_text("file")
    os.utime(one.dir / "html/file.txt", (1_700_000_000, 1_700_000_000))
    with Client(one.port) as client:
        client.send(REQUESTS[name])
        client.response("HEAD" if name == "head" else "GET")

    def tidy(text):
        return text.replace(str(one.dir), "DIR").replace(str(one.port), "PORT")

    line = tidy(one.wait_log(name="default.log")[0])
    values = json.loads(one.wait_log(name="all.log")[0])
    # The digits of a port may be in a time or in the number of a process.
    return {key: value if key in SHAPES else tidy(value) for key, value in values.items()}, line


@pytest.fixture(scope="module")
def http():
    """One configuration, and so one server, for both balancers."""
    server = Origin(handle)
    started.remove(server)
    yield configuration(server, free_port())
    server.stop()


@pytest.mark.http1("raw requests, whose values are compared")
@pytest.mark.parametrize("name", REQUESTS)
def test_variables_equal_the_oracle(http, name):
    values, _ = run(KIND, http, name)
    for variable, shape in SHAPES.items():
        assert re.fullmatch(shape, values[variable] or "-"), (variable, values[variable])
    if ON_BALANZA:
        if not shutil.which("nginx"):
            pytest.skip("no NGINX to compare with")
        oracle, _ = run("nginx", http, name)
        ignored = (OF_A_PAGE if name in PAGES else set()) | (UNREAD if name in ("bad", "bad length") else set())
        different = {key: (values[key], oracle[key]) for key in EXACT
                     if key not in ignored and values[key] != oracle[key]}
        assert not different, f"(balanza, nginx): {different}"


@pytest.mark.parametrize("name", [name for name in REQUESTS if name not in PAGES])
def test_default_escape_equals_the_oracle(http, name):
    line = run(KIND, http, name)[1]
    if ON_BALANZA and shutil.which("nginx"):
        assert line == run("nginx", http, name)[1]


@balanza_only("the first field only, before 1.23")
def test_repeated_fields_are_joined(balancer):
    one = balancer("log_format many '$http_x_test'; server { listen 127.0.0.1:PORT;"
                   "access_log logs/m.log many; return 200; }")
    get(one.port, headers=[("X-Test", "one"), ("X-Test", "two")])
    assert one.wait_log(name="m.log") == ["one, two"]


@pytest.mark.http1("the protocol in a log")
def test_combined_format(balancer, origin):
    one = balancer(proxy([origin()]))
    get(one.port, '/a"b?c', headers=[("User-Agent", 'a "quoted" \t one'), ("Referer", "http://r/")])
    assert re.fullmatch(r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] '
                        r'"GET /a\\x22b\?c HTTP/1\.1" 200 3 "http://r/" "a \\x22quoted\\x22 \\x09 one"',
                        one.wait_log()[0])


@pytest.mark.http1("a target and a value that HTTP/2 refuses")
def test_escape_none_and_json(balancer):
    one = balancer("log_format raw escape=none '$arg_a|$http_x|$arg_none';"
                   "log_format j escape=json '$http_x|$arg_none'; server { listen 127.0.0.1:PORT;"
                   "access_log logs/raw.log raw; access_log logs/j.log j; return 200; }")
    get(one.port, '/?a="\\', headers=[("X", 'q"\\ \t é')])
    assert one.wait_log(name="raw.log")[0].encode("utf-8", "surrogateescape").startswith(b'"\\|q"\\ \t ')
    assert one.wait_log(name="j.log")[0].startswith('q\\"\\\\ \\t ')


@pytest.mark.http1("the protocol in a log")
def test_condition_and_several_logs(balancer):
    one = balancer("map $status $loggable { ~^2 0; default 1; }"
                   "server { listen 127.0.0.1:PORT; access_log logs/bad.log combined if=$loggable;"
                   "access_log logs/all.log; location /off { access_log off; return 200; }"
                   "location /4 { return 404; } location / { return 200; } }")
    for target in ("/", "/4", "/off", "/"):
        get(one.port, target)
    assert len(one.wait_log(3, "all.log")) == 3
    assert [line.split('"')[1] for line in one.wait_log(1, "bad.log")] == ["GET /4 HTTP/1.1"]


def test_buffered_log(balancer):
    one = balancer("server { listen 127.0.0.1:PORT;"
                   "access_log logs/b.log combined buffer=32k flush=5s; return 200; }")
    begun = time.monotonic()
    with Client(one.port) as client:
        for _ in range(20):
            client.get()
    wait_for(lambda: one.access_log("b.log"), what="the first lines")
    assert time.monotonic() - begun > 4.5, "lines were written before the buffer was full"
    assert len(one.wait_log(20, "b.log")) == 20


def test_log_path_with_variables(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; root html; access_log DIR/logs/open/$arg_who.log; return 200; }",
                   start=False)
    (one.dir / "logs/open").mkdir()
    (one.dir / "logs/open").chmod(0o777)
    one.start()
    for who in ("ann", "bob", "ann"):
        get(one.port, f"/?who={who}")
    one.wait_log(2, "open/ann.log")
    assert len(one.wait_log(1, "open/bob.log")) == 1


def test_one_line_for_each_request(balancer, origin):
    one = balancer(proxy([origin()]), workers=2)
    for _ in range(10):
        with Client(one.port) as client:
            for number in range(10):
                client.get(f"/{number}")
    assert len(one.wait_log(100)) == 100


def test_off_goes_before_other_logs_of_its_level(balancer):
    one = balancer("""server { listen 127.0.0.1:PORT; location / { return 204; }
        location /a { access_log logs/a.log; access_log off; access_log logs/b.log; location /a/in { return 204; } return 204; }
        location /b { access_log off; access_log logs/b.log; return 204; }
        location /c { access_log off; location /c/in { access_log logs/c.log; return 204; } return 204; } }""")
    for target in ("/a", "/a/in", "/b", "/c", "/c/in", "/"):
        assert get(one.port, target).status == 204
    assert len(one.wait_log(1)) == 1
    assert [len(one.access_log(name)) for name in ("a.log", "b.log", "c.log")] == [0, 0, 1]
