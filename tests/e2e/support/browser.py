"""A page in Debian's Chromium, over the DevTools protocol."""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request

from websockets.sync.client import connect

from .balancer import wait_for

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# The numbers of keys that the browser itself acts on.
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27}


class Browser:
    """A browser with one page. `errors` are exceptions of its scripts, errors on its console and breaches of its policy."""

    def __init__(self, width=1200, height=900):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="browser-"))
        self.errors = []
        self.number = 0
        self.stack = contextlib.ExitStack()
        environment = {**os.environ, "HOME": str(self.dir)}
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
                     "--remote-debugging-port=0", f"--user-data-dir={self.dir}/profile", "about:blank"]
        with open(self.dir / "log.txt", "wb") as log:
            self.process = subprocess.Popen([CHROMIUM, *arguments], env=environment, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        try:
            place = self.dir / "profile/DevToolsActivePort"
            wait_for(lambda: place.exists() and place.read_text().count("\n") == 1, seconds=60, what="the browser to start")
            port = place.read_text().split("\n")[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
                page = next(one for one in json.load(answer) if one["type"] == "page")
            self.socket = self.stack.enter_context(connect(
                page["webSocketDebuggerUrl"], max_size=None, proxy=None, open_timeout=60, ping_interval=None))
            for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
                self.call(f"{domain}.enable")
            self.size(width, height)
        except BaseException:
            self.close()
            raise

    def call(self, method, **parameters):
        """The result of a command."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("id") == self.number:
                assert "error" not in message, (method, message)
                return message["result"]
            self._note(message)

    def _note(self, message):
        method, of = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(of["exceptionDetails"].get("exception", {}).get("description") or of["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and of["entry"]["level"] == "error":
            self.errors.append(f"{of['entry']['text']} {of['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and of["type"] in ("error", "assert"):
            self.errors.append(str(of["args"]))
        elif method == "Audits.issueAdded" and of["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.errors.append(json.dumps(of["issue"]["details"]))

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script):
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, script, seconds=60):
        """Waits until an expression holds."""
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() < end, f"timed out after {seconds} s waiting for {script}\n{self.value('document.body?.innerText')}"
            time.sleep(0.05)

    def press(self, key, text=""):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS.get(key, 0), **more)

    def screenshot(self, path):
        image = self.call("Page.captureScreenshot", format="png")
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))

    def close(self):
        self.stack.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
