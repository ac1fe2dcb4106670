"""Drives a headless Chromium through its debugging pipe: enough to click, type and look at a page."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PATIENCE_S = 60


def find_chromium():
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Browser:
    def __init__(self, program):
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, to_them = os.pipe()
        from_them, to_us = os.pipe()

        def connect():  # it reads commands from 3 and writes answers to 4
            os.dup2(from_us, 103), os.dup2(to_us, 104)
            os.dup2(103, 3), os.dup2(104, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
                 f"--user-data-dir={self.home.name}", "--window-size=1000,900", "about:blank"]
        self.process = subprocess.Popen([program, *flags], preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us), os.close(to_us)
        self.out, self.input = os.fdopen(to_them, "wb", buffering=0), os.fdopen(from_them, "rb", buffering=0)
        self.number, self.pending, self.problems = 0, b"", []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.out.close(), self.input.close()
        self.home.cleanup()

    def _read(self):
        while b"\0" not in self.pending:
            piece = os.read(self.input.fileno(), 1 << 16)
            if not piece:
                raise RuntimeError("the browser is gone")
            self.pending += piece
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        """Errors of scripts and of the console, and requests to other places."""
        name, data = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.problems.append(data["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif name == "Log.entryAdded" and data["entry"]["level"] == "error" and "favicon" not in str(data["entry"]):
            self.problems.append(data["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            url = data["request"]["url"]
            if not url.startswith(("http://127.0.0.1:", "file:", "about:", "data:", "blob:", "chrome:")):
                self.problems.append(f"asked {url}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def eval(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not self.eval(condition):
            assert time.monotonic() < deadline, f"waited in vain for {condition}: {self.eval('document.body.innerText')}"
            time.sleep(0.02)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
