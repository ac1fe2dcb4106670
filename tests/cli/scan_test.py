#!/usr/bin/env python3
"""lockstep scan, import and export, end to end: scan_test.py LOCKSTEP TOY_LOGGER EXIT_RECORDER MODEL"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

PROGRAM, TOY, EXIT_RECORDER, MODEL = sys.argv[1:5]


def run(*args, status=0):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == status, (args, done.returncode, done.stdout, done.stderr)
    return done


def line(checkpoint, position, values, **more):
    return json.dumps(
        {
            "checkpoint": checkpoint,
            "team": "test",
            "token_idx": position,
            "dtype": "f32",
            "shape": f"[1,{len(values)}]",
            "values": values,
            **more,
        }
    )


def read_npz(path):
    """numpy.load in a few lines: name -> (type, shape, list of numbers or texts)."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            data = archive.read(name)
            assert data[:8] == b"\x93NUMPY\x01\x00"
            (size,) = struct.unpack("<H", data[8:10])
            assert (10 + size) % 64 == 0
            header = eval(data[10 : 10 + size])
            kind, shape, body = header["descr"], header["shape"], data[10 + size :]
            count = 1
            for extent in shape:
                count *= extent
            if kind[1] == "U":
                width = int(kind[2:])
                values = [
                    body[4 * width * i : 4 * width * (i + 1)].decode("utf-32-le").rstrip("\0")
                    for i in range(count)
                ]
                assert len(body) == 4 * width * count
            else:
                code = {"<f8": "d", "<f4": "f", "<f2": "e", "<i8": "q"}[kind]
                values = list(struct.unpack(f"<{count}{code}", body))
            arrays[name.removesuffix(".npy")] = (kind, shape, values)
    return arrays


class Scan(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def clean_log(self, name="clean.jsonl", positions=5, width=10):
        rows = [[random.gauss(0, 2) for _ in range(width)] for _ in range(2 * positions)]
        path = self.root / name
        path.write_text(
            "".join(
                line("layer_0_output" if i < positions else "logits", i % positions, row) + "\n"
                for i, row in enumerate(rows)
            )
        )
        return path, rows

    def toy_log(self, name="toy.jsonl", values=10, digits=9):
        path = self.root / name
        subprocess.run([TOY, path, str(values), str(digits), "6"], check=True)
        return path

    def test_our_own_recorder_does_not_fall_into_the_trap(self):
        """Where the toy logger's rows are freed memory, ours are the numbers of a run that ended well."""
        folder = self.root
        steps = 12
        command = [EXIT_RECORDER, MODEL, folder / "trace", folder / "log.jsonl", str(steps)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        self.assertIn("no garbage", run("scan", folder / "log.jsonl").stdout)
        shown = run("scan", folder / "trace", status=1).stdout
        self.assertIn("no garbage", shown)
        self.assertIn("the recording broke off", shown)
        manifest = json.loads((folder / "trace/manifest.json").read_text())
        self.assertEqual(sum(step["n_tokens"] for step in manifest["steps"]), steps)
        self.assertFalse(manifest["complete"])
        tokens = ",".join(str(100 + i) for i in range(steps))
        run("run", "-m", MODEL, "--tokens", tokens, "-n", "0", "--trace", folder / "whole")
        whole = json.loads(run("compare", folder / "whole", folder / "trace", "-m", MODEL, "--json").stdout)
        self.assertEqual(whole["verdict"], "exact")
        self.assertEqual(whole["coverage"], 1)

    def test_clean_log(self):
        path, rows = self.clean_log()
        out = json.loads(run("scan", path, "--json", "--stats").stdout)
        self.assertTrue(out["clean"])
        (file,) = out["files"]
        self.assertEqual(file["numbers"], 100)
        self.assertEqual(file["garbage_rate"], 0)
        self.assertEqual([c["checkpoint"] for c in file["checkpoints"]], ["blk.0.output", "logits"])
        self.assertEqual(len(file["rows"]), 10)
        for row, values in zip(file["rows"], rows):
            self.assertAlmostEqual(row["min"], min(values), places=5)
            self.assertAlmostEqual(row["max"], max(values), places=5)
            self.assertAlmostEqual(row["mean"], sum(values) / 10, places=5)
        logits = sum(rows[5:], [])
        mean = sum(logits) / 50
        self.assertAlmostEqual(file["checkpoints"][1]["mean"], mean, places=5)
        self.assertAlmostEqual(
            file["checkpoints"][1]["std"], (sum((x - mean) ** 2 for x in logits) / 50) ** 0.5, places=5
        )
        self.assertIn("no garbage", run("scan", path).stdout)

    def test_freed_memory_is_named(self):
        path = self.toy_log()
        done = run("scan", path, status=1)
        self.assertIn("links of the allocator's free list: freed memory was read", done.stdout)
        self.assertIn("columns 0-3", done.stdout)
        out = json.loads(run("scan", path, "--json", status=1).stdout)
        (cluster,) = out["files"][0]["clusters"]
        self.assertEqual(cluster["kind"], "free-list")
        self.assertEqual(cluster["positions"], list(range(6)))
        # The same through a trace.
        run("import", path, self.root / "trace")
        out = json.loads(run("scan", self.root / "trace", "--json", status=1).stdout)
        self.assertEqual(out["files"][0]["clusters"][0]["kind"], "free-list")

    def test_several_files_give_a_table(self):
        clean, _ = self.clean_log()
        toy, large = self.toy_log(), self.toy_log("large.jsonl", values=600)
        table = run("scan", clean, toy, large, status=1).stdout.split("\n\n")[0].splitlines()
        self.assertRegex(table[0], "model +garbage +positions +columns +magnitude +what")
        self.assertRegex(table[1], r"clean.jsonl +0 +- +- +- +-")
        self.assertRegex(table[2], r"toy.jsonl +40.00% +0-5 +0-3 +\S+ to \S+ +free-list")
        self.assertRegex(table[3], r"large.jsonl +1.00% +0-5 +0-3 +\S+ to \S+ +free-list|large.jsonl.*free-list")

    def test_problems_are_told(self):
        path, _ = self.clean_log()
        path.write_text(path.read_text() + '{"checkpoint":"logits","tok')
        done = run("scan", path, status=1)
        self.assertIn("clean.jsonl:11:28: the last line is cut off", done.stderr)
        done = run("import", path, self.root / "trace", status=1)
        self.assertIn("clean.jsonl:11:28: the last line is cut off", done.stderr)
        self.assertIn("1 lines left out", done.stdout)

    def test_the_same_problem_is_told_once(self):
        path, _ = self.clean_log()
        text = "".join(x + "\nprogress\n" for x in path.read_text().splitlines())
        path.write_text(text + text)
        done = run("import", path, self.root / "trace", status=1)
        self.assertEqual(len(done.stderr.splitlines()), 2, done.stderr)
        self.assertIn("expected '{' (and 19 more lines like it, the last is line 40)", done.stderr)
        self.assertIn("30 lines left out", done.stdout)
        out = json.loads(run("scan", path, "--json").stdout)
        (problem,) = out["files"][0]["problems"]
        self.assertEqual((problem["line"], problem["lines"], problem["last_line"]), (2, 20, 40))

    def test_zeros_and_wrong_types_in_a_log(self):
        path = self.root / "log.jsonl"
        lines = []
        for position in range(16):
            halves = struct.pack("<12e", *[random.gauss(0, 1) for _ in range(12)])
            lines.append(line("layer_0_output", position, struct.unpack("<6f", halves), shape="[1,64]"))
        for position in range(16):
            row = [random.gauss(0, 1) for _ in range(6)] if position < 10 else [0.0] * 6
            lines.append(line("layer_1_output", position, row, shape="[1,64]"))
        path.write_text("\n".join(lines))
        (file,) = json.loads(run("scan", path, "--json", status=1).stdout)["files"]
        halves, zeros = file["clusters"]
        self.assertEqual((halves["kind"], halves["checkpoints"]), ("fp16-pairs", ["blk.0.output"]))
        self.assertEqual((zeros["kind"], zeros["positions"]), ("zeros", list(range(10, 16))))
        self.assertTrue(halves["whole_rows"] and zeros["whole_rows"])
        self.assertEqual(len(file["notes"]), 1)
        self.assertIn("only the first 6 numbers of rows of 64 are there", file["notes"][0])
        self.assertEqual(run("scan", path, status=1).stdout.count("only the first 6"), 1)

    def test_unreadable(self):
        bad = self.root / "bad"
        bad.write_text("not a log\n")
        self.assertIn("no line can be read", run("scan", bad, status=2).stderr)
        self.assertIn("no such file or folder; expected the folder of a trace, or a JSON Lines log",
                      run("scan", self.root / "nothing", status=2).stderr)  # fmt: skip
        run("scan", status=2)
        self.assertIn("[bad]: no such file", run("scan", "[bad]", status=2).stderr)
        folder = self.root / "folder"
        folder.mkdir()
        self.assertIn("manifest.json", run("scan", folder, status=2).stderr)
        (folder / "manifest.json").touch()
        self.assertIn("--jsonl OUT or --npz OUT", run("export", folder, status=2).stderr)

    def test_numpy_statistics(self):
        path, rows = self.clean_log()
        run("scan", path, "--numpy", self.root / "stats.npz")
        arrays = read_npz(self.root / "stats.npz")
        self.assertEqual(arrays["checkpoint"][2], ["blk.0.output"] * 5 + ["logits"] * 5)
        self.assertEqual(arrays["position"][2], list(range(5)) * 2)
        for got, row in zip(arrays["max"][2], rows):
            self.assertAlmostEqual(got, max(row), places=5)
        self.assertEqual(arrays["garbage"], ("<i8", (10,), [0] * 10))

    def test_side_by_side(self):
        path, _ = self.clean_log()
        other, _ = self.clean_log("other.jsonl", positions=3)
        out = run("scan", path, "--compare", other).stdout
        self.assertRegex(out, "checkpoint +min +min' +max +max'")
        both = json.loads(run("scan", path, "--compare", other, "--json").stdout)
        self.assertEqual([f["numbers"] for f in both["files"]], [100, 60])

    def test_export(self):
        path, rows = self.clean_log()
        trace = self.root / "trace"
        run("import", path, trace)
        run("export", trace, "--npz", self.root / "t.npz", "--jsonl", self.root / "t.jsonl", "--values", 4)
        arrays = read_npz(self.root / "t.npz")
        self.assertEqual(arrays["positions"], ("<i8", (5,), [0, 1, 2, 3, 4]))
        kind, shape, values = arrays["logits"]
        self.assertEqual((kind, shape), ("<f4", (5, 10)))
        single = [struct.unpack("<f", struct.pack("<f", x))[0] for x in sum(rows[5:], [])]
        self.assertEqual(values, single)
        lines = [json.loads(x) for x in (self.root / "t.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), 10)
        self.assertEqual({x["checkpoint"] for x in lines}, {"layer_0_output", "logits"})
        self.assertEqual({len(x["values"]) for x in lines}, {4})
        self.assertEqual({x["shape"] for x in lines}, {"[10]"})
        run("export", trace, "--npz", self.root / "l.npz", "--checkpoints", "logits")
        self.assertEqual(set(read_npz(self.root / "l.npz")), {"positions", "logits"})
        self.assertIn("no checkpoint matches 'q'", run("export", trace, "--npz", self.root / "q.npz", "--checkpoints", "q", status=2).stderr)
        try:
            import numpy
        except ImportError:
            return
        loaded = numpy.load(self.root / "t.npz")
        self.assertEqual(loaded["logits"].shape, (5, 10))
        self.assertTrue((loaded["logits"].ravel() == numpy.float32(single)).all())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
