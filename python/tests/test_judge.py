"""`lockstep.compare`, `run`, `doctor`, `assert_parity` and the plugin of pytest: what the program says, as objects."""

import contextlib
import html
import json
import os
import stat
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import lockstep
from lockstep import _judge, _program

try:
    import pytest
except ImportError:
    pytest = None

PROGRAM = os.environ.get("LOCKSTEP")
MODEL = Path(os.environ.get("LOCKSTEP_MODELS", "")) / "haiku-llama-q4_k_m.gguf"
PROMPT = [635, 326, 276, 294]


def copy_with(source, folder, change):
    """The trace again, written by us, after `change` of its values."""
    trace = lockstep.open_trace(source)
    engine = {key: trace.manifest["engine"][key] for key in ("name", "version")}
    with lockstep.TraceWriter(folder, engine=engine, precision=trace.manifest["engine"]["precision"], model=MODEL,
                              tokens=trace.tokens, n_prompt=trace.n_prompt, sampling={"temperature": 0}) as out:  # fmt: skip
        for index, step in enumerate(trace.steps):
            values = {name: np.array(trace.value(name, index)) for name in trace}
            change(values)
            out.step(step.first_position, values)
    return Path(folder)


@unittest.skipIf(not PROGRAM, "no program at hand")
class JudgeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.root = Path(holder.name)
        cls.good = cls.root / "good trace"
        cls.made = lockstep.run(model=MODEL, tokens=PROMPT, max_tokens=3, device="reference", trace=cls.good)

        def spoil(values):
            values["blk.1.v"][0, 3] += 1

        cls.bad = copy_with(cls.good, cls.root / "bad", spoil)

    def test_run(self):
        self.assertEqual(self.made.prompt_tokens, PROMPT)
        self.assertEqual(len(self.made.tokens), 3)
        self.assertEqual(self.made.trace.tokens.tolist(), PROMPT + self.made.tokens)
        self.assertEqual(str(self.made), self.made.text)
        told = lockstep.run("-p it's odd\n", model=MODEL, max_tokens=2, temp=0.5, seed=3)
        self.assertIsNone(told.trace)
        self.assertEqual(told.text, lockstep.run("-p it's odd\n", model=MODEL, max_tokens=2, temp=0.5, seed=3)["text"])
        for wrong in ({}, {"prompt": "a", "tokens": [1]}):
            with self.assertRaisesRegex(ValueError, "^run: give a prompt or tokens$"):
                lockstep.run(**wrong)
        for wrong, message in (
            ({"prompt": [1, 2]}, "^run: the prompt is of type list, expected a text; token ids go by tokens=$"),
            ({"tokens": [1.5]}, r"^run: tokens: expected whole numbers in a row, such as \[1, 2, 3\]$"),
            ({"tokens": [[1, 2]]}, "^run: tokens: expected whole numbers"),
            ({"tokens": 7}, "^run: tokens: expected whole numbers"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                lockstep.run(model=MODEL, **wrong)
        self.assertEqual(lockstep.run(model=MODEL, tokens=np.array(PROMPT), max_tokens=3).tokens, self.made.tokens)

    def test_parity(self):
        for pair in ((self.good, self.good), (str(self.good), lockstep.open_trace(self.good))):
            found = lockstep.compare(*pair)
            self.assertTrue(found)
            self.assertEqual((found.parity, found.verdict, found.coverage), (True, "exact", 1))
            self.assertEqual((found.diagnoses, found.cause, found.first_defect), ([], None, None))
        self.assertTrue(lockstep.assert_parity(self.good, self.good, MODEL, threads=1).parity)

    def test_a_defect(self):
        found = lockstep.compare(self.good, self.bad, model=MODEL, checkpoints="ops", positions=[0, 1])
        self.assertFalse(found)
        self.assertEqual((found.first_defect.checkpoint, found["first_defect"]["side"]), ("blk.1.v", "suspect"))
        self.assertEqual(found.checkpoints[0].name, "embedding")
        self.assertIn(found.headline, repr(found))
        with self.assertRaisesRegex(AttributeError, "no 'nothing'; fields are parity, "):
            _ = found.nothing
        with self.assertRaises(AssertionError) as raised:
            lockstep.assert_parity(self.good, self.bad)
        for words in (found.headline.split(",")[0], "blk.1.v", "element 3", "suspect"):
            self.assertIn(words, str(raised.exception))
        self.assertIn("parity", dir(found))
        self.assertEqual(json.loads(json.dumps(found.data))["verdict"], found.verdict)

    def test_the_page(self):
        found = lockstep.compare(self.good, self.bad)
        self.assertTrue(found.page.lstrip().lower().startswith("<!doctype html"))
        shown = found._repr_html_()
        self.assertTrue(shown.startswith('<iframe srcdoc="') and "sandbox" in shown)
        self.assertIn(html.escape(found.page, quote=True), shown)
        self.assertEqual(lockstep.Comparison({"headline": "<b>"})._repr_html_(), "<pre>&lt;b&gt;</pre>")
        kept = self.root / "kept.html"
        self.assertEqual(lockstep.compare(self.good, self.bad, html=kept).page, kept.read_text(encoding="utf-8"))
        self.assertIn("blk.1.v", lockstep.doctor(self.bad, html=str(kept), json=False).page)

    def test_a_folder_that_looks_like_an_option(self):
        (self.root / "-x.trace").symlink_to(self.bad)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)
        self.assertFalse(lockstep.compare("good trace", "-x.trace"))
        self.assertFalse(lockstep.doctor(lockstep.open_trace("-x.trace")))

    def test_to_dataframe(self):
        found = lockstep.compare(self.good, self.bad)
        with unittest.mock.patch.dict(sys.modules, pandas=types.SimpleNamespace(DataFrame=list)):
            rows = found.to_dataframe()
        self.assertEqual([row["name"] for row in rows], [c.name for c in found.checkpoints])
        self.assertEqual(rows[0]["suspect.own_error"], found.checkpoints[0].suspect.own_error)
        self.assertEqual(rows[0]["suspect.values.nan"], found.checkpoints[0].suspect.values.nan)
        with unittest.mock.patch.dict(sys.modules, pandas=None), self.assertRaisesRegex(ImportError, "needs pandas"):
            found.to_dataframe()

    def test_what_the_program_refuses(self):
        for call in (
            lambda: lockstep.compare(self.good, self.root / "none"),
            lambda: lockstep.compare(self.good, self.bad, model=self.root / "none.gguf"),
            lambda: lockstep.run("x", model="none"),
        ):
            with self.assertRaisesRegex(lockstep.LockstepError, "none") as raised:
                call()
            self.assertEqual(raised.exception.status, 2)
            self.assertNotIn("'lockstep help", str(raised.exception))
        for text in ("a\0b", "a\ud800b"):
            with self.assertRaisesRegex(lockstep.LockstepError, "^lockstep run: a text that no program can be given: "):
                lockstep.run(text, model=MODEL)
        with self.assertRaisesRegex(TypeError, r"^check: suite=5; expected the file of a suite"):
            lockstep.check(5)
        with self.assertRaisesRegex(lockstep.LockstepError, "bogus"):
            lockstep.compare(self.good, self.good, bogus=1)
        for call in (lockstep.compare, lockstep.assert_parity, lockstep.doctor):
            with self.assertRaisesRegex(TypeError, r"^found ndarray, expected a trace: its folder, an opened trace"):
                call(self.good, np.zeros(3))

    @unittest.skipIf(pytest is None, "pytest is not installed")
    def test_the_plugin(self):
        folder = self.root / "tests"
        folder.mkdir(exist_ok=True)
        (folder / "test_it.py").write_text(
            f"def test_good(lockstep_parity):\n    for _ in range(2):\n"
            f"        assert lockstep_parity({str(self.good)!r}, {str(self.good)!r}).parity\n"
            f"def test_bad(lockstep_parity):\n    lockstep_parity({str(self.good)!r}, {str(self.bad)!r})\n"
        )
        (folder / "test_record.py").write_text(
            "import contextlib, shutil, types\nimport lockstep\n"
            "def test_record(lockstep_record, lockstep_parity, monkeypatch):\n"
            "    @contextlib.contextmanager\n"
            "    def stand_in(model, folder, **options):\n"
            "        assert options == {'gguf': 'x'}\n"
            "        yield types.SimpleNamespace(folder=folder)\n"
            "        shutil.copytree(model, folder)\n"
            "    monkeypatch.setattr(lockstep, 'record', stand_in)\n"
            "    calls = []\n"
            f"    traces = [lockstep_record({str(self.good)!r}, lambda: calls.append(1), gguf='x') for _ in range(2)]\n"
            "    assert len(calls) == 2 and lockstep_parity(*traces).verdict == 'exact'\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--lockstep-report={folder / 'pages'}"]
        found = subprocess.run([sys.executable, "-c", "import importlib.metadata as m; print([e.name for e in "
                                "m.entry_points(group='pytest11')])"], capture_output=True, text=True).stdout  # fmt: skip
        if "lockstep" not in found:  # not installed
            command += ["-p", "lockstep.pytest_plugin"]
        done = subprocess.run([*command, folder], capture_output=True, text=True)
        self.assertIn("1 failed, 2 passed", done.stdout, done.stdout + done.stderr)
        self.assertIn("the suspect is wrong at blk.1.v", done.stdout)
        self.assertNotIn("pytest_plugin.py", done.stdout)
        self.assertEqual(sorted(page.name.rpartition("test_it.py_")[2] for page in (folder / "pages").glob("*test_it*.html")),
                         ["test_bad.html", "test_good.2.html", "test_good.html"])  # fmt: skip
        self.assertEqual(len(list((folder / "pages").glob("*.html"))), 4)


class ProgramTest(unittest.TestCase):
    """The program found and called, with stand-ins for it."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    @contextlib.contextmanager
    def stand_in(self, body):
        path = self.root / "stand-in"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        with unittest.mock.patch.dict(os.environ, LOCKSTEP=str(path)):
            yield

    def test_flags(self):
        given = {"min_coverage": 0.5, "positions": range(2), "no_mmap": True, "off": False, "none": None, "p": Path("a b"),
                 "rows": np.arange(3), "top": np.float64(0.25)}  # fmt: skip
        wanted = ["--min-coverage=0.5", "--positions=0,1", "--no-mmap", "--p=a b", "--rows=0,1,2", "--top=0.25"]
        self.assertEqual(_judge.flags_of(given), wanted)

    def test_messages(self):
        for body, message in (
            ("echo 'lockstep: a trace is missing' >&2; exit 2", "^a trace is missing$"),
            ("exit 2", "lockstep doctor ended with the status 2"),
            ("kill -9 $$", "was ended by signal 9"),
            ("echo text", "printed no JSON"),
            ("echo '[]'", "printed no JSON object"),
        ):
            with self.subTest(body=body), self.stand_in(body), self.assertRaisesRegex(lockstep.LockstepError, message):
                lockstep.doctor("x.trace")

    def test_doctor(self):
        told = {"parity": False, "headline": "Not in parity", "first_defect": None,
                "diagnoses": [{"cause": "rope.base", "proof": "proved", "text": "it has 500000"}]}  # fmt: skip
        (self.root / "told.json").write_text(json.dumps(told))
        page = self.root / "page"
        page.write_text("<p>")
        with self.stand_in(f"echo \"$@\" > '{self.root}/arguments'; cat '{self.root}/told.json'; exit 1"):
            found = lockstep.doctor("a", "-b", model="m.gguf", depth=2, html=page)
        self.assertEqual((self.root / "arguments").read_text(),
                         f"doctor a ./-b --model=m.gguf --depth=2 --html={page} --json\n")  # fmt: skip
        self.assertEqual(found.diagnoses[0].cause, "rope.base")
        self.assertEqual(found.summary(), "Not in parity\nCause: rope.base (proved): it has 500000")
        self.assertTrue(found._repr_html_().startswith('<iframe srcdoc="&lt;p&gt;"'))

    def test_where_the_program_is(self):
        with self.stand_in("exit 0"):
            self.assertEqual(lockstep.find_program(), self.root / "stand-in")
        with unittest.mock.patch.dict(os.environ, LOCKSTEP=str(self.root / "none")):
            with self.assertRaisesRegex(lockstep.LockstepError, "LOCKSTEP=.*none: no program is there"):
                lockstep.find_program()
        bare = unittest.mock.patch.dict(os.environ, {"PATH": str(self.root)})
        for place, program in (("site/lockstep", "site/lockstep/bin"), ("share/lockstep/python/lockstep", "bin"),
                               ("tree/python/lockstep", "tree/build")):  # fmt: skip
            file, wanted = self.root / place / "_program.py", self.root / program / "lockstep"
            file.parent.mkdir(parents=True)
            (self.root / "tree").mkdir(exist_ok=True)
            (self.root / "tree" / "CMakeLists.txt").write_text("")
            with bare, unittest.mock.patch.object(_program, "__file__", str(file)):
                os.environ.pop("LOCKSTEP", None)
                self.assertIsNone(lockstep.find_program())
                with self.assertRaisesRegex(lockstep.LockstepError, "pip install"):
                    _program.program()
                wanted.parent.mkdir(parents=True)
                wanted.write_text("")
                self.assertIsNone(lockstep.find_program())
                wanted.chmod(0o755)
                self.assertEqual(lockstep.find_program(), wanted.resolve())


if __name__ == "__main__":
    unittest.main()
