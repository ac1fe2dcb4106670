"""lockstep quality, imatrix and quantize --recipe: costs of quantized files on the haiku corpus.

usage: quality_test.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models"))
import corpus  # noqa: E402

F16, Q4 = ROOT / "models/haiku-granite-f16.gguf", ROOT / "models/haiku-granite-q4_k_m.gguf"
LLAMA = ROOT / "models/haiku-llama-f16.gguf"
NUMBERS = ("perplexity_reference", "perplexity_suspect", "perplexity_ratio", "kl_mean", "kl_median", "kl_p99", "same_choice")


def run(*arguments, status=0, **options):
    done = subprocess.run([PROGRAM, *map(str, arguments)], check=False, capture_output=True, text=True, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}, expected {status}: {done.stdout}{done.stderr}"
    return done


def quality(*arguments, status=0, **options):
    threads = () if "-t" in arguments else ("-t", 1)
    return json.loads(run("quality", *arguments, *threads, "--json", status=status, **options).stdout)


def haiku(first, count):
    grammar = corpus.Grammar()
    examples = [corpus.example(grammar, seed) for seed in range(first, first + count)]
    return "\n".join(f"{prompt}{answer}\n" for prompt, answer, *_ in examples)


class Quality(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.text = cls.root / "text.txt"
        cls.text.write_text(haiku(0, 30))

    def test_the_whole_file(self):
        found = quality(F16, Q4, "-f", self.text, "--no-tensors")
        self.assertIsNone(found["by_tensor"])
        self.assertIsNone(found["recipe"])
        for name in NUMBERS:
            self.assertLessEqual(found[name]["low"], found[name]["value"], name)
            self.assertGreaterEqual(found[name]["high"], found[name]["value"], name)
        self.assertGreater(found["kl_mean"]["value"], found["kl_median"]["value"])
        self.assertGreater(found["kl_p99"]["value"], found["kl_mean"]["value"])
        self.assertGreater(found["perplexity_reference"]["value"], 1)
        self.assertGreater(found["same_choice"]["value"], 0.8)
        self.assertEqual(found["tokens"], found["text_tokens"] - found["least_context"])
        self.assertEqual(found, quality(F16, Q4, "-f", "-", "--no-tensors", "-t", 2, input=self.text.read_text()))

    def test_a_file_against_itself(self):
        found = quality(F16, F16, "-f", self.text)
        self.assertEqual([found[name]["value"] for name in ("kl_mean", "kl_p99", "same_choice", "perplexity_ratio")], [0, 0, 1, 1])
        self.assertTrue(all(row["equal"] for row in found["by_tensor"]["tensors"]))

    def test_by_tensor(self):
        found = quality(F16, Q4, "-f", self.text, "--sample", 256)
        rows = found["by_tensor"]["tensors"]
        names = {t["name"] for t in json.loads(run("inspect", Q4, "--json").stdout)["tensors"]}
        self.assertEqual({row["name"] for row in rows}, names)
        costs = [row["kl_alone"]["value"] for row in rows]
        self.assertEqual(costs, sorted(costs, reverse=True))
        for row in rows:
            self.assertEqual(row["equal"], row["type_suspect"] == "F32", row["name"])
            self.assertEqual(row["kl_alone"]["value"] > 0, not row["equal"], row["name"])
        text = run("quality", F16, Q4, "-f", self.text, "--sample", 256, "-t", 1).stdout
        self.assertIn("Measured, not estimated, on a sample: ", text)
        self.assertIn("█", text)
        self.assertIn("tensors are the same in both files.", text)
        self.assertIn(rows[0]["name"], text)

    def test_a_page(self):
        page = self.root / "costs.html"
        found = quality(F16, Q4, "-f", self.text, "--sample", 256, "--html", page)
        text = page.read_text()
        begin = text.index('id="data">') + len('id="data">')
        self.assertEqual(json.loads(text[begin : text.index("</script>", begin)]), found)
        self.assertIn(f"<title>haiku-granite-q4_k_m.gguf costs a mean KL of {found['kl_mean']['value']:.3g}</title>", text)
        self.assertIn("no: no such folder", run("quality", F16, Q4, "-f", self.text, "--no-tensors", "-t", 1, "--html", self.root / "no/page.html", status=2).stderr)

    def test_status_by_a_limit(self):
        self.assertEqual(quality(F16, Q4, "-f", self.text, "--no-tensors", "--fail-above", 0, status=1)["recipe"], None)
        run("quality", F16, Q4, "-f", self.text, "--no-tensors", "--fail-above", 10, "-t", 1)

    def test_a_recipe_beats_the_mix_of_its_size(self):
        recipe, mix = self.root / "mix.recipe", self.root / "mix.gguf"
        before = quality(F16, Q4, "-f", self.text, "--recipe", Q4_BYTES, "-o", recipe)
        self.assertLessEqual(before["recipe"]["bytes"], Q4_BYTES)
        self.assertEqual(before["recipe"]["path"], str(recipe))
        run("quantize", F16, mix, "--recipe", recipe)
        held_out = self.root / "held_out.txt"
        held_out.write_text(haiku(10_000, 30))
        after = quality(F16, mix, "-f", held_out, "--no-tensors")
        self.assertEqual(after["bytes_suspect"], before["recipe"]["bytes"])
        self.assertLess(after["kl_mean"]["value"], quality(F16, Q4, "-f", held_out, "--no-tensors")["kl_mean"]["value"])

    def test_an_importance_matrix(self):
        imatrix, plain, weighted = (self.root / name for name in ("haiku.imatrix", "plain.gguf", "weighted.gguf"))
        done = json.loads(run("imatrix", "-m", LLAMA, "-f", self.text, "-o", imatrix, "--json", "-t", 1).stdout)
        self.assertEqual(done["path"], str(imatrix))
        self.assertIn("exists; --force replaces it", run("imatrix", "-m", LLAMA, "-f", self.text, "-o", imatrix, status=2).stderr)
        run("imatrix", "-m", LLAMA, "-f", self.text, "-o", imatrix, "--force", "-t", 1)
        run("quantize", LLAMA, plain, "Q2_K")
        text = run("quantize", LLAMA, weighted, "Q2_K", "--imatrix", imatrix).stdout
        self.assertIn("haiku.imatrix knows 29 of the 30 tensors that are quantized", text)  # all but the embedding
        held_out = self.root / "other.txt"
        held_out.write_text(haiku(20_000, 30))
        costs = [quality(LLAMA, path, "-f", held_out, "--no-tensors")["kl_mean"]["value"] for path in (plain, weighted)]
        self.assertLess(costs[1], costs[0])
        self.assertIn("no importance matrix", run("quantize", LLAMA, self.root / "x.gguf", "Q4_0", "--imatrix", LLAMA, status=2).stderr)

    def test_wrong_use(self):
        for arguments, message in (
            ((F16, Q4), "no text: give -f FILE or --tokens IDS"),
            ((F16, Q4, "-f", self.root / "nothing.txt"), "nothing.txt"),
            ((F16, LLAMA, "-f", self.text), "are not of one model: 3 layers, and 4; 'lockstep audit' tells more"),
            ((F16, Q4, "-f", self.text, "--ctx", 300), "--ctx 300 is longer than the context of 256 tokens that the model has"),
            ((F16, Q4, "--tokens", "5"), "the text has 1 token; at least 2 are needed"),
            ((F16, Q4, "-f", self.text, "--recipe", "4.5"), "--recipe SIZE and -o FILE go together"),
            ((F16, Q4, "-f", self.text, "--recipe", "much", "-o", self.root / "r"), "found 'much', expected bits a weight such as 4.5"),
            ((F16, Q4, "-f", self.text, "--sample", 64, "--recipe", "1.5", "-o", self.root / "r"), " bytes are too few: the matrices have "),
            ((Q4, F16, "-f", self.text, "--sample", 64, "--recipe", "4.5", "-o", self.root / "r"), "a recipe is made from an F32, F16 or BF16 file"),
        ):
            self.assertIn(message, run("quality", *arguments, status=2).stderr.replace("\n", " "))
        self.assertIn("no type: give one of F32", run("quantize", F16, self.root / "x.gguf", status=2).stderr)
        recipe = self.root / "bad.recipe"
        recipe.write_text("* Q9\n")
        self.assertIn("bad.recipe: line 1: found the format 'Q9'", run("quantize", F16, self.root / "x.gguf", "--recipe", recipe, status=2).stderr)


Q4_BYTES = sum(t["bytes"] for t in json.loads(run("inspect", Q4, "--json").stdout)["tensors"])

if __name__ == "__main__":
    unittest.main()
