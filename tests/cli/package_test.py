"""Traces that cross between the program and the Python package: each reads what the other wrote.

Run by with_python_package.py, which installs the `lockstep` package and sets LOCKSTEP (the program) and LOCKSTEP_MODELS.
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import lockstep

PROGRAM = os.environ["LOCKSTEP"]
MODEL = os.path.join(os.environ["LOCKSTEP_MODELS"], "haiku-llama-q4_k_m.gguf")


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.root = Path(holder.name)
        cls.original = cls.root / "original"
        run("run", "-m", MODEL, "-p", "Write a haiku about snow", "-n", "6", "--device", "reference", "--trace",
            cls.original, "--checkpoints", "all")
        cls.trace = lockstep.open_trace(cls.original)

    def test_python_reads_what_the_recorder_wrote(self):
        trace = self.trace
        self.assertTrue(trace.complete)
        self.assertEqual(trace.n_prompt + 6, len(trace.tokens))
        positions = list(range(len(trace.tokens) - 1))
        self.assertEqual(trace.positions("logits").tolist(), positions)
        self.assertEqual(trace["logits"].dtype, np.float64)
        for position in positions[trace.n_prompt - 1:]:
            self.assertEqual(int(trace.row("logits", position).argmax()),
                             int(trace.tokens[position + 1]))
        for position in positions:
            probs = trace.row("blk.0.attn_probs", position)
            np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_array_equal(
            trace["blk.0.attn_residual"] + trace["blk.0.ffn_out"], trace["blk.0.output"])

    def test_a_copy_by_the_python_writer_is_exact(self):
        trace, folder = self.trace, self.root / "copy"
        engine = trace.manifest["engine"]
        with lockstep.TraceWriter(folder, engine={key: engine[key] for key in ("name", "version", "device")},
                                  precision=engine["precision"], model=MODEL, tokens=trace.tokens,
                                  n_prompt=trace.n_prompt) as out:  # fmt: skip
            for index, step in enumerate(trace.steps):
                out.step(step.first_position, {name: trace.value(name, index) for name in trace})
        self.assertEqual(lockstep.open_trace(folder).manifest["model"]["path"], str(Path(MODEL).resolve()))
        for pair in ((self.original, folder), (folder, self.original), (folder, folder)):
            found = json.loads(run("compare", *pair, "--json"))
            self.assertEqual((found["parity"], found["verdict"]), (True, "exact"))
            self.assertEqual((found["coverage"], found["judged"]), (1, 1))


if __name__ == "__main__":
    unittest.main()
