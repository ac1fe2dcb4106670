#!/usr/bin/env python3
"""lockstep bench and bench/side_by_side, end to end: bench_test.py LOCKSTEP SIDE_BY_SIDE"""

import json
import math
import os
import pathlib
import stat
import statistics
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SIDE_BY_SIDE = sys.argv[1:3]

# A llama-bench that measures nothing: the second and later runs are faster. Fields as llama.cpp (and with STYLE=ik
# ik_llama.cpp, which chats on standard output first) writes them.
FAKE_LLAMA_BENCH = """#!/usr/bin/env python3
import json, os, pathlib, sys
args = sys.argv[1:]
log = pathlib.Path(__file__).with_suffix(".log")
with log.open("a") as out:
    print(json.dumps(args), file=out)
runs = len(log.read_text().splitlines())
value = lambda flag: args[args.index(flag) + 1]
entries = []
for field, other in (("-p", "n_prompt"), ("-n", "n_gen")):
    for count in map(int, value(field).split(",")):
        if count:
            entry = {"build_commit": "abc1234", "build_number": 7, "n_prompt": 0, "n_gen": 0}
            entry.update({other: count, "avg_ts": 10.0 * runs + count, "samples_ts": [10.0 * runs + count]})
            entries.append(entry)
if os.environ.get("STYLE") == "ik":
    print("[some notice] in brackets")
    for entry in entries:
        entry["test"] = "pp" if entry["n_prompt"] else "tg"
if os.environ.get("STYLE") == "broken":
    sys.exit("error: failed to load model 'x'")
print(json.dumps(entries[1:] if os.environ.get("STYLE") == "short" else entries, indent=2))
"""


def start(command, status, **env):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
    return done


def bench(*args, status=0):
    return start([PROGRAM, "bench", *args], status)


class WithModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.model = cls.root / "tiny.gguf"
        start(
            [PROGRAM, "forge", "--arch", "llama", "--layers", "3", "--width", "64", "--heads", "4"]
            + ["--kv-heads", "2", "--feed-forward", "96", "--vocab", "300", "--context", "300"]
            + ["--untied", "--type", "q8_0", cls.model],
            0,
        )

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()


class Bench(WithModel):
    def json(self, *args):
        done = bench("-m", self.model, "--json", *args)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def test_json_is_whole_and_adds_up(self):
        report = self.json("-p", "7,260", "-p", "1", "-n", "5", "-r", "3", "-t", "2")
        self.assertEqual(report["model"]["file"], "tiny.gguf")
        self.assertEqual(report["model"]["architecture"], "llama")
        self.assertEqual(report["model"]["size_bytes"], self.model.stat().st_size)
        self.assertEqual(report["threads"], 2)
        self.assertIsInstance(report["device"], str)
        self.assertEqual(set(report["precision"]), {"compute", "activations", "kv"})
        self.assertGreaterEqual(report["load_seconds"], 0)
        bandwidth = report["bandwidth"]["bytes_per_second"]
        self.assertGreater(bandwidth, 0)
        self.assertGreater(report["bandwidth"]["buffer_bytes"], 0)
        results = report["results"]
        self.assertEqual([r["test"] for r in results], ["pp7", "pp260", "pp1", "tg5"])
        self.assertEqual([r["tokens"] for r in results], [7, 260, 1, 5])
        for result in results:
            speeds = result["samples"]
            self.assertEqual(len(speeds), 3)
            self.assertTrue(all(math.isfinite(s) and s > 0 for s in speeds))
            self.close(result["tokens_per_second"], statistics.mean(speeds))
            self.close(result["standard_deviation"], statistics.stdev(speeds))
            self.close(result["median"], statistics.median(speeds))

    def close(self, left, right):
        self.assertTrue(math.isclose(left, right, rel_tol=1e-9), (left, right))

    def test_bytes_and_multiply_adds_are_those_of_the_model(self):
        report = self.json("-p", "9", "-n", "9", "-r", "1", "-t", "1")
        prompt, generation = report["results"]
        # Numbers in a layer's matrices: q and output, k and v, the feed-forward part.
        matrices = 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
        self.assertEqual(prompt["kind"], "prompt")
        seen = 9 * 10 // 2
        multiply_adds = 9 * matrices + 300 * 64 + 3 * seen * 4 * (16 + 16)
        self.close(prompt["multiply_adds_per_token"] * 9, multiply_adds)
        self.close(
            prompt["multiply_adds_per_second"],
            prompt["tokens_per_second"] * prompt["multiply_adds_per_token"],
        )
        self.assertEqual(generation["kind"], "generation")
        # Q8_0 takes 34 bytes for 32 numbers. One row of the embedding; 7 norms in f32.
        weights = (matrices + 300 * 64 + 64) * 34 // 32 + 7 * 64 * 4
        self.assertEqual(generation["weight_bytes_per_token"], weights)
        size = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}[report["precision"]["kv"]]
        self.close(generation["kv_bytes_per_token"], 5 * 3 * 2 * (16 + 16) * size)
        self.close(
            generation["bytes_per_token"],
            generation["weight_bytes_per_token"] + generation["kv_bytes_per_token"],
        )
        self.close(
            generation["bytes_per_second"],
            generation["bytes_per_token"] * generation["tokens_per_second"],
        )
        self.close(
            generation["bandwidth_share"],
            generation["bytes_per_second"] / report["bandwidth"]["bytes_per_second"],
        )
        self.assertEqual(generation["standard_deviation"], 0)

    def test_zero_leaves_a_kind_out(self):
        self.assertEqual(
            [r["test"] for r in self.json("-p", "0", "-n", "3", "-r", "1")["results"]], ["tg3"]
        )
        self.assertEqual(
            [r["test"] for r in self.json("-p", "3", "-n", "0", "-r", "1")["results"]], ["pp3"]
        )

    def test_defaults_that_do_not_fit_are_left_out_and_said(self):
        done = bench("-m", self.model, "--json", "-r", "1")
        self.assertEqual(
            [r["test"] for r in json.loads(done.stdout)["results"]], ["pp128", "tg128"]
        )
        self.assertIn("pp512", done.stderr)
        self.assertIn("300", done.stderr)

    def test_text(self):
        done = bench("-m", self.model, "-p", "4", "-n", "3", "-r", "2", "-t", "1")
        self.assertEqual(done.stderr, "")  # no terminal, no progress
        for word in ("tiny.gguf", "llama", "1 thread;", "GB/s", "pp4", "tg3", "±", "%"):
            self.assertIn(word, done.stdout)

    def test_start_is_the_sum_of_its_parts(self):
        parts = ["open_seconds", "load_seconds", "warm_up_seconds", "prompt_seconds"]
        for repeats in (1, 3):
            report = self.json("--start", "-p", "9", "-r", repeats, "-t", "1", "--device", "cpu")
            self.assertEqual(report["model"]["file"], "tiny.gguf")
            self.assertEqual(report["model"]["size_bytes"], self.model.stat().st_size)
            self.assertEqual(report["device"], "cpu")
            self.assertEqual(report["prompt_tokens"], 9)
            runs = report["runs"]
            self.assertEqual(len(runs), repeats)
            for run in runs:
                self.assertEqual(list(run), [*parts, "first_token_seconds"])
                self.assertTrue(all(math.isfinite(s) and s >= 0 for s in run.values()))
                self.close(sum(run[part] for part in parts), run["first_token_seconds"])
            for part in runs[0]:
                self.close(report[part], statistics.median(run[part] for run in runs))
        done = bench("-m", self.model, "--start", "-r", "2", "-t", "1", "--device", "cpu", "--no-mmap", "--kv", "f32")
        for word in ("tiny.gguf", "cpu", "128 tokens", "2 new processes", "warm-up", "first token"):
            self.assertIn(word, done.stdout)

    def test_wrong_use(self):
        def message(*args):
            done = bench("-m", self.model, *args, status=2)
            self.assertEqual(done.stdout, "")
            return done.stderr

        self.assertIn("found 'abacus', expected a device: cuda, cpu, reference", message("--device", "abacus"))
        self.assertIn("not for the device reference", message("--device", "reference", "--kv", "f32"))
        if not pathlib.Path("/dev/nvidia0").exists():
            self.assertRegex(message("--device", "cuda"), "no GPU|no CUDA part")
        error = message("-p", "301")
        self.assertIn("pp301", error)
        self.assertIn("300", error)
        self.assertIn("tg1000", message("-n", "1000"))
        self.assertIn("nothing to measure", message("-p", "0", "-n", "0"))
        for args in (["-p", "-1"], ["-p", "x"], ["-n", "1.5"], ["-r", "0"], ["-t", "0"]):
            message(*args)
        message("-p", "99999999999999999999")
        self.assertIn("-n", message("--start", "-n", "3"))
        self.assertIn("one prompt", message("--start", "-p", "3,4"))
        self.assertIn("one prompt", message("--start", "-p", "0"))
        self.assertIn("300 positions", message("--start", "-p", "301", "-r", "2"))
        bench("--start", "-m", self.root / "none.gguf", status=2)
        message("stray")
        bench("-m", self.root / "none.gguf", status=2)
        text = self.root / "text.gguf"
        text.write_text("no model")
        bench("-m", text, status=2)


class SideBySide(WithModel):
    def setUp(self):
        self.bin = self.root / f"{self.id()}-llama-bench"
        self.bin.write_text(FAKE_LLAMA_BENCH)
        self.bin.chmod(self.bin.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *args, status=0, style=""):
        return start(
            [SIDE_BY_SIDE, "--llama-bench", self.bin, "--lockstep", PROGRAM, "-m", self.model, *args],
            status,
            STYLE=style,
        )

    def test_ratios_are_those_of_the_rounds(self):
        for style in ("", "ik"):
            with self.subTest(style=style):
                self.setUp()
                self.bin.with_suffix(".log").unlink(missing_ok=True)
                done = self.run_it(
                    "-p", "4", "-n", "3", "-t", "1", "-r", "3", "--json", "--llama-args=-rtr 1", style=style
                )
                report = json.loads(done.stdout)
                self.assertEqual([r["test"] for r in report["results"]], ["pp4", "tg3"])
                for result, count in zip(report["results"], (4, 3)):
                    ours = result["lockstep"]["samples"]
                    theirs = result["llama_bench"]["samples"]
                    self.assertEqual(theirs, [10.0 + count, 20.0 + count, 30.0 + count])
                    ratios = [a / b for a, b in zip(ours, theirs)]
                    self.assertEqual(result["ratios"], ratios)
                    self.assertEqual(result["ratio"], statistics.median(ratios))
                    for side in ("lockstep", "llama_bench"):
                        samples = result[side]["samples"]
                        self.assertEqual(result[side]["median"], statistics.median(samples))
                        self.assertEqual(result[side]["least"], min(samples))
                        self.assertEqual(result[side]["most"], max(samples))
                self.assertEqual(report["llama_bench"]["build"], "abc1234")
                self.assertEqual(report["threads"], 1)
                calls = self.bin.with_suffix(".log").read_text().splitlines()
                self.assertEqual(len(calls), 3)
                for call in map(json.loads, calls):
                    self.assertEqual(call[call.index("-rtr") + 1], "1")
                    self.assertEqual(call[call.index("-r") + 1], "1")
                    self.assertEqual(call[call.index("-t") + 1], "1")
                    self.assertEqual(call[call.index("-m") + 1], str(self.model))

    def test_text(self):
        done = self.run_it("-p", "4", "-n", "0", "-r", "1")
        self.assertIn("pp4", done.stdout)
        self.assertNotRegex(done.stdout, r"(?m)^tg")  # a line; the folder may be called anything
        self.assertIn("ratio", done.stdout)

    def test_failures_exit_with_2(self):
        self.assertIn("failed to load model", self.run_it("-r", "1", status=2, style="broken").stderr)
        self.assertIn("pp4", self.run_it("-p", "4", "-n", "3", "-r", "1", status=2, style="short").stderr)
        self.assertIn("301", self.run_it("-p", "301", "-r", "1", status=2).stderr)
        self.assertIn("nothing", self.run_it("-p", "0", "-n", "0", status=2).stderr)
        self.run_it("-r", "0", status=2)
        self.bin.unlink()
        self.assertIn(self.bin.name, self.run_it("-r", "1", status=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
