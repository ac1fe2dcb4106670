"""The package by itself: what is written is read back, by us and by the safetensors library."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import lockstep
from lockstep import _checkpoints, _limits, _precision

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import safetensors
except ImportError:
    safetensors = None


class TraceTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name) / "trace"
        self.seed = int.from_bytes(os.urandom(4), "little")
        self.random = np.random.default_rng(self.seed)

    def write(self, steps, **options):
        options = {"engine": "test", "precision": {"compute": "f32"}, **options}
        with lockstep.TraceWriter(self.folder, **options) as trace:
            for first, values in steps:
                trace.step(first, values)
        return lockstep.open_trace(self.folder)

    def numbers(self, *shape, dtype=np.float32):
        return self.random.standard_normal(shape).astype(dtype)

    def test_everything_comes_back(self):
        for width in (1, 7, 255, 257):
            with self.subTest(width=width, seed=self.seed):
                self.folder = self.folder.with_name(f"trace{width}")
                prompt, later = self.numbers(5, width), self.numbers(1, width)
                trace = self.write(
                    [(0, {"embedding": prompt, "logits": prompt[-1:]}),
                     (5, {"embedding": later, "logits": later})],
                    tokens=[1, 2, 3, 4, 5, 6], n_prompt=5, prompt="häß", model={"file": "x.gguf"},
                    sampling={"temperature": 0})
                np.testing.assert_array_equal(trace["embedding"], np.concatenate([prompt, later]))
                self.assertEqual(trace.positions("embedding").tolist(), list(range(6)))
                self.assertEqual(trace.positions("logits").tolist(), [4, 5])
                np.testing.assert_array_equal(trace.row("embedding", 3), prompt[3])
                np.testing.assert_array_equal(trace.row("logits", 4), prompt[4])
                with self.assertRaises(KeyError):
                    trace.row("logits", 3)
                with self.assertRaises(KeyError):
                    trace.row("embedding", 6)
                self.assertEqual(trace.tokens.tolist(), [1, 2, 3, 4, 5, 6])
                self.assertEqual(trace.n_prompt, 5)
                self.assertTrue(trace.complete)
                self.assertEqual(list(trace), ["embedding", "logits"])
                self.assertEqual(trace.manifest["prompt"], "häß")
                self.assertEqual(trace.manifest["model"], {"file": "x.gguf"})

    def test_every_type_keeps_its_bits(self):
        special = [0.0, -0.0, np.nan, np.inf, -np.inf, 6e-8, 1.0]
        values = {
            "d": np.array([special]),
            "f": np.array([special], dtype=np.float32),
            "h": np.array([special], dtype=np.float16),
            "b": lockstep.float32_to_bfloat16([special]),
            "big": np.array([special], dtype=">f4"),
        }
        trace = self.write([(0, values)])
        self.assertEqual([c.dtype for c in trace.checkpoints.values()],
                         ["f64", "f32", "f16", "bf16", "f32"])
        for name in "dfhb":
            self.assertEqual(trace[name].tobytes(), values[name].tobytes(), name)
        self.assertEqual(trace["big"].tobytes(), values["f"].tobytes())

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_bfloat16_is_that_of_ml_dtypes(self):
        numbers = self.numbers(3, 100)
        numbers[0, :4] = [np.nan, np.inf, -0.0, 1e-40]
        ours = lockstep.float32_to_bfloat16(numbers)
        theirs = numbers.astype(ml_dtypes.bfloat16)
        same = (ours == theirs.view(np.uint16)) | np.isnan(numbers)
        self.assertTrue(same.all(), f"seed {self.seed}")
        trace = self.write([(0, {"x": theirs})])
        self.assertEqual(trace["x"].dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(lockstep.bfloat16_to_float32(trace["x"]),
                                      theirs.astype(np.float32))

    @unittest.skipIf(safetensors is None, "safetensors is not installed")
    def test_the_safetensors_library_reads_our_shards(self):
        x = self.numbers(3, 7)
        self.write([(0, {"x": x, "odd\" näme": x.astype(np.float16)})])
        with safetensors.safe_open(str(self.folder / "000000.safetensors"), "numpy") as shard:
            np.testing.assert_array_equal(shard.get_tensor("0/x"), x)
            np.testing.assert_array_equal(shard.get_tensor('0/odd" näme'), x.astype(np.float16))

    def test_one_step_is_a_view_and_read_only(self):
        trace = self.write([(0, {"x": self.numbers(4, 5)})])
        self.assertFalse(trace["x"].flags.owndata)
        with self.assertRaises(ValueError):
            trace["x"][0, 0] = 1

    def test_attention_scores(self):
        first, second = self.numbers(2, 3, 3), self.numbers(2, 1, 4)
        trace = self.write([(0, {"s": first}), (3, {"s": second})])
        np.testing.assert_array_equal(trace.row("s", 1), first[:, 1])
        np.testing.assert_array_equal(trace.row("s", 3), second[:, 0])
        np.testing.assert_array_equal(trace.value("s", 0), first)
        with self.assertRaises(lockstep.TraceError):
            trace["s"]

    def test_wrong_use_is_told(self):
        with lockstep.TraceWriter(self.folder, engine="test") as trace:
            trace.step(0, {"x": self.numbers(2, 3)})
            for first, values in [
                (1, {"x": self.numbers(2, 3)}),                          # positions go back
                (2, {"x": self.numbers(2, 4)}),                          # another width
                (2, {"x": self.numbers(2, 3).astype(np.float64)}),       # another type
                (2, {"x": self.numbers(2, 3), "y": self.numbers(1, 3)}),  # other rows
                (2, {"y": self.numbers(0, 3)}),
                (2, {}),
            ]:
                with self.assertRaises(ValueError):
                    trace.step(first, values)
            with self.assertRaises(TypeError):
                trace.step(2, {"z": np.array([[1, 2]])})
        with self.assertRaises(ValueError):
            trace.step(5, {"x": self.numbers(1, 3)})
        read = lockstep.open_trace(self.folder)
        self.assertEqual(list(read), ["x"])
        np.testing.assert_array_equal(read.value("x", -1), read["x"])
        for step in (1, -2):
            with self.assertRaisesRegex(KeyError, f"step {step} of 1"):
                read.value("x", step)
        for look in (lambda: read["blk.0.q"], lambda: read.row("y", 0), lambda: read.value("y", 0), lambda: read.positions("y")):
            with self.assertRaisesRegex(KeyError, r"has no '(blk.0.q|y)'; it has x, \.\.\."):
                look()
        for folder in (self.folder / "none", self.folder / "manifest.json"):
            with self.assertRaisesRegex(lockstep.TraceError, "manifest.json: No.* directory; expected the folder of a trace$"):
                lockstep.open_trace(folder)
        with self.assertRaises(FileExistsError):
            lockstep.TraceWriter(self.folder, engine="test")
        with lockstep.TraceWriter(self.folder / "new", engine="test") as trace:
            with self.assertRaisesRegex(ValueError, "^first_pos=-1; expected a whole number from 0 on$"):
                trace.step(-1, {"x": self.numbers(2, 3)})
            for first, values, message in (
                (0.0, {"x": self.numbers(2, 3)}, "^first_pos=0.0; expected a whole number$"),
                (0, [("x", self.numbers(2, 3))], "^the values of a step are of type list; expected a mapping of names to "),
            ):
                with self.assertRaisesRegex(TypeError, message):
                    trace.step(first, values)
            with self.assertRaisesRegex(ValueError, "^3 is no name: expected 1 to 255 bytes of printable UTF-8$"):
                trace.step(0, {3: self.numbers(2, 3)})
        for given, message in (
            ({"engine": None}, "^engine=None; expected its name, or a mapping of name, version and device$"),
            ({"engine": "t", "sampling": 3}, "^sampling=3; expected a mapping$"),
            ({"engine": "t", "forward": "x"}, "^forward='x'; expected a mapping$"),
            ({"engine": "t", "n_prompt": 1.5}, "^n_prompt=1.5; expected a whole number$"),
            ({"engine": "t", "tokens": [1, 2.5]}, r"^tokens: expected whole numbers in a row, such as \[1, 2, 3\]$"),
            ({"engine": "t", "sampling": {"seed": {1}}}, r"^sampling: seed=\{1\}; expected a finite number, a text, or a list "),
            ({"engine": "t", "prompt": None}, "^prompt=None; expected a text$"),
            ({"engine": "t", "notes": "abc"}, "^notes='abc'; expected a list of texts$"),
            ({"engine": "t", "unmapped": [3]}, "^unmapped=3; expected a text$"),
            ({"engine": "t", "model": 3}, "^model=3; expected the GGUF file, or a mapping with its path and fingerprint$"),
            ({"engine": "t", "precision": ["f32"]}, r"^precision=\['f32'\]; expected a mapping$"),
            ({"engine": {"name": 3}}, "^engine: name=3; expected a text$"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                lockstep.TraceWriter(self.folder / "never", **given)
        for given, message in (
            ({"engine": "t", "n_prompt": -1}, "^n_prompt=-1; expected a whole number from 0 on$"),
            ({"engine": "t", "tokens": [1, -5]}, "^tokens: -5 is no token id; expected 0 to 2147483647$"),
            ({"engine": "t", "sampling": {"seed": float("nan")}}, "^sampling: seed=nan; expected a finite number, a text, or "),
            ({"engine": ""}, "^engine: the name is missing$"),
            ({"engine": {"version": "2"}}, "^engine: the name is missing$"),
            ({"engine": {"nam": "t"}}, "^engine: found the field 'nam', expected name, version, device$"),
            ({"engine": "t", "model": {"pth": "x"}}, "^model: found the field 'pth', expected file, path, architecture, "),
        ):
            with self.assertRaisesRegex(ValueError, message):
                lockstep.TraceWriter(self.folder / "never", **given)
        self.assertFalse((self.folder / "never").exists())
        writer = lockstep.TraceWriter(self.folder / "grown", engine="test", tokens=[1])
        writer.step(0, {"x": self.numbers(2, 3)})
        writer.tokens.append(3.7)  # never cut to 3
        with self.assertRaisesRegex(TypeError, "^tokens: expected whole numbers in a row"):
            writer.close()

    def test_numbers_of_numpy(self):
        with lockstep.TraceWriter(self.folder, engine="test", tokens=np.arange(2), n_prompt=np.int64(2),
                                  sampling={"temperature": np.float32(0.5)}) as trace:  # fmt: skip
            trace.step(np.int64(0), {"x": self.numbers(2, 3)}, tokens=np.int32(2))
            trace.tokens.append(np.int64(7))
        read = lockstep.open_trace(self.folder)
        self.assertEqual((read.tokens.tolist(), read.n_prompt, read.manifest["sampling"]), ([0, 1, 7], 2, {"temperature": 0.5}))

    def test_experts_may_be_whole_numbers(self):
        choice = np.array([[3, 0], [7, 1]])
        kinds = (np.int64, np.int32, np.int16, np.uint8)
        self.write([(0, {f"blk.{layer}.ffn_choice": choice.astype(kind) for layer, kind in enumerate(kinds)})])
        trace = lockstep.open_trace(self.folder)
        for layer in range(len(kinds)):
            self.assertEqual(trace[f"blk.{layer}.ffn_choice"].dtype, np.float32)
            np.testing.assert_array_equal(trace[f"blk.{layer}.ffn_choice"], choice)
        with self.assertRaisesRegex(TypeError, "blk.0.q: values of type int64 cannot be recorded"):
            with lockstep.TraceWriter(self.folder.with_name("other"), engine="test") as other:
                other.step(0, {"blk.0.q": choice})

    def test_refuses_unknown_precision(self):
        for precision, message in [
            ({"compute": "f31"}, "precision: compute: found 'f31', expected one of f64, f32, tf32, f16, bf16"),
            ({"kv": "int8"}, "precision: kv: found 'int8', expected one of f64, f32, f16, bf16, e4m3, e5m2, "
             "e4m3:S, e5m2:S, int8:S with S tensor, row or block1 to block65536"),
            ({"weights": None}, "precision: weights: found None, expected one of f64, "),
            ({"sums": "bf16"}, "precision: sums: found 'bf16', expected one of f32, f16"),
            ({"sum": "f32"}, "precision: found the field 'sum', expected one of compute, activations, kv, weights, sums"),
        ]:
            with self.assertRaises(ValueError) as raised:
                lockstep.TraceWriter(self.folder / "new", engine="t", precision=precision)
            self.assertIn(message, str(raised.exception))
        self.assertFalse((self.folder / "new").exists())
        for name in ("int8:block0", "int8:block65537", "int8:block\u0661", "e4m3:", "f32:row", "tf32:row", "row"):
            self.assertFalse(_precision.is_known("weights", name), name)
        names = {"compute": "tf32", "activations": "int8:row", "kv": "e4m3:tensor", "weights": "e5m2:block128",
                 "sums": "f16"}
        self.write([(0, {"x": self.numbers(1, 3)})], precision=names)
        manifest = json.loads((self.folder / "manifest.json").read_text())
        self.assertEqual(manifest["engine"]["precision"], names)

    def test_names_of_precision_are_those_of_the_header(self):
        header = Path(__file__).parents[2] / "include/lockstep/detail/precision.h"
        if not header.exists():
            self.skipTest("not in the project's tree")
        text = header.read_text()
        rows = re.findall(r'\{"(\w+)", "([a-z ]+)", Scaled::k(\w+)\}', text)
        self.assertEqual({kind: (fields, scaled.lower()) for kind, fields, scaled in rows}, dict(_precision.TYPES))
        most = re.search(r"kMostInBlock = (\d+);", text)
        self.assertEqual(int(most[1]), _precision.MOST_IN_BLOCK)

    def test_checkpoints_are_those_of_the_header(self):
        header = Path(__file__).parents[2] / "include/lockstep/detail/checkpoints.h"
        if not header.exists():
            self.skipTest("not in the project's tree")
        text = header.read_text()
        sets = re.search(r"kCheckpointSets\[\] = \{([^}]+)\}", text)
        self.assertEqual(re.findall(r'"(\w+)"', sets[1]), list(_checkpoints.SETS))
        scores = re.search(r'kScoresShape = "([^"]+)"', text)[1]
        rows = re.findall(r'\{"([\w.]+)",\s*(?:"(\[[^"]+\])"|(kScoresShape)),\s*"([a-z ]+)",', text)
        found = [(name, (scores if is_scores else shape, sets)) for name, shape, is_scores, sets in rows]
        self.assertEqual(found, list(_checkpoints.CHECKPOINTS.items()))

    def test_limits_are_those_of_the_header(self):
        header = Path(__file__).parents[2] / "include/lockstep/detail/limits.h"
        if not header.exists():
            self.skipTest("not in the project's tree")
        rows = re.findall(r"constexpr \w+ kMost(\w+) = ([^;]+);", header.read_text())
        self.assertEqual(len(rows), 4)
        for name, value in rows:
            number = eval(value.replace("int64_t{1}", "1").replace("'", "_"), {})
            python = "MOST_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
            self.assertEqual(getattr(_limits, python), number, python)
        self.assertIn(f'kNameRule = "{_limits.NAME_RULE}"', header.read_text())

    def test_what_is_beyond_the_limits_is_refused(self):
        x = self.numbers(2, 3)
        last = _limits.MOST_POSITIONS - 2
        self.write([(last, {"n" * 255: x})])
        self.assertEqual(lockstep.open_trace(self.folder).steps[0].first_position, last)
        for first, name in ((last + 1, "x"), (0, "n" * 256), (0, ""), (0, "\x1b[31m"), (0, "\ud800")):
            with lockstep.TraceWriter(self.folder.with_name("other"), engine="test") as trace:
                with self.assertRaises(ValueError):
                    trace.step(first, {name: x})
            for file in self.folder.with_name("other").iterdir():
                file.unlink()
        wide = np.broadcast_to(np.float32(0), (1, _limits.MOST_WIDTH + 1))
        with self.assertRaises(ValueError) as raised:
            with lockstep.TraceWriter(self.folder.with_name("other"), engine="test") as trace:
                trace.step(0, {"wide": wide})
        self.assertIn(f"wide: width {_limits.MOST_WIDTH + 1}", str(raised.exception))
        text = (self.folder / "manifest.json").read_text()
        (self.folder / "manifest.json").write_text(text.replace(str(last), str(last + 1)))
        with self.assertRaises(lockstep.TraceError):
            lockstep.open_trace(self.folder)

    def test_of_two_writers_one_gets_the_folder(self):
        with lockstep.TraceWriter(self.folder, engine="first") as first:
            with unittest.mock.patch.object(Path, "iterdir", lambda self: iter(())):  # found empty a moment ago
                with self.assertRaises(FileExistsError):
                    lockstep.TraceWriter(self.folder, engine="second")
            first.step(0, {"x": self.numbers(1, 2)})
        self.assertEqual(lockstep.open_trace(self.folder).manifest["engine"]["name"], "first")

    def test_an_exception_leaves_a_trace_that_is_not_complete(self):
        x = self.numbers(2, 3)
        with self.assertRaises(RuntimeError):
            with lockstep.TraceWriter(self.folder, engine="test") as trace:
                trace.step(0, {"x": x})
                raise RuntimeError
        trace = lockstep.open_trace(self.folder)
        self.assertFalse(trace.complete)
        np.testing.assert_array_equal(trace["x"], x)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()),
                         ["000000.safetensors", "manifest.json"])

    def test_a_recording_that_fails_without_a_step_leaves_nothing(self):
        folder = self.folder / "made"
        with self.assertRaises(RuntimeError):
            with lockstep.TraceWriter(folder, engine="test"):
                raise RuntimeError
        self.assertFalse(self.folder.exists())
        self.folder.mkdir()  # what was there before stays
        full = unittest.mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left"))
        with self.assertRaises(OSError):
            with lockstep.TraceWriter(folder, engine="test") as trace:
                trace.step(0, {"x": self.numbers(1, 2)})
                full.start()
                self.addCleanup(full.stop)
        self.assertEqual(list(self.folder.iterdir()), [])
        with self.assertRaises(OSError):
            lockstep.TraceWriter(folder, engine="test")
        self.assertEqual(list(self.folder.iterdir()), [])
        (self.folder / "other").write_text("")
        with self.assertRaises(FileExistsError):
            lockstep.TraceWriter(self.folder, engine="test")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["other"])

    def test_a_durable_writer_syncs_each_file_then_the_folder(self):
        def identity(found):
            return f"{found.st_dev}:{found.st_ino}"

        for durable in (True, False):
            events = []
            real_sync, real_replace = os.fsync, os.replace

            def sync(descriptor):
                real_sync(descriptor)
                events.append(("sync", identity(os.fstat(descriptor))))

            def replace(source, target):
                real_replace(source, target)
                events.append(("name", identity(os.stat(target)), Path(target).name))

            folder = self.folder / str(durable) / "trace"
            with unittest.mock.patch.object(os, "fsync", sync), unittest.mock.patch.object(os, "replace", replace):
                with lockstep.TraceWriter(folder, engine="test", durable=durable) as trace:
                    for position in range(3):
                        trace.step(position, {"x": self.numbers(1, 3)})
                        trace.flush()
            own = identity(folder.stat())
            parents = [identity(path.stat()) for path in (folder.parent, self.folder, self.folder.parent)]
            named = [i for i, event in enumerate(events) if event[0] == "name"]
            self.assertEqual({events[i][2] for i in named}, {path.name for path in folder.iterdir()})
            for i in named:
                self.assertEqual(events[i - 1], ("sync", events[i][1]))
                self.assertEqual(events[i + 1:i + 2] == [("sync", own)], durable)
            synced = {own, *parents} & {event[1] for event in events}
            self.assertEqual(synced, {own, *parents} if durable else set())

    def test_a_killed_writer_leaves_what_it_finished(self):
        code = (
            "import sys, numpy, lockstep\n"
            "trace = lockstep.TraceWriter(sys.argv[1], engine='test')\n"
            "for i in range(100000):\n"
            "    trace.step(i, {'x': numpy.full((1, 9), i, numpy.float32)})\n"
            "    trace.flush()\n"
            "    print(i, flush=True)\n"
        )
        for attempt in range(5):
            folder = self.folder.with_name(f"killed{attempt}")
            with subprocess.Popen([sys.executable, "-c", code, str(folder)],
                                  stdout=subprocess.PIPE, text=True) as process:
                for _ in range(self.random.integers(1, 30)):
                    last = process.stdout.readline()
                process.send_signal(signal.SIGKILL)
            trace = lockstep.open_trace(folder)
            self.assertFalse(trace.complete)
            rows = trace["x"]
            self.assertGreater(len(rows), int(last))
            np.testing.assert_array_equal(rows[:, 0], np.arange(len(rows)))

    def test_damaged_traces_are_told(self):
        self.write([(0, {"x": self.numbers(2, 3)})])
        manifest = self.folder / "manifest.json"
        shard = self.folder / "000000.safetensors"
        good_manifest, good_shard = manifest.read_text(), shard.read_bytes()

        def broken(change):
            document = json.loads(good_manifest)
            change(document)
            manifest.write_text(json.dumps(document))
            with self.assertRaises(lockstep.TraceError):
                lockstep.open_trace(self.folder)["x"]
            manifest.write_text(good_manifest)

        broken(lambda m: m.update(format="other"))
        broken(lambda m: m.update(version=2))
        broken(lambda m: m.pop("steps"))
        broken(lambda m: m["steps"][0].update(shard="../x"))
        broken(lambda m: m["steps"][0].update(shard="gone"))
        broken(lambda m: m["steps"][0].update(n_tokens=3))
        broken(lambda m: m["checkpoints"][0].update(width=4))
        broken(lambda m: m["checkpoints"][0].update(dtype="f64"))
        broken(lambda m: m["checkpoints"][0].update(dtype="i8"))
        broken(lambda m: m["checkpoints"].append(dict(m["checkpoints"][0], width=4)))
        broken(lambda m: m["steps"].append(dict(m["steps"][0], first_pos=2)))

        def told(name):
            with self.assertRaises(lockstep.TraceError) as raised:
                lockstep.open_trace(self.folder)["x"]
            self.assertIn(f"the name {name!r} stands twice in an object", str(raised.exception))

        manifest.write_text(good_manifest.replace('"width"', '"wid\\u0074h": 3, "width"'))
        told("width")
        manifest.write_text(good_manifest)
        header = good_shard[8:8 + int.from_bytes(good_shard[:8], "little")].rstrip()
        header = header[:-1] + b"," + header[1:]
        header += b" " * (-len(header) % 8)
        shard.write_bytes(len(header).to_bytes(8, "little") + header + good_shard[-24:])
        told("0/x")
        shard.write_bytes(good_shard)
        manifest.write_text("{")
        with self.assertRaises(lockstep.TraceError):
            lockstep.open_trace(self.folder)
        manifest.unlink()
        with self.assertRaises(lockstep.TraceError):
            lockstep.open_trace(self.folder)
        manifest.write_text(good_manifest)
        for size in range(len(good_shard)):
            shard.write_bytes(good_shard[:size])
            with self.assertRaises(lockstep.TraceError):
                lockstep.open_trace(self.folder)["x"]


if __name__ == "__main__":
    unittest.main()
