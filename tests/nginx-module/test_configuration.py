"""What the directives take and refuse, and in which words."""

import pytest

from support.ask import ask, tally
from support.origin import named, proxy


def said(nginx, block):
    one = nginx(f"upstream u {{ {block} }} server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://u; }} }}",
                start=False)
    result = one.test_config()
    return result.returncode, result.stderr


@pytest.mark.parametrize("block, words", [
    ("balance nothing; server 127.0.0.1:1;", 'unknown balancing algorithm "nothing"; there are: round_robin, least_conn,'),
    ("balance prequal; server 127.0.0.1:1;", '"prequal" needs probes of the servers, for which there is the Balanza'),
    ("balance external program=/x; server 127.0.0.1:1;", '"external" needs a program that it asks'),
    ("balance least_load; server 127.0.0.1:1;", '"least_load" needs loads that servers report'),
    ("balance weighted_load; server 127.0.0.1:1;", '"weighted_load" needs loads that servers report'),
    ("balance two_choices choices=1; server 127.0.0.1:1;", 'invalid value "1" of "choices": a number from 2 to 16'),
    ("two_choices x=1; server 127.0.0.1:1;", 'two_choices has no parameter "x"; it has by=least_conn, choices=2'),
    ("balance hash; server 127.0.0.1:1;", '"hash" needs a "key"; add what is hashed: key=$request_uri'),
    ("balance least_conn key=$uri; server 127.0.0.1:1;", 'least_conn takes no key'),
    ("balance maglev key=; server 127.0.0.1:1;", "the key is empty"),
    ("balance maglev key=$uri key=$uri; server 127.0.0.1:1;", 'duplicate parameter "key"'),
    ("balance maglev key=$nothing; server 127.0.0.1:1;", 'unknown "nothing" variable'),
    ("two_choices; balance random; server 127.0.0.1:1;", "is duplicate: this upstream has an algorithm"),
    ("balance; server 127.0.0.1:1;", 'invalid number of arguments in "balance" directive'),
    ("two_choices; server 127.0.0.1:1 weight=4294967295; server 127.0.0.1:2 weight=4294967295;",
     "weight"),
])
def test_what_is_refused(nginx, block, words):
    code, text = said(nginx, block)
    assert code == 1 and words in text, text
    # NGINX finds unknown variables at the end, and says no place.
    assert "nginx.conf:" in text or "variable" in words


@pytest.mark.parametrize("block", [
    "two_choices; server 127.0.0.1:1;",
    "two_choices by=last_byte choices=3; server 127.0.0.1:1 weight=3 max_conns=5 max_fails=2 fail_timeout=3s;",
    "zone u 64k; balance maglev key=$uri$is_args; server 127.0.0.1:1; server 127.0.0.1:2 backup; keepalive 4;",
    "balance hash key=$uri consistent balance_factor=150; server 127.0.0.1:1;",
    "balance leastconn; server 127.0.0.1:1 down; zone u 64k;",
])
def test_what_is_taken(nginx, block):
    code, text = said(nginx, block)
    assert code == 0, text


def test_the_default_key_is_the_client_s_address(nginx):
    servers = named(4)
    one = nginx(proxy(servers, head="balance maglev;"))
    assert max(tally(ask(one, 20), 4)) == 20
    spread = {ask(one, 1, source=f"127.0.{n}.1")[0] for n in range(1, 40)}
    assert len(spread) == 4


def test_other_methods_stay_nginx_s(nginx):
    """Upstreams that do not use the module are as they were."""
    one = nginx(proxy(named(3), head="least_conn;"), workers=2)
    assert tally(ask(one, 30), 3) == [10, 10, 10]


def test_without_a_master(nginx):
    one = nginx(proxy(named(3), head="balance least_conn;"), main="master_process off;")
    assert tally(ask(one, 30), 3) == [10, 10, 10]
