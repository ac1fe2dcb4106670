"""Suites by `lockstep.ray`, without Ray: what a node does, and what the machine does that a run was started on."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import lockstep
import lockstep._ray_compare
import lockstep.ray
from lockstep import _ray_task
from lockstep._ray_task import Outcome, Part, SentFile

PROGRAM = os.environ.get("LOCKSTEP")
MODEL = Path(os.environ.get("LOCKSTEP_MODELS", "")) / "haiku-llama-q4_k_m.gguf"


def same(content):
    return content


class FilesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def test_what_was_sent_is_made_once(self):
        fetched = []

        def fetch(content):
            fetched.append(content)
            return content

        files = [SentFile("a b/c", 0o755, "1", b"#!"), SentFile("empty", 0o600, "2", b"")]
        with unittest.mock.patch.object(tempfile, "tempdir", str(self.root)):
            place = _ray_task.unpack(files, fetch)
            self.assertEqual(_ray_task.unpack(files, fetch), place)
            self.assertEqual(fetched, [b"#!", b""])
            self.assertEqual((place / "a b/c").read_bytes(), b"#!")
            self.assertEqual((place / "a b/c").stat().st_mode & 0o777, 0o755)
            self.assertNotEqual(_ray_task.unpack(files[:1], fetch), place)
            with self.assertRaises(ZeroDivisionError):  # half of it is not taken for the whole
                _ray_task.unpack([files[0], SentFile("x", 0o600, "3", 0)], lambda content: content or 1 / 0)
            self.assertTrue((_ray_task.unpack([files[0], SentFile("x", 0o600, "3", b"y")], fetch) / "x").exists())
            place.parent.chmod(0o777)
            with self.assertRaisesRegex(RuntimeError, "others may write"):
                _ray_task.unpack(files, fetch)

    def test_moved(self):
        new = Path("/new")
        for path, expected in (("/old/a/b", "/new/a/b"), ("/old", "/new"), ("/older/a", "/older/a"), ("/a", "/a")):
            self.assertEqual(_ray_task.moved(path, "/old", new), expected)
        self.assertEqual(_ray_task.moved_option("--goldens=/old/g", "/old", new), "--goldens=/new/g")
        self.assertEqual(_ray_task.moved_option("--threads=2", "/old", new), "--threads=2")
        self.assertEqual(_ray_task.moved_option("--no-cache", "/old", new), "--no-cache")

    def test_pages_come_back_before_traces(self):
        for case, sizes in (("a/0/x", {"report.html": 10, "suspect.trace/1": 50}), ("b/0/x", {"output.txt": 7})):
            for name, size in sizes.items():
                path = self.root / case / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(size))
        for limit, names, left_out in (
            (67, {"a/0/x/report.html", "b/0/x/output.txt", "a/0/x/suspect.trace/1"}, []),
            (66, {"a/0/x/report.html", "b/0/x/output.txt"}, ["a/0/x/suspect.trace"]),
            (16, {"a/0/x/report.html"}, ["b/0/x/output.txt", "a/0/x/suspect.trace"]),
        ):
            outcome = Outcome(b"")
            _ray_task.collect(self.root, ["a/0/x", "b/0/x", "none/0/x"], limit, outcome)
            self.assertEqual(({name for name, _ in outcome.files}, outcome.left_out), (names, left_out))


class SuiteTest(unittest.TestCase):
    """A suite of three prompts, with an engine that is right and one that is broken."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        suite = self.root / "suite.toml"
        suite.write_text(
            f'[engine.broken]\ncommand = "false {{trace}}"\n[[case]]\nmodel = "{MODEL}"\ntokens = [[1], [2], [3]]\nn = 1\n'
            'checkpoints = "logits"\nname = "c"\nsuspects = ["cpu", "broken"]\n'
        )
        self.values = {"index": 2, "of": 2, "suite": str(suite), "folder": str(self.root), "program": PROGRAM,
                       "version": lockstep.check(suite, give_up="not run", no_cache=True).program,
                       "options": ["--no-cache"], "commit": "0123456789abcdef"}  # fmt: skip


@unittest.skipIf(not PROGRAM, "no program at hand")
class PartTest(SuiteTest):
    def run_part(self, **more):
        return _ray_task.run_part(Part(**{**self.values, **more}), same)

    def test_a_part(self):
        outcome = self.run_part(out=str(self.root / "out"), return_bytes=10**9)
        found = json.loads(outcome.results)
        told = [(one["id"], one["status"]) for one in found["results"]]
        ends = (("cpu", "passed"), ("broken", "error"))
        self.assertEqual(told, [(f"c/{i}/{name}", status) for i in (1, 2) for name, status in ends])
        self.assertEqual((found["commit"], found["part"]), ("0123456789abcdef", {"index": 2, "of": 2}))
        self.assertEqual((outcome.shared, (self.root / "out").exists()), (False, False))
        (self.root / "mark").touch()
        outcome = self.run_part(out=str(self.root / "out"), mark=str(self.root / "mark"))
        self.assertEqual((outcome.shared, outcome.files, (self.root / "out").exists()), (True, [], True))

    def test_it_goes_on(self):
        first = json.loads(self.run_part().results)
        first["results"][0]["seconds"] = 12345
        again = json.loads(self.run_part(resume=json.dumps(first).encode()).results)
        self.assertEqual(again["results"][0]["seconds"], 12345)

    def test_what_was_sent_runs(self):
        files = [SentFile("suite.toml", 0o600, "x", Path(self.values["suite"]).read_bytes())]
        Path(self.values["suite"]).unlink()
        with unittest.mock.patch.object(tempfile, "tempdir", str(self.root)):
            found = json.loads(self.run_part(sent=files, sent_from=str(self.root)).results)
        self.assertEqual(len(found["results"]), 4)

    def test_no_results(self):
        for more, words in (
            ({"suite": "/nowhere/suite.toml"}, "/nowhere/suite.toml is not there: .*--send"),
            ({"folder": "/nowhere"}, "/nowhere is not there"),
            ({"version": "lockstep 77"}, "expected lockstep 77"),
            ({"options": ["--bogus"]}, "bogus"),
            ({"index": 3}, "expected a part"),
        ):
            with self.subTest(more=more), self.assertRaisesRegex(RuntimeError, words):
                self.run_part(**more)
        with unittest.mock.patch.dict(os.environ, {"PATH": "/nowhere", "LOCKSTEP": ""}):
            with self.assertRaisesRegex(RuntimeError, "the program is not there"):
                self.run_part(program="/nowhere/lockstep")


@unittest.skipIf(not PROGRAM, "no program at hand")
class DriverTest(SuiteTest):
    """The machine that the run was started on, with parts that run in its own process."""

    def driver(self, *more):
        work = Path(tempfile.mkdtemp(dir=self.root))
        return lockstep.ray.Run(lockstep.ray.parse([self.values["suite"], *more]), work)

    def run_all(self, run):
        """Parts that come in another order than the suite's; the merge's exit status."""
        with contextlib.redirect_stdout(io.StringIO()) as said:
            for part in reversed(run.parts(same, None)):
                run.take(part.index, _ray_task.run_part(part, same))
            return run.merge(partial=False), said.getvalue()

    def test_what_comes_back_without_shared_storage(self):
        out, output = self.root / "out", self.root / "results.json"
        stale = out / "c/0/cpu/report.html"
        stale.parent.mkdir(parents=True)
        stale.write_text("of an earlier run")
        Path(self.values["suite"]).write_text(Path(self.values["suite"]).read_text().replace("false", "sh -c 'echo why; exit 3'"))
        run = self.driver("--no-cache", f"--out={out}", f"--json={output}")
        self.assertEqual(run.count, 3)
        status, said = self.run_all(run)
        self.assertEqual(status, 1)
        self.assertIn("[6/6] error  c/0/broken  the program ended with exit status 3", said)
        files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
        self.assertEqual(files, [f"c/{i}/broken/output.txt" for i in range(3)])
        whole = lockstep.check(self.values["suite"], no_cache=True)
        told = json.loads(output.read_text())
        names = ("id", "index", "key", "status", "verdict", "worst_ratio", "kl_mean", "coverage", "reason", "output")
        self.assertEqual(*([[one[name] for name in names] for one in results] for results in (told["results"], whole.results)))

    def test_traces_that_are_too_large_stay(self):
        Path(self.values["suite"]).write_text(Path(self.values["suite"]).read_text().replace("false", "sh -c 'echo why; exit 3'"))
        status, said = self.run_all(self.driver("--no-cache", f"--out={self.root / 'out'}", "--return-limit=0", "--parts=2"))
        self.assertEqual((status, said.count("stayed on its node")), (1, 3))

    def test_given_up_and_partial(self):
        output = self.root / "results.json"
        run = self.driver("--no-cache", f"--json={output}")
        with contextlib.redirect_stdout(io.StringIO()):
            run.give_up(2, "part 2 of 3 failed: <no> memory")
            run.merge_some()
        self.assertEqual([one["id"] for one in json.loads(output.read_text())["results"]], ["c/1/cpu", "c/1/broken"])
        self.assertEqual(run.merge(partial=True), 1)
        found = json.loads(output.read_text())
        self.assertEqual((found["complete"], found["results"][0]["reason"]), (False, "part 2 of 3 failed: <no> memory"))

    def test_missing_resources(self):
        told = ((True, {"CPU": 2.0, "memory": 1e9}), (False, {"CPU": 8.0, "GPU": 1.0}), (True, {}))
        nodes = [{"Alive": alive, "Resources": resources} for alive, resources in told]
        for needed, words in (
            ({"num_cpus": 2, "num_gpus": 0}, ""),
            ({"num_cpus": 0.5, "num_gpus": 0, "memory": 2e9}, "(CPU 0.5, memory 2e+09)"),
            ({"num_cpus": 1, "num_gpus": 1}, "(CPU 1, GPU 1)"),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                lockstep.ray.tell_missing(nodes, needed)
            self.assertIn(words, said.getvalue())
            self.assertEqual(said.getvalue() == "", words == "")

    def test_places_for_tasks(self):
        told = ((True, {"CPU": 5.0, "memory": 3e9}), (False, {"CPU": 64.0}), (True, {"CPU": 2.0, "GPU": 2.0, "memory": 9e9}))
        nodes = [{"Alive": alive, "Resources": resources} for alive, resources in told]
        for needed, places in (
            ({"num_cpus": 1, "num_gpus": 0}, 7),
            ({"num_cpus": 2, "num_gpus": 0}, 3),
            ({"num_cpus": 0.5, "num_gpus": 0}, 14),
            ({"num_cpus": 1, "num_gpus": 1}, 2),
            ({"num_cpus": 1, "num_gpus": 0, "memory": 2e9}, 3),
            ({"num_cpus": 0, "num_gpus": 0}, 7),
            ({"num_cpus": 99, "num_gpus": 0}, 1),
        ):
            self.assertEqual(lockstep.ray.places(nodes, needed), places, needed)

    def test_one_comparison_in_parts(self):
        for device in ("reference", "cpu"):
            lockstep.run(model=MODEL, tokens=[5, 7, 9], max_tokens=2, device=device, trace=self.root / device)
        traces = [str(self.root / "reference"), str(self.root / "cpu")]
        page = self.root / "page.html"
        given = lockstep._ray_compare.parse([*traces, "-m", str(MODEL), f"--html={page}", "--checkpoints=layers,logits"])
        files = []
        parts = lockstep._ray_compare.parts_of(given, 3)
        for part in reversed(parts):
            files.append(self.root / f"{part.index}.json")
            files[-1].write_bytes(_ray_task.run_compare(part))
        self.assertEqual(json.loads(files[0].read_text())["part"], {"index": 3, "of": 3})
        self.assertEqual(lockstep._ray_compare.merge(given, files), 0)
        self.assertTrue(page.exists())
        self.assertEqual([part.name() for part in parts], ["part 1 of 3", "part 2 of 3", "part 3 of 3"])
        parts[0].arguments[1] = "nowhere"
        with self.assertRaisesRegex(RuntimeError, "nowhere: no such file or folder"):
            _ray_task.run_compare(parts[0])
        parts[0].folder = "/nowhere"
        with self.assertRaisesRegex(RuntimeError, "/nowhere is not there: put it on storage that all nodes share"):
            _ray_task.run_compare(parts[0])
        for more in (["--retries=-1"], ["--parts=0"], ["third"]):
            with self.subTest(more=more), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as ended:
                lockstep._ray_compare.parse(["a", "b", *more])
            self.assertEqual(ended.exception.code, 2)

    def test_wrong_use(self):
        for more in (["--retries=-1"], ["--num-cpus=nan"], ["--parts=0"], ["--bogus"], ["second.toml"]):
            with self.subTest(more=more), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as ended:
                lockstep.ray.parse(["suite.toml", *more])
            self.assertEqual(ended.exception.code, 2)
        with self.assertRaisesRegex(lockstep.LockstepError, "GB, expected 0 at most"):
            self.driver(f"--send={self.root}", "--send-limit=0").parts(same, None)
        with unittest.mock.patch.dict(sys.modules, ray=None), contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(lockstep.ray.main(["suite.toml"]), 2)
        self.assertIn("pip install ray", said.getvalue())


if __name__ == "__main__":
    unittest.main()
