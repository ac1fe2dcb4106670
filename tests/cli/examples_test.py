"""examples/record.cpp compiles by itself, with nothing but include/, and everything of ours reads what it writes.

usage: examples_test.py PROGRAM
With the Python package and numpy at hand (tests/cli/with_python_package.py) its reader is tried too.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ.get("LOCKSTEP") or str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
CHECKPOINTS = {"embedding": 16, "final_norm": 16, "logits": 40}
PROMPT = [3, 1, 4, 1, 5]

try:
    import lockstep
except ImportError:
    lockstep = None


def run(*command, status=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.holder.name)
        cls.example = cls.root / "record"
        run("g++", "-std=c++17", *WARNINGS, "-I", ROOT / "include", ROOT / "examples/record.cpp", "-o", cls.example)
        cls.trace = cls.root / "toy.trace"
        cls.tokens = PROMPT + [int(line) for line in run(cls.example, cls.trace).split()]

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def test_other_compilers_and_standards(self):
        if lockstep is not None:
            self.skipTest("done where the package is not at hand")
        source = ROOT / "examples/record.cpp"
        builds = [("g++", "-std=c++20"), ("g++", "-std=c++17", "-fno-exceptions", "-fno-rtti")]
        if shutil.which("clang++"):
            builds += [("clang++", "-std=c++17")]
        for number, build in enumerate(builds):
            with self.subTest(build=build):
                program, trace = self.root / f"record{number}", self.root / f"trace{number}"
                run(*build, *WARNINGS, "-Wpedantic", "-I", ROOT / "include", source, "-o", program)
                self.assertEqual(PROMPT + [int(line) for line in run(program, trace).split()], self.tokens)
                outcome = json.loads(run(PROGRAM, "compare", "--json", self.trace, trace))
                self.assertEqual(outcome["coverage"], 1)
                self.assertTrue(outcome["tokens"]["agree"])

    def test_scan(self):
        self.assertTrue(json.loads(run(PROGRAM, "scan", "--json", self.trace))["clean"])
        self.assertIn("no garbage in 36 rows of 3 checkpoints", run(PROGRAM, "scan", self.trace))

    def test_compare(self):
        again = self.root / "again"
        run(self.example, again)
        outcome = json.loads(run(PROGRAM, "compare", "--json", self.trace, again))
        self.assertEqual((outcome["parity"], outcome["verdict"], outcome["coverage"]), (True, "exact", 1))
        # One number of one logit off in the last place is found.
        shards = sorted(again.glob("*.safetensors"))
        data = bytearray(shards[-1].read_bytes())
        data[-4] ^= 1
        shards[-1].write_bytes(data)
        outcome = json.loads(run(PROGRAM, "compare", "--json", self.trace, again))
        self.assertNotEqual(outcome["verdict"], "exact")

    def test_export(self):
        log = self.root / "log.jsonl"
        run(PROGRAM, "export", self.trace, "--jsonl", log, "--values", "40")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(len(rows), len(CHECKPOINTS) * (len(self.tokens) - 1))
        for row in rows:
            self.assertEqual(row["team"], "toy")
            self.assertEqual(len(row["values"]), CHECKPOINTS[row["checkpoint"]])
            if row["checkpoint"] == "logits" and row["token_idx"] >= len(PROMPT) - 1:
                best = row["values"].index(max(row["values"]))
                self.assertEqual(best, self.tokens[row["token_idx"] + 1])

    def test_an_existing_trace_is_not_written_over(self):
        before = {path.name: path.read_bytes() for path in self.trace.iterdir()}
        done = subprocess.run([self.example, self.trace], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not empty; a trace is never written over", done.stderr)
        self.assertEqual({path.name: path.read_bytes() for path in self.trace.iterdir()}, before)

    @unittest.skipIf(lockstep is None, "without the Python package")
    def test_python(self):
        trace = lockstep.open_trace(self.trace)
        self.assertTrue(trace.complete)
        self.assertEqual(trace.tokens.tolist(), self.tokens)
        self.assertEqual(trace.n_prompt, len(PROMPT))
        self.assertEqual({name: trace.checkpoints[name].width for name in trace}, CHECKPOINTS)
        for name in trace:
            self.assertEqual(trace.positions(name).tolist(), list(range(len(self.tokens) - 1)))
        rms = (trace["final_norm"].astype("f8") ** 2).mean(axis=1)
        self.assertLess(abs(rms - 1).max(), 1e-3)
        chosen = trace["logits"].argmax(axis=1)[len(PROMPT) - 1 :]
        self.assertEqual(chosen.tolist(), self.tokens[len(PROMPT) :])


if __name__ == "__main__":
    unittest.main()
