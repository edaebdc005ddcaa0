"""axe-core, which finds faults of accessibility in a page. npm fetches it once."""

import fcntl
import functools
import os
import pathlib
import shutil
import subprocess

import pytest

VERSION = "4.14.1"


@functools.cache
def _fetched():
    """The file, and why there is none."""
    place = pathlib.Path(os.environ.get("AXE_DIR") or pathlib.Path.home() / ".cache/balanza-tests") / f"axe-core-{VERSION}"
    found = place / "node_modules/axe-core/axe.min.js"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            if not shutil.which("npm"):
                return found, "npm is not installed"
            made = subprocess.run(["timeout", "90", "npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund",
                                   "--fetch-retries=1", "--prefix", place, f"axe-core@{VERSION}"],
                                  capture_output=True, text=True)
            if made.returncode != 0:
                return found, f"npm cannot fetch axe-core: {made.stderr[-200:]!r}"
    return found, None


def script():
    """The text of axe.min.js."""
    found, missing = _fetched()
    if missing:
        pytest.skip(missing)
    return found.read_text()


def violations(browser):
    """What axe finds in the page as it is: rules with the elements that break them."""
    browser.call("Runtime.evaluate", expression=script())
    found = browser.value("""axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations.map((rule) =>
        `${rule.id}: ${rule.help}: ${rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + ' ' + node.failureSummary).join(' | ')}`))""")
    return found
