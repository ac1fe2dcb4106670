"""`lockstep compare` from the outside: exit status, reports, and traces with something wrong in them.

usage: compare_test.py PROGRAM
"""

import base64
import csv
import html.parser
import io
import json
import math
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
import zlib
from pathlib import Path

import plain_trace
from plain_trace import Step, Trace

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
MODEL = str(Path(__file__).resolve().parents[2] / "models/haiku-llama-q4_k_m.gguf")


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, **options)


class CompareTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.root = Path(cls.holder.name)
        cls.original = cls.root / "original"
        made = run("run", "-m", MODEL, "-p", "Write a haiku about snow", "-n", "6", "--device",
                   "reference", "--trace", cls.original, "--checkpoints", "all")
        assert made.returncode == 0, made.stderr
        cls.trace = Trace(cls.original)
        cls.wrong = plain_trace.copy(cls.trace, cls.root / "wrong", cls.corrupt)

    @staticmethod
    def corrupt(name, array, step, value=None):
        if name == "blk.1.ffn_act" and step.first_position <= 3 < step.first_position + step.tokens:
            array = array.copy()
            array[3 - step.first_position, 11] = array[0, 0] + 1 if value is None else value
        return array

    def renamed(self, folder, names, extra=None, **fields):
        """Writes some values of the trace under other names; one of them once more as `extra`."""
        steps = []
        for step in self.trace.steps:
            values = {name: step.values[ours] for ours, name in names.items()}
            if extra is not None:
                values[extra] = step.values["embedding"]
            steps.append(Step(step.first_position, step.tokens, values))
        plain_trace.write(folder, steps, tokens=self.trace.tokens, n_prompt=self.trace.n_prompt,
                          precision={"compute": "f64"}, **fields)

    def compare(self, reference, suspect, *arguments, status):
        out = run("compare", reference, suspect, *arguments)
        self.assertEqual(out.returncode, status, out.stdout + out.stderr)
        return out

    def compare_json(self, *arguments, status):
        return json.loads(self.compare(*arguments, "--json", status=status).stdout)

    def test_a_copy_is_exact(self):
        copy = plain_trace.copy(self.trace, self.root / "copy")
        for suspect in (copy, self.original):
            out = self.compare_json(self.original, suspect, status=0)
            self.assertIs(out["parity"], True)
            self.assertEqual(out["verdict"], "exact")
            self.assertIsNone(out["first_defect"])
            self.assertEqual(out["coverage"], 1)
            self.assertEqual(out["judged"], 1, "the shipped model is found by its fingerprint")
            self.assertEqual(out["model"], MODEL if Path(out["model"]).samefile(MODEL) else "")
            self.assertEqual(out["tokens"]["agree"], True)
            self.assertIsNone(out["tokens"]["first_difference"])
            self.assertEqual([c["name"] for c in out["checkpoints"]], self.trace.names)
        self.compare(copy, copy, status=0)

    def test_a_corrupted_value_is_the_first_defect(self):
        for sides, side in (((self.original, self.wrong), "suspect"),
                            ((self.wrong, self.original), "reference"),
                            ((self.wrong, self.wrong), "both")):
            out = self.compare_json(*sides, "-m", MODEL, status=1)
            self.assertIs(out["parity"], False)
            self.assertEqual(out["verdict"], "defect")
            defect = out["first_defect"]
            self.assertEqual((defect["checkpoint"], defect["layer"], defect["position"],
                              defect["side"]), ("blk.1.ffn_act", 1, 3, side))
            self.assertGreater(defect["own_error"], defect["bound"])
            self.assertAlmostEqual(defect["own_error"] / defect["bound"] / defect["ratio"], 1)

    def test_a_nan_is_garbage(self):
        broken = plain_trace.copy(self.trace, self.root / "nan",
                            lambda *a: self.corrupt(*a, value=math.nan))
        out = self.compare_json(self.original, broken, status=1)
        self.assertEqual(out["verdict"], "garbage")
        self.assertEqual(out["first_defect"]["measure"], "non_finite")
        self.assertIsNone(out["first_defect"]["own_error"])
        text = self.compare(self.original, broken, status=1).stdout
        self.assertIn("Recorded nan at element 11", text.replace("\n", " "))

    def test_different_prompts_are_compared_on_their_common_beginning(self):
        tokens = self.trace.tokens.copy()
        tokens[2] = 400
        other = plain_trace.copy(self.trace, self.root / "prompt", tokens=tokens)
        out = self.compare_json(self.original, other, status=1)
        self.assertEqual(out["verdict"], "different prompts")
        self.assertEqual(out["tokens"]["first_difference"], 2)
        self.assertEqual(out["tokens"]["reference"]["id"], self.trace.tokens[2])
        self.assertEqual(out["tokens"]["suspect"]["id"], 400)
        self.assertIsInstance(out["tokens"]["suspect"]["text"], str)
        self.assertEqual({c["positions"] for c in out["checkpoints"]}, {2})
        # On its own tokens the copy is wrong: it has the values of other ones.
        self.assertEqual(out["first_defect"]["checkpoint"], "embedding")
        self.assertEqual(out["first_defect"]["position"], 2)
        self.assertEqual(out["first_defect"]["side"], "suspect")
        text = self.compare(self.original, other, status=1).stdout
        self.assertRegex(text, r"(?m)^Token 2: the reference \d+ '.*', the suspect 400 '")

    def test_prompts_say_how_they_differ(self):
        ids = self.trace.tokens
        bos = ids[0]

        def recorded(name, tokens):
            folder = self.root / "prompts" / name
            made = run("run", "-m", MODEL, "--tokens", ",".join(map(str, tokens)), "-n", "2", "--device",
                       "reference", "--trace", folder, "--checkpoints", "layers")
            self.assertEqual(made.returncode, 0, made.stderr)
            return folder

        prompt = ids[: self.trace.n_prompt]
        whole = recorded("with-bos", prompt)
        for name, tokens, kind in (("without-bos", prompt[1:], "bos_missing"), ("twice", [bos, *prompt], "bos_doubled"),
                                   ("later", prompt[2:], "shift"), ("more", prompt + prompt[1:], "longer"),
                                   ("wrapped", [7, 8, *prompt[1:], 9], "template"),
                                   ("other", [token + 1 for token in prompt], "text")):  # fmt: skip
            other = recorded(name, tokens)
            for pair in ((whole, other), (other, whole)):
                out = self.compare_json(*pair, status=1)
                self.assertEqual(out["verdict"], "different prompts")
                self.assertEqual(out["tokens"]["difference"]["kind"], kind, name)
                self.assertIn(out["tokens"]["difference"]["text"], out["headline"])
                self.assertIsNone(out["first_defect"], "each is right on its own tokens")
                self.assertEqual(out["suspect"]["judged"], True)

    def test_parity_needs_logits(self):
        embedding = plain_trace.copy(self.trace, self.root / "embedding",
                               lambda name, array, step: array if name == "embedding" else None)
        out = self.compare_json(self.original, embedding, status=1)
        self.assertEqual((out["parity"], out["verdict"]), (False, "inconclusive"))
        self.assertIn("the suspect recorded no logits", out["headline"])
        self.assertIn("coverage 1.4%", out["headline"])
        self.assertEqual(out["evidence"]["found"], 0)
        fewer = plain_trace.copy(self.trace, self.root / "less",
                           lambda name, array, step: None if name == "blk.0.q" else array)
        self.compare(self.original, fewer, status=0)
        out = self.compare_json(self.original, fewer, "--min-coverage", "0.99", status=1)
        self.assertEqual(out["verdict"], "inconclusive")
        for bad in ("-1", "2", "nan", "x"):
            self.compare(self.original, fewer, "--min-coverage", bad, status=2)

    def test_the_wrong_model_is_refused(self):
        """Never "the suspect is wrong at embedding"."""
        nameless = plain_trace.copy(self.trace, self.root / "nameless",
                              model={"file": "haiku-llama-q4_k_m.gguf", "architecture": "llama"})
        self.compare(self.original, nameless, "-m", MODEL, status=0)
        for model in ("haiku-qwen2", "haiku-llama-f16"):
            for pair in ((self.original, self.original), (self.original, nameless), (nameless, nameless)):
                out = self.compare(*pair, "-m", model, status=2)
                self.assertIn("is not the model of the trace", out.stderr)
                self.assertEqual(out.stdout, "")

    def test_the_model_is_found_where_it_lay(self):
        place = self.root / "elsewhere"
        place.mkdir()
        model = place / "odd name.gguf"
        model.write_bytes(Path(MODEL).read_bytes())
        trace = self.root / "moved"
        made = run("run", "-m", model, "-p", "snow", "-n", "2", "--trace", trace)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.compare_json(trace, trace, status=0)["model"], str(model))
        model.unlink()
        out = self.compare_json(trace, trace, status=0)
        self.assertIsNone(out["model"])
        self.assertIn(f"nothing was proved: no model file was given (-m); looked for odd name.gguf at {model}",
                      out["headline"])

    def test_sampling_and_choices(self):
        hot = self.root / "hot"
        made = run("run", "-m", MODEL, "-p", "Write a haiku about snow", "-n", "6", "--device", "reference",
                   "--temp", "2", "--seed", "3", "--trace", hot)
        self.assertEqual(made.returncode, 0, made.stderr)
        out = self.compare_json(self.original, hot, "--checkpoints", "ops", status=0)
        self.assertIs(out["fork"]["sampled"], True)
        self.assertTrue(out["headline"].startswith(
            "In parity up to the first choice; the two sampled differently (temperature 0 and temperature 2)"))
        # Said to be greedy, it made a choice that it cannot have made.
        liar = plain_trace.copy(Trace(hot), self.root / "liar", sampling={"temperature": 0})
        out = self.compare_json(liar, liar, status=1)
        self.assertEqual((out["first_defect"]["checkpoint"], out["first_defect"]["side"]), ("choice", "both"))
        self.assertLess(out["first_defect"]["choice"]["logit"], out["first_defect"]["choice"]["largest_logit"])

    def test_unknown_names_have_a_hint(self):
        folder = self.root / "misspelt"
        self.renamed(folder, {"embedding": "embeding", "logits": "logits"}, engine="mine", model={"path": MODEL})
        out = self.compare_json(self.original, folder, status=0)
        self.assertEqual(out["unknown_names"]["suspect"]["nearest"], {"embeding": "embedding"})
        self.assertTrue(any("embeding (did you mean embedding?)" in note for note in out["notes"]))

    def test_missing_checkpoints_and_unknown_models(self):
        fewer = plain_trace.copy(self.trace, self.root / "fewer",
                           lambda name, array, step: None if name == "blk.0.q" else array,
                           model={}, precision={})
        out = self.compare_json(self.original, fewer, "--checkpoints", "ops", status=0)
        verdicts = {c["name"]: c["verdict"] for c in out["checkpoints"]}
        self.assertEqual(verdicts["blk.0.q"], "missing")
        self.assertNotIn("blk.0.attn_probs", verdicts)
        self.assertLess(out["coverage"], 1)
        out = self.compare_json(fewer, fewer, status=0)
        self.assertIsNone(out["model"])
        self.assertEqual(out["judged"], 0)

    def test_names_of_other_engines(self):
        """Under the engine's own names where they have one meaning; the rest is listed, not lost."""
        theirs = {"embedding": "embd", "final_norm": "result_norm", "logits": "result_output"}
        for layer in range(4):
            for ours, name in (("attn_norm", "attn_norm"), ("v", "Vcur"), ("output", "l_out"), ("q", "Qcur")):
                theirs[f"blk.{layer}.{ours}"] = f"{name}-{layer}"
        folder = self.root / "theirs"
        self.renamed(folder, theirs, extra="odd one", engine="llama.cpp", model=self.trace.manifest["model"],
                     notes=["flash attention off"], unmapped=["norm-{N}"])
        result = self.compare_json(self.original, folder, "-m", MODEL, status=0)
        exact = {c["name"] for c in result["checkpoints"] if c["verdict"] == "exact"}
        self.assertEqual(exact, {name for name in theirs if not name.endswith(".q")})
        unknown = result["unknown_names"]["suspect"]
        self.assertEqual(sorted(unknown["recorded"]), ["Qcur-0", "Qcur-1", "Qcur-2", "Qcur-3", "odd one"])
        self.assertEqual(unknown["not_recorded"], ["norm-{N}"])
        notes = " ".join(result["notes"])
        for text in ("flash attention off", "Qcur-3", "odd one", "norm-{N}"):
            self.assertIn(text, notes)

        # An engine that the program does not know, with a map of its own.
        other = plain_trace.copy(self.trace, self.root / "other", lambda name, array, _: array if name == "logits" else None,
                           engine="mine")  # fmt: skip
        renamed = self.root / "renamed"
        self.renamed(renamed, {"logits": "the end"}, engine="mine")
        names = self.root / "names.json"
        names.write_text(json.dumps({"format": "lockstep-names", "version": 1, "engine": "mine",
                                     "rules": [{"checkpoint": "logits", "nodes": ["the end"]}]}))  # fmt: skip
        result = self.compare_json(other, renamed, "--names", names, status=0)
        self.assertEqual([(c["name"], c["verdict"]) for c in result["checkpoints"]], [("logits", "exact")])
        names.write_text("{}")
        self.assertIn("format", self.compare(other, renamed, "--names", names, status=2).stderr)
        self.compare(other, renamed, "--names", self.root / "none.json", status=2)

    def test_unreadable_input_exits_with_2(self):
        for arguments in ((self.original, self.root / "gone"), (self.original, MODEL),
                          (self.original, self.root), (self.original,),
                          (self.original, self.original, "--positions", "1-x"),
                          (self.original, self.original, "--positions", "1000000"),
                          (self.original, self.original, "--checkpoints", "none.*"),
                          (self.original, self.original, "-m", "haiku-qwen2"),
                          (self.original, self.original, "--html", self.root / "no/folder.html")):
            out = run("compare", *arguments)
            self.assertEqual(out.returncode, 2, arguments)
            self.assertNotEqual(out.stderr.strip(), "")

    def test_chosen_positions_are_replayed(self):
        out = self.compare_json(self.original, self.wrong, "--positions", "0-2,5", status=0)
        judged = {c["suspect"]["judged"] for c in out["checkpoints"]}
        self.assertEqual(judged, {4})
        # Parity is said of those alone, and the others are not passed over in silence.
        compared = self.trace.rows("logits")
        self.assertEqual(out["positions"], {"compared": compared, "judged": 4, "chosen": True})
        self.assertTrue(out["headline"].startswith(
            f"In parity at the 4 (of {compared}) positions judged: "), out["headline"])
        self.assertTrue(any("position 3: --positions 3 judges it" in note
                            for note in out["notes"]), out["notes"])
        out = self.compare_json(self.original, self.wrong, "--positions", "3", status=1)
        self.assertEqual(out["first_defect"]["position"], 3)
        out = self.compare_json(self.original, self.original, status=0)
        self.assertEqual(out["positions"],
                         {"compared": compared, "judged": compared, "chosen": False})

    def test_one_wrong_position_of_many_is_found(self):
        long = self.root / "long"
        made = run("run", "-m", MODEL, "--tokens", ",".join(str(5 + 7 * i % 600) for i in range(200)),
                   "-n", "1", "--device", "cpu", "--trace", long, "--checkpoints", "ops")
        self.assertEqual(made.returncode, 0, made.stderr)

        def corrupt(name, array, step):
            if name == "blk.2.ffn_up" and step.first_position <= 133 < step.first_position + step.tokens:
                array = array.copy()
                array[133 - step.first_position, 7] += 0.5
            return array

        wrong = plain_trace.copy(Trace(long), self.root / "long wrong", corrupt)
        out = self.compare_json(long, wrong, status=1)
        self.assertEqual(out["positions"]["judged"], out["positions"]["compared"])
        self.assertGreaterEqual(out["positions"]["compared"], 200)
        self.assertEqual((out["first_defect"]["checkpoint"], out["first_defect"]["position"],
                          out["first_defect"]["side"]), ("blk.2.ffn_up", 133, "suspect"))
        self.assertEqual(out["first_defect"]["shape"]["positions"], [[133, 133]])
        # With little time a sample is judged, which is said.
        out = self.compare_json(long, long, "--budget", "0.0001", status=0)
        self.assertLess(out["positions"]["judged"], 50)
        self.assertIn("in the time given", " ".join(out["notes"]))
        self.assertIn(f"at the {out['positions']['judged']} (of 200) positions judged", out["headline"])

    def test_report_files(self):
        files = {kind: self.root / f"report.{kind}" for kind in ("junit", "markdown", "csv", "html")}
        flags = [part for kind, path in files.items() for part in (f"--{kind}", path)]
        out = self.compare_json(self.original, self.wrong, *flags, status=1)
        names = [c["name"] for c in out["checkpoints"]]

        suite = xml.etree.ElementTree.parse(files["junit"]).getroot().find("testsuite")
        cases = suite.findall("testcase")
        self.assertEqual([case.get("name") for case in cases], ["parity", *names])
        failed = {case.get("name") for case in cases if case.find("failure") is not None}
        self.assertTrue({"parity", "blk.1.ffn_act"} <= failed)
        self.assertEqual(int(suite.get("failures")), len(failed))
        self.assertEqual(int(suite.get("tests")), len(cases))

        rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
        self.assertEqual([row["checkpoint"] for row in rows], names)
        for row, entry in zip(rows, out["checkpoints"]):
            self.assertEqual(float(row["nmse"]), entry["nmse"])
            self.assertNotIn(None, row)

        text = files["markdown"].read_text()
        self.assertIn("❌ Not in parity: the suspect is wrong at blk.1.ffn_act", text)
        self.assertIn("| `blk.1.ffn_act` | defect |", text)

        page = files["html"].read_text()
        html.parser.HTMLParser().feed(page)
        self.assertIsNone(re.search(r"""(src|href)\s*=|url\(|https?://(?!www\.w3\.org/2000/svg")|@import""", page))
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
        shown = data.pop("page")
        self.assertEqual({**data, "seconds": 0}, {**out, "seconds": 0}, "what --json prints")
        self.assertEqual(shown["positions"], [[0, out["positions"]["compared"] - 1]])
        codes = {name: struct.unpack(f"<{len(names) * out['positions']['compared']}H", zlib.decompress(base64.b64decode(text)))
                 for name, text in shown["rows"].items()}
        self.assertEqual(set(codes), {"own_reference", "own_suspect", "relative_l2", "inherited"})
        width = out["positions"]["compared"]
        for entry, first in zip(out["checkpoints"], range(0, len(names) * width, width)):
            for side in ("reference", "suspect"):
                row = codes[f"own_{side}"][first:first + width]
                self.assertEqual(sum(code > 16384 for code in row), entry[side]["defects"], entry["name"])
                if entry[side]["ratio"]:
                    self.assertEqual(row[entry[side]["worst_position"]], round(16 * math.log2(entry[side]["ratio"])) + 16384)
                self.assertGreaterEqual(row[entry[side]["worst_position"]], 2)
        # The row that the headline is about comes first.
        opened = shown["opened"][0]
        self.assertEqual((opened["checkpoint"], opened["position"], opened["side"]), ("blk.1.ffn_act", 3, "suspect"))
        self.assertEqual(opened["worst"][0]["element"], 11)
        self.assertEqual(opened["worst"][0]["recorded"], out["first_defect"]["recorded"])
        self.assertEqual(opened["worst"][0]["expected"], out["first_defect"]["replayed"])
        self.assertEqual([i["name"] for i in opened["inputs"]], ["blk.1.ffn_gate", "blk.1.ffn_up"])
        gate, up = opened["worst"][0]["inputs"]
        self.assertAlmostEqual(gate / (1 + math.exp(-gate)) * up, opened["worst"][0]["expected"], places=12)
        self.assertEqual(sum(opened["histogram"]), opened["elements"])
        self.assertEqual(shown["tokens"]["reference"]["ids"], self.trace.tokens)
        self.assertEqual("".join(shown["tokens"]["reference"]["texts"][1:6]), "Write a haiku about snow")
        self.assertEqual(shown["left_out"], [])

    def test_output_in_a_pipe_is_plain_and_narrow_terminals_read_well(self):
        text = self.compare(self.original, self.wrong, status=1).stdout
        self.assertNotIn("\x1b", text)
        self.assertTrue(text.startswith("Not in parity: the suspect is wrong at blk.1.ffn_act"))
        for part in ("Drift", "layer 0", "final_norm", "Worst checkpoints", "coverage", "tokens"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
