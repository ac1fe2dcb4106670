"""The dashboard in a real browser: what it shows, what can be chosen, and that nothing in it is taken for markup.

usage: dashboard_test.py PROGRAM
SCREENSHOTS and skipping: page_case.py.
"""

import json
import random
import unittest

from page_case import HOSTILE, MODEL, PageCase, plain_trace, run

ENGINES = ("cpu", "llama.cpp", "mine")
MODELS = ("small", "large", "strange")


def result(index, model, engine, status="passed", **more):
    return {"id": f"{model}/0/{engine}", "index": index, "key": "k", "case": model, "model": model, "prompt": "p", "reference": "reference", "suspect": engine,
            "status": status, "verdict": {"passed": "parity", "error": "error"}.get(status, "defect"), "parity": status == "passed", "headline": "h",
            "worst_ratio": {"passed": 0.5, "error": None}.get(status, 40.0), "kl_mean": 1e-6, "known": "why it is known" if status == "known" else None,
            "reason": {"failed": "wrong at blk.0.q", "error": "exit status 3"}.get(status), "seconds": 0.5, "engine_seconds": 0.1, **more}


def document(number, results, **more):
    return {"format": "lockstep-check", "version": 1, "name": "nightly", "program": "lockstep 1", "time": f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00Z",
            "commit": f"{number:040x}", "seconds": 9.5, "suite": "s", "jobs": len(results), "part": None, "complete": True, "results": results, **more}


class Dashboard(PageCase):
    def page(self, name, documents, files={}):
        folder = self.root / name
        folder.mkdir()
        for number, each in enumerate(documents):
            (folder / f"{number:05}.json").write_text(json.dumps(each))
        for file, text in files.items():
            (folder / file).write_text(text)
        run("dashboard", folder, "--out", self.root / f"{name}-out")
        return self.root / f"{name}-out" / "index.html"

    def open(self, page, width=1240, dark=False, height=1500):
        super().open(page.as_uri(), page.parent.name, width, dark, height)

    def matrix(self):
        """{(model, engine): text}."""
        rows = self.browser.eval("[...document.querySelectorAll('#matrix tr')].map(row => [...row.cells].map(cell => cell.textContent))")
        return {(row[0], engine): text for row in rows[1:] for engine, text in zip(rows[0][1:], row[1:])}

    def choose(self, which, number):
        self.browser.eval(f"(() => {{ const box = document.getElementById('{which}'); box.value = '{number}'; box.dispatchEvent(new Event('change')); }})()")

    def rows(self):
        return self.browser.eval("[...document.querySelectorAll('#results tbody tr')].map(row => row.textContent)")

    def three_runs(self):
        def all_of(changed):
            return [result(i, model, engine, **changed.get((model, engine), {})) for i, (model, engine) in enumerate((m, e) for m in MODELS for e in ENGINES)]
        first = all_of({("small", "mine"): {"status": "failed"}, ("large", "llama.cpp"): {"status": "known"}})
        second = all_of({("large", "llama.cpp"): {"status": "known"}})
        third = all_of({("large", "mine"): {"status": "failed"}, ("large", "cpu"): {"worst_ratio": 0.9}, ("strange", "cpu"): {"status": "error"}})[:-1]
        third.append(result(8, "new one", "mine"))
        return [document(number, results) for number, results in enumerate((first, second, third))]

    def test_matrix_changes_and_choice(self):
        page = self.page("three", self.three_runs(), {"broken.json": "{", "foreign.json": "[]"})
        self.open(page)
        self.assertEqual(self.text("h1"), "✕nightly: 7 passed, 1 failed, 1 error")
        self.assertIn("2 worse, 1 larger error, 1 gone, 1 new, 1 better", self.text("#about"))
        shown = self.matrix()
        self.assertEqual(shown["large", "mine"], "✕failed▼ worse")
        self.assertEqual(shown["large", "cpu"], "✓passed▼ larger error")
        self.assertEqual(shown["large", "llama.cpp"], "✓passed▲ better")
        self.assertEqual(shown["strange", "cpu"], "?error▼ worse")
        self.assertEqual(shown["strange", "mine"], "–not run− gone")
        self.assertEqual(shown["new one", "mine"], "✓passed+ new")
        self.assertEqual(shown["small", "mine"], "✓passed")
        self.assertEqual(shown["new one", "cpu"], "")
        self.assertEqual(len(self.rows()), 6, "what changed")
        self.assertIn("wrong at blk.0.q", next(row for row in self.rows() if row.startswith("✕")))
        for file in ("broken.json", "foreign.json"):
            self.assertIn(file, self.text("#problems"))
        # Any run against any other.
        self.choose("run", 1)
        self.assertIn("1 better", self.text("#about"))
        self.assertEqual(self.matrix()["small", "mine"], "✓passed▲ better")
        self.choose("before", 2)
        self.assertEqual(self.matrix()["large", "mine"], "✓passed▲ better")
        self.choose("before", "")
        self.assertEqual(self.matrix()["large", "mine"], "✓passed")
        self.choose("run", 0)
        self.assertIn("It is the first one", self.text("#about"))
        self.assertEqual(self.matrix()["small", "mine"], "✕failed")
        self.assertEqual(self.rows(), [])
        self.choose("kept", "open")
        self.assertEqual([row.split("/")[0] for row in self.rows()], ["✕failedsmall", "≈knownlarge"])
        # A cell narrows what is below, and the button takes that back.
        self.browser.eval("[...document.querySelectorAll('#matrix button')].find(button => button.textContent.includes('failed')).click()")
        self.assertEqual(len(self.rows()), 1)
        self.assertEqual(self.browser.eval("document.activeElement.getAttribute('aria-pressed')"), "true")
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('[data-trend=ratio] .lines span')].map(line => line.textContent)"), ["mine"])
        self.browser.eval("document.getElementById('everything').click()")
        self.assertEqual(len(self.rows()), 2)

    def test_trends_and_keyboard(self):
        self.open(self.page("trends", self.three_runs()))
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('[data-trend]')].map(part => part.dataset.trend)"), ["ratio", "kl", "seconds"])
        self.assertIn("cpu 0.9, llama.cpp 0.5, mine 40", self.text("[data-trend=ratio] .now[role]"))
        self.assertIn("cpu 1.5, llama.cpp 1.5, mine 1.5", self.text("[data-trend=seconds] .now[role]"))
        # Crosses: mine failed in two runs, llama.cpp was known in two, cpu has an error in one.
        self.assertEqual(self.browser.eval("document.querySelectorAll('[data-trend=ratio] .cross').length"), 5)
        self.browser.eval("document.querySelector('[data-trend=kl] svg').focus()")
        for key, number in (("ArrowLeft", 1), ("ArrowLeft", 0), ("ArrowLeft", 0), ("ArrowRight", 1), ("End", 2), ("Home", 0)):
            self.press(key)
            self.assertEqual(self.browser.eval("lockstep.shown.run.number"), number, key)
        box = self.browser.eval("(() => { const plot = document.querySelector('[data-trend=ratio] .plot'); plot.scrollIntoView({block: 'center'}); const b = plot.getBoundingClientRect(); return [b.right - 20, b.top + b.height / 2]; })()")
        self.mouse("mouseMoved", *box)
        self.assertIn("2026-01-01 02:00:00", self.text("[data-trend=ratio] .now[role]"))
        self.click(*box)
        self.assertEqual(self.browser.eval("lockstep.shown.run.number"), 2)
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('button, select, input, a')].filter(one => one.tabIndex < 0).length"), 0)

    def test_suites_and_parts_by_themselves(self):
        documents = [document(0, [result(0, "a", "x")]), document(1, [result(0, "a", "x", "failed")], part={"index": 1, "of": 2}),
                     document(2, [result(0, "b", "x")], name="weekly"), document(3, [result(0, "a", "x")], complete=False)]
        self.open(self.page("suites", documents))
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('#group option')].map(option => option.textContent)"), ["nightly", "weekly", "nightly, part 1 of 2"])
        self.assertIn("ended before its end", self.text("#about"))
        self.assertTrue(self.text("h1").startswith("?"))
        self.browser.eval("(() => { const box = document.getElementById('group'); box.selectedIndex = 2; box.dispatchEvent(new Event('change')); })()")
        self.assertEqual(self.text("h1"), "✕nightly, part 1 of 2: 1 failed")
        self.assertEqual(len(self.rows()), 1)

    def test_reports_of_real_runs(self):
        for name in ("reference", "cpu"):
            run("run", "-m", MODEL, "-p", "Rain", "-n", "4", "--device", name, "--trace", self.root / name, "--checkpoints", "all")
        def corrupt(name, tensor, step):
            if name == "blk.1.ffn_act":
                tensor = tensor.copy()
                tensor[0, 11] += 1
            return tensor
        plain_trace.copy(plain_trace.Trace(self.root / "cpu"), self.root / "wrong", corrupt)
        runs, out = self.root / "real", self.root / "reports"
        for trace, status in (("cpu", 0), ("wrong", 1)):
            run("check", "-m", MODEL, "--against", self.root / trace, "--history", runs, "--out", out / trace, "--no-cache", status=status)
        run("dashboard", runs, "--out", self.root / "public/parity")
        self.open(self.root / "public/parity/index.html")
        self.assertIn("1 failed", self.text("h1"))
        # A long reason begins with its first sentence, and unfolds.
        self.assertRegex(self.text("#results summary"), r"^Not in parity: the suspect is wrong at blk\.1\.ffn_act, position \d+\.$")
        links = self.browser.eval("[...document.querySelectorAll('#results a')].map(link => link.href)")
        self.assertEqual(len(links), 1)
        self.browser.open(links[0])
        self.browser.wait("document.documentElement.dataset.ready === 'true'")
        self.assertIn("blk.1.ffn_act", self.text("h1"))

    def test_hostile_text_stays_text(self):
        odd = {"id": HOSTILE, "model": HOSTILE, "suspect": HOSTILE, "reference": HOSTILE, "verdict": HOSTILE, "reason": HOSTILE, "report": HOSTILE}
        documents = [document(number, [{**result(0, "a", "x", status), **odd}], name=HOSTILE, commit=HOSTILE, program=HOSTILE, time=HOSTILE, reports=HOSTILE)
                     for number, status in enumerate(("passed", "failed", "failed"))]
        self.open(self.page("hostile", documents, {HOSTILE.replace("/", "_")[:40] + ".json": HOSTILE}))
        self.assertIn(HOSTILE, self.text("h1"))
        self.assertIn(HOSTILE, self.text("#matrix th[scope=row]"))
        self.choose("kept", "all")
        self.assertIn(HOSTILE, self.text("#results tbody"))
        self.assertIsNone(self.browser.eval("window.hacked ?? null"))
        self.assertEqual(self.browser.eval("document.querySelectorAll('img, script:not([type=module])').length"), 0)

    def test_empty_dark_narrow_printed(self):
        self.open(self.page("empty", []))
        self.assertEqual(self.text("h1"), "There are no runs yet")
        self.open(self.page("bare", [document(0, [])]))
        self.assertIn("The run has no results", self.text("#matrix"))
        page = self.page("narrow", self.three_runs())
        for dark in (False, True):
            self.open(page, width=360, height=2200, dark=dark)
            self.check_narrow()
        self.open(page, dark=True)
        self.check_printed()

    def test_thousands_of_runs(self):
        chance = random.Random(5)
        documents = [document(number % 600, [result(i, f"model {i // 5}", f"engine {i % 5}", "failed" if chance.random() < 0.1 else "passed", worst_ratio=chance.random())
                                             for i in range(30)], time=f"2026-01-01T00:{number:05}") for number in range(2100)]
        page = self.page("thousands", documents)
        print(f"thousands: {page.stat().st_size / 1e6:.1f} MB of page", end=", ")
        self.open(page)
        print(f"{self.browser.eval('performance.now() / 1000'):.2f} s")
        self.assertEqual(self.browser.eval("lockstep.dashboard.runs.length"), 2000)
        self.assertIn("100 older files", self.text("#problems"))
        self.assertLess(page.stat().st_size, 20e6)
        self.assertLess(self.browser.eval("document.querySelectorAll('*').length"), 30000)
        self.choose("run", 700)
        self.assertEqual(self.browser.eval("lockstep.shown.run.number"), 700)


if __name__ == "__main__":
    unittest.main()
