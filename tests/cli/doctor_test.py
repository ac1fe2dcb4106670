"""`lockstep doctor`, the causes in the reports of compare, and the bugs of `lockstep demo`, from the outside.

usage: doctor_test.py PROGRAM
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"cause", "text", "parameters", "side", "checkpoint", "layers", "positions", "proof", "evidence", "fix",
          "alternatives"}


def run(*arguments, status):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=300)
    done.stdout, done.stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def documented_causes():
    table = (ROOT / "docs/diagnosis.md").read_text().split("## Causes")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {cause for row in rows for cause in re.findall(r"`([a-z_.]+)`", row)}


class DoctorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.root = Path(cls.holder.name)
        cls.demo = run("demo", "bug", "rope.pairing", "--keep", cls.root / "pairing", status=0).stdout
        cls.right, cls.wrong = cls.root / "pairing/right", cls.root / "pairing/wrong"

    def check(self, diagnosis):
        self.assertLessEqual(FIELDS, set(diagnosis))
        self.assertIn(diagnosis["cause"], documented_causes())
        self.assertIn(diagnosis["proof"], ("proved", "consistent"))
        self.assertEqual(set(diagnosis["evidence"]), {"rows", "explained", "ratio_before", "ratio_after"})
        self.assertTrue(diagnosis["text"] and diagnosis["fix"])

    def test_the_first_lines_name_the_cause(self):
        for text in (self.demo.split("says:\n\n")[1], run("compare", self.right, self.wrong, status=1).stdout):
            lines = " ".join(text.splitlines()[:6])
            self.assertTrue(text.startswith("Not in parity: the suspect is wrong at blk.0.q_rope, position 1\n"))
            self.assertIn("Cause: rope.pairing (proved). At blk.0.q_rope and 7 more checkpoints:", lines)
            self.assertIn("wrong rows are within rounding", lines)
            self.assertIn("Layers 0 to 3.", lines)
            self.assertIn("Look at which two numbers", lines)

    def test_json_is_as_documented(self):
        found = json.loads(run("compare", self.right, self.wrong, "--json", status=1).stdout)["diagnoses"]
        self.assertEqual(len(found), 1)
        self.check(found[0])
        self.assertEqual(set(found[0]), FIELDS)
        self.assertEqual(found[0]["cause"], "rope.pairing")
        self.assertEqual(found[0]["side"], "suspect")
        self.assertEqual(found[0]["layers"], [0, 1, 2, 3])
        self.assertEqual(found[0]["checkpoint"], "blk.0.q_rope")
        self.assertEqual(found[0]["evidence"]["rows"], found[0]["evidence"]["explained"])
        self.assertLess(found[0]["evidence"]["ratio_after"], 1)
        self.assertGreater(found[0]["evidence"]["ratio_before"], 1000)
        self.assertEqual(found[0]["parameters"], {"value": "halves"})
        swapped = json.loads(run("compare", self.wrong, self.right, "--json", status=1).stdout)["diagnoses"]
        self.assertEqual([each["side"] for each in swapped], ["reference"])

    def test_reports_have_the_sentence(self):
        paths = {kind: self.root / f"report.{kind}" for kind in ("junit", "markdown", "html")}
        flags = [word for kind, path in paths.items() for word in (f"--{kind}", path)]
        run("compare", self.right, self.wrong, *flags, status=1)
        for path in paths.values():
            self.assertIn("Cause: rope.pairing (proved)", path.read_text())

    def test_without_a_diagnosis(self):
        done = run("compare", self.right, self.wrong, "--no-diagnosis", "--json", status=1)
        self.assertEqual(json.loads(done.stdout)["diagnoses"], [])
        self.assertNotIn("Cause", run("compare", self.right, self.wrong, "--no-diagnosis", status=1).stdout)

    def test_parity_has_no_cause(self):
        self.assertEqual(json.loads(run("compare", self.right, self.right, "--json", status=0).stdout)["diagnoses"], [])
        self.assertEqual(json.loads(run("doctor", self.right, "--json", status=0).stdout)["diagnoses"], [])

    def test_one_trace_alone(self):
        text = run("doctor", self.wrong, status=1).stdout
        self.assertTrue(text.startswith("Not in parity: the suspect is wrong at blk.0.q_rope, position 1\n"))
        self.assertIn("Experiments at blk.0.q_rope", text)
        found = json.loads(run("doctor", self.wrong, "--json", status=1).stdout)
        self.check(found["diagnoses"][0])
        attempts = found["diagnoses"][0]["attempts"]
        self.assertEqual(attempts[0]["cause"], "rope.pairing")
        self.assertLess(attempts[0]["ratio"], 1)
        self.assertEqual([each["error"] for each in attempts], sorted(each["error"] for each in attempts))
        self.assertLess(attempts[0]["error"], found["diagnoses"][0]["error_before"] / 1000)
        self.assertEqual(len(found["diagnoses"][0]["checkpoints"]), 8)
        element = found["diagnoses"][0]["element"]
        self.assertEqual(element["position"], 1)
        self.assertRegex(element["place"], r"^head \d+, column \d+$")
        self.assertAlmostEqual(element["recorded"], element["found"], places=5)
        self.assertGreater(abs(element["recorded"] - element["expected"]), 0.1)
        formula = element["expected_from"]["formula"]
        name = formula.split(" = ")[0]
        self.assertIn(f"The number that is furthest off: position 1, {element['place']}, {name}\n", text)
        self.assertIn(f"      = {formula.split(' = ', 1)[1]}\n", text)
        self.assertIn(f"  under rope.pairing {element['found']:.9g}\n", text)
        self.assertEqual(len(element["found_from"]["parts"]), 4)
        self.assertGreater(found["diagnoses"][0]["tried"], 30)

    def test_fewer_checkpoints(self):
        for checkpoints in ("layers", "logits"):
            with self.subTest(checkpoints):
                done = run("doctor", self.right, self.wrong, "--checkpoints", checkpoints, "--json", status=1)
                found = json.loads(done.stdout)["diagnoses"]
                self.assertEqual([each["cause"] for each in found], ["rope.pairing"])
                self.assertEqual(found[0]["proof"], "consistent")
                self.assertTrue(found[0]["text"].startswith("Somewhere between "))
                self.assertEqual(found[0]["layers"], [0, 1, 2, 3])

    def test_wrong_use(self):
        self.assertIn("no such file or folder", run("doctor", self.root / "none", status=2).stderr)
        self.assertIn("one trace or two", run("doctor", self.right, self.right, self.right, status=2).stderr)
        self.assertIn("rope.pairin;", run("demo", "bug", "rope.pairin", status=2).stderr)
        self.assertIn("nothing that could be wrong",
                      run("demo", "bug", "scale.missing", "-m", ROOT / "models/haiku-gpt2-f32.gguf", status=2).stderr)

    def test_every_bug_of_the_demo_is_named(self):
        listed = [line.split()[0] for line in run("demo", "bug", "--list", status=0).stdout.splitlines()[1:]]
        self.assertGreater(len(listed), 15)
        self.assertLessEqual(set(listed), documented_causes())
        for cause in listed:
            with self.subTest(cause):
                self.assertIn(f"\nCause: {cause} (proved).", run("demo", "bug", cause, status=0).stdout)


if __name__ == "__main__":
    unittest.main()
