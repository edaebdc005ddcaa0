"""What a request tells of its client: `valid_referers`, `secure_link`, `userid`, browsers."""

import base64
import hashlib
import struct
import time

import pytest

from support.client import Client, get
from support.expect import balanza_only


def ask(one, target="/", **fields):
    headers = [(name.replace("_", "-"), value) for name, value in fields.items()]
    return get(one.port, target, headers=headers)


def body(one, target="/", **fields):
    return ask(one, target, **fields).body.decode()


def server(text, more="", names="_"):
    return f"{more} server {{ listen 127.0.0.1:PORT; server_name {names}; {text} }}"


# valid_referers


REFERERS = [
    (None, "1"), ("http://a.test/", ""), ("https://A.TEST:8080/x", ""), ("HTTP://a.test/", ""), ("http://b.test/", "1"),
    ("http://b.test/in", ""), ("http://b.test/in/side", ""), ("http://b.test:80/in", ""), ("http://x.c.test/", ""),
    ("http://c.test/", "1"), ("http://d.test/", ""), ("http://x.d.test/", ""), ("http://e.org/", ""), ("http://e.com/", ""),
    ("a.test", "1"), ("ftp://a.test/", "1"), ("http://regex.test/q", ""), ("http://x.test/REGEX", ""), ("http://other.test/", "1"),
    ("http://name.test/", ""), ("http://n7.test/", ""), ("http://n7.test.evil/", "1"), ("http://a.test.evil/", "1"),
    ("http://a.t", "1"), ("http://a.test", ""), ("http://" + "x" * 300 + "/", "1"), ("", "1"),
]


def test_referers(balancer):
    one = balancer(server('valid_referers a.test b.test/in *.c.test; valid_referers .d.test e.* ~regex server_names; '
                          "location / { return 200 $invalid_referer; }", names="name.test ~^n[0-9]\\.test$"))
    for referer, expected in REFERERS:
        fields = {} if referer is None else {"Referer": referer}
        assert body(one, **fields) == expected, referer


def test_referers_that_may_be_missing_or_blocked(balancer):
    one = balancer(server("valid_referers none a.test; location / { return 200 $invalid_referer; }"
                          "location /b { valid_referers blocked a.test; return 200 $invalid_referer; }"
                          "location /in { return 200 $invalid_referer; }"))
    cases = [("/", None, ""), ("/", "xxx", "1"), ("/b", None, "1"), ("/b", "xxx", ""), ("/b", "http://b.test/", "1"),
             ("/in", None, "")]
    for target, referer, expected in cases:
        assert body(one, target, **({"Referer": referer} if referer else {})) == expected, (target, referer)


def test_without_valid_referers_every_one_is_valid(balancer):
    one = balancer(server('location / { return 200 "[$invalid_referer]"; }'
                          "location /s { valid_referers a.test; return 200 $invalid_referer; }"))
    assert body(one, Referer="http://b.test/") == "[]"
    assert body(one, "/s", Referer="http://b.test/") == "1"


# secure_link


def checksum(text):
    return base64.urlsafe_b64encode(hashlib.md5(text.encode()).digest()).decode().rstrip("=")


def test_links_with_a_checksum(balancer):
    one = balancer(server('location / { secure_link $arg_md5,$arg_e; secure_link_md5 "$arg_e$uri key"; '
                          'return 200 "$secure_link|$secure_link_expires"; }'
                          'location /no { secure_link $arg_md5; secure_link_md5 "$uri key"; return 200 "[$secure_link]"; }'))
    soon, past = int(time.time()) + 600, int(time.time()) - 600
    assert body(one, f"/x?md5={checksum(f'{soon}/x key')}&e={soon}") == f"1|{soon}"
    assert body(one, f"/x?md5={checksum(f'{past}/x key')}&e={past}") == f"0|{past}"
    assert body(one, f"/x?md5={checksum(f'{soon}/y key')}&e={soon}") == f"|{soon}"
    assert body(one, f"/x?md5={checksum('/x key')}") == "|"
    assert body(one, f"/x?md5={checksum('0/x key')}&e=0") == "|"
    assert body(one, f"/x?md5={checksum('1x/x key')}&e=1x") == "|"
    good = checksum("/no key")
    for given, expected in [(good, "[1]"), (good + "==", "[1]"), (good + "===", "[]"), (good[:-1], "[]"), ("", "[]"),
                            (good[:5] + "!" + good[6:], "[]")]:
        assert body(one, f"/no?md5={given}") == expected, given


def test_links_with_a_secret(balancer):
    one = balancer(server('secure_link_secret key; location /p/ { return 200 "$secure_link"; }'
                          'location /p/off/ { secure_link $arg_m; secure_link_md5 x; return 200 "[$secure_link]"; }'))
    good = hashlib.md5(b"a/b.txtkey").hexdigest()
    assert body(one, f"/p/{good}/a/b.txt") == "a/b.txt"
    assert body(one, f"/p/{good.upper()}/a/b.txt") == "a/b.txt"
    assert body(one, f"/p/{good}/a/c.txt") == ""
    assert body(one, f"/p/{good}/") == ""
    assert body(one, f"/p/{good[1:]}/a/b.txt") == ""
    query = hashlib.md5(b"a?q=1key").hexdigest()
    assert body(one, f"/p/{query}/a?q=1") == "a?q=1"
    assert body(one, f"/p/off/?m={checksum('x')}") == "[1]"


# userid


def cookie(response):
    [field] = response.all("Set-Cookie")
    return field


def decoded(text):
    return base64.b64decode(text[:22] + "==")


def shown(name, identifier):
    return f"{name}=" + "".join(f"{part:08X}" for part in struct.unpack("<4I", identifier))


def test_clients_get_identifiers(balancer):
    one = balancer(server('userid on; location / { return 200 "$uid_got|$uid_set"; }'
                          'location /log { userid log; return 200 "$uid_got|$uid_set"; }'
                          'location /off { userid off; return 200 "$uid_got|$uid_set"; }'))
    responses = [ask(one) for _ in range(3)]
    identifiers = []
    for response in responses:
        text = cookie(response)
        assert text.startswith("uid=") and text.endswith("==; path=/"), text
        identifier = decoded(text[4:])
        assert response.body.decode() == "|" + shown("uid", identifier)
        address, seconds = struct.unpack(">4sI", identifier[:8])
        assert address == bytes([127, 0, 0, 1]) and abs(seconds - time.time()) < 600
        identifiers.append(identifier)
    assert len(set(identifiers)) == 3
    sequence = [struct.unpack(">I", identifier[12:])[0] for identifier in identifiers]
    assert [number - sequence[0] for number in sequence] == [0, 0x100, 0x200]
    own = cookie(responses[0]).split(";")[0]
    for target, expected in [("/", shown("uid", identifiers[0]) + "|"), ("/log", shown("uid", identifiers[0]) + "|"), ("/off", "|")]:
        response = ask(one, target, Cookie=f"a=b; {own}")
        assert response.body.decode() == expected and not response.all("Set-Cookie")
    assert not ask(one, "/log").all("Set-Cookie")


def test_cookies_that_are_no_identifiers_are_replaced(balancer):
    one = balancer(server('userid on; location / { return 200 "$uid_got"; }'))
    for wrong, message in [("uid=short", "client sent too short userid cookie"),
                           ("uid=!!!!!!!!!!!!!!!!!!!!!!!!", "client sent invalid userid cookie")]:
        response = ask(one, Cookie=wrong)
        assert response.body == b"" and cookie(response).startswith("uid=")
        one.wait_error(message)
    zero = base64.b64encode(bytes(16)).decode()
    assert cookie(ask(one, Cookie=f"uid={zero}"))


def test_the_parts_of_the_cookie(balancer):
    one = balancer(server("userid on; userid_name id; userid_domain a.test; userid_path /x; userid_expires max;"
                          "userid_service 258; userid_p3p 'policyref=\"/p\"'; location / { return 204; }"
                          "location /t { userid_expires 1h; userid_domain none; userid_p3p none; return 204; }"
                          "location /v1 { userid v1; return 204; }"))
    response = ask(one)
    text = cookie(response)
    assert text.split(";", 1)[1] == " expires=Thu, 31-Dec-37 23:55:55 GMT; domain=a.test; path=/x"
    assert decoded(text[3:])[:4] == bytes([0, 0, 1, 2])
    assert response["P3P"] == 'policyref="/p"'
    response = ask(one, "/t")
    text = cookie(response)
    when = time.strptime(text.split("expires=")[1].split(";")[0], "%a, %d-%b-%y %H:%M:%S GMT")
    import calendar
    assert abs(calendar.timegm(when) - time.time() - 3600) < 600
    assert "domain" not in text and not response.all("P3P")
    assert decoded(cookie(ask(one, "/v1"))[3:])[:4] == bytes([2, 1, 0, 0])


def test_flags(balancer):
    one = balancer(server("userid on; userid_flags secure httponly samesite=lax; location / { return 204; }"
                          "location /n { userid_flags samesite=none; return 204; } location /o { userid_flags off; return 204; }"))
    assert cookie(ask(one)).endswith("==; path=/; secure; httponly; samesite=lax")
    assert cookie(ask(one, "/n")).endswith("==; path=/; samesite=none")
    assert cookie(ask(one, "/o")).endswith("==; path=/")


def test_marks(balancer):
    one = balancer(server('userid on; userid_mark M; location / { return 200 "$uid_got|$uid_set"; }'
                          "location /off { userid_mark off; return 204; }"))
    marked = cookie(ask(one)).split(";")[0]
    assert marked.endswith("M=") and len(marked) == len("uid=") + 24
    assert not ask(one, Cookie=marked).all("Set-Cookie")
    plain = marked[:-2] + "=="
    response = ask(one, Cookie=plain)
    assert cookie(response).split(";")[0] == marked, "the same identifier gets its mark"
    got, given = response.body.decode().split("|")
    assert got == given
    assert not ask(one, "/off", Cookie=marked).all("Set-Cookie")


def test_identifiers_can_be_reset(balancer):
    one = balancer(server('userid on; location / { set $uid_reset $arg_r; return 200 "$uid_got|$uid_set"; }'))
    own = cookie(ask(one)).split(";")[0]
    for value in ("", "0"):
        assert not ask(one, f"/?r={value}", Cookie=own).all("Set-Cookie")
    for value in ("1", "log"):
        response = ask(one, f"/?r={value}", Cookie=own)
        assert cookie(response).split(";")[0] not in (own, "")
    one.wait_error(r"userid cookie \"uid=[0-9A-F]{32}\" was reset")


def test_requests_of_a_connection_have_their_own_identifiers(balancer):
    one = balancer(server('userid on; location / { return 200 "$uid_set"; }'))
    with Client(one.port) as client:
        first, second = client.get().body, client.get().body
        assert first and second and first != second


# Browsers


AGENTS = [
    "Opera/7.50 (X11; FreeBSD i386; U)  [en]",
    "Mozilla/4.0 (compatible; MSIE 6.0; X11; FreeBSD i386) Opera 7.50  [en]",
    "Opera/9.01 (X11; FreeBSD 6 i386; U; en)",
    "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
    "Mozilla/4.0 (compatible; MSIE 5.5; Windows NT 5.1)",
    "Mozilla/4.0 (compatible; MSIE 5.5",
    "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.0.0) Gecko/20020610",
    "Mozilla/5.0 (Windows; U; Windows NT 5.1; ru-RU; rv:1.7.8) Gecko/20050511 Firefox/1.0.4",
    "Mozilla/5.0 (Macintosh; U; PPC Mac OS X; en) AppleWebKit/418 (KHTML, like Gecko) Safari/417.9.3",
    "Mozilla/5.0 (Macintosh; U; PPC Mac OS X; en) AppleWebKit/418 (KHTML, like Gecko) Safari/",
    "Mozilla/5.0 (compatible; Konqueror/3.5; FreeBSD) KHTML/3.5.1 (like Gecko)",
    "Mozilla/4.72 [en] (X11; U; Linux)", "Mozilla/4.72", "Lynx/2.8", "MSIE 6", "MSIE 6.00", "x", None,
]
SETTINGS = {
    "versions": "modern_browser msie 5.5; modern_browser gecko 1.0.1; modern_browser opera 9.0; modern_browser safari 413; "
                "modern_browser konqueror 3.4;",
    "lists": "modern_browser msie 6.0; modern_browser unlisted; ancient_browser Lynx netscape4;",
    "ancient": "ancient_browser Lynx MSIE; modern_browser unlisted; modern_browser_value new; ancient_browser_value old;",
    "nothing": "",
}
# By setting: for each agent whether it is modern, as recorded from NGINX.
MODERN = {
    "versions": "001111011010000000",
    "lists": "000100111110101111",
    "ancient": "101000111111100011",
    "nothing": "000000000000000000",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_browsers(balancer, setting):
    one = balancer(server(f'{SETTINGS[setting]} location / {{ return 200 "$modern_browser|$ancient_browser|$msie"; }}'))
    got = ""
    for agent in AGENTS:
        modern, ancient, _ = body(one, **({"User-Agent": agent} if agent is not None else {})).split("|")
        assert bool(modern) != bool(ancient)
        assert (modern or ancient) in ("1", "new", "old")
        got += "1" if modern else "0"
    assert got == MODERN[setting]


def test_internet_explorer(balancer):
    one = balancer(server('location / { return 200 "$msie"; }'))
    got = "".join(body(one, **({"User-Agent": agent} if agent is not None else {})) or "0" for agent in AGENTS)
    assert got == "000111000000000100"


def test_browsers_of_an_outer_block_are_inherited_as_a_whole(balancer):
    one = balancer(server("modern_browser unlisted; ancient_browser Lynx; location / { return 200 $modern_browser; }"
                          "location /m { modern_browser msie 6.0; return 200 $modern_browser; }"
                          "location /a { ancient_browser zzz; return 200 $modern_browser; }"))
    assert body(one, User_Agent="Lynx/2") == ""
    assert body(one, User_Agent="y") == "1"
    assert body(one, "/m", User_Agent="y") == ""
    assert body(one, "/a", User_Agent="Lynx/2") == "1"
