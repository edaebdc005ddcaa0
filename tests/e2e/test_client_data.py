"""What is known of a client: the PROXY protocol, `set_real_ip_from`, `geo`, `split_clients`, and fields in variables."""

import pathlib
import shutil
import socket
import ssl
import struct
import subprocess

import pytest

from support.balancer import ON_NGINX, STREAM_MODULE, Balancer, wait_for
from support.certificates import certificate
from support.client import Client, get
from support.expect import balanza_only
from support.http2 import Http2Client
from support.origin import answer, proxy
from support.ports import free_port
from support.stream import TcpServer
from support.tls import context

needs_stream = pytest.mark.skipif(ON_NGINX and not pathlib.Path(STREAM_MODULE).exists(), reason="no stream module")
needs_haproxy = pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy")

SHOWS = ('return 200 "$proxy_protocol_addr|$proxy_protocol_port|$proxy_protocol_server_addr|'
         '$proxy_protocol_server_port|$remote_addr|$remote_port|$realip_remote_addr";')
LINE = b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 443\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def tlv(kind, value):
    return struct.pack("!BH", kind, len(value)) + value


def binary(source="192.0.2.1", destination="203.0.113.7", ports=(4711, 443), tlvs=b"", command=1, family=None):
    kind = socket.AF_INET6 if ":" in source else socket.AF_INET
    body = socket.inet_pton(kind, source) + socket.inet_pton(kind, destination) + struct.pack("!HH", *ports) + tlvs
    family = family if family is not None else 0x21 if ":" in source else 0x11
    return SIGNATURE + struct.pack("!BBH", 0x20 | command, family, len(body)) + body


def ask(port, first, target="/", count=1, **options):
    """The bodies of requests on a connection that begins with `first`."""
    with Client(port) as client:
        client.send(first)
        return [client.get(target, **options).body.decode() for _ in range(count)]


def shows(text=SHOWS, more="", listen="127.0.0.1:PORT proxy_protocol"):
    return f"{more} server {{ listen {listen}; location / {{ {text} }} }}"


# The PROXY protocol in http


@pytest.mark.parametrize("header,expected", [
    (LINE, "192.0.2.1|4711|203.0.113.7|443"),
    (b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", "2001:db8::1|1|::1|65535"),
    (b"PROXY UNKNOWN\r\n", "|||"),
    (b"PROXY UNKNOWN ffff:: 1.2.3.4 5 6\r\n", "|||"),
    (binary(), "192.0.2.1|4711|203.0.113.7|443"),
    (binary("2001:db8::1", "::1", (1, 2)), "2001:db8::1|1|::1|2"),
    (binary(command=0), "|||"),
    (binary(family=0x31), "|||"),
    (binary(tlvs=tlv(4, bytes(300))), "192.0.2.1|4711|203.0.113.7|443"),
], ids=range(9))
def test_headers_are_read(balancer, header, expected):
    one = balancer(shows())
    with Client(one.port) as client:
        client.send(header)
        for _ in range(2):
            body = client.get().body.decode()
            assert body.startswith(expected + "|127.0.0.1|"), body
            assert body.endswith(f"|127.0.0.1"), body


def test_a_header_and_its_request_may_come_at_once(balancer):
    one = balancer(shows())
    with Client(one.port) as client:
        client.send(LINE + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.response().body.startswith(b"192.0.2.1|")


@balanza_only("takes a header in two pieces for a broken one")
def test_a_header_may_come_in_pieces(balancer):
    one = balancer(shows())
    for header in (LINE, binary()):
        with Client(one.port) as client:
            for byte in header:
                client.send(bytes([byte]))
            assert client.get().body.startswith(b"192.0.2.1|")


@balanza_only("writes the line end of a broken header into its log")
@pytest.mark.parametrize("first,message", [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 'broken header: "GET / HTTP/1.1"'),
    (b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 70000\r\n", 'broken header: "PROXY TCP4 192.0.2.1 203.0.113.7 4711 70000"'),
    (b"PROXY TCP5 192.0.2.1 203.0.113.7 4711 443\r\n", 'broken header: "PROXY TCP5'),
    (b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 443 \r\n", 'broken header: "PROXY TCP4'),
    (SIGNATURE + b"\x31\x11\0\0", "unknown PROXY protocol version: 3"),
], ids=range(5))
def test_broken_headers_end_the_connection(balancer, first, message):
    one = balancer(shows())
    with Client(one.port) as client:
        assert client.send(first).rest() == b""
    wait_for(lambda: message in one.error_log(), what=message)
    [line] = [line for line in one.error_log().splitlines() if message in line]
    assert "[error]" in line and "while reading PROXY protocol, client: 127.0.0.1" in line
    assert f"server: 127.0.0.1:{one.port}" in line
    assert ask(one.port, LINE)[0].startswith("192.0.2.1|")


def test_a_client_that_sends_no_header_is_closed_in_time(balancer):
    one = balancer(shows(more="client_header_timeout 1s;"))
    with Client(one.port) as client:
        assert client.closed()
    assert one.access_log() == []


def test_the_header_precedes_tls(balancer):
    pair = certificate()
    one = balancer(shows(listen="127.0.0.1:PORT ssl proxy_protocol", more=pair.directives()))
    with Client(one.port) as client:
        client.send(LINE)
        client.use(context().wrap_socket(client.sock, server_hostname="a.test"))
        assert client.get(host="a.test").body.startswith(b"192.0.2.1|")
    with Client(one.port) as client:
        with pytest.raises((ssl.SSLError, OSError)):
            context().wrap_socket(client.sock, server_hostname="a.test")


def test_the_client_hello_may_come_with_the_header(balancer):
    one = balancer(shows(listen="127.0.0.1:PORT ssl proxy_protocol", more=certificate().directives()))
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context().wrap_bio(into, out, server_hostname="a.test")
    with Client(one.port) as client:
        first = LINE
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.send(first + out.read())
                first = b""
                into.write(client.sock.recv(65536))
        client.send(out.read())
        tls.write(b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n")
        client.send(out.read())
        body = b""
        while b"192.0.2.1|4711" not in body:
            data = client.sock.recv(65536)
            assert data, body
            into.write(data)
            try:
                body += tls.read(65536)
            except ssl.SSLWantReadError:
                pass


@balanza_only("has no TLVs in variables")
def test_tlvs(balancer):
    names = ["alpn", "authority", "unique_id", "netns", "ssl_verify", "ssl_version", "ssl_cn", "ssl_cipher", "ssl_sig_alg",
             "ssl_key_alg", "0x01", "0xea", "0xeb", "ssl_0x21"]
    one = balancer(shows(f'return 200 "{"|".join("$proxy_protocol_tlv_" + name for name in names)}";'))
    inner = struct.pack("!BI", 7, 0) + b"".join(tlv(0x21 + at, text) for at, text in enumerate(
        [b"TLSv1.3", b"client", b"AES", b"ecdsa", b"EC256"]))
    tlvs = tlv(4, b"x") + tlv(1, b"h2") + tlv(2, b"host") + tlv(5, b"id") + tlv(0x30, b"ns") + tlv(0xEA, b"vpce") + tlv(0x20, inner)
    [body] = ask(one.port, binary(tlvs=tlvs))
    assert body == "h2|host|id|ns|0|TLSv1.3|client|AES|ecdsa|EC256|h2|vpce||TLSv1.3"


@needs_haproxy
@pytest.mark.parametrize("version", ["send-proxy", "send-proxy-v2"])
def test_haproxy_sends_a_header(balancer, tmp_path, version):
    one = balancer(shows())
    port = free_port()
    (tmp_path / "haproxy.cfg").write_text(f"""
defaults
    mode http
    timeout connect 5s
    timeout client 10s
    timeout server 10s
listen in
    bind 127.0.0.1:{port}
    server s 127.0.0.1:{one.port} {version}
""")
    running = subprocess.Popen(["haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")])
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, what="HAProxy")
        with Client(port, source="127.0.0.9") as client:
            body = client.get().body.decode().split("|")
            assert body[:4] == ["127.0.0.9", str(client.sock.getsockname()[1]), "127.0.0.1", str(port)]
    finally:
        running.terminate()
        running.wait()


# set_real_ip_from


FROM = "set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8;"
ADDRESS = 'return 200 "$remote_addr:$remote_port|$realip_remote_addr";'


@pytest.mark.parametrize("options,fields,expected", [
    ("", [("X-Real-IP", "192.0.2.1")], "192.0.2.1:|127.0.0.1"),
    ("", [("X-Real-IP", "192.0.2.1:99")], "192.0.2.1:99|127.0.0.1"),
    ("", [("X-Real-IP", "2001:db8::1")], "2001:db8::1:|127.0.0.1"),
    ("", [("X-Real-IP", "[2001:db8::1]:5")], "2001:db8::1:5|127.0.0.1"),
    ("real_ip_header X-Forwarded-For;", [("X-Forwarded-For", "192.0.2.1, 10.0.0.1")], "10.0.0.1:|127.0.0.1"),
    ("real_ip_header X-Forwarded-For; real_ip_recursive on;", [("X-Forwarded-For", "192.0.2.9, 192.0.2.1, 10.0.0.1")],
     "192.0.2.1:|127.0.0.1"),
    ("real_ip_header X-Forwarded-For; real_ip_recursive on;", [("X-Forwarded-For", "10.0.0.2,10.0.0.1")],
     "10.0.0.2:|127.0.0.1"),
    ("real_ip_header X-Client;", [("X-Client", "192.0.2.1")], "192.0.2.1:|127.0.0.1"),
])
def test_the_address_comes_from_a_field(balancer, options, fields, expected):
    one = balancer(shows(ADDRESS, FROM + options, listen="127.0.0.1:PORT"))
    assert get(one.port, headers=fields).body.decode() == expected


@balanza_only("knows one line of a field only")
def test_fields_of_several_lines_are_one_list(balancer):
    options = "real_ip_header X-Forwarded-For; real_ip_recursive on;"
    one = balancer(shows(ADDRESS, FROM + options, listen="127.0.0.1:PORT"))
    fields = [("X-Forwarded-For", "192.0.2.9, 192.0.2.1"), ("X-Forwarded-For", "10.0.0.2"), ("X-Forwarded-For", "10.0.0.1")]
    assert get(one.port, headers=fields).body.decode() == "192.0.2.1:|127.0.0.1"


@pytest.mark.parametrize("value", ["unknown", "", "192.0.2.1 x", "192.0.2.1:0", "192.0.2.256"])
def test_what_is_no_address_is_not_taken(balancer, value):
    one = balancer(shows('return 200 "$remote_addr";', FROM, listen="127.0.0.1:PORT"))
    assert get(one.port, headers=[("X-Real-IP", value)]).body == b"127.0.0.1"


def test_others_are_not_believed(balancer):
    one = balancer(shows('return 200 "$remote_addr|$realip_remote_addr";', "set_real_ip_from 127.0.0.2;",
                         listen="127.0.0.1:PORT"))
    field = [("X-Real-IP", "192.0.2.1")]
    assert get(one.port, headers=field).body == b"127.0.0.1|127.0.0.1"
    assert get(one.port, headers=field, source="127.0.0.2").body == b"192.0.2.1|127.0.0.2"


def test_the_address_is_that_of_one_request(balancer):
    one = balancer(shows(ADDRESS, FROM, listen="127.0.0.1:PORT"))
    with Client(one.port) as client:
        own = f"127.0.0.1:{client.sock.getsockname()[1]}|127.0.0.1".encode()
        assert client.get().body == own
        assert client.get(headers=[("X-Real-IP", "192.0.2.1")]).body == b"192.0.2.1:|127.0.0.1"
        assert client.get().body == own
        assert client.get(headers=[("X-Real-IP", "192.0.2.2")]).body == b"192.0.2.2:|127.0.0.1"


@balanza_only("speaks HTTP/2 by TLS only, in this test")
def test_streams_have_addresses_of_their_own(balancer):
    one = balancer(shows(ADDRESS, FROM, listen="127.0.0.1:PORT http2"))
    with Http2Client(one.port) as client:
        for last in (1, 2):
            response = client.get(headers=[("x-real-ip", f"192.0.2.{last}")])
            assert response.body == f"192.0.2.{last}:|127.0.0.1".encode()
        assert client.get().body.startswith(b"127.0.0.1:")


def test_the_address_is_used_everywhere(balancer):
    one = balancer("""
        set_real_ip_from 127.0.0.1; log_format known "$remote_addr $realip_remote_addr"; access_log logs/known.log known;
        geo $from { default other; 192.0.2.0/24 test; }
        server { listen 127.0.0.1:PORT; deny 192.0.2.66; allow all;
            location / { add_header X-Xff $proxy_add_x_forwarded_for; return 200 $from; }
            location /files/ { alias html/; } }""", start=False)
    (one.dir / "html/x").write_text("x")
    one.start()
    response = get(one.port, headers=[("X-Real-IP", "192.0.2.1")])
    assert (response.body, response["X-Xff"]) == (b"test", "192.0.2.1")
    assert get(one.port, "/files/x", headers=[("X-Real-IP", "192.0.2.1")]).status == 200
    assert get(one.port, "/files/x", headers=[("X-Real-IP", "192.0.2.66")]).status == 403
    assert "client: 192.0.2.66," in one.error_log()
    assert one.wait_log(3, "known.log") == ["192.0.2.1 127.0.0.1", "192.0.2.1 127.0.0.1", "192.0.2.66 127.0.0.1"]


def test_ip_hash_goes_by_the_address(balancer, origin):
    servers = [origin(), origin()]
    group = "".join(f"server {server.server};" for server in servers)
    one = balancer(f"""set_real_ip_from 127.0.0.1; upstream group {{ ip_hash; {group} }}
        server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://group; }} }}""")
    for net in range(1, 21):
        get(one.port, headers=[("X-Real-IP", f"192.0.{net}.1")])
    assert all(len(server.requests) > 0 for server in servers)


def test_a_location_may_have_another_source(balancer):
    one = balancer("""server { listen 127.0.0.1:PORT;
        location / { return 200 $remote_addr; }
        location /files/ { set_real_ip_from 127.0.0.1; deny 192.0.2.1; alias html/; } }""", start=False)
    (one.dir / "html/x").write_text("x")
    one.start()
    field = [("X-Real-IP", "192.0.2.1")]
    assert get(one.port, headers=field).body == b"127.0.0.1"
    assert get(one.port, "/files/x", headers=field).status == 403
    assert get(one.port, "/files/x").status == 200


def test_the_address_comes_from_the_header_of_the_connection(balancer):
    one = balancer(shows(more=FROM + "real_ip_header proxy_protocol;"))
    assert ask(one.port, LINE, count=2) == ["192.0.2.1|4711|203.0.113.7|443|192.0.2.1|4711|127.0.0.1"] * 2
    one = balancer(shows(more="set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol;"))
    assert "|127.0.0.1|" in ask(one.port, LINE)[0]


# geo


GEO = {
    "networks": """default other; 127.0.0.0/24 near; 127.0.0.0/8 here; 127.0.0.9 one; 2001:db8::/32 six;
                   10.0.0.0/8 gone; delete 10.0.0.0/8; 255.255.255.255 none;""",
    "ranges": """ranges; default other; 127.0.0.0-127.255.255.255 here; 127.0.0.0-127.0.0.255 near;
                 127.0.0.9-127.0.0.9 one; 10.0.0.0-10.0.0.255 gone; delete 10.0.0.0-10.0.0.255;""",
}


@pytest.mark.parametrize("form", GEO)
def test_geo(balancer, form):
    one = balancer(f"geo $client {{ {GEO[form]} }} geo $arg_ip $asked {{ {GEO[form]} }}"
                   + shows('return 200 "$client|$asked";', listen="127.0.0.1:PORT"))
    last = {"networks": "none", "ranges": "other"}[form]
    for source, name in [("127.0.0.1", "near"), ("127.0.0.9", "one"), ("127.1.0.1", "here")]:
        assert get(one.port, source=source).body.decode() == f"{name}|{last}"
    for ip, name in [("127.0.0.9", "one"), ("10.0.0.1", "other"), ("x", last), ("2001:db9::1", "other"),
                     ("2001:db8::1", "six" if form == "networks" else "other"), ("::ffff:127.0.0.9", "one"),
                     ("128.0.0.0", "other"), ("126.255.255.255", "other")]:
        assert get(one.port, f"/?ip={ip}").body.decode() == f"near|{name}", ip


def test_geo_goes_by_the_field_of_proxies(balancer):
    one = balancer("geo $client { proxy 127.0.0.1; proxy 10.0.0.0/8; proxy_recursive; default other; 192.0.2.0/24 test; }"
                   "geo $near { proxy 127.0.0.1; default other; 10.0.0.0/8 ten; }"
                   + shows('return 200 "$client|$near|$remote_addr";', listen="127.0.0.1:PORT"))
    field = [("X-Forwarded-For", "192.0.2.1, 10.0.0.1")]
    assert get(one.port, headers=field).body == b"test|ten|127.0.0.1"
    assert get(one.port, headers=field, source="127.0.0.2").body == b"other|other|127.0.0.2"


def test_geo_includes_files(balancer):
    one = balancer("geo $client { include nets.conf; }" + shows("return 200 $client;", listen="127.0.0.1:PORT"), start=False)
    (one.dir / "nets.conf").write_text("default far;\n127.0.0.0/8 near;\n")
    one.start()
    assert get(one.port).body == b"near"


# split_clients


def test_split_clients_as_in_nginx(balancer):
    """The parts were recorded from NGINX."""
    one = balancer("split_clients $arg_k $part { 0.5% a; 20% b; 33.33% c; * d; }"
                   + shows("return 200 $part;", listen="127.0.0.1:PORT"))
    with Client(one.port) as client:
        parts = "".join(client.get(f"/?k={'x' * (n % 7)}{n}").body.decode() for n in range(400))
    recorded = pathlib.Path(__file__).with_name("support") / "split_clients.txt"
    if ON_NGINX and not recorded.exists():
        recorded.write_text(parts + "\n")
    assert parts == recorded.read_text().strip()
    assert set(parts) == set("abcd")


# Variables in stream


def stream(text, **options):
    """A balancer whose stream block is this, with a server of http that tells when it runs."""
    return Balancer(text=f"events {{}}\nhttp {{ access_log off; server {{ listen 127.0.0.1:PORT; }} }}\n"
                    f"stream {{\n{text}\n}}\n", **options)


@pytest.fixture
def collecting():
    """A server that keeps what it gets and says "ok"."""
    got = []

    def handle(sock):
        data = b""
        while piece := sock.recv(65536):
            data += piece
            if data.endswith(b"!"):
                got.append(data)
                sock.sendall(b"ok")
                return

    server = TcpServer(handle=handle)
    server.got = got
    yield server
    server.stop()


def session(port, data, source=None):
    with socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0) if source else None) as sock:
        sock.sendall(data)
        back = b""
        try:
            while piece := sock.recv(65536):
                back += piece
        except ConnectionResetError:
            pass
        return back


LOG = ('log_format known "$proxy_protocol_addr|$proxy_protocol_port|$remote_addr|$remote_port|$realip_remote_addr|'
       '$bytes_received|$upstream_bytes_sent|$status"; access_log logs/known.log known;')


@needs_stream
@pytest.mark.parametrize("header", [LINE, binary(), b"PROXY UNKNOWN\r\n"], ids=["line", "binary", "unknown"])
def test_a_session_begins_with_a_header(collecting, header):
    port = free_port()
    one = stream(f"{LOG} server {{ listen 127.0.0.1:{port} proxy_protocol; set_real_ip_from 127.0.0.1; "
                 f"proxy_pass {collecting.server}; }}")
    assert session(port, header + b"hello!") == b"ok"
    assert collecting.got == [b"hello!"]
    [line] = one.wait_log(1, "known.log")
    if header.endswith(b"UNKNOWN\r\n"):
        assert line.startswith("-|-|127.0.0.1|"), line
    else:
        assert line == "192.0.2.1|4711|192.0.2.1|4711|127.0.0.1|6|6|200"


@needs_stream
def test_a_session_without_a_header_ends(collecting):
    port = free_port()
    one = stream(f"{LOG} server {{ listen 127.0.0.1:{port} proxy_protocol; proxy_pass {collecting.server}; }}")
    assert session(port, b"hello there, no header!") == b""
    wait_for(lambda: 'broken header: "hello there, no header!"' in one.error_log(), what="the message")
    assert "while reading PROXY protocol, client: 127.0.0.1" in one.error_log()
    assert one.wait_log(1, "known.log")[0].endswith("|400")
    assert collecting.got == []


@needs_stream
def test_a_session_waits_for_its_header_for_some_time(collecting):
    port = free_port()
    one = stream(f"{LOG} server {{ listen 127.0.0.1:{port} proxy_protocol; proxy_protocol_timeout 500ms; "
                 f"proxy_pass {collecting.server}; }}")
    assert session(port, b"") == b""
    assert one.wait_log(1, "known.log")[0].endswith("|200")


@needs_stream
def test_servers_are_told_of_the_client(collecting):
    first, second = free_port(), free_port()
    one = stream(f"""proxy_protocol on; {LOG}
        server {{ listen 127.0.0.1:{first}; proxy_pass {collecting.server}; }}
        server {{ listen 127.0.0.1:{second} proxy_protocol; set_real_ip_from 127.0.0.1; proxy_pass {collecting.server}; }}""")
    with socket.create_connection(("127.0.0.1", first), 10) as sock:
        mine = sock.getsockname()[1]
        sock.sendall(b"hello!")
        assert sock.recv(10) == b"ok"
    head = f"PROXY TCP4 127.0.0.1 127.0.0.1 {mine} {first}\r\n".encode()
    assert collecting.got == [head + b"hello!"]
    one.wait_log(1, "known.log")
    assert session(second, LINE + b"!") == b"ok"
    told = f"PROXY TCP4 192.0.2.1 127.0.0.1 4711 {second}\r\n".encode()
    assert collecting.got[1] == told + b"!"
    lines = one.wait_log(2, "known.log")
    assert lines[0].endswith(f"|6|{len(head) + 6}|200"), lines
    assert lines[1].endswith(f"|1|{len(told) + 1}|200"), lines


@needs_stream
def test_the_header_to_a_server_precedes_tls():
    seen = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = certificate()
    tls.load_cert_chain(pair.certificate, pair.key)

    def handle(sock):
        head = b""
        while not head.endswith(b"\r\n"):
            head += sock.recv(1)
        with tls.wrap_socket(sock, server_side=True) as secure:
            seen.append((head, secure.recv(100)))
            secure.sendall(b"ok")

    server = TcpServer(handle=handle)
    port = free_port()
    stream(f"server {{ listen 127.0.0.1:{port}; proxy_protocol on; proxy_ssl on; proxy_pass {server.server}; }}")
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(b"hello!")
        assert sock.recv(10) == b"ok"
    [(head, data)] = seen
    assert head.startswith(b"PROXY TCP4 127.0.0.1 127.0.0.1 ") and data == b"hello!"
    server.stop()


@needs_haproxy
@needs_stream
def test_haproxy_reads_the_header(origin, tmp_path):
    server = origin()
    port, mine = free_port(), free_port()
    (tmp_path / "haproxy.cfg").write_text(f"""
defaults
    mode http
    timeout connect 5s
    timeout client 10s
    timeout server 10s
listen in
    bind 127.0.0.1:{port} accept-proxy
    http-request set-header X-Source %[src]:%[src_port]
    server s {server.server}
""")
    running = subprocess.Popen(["haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")])
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, what="HAProxy")
        stream(f"server {{ listen 127.0.0.1:{mine}; proxy_protocol on; proxy_pass 127.0.0.1:{port}; }}")
        with Client(mine, source="127.0.0.9") as client:
            assert client.get().status == 200
            own = client.sock.getsockname()[1]
        assert server.requests[0]["X-Source"] == f"127.0.0.9:{own}"
    finally:
        running.terminate()
        running.wait()


@needs_stream
def test_maps_and_sets_of_stream(collecting):
    other = TcpServer("other")
    port = free_port()
    one = stream(f"""
        geo $near {{ default far; 127.0.0.9 near; }}
        map $near:$server_port $to {{ ~^near:(?<at>[0-9]+)$ {other.server}; default {collecting.server}; }}
        split_clients $remote_addr $half {{ 100% all; }}
        log_format known "$near|$at|$half|$copy"; access_log logs/known.log known;
        server {{ listen 127.0.0.1:{port}; set $copy "[$near]"; set $copy "$copy!"; proxy_pass $to; }}""")
    assert session(port, b"!") == b"ok"
    with socket.create_connection(("127.0.0.1", port), 10, source_address=("127.0.0.9", 0)) as sock:
        assert sock.recv(100) == b"other\n"
    assert one.wait_log(2, "known.log") == ["far|-|all|[far]!", f"near|{port}|all|[near]!"]
    other.stop()


# Fields and cookies in variables


def test_map_of_host_names_ignores_a_last_dot(balancer):
    one = balancer('map $arg_h $found { hostnames; default no; a.test yes; *.b.test star; ~^c\\.test$ regex; }'
                   'map $arg_h $plain { default no; a.test yes; }'
                   + shows('return 200 "$found|$plain";', listen="127.0.0.1:PORT"))
    for name, expected in [("a.test.", "yes|no"), ("a.test", "yes|yes"), ("x.b.test.", "star|no"), ("c.test.", "regex|no"),
                           ("a.test..", "no|no"), (".", "no|no")]:
        assert get(one.port, f"/?h={name}").body.decode() == expected, name


def test_pipe_tells_of_a_request_that_had_arrived(balancer):
    one = balancer(shows("return 200 $pipe;", listen="127.0.0.1:PORT"))
    with Client(one.port) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        assert [client.response().body for _ in range(3)] == [b".", b"p", b"p"]
        assert client.get().body == b"."


@balanza_only("knows one line of a field only")
def test_fields_of_several_lines_are_joined(balancer, origin):
    def handle(request, connection):
        fields = [("X-A", "1"), ("X-A", ""), ("X-A", "2"), ("Set-Cookie", "c=1"), ("Set-Cookie", "d=2; Path=/"),
                  ("Trailer", "X-T")]
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return (f"HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: 1\r\nX-T: 2\r\n\r\n").encode()

    log = ('log_format f "$http_x_a|$http_cookie|$sent_http_x_a|$sent_http_set_cookie|$upstream_http_x_a|'
           '$upstream_trailer_x_t|$sent_trailer_x_t"; access_log logs/f.log f;')
    one = balancer(log + proxy([origin(handle)], location="proxy_pass_trailers on; proxy_set_header TE trailers; "
                               "proxy_set_header Connection TE;"))
    with Client(one.port) as client:
        client.get(headers=[("X-A", "1"), ("X-A", "2"), ("Cookie", "a=1"), ("Cookie", "b=2"), ("TE", "trailers"),
                            ("Connection", "TE")])
    [line] = one.wait_log(1, "f.log")
    assert line == "1, 2|a=1; b=2|1, , 2|c=1, d=2; Path=/|1, , 2|1, 2|1, 2"


def test_cookies_in_variables(balancer, origin):
    def handle(request, connection):
        return answer("x", headers=[("Set-Cookie", "a = 1 ; Path=/"), ("Set-Cookie", "a=2"), ("Set-Cookie", "b="),
                                    ("Set-Cookie", "cc=3"), ("Set-Cookie", "c=4")])

    log = ('log_format c escape=none "$upstream_cookie_a|$upstream_cookie_b|$upstream_cookie_c|$upstream_cookie_d|'
           '$cookie_x|$cookie_y|$cookie_z"; access_log logs/c.log c;')
    one = balancer(log + proxy([origin(handle)]))
    get(one.port, headers=[("Cookie", "x = 1 ; y=,z=3;q")])
    assert one.wait_log(1, "c.log") == ["1 ||4||1 |,z=3|3"]


@balanza_only("knows one line of a field only")
def test_the_list_of_proxies_goes_on(balancer, origin):
    server = origin()
    one = balancer(proxy([server], location="proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"))
    get(one.port, headers=[("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-For", "192.0.2.2, 192.0.2.3")])
    get(one.port)
    got = [request["X-Forwarded-For"] for request in server.requests]
    assert got == ["192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1", "127.0.0.1"]
