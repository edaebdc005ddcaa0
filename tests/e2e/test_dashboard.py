"""The dashboard in a browser: what it shows, what its buttons change, what it refuses, and what it says when the balancer is gone."""

import json

import pytest

from support.balancer import Balancer, wait_for
from support.browser import CHROMIUM
from support.client import Client, get
from support.expect import balanza_only
from support.fast import FastServer
from support.load import Load
from test_api import read

pytestmark = [balanza_only("the dashboard is Balanza's own"),
              pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed (scripts/install-test-tools.sh)")]

FARM = """
upstream backend { zone backend 64k; least_conn; server 127.0.0.1:ORIGIN weight=3; server 127.0.0.2:ORIGIN; server 127.0.0.3:1 backup; }
upstream fixed { server 127.0.0.1:ORIGIN; }
limit_req_zone $binary_remote_addr zone=one:1m rate=1000r/s;
limit_conn_zone $binary_remote_addr zone=addr:1m;
server {
    listen 127.0.0.1:PORT;
    status_zone shop;
    location / { proxy_pass http://backend; status_zone pages; limit_req zone=one burst=1000; limit_conn addr 100; }
    location = /dashboard { dashboard; }
    location /look { dashboard api=/read/only/; }
    location /api { api write=on; }
    location /read/only { api; }
}
"""

SERVERS = "/api/9/http/upstreams/backend/servers"
ROWS = "[...document.querySelectorAll('#main tbody tr')]"


@pytest.fixture
def farm():
    one = FastServer("a")
    yield Balancer(FARM.replace("ORIGIN", str(one.port)), workers=2)
    one.stop()


def go(browser, balancer, place="/dashboard"):
    browser.open(f"http://127.0.0.1:{balancer.port}{place}")
    browser.wait("document.getElementById('live-text').textContent === 'live'")


def text(browser, selector):
    return browser.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")


def press(browser, label):
    """Presses the button with this name for screen readers, as a person does: it must be visible."""
    script = f"""(() => {{
        const name = (one) => one.getAttribute('aria-label') ?? one.textContent;
        const found = [...document.querySelectorAll('button')].find((one) => name(one) === {json.dumps(label)} && one.checkVisibility());
        found?.click();
        return Boolean(found);
    }})()"""
    browser.wait(script)


def buttons(browser):
    return browser.value("[...document.querySelectorAll('#main button, dialog[open] button')].map((one) => one.textContent)")


def row(browser, address):
    return browser.value(f"{ROWS}.find((tr) => tr.textContent.includes({json.dumps(address)}))?.innerText ?? ''")


def test_the_page_is_whole_and_strict(farm):
    page = get(farm.port, "/dashboard")
    assert page.status == 200 and page["content-type"] == "text/html; charset=utf-8"
    policy = page["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
    assert page["x-content-type-options"] == "nosniff" and b"http" not in page.body.replace(b"http-equiv", b"")
    style, script = get(farm.port, "/dashboard?style"), get(farm.port, "/dashboard?script")
    assert style["content-type"].startswith("text/css") and script["content-type"].startswith("text/javascript")
    assert len(page.body) + len(style.body) + len(script.body) < 100_000
    assert b'content="/read/only"' in get(farm.port, "/look/here").body
    with Client(farm.port) as client:
        client.request("POST", "/dashboard", body=b"x")
        assert client.response("POST").status == 405


def test_every_view_shows_what_the_api_has(farm, browser):
    for _ in range(8):
        get(farm.port, "/")
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    assert "least_conn" in text(browser, "#main")
    assert [part in row(browser, "127.0.0.3:1") for part in ("backup", "1")] == [True, True]
    marked = browser.value(f"{ROWS}.map((tr) => tr.querySelector('th').getAttribute('scope'))")
    assert marked == ["row"] * 4
    for view, expected in {"zones": ["shop", "pages"], "limits": ["one", "addr"], "workers": ["0", "1"], "events": ["serves configuration 1"]}.items():
        browser.value(f"document.querySelector('nav a[data-view={view}]').click()")
        for part in expected:
            browser.wait(f"document.getElementById('main').innerText.includes({json.dumps(part)})")
        assert browser.value("location.hash") == f"#view={view}"
        assert browser.value("document.querySelector('nav a[aria-current]').dataset.view") == view
    assert browser.errors == []


SHADOWS = "shadow last_server key=$arg_key; shadow least_conn;"


@pytest.mark.parametrize("place", ["/dashboard", "/look"])
def test_shadows_stand_below_the_servers(browser, place):
    one = FastServer("a")
    balancer = Balancer(FARM.replace("ORIGIN", str(one.port)).replace("least_conn; server", f"{SHADOWS} server"))
    for key in range(10):
        get(balancer.port, f"/?key={key % 5}")
    go(browser, balancer, place)
    line = "(document.querySelector('.shadows li')?.innerText ?? '')"
    # One of the servers does not answer, so there are retries, which are choices too.
    browser.wait(f"/^last_server agrees in .* of 1[0-9] choices.* keys moved [0-5] of 5/.test({line})")
    assert "say nothing about response times" in text(browser, ".shadows p")
    assert browser.value("document.querySelectorAll('.shadows').length") == 1
    assert browser.value("document.querySelectorAll('.shadows li').length") == 2
    for width in (390, 1200):
        browser.size(width, 900)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert browser.errors == []
    one.stop()


EXPERIMENT = "(document.querySelector('.experiment')?.innerText ?? '')"


def test_an_experiment_is_begun_watched_and_stopped(farm, browser):
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    assert browser.value(EXPERIMENT) == ""
    press(browser, "Experiment in backend")
    browser.wait("document.querySelectorAll('#question select option').length > 10")
    browser.value("document.querySelector('#question [name=arms]').value = 'no_such'")
    press(browser, "Begin")
    browser.wait("document.querySelector('#question [role=alert]').textContent.includes('no_such')")
    browser.value("document.querySelector('#question [name=arms]').value = 'least_time last_byte\\nbalance round_robin'")
    for field, value in {"block": "500ms", "washout": "0", "rounds": "1000", "errors": "90%"}.items():
        browser.value(f"document.querySelector('#question [name={field}]').value = '{value}'")
    press(browser, "Begin")
    browser.wait("!document.querySelector('dialog[open]')")
    browser.wait(f"/block [0-9,]+ of 3,000, (first|second) half, .* left/.test({EXPERIMENT})")
    begun = read(farm.port, "/api/balanza/http/upstreams/backend/experiment")
    assert begun["settings"] | {"block": "500ms", "rounds": 1000, "errors": "90%"} == begun["settings"]
    assert browser.value("[...document.querySelectorAll('.experiment li b')].map((one) => one.textContent)") == [
        "least_conn", "least_time last_byte", "balance round_robin"]
    assert browser.value("document.querySelector('button[aria-label=\"Experiment in backend\"]').disabled")
    with Load(farm.port, clients=1):
        for _ in range(3):
            # Each arm is measured, and compared as soon as it has run beside the control.
            browser.wait(f"({EXPERIMENT}.match(/requests · /g) ?? []).length === 3 && {EXPERIMENT}.includes('; mean ')", 60)
    for width in (390, 1200):
        browser.size(width, 900)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    press(browser, "Stop the experiment of backend")
    browser.wait(f"{EXPERIMENT}.includes('ended: it was stopped by the API')")
    assert read(farm.port, "/api/balanza/http/upstreams/backend")["method"] == "least_conn"
    browser.wait("!document.querySelector('button[aria-label=\"Stop the experiment of backend\"]').checkVisibility()")
    go(browser, farm, "/look")
    browser.wait(f"{EXPERIMENT}.includes('it was stopped')")
    assert "Experiment" not in buttons(browser)
    assert [error for error in browser.errors if "status of 400" not in error] == []


def test_buttons_change_servers(farm, browser):
    go(browser, farm)
    first, second = read(farm.port, SERVERS)[:2]
    press(browser, f"Drain {first['server']}")
    browser.wait(f"{ROWS}.some((tr) => tr.innerText.includes('draining'))")
    assert read(farm.port, f"{SERVERS}/0")["drain"] is True
    press(browser, f"Undrain {first['server']}")
    wait_for(lambda: "drain" not in read(farm.port, f"{SERVERS}/0"), what="the end of draining")
    press(browser, f"Down {second['server']}")
    browser.wait(f"{ROWS}[0].className === 'problem' && {ROWS}[0].innerText.includes('down')")
    assert read(farm.port, f"{SERVERS}/1")["down"] is True and browser.value("document.title").startswith("(1)")
    press(browser, f"Up {second['server']}")
    wait_for(lambda: not read(farm.port, f"{SERVERS}/1")["down"], what="the server up")

    press(browser, f"Edit {first['server']}")
    browser.wait("document.querySelector('#question[open] [name=weight]')?.value === '3'")
    browser.value("document.querySelector('#question [name=weight]').value = '7'")
    press(browser, "Save")
    wait_for(lambda: read(farm.port, f"{SERVERS}/0")["weight"] == 7, what="the weight")
    browser.wait("!document.querySelector('dialog[open]')")

    press(browser, "Add server to backend")
    browser.wait("document.querySelector('#question[open] [name=server]')")
    # What the API refuses is said in the dialog.
    browser.value("document.querySelector('#question [name=server]').value = 'no.name:80'")
    press(browser, "Add")
    browser.wait("document.querySelector('#question [role=alert]').textContent.includes('no.name:80')")
    browser.value("document.querySelector('#question [name=server]').value = '127.0.0.9:81'")
    press(browser, "Add")
    browser.wait(f"{ROWS}.some((tr) => tr.innerText.includes('127.0.0.9:81'))")
    added = read(farm.port, SERVERS)[-1]
    assert (added["server"], added["weight"]) == ("127.0.0.9:81", 1)

    browser.wait("!document.querySelector('dialog[open]')")
    browser.value(f"{ROWS}.find((tr) => tr.innerText.includes('127.0.0.9:81')).querySelector('button').click()")
    press(browser, "Remove")
    browser.wait("document.querySelector('#question[open]')")
    browser.value("document.querySelector('#question [type=submit]').click()")
    browser.wait(f"!{ROWS}.some((tr) => tr.innerText.includes('127.0.0.9:81'))")
    assert len(read(farm.port, SERVERS)) == 3
    # The requests that the API refused are errors on the console; nothing else is.
    assert [error for error in browser.errors if "status of 400" not in error] == []


def test_a_drain_with_a_deadline_counts_down(farm, browser):
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    browser.value(f"{ROWS}[0].querySelector('button').click()")
    press(browser, "Drain with a deadline")
    browser.wait("document.querySelector('#question[open] [name=timeout]')?.value === '30s'")
    browser.value("document.querySelector('#question [name=timeout]').value = 'soon'")
    browser.value("document.querySelector('#question [type=submit]').click()")
    browser.wait("document.querySelector('#question [role=alert]').textContent.includes('drain_timeout')")
    browser.value("document.querySelector('#question [name=timeout]').value = '5m'")
    browser.value("document.querySelector('#question [type=submit]').click()")
    browser.wait(f"/draining, 0 left\\s+down in 4:\\d\\d/.test({ROWS}[0].innerText)")
    browser.wait("/Set down in\\s+4 min/.test(document.getElementById('details').innerText)")
    shown = browser.value(f"{ROWS}[0].innerText")
    browser.wait(f"{ROWS}[0].innerText !== {json.dumps(shown)} && {ROWS}[0].innerText.includes('down in 4:')")
    press(browser, "Undrain")
    browser.wait(f"!{ROWS}[0].innerText.includes('draining')")
    assert "drain" not in read(farm.port, f"{SERVERS}/0")
    assert [error for error in browser.errors if "status of 400" not in error] == []


def test_a_method_is_tried_by_keyboard(farm, browser):
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    browser.wait("document.querySelector('button[aria-label=\"Method of backend\"]')")
    browser.value("document.querySelector('button[aria-label=\"Method of backend\"]').focus()")
    browser.press("Enter", "\r")
    browser.wait("document.querySelector('#question[open] [name=method]')?.value === 'least_conn'")
    assert browser.value("document.querySelectorAll('#methods option').length") > 10
    browser.value("document.querySelector('#question [name=method]').focus()")
    browser.value("document.querySelector('#question [name=method]').select()")
    browser.call("Input.insertText", text="two_choices choices=1")
    browser.press("Enter", "\r")
    browser.wait("document.querySelector('#question [role=alert]').textContent.includes('choices')")
    browser.value("document.querySelector('#question [name=method]').select()")
    browser.call("Input.insertText", text="least_time last_byte")
    browser.press("Enter", "\r")
    browser.wait("!document.querySelector('dialog[open]')")
    browser.wait("document.querySelector('.tag.differs')?.innerText === 'chosen at run time; the configuration has least_conn'")
    assert read(farm.port, "/api/balanza/http/upstreams/backend")["method"] == "least_time last_byte"
    assert browser.value("document.activeElement.getAttribute('aria-label')") == "Method of backend"
    browser.press("Enter", "\r")
    press(browser, "As in the configuration")
    press(browser, "Use")
    browser.wait("!document.querySelector('.tag.differs')")
    assert [error for error in browser.errors if "status of 400" not in error] == []


def test_without_write_nothing_can_be_changed(farm, browser):
    go(browser, farm, "/look")
    browser.wait(f"{ROWS}.length === 4")
    browser.wait("document.getElementById('mode').textContent === 'read only'")
    labels = ("Drain", "Drain with a deadline", "Down", "Up", "Edit", "Experiment", "Method", "Add server", "Remove")
    assert not set(buttons(browser)) & set(labels)
    browser.value(f"{ROWS}[0].querySelector('button').click()")
    browser.wait("document.querySelector('#details[open] .why li')")
    assert not set(buttons(browser)) & set(labels)
    # A static upstream has no buttons where others have them.
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    in_fixed = "[...document.querySelectorAll('.upstream')].find((one) => one.innerText.startsWith('fixed')).querySelectorAll('.actions button').length"
    browser.wait("document.querySelectorAll('.actions button').length > 0")
    assert browser.value(in_fixed) == 0
    assert browser.errors == []


HOSTILE = """
upstream "<img src=x onerror=alert(1)>" { zone "a'b" 64k; server 127.0.0.1:ORIGIN; }
upstream '"><script>alert(1)</script>' { zone z 64k; server "unix:/tmp/<b onclick=alert(1)>" down; }
limit_req_zone $binary_remote_addr zone=<svg/onload=alert(1)>:1m rate=1000r/s;
server {
    listen 127.0.0.1:PORT;
    status_zone "<script>alert(2)</script>";
    location / { status_zone "<iframe src=javascript:alert(3)>"; limit_req zone=<svg/onload=alert(1)>; return 204; }
    location /dash { dashboard 'api=/api"><script>alert(4)</script>'; }
    location /dashboard { dashboard; }
    location /api { api write=on; }
}
"""


def test_names_are_text(browser):
    one = Balancer(HOSTILE.replace("ORIGIN", "9"))
    get(one.port, "/")
    browser.call("Page.addScriptToEvaluateOnNewDocument", source="window.alert = () => (window.broken = true)")
    place = "/dashboard#" + "filter=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    go(browser, one, place)
    browser.wait(f"{ROWS}.length === 1")
    assert "<img src=x onerror=alert(1)>" in text(browser, "#main h2")
    browser.value("location.hash = ''")
    browser.wait(f"{ROWS}.length === 2")
    tags = "document.querySelectorAll('#main :is(img, script, iframe, b), #main [onclick], main svg:not(.spark)').length"
    assert "unix:/tmp/<b onclick=alert(1)>" in text(browser, "#main")
    assert browser.value(tags) == 0
    # The names go into the paths of requests as they are.
    press(browser, "Down 127.0.0.1:9")
    browser.wait(f"{ROWS}.every((tr) => tr.innerText.includes('down'))")
    # The difference to the configuration has the names, and a method that a text cannot break out of.
    press(browser, "Method of <img src=x onerror=alert(1)>")
    browser.wait("document.querySelector('#question[open] [name=method]')")
    browser.value("document.querySelector('#question [name=method]').value = 'hash \"<b onclick=alert(1)>$uri\"'")
    press(browser, "Use")
    browser.wait("!document.querySelector('dialog[open]')")
    for view, expected in {"zones": "<script>alert(2)</script>", "limits": "<svg/onload=alert(1)>", "changes": "<b onclick=alert(1)>$uri"}.items():
        browser.value(f"location.hash = 'view={view}'")
        browser.wait(f"document.getElementById('main').innerText.includes({json.dumps(expected)})")
        assert browser.value(tags) == 0
    assert not browser.value("window.broken") and browser.errors == []
    browser.open(f"http://127.0.0.1:{one.port}/dash")
    browser.wait("document.querySelector('meta[name=api]').content.includes('<script>')")
    assert not browser.value("window.broken")


def test_a_balancer_that_is_gone_is_noticed_and_found_again(farm, browser):
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    farm.stop()
    browser.wait("!document.getElementById('lost').hidden")
    assert "does not answer" in text(browser, "#lost")
    assert browser.value("document.getElementById('lost').getAttribute('role')") == "alert"
    assert text(browser, "#live") == "lost" and browser.value(f"{ROWS}.length") == 4
    farm.start()
    browser.wait("document.getElementById('lost').hidden && document.getElementById('live-text').textContent === 'live'")
    browser.value("location.hash = 'view=events'")
    browser.wait("document.getElementById('main').innerText.includes('answers again')")
    # Another process has events of its own.
    browser.wait("document.getElementById('main').innerText.match(/serves configuration 1/g)?.length === 2")


def test_the_link_has_the_view(farm, browser):
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    browser.press("/", "/")
    assert browser.value("document.activeElement.id") == "filter"
    browser.call("Input.insertText", text="127.0.0.2")
    browser.wait(f"{ROWS}.length === 1")
    browser.value("[...document.querySelectorAll('button.sort')].find((one) => one.textContent === 'Weight').click()")
    browser.wait("document.querySelector('th[aria-sort=descending]')?.textContent === 'Weight'")
    link = browser.value("location.href")
    browser.open("about:blank#")
    browser.open(link)
    browser.wait(f"{ROWS}.length === 1")
    assert browser.value("document.getElementById('filter').value") == "127.0.0.2"
    assert browser.value("document.querySelector('th[aria-sort=descending]').textContent") == "Weight"
    # By keyboard: the server's details open and close, and the focus comes back.
    browser.value(f"{ROWS}[0].querySelector('button').focus()")
    browser.press("Enter", "\r")
    browser.wait("document.querySelector('#details[open]')")
    browser.press("Escape")
    browser.wait("!document.querySelector('#details[open]')")
    assert browser.value("document.activeElement.tagName") == "BUTTON"
    # Light or dark, kept for the next visit.
    before = browser.value("getComputedStyle(document.body).backgroundColor")
    for _ in range(2):
        browser.value("document.getElementById('theme').click()")
    assert browser.value("getComputedStyle(document.body).backgroundColor") != before
    browser.open("about:blank#")
    browser.open(link)
    browser.wait("document.documentElement.dataset.theme === 'dark'")
    assert browser.errors == []


@pytest.mark.parametrize("width", [390, 1200, 2500])
def test_nothing_is_wider_than_the_screen(farm, browser, width):
    browser.size(width, 900)
    go(browser, farm)
    browser.wait(f"{ROWS}.length === 4")
    wider = "[document.documentElement, ...document.querySelectorAll('.table')].filter((one) => one.scrollWidth > one.clientWidth).length"
    assert browser.value(wider) == 0


def test_a_thousand_servers_stay_usable(browser):
    lines = "\n".join(f"server 127.0.{nth // 200}.{nth % 200 + 1}:9{' down' if nth == 777 else ''};" for nth in range(1000))
    one = Balancer(f"upstream large {{ zone large 1m; {lines} }} server {{ listen 127.0.0.1:PORT;"
                   "location /dashboard { dashboard; } location /api { api write=on; } }")
    go(browser, one)
    browser.wait("document.querySelector('.tiles').innerText.includes('999 of 1,000')")
    # The problem is at the top, and the page has no row for each server.
    assert "127.0.3.178:9" in browser.value(f"{ROWS}[0].innerText")
    assert browser.value(f"{ROWS}.length") == 60
    assert browser.value("document.querySelectorAll('*').length") < 5000
    browser.value("const input = document.getElementById('filter'); input.value = '127.0.4.'; input.dispatchEvent(new Event('input'))")
    browser.wait(f"{ROWS}.length === 60 && {ROWS}.every((tr) => tr.innerText.includes('127.0.4.'))")
    # An update with nothing new changes nothing, and takes little time whatever the machine is busy with.
    # They are counted before the page can have an answer with something new.
    changes = browser.value("""(() => {
        const observer = new MutationObserver(() => {});
        observer.observe(document.querySelector('#main tbody'), {
            subtree: true, childList: true, characterData: true, attributes: true });
        for (let nth = 0; nth < 5; nth += 1) page.show();
        const changes = observer.takeRecords().length;
        observer.disconnect();
        return changes;
    })()""")
    assert changes == 0
    browser.call("Performance.enable", timeDomain="threadTicks")
    script = lambda: next(one["value"] for one in browser.call("Performance.getMetrics")["metrics"] if one["name"] == "ScriptDuration")
    before = script()
    browser.value("(() => { for (let nth = 0; nth < 10; nth += 1) page.show(true); })()")
    assert script() - before < 5
    assert browser.errors == []
