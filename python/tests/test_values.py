"""The writer's shapes and types: what torch and other libraries hand over, and what is refused."""

import itertools
import os
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import lockstep
from lockstep import _program

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
# Some machines announce AMX, which is above this, and stop a program at its first tile instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
try:
    import torch
except ImportError:
    torch = None


class StandIn:
    """What the writer uses of a tensor of torch. bfloat16 is kept as its bits, in a view of int16."""

    device = "cpu"
    layout = "torch.strided"

    def __init__(self, array, kind, requires_grad=False, on_cpu=False):
        self.array, self.dtype, self.requires_grad, self.on_cpu = array, f"torch.{kind}", requires_grad, on_cpu
        self.shape = array.shape

    def detach(self):
        return StandIn(self.array, self.dtype[6:])

    def cpu(self):
        assert not self.requires_grad
        return StandIn(self.array, self.dtype[6:], on_cpu=True)

    def contiguous(self):
        return StandIn(np.ascontiguousarray(self.array), self.dtype[6:], on_cpu=self.on_cpu)

    def view(self, kind):
        return StandIn(self.array.view(kind), "int16", on_cpu=self.on_cpu)

    def numpy(self):
        assert self.on_cpu and not self.requires_grad and self.dtype not in ("torch.bfloat16",)
        return self.array

    def __array__(self, *_, **__):
        raise TypeError("Got unsupported ScalarType")


class ValuesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        no_disk = unittest.mock.patch.object(os, "fsync", lambda _: None)  # hundreds of small traces
        no_disk.start()
        self.addCleanup(no_disk.stop)
        self.seed = int.from_bytes(os.urandom(4), "little")
        self.random = np.random.default_rng(self.seed)
        self.count = 0

    def numbers(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def write(self, values, first=0, options=None, **step):
        self.count += 1
        folder = self.root / str(self.count)
        with lockstep.TraceWriter(folder, engine="test", **(options or {})) as trace:
            trace.step(first, values, **step)
        return lockstep.open_trace(folder)

    def refused(self, kind, values, *words, first=0, options=None, **step):
        with self.assertRaises(kind) as raised:
            self.write(values, first, options, **step)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_a_batch_of_one_and_heads(self):
        for tokens, heads, size in itertools.product((1, 7), (1, 2, 7), (1, 5)):
            x, q = self.numbers(tokens, heads * size), self.numbers(tokens, heads, size)
            flat = q.reshape(tokens, -1)
            s = self.numbers(heads, tokens, tokens)
            forms = [q, flat, flat[None]]
            if heads != tokens or heads == 1:
                forms += [q[None], q.swapaxes(0, 1)[None]]
            for form in forms:
                with self.subTest(tokens=tokens, heads=heads, size=size, shape=form.shape, seed=self.seed):
                    for step in ({"embedding": x[None]}, {"embedding": x}):
                        trace = self.write({**step, "blk.0.q": form, "blk.0.attn_probs": s[None], "logits": x[None, -1:]})
                        np.testing.assert_array_equal(trace["embedding"], x)
                        np.testing.assert_array_equal(trace["blk.0.q"], flat)
                        np.testing.assert_array_equal(trace.value("blk.0.attn_probs", 0), s)
                        self.assertEqual(trace.positions("logits").tolist(), [tokens - 1])
                    # The number alone is enough.
                    np.testing.assert_array_equal(self.write({"blk.0.q": form}, tokens=tokens)["blk.0.q"], flat)

    def test_one_sequence_of_a_batch(self):
        x, q, s = self.numbers(3, 4, 6), self.numbers(3, 4, 2, 3), self.numbers(3, 2, 4, 4)
        first = self.numbers(3, 2, 4, 3)
        for batch in range(3):
            trace = self.write({"embedding": x, "blk.0.q": q, "blk.0.k": first, "blk.0.v": x, "blk.0.attn_scores": s,
                                "mine": x, "logits": x[:, -2:]}, batch=batch)  # fmt: skip
            np.testing.assert_array_equal(trace["embedding"], x[batch])
            np.testing.assert_array_equal(trace["mine"], x[batch])
            np.testing.assert_array_equal(trace["blk.0.q"], q[batch].reshape(4, 6))
            np.testing.assert_array_equal(trace["blk.0.k"], first[batch].swapaxes(0, 1).reshape(4, 6))
            np.testing.assert_array_equal(trace["blk.0.v"], x[batch])
            np.testing.assert_array_equal(trace.value("blk.0.attn_scores", 0), s[batch])
            self.assertEqual(trace.positions("logits").tolist(), [2, 3])
        self.refused(ValueError, {"embedding": x}, "embedding", "batch of 3", "batch=0")
        self.refused(ValueError, {"embedding": x}, "embedding", "batch=3", batch=3)
        self.refused(ValueError, {"embedding": x}, "batch=-1; expected a whole number from 0 on", batch=-1)
        self.refused(TypeError, {"embedding": x}, "batch='0'; expected a whole number", batch="0")

    def test_shapes_that_do_not_fit_are_told(self):
        x = self.numbers(5, 6)
        for name, shape, words in (
            ("blk.0.q", (4, 6), ("rows", "5", "4")),
            ("blk.0.attn_norm", (5, 2, 3), ("[tokens, width]", "[5, 2, 3]")),
            ("blk.0.q", (2, 2, 3), ("[tokens, heads * head_size]", "5 tokens", "[2, 2, 3]")),
            ("blk.0.q", (1, 5, 5, 3), ("equally many",)),
            ("blk.0.q", (2, 5, 3), ("batch=0", "heads")),
            ("blk.0.attn_scores", (2, 4, 4), ("rows",)),
            ("blk.0.attn_scores", (5, 5), ("[heads, tokens, positions]",)),
            ("blk.0.attn_out", (1, 1, 5, 6), ("[tokens, width]",)),
            ("blk.0.v", (5, 0), ("[5, 0]",)),
            ("logits", (6, 9), ("5 tokens",)),
            ("mine", (2, 2, 3), ("mine",)),
        ):
            with self.subTest(name=name, shape=shape):
                self.refused(ValueError, {"embedding": x, name: self.numbers(*shape)}, name, *words)
        self.refused(ValueError, {"blk.0.q": self.numbers(1, 5, 6)}, "blk.0.q", "tokens=")
        self.refused(ValueError, {"embedding": np.float32(1)}, "embedding", "[tokens, width]")
        for wrong in (0, -1):
            self.refused(ValueError, {"embedding": x}, f"tokens={wrong}; expected a whole number from 1 on", tokens=wrong)
        for wrong in (1.5, "5", float("nan")):
            self.refused(TypeError, {"embedding": x}, f"tokens={wrong!r}; expected a whole number", tokens=wrong)
        self.refused(ValueError, {"embedding": x}, "embedding", "4 tokens", tokens=4)

    def test_logits_alone_are_filed_under_the_right_positions(self):
        prompt = {"tokens": [1, 2, 3, 4, 5]}
        last = self.numbers(1, 9)
        for value in (last, last[0], last[None]):
            self.assertEqual(self.write({"logits": value}, options=prompt, tokens=5).positions("logits").tolist(), [4])
            self.assertEqual(self.write({"logits": value}, options=prompt, tokens=1).positions("logits").tolist(), [0])
            self.assertEqual(self.write({"logits": value}, 4, options=prompt).positions("logits").tolist(), [4])
            self.assertEqual(self.write({"logits": value}, 7, options=prompt).positions("logits").tolist(), [7])
            self.assertEqual(self.write({"logits": value}).positions("logits").tolist(), [0])
            self.refused(ValueError, {"logits": value}, "logits", "tokens=5", "tokens=1", options=prompt)
        self.assertEqual(self.write({"logits": self.numbers(5, 9)}, options=prompt).positions("logits").tolist(),
                         [0, 1, 2, 3, 4])  # fmt: skip

    def test_the_prompt_tells_the_number_of_tokens(self):
        prompt = {"tokens": [1, 2, 3, 4, 5]}
        q = self.numbers(5, 2, 3)
        for form in (q, q[None], q.reshape(1, 5, 6), q.swapaxes(0, 1)[None]):
            np.testing.assert_array_equal(self.write({"blk.0.q": form}, options=prompt)["blk.0.q"], q.reshape(5, 6))
        one = self.numbers(1, 2, 3)
        np.testing.assert_array_equal(self.write({"blk.0.q": one}, 5, options=prompt)["blk.0.q"], one.reshape(1, 6))

    def test_own_names_are_kept(self):
        trace = self.write({"embedding": self.numbers(2, 3), "model.layers.0.mlp.router": self.numbers(1, 2, 8),
                            "heads": self.numbers(2, 4, 5)})  # fmt: skip
        self.assertEqual({c.name: c.width for c in trace.checkpoints.values()},
                         {"embedding": 3, "model.layers.0.mlp.router": 8, "heads": 20})  # fmt: skip

    def test_types_that_cannot_be_recorded(self):
        for value in (np.array([[1, 2]]), np.array([[True]]), np.array([[1j]]), np.array([["a"]]), [[1], [2, 3]],
                      object()):  # fmt: skip
            self.refused(TypeError, {"blk.3.ffn_up": value}, "blk.3.ffn_up")
        self.refused(TypeError, {"blk.3.k": StandIn(np.ones((1, 2), np.int8), "int8")}, "blk.3.k", "torch.int8")
        meta = StandIn(np.ones((1, 2), np.float32), "float32")
        meta.device = "meta"
        self.refused(TypeError, {"blk.3.k": meta}, "blk.3.k", "meta")

    def test_tensors_keep_their_bits(self):
        fake = types.SimpleNamespace(int16=np.int16)
        bits = self.random.integers(0, 1 << 16, (3, 257)).astype(np.uint16)
        with unittest.mock.patch.dict(sys.modules, torch=fake):
            trace = self.write({"b": StandIn(bits, "bfloat16", requires_grad=True),
                                "h": StandIn(bits.view(np.float16), "float16"),
                                "f": StandIn(self.numbers(3, 2)[::-1], "float32")})  # fmt: skip
        self.assertEqual([c.dtype for c in trace.checkpoints.values()], ["bf16", "f16", "f32"])
        self.assertEqual(trace["b"].tobytes(), bits.tobytes())
        self.assertEqual(trace["h"].tobytes(), bits.tobytes())

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_every_number_of_8_bits_is_exact(self):
        every = np.arange(256, dtype=np.uint8)[None]
        kinds = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"]
        if hasattr(ml_dtypes, "float8_e8m0fnu"):
            kinds.append("float8_e8m0fnu")
        for kind in kinds:
            values = every.view(getattr(ml_dtypes, kind))
            np.testing.assert_array_equal(self.write({"x": values})["x"].astype(np.float64), values.astype(np.float64), kind)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_real_tensors(self):
        for kind in ("float64", "float32", "float16", "bfloat16"):
            x = torch.randn(2, 3, 4, dtype=torch.float64).to(getattr(torch, kind)).requires_grad_()
            trace = self.write({"embedding": x, "blk.0.q": x.reshape(2, 3, 2, 2)}, batch=1)
            found = torch.from_numpy(np.array(trace["embedding"], copy=True).view(f"i{x.element_size()}"))
            whole = getattr(torch, f"int{8 * x.element_size()}")
            self.assertTrue(torch.equal(found, x.detach()[1].contiguous().view(whole)), kind)
        every = torch.arange(256, dtype=torch.uint8)[None]
        for kind in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
            values = every.view(getattr(torch, kind))
            np.testing.assert_array_equal(self.write({"x": values})["x"].astype(np.float32), values.float().numpy(), kind)

    def test_the_message_of_another_width_names_both(self):
        with lockstep.TraceWriter(self.root / "widths", engine="test") as trace:
            trace.step(0, {"blk.0.q": self.numbers(2, 6)})
            with self.assertRaisesRegex(ValueError, "blk.0.q: 5 numbers of type f32 .* expected 6 of type f32"):
                trace.step(2, {"blk.0.q": self.numbers(1, 5)})
            with self.assertRaisesRegex(ValueError, "attn_out has 3 rows, while embedding has 2 rows"):
                trace.step(2, {"embedding": self.numbers(2, 5), "blk.0.attn_out": self.numbers(3, 5)})


class ModelTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def entry(self, model):
        folder = self.root / "trace"
        with lockstep.TraceWriter(folder, engine="test", model=model) as trace:
            trace.step(0, {"logits": np.ones((1, 2), np.float32)})
        found = lockstep.open_trace(folder).manifest["model"]
        for file in folder.iterdir():
            file.unlink()
        return found

    def test_what_is_no_gguf_file_has_its_name_alone(self):
        (self.root / "model.bin").write_bytes(b"x")
        with self.assertWarnsRegex(UserWarning, "^none.gguf: no such file; the trace will have the name of its model alone$"):
            self.assertEqual(self.entry("none.gguf"), {"file": "none.gguf"})
        for path in (self.root / "model.bin", self.root):
            self.assertEqual(self.entry(path), {"file": path.name, "path": str(path.resolve())})

    @unittest.skipIf("LOCKSTEP" not in os.environ, "no program at hand")
    def test_the_program_tells_the_fingerprint(self):
        model = Path(os.environ["LOCKSTEP_MODELS"]) / "haiku-llama-q4_k_m.gguf"
        found = self.entry(model)
        printed = _program.call(["inspect", model, "--fingerprint"])
        self.assertIn(found["fingerprint"], printed)
        self.assertGreater(len(found["fingerprint"]), 16)
        self.assertEqual({key: found[key] for key in ("file", "architecture", "quantization")},
                         {"file": model.name, "architecture": "llama", "quantization": "Q4_K"})  # fmt: skip

    @unittest.skipIf("LOCKSTEP" not in os.environ, "no program at hand")
    def test_a_file_that_cannot_be_read_is_warned_of(self):
        (self.root / "cut.gguf").write_bytes(b"GGUF\3")
        with self.assertWarnsRegex(UserWarning, "fingerprint.*cut.gguf"):
            self.assertEqual(set(self.entry(self.root / "cut.gguf")), {"file", "path"})


if __name__ == "__main__":
    unittest.main()
