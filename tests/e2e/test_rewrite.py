"""The rewrite module: `rewrite`, `if`, `set`, `break`, `return`; and `limit_except`."""

import os

import pytest

from support.client import Client, exchange, get
from support.expect import balanza_only
from support.origin import Origin, answer, upstream

SHOW = 'location / { return 200 "[$uri][$args]"; }'


@pytest.fixture
def site(balancer):
    """A balancer whose configuration is that of a server, and perhaps what stands before it."""
    def make(server, servers=(), http="", start=True, **options):
        group = upstream(servers) if servers else ""
        text = f"{http} {group} server {{ listen 127.0.0.1:PORT; root html; {server} }}"
        return balancer(text, start=start, **options)
    return make


@pytest.mark.parametrize("server, target, status, body", [
    # Flags and arguments.
    ("rewrite ^/a/(.*)$ /b/$1; " + SHOW, "/a/x", 200, "[/b/x][]"),
    ("rewrite ^/a/(.*)$ /b/$1; " + SHOW, "/a/x?y=1", 200, "[/b/x][y=1]"),
    ("rewrite ^/a/(.*)$ /b?f=$1; " + SHOW, "/a/x?y=1", 200, "[/b][f=x&y=1]"),
    ("rewrite ^/a/(.*)$ /b?f=$1?; " + SHOW, "/a/x?y=1", 200, "[/b][f=x]"),
    ("rewrite ^/a/(.*)$ /b?; " + SHOW, "/a/x?y=1", 200, "[/b][]"),
    ("rewrite ^/a/(.*)$ /b?f=1?g=$1; " + SHOW, "/a/x?y=1", 200, "[/b][f=1?g=x&y=1]"),
    ("rewrite ^/a /b; rewrite ^/b /c; " + SHOW, "/a", 200, "[/c][]"),
    ("rewrite ^/a /b last; rewrite ^/b /c; " + SHOW, "/a", 200, "[/b][]"),
    ("rewrite ^/a /b break; rewrite ^/b /c; " + SHOW, "/a", 200, "[/b][]"),
    ("location /a { rewrite ^ /b last; return 200 no; } location /b { return 200 b; }", "/a", 200, "b"),
    ("location /a { rewrite ^ /b; return 200 \"here $uri\"; } location /b { return 200 b; }", "/a", 200, "here /b"),
    ("location /a { rewrite ^ /b; } location /b { return 200 b; }", "/a", 200, "b"),
    ("location /a { rewrite ^ /b; break; } location /b { return 200 b; }", "/a", 404, None),
    ("location /a { rewrite ^ /b break; return 200 no; } location /b { return 200 b; }", "/a", 404, None),
    ("location /a { rewrite ^/no /b last; return 200 \"here $uri\"; }", "/a", 200, "here /a"),
    ("location /a { rewrite ^ /x last; } location ~ ^/(x) { return 200 $1; }", "/a", 200, "x"),
    ("location /a { rewrite ^ /x last; } location /x { internal; return 200 in; }", "/a", 200, "in"),
    ("location /a { rewrite ^ $arg_to last; } location /x { return 200 x; }", "/a?to=/x", 200, "x"),
    ("location /a { rewrite ^ $arg_to last; }", "/a", 500, None),
    # Cycles: ten new searches are allowed.
    ("location /a { rewrite ^ /a last; }", "/a", 500, None),
    ("location /a { rewrite \"^(/a{0,9})(.*)$\" /b$2 last; rewrite ^ /c; } location /b { return 200 ok; }", "/aaaa", 200, "ok"),
    (r"location /n { rewrite ^/n1(.*)$ /n$1 last; return 200 $uri; }", "/n" + "1" * 10, 200, "/n"),
    (r"location /n { rewrite ^/n1(.*)$ /n$1 last; return 200 $uri; }", "/n" + "1" * 11, 500, None),
    (r"error_page 500 /e; location = /e { return 200 no; } location /n { rewrite ^ /n last; }", "/n", 500, None),
    # Escapes: captures of a URI that had some are escaped in arguments and in values.
    (r"rewrite ^/a/(.*)$ /b/$1?c=$1; " + SHOW, "/a/x%20y&z", 200, "[/b/x y&z][c=x%20y%26z]"),
    (r"rewrite ^/a/(.*)$ /b/$1?c=$1; " + SHOW, "/a/xy&z", 200, "[/b/xy&z][c=xy&z]"),
    (r"rewrite ^/a/(.*)$ /b/$1?c=$1; " + SHOW, "/a/x+y", 200, "[/b/x+y][c=x%2By]"),
    (r"location ~ ^/a/(.*)$ { set $x $1; return 200 $x; }", "/a/x%20y", 200, "x%20y"),
    (r"location ~ ^/a/(.*)$ { set $x $1; return 200 $x; }", "/a/xy", 200, "xy"),
    (r"location ~ ^/a/(.*)$ { return 200 $1; }", "/a/x%20y", 200, "x y"),
    (r"location ~ ^/a/ { rewrite ^/a/(.*)$ /c/$1; set $x $1; return 200 $x; }", "/a/x%20y", 200, "x y"),
    # Groups.
    (r"rewrite ^/(?<n>\w+)/(?<m>\w+)$ /$m/$n; " + SHOW, "/a/b", 200, "[/b/a][]"),
    (r"location ~ ^/(a) { if ($uri ~ ^/no) { } return 200 [$1]; }", "/ab", 200, "[]"),
    (r"location ~ ^/(a) { if ($uri ~ ^/a(.)) { } return 200 [$1]; }", "/ab", 200, "[b]"),
    (r"location / { if ($arg_x ~* (?<v>B+)) { return 200 [$v]; } }", "/?x=abbc", 200, "[bb]"),
    # Conditions.
    ("location / { if ($arg_a) { return 200 yes; } return 200 no; }", "/?a=0", 200, "no"),
    ("location / { if ($arg_a) { return 200 yes; } return 200 no; }", "/?a=", 200, "no"),
    ("location / { if ($arg_a) { return 200 yes; } return 200 no; }", "/?a=00", 200, "yes"),
    ("location / { if ($arg_a = b) { return 200 yes; } return 200 no; }", "/?a=b", 200, "yes"),
    ("location / { if ($arg_a = B) { return 200 yes; } return 200 no; }", "/?a=b", 200, "no"),
    ("location / { if ( $arg_a != b ) { return 200 yes; } return 200 no; }", "/?a=b", 200, "no"),
    ("location / { if ($arg_a = \"\") { return 200 yes; } return 200 no; }", "/", 200, "yes"),
    ("location / { if ($arg_a = $arg_b) { return 200 yes; } return 200 no; }", "/?a=1&b=1", 200, "yes"),
    ("location / { if ($arg_a ~ ^b) { return 200 yes; } return 200 no; }", "/?a=Bc", 200, "no"),
    ("location / { if ($arg_a ~* ^b) { return 200 yes; } return 200 no; }", "/?a=Bc", 200, "yes"),
    ("location / { if ($arg_a !~ ^b) { return 200 yes; } return 200 no; }", "/?a=Bc", 200, "yes"),
    ("location / { if ($arg_a !~* ^b) { return 200 yes; } return 200 no; }", "/?a=Bc", 200, "no"),
    ("location / { if ($request_method = HEAD) { return 201; } return 200 no; }", "/", 200, "no"),
    ("if ($arg_a) { return 403; } location / { return 200 no; }", "/?a=1", 403, None),
    ("if ($arg_a) { rewrite ^ /b; } if ($uri = /b) { set $x 1; } location / { return 200 \"$uri $x\"; }", "/?a=1", 200, "/b 1"),
    ("set $x a; if ($arg_b) { set $x b; } location / { return 200 $x; }", "/?b=1", 200, "b"),
    # `if` is a configuration: the last one that applies holds.
    ("location / { if ($arg_a) { root none; } if ($arg_b) { error_page 404 =200 /e; } } location = /e { return 200 e; }",
     "/x?a=1&b=1", 200, "e"),
    ("location / { if ($arg_a) { error_page 404 =200 /e; } if ($arg_b) { } } location = /e { return 200 e; }",
     "/x?a=1&b=1", 404, None),
    ("location / { try_files /no =410; if ($arg_a) { } }", "/x", 410, None),
    ("location / { try_files /no =410; if ($arg_a) { } }", "/x?a=1", 404, None),
    ("location / { if ($arg_a) { break; } return 200 no; }", "/x?a=1", 404, None),
    ("location / { if ($arg_a) { set $x 1; } set $x \"${x}2\"; return 200 $x; }", "/?a=1", 200, "12"),
    # Values.
    ("location / { set $args x=1; return 200 \"$args $arg_x\"; }", "/?y=2", 200, "x=1 1"),
    ("location / { set $args \"\"; return 200 \"[$args$is_args]\"; }", "/?y=2", 200, "[]"),
    ("location / { set $x a; set $x \"$x$x\"; return 200 $x; }", "/", 200, "aa"),
    ("location / { return 200 \"[$arg_]\"; }", "/?=x&arg_=y", 200, "[]"),
    ("set $m 1; location / { return 200 \"[$m]\"; }", "/", 200, "[1]"),
    # `return`.
    ("location / { return 404 \"\"; error_page 404 =200 /e; } location = /e { return 200 e; }", "/", 200, "e"),
    ("location / { return 404 text; error_page 404 =200 /e; } location = /e { return 200 e; }", "/", 404, "text"),
    ("location / { return 204; }", "/", 204, ""),
    ("location / { return 200; }", "/", 200, ""),
    # Errors.
    ("recursive_error_pages on; error_page 404 /one; error_page 403 /two; location / { return 404; } "
     "location = /one { return 403; } location = /two { return 200 two; }", "/", 403, "two"),
    ("error_page 404 /one; error_page 403 /two; location / { return 404; } "
     "location = /one { return 403; } location = /two { return 200 two; }", "/", 403, None),
    ("recursive_error_pages on; error_page 404 /again; location / { return 404; }", "/", 500, None),
    # The server's directives are run for an internal redirect too.
    ("rewrite ^/e$ /f; error_page 404 /e; location = /f { return 200 f; } location / { return 404; }", "/", 404, "f"),
    ("if ($uri = /e) { return 200 again; } error_page 404 /e; location / { return 404; }", "/", 404, "again"),
    # Named locations keep the URI.
    ("location / { error_page 418 = @n; if ($arg_a) { return 418; } return 200 no; } location @n { return 200 n$uri; }",
     "/x?a=1", 200, "n/x"),
    ("location / { error_page 404 = @n; } location @n { rewrite ^ /y last; } location /y { return 200 y; }",
     "/x", 200, "y"),
])
def test_which_answers(site, server, target, status, body):
    response = get(site(server).port, target)
    assert response.status == status
    assert body is None or response.body == body.encode()


def test_a_map_gives_way_to_set(site):
    one = site("location / { if ($arg_a) { set $m mine; } return 200 $m; }", http="map $uri $m { default mapped; }")
    assert get(one.port, "/").body == b"mapped"
    assert get(one.port, "/?a=1").body == b"mine"


@pytest.mark.parametrize("rule, target, status, location", [
    ("rewrite ^/a/(.*)$ /b/$1 redirect;", "/a/x", 302, "http://h:PORT/b/x"),
    ("rewrite ^/a/(.*)$ /b/$1 permanent;", "/a/x?y=1", 301, "http://h:PORT/b/x?y=1"),
    ("rewrite ^/a/(.*)$ /b/$1? permanent;", "/a/x?y=1", 301, "http://h:PORT/b/x"),
    ("rewrite ^/a/(.*)$ /b?c=$1 permanent;", "/a/x?y=1", 301, "http://h:PORT/b?c=x&y=1"),
    ("rewrite ^/a/(.*)$ http://o/$1;", "/a/x", 302, "http://o/x"),
    ("rewrite ^/a/(.*)$ https://o/$1 permanent;", "/a/x", 301, "https://o/x"),
    ("rewrite ^/a/(.*)$ $scheme://o/$1 last;", "/a/x?y", 302, "http://o/x?y"),
    ("rewrite ^/a/(.*)$ http://o/$1 break;", "/a/x", 302, "http://o/x"),
    ("rewrite ^/a/(.*)$ /b/$1 redirect;", "/a/x%20y", 302, "http://h:PORT/b/x%20y"),
    ("rewrite ^/a/(.*)$ /b/$1 redirect;", "/a/x%26y", 302, "http://h:PORT/b/x&y"),
    ("rewrite ^/a/(.*)$ /b/$1 redirect;", "/a/x%25y", 302, "http://h:PORT/b/x%25y"),
    ("rewrite ^/a/(.*)$ /b/$1 redirect;", "/a/x%3fy", 302, "http://h:PORT/b/x?y"),
    ("rewrite ^/a/(.*)$ /b/$1 redirect;", "/a/%c3%a4", 302, "http://h:PORT/b/%C3%A4"),
    ("rewrite ^ /%41%zz%2 redirect;", "/a", 302, "http://h:PORT/Azz"),
    ("location / { if ($arg_a) { rewrite ^ /b? redirect; } }", "/?a=1", 302, "http://h:PORT/b"),
    ("location / { return 301 /b?$args; }", "/?a=1", 301, "http://h:PORT/b?a=1"),
    ("location / { return http://o$uri; }", "/x", 302, "http://o/x"),
    ("location / { return 308 https://o$request_uri; }", "/x?y", 308, "https://o/x?y"),
])
def test_redirects(site, rule, target, status, location):
    one = site(rule)
    response = get(one.port, target, host="h")
    assert (response.status, response["Location"]) == (status, location.replace("PORT", str(one.port)))


def test_a_redirect_without_host_names_the_local_address(site):
    one = site("server_name named; location / { return 301 /x; }")
    response = exchange(one.port, b"GET / HTTP/1.0\r\n\r\n")
    assert response["Location"] == f"http://127.0.0.1:{one.port}/x"


def test_files(site):
    one = site("""
        location / {
            set $r "";
            if (-f $document_root$uri) { set $r "${r}f"; }
            if (-d $document_root$uri) { set $r "${r}d"; }
            if (-e $document_root$uri) { set $r "${r}e"; }
            if (-x $document_root$uri) { set $r "${r}x"; }
            if (!-f $document_root$uri) { set $r "${r}F"; }
            if (!-d $document_root$uri) { set $r "${r}D"; }
            if (!-e $document_root$uri) { set $r "${r}E"; }
            if (!-x $document_root$uri) { set $r "${r}X"; }
            return 200 $r;
        }""", start=False)
    (one.dir / "html/dir").mkdir(parents=True)
    (one.dir / "html/file").write_text("")
    (one.dir / "html/program").write_text("")
    os.chmod(one.dir / "html/file", 0o644)
    os.chmod(one.dir / "html/program", 0o755)
    one.start()
    for target, result in {"/file": "feDX", "/dir": "dexF", "/program": "fexD", "/none": "FDEX", "/file/x": "FDEX",
                           "/" + "n" * 300: "FDEX"}.items():
        assert get(one.port, target).body == result.encode(), target


@pytest.mark.parametrize("inside, outside, target, sent", [
    # An `if` without `proxy_pass` has that of the location, with its URI part.
    ("set $x 1;", "proxy_pass http://group/up/;", "/a/b?q=1", "/up/b?q=1"),
    ("proxy_pass http://group;", "", "/a/b?q=1", "/a/b?q=1"),
    ("proxy_pass http://group;", "return 204; proxy_pass http://group/up/;", "/a/b?q=1", None),
    ("", "rewrite ^/a/(.*)$ /c/$1 break; proxy_pass http://group;", "/a/b?q=1", "/c/b?q=1"),
    ("", "rewrite ^/a/(.*)$ /c/$1 break; proxy_pass http://group/up;", "/a/b?q=1", "/c/b?q=1"),
    ("", "rewrite ^/a/(.*)$ /c/$1; break; proxy_pass http://group/up;", "/a/b?q=1", "/c/b?q=1"),
    ("rewrite ^/a/(.*)$ /c/$1? break;", "proxy_pass http://group;", "/a/b?q=1", "/c/b"),
    ("", "rewrite ^/a/(.*)$ \"/c d/$1\" break; proxy_pass http://group;", "/a/b", "/c%20d/b"),
    ("", "set $args z=1; proxy_pass http://group;", "/a/b?q=1", "/a/b?z=1"),
    ("", "set $args z=1; proxy_pass http://group/up/;", "/a/b?q=1", "/up/b?z=1"),
    ("root none;", "proxy_pass http://group;", "/a/b?q=1", "/a/b?q=1"),
])
def test_what_the_server_is_sent(site, inside, outside, target, sent):
    server = Origin()
    one = site(f"location /a/ {{ if ($uri) {{ {inside} }} {outside} }}", [server])
    response = get(one.port, target)
    if sent is None:
        assert response.status == 204 and server.count == 0
    else:
        assert response.status == 200 and server.last.target == sent


def test_the_handler_stays_and_its_server_does_not(site):
    """Two `if`s: the handler of the first, the configuration of the second."""
    server = Origin()
    one = site("location / { if ($arg_a) { proxy_pass http://group; } if ($arg_b) { } }", [server])
    assert get(one.port, "/?a=1").status == 200
    assert get(one.port, "/?b=1").status == 403
    assert get(one.port, "/?a=1&b=1").status == 500
    assert server.count == 1


def test_fields_of_an_if(site):
    one = site("add_header X out; location / { add_header Y loc; if ($arg_a) { add_header Z if; } return 200 x; } ")
    assert (get(one.port, "/")["Y"], get(one.port, "/")["Z"]) == ("loc", None)
    # `return` stands behind the `if`, whose configuration holds by then.
    response = get(one.port, "/?a=1")
    assert (response["X"], response["Y"], response["Z"]) == (None, None, "if")


def test_rewrite_log(site):
    one = site("""
        rewrite_log on;
        location / { rewrite ^/a/(.*)$ /b?c=$1; rewrite ^/c /d redirect; if ($uri ~ ^/zz) { } return 200; }""",
               main="error_log logs/error.log notice;")
    get(one.port, "/a/x?y=1")
    get(one.port, "/c?z")
    one.wait_error(r'"\^/a/\(\.\*\)\$" matches "/a/x", client: 127.0.0.1')
    one.wait_error(r'rewritten data: "/b", args: "c=x&y=1"')
    one.wait_error(r'"\^/c" does not match "/b"')
    one.wait_error(r'"\^/zz" does not match "/b"')
    one.wait_error(r'rewritten redirect: "/d\?z"')


@pytest.mark.parametrize("way, message", [
    ("location / { rewrite ^ / last; }", r'rewrite or internal redirection cycle while processing "/", client'),
    ("location / { error_page 404 /; recursive_error_pages on; return 404; }",
     r'rewrite or internal redirection cycle while internally redirecting to "/", client'),
    ("location / { rewrite ^ $arg_no last; }", "the rewritten URI has a zero length, client"),
    ("location / { if ($arg_a) { set $x 1; } return 200 \"[$x]\"; }", r'using uninitialized "x" variable, client'),
    ("location / { set $limit_rate x; return 200; }", r'invalid \$limit_rate "x", client'),
])
def test_what_is_logged(site, way, message):
    one = site(way)
    get(one.port, "/")
    one.wait_error(message)


def test_uninitialized_variable_warn_off(site):
    one = site("uninitialized_variable_warn off; location / { if ($arg_a) { set $x 1; } return 200 \"[$x]\"; }")
    assert get(one.port, "/").body == b"[]"
    get(one.port, "/?a=1")
    assert "uninitialized" not in one.error_log()


def test_limit_rate_is_set(site):
    one = site("location / { limit_rate 1; set $limit_rate 7k; return 200 $limit_rate; }")
    assert get(one.port, "/").body == b"7168"


@pytest.mark.parametrize("target, media", [("/a.html", "text/html"), ("/a.gif", "image/gif"), ("/a", "text/plain"),
                                           ("/a.b/c", "text/plain")])
def test_the_type_of_a_text_is_that_of_the_uri(site, target, media):
    assert get(site("default_type text/plain; location / { return 200 text; }").port, target)["Content-Type"] == media


@pytest.mark.parametrize("rule, interim", [("return 200 x;", True), ("return 301 /x;", True), ("return 404 x;", True),
                                           ("return 404;", False)])
def test_continue_comes_before_a_text(site, rule, interim):
    one = site(f"location / {{ {rule} }}")
    with Client(one.port) as client:
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.response().status == int(rule.split()[1].rstrip(";"))
        assert client.reader.seen.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") == interim


LIMITED = """
    location / { limit_except GET { deny all; } return 200 ok; }
    location /mixed { limit_except get Post { allow 127.0.0.2; deny all; } }
    location /rewritten { limit_except GET { allow all; } rewrite ^ /x last; }
    location /up { limit_except GET { proxy_pass http://group; } return 204; }
    location /pass/ { limit_except GET { deny 127.0.0.2; } proxy_pass http://group/; }
    location /named { error_page 404 = @named; }
    location @named { limit_except POST { deny all; } }
"""


@pytest.mark.parametrize("method, target, status", [
    ("GET", "/", 200), ("HEAD", "/", 200), ("POST", "/", 403), ("DELETE", "/", 403), ("STRANGE", "/", 403),
    ("GET", "/mixed", 200), ("HEAD", "/mixed", 200), ("POST", "/mixed", 405), ("PUT", "/mixed", 403),
    # The directives of the rewrite module are not inherited.
    ("GET", "/rewritten", 200), ("PUT", "/rewritten", 405), ("GET", "/up", 204), ("PUT", "/up", 200),
    ("GET", "/pass/x", 200), ("PUT", "/pass/x", 200), ("GET", "/named", 403),
])
def test_limit_except(site, method, target, status):
    server = Origin(lambda request, _: answer(request.target))
    one = site(LIMITED, [server], start=False)
    (one.dir / "html").mkdir(exist_ok=True)
    (one.dir / "html/mixed").write_text("")
    one.start()
    response = get(one.port, target, method)
    assert response.status == status
    if target == "/pass/x":
        assert response.body == b"/x"


@pytest.mark.parametrize("text, message", [
    ("if $a { }", 'invalid condition "$a"'),
    ("if () { }", 'invalid condition ")"'),
    ("if ($uri { }", 'invalid condition "$uri"'),
    ("if ($uri = ) { }", 'invalid condition "$uri"'),
    ("if ($uri = a b) { }", 'invalid condition "$uri"'),
    ("if ($uri == a) { }", 'unexpected "==" in condition'),
    ("if (-z $uri) { }", 'invalid condition "-z"'),
    ("if (-f) { }", 'invalid condition "-f"'),
    ("if (uri) { }", 'invalid condition "uri"'),
    ("if ($nothing) { }", 'unknown "nothing" variable'),
    ("if ($uri) { nosuch; }", 'unknown directive "nosuch"'),
    ("if ($uri) { alias /x; }", '"alias" directive is not allowed here'),
    ("if ($uri) { if ($uri) { } }", '"if" directive is not allowed here'),
    ("if ($uri) { proxy_pass http://127.0.0.1/x; }", '"proxy_pass" cannot have URI part in location given by regular'),
    ("rewrite ^ /x no;", 'invalid parameter "no"'),
    ("rewrite ^ \"\";", "empty replacement"),
    ("rewrite ( /x;", "missing closing parenthesis"),
    ("rewrite ^ ${x;", 'the closing bracket in "x" variable is missing'),
    ("set $query_string x;", 'the duplicate "query_string" variable'),
    ("limit_except NO { }", 'invalid method "NO"'),
    ("limit_except GET { } limit_except GET { }", '"limit_except" directive is duplicate'),
    ("limit_except GET { nosuch; }", 'unknown directive "nosuch"'),
])
def test_mistakes(site, text, message):
    one = site(f"location / {{ {text} }}", start=False)
    done = one.test_config()
    assert done.returncode == 1 and message in done.stderr


@balanza_only("stops at the first")
def test_every_mistake_in_blocks_has_its_place(site):
    one = site("location / {\nif ($uri) {\nnosuch;\n}\nlimit_except GET {\nalso;\n} }\nif (x) { }", start=False)
    errors = one.test_config().stderr.splitlines()
    places = [int(line.rsplit(":", 1)[1]) for text in ('unknown directive "nosuch"', 'unknown directive "also"',
                                                       'invalid condition "x"')
              for line in errors if text in line]
    assert [place - places[0] for place in places] == [0, 3, 5]


def test_alias_inside_an_if(site):
    """An `if` has the location's alias, with its prefix or its groups."""
    one = site(r"location /p/ { alias DIR/html/d/; if ($arg_a) { add_header X if; } } "
               r"location ~ ^/r/(\w+)$ { alias DIR/html/d/$1; if ($arg_a) { add_header X if; } }", start=False)
    (one.dir / "html/d").mkdir(parents=True)
    (one.dir / "html/d/file").write_text("text")
    one.start()
    for target in ("/p/file", "/r/file"):
        assert (get(one.port, target).body, get(one.port, target)["X"]) == (b"text", None)
        response = get(one.port, target + "?a=1")
        assert (response.body, response["X"]) == (b"text", "if")
