"""scripts/parity_action, which action.yml runs: reports, summary and status. And that the two agree on their variables.

usage: action_test.py PROGRAM
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(__file__).resolve().parents[1]


class Action(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for name, tokens in (("a trace", "635,326"), ("other", "635,327")):
            subprocess.run([PROGRAM, "run", "--tokens", tokens, "-n", "1", "--trace", self.root / name, "--device", "reference"],
                           check=True, stdout=subprocess.DEVNULL)  # fmt: skip

    def act(self, **variables):
        environment = {**os.environ, "LOCKSTEP": PROGRAM, "GITHUB_STEP_SUMMARY": str(self.root / "summary"), **variables}
        return subprocess.run([ROOT / "scripts/parity_action"], cwd=self.root, env=environment, capture_output=True, text=True)

    def test_parity(self):
        done = self.act(REFERENCE="a trace", SUSPECT="a trace", FLAGS="--checkpoints layers --threads=1",
                        MODEL=str(ROOT / "models/haiku-llama-q4_k_m.gguf"))  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("In parity"), done.stdout)
        report = self.root / "lockstep-report"
        self.assertEqual({path.name for path in report.iterdir()}, {"report.html", "report.xml", "report.md", "report.json"})
        self.assertEqual((self.root / "summary").read_text(), (report / "report.md").read_text())
        self.assertTrue(json.loads((report / "report.json").read_text())["parity"])

    def test_no_parity_and_errors(self):
        self.assertEqual(self.act(REFERENCE="a trace", SUSPECT="other", REPORT="mine").returncode, 1)
        self.assertTrue((self.root / "mine/report.html").exists())
        done = self.act(REFERENCE="a trace", SUSPECT="none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("none", done.stderr)
        for given in ({}, {"REFERENCE": "a trace"}, {"SUSPECT": "a trace"}):
            done = self.act(**given)
            self.assertEqual((done.returncode, done.stderr), (2, "parity: give suite:, or reference: and suspect:\n"))

    def test_suite(self):
        (self.root / "a suite.toml").write_text('[engine.none]\ncommand = "false {trace}"\n[[case]]\nmodel = "haiku"\ntokens = [[635, 326]]\n'
                                                'n = 1\nsuspects = ["cpu", "none"]\n')
        done = self.act(SUITE="a suite.toml", FLAGS="--no-cache --threads=1", GITHUB_ACTIONS="true")
        self.assertEqual(done.returncode, 1, done.stderr)
        report = self.root / "lockstep-report"
        self.assertEqual({path.name for path in report.iterdir()}, {"report.html", "report.xml", "report.md", "report.json"})
        self.assertEqual((self.root / "summary").read_text(), (report / "report.md").read_text())
        results = json.loads((report / "report.json").read_text())
        self.assertEqual((results["passed"], results["errors"]), (1, 1))
        self.assertIn("::error title=haiku/0/none::", done.stdout)

    def test_variables(self):
        text = (ROOT / "action.yml").read_text()
        inputs = re.findall(r"^  (\w+):$", text.split("inputs:")[1].split("\nruns:")[0], re.M)
        passed = re.findall(r"^        ([A-Z]+): \$\{\{ inputs\.(\w+) \}\}$", text, re.M)
        self.assertEqual([name for _, name in passed], inputs)
        script = (ROOT / "scripts/parity_action").read_text()
        for variable, name in passed:
            self.assertEqual(variable, name.upper())
            self.assertIn(variable, script)


if __name__ == "__main__":
    unittest.main()
