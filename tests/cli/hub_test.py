"""A folder from the hub as -m of every command, and folders that are damaged.

usage: hub_test.py PROGRAM
"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import plain_hub

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/server"))
from worker import Worker

TEXT = "hello world, hello word: " * 12


def run(*arguments, status=0, **options):
    done = subprocess.run([PROGRAM, *map(str, arguments)], check=False, capture_output=True, text=True, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}, expected {status}: {done.stdout}{done.stderr}"
    return done


def said(*arguments):
    """The message of a command that cannot do what it was asked for."""
    done = run(*arguments, status=2)
    assert done.stdout == "", done.stdout
    return done.stderr.strip()


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.model = plain_hub.write(cls.root / "tiny", parts=3)
        cls.file = cls.root / "tiny.gguf"
        run("convert", cls.model, cls.file)
        cls.text = cls.root / "text.txt"
        cls.text.write_text(TEXT)

    def test_run_is_that_of_the_converted_file(self):
        for arguments in (("-p", "hello world"), ("--tokens", "1,2,3"), ("--chat", "-p", "hello")):
            mine, theirs = (run("run", "-m", m, *arguments, "-n", 5, "-t", 1).stdout for m in (self.model, self.file))
            self.assertEqual(mine, theirs)

    def test_traces_are_judged_and_explained(self):
        reference, suspect, quantized = (self.root / f"{name}.trace" for name in ("reference", "suspect", "quantized"))
        prompt = ("-p", "hello world", "-n", 2)
        run("run", "-m", self.model, *prompt, "--device", "reference", "--trace", reference)
        run("run", "-m", self.model, *prompt, "-t", 1, "--trace", suspect)
        small = self.root / "small.gguf"
        run("quantize", self.model, small, "Q4_0")
        run("run", "-m", small, *prompt, "-t", 1, "--trace", quantized)
        for arguments in (("-m", self.model), ()):  # the traces name it
            found = json.loads(run("compare", reference, suspect, *arguments, "--json").stdout)
            self.assertTrue(found["parity"])
        self.assertTrue(run("doctor", reference, suspect, "-m", self.model).stdout.startswith("In parity"))
        explained = run("compare", reference, quantized, "-m", self.model, "--suspect-model", small, status=1).stdout
        self.assertIn("the sides ran different weights (tiny and small.gguf)", explained)

    def test_check(self):
        run("check", "-m", self.model, "--against", "cpu", "-p", "hello", "-n", 2)
        # What transformers reads is the model itself; a GGUF file needs a folder beside it.
        stand_in = self.root / "python"
        given = self.root / "given"
        stand_in.write_text(f"#!/bin/sh\necho $* >> '{given}'\n")
        stand_in.chmod(0o755)
        suite = self.root / "suite.toml"
        for model, expected in ((self.model, f"--model={self.model}"), (self.file, "transformers reads no GGUF file")):
            suite.write_text(f"""
                [engine.hub]
                capture = "transformers"
                python = "{stand_in}"
                [[case]]
                model = "{model}"
                tokens = [[1, 2, 3]]
                suspects = ["hub"]
                n = 1
            """)
            done = subprocess.run([PROGRAM, "check", suite], check=False, capture_output=True, text=True)
            self.assertIn(expected, done.stdout + done.stderr + given.read_text())

    def test_inspect_and_tensor(self):
        shown = json.loads(run("inspect", "-m", self.model, "--tensors", "--json").stdout)
        self.assertTrue(shown["runs_here"])
        self.assertEqual(shown["name"], "tiny")
        theirs = json.loads(run("inspect", "-m", self.file, "--tensors", "--json").stdout)
        self.assertEqual({t["name"] for t in shown["tensors"]}, {t["name"] for t in theirs["tensors"]})
        for tensor in theirs["tensors"]:
            mine, converted = (subprocess.run([PROGRAM, "tensor", "-m", m, tensor["name"], "--raw"], check=True,
                                              capture_output=True).stdout for m in (self.model, self.file))  # fmt: skip
            self.assertEqual(mine, converted, tensor["name"])

    def test_tokenize(self):
        ids = run("tokenize", "-m", self.model, "-p", "hello world").stdout.split()
        expected = ["<|begin|>", "hello", "Ġwor", "l", "d"]
        self.assertEqual(ids, [str(plain_hub.TOKENS.index(text)) for text in expected])
        self.assertEqual(run("tokenize", "-m", self.model, "--decode", "-p", " ".join(ids[1:])).stdout, "hello world")

    def test_serve(self):
        with Worker(PROGRAM, model=self.model) as worker:
            body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "temperature": 0}
            status, answer = worker.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["usage"]["completion_tokens"], 3, answer)

    def test_bench(self):
        run("bench", "-m", self.model, "-p", 8, "-n", 2, "-r", 1, "-t", 1)

    def test_audit(self):
        small = self.root / "audited.gguf"
        run("quantize", self.model, small, "Q8_0")
        for a, b in ((self.model, self.file), (self.file, self.model), (self.model, small), (self.model, self.model)):
            self.assertTrue(json.loads(run("audit", a, b, "--json").stdout)["equal"])

    def test_quality_imatrix_and_recipes(self):
        small, matrix, recipe, mixed = (self.root / name for name in ("q.gguf", "x.imatrix", "x.recipe", "mixed.gguf"))
        run("imatrix", "-m", self.model, "-f", self.text, "-o", matrix, "-t", 1)
        run("quantize", self.model, small, "Q4_0", "--imatrix", matrix)
        found = json.loads(run("quality", self.model, small, "-f", self.text, "-t", 1, "--json", "--recipe", "6",
                               "-o", recipe).stdout)  # fmt: skip
        self.assertGreater(found["kl_mean"]["value"], 0)
        run("quantize", self.model, mixed, "--recipe", recipe)
        better = json.loads(run("quality", self.model, mixed, "-f", self.text, "-t", 1, "--json", "--no-tensors").stdout)
        self.assertLess(better["kl_mean"]["value"], found["kl_mean"]["value"])
        again = json.loads(run("quality", self.model, self.file, "-f", self.text, "-t", 1, "--json", "--no-tensors").stdout)
        self.assertEqual(again["kl_mean"]["value"], 0)

    def test_forge_takes_its_tokenizer(self):
        out = self.root / "forged.gguf"
        run("forge", out, "--arch", "llama", "--tokenizer", self.model, "--layers", 1)
        self.assertEqual(run("tokenize", "-m", out, "-p", "hello").stdout, run("tokenize", "-m", self.model, "-p", "hello").stdout)

    def test_without_a_tokenizer_it_runs_on_token_ids(self):
        folder = plain_hub.write(self.root / "ids")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
        run("run", "-m", folder, "--tokens", "1,2,3", "-n", 2)
        without = f"lockstep: {folder}: the folder has no tokenizer.json that is supported; give token ids"
        self.assertEqual(said("tokenize", "-m", folder, "-p", "hello"), without)
        ids = f"lockstep: {folder}: the model has no tokenizer; give the prompt as --tokens 1,2,3"
        self.assertEqual(said("run", "-m", folder, "-p", "hello"), ids)
        self.assertEqual(said("quality", folder, folder, "-f", self.text), ids)


TENSOR = "model.layers.1.mlp.up_proj.weight"


class Damaged(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = pathlib.Path(folder.name) / "tiny"
        plain_hub.write(self.model)
        self.file = self.model / "model.safetensors"

    def problem(self, *command):
        """What all commands that open a model say, less the beginning that all of them have."""
        texts = {said(*c) for c in ([command] if command else (
            ("run", "-m", self.model, "--tokens", "1"), ("inspect", "-m", self.model), ("tensor", "-m", self.model),
            ("audit", self.model, self.model), ("convert", self.model, self.model.parent / "out.gguf")))}  # fmt: skip
        self.assertEqual(len(texts), 1, texts)
        self.assertFalse((self.model.parent / "out.gguf").exists())
        return texts.pop().removeprefix(f"lockstep: {self.model}")

    def with_header(self, **changes):
        data = self.file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        header[TENSOR].update(changes)
        text = json.dumps(header).encode()
        self.file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
        return self.problem().removeprefix(f"/model.safetensors: tensor '{TENSOR}': ")

    def with_config(self, *without, **changes):
        config = {key: value for key, value in (plain_hub.config() | changes).items() if key not in without}
        (self.model / "config.json").write_text(json.dumps(config))
        return self.problem().removeprefix("/config.json: ")

    def test_files_that_are_not_whole(self):
        data = self.file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for kept, expected in (
            (0, "0 bytes; a safetensors file has at least 8"),
            (7, "7 bytes; a safetensors file has at least 8"),
            (500, f"offset 0: the header has {length} bytes by its length, 492 are left in the file"),
            (len(data) - 1, f"do not lie in the {len(data) - length - 9} bytes of data"),
        ):
            self.file.write_bytes(data[:kept])
            found = self.problem()
            self.assertTrue(found.startswith("/model.safetensors: ") and found.endswith(expected), found)
        self.file.write_bytes(struct.pack("<Q", 2**62) + data[8:])
        self.assertEqual(self.problem(), f"/model.safetensors: offset 0: the header has {2**62} bytes by its length, "
                                         f"{len(data) - 8} are left in the file")  # fmt: skip

    def test_shapes_types_and_places(self):
        self.assertEqual(self.with_header(shape=[2**40, 2**40]), "shape: the product of its sizes is too large")
        self.assertEqual(self.with_header(shape=[-1, 64]), "shape: expected numbers that are not negative")
        self.assertEqual(self.with_header(shape=[96, 64], dtype="Q4"), "dtype 'Q4' is not known")
        self.assertEqual(self.with_header(dtype="BF16"), "data_offsets hold 24576 bytes; dtype and shape need 12288")
        self.assertEqual(self.with_header(dtype="I64", shape=[96, 32]),
                         f": tensor '{TENSOR}': found numbers of type I64, expected F32, F16, BF16 or F8_E4M3")  # fmt: skip
        self.assertRegex(self.with_header(data_offsets=[0, 2**60]), "data_offsets .* do not lie in the")

    def test_indexes(self):
        shutil.rmtree(self.model)
        plain_hub.write(self.model, parts=3)
        path = self.model / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        (self.model / "model-00002-of-00003.safetensors").unlink()
        self.assertEqual(self.problem(), "/model.safetensors.index.json: weight_map: found the name "
                                         "model-00002-of-00003.safetensors, expected the file in the same folder")  # fmt: skip
        index["weight_map"]["model.lost.weight"] = "model-00001-of-00003.safetensors"
        files = set(index["weight_map"].values()) - {"model-00002-of-00003.safetensors"}
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file in files}
        path.write_text(json.dumps(index))
        self.assertEqual(self.problem(), "/model.safetensors.index.json: weight_map: found tensor 'model.lost.weight' in "
                                         "no file, expected it in model-00001-of-00003.safetensors")  # fmt: skip

    def test_keys_of_the_config(self):
        whole = "found nothing, expected a whole number"
        self.assertEqual(self.with_config("hidden_size"), f"hidden_size: {whole}")
        self.assertEqual(self.with_config("intermediate_size"), f"intermediate_size: {whole}")
        self.assertEqual(self.with_config("num_attention_heads"), f"num_attention_heads: {whole} from 1 to 1073741824")
        self.assertEqual(self.with_config("model_type"), "model_type: found nothing, expected a string")
        self.assertEqual(self.with_config(hidden_size="64"),
                         'hidden_size: found "64", expected a whole number from 1 to 1073741824')  # fmt: skip
        self.assertEqual(self.with_config(vocab_size=10),
                         f"vocab_size: found 10, expected {len(plain_hub.TOKENS)}, the rows of the embedding table")  # fmt: skip
        (self.model / "config.json").write_text("")
        self.assertTrue(self.problem().startswith("/config.json: no valid JSON: "))

    def test_tensors_that_are_missing_or_have_another_shape(self):
        tensors = plain_hub.weights(1)
        dtype, shape, numbers = tensors.pop(TENSOR)
        self.file.write_bytes(plain_hub.safetensors(tensors))
        for command in (("run", "--tokens", "1", "-m", self.model), ("bench", "-m", self.model)):
            self.assertEqual(self.problem(*command), ": tensor blk.1.ffn_up.weight is missing; expected shape [64, 96]")
        self.file.write_bytes(plain_hub.safetensors(tensors | {TENSOR: (dtype, shape[::-1], numbers)}))
        self.assertEqual(self.problem("run", "--tokens", "1", "-m", self.model),
                         ": tensor blk.1.ffn_up.weight has shape [96, 64]; expected [64, 96]")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
