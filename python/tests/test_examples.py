"""The engines of examples/ have the bugs that they say, and are right without them; the notebook runs from top to bottom."""

import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import lockstep

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # as in test_record.py
try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf("LOCKSTEP" not in os.environ, "no program at hand")
class ExamplesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def check(self, engine, checkpoint, position):
        for flags in ((), ("--fixed",)):
            folder = self.root / f"traces{len(flags)}"
            done = subprocess.run([sys.executable, "-B", EXAMPLES / engine, folder, *flags], capture_output=True, text=True)
            found = lockstep.compare(folder / "truth.trace", folder / "mine.trace")
            self.assertEqual(done.returncode, 0 if flags else 1, done.stderr)
            self.assertEqual(done.stdout.strip(), str(found))
            self.assertEqual((found.parity, found.coverage, found.judged), (bool(flags), 1, 1))
            if not flags:
                defect = found.first_defect
                self.assertEqual((defect.checkpoint, defect.position, defect.side), (checkpoint, position, "suspect"))

    def test_numpy_engine(self):
        self.check("numpy_engine.py", "blk.0.q_rope", 1)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_engine(self):
        self.check("torch_engine.py", "blk.0.attn_mix", 0)

    def test_the_notebook(self):
        notebook = json.loads((EXAMPLES / "find_a_bug.ipynb").read_text())
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        self.assertTrue(all(not cell["outputs"] and cell["execution_count"] is None for cell in cells), "has output: clear it")
        shown, names = [], {}
        with unittest.mock.patch.object(sys, "path", [str(EXAMPLES), *sys.path]), \
                unittest.mock.patch.object(sys, "dont_write_bytecode", True), \
                unittest.mock.patch("tempfile.tempdir", str(self.root)):  # fmt: skip
            for cell in cells:
                tree = ast.parse("".join(cell["source"]))
                last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, "notebook", "exec"), names)
                shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names) if last else None)
        report = next(value for value in shown if isinstance(value, lockstep.Comparison))
        self.assertIn("<iframe", report._repr_html_())
        self.assertEqual(report.first_defect.checkpoint, "blk.0.q_rope")
        self.assertEqual(shown[-2], 500000)
        self.assertTrue(shown[-1].startswith("In parity"))


@unittest.skipIf("LOCKSTEP" not in os.environ, "no program at hand")
class ModelTest(unittest.TestCase):
    def test_weights_and_settings(self):
        model = lockstep.open_model(Path(os.environ["LOCKSTEP_MODELS"]) / "haiku-llama-q4_k_m.gguf")
        self.assertEqual((model.architecture, model.setting("block_count"), model.setting("none", 7)), ("llama", 4, 7))
        self.assertEqual(model["blk.0.attn_k.weight"].shape, (128, 256))
        self.assertEqual(model["output_norm.weight"].shape, (256,))
        with tempfile.TemporaryDirectory() as folder:
            made = lockstep.run(model=model.path, tokens=[1, 2], max_tokens=1, trace=folder + "/t", device="reference")
            self.assertEqual(made.trace["embedding"].tolist(), model["token_embd.weight"][[1, 2]].tolist())
        with self.assertRaises(KeyError):
            _ = model["none"]
        with self.assertRaises(lockstep.LockstepError):
            lockstep.open_model("/no/such.gguf")


if __name__ == "__main__":
    unittest.main()
