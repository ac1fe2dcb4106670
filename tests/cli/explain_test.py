"""`lockstep compare` of two model files: each side is judged by its own, and the difference is explained.

usage: explain_test.py PROGRAM
"""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
MODELS = Path(__file__).resolve().parents[2] / "models"
WHOLE, SMALL = MODELS / "haiku-llama-f16.gguf", MODELS / "haiku-llama-q4_k_m.gguf"
TOKENS = "1,35,26,76,294,17,88,101,5,61,7"


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)


class ExplainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.root = Path(holder.name)
        cls.reference, cls.suspect = cls.root / "reference", cls.root / "suspect"
        for model, device, trace in ((WHOLE, "reference", cls.reference), (SMALL, "cpu", cls.suspect)):
            made = run("run", "-m", model, "--tokens", TOKENS, "-n", "1", "--device", device, "--trace", trace)
            assert made.returncode == 0, made.stderr

    def compare(self, *arguments, status=1):
        out = run("compare", self.reference, self.suspect, *arguments)
        self.assertEqual(out.returncode, status, out.stdout + out.stderr)
        return out

    def test_the_weights_explain_it(self):
        page = self.root / "page.html"
        given = self.compare("-m", WHOLE, "--suspect-model", SMALL, "--json", "--html", page)
        found = self.compare("--json")
        self.assertIn("the model that its trace names", found.stderr)
        out = json.loads(given.stdout)
        self.assertEqual((out["verdict"], out["parity"], out["defects"]), ("different weights", False, 0))
        self.assertIsNone(out["first_defect"])
        self.assertEqual(out["diagnoses"], [])
        self.assertTrue(out["reference"]["judged"] and out["suspect"]["judged"])
        self.assertEqual((out["model"], out["suspect_model"]), (str(WHOLE), str(SMALL)))
        told = out["explanation"]
        self.assertEqual(told, json.loads(found.stdout)["explanation"])
        self.assertEqual(told["settings"], [])
        kl = told["next_token"]
        self.assertEqual(kl["positions"], 11)
        self.assertAlmostEqual(kl["weights"] + kl["rounding"] + kl["reference_rounding"], kl["kl"], delta=1e-6 * kl["kl"])
        self.assertGreater(kl["weights"], 0.5 * kl["kl"])
        self.assertAlmostEqual(kl["kl"], out["choices"]["mean_kl"], delta=1e-9)
        for value in told["values"] + told["layers"]:
            self.assertAlmostEqual(sum(value["shares"].values()), 1, delta=1e-6, msg=value["checkpoint"])
        self.assertEqual([v["checkpoint"] for v in told["layers"]],
                         ["embedding", *(f"blk.{n}.output" for n in range(4)), "final_norm", "logits"])  # fmt: skip
        up = next(v for v in told["values"] if v["checkpoint"] == "blk.2.ffn_up")
        self.assertEqual(up["tensors"], [{"name": "blk.2.ffn_up.weight", "reference_format": "F16", "suspect_format": "Q4_K"}])
        self.assertGreater(up["weights"], 10 * up["rounding"])
        self.assertIn("What the difference comes from", page.read_text(encoding="utf-8"))
        shown = self.compare().stdout
        self.assertIn("each is within rounding by its own file", " ".join(shown.split()))
        self.assertIn("What the difference comes from, by layer", shown)
        self.assertIn("By tensor, the most changed", shown)

    def test_parts_are_merged(self):
        parts = [self.root / f"part{k}.json" for k in (1, 2)]
        for k, part in enumerate(parts, 1):
            self.compare("-m", WHOLE, "--suspect-model", SMALL, "--part", f"{k}/2", "-o", part, status=0)
        merged = run("compare", "--merge", *parts, "--json")
        self.assertEqual(merged.returncode, 1, merged.stderr)
        whole = json.loads(self.compare("--json").stdout)
        self.assertEqual(json.loads(merged.stdout)["explanation"], whole["explanation"])

    def test_what_does_not_fit_is_said(self):
        out = self.compare("-m", WHOLE, "--suspect-model", MODELS / "haiku-granite-q4_k_m.gguf", status=2)
        self.assertIn("haiku-granite-q4_k_m.gguf is not the model of the trace", out.stderr)
        self.assertIn("Give the file that it ran (--suspect-model)", out.stderr)
        lost = self.root / "lost"
        shutil.copytree(self.reference, lost)
        manifest = json.loads((lost / "manifest.json").read_text())
        manifest["model"] |= {"path": "/gone/f16.gguf", "file": "f16.gguf"}
        (lost / "manifest.json").write_text(json.dumps(manifest))
        out = run("compare", lost, self.suspect, "--suspect-model", SMALL)
        self.assertEqual(out.returncode, 2, out.stdout)
        self.assertIn("--suspect-model needs the reference's file too: no model file was given (-m); looked for", out.stderr)
        # Without it the sides are measured, and the reason is told.
        out = run("compare", lost, self.suspect, "--json")
        self.assertEqual(out.returncode, 1, out.stderr)
        self.assertIn("the sides ran different model files; of the reference's, no model", json.loads(out.stdout)["unproved"])

    def test_the_doctor_takes_two_files(self):
        out = run("doctor", self.reference, self.suspect, "-m", WHOLE, "--suspect-model", SMALL, "--json")
        self.assertEqual(out.returncode, 1, out.stderr)
        self.assertEqual(json.loads(out.stdout)["diagnoses"], [])


if __name__ == "__main__":
    unittest.main()
