"""`try_files`: which file, redirect or status answers, under `root` and `alias`."""

import pytest

from support.client import get
from support.origin import Origin, upstream

FILES = {"index.html": "home", "a.txt": "text", "app.html": "app", "docs/index.html": "docs home", "docs/b.txt": "b",
         "docs/sub/c.txt": "c", "only/readme": "r", "alias/a.txt": "in alias", "alias/sub/d.txt": "d", "name.html": "name"}


@pytest.fixture
def site(balancer):
    """A balancer with files, whose configuration is that of a server."""
    def make(server, servers=()):
        group = upstream(servers) if servers else ""
        one = balancer(f"{group} server {{ listen 127.0.0.1:PORT; root html; {server} }}", start=False)
        for name, text in FILES.items():
            path = one.dir / "html" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return one.start()
    return make


SINGLE_PAGE = "location / { try_files $uri $uri/ /app.html; }"
ARGUMENTS = "location / { try_files $uri /answer?from=$uri&$args; } location = /answer { return 200 $args; }"
NAMED = "location / { try_files $uri @other; } location @other { return 200 'other $uri $args'; }"
STATUS = "location / { try_files $uri $uri/ =404; } location /no { try_files /none =403; } location /gone { try_files x =410; }"
ALIAS = "location /i/ { alias DIR/html/alias/; try_files $uri sub/d.txt =404; }"
ALIAS_CONSTANT = "location /i/ { alias DIR/html/alias/; try_files /i/a.txt a.txt =404; }"
ALIAS_REDIRECT = "location /i/ { alias DIR/html/alias/; try_files $uri /i/a.txt; }"
EXPRESSION = r"location ~ ^/r/(\w+)$ { alias DIR/html/docs; try_files /$1.txt /sub/$1.txt /b.txt =404; }"


@pytest.mark.parametrize("server, target, status, body", [
    (SINGLE_PAGE, "/a.txt", 200, "text"), (SINGLE_PAGE, "/", 200, "home"), (SINGLE_PAGE, "/docs/", 200, "docs home"),
    (SINGLE_PAGE, "/docs", 301, None), (SINGLE_PAGE, "/users/7", 200, "app"), (SINGLE_PAGE, "/a.txt/", 200, "app"),
    (SINGLE_PAGE, "/only/", 403, None), (SINGLE_PAGE, "/docs/../a.txt", 200, "text"),
    (ARGUMENTS, "/x?y=1", 200, "from=/x&y=1"), (ARGUMENTS, "/a.txt?y=1", 200, "text"),
    (NAMED, "/x/y?z", 200, "other /x/y z"), (NAMED, "/a.txt", 200, "text"),
    (STATUS, "/x", 404, None), (STATUS, "/docs/", 200, "docs home"), (STATUS, "/no/x", 403, None),
    (STATUS, "/gone", 410, None),
    ("location / { try_files $uri.html $uri =404; }", "/name", 200, "name"),
    ("location / { try_files /docs$uri $uri =404; }", "/b.txt", 200, "b"),
    ("location / { try_files /docs$uri $uri =404; }", "/a.txt", 200, "text"),
    ("location / { try_files $arg_f =404; }", "/?f=/docs/b.txt", 200, "b"),
    ("location / { try_files a.txt =404; }", "/", 404, None),
    ("location / { try_files docs/ =404; }", "/", 404, None),
    ("location / { try_files /docs =404; }", "/", 404, None),
    ("try_files /a.txt =404;", "/anything", 200, "text"),
    ("try_files /a.txt =404; location /docs/ { }", "/docs/b.txt", 200, "b"),
    ("location / { try_files /a /b; }", "/x", 500, None),
    ("location / { try_files $uri =204; }", "/x", 204, ""),
    ("location / { try_files $uri @missing; }", "/x", 500, None),
    ("location / { try_files $uri =404; error_page 404 /app.html; }", "/x", 404, "app"),
    (ALIAS, "/i/a.txt", 200, "in alias"), (ALIAS, "/i/x", 200, "d"), (ALIAS, "/i/sub/d.txt", 200, "d"),
    (ALIAS_CONSTANT, "/i/x", 200, "in alias"),
    (ALIAS_REDIRECT, "/i/sub/d.txt", 200, "d"), (ALIAS_REDIRECT, "/i/x", 200, "in alias"),
    (EXPRESSION, "/r/b", 200, "b"), (EXPRESSION, "/r/c", 200, "c"), (EXPRESSION, "/r/x", 200, "b"),
])
def test_which_answers(site, server, target, status, body):
    response = get(site(server).port, target)
    assert response.status == status
    assert body is None or response.body == body.encode()


def test_the_file_has_its_own_type(site):
    one = site("types { a/html html; a/text txt; } location / { try_files $uri.html /docs/b.txt =404; }")
    assert get(one.port, "/name")["Content-Type"] == "a/html"
    assert get(one.port, "/x")["Content-Type"] == "a/text"


def test_a_proxied_application_gets_what_is_no_file(site):
    application = Origin()
    one = site("location / { try_files $uri @app; } location @app { proxy_pass http://group; }", [application])
    assert get(one.port, "/a.txt").body == b"text" and application.count == 0
    get(one.port, "/page?x=1")
    assert application.last.target == "/page?x=1"


def test_the_server_sees_the_original_uri(site):
    """The file that was found is not what `proxy_pass` without a URI sends."""
    application = Origin()
    one = site("location / { try_files $uri/index.html =404; proxy_pass http://group; }", [application])
    get(one.port, "/docs")
    assert application.last.target == "/docs"


@pytest.mark.parametrize("words, message", [
    ("$uri", "invalid number of arguments in \"try_files\" directive"),
    ("$uri =1000", "invalid code \"=1000\""), ("$uri =x", "invalid code \"=x\""),
    ("$uri =404; try_files $uri =404", "\"try_files\" directive is duplicate"),
    ("$nothing =404", "unknown \"nothing\" variable"),
])
def test_mistakes(balancer, words, message):
    one = balancer(f"server {{ listen 127.0.0.1:PORT; location / {{ try_files {words}; }} }}", start=False)
    done = one.test_config()
    assert done.returncode == 1 and message in done.stderr
