"""What the tests of pages in a real browser have in common.

SCREENSHOTS=FOLDER keeps pictures of all pages that are opened. Skipped where there is no Chromium.
"""

import base64
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path += [str(HERE.parents[1] / "cli"), str(HERE.parents[1] / "server")]
import plain_trace  # noqa: E402, F401, for the tests
import worker  # noqa: E402, F401
from browser import PATIENCE_S, Browser, find_chromium  # noqa: E402

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
MODEL = str(HERE.parents[2] / "models/haiku-llama-q4_k_m.gguf")
HOSTILE = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script><!--\"'&amp;{{}}${window.hacked=1}"


def run(*arguments, status=0):
    out = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert out.returncode == status, out.stdout + out.stderr
    return out.stdout


@unittest.skipUnless(find_chromium(), "no Chromium on this machine")
class PageCase(unittest.TestCase):
    ready = "document.documentElement.dataset.ready === 'true'"

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.root = Path(holder.name)
        cls.browser = Browser(find_chromium())
        cls.addClassCleanup(lambda: cls.browser.__exit__())

    def tearDown(self):
        # A page that stays open asks its worker for news every few seconds, also when the worker has ended: in the next test.
        self.browser.open("about:blank")
        self.assertEqual(self.browser.problems, [])

    def open(self, url, name, width, dark, height):
        browser = self.browser
        browser.problems.clear()
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        browser.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        browser.open(url)
        browser.wait(self.ready)
        self.picture(f"{name}-{width}-{'dark' if dark else 'light'}")

    def take_problem(self, words):
        """The console tells of it, some time after it came about."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [problem for problem in self.browser.problems if words in problem]):
            self.assertLess(time.monotonic(), deadline, f"no problem with {words}: {self.browser.problems}")
            self.browser.eval("0")
        self.browser.problems.remove(found[0])

    def picture(self, name):
        if "SCREENSHOTS" in os.environ:
            self.browser.screenshot(f"{os.environ['SCREENSHOTS']}/{name}.png")

    def text(self, selector):
        return self.browser.eval(f"document.querySelector({selector!r})?.textContent")

    def texts(self, selector):
        return self.browser.eval(f"[...document.querySelectorAll({selector!r})].map(one => one.textContent)")

    def mouse(self, kind, x, y, **more):
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def press(self, key):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def check_narrow(self, width=360):
        self.assertLessEqual(self.browser.eval("document.documentElement.scrollWidth"), width)

    def check_printed(self):
        pdf = base64.b64decode(self.browser.call("Page.printToPDF", printBackground=True)["data"])
        self.assertTrue(pdf.startswith(b"%PDF"))
