"""lockstep audit: pairs of files, one of them damaged in one way.

usage: audit_test.py PROGRAM
"""

import array
import json
import os
import pathlib
import pty
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEADS, HEAD = 256, 8, 32
Q = "blk.1.attn_q.weight"
SIZES = ("--arch", "llama", "--layers", 3, "--width", WIDTH, "--heads", HEADS, "--kv-heads", 2, "--feed-forward", 512, "--vocab", 257)


def run(*arguments, status=0, **options):
    done = subprocess.run([PROGRAM, *map(str, arguments)], check=False, capture_output=True, text=True, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}, expected {status}: {done.stdout}{done.stderr}"
    return done


def audit(a, b, status):
    return json.loads(run("audit", a, b, "--json", status=status).stdout)


def unequal(found):
    return {row["name"]: row["how"] or row["verdict"] for row in found["tensors"]
            if row["verdict"] not in ("equal", "quantized")}


class F32File:
    """Tensors of a file of 32-bit floats, to change in place."""

    def __init__(self, path):
        self.path = path
        self.tensors = {t["name"]: t for t in json.loads(run("inspect", path, "--json").stdout)["tensors"]}

    def read(self, name):
        tensor, values = self.tensors[name], array.array("f")
        with open(self.path, "rb") as file:
            file.seek(tensor["offset"])
            values.frombytes(file.read(tensor["bytes"]))
        return values

    def write(self, name, values):
        with open(self.path, "r+b") as file:
            file.seek(self.tensors[name]["offset"])
            file.write(array.array("f", values).tobytes())


def rows(values, order):
    return [x for row in order for x in values[row * WIDTH:(row + 1) * WIDTH]]


def rope_order(row):
    place = row % HEAD
    return row - place + place % 2 * (HEAD // 2) + place // 2


DAMAGES = {
    "transposed": (Q, lambda x: [x[c * WIDTH + r] for r in range(WIDTH) for c in range(WIDTH)]),
    "permuted": (Q, lambda x: rows(x, map(rope_order, range(WIDTH)))),
    "offset": ("blk.1.attn_norm.weight", lambda x: [v + 1 for v in x]),
    "scaled": ("blk.2.ffn_down.weight", lambda x: [v * 1.25 for v in x]),
    "halves_swapped": ("blk.0.ffn_up.weight", lambda x: rows(x, [*range(256, 512), *range(256)])),
    "unknown": (Q, lambda x: random.sample(list(x), len(x))),
}


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.root = pathlib.Path(cls.holder.name)
        cls.a = cls.root / "a.gguf"
        run("forge", cls.a, *SIZES, "--type", "f32", "--seed", random.randrange(10**6))

    def copy(self):
        path = self.root / f"copy{random.randrange(10**9)}.gguf"
        shutil.copy(self.a, path)
        self.addCleanup(path.unlink)
        return path

    def quantized(self, path, recipe):
        target = path.with_suffix(f".{recipe}.gguf")
        run("quantize", path, target, recipe)
        self.addCleanup(target.unlink)
        return target

    def test_the_same_file(self):
        found = audit(self.a, self.a, 0)
        self.assertTrue(found["equal"])
        self.assertEqual({row["verdict"] for row in found["tensors"]}, {"equal"})
        self.assertTrue(run("audit", self.a, self.a).stdout.startswith("The same model. "))

    def test_quantized_files(self):
        path = self.copy()
        small = self.quantized(path, "Q4_K_M")
        for recipe in ("F16", "BF16", "Q8_0", "Q4_0", "Q2_K"):
            other = self.quantized(path, recipe)
            for a, b in ((self.a, other), (other, self.a), (other, small)):
                found = audit(a, b, 0)
                self.assertTrue(found["equal"])
                self.assertEqual({row["verdict"] for row in found["tensors"]}, {"equal", "quantized"})
                for row in found["tensors"]:
                    self.assertLess(row["error"], 0.5)
        self.assertTrue(run("audit", self.a, small).stdout.startswith("The same model, quantization aside. "))

    def test_each_damage_is_named(self):
        for how, (name, damage) in DAMAGES.items():
            path = self.copy()
            file = F32File(path)
            file.write(name, damage(file.read(name)))
            for b in (path, self.quantized(path, "Q4_K_M")):
                found = audit(self.a, b, 1)
                self.assertEqual(unequal(found), {name: how})
                self.assertFalse(found["equal"])
            text = run("audit", self.a, path, status=1).stdout
            self.assertTrue(text.startswith("Not the same model: 1 tensor is wrong."), text)
            self.assertIn(how, text.splitlines()[1])

    def test_tensors_of_other_places(self):
        path = self.copy()
        file = F32File(path)
        first, second = file.read(Q), file.read("blk.2.attn_q.weight")
        file.write(Q, second)
        file.write("blk.2.attn_q.weight", first)
        gate, up = file.read("blk.0.ffn_gate.weight"), file.read("blk.0.ffn_up.weight")
        file.write("blk.0.ffn_gate.weight", up)
        file.write("blk.0.ffn_up.weight", gate)
        self.assertEqual(unequal(audit(self.a, self.quantized(path, "Q5_K_M"), 1)), {
            Q: "other_layer", "blk.2.attn_q.weight": "other_layer",
            "blk.0.ffn_gate.weight": "other_tensor", "blk.0.ffn_up.weight": "other_tensor"})

    def test_tensors_and_numbers_that_one_side_lacks(self):
        tied, scaled = self.root / "tied.gguf", self.root / "scaled.gguf"
        run("forge", tied, *SIZES, "--type", "f32", "--seed", 5, "--tied")
        run("forge", scaled, *SIZES, "--type", "f32", "--seed", 5, "--rope-factors", "llama3", "--rope-base", 500000)
        found = audit(scaled, tied, 1)
        self.assertEqual(unequal(found)["rope_freqs.weight"], "missing")
        self.assertEqual(unequal(found)["output.weight"], "missing")
        keys = {row["key"]: row for row in found["metadata"]}
        self.assertEqual(keys["llama.rope.freq_base"],
                         {"key": "llama.rope.freq_base", "a": 500000, "b": 10000, "verdict": "different",
                          "assumed_a": None, "assumed_b": None})
        self.assertEqual(unequal(audit(tied, scaled, 1))["rope_freqs.weight"], "extra")

    def test_tokenizers(self):
        path = self.root / "tokens.gguf"
        haiku = ROOT / "models" / "haiku-llama-q4_k_m.gguf"
        content = haiku.read_bytes()
        at = content.index(b"tokenizer.ggml.eos_token_id") + len(b"tokenizer.ggml.eos_token_id") + 4
        path.write_bytes(content[:at] + b"\x02\0\0\0" + content[at + 4:])
        found = audit(haiku, path, 1)
        self.assertEqual(unequal(found), {})
        self.assertFalse(found["tokenizer"]["equal"])
        self.assertEqual([row["key"] for row in found["tokenizer"]["keys"] if row["verdict"] == "different"],
                         ["tokenizer.ggml.eos_token_id"])
        self.assertIn("the tokenizers differ", run("audit", haiku, path, status=1).stdout.splitlines()[0])

    def test_errors_and_colours(self):
        self.assertIn("nothing.gguf", run("audit", self.a, self.root / "nothing.gguf", status=2).stderr)
        self.assertIn("B is missing, expected a GGUF file", run("audit", self.a, status=2).stderr)
        broken = self.root / "broken.gguf"
        broken.write_bytes(self.a.read_bytes()[:1000])
        self.assertIn("broken.gguf", run("audit", self.a, broken, status=2).stderr)
        for variable, coloured in ((None, True), ("1", False)):
            environment = {**os.environ, "TERM": "xterm"}
            environment.pop("NO_COLOR", None)
            if variable:
                environment["NO_COLOR"] = variable
            main, side = pty.openpty()
            done = subprocess.Popen([PROGRAM, "audit", self.a, self.a], stdout=side, stderr=subprocess.DEVNULL, env=environment)
            os.close(side)
            shown = b""
            try:
                while part := os.read(main, 65536):
                    shown += part
            except OSError:  # the other end is closed
                pass
            os.close(main)
            self.assertEqual(done.wait(), 0)
            self.assertEqual(b"\x1b[32m" in shown, coloured)


if __name__ == "__main__":
    unittest.main()
