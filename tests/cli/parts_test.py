"""`lockstep compare --part` and `--merge` from the outside: on all shipped models the merged result is that of one
machine, byte for byte but for times.

usage: parts_test.py PROGRAM
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import plain_trace

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
MODELS = sorted(Path(__file__).resolve().parents[2].glob("models/*.gguf"))
PARTS = 8


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


def untimed(text):
    """A report without what depends on time."""
    return re.sub(r'"seconds": ?[0-9.e+-]+', '"seconds":0', text)


class PartsTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def record(self, model, folder, device, count=3):
        made = run("run", "-m", model, "-p", "Rain", "-n", count, "--temp", 0, "--device", device, "--trace",
                   self.root / folder, "--checkpoints", "all")  # fmt: skip
        self.assertEqual(made.returncode, 0, made.stderr)
        return self.root / folder

    def parts(self, reference, suspect, *arguments, count=PARTS):
        """The files of all parts. Each is made by a process of its own."""
        files = [self.root / f"{suspect.name}-{count}-{k}.json" for k in range(1, count + 1)]

        def part(k):
            return run("compare", reference, suspect, *arguments, "-t", 1, "--part", f"{k}/{count}", "-o", files[k - 1])

        with ThreadPoolExecutor(2) as pool:
            for done in pool.map(part, range(1, count + 1)):
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return files

    def reports(self, status, *arguments):
        page = self.root / "page.html"
        out = run("compare", *arguments, "--json", "--html", page)
        self.assertEqual(out.returncode, status, out.stderr)
        return untimed(out.stdout), untimed(page.read_text())

    def expect_same(self, status, reference, suspect, model):
        whole = self.reports(status, reference, suspect, "-m", model)
        merged = self.reports(status, "--merge", *self.parts(reference, suspect, "-m", model))
        self.assertEqual(merged[0], whole[0])
        self.assertTrue(merged[1] == whole[1], "the pages differ")

    def test_all_shipped_models_clean_and_wrong(self):
        self.assertGreaterEqual(len(MODELS), 9)
        for index, model in enumerate(MODELS):
            with self.subTest(model=model.stem):
                reference = self.record(model, f"{model.stem}.reference", "reference")
                suspect = self.record(model, f"{model.stem}.cpu", "cpu")
                self.expect_same(0, reference, suspect, model)
                trace = plain_trace.Trace(suspect)
                # One number, the values of one checkpoint twice as large, or a NaN.
                names = [name for name in trace.names if name.startswith("blk.") and "attn_" not in name]
                wrong = names[(7 * index) % len(names)]

                def change(name, tensor, step, index=index, wrong=wrong):
                    if name != wrong:
                        return tensor
                    tensor = tensor.copy()
                    if index % 3 == 0:
                        tensor[tensor.shape[0] - 1, 5] += 3
                    elif index % 3 == 1:
                        tensor.numbers = type(tensor.numbers)("f", (2 * x for x in tensor.numbers))
                    else:
                        tensor[0, 0] = float("nan")
                    return tensor

                bad = plain_trace.copy(trace, self.root / f"{model.stem}.wrong", change)
                self.expect_same(1, reference, bad, model)

    def test_files_that_moved_are_given(self):
        model = MODELS[0]
        reference, suspect = self.record(model, "a", "reference"), self.record(model, "b", "cpu")
        files = self.parts(reference, suspect, "-m", model, "--checkpoints", "layers,logits", "--positions", "0-2")
        whole = run("compare", reference, suspect, "-m", model, "--checkpoints", "layers,logits", "--positions", "0-2",
                    "--json")  # fmt: skip
        merged = run("compare", "--merge", *files, "--json")
        self.assertEqual(untimed(merged.stdout), untimed(whole.stdout))
        moved = reference.rename(self.root / "moved")
        lost = run("compare", "--merge", *files)
        self.assertEqual((lost.returncode, lost.stderr), (2, f"lockstep: {reference}: no such trace or log\n"))
        found = run("compare", moved, suspect, "-m", model, "--merge", *files, "--json")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(untimed(found.stdout), untimed(whole.stdout).replace(f'"{reference}"', f'"{moved}"'))

    def test_logs_are_compared_in_parts(self):
        log = self.root / "log.jsonl"
        made = run("run", "-m", MODELS[0], "-p", "Rain", "-n", 3, "--temp", 0, "--device", "cpu",
                   env={**os.environ, "ORCH_LOG_FILE": str(log), "ORCH_LOG_VALUES": "7"})  # fmt: skip
        self.assertEqual(made.returncode, 0, made.stderr)
        reference = self.record(MODELS[0], "a", "reference")
        whole = run("compare", reference, log, "--json")
        merged = run("compare", "--merge", *self.parts(reference, log, count=3), "--json")
        self.assertEqual(merged.returncode, whole.returncode)
        self.assertEqual(untimed(merged.stdout), untimed(whole.stdout))

    def test_wrong_use_is_told(self):
        model = MODELS[0]
        reference, suspect = self.record(model, "a", "reference"), self.record(model, "b", "cpu")
        files = self.parts(reference, suspect, "-m", model, count=2)

        def told(*arguments):
            out = run("compare", *arguments)
            self.assertEqual((out.returncode, out.stdout), (2, ""))
            return out.stderr.split("\n")[0]

        self.assertEqual(told(), "lockstep: compare: REFERENCE is missing, expected the folder of a trace, or a JSON "
                                 "Lines log; usage: lockstep compare REFERENCE SUSPECT")  # fmt: skip
        self.assertEqual(told(reference), "lockstep: compare: SUSPECT is missing, expected the folder of a trace, or a "
                                          "JSON Lines log; usage: lockstep compare REFERENCE SUSPECT")  # fmt: skip
        self.assertEqual(told("--merge", files[0]), "lockstep: part 2 of 2 is missing")
        self.assertEqual(told("--merge", *files, files[1]),
                         f"lockstep: {files[1]}: part 2 of 2, which {files[1]} is too")  # fmt: skip
        self.assertEqual(told(reference, suspect, "--part", "1/2"), "lockstep compare: --part needs --output")
        self.assertEqual(told(reference, suspect, "--part", "1/2", "-o", self.root / "x", "--html", self.root / "y"),
                         "lockstep compare: --html and --part cannot be given together")  # fmt: skip
        self.assertEqual(told(reference, suspect, "--part", "3/2", "-o", self.root / "x"),
                         "lockstep compare: --part: found '3/2', expected a part such as 2/8, from 1/8 to 8/8")
        self.assertEqual(told("--merge", files[0], "--positions", "1"),
                         "lockstep compare: --positions and --merge cannot be given together")  # fmt: skip
        # Another run into the same folder.
        plain_trace.copy(plain_trace.Trace(suspect), self.root / "again", engine={"name": "another"})
        for file in suspect.iterdir():
            file.unlink()
        for file in (self.root / "again").iterdir():
            file.rename(suspect / file.name)
        self.assertRegex(told("--merge", *files),
                         rf"^lockstep: {re.escape(str(files[0]))}: of another suspect trace: found \w{{64}}, expected")
        files[1].write_text(files[1].read_text()[:-100])
        self.assertRegex(told("--merge", *files), rf"^lockstep: {re.escape(str(files[1]))}: no valid JSON: ")
        document = json.loads(files[0].read_text())
        document["program"] = "lockstep 0.0.0"
        files[0].write_text(json.dumps(document))
        self.assertRegex(told("--merge", files[0]), "of another version of the program: found lockstep 0.0.0, expected")


if __name__ == "__main__":
    unittest.main()
