"""What `lockstep.record` makes of passes through a module, and of names for its parts, without torch."""

import os
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import lockstep
from lockstep import _module_names as module_names
from lockstep import _watch as watch
from lockstep._layout import Layout
from lockstep._passes import Pass, PassWriter, whole_rows
from lockstep.capture import _names as names

WIDTH = 5


class Copy:
    """Numbers that arrive on the host when they are asked for."""

    def __init__(self, array, ready=True):
        self._array, self._ready, self.bytes = np.asarray(array), ready, 1

    def ready(self):
        return self._ready

    def host(self):
        return self._array

    def array(self, _):
        return self._array


class PassesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name) / "trace"
        self.random = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))

    def one(self, ids, past=None, mask=None, places=None, rows=None, scores=None, ready=True, cache=0):
        """A pass whose rows say which tokens they are of."""
        ids = list(ids)
        values = {"embedding": Copy(np.float32(ids)[:, None] * np.ones(WIDTH, np.float32), ready)}
        last = ids if rows is None else ids[-rows:]
        values["logits"] = Copy(np.float32(last)[:, None] + np.zeros(3, np.float32))
        if scores is not None:
            values["blk.0.attn_scores"] = Copy(np.broadcast_to(np.arange(scores, dtype=np.float32), (2, len(ids), scores)))
        optional = (None if value is None else Copy(value) for value in (mask, places))
        return Pass(Layout(len(ids)), Copy(ids), *optional, past, values, cache)

    def write(self, *passes, sampling=None):
        with lockstep.TraceWriter(self.folder, engine="test", sampling=sampling) as writer:
            out = PassWriter(writer, True, bool(sampling))
            for done in passes:
                out.add(done)
            out.drain(everything=True)
            self.notes = list(writer.notes)
        return lockstep.open_trace(self.folder)

    def check(self, trace, tokens, prompt, logits):
        self.assertEqual((trace.tokens.tolist(), trace.n_prompt), (tokens, prompt))
        np.testing.assert_array_equal(trace["embedding"][:, 0], tokens)
        self.assertEqual(trace.positions("logits").tolist(), logits)
        np.testing.assert_array_equal(trace["logits"][:, 0], [tokens[position] for position in logits])

    def test_a_cache(self):
        trace = self.write(self.one([7, 8, 9], 0, rows=1, ready=False), self.one([4], 3), self.one([5, 6], 4))
        self.check(trace, [7, 8, 9, 4, 5, 6], 3, [2, 3, 4, 5])
        self.assertEqual([step.tokens for step in trace.steps], [3, 1, 2])
        self.assertEqual(self.notes, [])

    def test_positions_that_the_module_is_given(self):
        trace = self.write(self.one([7, 8], places=[0, 1]), self.one([4], places=[2]))
        self.check(trace, [7, 8, 4], 2, [0, 1, 2])

    def test_padding_before_and_after(self):
        trace = self.write(self.one([0, 0, 7, 8, 9], 0, mask=[0, 0, 1, 1, 1], scores=5),
                           self.one([4], 5, mask=[0, 0, 1, 1, 1, 1], places=[3], scores=6))  # fmt: skip
        self.check(trace, [7, 8, 9, 4], 3, [0, 1, 2, 3])
        self.assertEqual(trace.row("blk.0.attn_scores", 1)[0].tolist(), [2, 3, 4])
        self.assertEqual(trace.row("blk.0.attn_scores", 3)[0].tolist(), [2, 3, 4, 5])

    def test_padding_after(self):
        trace = self.write(self.one([7, 8, 9, 0], None, mask=[1, 1, 1, 0], scores=4))
        self.check(trace, [7, 8, 9], 3, [0, 1, 2])
        self.assertEqual(trace.row("blk.0.attn_scores", 2).shape, (2, 3))

    def test_a_mask_of_the_step_alone(self):
        trace = self.write(self.one([7, 8], 0, mask=[1, 1]), self.one([4], 2, mask=[1]))
        self.check(trace, [7, 8, 4], 2, [0, 1, 2])

    def test_all_positions_anew(self):
        trace = self.write(self.one([7, 8], rows=1), self.one([7, 8, 9], rows=1), self.one([7, 8, 9, 4], rows=2))
        self.check(trace, [7, 8, 9, 4], 2, [2, 3])
        self.assertEqual(len(self.notes), 1)

    def test_own_values_of_another_width_or_type_are_left_out(self):
        first, wide, other, last = (self.one(ids, past=past) for ids, past in (((7, 8), 0), ((9,), 2), ((3,), 3), ((4,), 4)))
        for done, width, kind in ((first, 3, "f4"), (wide, 6, "f4"), (other, 3, "f8"), (last, 3, "f4")):
            done.values["mlp.odd"] = Copy(np.ones((done.layout.tokens, width), kind))
        trace = self.write(first, wide, other, last)
        self.assertEqual(trace.positions("mlp.odd").tolist(), [0, 1, 4])
        self.assertEqual(trace.positions("embedding").tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(self.notes, ["mlp.odd was left out where its rows have another width or type than in its first pass"])

    def test_another_sequence(self):
        trace = self.write(self.one([7, 8], 0), self.one([4], 2), self.one([1, 2], 0), self.one([5], 3))
        self.check(trace, [7, 8, 4, 5], 2, [0, 1, 2, 3])
        self.assertEqual(len(self.notes), 1)

    def test_another_cache(self):
        trace = self.write(self.one([7, 8], None), self.one([4], 2, cache=1), self.one([1, 2, 3, 9, 6], 0, cache=2),
                           self.one([5], 5, cache=2), self.one([3], 3, cache=1))  # fmt: skip
        self.check(trace, [7, 8, 4, 3], 2, [0, 1, 2, 3])
        self.assertEqual(len(self.notes), 1)

    def test_a_cache_that_begins_anew(self):
        trace = self.write(self.one([7, 8], 0, cache=1), self.one([4], 2, cache=1), self.one([1, 2, 3], 0, cache=1),
                           self.one([5], 3, cache=1))  # fmt: skip
        self.check(trace, [7, 8, 4], 2, [0, 1, 2])
        self.assertEqual(len(self.notes), 1)

    def test_a_longer_sequence_after_the_first(self):
        def request(ids, more):
            places = range(len(ids) + more)
            yield self.one(ids, places=places[: len(ids)])
            yield from (self.one([20 + place], places=[place]) for place in places[len(ids) :])

        trace = self.write(*request([7, 8, 9], 2), *request([1, 2, 3, 4], 4))
        self.check(trace, [7, 8, 9, 23, 24], 3, [0, 1, 2, 3, 4])
        self.assertEqual(len(self.notes), 1)

    def test_tokens_that_were_tried_and_not_chosen(self):
        trace = self.write(self.one([7, 8], 0, scores=2), self.one([4, 5, 6], 2, scores=5), self.one([9, 3, 2], 3, scores=6),
                           self.one([1], 6, scores=7))  # fmt: skip
        self.check(trace, [7, 8, 4, 9, 3, 2, 1], 2, [0, 1, 2, 3, 4, 5, 6])
        self.assertEqual([(step.first_position, step.tokens) for step in trace.steps], [(0, 2), (2, 1), (3, 3), (6, 1)])
        self.assertEqual(trace.row("blk.0.attn_scores", 2).shape, (2, 3))

    def test_logits_of_tokens_that_were_not_chosen(self):
        trace = self.write(self.one([7, 8, 9, 2], 0), self.one([4, 5, 6], 4, rows=1), self.one([9], 6))
        self.check(trace, [7, 8, 9, 2, 4, 5, 9], 4, [0, 1, 2, 3, 6])  # no piece of a prompt is taken back
        self.assertEqual(self.notes, [])

    def test_a_prompt_in_pieces(self):
        for pieces, prompt in (((2, 2, 1, 1, 1), 5), ((3, 2, 1, 1), 5), ((3, 3, 2, 1), 8), ((4, 1, 1), 4), ((1, 1), 1)):
            with self.subTest(pieces=pieces), tempfile.TemporaryDirectory() as folder:
                self.folder = Path(folder) / "trace"
                ends = np.cumsum(pieces)
                trace = self.write(*(self.one(range(end - count, end), end - count) for count, end in zip(pieces, ends)))
                self.check(trace, list(range(ends[-1])), prompt, list(range(ends[-1])))
                self.assertEqual(len(self.notes), int(pieces[0] > 1 and pieces[1] > 1))

    def test_text_that_is_given_later_was_not_chosen(self):
        greedy = {"temperature": 0}
        passes = [self.one([7, 8], 0), self.one([4], 2), self.one([1, 2], 3)]
        trace = self.write(*passes, sampling=greedy)
        self.check(trace, [7, 8, 4, 1, 2], 2, [0, 1, 2, 3, 4])
        self.assertEqual((trace.manifest["sampling"], len(self.notes)), ({}, 1))
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder) / "trace"
            self.assertEqual(self.write(*passes[:2], sampling=greedy).manifest["sampling"], greedy)

    def test_positions_that_do_not_follow_one_another(self):
        for places in ([0, 1, 0], [0, 1, 3], [-1, 0, 1]):
            with tempfile.TemporaryDirectory() as folder:
                self.folder = Path(folder) / "trace"
                self.assertEqual(len(self.write(self.one([7, 8, 9], places=places)).steps), 0)
                self.assertIn("do not follow one another", self.notes[0])

    def test_numbers_that_are_no_token_ids(self):
        trace = self.write(self.one([-100, 8], 0))
        self.assertEqual((trace.tokens.tolist(), len(trace.steps), len(self.notes)), ([], 1, 1))

    def test_a_window_behind_padding(self):
        mask = [0, 0, 1, 1, 1, 1]  # the cache has the last four of six
        trace = self.write(self.one([0, 0, 7, 8, 9], 0, mask=mask[:5], scores=5), self.one([4], 5, mask=mask, scores=4))
        self.assertEqual(trace.row("blk.0.attn_scores", 3)[0].tolist(), [0, 1, 2, 3])
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder) / "trace"
            trace = self.write(self.one([0, 7, 8, 9], 0, mask=[0, 1, 1, 1], scores=4),
                               self.one([4], 4, mask=[0, 1, 1, 1, 1], scores=2))  # fmt: skip
            self.assertEqual(trace.row("blk.0.attn_scores", 3)[0].tolist(), [-np.inf, -np.inf, 0, 1])

    def test_scores_of_a_window_and_of_a_fixed_cache(self):
        row = np.ones((1, 1, 3), np.float32)
        np.testing.assert_array_equal(whole_rows("blk.0.attn_probs", row, 5), [[[0, 0, 1, 1, 1]]])
        np.testing.assert_array_equal(whole_rows("blk.0.attn_scores", row, 4), [[[-np.inf, 1, 1, 1]]])
        self.assertEqual(whole_rows("blk.0.attn_scores", row.astype(np.uint16), 4)[0, 0, 0], 0xFF80)
        self.assertEqual(whole_rows("blk.0.attn_scores", row, 2).shape, (1, 1, 2))


class NamesTest(unittest.TestCase):
    MODULES = {name: object() for name in ("", "tok", "layers.0", "layers.0.wqkv", "layers.0.wo", "layers.11",
                                           "layers.11.wqkv", "layers.11.wo", "out")}  # fmt: skip

    def rules(self, given):
        return [(r.checkpoint, r.nodes[0], r.part, r.take, r.order) for r in module_names.own_rules(given, self.MODULES)]

    def test_patterns(self):
        self.assertEqual(self.rules({"tok": "embedding", "*.{N}": "blk.{N}.output"}), [
            ("embedding", "tok", None, "output", None), ("blk.0.output", "layers.0", None, "output", None),
            ("blk.11.output", "layers.11", None, "output", None)])  # fmt: skip
        self.assertEqual(
            self.rules({"layers.{N}.wqkv": ("blk.{N}.q", {"checkpoint": "blk.{N}.k", "part": "k", "order": "adjacent"})})[2:],
            [("blk.11.q", "layers.11.wqkv", "q", "output", None), ("blk.11.k", "layers.11.wqkv", "k", "output", "adjacent")])
        self.assertEqual(self.rules({"layers.0.wo": {"checkpoint": "blk.0.attn_mix", "take": "input"}}),
                         [("blk.0.attn_mix", "layers.0.wo", None, "input", None)])  # fmt: skip

        found = self.rules({"layers.0.wo": [{"checkpoint": "blk.0.attn_mix", "take": "input"}, "blk.0.attn_out"]})
        self.assertEqual([(rule[0], rule[3]) for rule in found], [("blk.0.attn_mix", "input"), ("blk.0.attn_out", "output")])

    def test_wrong_patterns(self):
        for given, message in (
            ({"none": "embedding"}, "modules are tok, layers.{N}, layers.{N}.wqkv, layers.{N}.wo, out"),
            ({"tok": "q"}, "no checkpoint"), ({"tok": "blk.{N}.q"}, "has no {N}"), ({"tok": ("embedding", "logits")}, "part"),
            ({"tok": 5}, "'tok': 5; expected a checkpoint"), ({"tok": None}, "expected a checkpoint"),
            ({"tok": ()}, "expected a checkpoint"), ({"tok": ["embedding", 5]}, "expected a checkpoint"),
            ({"layers.{N}": "blk.0.output"}, "'blk.0.output' would be the value of both 'layers.0' and 'layers.11'"),
            ({"tok": "embedding", "out": "embedding"}, "'out': 'embedding' would be the value of both 'tok' and 'out'"),
            ({"tok": {"take": "input"}}, "no checkpoint"), ({"tok": {"checkpoint": "embedding", "odd": "x"}}, "odd"),
        ):  # fmt: skip
            with self.subTest(given=given), self.assertRaises(ValueError) as raised:
                self.rules(given)
            self.assertIn(message, str(raised.exception))

    def test_a_module_with_two_names(self):
        shared = object()
        found = module_names.own_rules({"*head": "logits"}, {"": object(), "head": shared, "lm_head": shared})
        self.assertEqual([(rule.checkpoint, rule.nodes) for rule in found], [("logits", ("head",)), ("logits", ("lm_head",))])

    def test_prefixes(self):
        known = names.load_map("transformers", "gemma3_text")
        for before in ("", "model.", "engine.model.", "language_model.", "model.language_model.", "module.model.language_model."):
            modules = [(f"{before}{name}", None) for name in ("layers.0", "layers.0.mlp.up_proj", "layers.1", "norm")]
            seen = [("vision_tower.layers.0", None), ("other", None)]
            shifted = {name: known_as for known_as, name, _ in watch.shift_names([*seen, *modules], known)}
            for name, _ in modules:
                self.assertEqual(shifted[name], f"model.{name[len(before):]}", before)
                self.assertTrue(known.find(shifted[name]), before)

    def test_the_map_of_workers(self):
        for architecture, node, wanted in (
            ("qwen2", "model.layers.3.self_attn.qkv_proj", ["blk.3.q", "blk.3.k", "blk.3.v"]),
            ("llama", "model.layers.3.self_attn.qkv_proj", ["blk.3.v", "blk.3.q", "blk.3.k"]),
            ("qwen3", "model.layers.3.self_attn.qkv_proj", ["blk.3.v"]),
            ("qwen3", "model.layers.3.self_attn.q_norm", ["blk.3.q"]),
            ("llama", "model.layers.0.mlp.gate_up_proj", ["blk.0.ffn_gate", "blk.0.ffn_up"]),
            ("llama", "logits_processor", ["logits"]),
            ("qwen3_moe", "model.layers.3.self_attn.k_norm", ["blk.3.k"]),
            ("llama", "model.layers.3.post_attention_layernorm", ["blk.3.attn_residual", "blk.3.ffn_norm"]),
            ("gemma3_text", "model.layers.3.post_attention_layernorm", ["blk.3.attn_post_norm"]),
            ("gemma3_text", "model.layers.3.pre_feedforward_layernorm", ["blk.3.attn_residual", "blk.3.ffn_norm"]),
            ("olmo3", "model.layers.3.post_attention_layernorm", ["blk.3.attn_post_norm"]),
            ("olmo3", "model.layers.3.mlp", ["blk.3.attn_residual"]),
        ):
            found = names.load_map("vllm", architecture).find(node)
            self.assertEqual([name for _, name in found], wanted, (architecture, node))
            if architecture == "llama" and "qkv" in node:
                self.assertEqual([rule.order for rule, _ in found], [None, "adjacent", "adjacent"])


if __name__ == "__main__":
    unittest.main()
