"""Responses of subrequests inside a response: `ssi`, `add_before_body` and `add_after_body`."""

import gzip
import threading
import time

import pytest

from support.client import Client, get
from support.expect import balanza_only, here
from support.http2 import Http2Client
from support.messages import Ended
from support.origin import answer

ERROR = "[an error occurred while processing the directive]"

# What the pages below include.
PARTS = """default_type text/html; location = /inc { return 200 "[$uri?$args]"; } location = /empty { return 200 ""; } location = /none { return 404; }
    location = /part { ssi on; return 200 "(<!--# echo var='uri' -->)"; } location = /sets { ssi on;
    return 200 "<!--# set var='x' value='set' --><!--# block name='late' -->L<!--# endblock -->"; }"""


@pytest.fixture
def page(balancer):
    """What the client gets of a page; the balancer is `page.one`."""
    def show(text, location="", server="", target="/dir/page.html?q=1", **options):
        show.one = one = balancer(f"""server {{ listen 127.0.0.1:PORT; root html; {PARTS} {server}
            location / {{ ssi on; {location} }} }}""", start=False)
        path = one.dir / "html/dir/page.html"
        path.parent.mkdir()
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        one.start()
        return get(one.port, target, **options)
    return show


# Each with what NGINX 1.22 makes of it, byte for byte.
COMMANDS = [
    ("no command <!-- x --> <!---# --> <", None),
    ('<!--# echo var="uri" -->', "/dir/page.html"),
    ("<!--#echo var='arg_q'-->", "1"),
    ('<<!--# echo var="uri" -->', "</dir/page.html"),
    ('<!--<!--# echo var="uri" -->', "<!--/dir/page.html"),
    ('<!--# echo var="nope" -->', "(none)"),
    ('<!--# echo var="nope" default="d" -->', "d"),
    ('<!--# echo var="nope" default="" -->', ""),
    ('<!--# echo var="URI" encoding="zzz" -->', "/dir/page.html"),
    ("<!--#foo -->", ERROR),
    ("<!--# foo-->", ERROR),
    ("<!--# echo-->", ERROR),
    ("<!--#   -->-->", ERROR),
    ("<!--# echo var=x -->", ERROR),
    ('<!--# echo var="uri"x -->', ERROR),
    ('<!--# echo var="uri" --->-->', ERROR),
    ('<!--# echo var="uri" var="uri" -->', ERROR),
    ('<!--# echo v="uri" -->', ERROR),
    (f'<!--# {"e" * 33} -->', ERROR),
    (f'<!--# echo {"e" * 33}="" -->', ERROR),
    (f'<!--# set var="v" value="{"x" * 255}" --><!--# echo var="v" -->', "x" * 255),
    (f'<!--# set var="v" value="{"x" * 256}" -->', ERROR),
    ('<!--# set var="x" value="a$" -->', ERROR),
    ('<!--# set var="x" value="a${uri" -->', ERROR),
    (r'<!--# set var="x" value="a${uri}b\$\q" --><!--# echo var="x" -->', r"a/dir/page.htmlb$\q"),
    ('<!--# set var="x" value="<&\'\\"> ^#%" --><!--# echo var="x" -->', "&lt;&amp;'&quot;&gt; ^#%"),
    ('<!--# set var="x" value="<&\'\\"> ^#%\\\\" --><!--# echo var="x" encoding="url" -->', "%3C&%27%22%3E%20%5E%23%25%5C"),
    ('<!--# set var="x" value="<" --><!--# echo var="x" encoding="none" --><!--# echo var="x" -->', "<<"),
    ('<!--# if expr="$uri" -->T<!--# else -->F<!--# endif -->', "T"),
    ('<!--# if expr="$nope" -->T<!--# else -->F<!--# endif -->', "F"),
    ('<!--# if expr="$uri = /dir/page.html" -->T<!--# endif -->', f"{ERROR}T{ERROR}"),
    (r'<!--# if expr="$uri = \/dir/page.html" -->T<!--# else -->F<!--# endif -->', "T"),
    ('<!--# if expr="$uri = /p(?<nm>a.)e/" -->T<!--# echo var="nm" --><!--# echo var="1" --><!--# endif -->', "Tagag"),
    ('<!--# if expr="$uri != /page/" -->T<!--# elif expr="1" -->E<!--# elif expr="2" -->G<!--# else -->F<!--# endif -->', "E"),
    ('<!--# if expr="$uri=/PAGE/" -->T<!--# endif -->', ""),
    ('<!--# if expr="ABC=abc" -->T<!--# endif --><!--# if expr="a=ABC" -->T<!--# endif -->', "T"),
    ('<!--# if expr="$uri=/(/" -->T<!--# endif -->', f"{ERROR}T{ERROR}"),
    ("<!--# else -->", ERROR),
    ("<!--# endif -->", ERROR),
    ('<!--# if expr="$nope" -->a<!--# foo --><!--# echo var=x -->b<!--# if expr="1" -->c<!--# endif -->d<!--# endif -->',
     f"{ERROR}d{ERROR}"),
    ('<!--# if expr="a" --><!--# if expr="b" -->x<!--# endif -->y', f"{ERROR}xy"),
    ('<!--# include virtual="/inc?a=1" -->', "[/inc?a=1]"),
    ('<!--# include virtual="/%69nc" -->', "[/inc?]"),
    ('<!--# include virtual="/inc" wait="yes" -->', "[/inc?]"),
    ('<!--# include virtual="/inc" wait="x" -->', ERROR),
    ('<!--# include virtual="/inc" file="x" -->', ERROR),
    ('<!--# include virtual="/../inc" -->', ERROR),
    ("<!--# include -->", ERROR),
    ('<!--# include virtual="/inc" set="v" -->(<!--# echo var="v" -->)', "([/inc?])"),
    ('<!--# include virtual="/none" set="v" -->(<!--# echo var="v" -->)', "()"),
    ('<!--# include virtual="/inc" stub="zz" -->', ERROR),
    ('<!--# include virtual="/part" -->', "(/part)"),
    ('<!--# set var="v" value="/inc" --><!--# include virtual="$v?$v" -->', "[/inc?/inc]"),
    ('<!--# include virtual="/sets" wait="yes" --><!--# echo var="x" --><!--# include virtual="/none" stub="late" -->', "setL"),
    ('<!--# config errmsg="ERR" --><!--# foo -->', "ERR"),
    ('<!--# config timefmt="at" --><!--# echo var="date_gmt" -->/<!--# echo var="date_local" -->', "at/at"),
    # The block of a stub is a page of the request that it answers.
    ('<!--# block name="one" -->A<!--# echo   var="uri" -->B<!--# endblock -->.<!--# include virtual="/none" stub="one" -->',
     '.A<!--#echo var="uri" -->B'),
    ('<!--# block name="one" -->A<!--# echo var="uri" -->B<!--# endblock --><!--# include virtual="no" stub="one" -->',
     "A/dir/noB"),
    ('<!--# block name="one" -->A<!--# endblock --><!--# include virtual="/empty" stub="one" -->', "A"),
    ('<!--# block name="one" -->A<!--# endblock --><!--# include virtual="/inc" stub="one" -->', "[/inc?]"),
]


def test_commands(balancer):
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; {PARTS} location / {{ ssi on; root html/$arg_n; }} }}""", start=False)
    for number, (text, _) in enumerate(COMMANDS):
        path = one.dir / f"html/{number}/dir/page.html"
        path.parent.mkdir(parents=True)
        path.write_text(text + ".")
    one.start()
    with Client(one.port) as client:
        found = [client.get(f"/dir/page.html?q=1&n={number}").text for number in range(len(COMMANDS))]
    expected = [(text if output is None else output) + "." for text, output in COMMANDS]
    assert [it for it in zip(COMMANDS, found, expected) if it[1] != it[2]] == []


@pytest.mark.http1("chunks")
def test_the_head_of_a_page(page):
    found = page("a<!--# echo var='uri' -->")
    assert found.text == "a/dir/page.html" and found.framing == "chunked"
    assert [found[name] for name in ("Content-Length", "Last-Modified", "ETag", "Accept-Ranges")] == [None] * 4
    kept = page("a", "ssi_last_modified on;")
    assert kept["Last-Modified"] and kept["ETag"].startswith('W/"')
    assert page("a", method="HEAD").body == b""
    assert page("a<!--# foo -->", "ssi_silent_errors on;").text == "a"
    assert page("<!--# foo -->", "ssi_types text/plain;", "types { text/css html; }").text == "<!--# foo -->"
    assert page("<!--# foo -->", "ssi_types text/css;", "types { text/css html; }").text == ERROR
    short = page("<!--# set var='v' value='123' --><!--# set var='v' value='1234' -->", "ssi_value_length 3;")
    assert short.text == ERROR


def test_the_end_of_a_page(page):
    # NGINX loses what could have begun a command.
    assert page("text<!--").text == here("text<!--", "text")
    assert page("text<!--# echo var='uri' -").text == "text"


def test_dates(page):
    found = page("<!--# echo var='date_gmt' encoding='none' -->|<!--# config timefmt='%s' --><!--# echo var='date_gmt' -->")
    long, number = found.text.split("|")
    assert number.isdigit() and abs(int(number) - int(time.time())) < 60
    assert long.endswith(" GMT") and "day, " in long


def test_a_page_that_includes_itself(page):
    found = page("x<!--# include virtual='/dir/page.html' -->", "log_subrequest on;")
    assert found.text == "x" * 52 + ERROR
    page.one.wait_error('subrequests cycle while processing "/dir/page.html"')
    page.one.wait_log(52)


def test_a_page_of_a_server(balancer, origin):
    """Commands over pieces of any size, with the parts of other servers in order."""
    text = b"begin <!--# include virtual='/a?1' --> middle <!--# if expr='$arg_x' -->yes<!--# endif --><!--# include virtual='/b' --> end"

    def slowly(_, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(text), 3):
            connection.send(b"%x\r\n%s\r\n" % (len(text[at:at + 3]), text[at:at + 3]))
        connection.send("0\r\n\r\n")
    main, part = origin(slowly), origin(lambda request, _: answer(request.target.encode() * 20_000))
    one = balancer(f"""server {{ listen 127.0.0.1:PORT; {here("http2 on;", "")} gzip_types *;
        location / {{ ssi on; proxy_pass http://{main.server}; }} location /gz/ {{ ssi on; gzip on; proxy_pass http://{main.server}; }}
        location /raw {{ ssi on; proxy_buffering off; proxy_pass http://{main.server}; }}
        location /a {{ proxy_pass http://{part.server}; }} location /b {{ proxy_pass http://{part.server}; }} }}""")
    expected = b"begin " + b"/a?1" * 20_000 + b" middle yes" + b"/b" * 20_000 + b" end"
    with Client(one.port) as client:
        for target in ("/?x=1", "/raw?x=1", "/?x=1"):
            assert client.get(target).body == expected
        packed = client.get("/gz/?x=1", headers={"Accept-Encoding": "gzip"})
        assert packed["Content-Encoding"] == "gzip" and gzip.decompress(packed.body) == expected
    with here(Http2Client, Client)(one.port) as client:
        assert client.get("/?x=1").body == expected


def test_parts_begin_together(page, origin):
    """Parts that wait for each other."""
    meeting = threading.Barrier(3, timeout=20)

    def meet(request, _):
        meeting.wait()
        return answer(request.target)
    parts = origin(meet)
    found = page("".join(f"<!--# include virtual='/p/{number}' -->" for number in range(3)),
                 server=f"location /p/ {{ proxy_pass http://{parts.server}; }}")
    assert found.text == "/p/0/p/1/p/2"


def test_a_page_waits_for_a_part(page, origin):
    gate = threading.Event()
    order = []

    def handle(request, _):
        order.append(request.target)
        if request.target == "/p/0":
            gate.wait(0.2)
        order.append("end")
        return answer("*")
    parts = origin(handle)
    found = page("<!--# include virtual='/p/0' wait='yes' --><!--# include virtual='/p/1' -->",
                 server=f"location /p/ {{ proxy_pass http://{parts.server}; }}")
    assert found.text == "**" and order == ["/p/0", "end", "/p/1", "end"]


def test_what_parts_are_asked(page, origin):
    part = origin("part")
    found = page("<!--# include virtual='/p?a=b' -->", server=f"location /p {{ proxy_set_header X-URI $request_uri;"
                 f" proxy_set_header X-M $request_method; proxy_pass http://{part.server}; }}",
                 headers={"Cookie": "c=d", "If-Modified-Since": "x", "Range": "bytes=0-0"})
    assert found.status == 200 and found.text == "part"
    assert (part.last.method, part.last.target, part.last["Cookie"]) == ("GET", "/p?a=b", "c=d")
    assert (part.last["X-URI"], part.last["X-M"]) == ("/dir/page.html?q=1", "GET")


@balanza_only("it ends the page as if all was there")
def test_a_part_that_is_cut_off(page, origin):
    part = origin(lambda _, connection: (connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin"), connection.close())[1])
    with pytest.raises(Ended):
        page("a<!--# include virtual='/p' -->b", server=f"location /p {{ proxy_pass http://{part.server}; }}")


def test_a_part_that_is_not_there(page, origin):
    part = origin("part")
    part.stop()
    found = page("a<!--# block name='s' -->stub<!--# endblock --><!--# include virtual='/p' stub='s' -->b<!--# include virtual='/p' -->",
                 server=f"location /p {{ proxy_pass http://{part.server}; }}")
    assert found.text.startswith("astubb") and "502 Bad Gateway" in found.text


def test_a_client_that_leaves(page, origin):
    begun, gone = threading.Event(), threading.Event()

    def handle(_, connection):
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
        begun.set()
        try:
            data = connection.sock.recv(1)
        except ConnectionResetError:
            # The balancer saw the client go before it read this answer.
            data = b""
        if data == b"":
            gone.set()
    part = origin(handle)
    assert page("a", server=f"location /p {{ proxy_pass http://{part.server}; }}").text == "a"
    (page.one.dir / "html/dir/page.html").write_text("a<!--# include virtual='/p' -->")
    with Client(page.one.port) as client:
        client.request(target="/dir/page.html")
        assert begun.wait(20)
    assert gone.wait(20)


def test_a_large_value(page):
    found = page("<!--# include virtual='/inc?1234567' set='v' --><!--# echo var='v' -->", server="subrequest_output_buffer_size 14;")
    assert found.text == "[/inc?1234567]"
    try:
        assert page("x<!--# include virtual='/inc?12345678' set='v' -->y", server="subrequest_output_buffer_size 14;") is None
    except Ended:
        pass
    page.one.wait_error("too big subrequest response")


def test_variables_of_the_configuration(balancer):
    one = balancer("""map $arg_q $mapped { 1 one; default other; } server { listen 127.0.0.1:PORT; root html;
        set $mine "of the server"; location / { ssi on; } }""", start=False)
    (one.dir / "html/a.html").write_text(" ".join(
        f"<!--# echo var='{name}' -->" for name in ("mapped", "Mine", "http_x_a", "cookie_c", "request_method")))
    one.start()
    found = get(one.port, "/a.html?q=1", headers={"X-A": "<b>", "Cookie": "c=d"})
    assert found.text == "one of the server &lt;b&gt; d GET"


@pytest.mark.http1("chunks")
def test_additions(balancer):
    one = balancer(f"""add_before_body /no; server {{ listen 127.0.0.1:PORT; root html; {PARTS}
        location / {{ add_before_body /inc; add_after_body /inc; }} location /both.html {{ ssi on; add_after_body /part; add_before_body /part; }}
        location /off.html {{ add_before_body ""; }} location /types.txt {{ add_before_body /inc; addition_types text/plain; }}
        location = /no {{ return 200 no; }} location /up.html {{ add_after_body ""; }} location = /sub.html {{ add_before_body /a.html; }}
        types {{ text/html html; text/plain txt; text/css css; }} }}""", start=False)
    for name in ("a.html", "both.html", "off.html", "types.txt", "up.html", "sub.html", "b.css"):
        (one.dir / "html" / name).write_text(f"<{name}>")
    one.start()
    with Client(one.port) as client:
        found = client.get("/a.html")
        assert found.text == "[/inc?]<a.html>[/inc?]" and found.framing == "chunked"
        assert found["ETag"].startswith('W/"') and found["Last-Modified"] and found["Accept-Ranges"] is None
        assert client.get("/both.html").text == "(/part)<both.html>(/part)"
        assert client.get("/off.html").text == "<off.html>"
        assert client.get("/types.txt").text == "[/inc?]<types.txt>"
        assert client.get("/up.html").text == "no<up.html>"
        assert client.get("/b.css").text == "<b.css>"
        # A response to a subrequest gets nothing added.
        assert client.get("/sub.html").text == "<a.html><sub.html>"
        # Only 200 is added to.
        assert "[/inc" not in client.get("/missing.html").text
        ranged = client.get("/a.html", headers={"Range": "bytes=0-2"})
        assert (ranged.status, ranged.text) == (200, "[/inc?]<a.html>[/inc?]")
        assert client.get("/a.html", method="HEAD").status == 200


def test_many_parts_are_bounded(balancer):
    """Pages that include pages: what runs at once is bounded, and all of it arrives."""
    one = balancer("server { listen 127.0.0.1:PORT; root html; location / { ssi on; } }", start=False)
    for level in range(4):
        text = f"<!--# include virtual='/{level + 1}.html' -->" * 8
        (one.dir / f"html/{level}.html").write_text(f"{level}{text}")
    (one.dir / "html/4.html").write_text("4")
    one.start()
    body = get(one.port, "/0.html", timeout=60).text
    assert [body.count(str(level)) for level in range(5)] == [8 ** level for level in range(5)]


def test_errors_of_the_configuration(balancer):
    for text, message in [("ssi maybe;", "invalid value \"maybe\""), ("ssi_value_length x;", "invalid value"),
                          ("add_before_body;", "invalid number of arguments"), ("ssi on; ssi on;", "duplicate")]:
        one = balancer(f"server {{ listen 127.0.0.1:PORT; {text} }}", start=False)
        result = one.test_config()
        assert result.returncode == 1 and message in result.stderr, text
