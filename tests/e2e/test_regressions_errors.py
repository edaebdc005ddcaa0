"""The error log: what comes from outside cannot end a line, begin one, or command a terminal."""

import os
import re
import subprocess
import urllib.parse

import pytest

from support.balancer import binary, wait_for
from support.client import exchange, get
from support.expect import balanza_only
from support.origin import answer, proxy

FORGED = "%0a2026/01/01%2000:00:00%20[emerg]%20forged%1b[31m%22%5c%ff"
SHOWN = r"\x0A2026/01/01 00:00:00 [emerg] forged\x1B[31m\x22\x5C\xFF"


def request(port, target, host="a"):
    return exchange(port, f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))


@balanza_only("writes decoded paths as they are")
@pytest.mark.parametrize("way", ["file", "index", "unsafe URI", "accel", "cycle", "named", "proxy_pass", "bind", "expression",
                                 "dynamic log"])
def test_decoded_text_is_escaped(balancer, origin, way):
    server = origin(lambda *_: answer(headers=[("X-Accel-Redirect", '/../"\\\xff')]))
    location, message = {
        "file": ("", "failed (2: No such file or directory)"),
        "index": ("", "directory index of"),
        "unsafe URI": ("error_page 404 /../$uri; return 404;", "unsafe URI"),
        "accel": (f"proxy_pass http://{server.server};", "invalid X-Accel-Redirect"),
        "cycle": ("index /e/$uri/;", "rewrite or internal redirection cycle"),
        "named": ("error_page 404 @$uri; return 404;", "could not find named location"),
        "proxy_pass": ("proxy_pass $uri;", "invalid URL prefix"),
        "bind": (f"proxy_bind $uri; proxy_pass http://{server.server};", "invalid local address"),
        "expression": ("set $a $m; return 200;", "pcre2_match() failed"),
        "dynamic log": ("access_log $uri; return 200;", "failed"),
    }[way]
    one = balancer('map $uri $m { "~(*UTF8)x" x; } ' f"server {{ listen 127.0.0.1:PORT; location /e/ {{ {location} }} }}")
    end = "/" if way in ("index", "cycle") else ""
    if way == "index":
        os.makedirs(bytes(one.dir / "html/e") + urllib.parse.unquote_to_bytes("/" + FORGED))
    request(one.port, "/e/" + FORGED + end)
    if way == "dynamic log":
        def complaint():
            text = (one.dir / "stderr.txt").read_bytes() + (one.dir / "logs/error.log").read_bytes()
            return b'open() "' in text and b"failed (" in text and text

        text = wait_for(complaint, what="a complaint")
    else:
        one.wait_error(re.escape(message))
        text = (one.dir / "logs/error.log").read_bytes()
    assert b"\x1b" not in text and b"\xff" not in text
    assert not [line for line in text.splitlines() if line.startswith(b"2026/01/01")]
    assert (r"/../\x22\x5C\xFF" if way == "accel" else SHOWN).encode() in text, text


@balanza_only("writes these as they are")
def test_request_line_and_host_are_escaped(balancer):
    one = balancer("server { listen 127.0.0.1:PORT; }")
    assert exchange(one.port, b"GET /\xff\"\\ HTTP/1.1\r\nHost: a\r\nReferer: x\r\nConnection: close\r\n\r\n").status == 404
    one.wait_error(r'request: "GET /\\xFF\\x22\\x5C HTTP/1.1"')


@balanza_only("writes names as they are")
def test_names_in_the_configuration_are_escaped(balancer):
    """The supervisor's log has them too."""
    one = balancer("server { listen 127.0.0.1:PORT; return 200; }")
    one.reload(text='events { } "x\nforged\x1b[31m" { }')
    one.wait_error("unknown directive")
    bad = one.dir / "logs\n2026 forged\x1b"
    one.reload(text=f'events {{ }} http {{ access_log "{bad}/a"; server {{ listen 127.0.0.1:PORT; }} }}')
    one.wait_error(r"open\(\) .*failed \(2: No such file or directory\)")
    text = one.error_log()
    assert "\x1b" not in text
    assert r"logs\x0A2026 forged\x1B/a" in text
    tested = subprocess.run([binary(), "-t", "-c", str(one.dir / "no\nsuch\x1b")], capture_output=True, timeout=60)
    assert b"\x1b" not in tested.stderr and b"\nsuch" not in tested.stderr


@pytest.mark.parametrize("way", ["add_header", "add_trailer", "proxy_set_header", "sticky"])
@balanza_only("sends the field, and with it others")
def test_field_that_cannot_be_sent_is_logged(balancer, origin, way):
    server = origin()
    location = {"add_header": "add_header X-Path $uri;", "add_trailer": "add_trailer X-Path $uri;",
                "proxy_set_header": "proxy_set_header X-Path $uri;", "sticky": ""}[way]
    text = proxy([server], location=location)
    if way == "sticky":
        text = text.replace("upstream group {", "upstream group { sticky cookie c domain=$arg_d$uri;", 1)
    one = balancer(text)
    response = request(one.port, "/a%0d%0aX-Evil:%20b")
    assert response.status == 200 and response["X-Evil"] is None and response["X-Path"] is None
    assert "X-Path" not in dict(server.last.headers) and "X-Evil" not in dict(server.last.headers)
    name = {"sticky": "domain"}.get(way, "X-Path")
    one.wait_error(rf'\[error\] .*"{name}" .*is left out, .*: "/a\\x0D\\x0AX-Evil: b"')
    before = one.error_log().count("left out")
    assert get(one.port, "/plain").status == 200
    assert one.error_log().count("left out") == before


@balanza_only("answers 404")
def test_empty_accel_redirect_is_none(balancer, origin):
    server = origin(lambda *_: answer("body", headers=[("X-Accel-Redirect", "")]))
    one = balancer(proxy([server]))
    response = get(one.port)
    assert (response.status, response.text, response["X-Accel-Redirect"]) == (200, "body", None)
