"""docs/trace-format.md is enough to read and write traces: both are done here from the page alone.

usage: trace_format_test.py PROGRAM
"""

import json
import math
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/trace-format.md"
MODEL = ROOT / "models/haiku-llama-q4_k_m.gguf"
CODES = {"f64": "d", "f32": "f", "f16": "e"}


# A reader.


def read_shard(path):
    """Tensors of a shard: name to dtype, shape and bytes."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[start + begin : start + end])
    return tensors


def numbers(dtype, data):
    if dtype == "bf16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(CODES[dtype])}{CODES[dtype]}", data))


def read_trace(folder):
    """The manifest, and all rows: (checkpoint, position) to numbers, of scores head after head."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if manifest["format"] != "lockstep-trace" or manifest["version"] != 1:
        raise ValueError("no trace of version 1")
    rows, shards = {}, {}
    for step in manifest["steps"]:
        if step["shard"] not in shards:
            shards[step["shard"]] = read_shard(folder / step["shard"])
        for checkpoint in manifest["checkpoints"]:
            tensor = shards[step["shard"]].get(f"{step['index']}/{checkpoint['name']}")
            if tensor is None:
                continue
            stored, shape, data = tensor
            assert stored == checkpoint["dtype"].upper()
            values = numbers(checkpoint["dtype"], data)
            for i in range(step["n_tokens"]):
                position = step["first_pos"] + i
                if len(shape) == 3:
                    heads, tokens, positions = shape
                    row = [values[(h * tokens + i) * positions + p] for h in range(heads) for p in range(positions)]
                else:
                    at = i - (step["n_tokens"] - shape[0])
                    if at < 0:
                        continue
                    row = values[at * shape[1] : (at + 1) * shape[1]]
                rows[checkpoint["name"], position] = row
    return manifest, rows


# A writer.


def shard_bytes(tensors, random_order):
    """`tensors`: name to dtype, shape and bytes."""
    names = sorted(tensors, key=lambda _: random_order.random())
    header, offset = {"__metadata__": {"mine": "ignored"}}, 0
    for name in names:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * random_order.randrange(9)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors[name][2] for name in names)


def run(*command, status=0):
    done = subprocess.run([PROGRAM, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


class TraceFormat(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.seed = random.randrange(1 << 30)
        self.random = random.Random(self.seed)

    def record(self, name, *flags):
        folder = self.root / name
        run("run", "-m", MODEL, "-p", "GPU haiku with word seven: ", "-n", "6", "--trace", folder, *flags)
        return folder

    def check_export(self, folder):
        manifest, rows = read_trace(folder)
        run("export", folder, "--jsonl", self.root / "log", "--values", 1 << 40)
        lines = [json.loads(line) for line in (self.root / "log").read_text().splitlines()]
        self.assertEqual(len(lines), len(rows))
        told = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text().split("## JSON Lines")[1].split("\n## ")[0], re.M))
        for line in lines:
            self.assertLessEqual(set(line), told)
            name = re.sub(r"^layer_(\d+)_output$", r"blk.\1.output", line["checkpoint"])
            row = rows.pop((name, line["token_idx"]))
            self.assertEqual(len(row), len(line["values"]))
            for mine, printed in zip(row, line["values"]):
                printed = float(printed)
                if line["dtype"] != "f64" and math.isfinite(printed):
                    printed = struct.unpack("<f", struct.pack("<f", printed))[0]
                self.assertTrue(same(mine, printed), (name, line["token_idx"], mine, printed))
        self.assertFalse(rows)
        return manifest

    def test_a_reader_gets_the_numbers_of_export(self):
        manifest = self.check_export(self.record("cpu", "--checkpoints", "all", "--device", "cpu"))
        self.assertTrue(manifest["complete"])
        self.check_export(self.record("reference", "--checkpoints", "ops", "--device", "reference"))
        self.check_export(self.record("last", "--checkpoints", "logits", "--logits", "last", "--device", "cpu"))

    def test_the_program_writes_documented_fields_only(self):
        page = PAGE.read_text().split("## manifest.json")[1].split("\n### ")[0]
        told = set(re.findall(r"^\| `([\w.\[\]]+)` \|", page, re.M))

        def paths(value, path):
            if isinstance(value, list):
                return {p for item in value for p in paths(item, path + "[]")}
            if not isinstance(value, dict) or path == "sampling":
                return set()
            found = set()
            for key, item in value.items():
                inner = f"{path}.{key}" if path else key
                found |= {inner} | paths(item, inner)
            return found

        manifest, _ = read_trace(self.record("cpu", "--device", "cpu"))
        self.assertLessEqual(paths(manifest, ""), told)

    def test_a_trace_written_by_hand_is_accepted(self):
        """What the program recorded, put together anew: other shards, another order, other indices."""
        recorded = self.record("cpu", "--checkpoints", "ops", "--device", "cpu")
        manifest, _ = read_trace(recorded)
        shards = {step["shard"]: read_shard(recorded / step["shard"]) for step in manifest["steps"]}
        mine = self.root / "mine"
        mine.mkdir()
        wanted = ("engine", "model", "forward", "tokens", "n_prompt", "sampling", "checkpoints")
        new = {"format": "lockstep-trace", "version": 1, "complete": True, **{key: manifest[key] for key in wanted}}
        new["steps"], new["something of mine"] = [], {"x": [1, 2]}
        for number, step in enumerate(manifest["steps"]):
            index, shard = 1000 - 7 * number, f"step {number}"
            prefix = f"{step['index']}/"
            tensors = {f"{index}/{name[len(prefix):]}": tensor
                       for name, tensor in shards[step["shard"]].items() if name.startswith(prefix)}  # fmt: skip
            (mine / shard).write_bytes(shard_bytes(tensors, self.random))
            new["steps"].append({**step, "index": index, "shard": shard})
        (mine / "manifest.json").write_text(json.dumps(new))
        outcome = json.loads(run("compare", recorded, mine, "-m", MODEL, "--json"))
        self.assertEqual((outcome["parity"], outcome["verdict"]), (True, "exact"), self.seed)
        self.assertEqual((outcome["coverage"], outcome["judged"]), (1, 1))

    def test_the_smallest_trace(self):
        manifest = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.S)[1])
        for dtype, code in (("f64", "d"), ("f32", "f"), ("f16", "e"), ("bf16", "H")):
            folder = self.root / dtype
            folder.mkdir()
            values = [self.random.choice((0, 1, -0.5, 96, math.inf, math.nan, -math.inf)) for _ in range(6)]
            bits = values if code != "H" else [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
            manifest["checkpoints"][0]["dtype"] = dtype
            (folder / "manifest.json").write_text(json.dumps(manifest))
            data = struct.pack(f"<6{code}", *bits)
            tensors = {"0/logits": (dtype.upper(), [2, 3], data), "not mine": ("I8", [1], b"x")}
            (folder / "000000.safetensors").write_bytes(shard_bytes(tensors, self.random))
            self.check_export(folder)
            self.assertEqual(json.loads(run("compare", folder, folder, "--json"))["verdict"], "exact")

    def test_what_the_page_refuses_is_refused(self):
        manifest = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.S)[1])
        good = {"0/logits": ("F32", [2, 3], struct.pack("<6f", *range(6)))}

        def status(change=None, tensors=good):
            folder = self.root / f"{len(list(self.root.iterdir()))}"
            folder.mkdir()
            changed = json.loads(json.dumps(manifest))
            if change:
                change(changed)
            (folder / "manifest.json").write_text(json.dumps(changed))
            (folder / "000000.safetensors").write_bytes(shard_bytes(tensors, self.random))
            done = subprocess.run([PROGRAM, "export", folder, "--jsonl", self.root / "log"], capture_output=True)
            return done.returncode

        self.assertEqual(status(), 0)
        self.assertEqual(status(lambda m: m.update(mine=1)), 0)
        self.assertEqual(status(lambda m: m["steps"].append({**m["steps"][0], "index": 1, "first_pos": 1})), 2)
        step, checkpoint = (lambda m: m["steps"][0]), (lambda m: m["checkpoints"][0])
        for wrong in (
            lambda m: m.update(version=2), lambda m: m.update(format="other"),
            lambda m: m["engine"].update(precision={"compute": "f33"}),
            lambda m: step(m).update(shard="../x"), lambda m: step(m).update(shard=".x"),
            lambda m: step(m).update(index=1),
            lambda m: step(m).update(first_pos=(1 << 24) - 1), lambda m: step(m).update(n_tokens=1),
            lambda m: checkpoint(m).update(width=4), lambda m: checkpoint(m).update(dtype="f16"),
            lambda m: checkpoint(m).update(name="l\x1b"), lambda m: checkpoint(m).update(full_width=2),
        ):  # fmt: skip
            self.assertEqual(status(wrong), 2)
        for tensors in (
            {"0/logits": ("F32", [3, 3], bytes(36))}, {"0/logits": ("F32", [2, 3], bytes(20))},
            {"0/other": ("F32", [2, 3], bytes(24))}, {"0/logits": ("F64", [2, 3], bytes(48))},
        ):  # fmt: skip
            self.assertEqual(status(tensors=tensors), 2)
        # The last rows of a step alone are for logits.
        last = {"0/logits": ("F32", [1, 3], bytes(12))}
        self.assertEqual(status(tensors=last), 0)
        self.assertEqual(status(lambda m: checkpoint(m).update(name="embedding"), {"0/embedding": last["0/logits"]}), 2)

    def test_the_line_of_the_page_is_imported(self):
        line = re.search(r'^    (\{"checkpoint".*\})$', PAGE.read_text(), re.M)[1]
        (self.root / "log.jsonl").write_text(line + "\n")
        run("import", self.root / "log.jsonl", self.root / "imported")
        manifest, rows = read_trace(self.root / "imported")
        self.assertEqual(manifest["engine"]["name"], "my engine")
        wanted = {"name": "embedding", "dtype": "f32", "width": 3, "full_width": 256}
        self.assertEqual(manifest["checkpoints"], [wanted])
        self.assertEqual(rows["embedding", 0][:2], [0.25, -1.5])
        self.assertTrue(math.isnan(rows["embedding", 0][2]))


if __name__ == "__main__":
    unittest.main()
