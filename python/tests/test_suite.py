"""`lockstep.check`: suites of cases as objects."""

import html
import json
import os
import stat
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

import lockstep

PROGRAM = os.environ.get("LOCKSTEP")
MODEL = Path(os.environ.get("LOCKSTEP_MODELS", "")) / "haiku-llama-q4_k_m.gguf"


@unittest.skipIf(not PROGRAM, "no program at hand")
class CheckTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def suite(self, more="", name="a suite.toml"):
        path = self.root / name
        path.write_text(
            'name = "mine"\n[engine.broken]\ncommand = "sh -c \'echo why >&2; exit 3\' {trace}"\n'
            f'[[case]]\nname = "good"\nmodel = "{MODEL}"\ntokens = [[1, 2], [7]]\nn = 1\nsuspects = ["cpu"]\n{more}'
        )
        return path

    def failing(self):
        return self.suite(f'[[case]]\nname = "bad"\nmodel = "{MODEL}"\ntokens = [[5]]\nn = 1\nsuspects = ["broken", "cpu"]\n')

    def test_parity(self):
        output = self.root / "results.json"
        found = lockstep.check(self.suite(), no_cache=True, json=output)
        self.assertTrue(found)
        self.assertEqual((found.name, found.passed, found.failed, found.complete), ("mine", 2, 0, True))
        self.assertEqual([result.id for result in found.results], ["good/0/cpu", "good/1/cpu"])
        self.assertEqual(found.data, json.loads(output.read_text()))
        self.assertEqual((found.failures, found.assert_parity()), ([], found))
        self.assertEqual(str(found), "mine: 2 results: 2 passed")
        self.assertEqual(repr(found), "<lockstep.SuiteResults: mine: 2 results: 2 passed>")

    def test_failures(self):
        page = self.root / "page.html"
        found = lockstep.check(str(self.failing()), no_cache=True, html=page)
        self.assertFalse(found)
        self.assertEqual((found.passed, found.failed, found.errors), (3, 1, 1))
        self.assertEqual([result.id for result in found.failures], ["bad/0/broken"])
        self.assertIn("exit status 3", found.failures[0].reason)
        self.assertIn("why", found.failures[0].output)
        with self.assertRaises(AssertionError) as raised:
            found.assert_parity()
        for words in ("mine: 4 results: 3 passed, 1 failed, 1 of them could not", "\nerror bad/0/broken: ", "exit status 3"):
            self.assertIn(words, str(raised.exception))
        self.assertEqual(found.page, page.read_text())
        self.assertIn(html.escape(found.page, quote=True), found._repr_html_())
        with unittest.mock.patch.dict(sys.modules, pandas=types.SimpleNamespace(DataFrame=list)):
            self.assertEqual([row["status"] for row in found.to_dataframe()], ["passed", "passed", "error", "passed"])

    def test_one_model_without_a_suite(self):
        trace = self.root / "mine.trace"
        lockstep.run(model=MODEL, tokens=[3, 4], max_tokens=2, device="cpu", trace=trace)
        found = lockstep.check(model=MODEL, against=trace, no_cache=True)
        self.assertEqual([result.status for result in found.results], ["passed"])
        self.assertEqual(lockstep.check(model=MODEL, against="cpu", tokens=[3], max_tokens=1, no_cache=True).passed, 1)

    def test_parts(self):
        suite, parts = self.failing(), [self.root / f"part{k}.json" for k in range(1, 4)]
        for k, part in enumerate(parts, 1):
            lockstep.check(suite, part=f"{k}/3", json=part, no_cache=True)
        merged, whole = lockstep.check(parts, merge=True), lockstep.check(suite, no_cache=True)
        self.assertEqual([(r.id, r.status, r.worst_ratio) for r in merged.results],
                         [(r.id, r.status, r.worst_ratio) for r in whole.results])  # fmt: skip
        with self.assertRaisesRegex(lockstep.LockstepError, "part 2 of 3 is missing"):
            lockstep.check([parts[0], parts[2]], merge=True)

    def test_what_the_program_refuses(self):
        for call, words in (
            (lambda: lockstep.check(self.root / "none.toml"), "none.toml"),
            (lambda: lockstep.check(self.suite("bogus = 1\n")), "bogus"),
            (lambda: lockstep.check(), "found no suite"),
            (lambda: lockstep.check(self.suite(), bogus=1), "bogus"),
            (lambda: lockstep.check(self.suite(), model=MODEL), "expected one of both"),
            (lambda: lockstep.check("--merge"), "--merge"),
        ):
            with self.assertRaisesRegex(lockstep.LockstepError, words) as raised:
                call()
            self.assertEqual(raised.exception.status, 2)


class StandInTest(unittest.TestCase):
    """Results that a stand-in for the program leaves."""

    def check(self, body):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stand-in"
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
            with unittest.mock.patch.dict(os.environ, LOCKSTEP=str(path)):
                return lockstep.check("x.toml")

    def test_no_results(self):
        for body, message in (("exit 0", "left no results"), ("kill -9 $$", "ended by signal 9"), ("exit 130", "status 130")):
            with self.subTest(body=body), self.assertRaisesRegex(lockstep.LockstepError, message):
                self.check(body)

    def test_what_is_not_complete_is_no_parity(self):
        data = {"name": "", "passed": 1, "known": 2, "failed": 0, "errors": 0, "complete": False, "jobs": 9, "results": []}
        self.assertFalse(lockstep.SuiteResults(data))
        self.assertTrue(lockstep.SuiteResults({**data, "complete": True}))
        said = lockstep.SuiteResults(data).summary()
        self.assertEqual(said, "suite: 0 results: 1 passed, 2 known\nNot all cases have run: 9 were to.")
        self.assertTrue(lockstep.SuiteResults(data)._repr_html_().startswith("<pre>"))
        with self.assertRaisesRegex(AssertionError, "Not all cases"):
            lockstep.SuiteResults(data).assert_parity()

    def test_the_cause_is_told(self):
        result = {"id": "a/0/b", "status": "failed", "reason": "wrong at blk.0.q",
                  "diagnoses": [{"cause": "rope.base", "proof": "proved", "text": "it has 500000"}]}  # fmt: skip
        data = {"name": "s", "passed": 0, "known": 0, "failed": 1, "errors": 0, "complete": True, "results": [result]}
        said = lockstep.SuiteResults(data).summary().splitlines()
        self.assertEqual(said[1:], ["failed a/0/b: wrong at blk.0.q", "  Cause: rope.base (proved): it has 500000"])


if __name__ == "__main__":
    unittest.main()
