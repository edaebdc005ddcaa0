"""The dashboard is accessible: axe-core finds no fault in any view, dark or light, narrow or wide, and the keyboard alone is enough."""

import os
import pathlib

import pytest

from support import axe
from support.balancer import Balancer
from support.browser import CHROMIUM
from support.client import get
from support.expect import balanza_only
from support.fast import FastServer
from test_api import ask, read
from test_dashboard import ROWS, SERVERS, go, press

pytestmark = [balanza_only("the dashboard is Balanza's own"),
              pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed (scripts/install-test-tools.sh)")]

# Pictures go here, for people to look at.
PICTURES = os.environ.get("DASHBOARD_PICTURES")

FARM = """
upstream backend { zone backend 64k; least_conn; shadow last_server key=$arg_key; shadow round_robin;
                   experiment block=1s; experiment_arm round_robin; experiment_arm least_time last_byte;
                   server 127.0.0.1:ORIGIN weight=3; server 127.0.0.2:ORIGIN; server 127.0.0.3:1 backup;
                   server 127.0.0.4:1 down; server 127.0.0.5:1; }
upstream fixed { server 127.0.0.1:ORIGIN; }
limit_req_zone $binary_remote_addr zone=one:1m rate=1000r/s;
limit_conn_zone $binary_remote_addr zone=addr:1m;
server {
    listen 127.0.0.1:PORT;
    status_zone shop;
    location / { proxy_pass http://backend; status_zone pages; limit_req zone=one burst=1000; limit_conn addr 100; }
    location = /dashboard { dashboard; }
    location /api { api write=on; }
}
"""


@pytest.fixture
def farm():
    one = FastServer("a")
    balancer = Balancer(FARM.replace("ORIGIN", str(one.port)), workers=2)
    for _ in range(30):
        get(balancer.port, "/")
    ask(balancer.port, "PATCH", f"{SERVERS}/4", {"drain": True, "drain_timeout": "1h"})
    ask(balancer.port, "PATCH", f"{SERVERS}/1", {"weight": 5})
    ask(balancer.port, "PATCH", "/api/balanza/http/upstreams/backend", {"method": "least_time last_byte"})
    yield balancer
    one.stop()


def check(browser, name):
    if PICTURES:
        pathlib.Path(PICTURES).mkdir(parents=True, exist_ok=True)
        browser.screenshot(f"{PICTURES}/{name}.png")
    assert axe.violations(browser) == [], name
    # A table with long numbers scrolls in its own box.
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.value(wide), f"{name} is wider than the screen"


@pytest.mark.parametrize("theme, width", [("light", 390), ("dark", 1200), ("light", 2500)])
def test_axe_finds_no_fault(farm, browser, theme, width):
    browser.size(width, 900)
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 6")
    while browser.value("document.documentElement.dataset.theme") != theme:
        browser.value("document.getElementById('theme').click()")
    browser.wait("document.querySelector('.tag.differs')")
    browser.wait(f"{ROWS}.some((tr) => /draining, 0 left\\s+down in (1:00|5\\d):\\d\\d/.test(tr.innerText))")
    check(browser, f"{theme}-{width}-upstreams")
    for view, expected in {"zones": "shop", "limits": "one", "workers": "Workers", "changes": "least_time last_byte", "events": "configuration"}.items():
        browser.value(f"document.querySelector('nav a[data-view={view}]').click()")
        browser.wait(f"document.getElementById('main').innerText.includes({expected!r})")
        check(browser, f"{theme}-{width}-{view}")
    browser.value("document.querySelector('nav a[data-view=upstreams]').click()")
    browser.wait(f"{ROWS}.some((tr) => tr.innerText.includes('127.0.0.5:1'))")
    browser.value(f"{ROWS}.find((tr) => tr.innerText.includes('127.0.0.5:1')).querySelector('button').click()")
    browser.wait("document.querySelector('#details[open] .why li')")
    check(browser, f"{theme}-{width}-details")
    for label in ("Drain with a deadline", "Edit"):
        press(browser, label)
        browser.wait("document.querySelector('#question[open]')")
        check(browser, f"{theme}-{width}-{label}")
        browser.press("Escape")
        browser.wait("!document.querySelector('#question[open]')")
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog[open]')")
    for label in ("Method of backend", "Add server to backend"):
        press(browser, label)
        browser.wait("document.querySelector('#question[open]')")
        check(browser, f"{theme}-{width}-{label}")
        browser.press("Escape")
        browser.wait("!document.querySelector('dialog[open]')")
    if (theme, width) == ("light", 1200):
        farm.stop()
        browser.wait("!document.getElementById('lost').hidden")
        check(browser, f"{theme}-{width}-lost")
        # What axe finds is found: a picture without a text.
        browser.value("document.getElementById('main').append(document.createElement('img'))")
        assert any(found.startswith("image-alt") for found in axe.violations(browser))


def tab_to(browser, wanted, most=60):
    """Presses Tab until the element with this name has the focus, which must be visible."""
    name = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"
    for _ in range(most):
        browser.press("Tab")
        if browser.value(name) == wanted:
            assert browser.value("(() => { const style = getComputedStyle(document.activeElement); return style.outlineStyle !== 'none'"
                                 " || style.boxShadow !== 'none'; })()"), f"the focus on {wanted} cannot be seen"
            return
    raise AssertionError(f"Tab does not reach {wanted}")


def test_the_keyboard_is_enough(farm, browser):
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 6")
    browser.press("Tab")
    assert browser.value("document.activeElement.textContent") == "To the contents"
    for view in ("Zones", "Changes", "Upstreams"):
        tab_to(browser, view)
        browser.press("Enter", "\r")
        browser.wait(f"document.querySelector('nav a[aria-current]').textContent === {view!r}")
        if view != "Upstreams":
            browser.value("document.querySelector('.skip').focus()")
    tab_to(browser, "Down 127.0.0.2:" + str(read(farm.port, SERVERS)[1]["server"].split(":")[1]), most=80)
    browser.press("Enter", "\r")
    browser.wait(f"{ROWS}.some((tr) => tr.innerText.includes('127.0.0.2') && tr.innerText.includes('down'))")
    assert read(farm.port, f"{SERVERS}/1")["down"] is True
    # A dialog keeps the focus inside, and gives it back.
    browser.value("document.querySelector('button[aria-label=\"Add server to backend\"]').focus()")
    browser.press("Enter", "\r")
    browser.wait("document.querySelector('#question[open]')")
    for _ in range(25):
        browser.press("Tab")
        assert browser.value("document.activeElement === document.body || document.getElementById('question').contains(document.activeElement)")
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog[open]')")
    assert browser.value("document.activeElement.getAttribute('aria-label')") == "Add server to backend"
    assert browser.errors == []
