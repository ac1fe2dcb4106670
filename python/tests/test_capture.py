"""What the capture commands are made of, without any engine: name maps, sets, the loop that generates."""

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import lockstep
from lockstep import _checkpoints as checkpoints
from lockstep.capture import _command as command
from lockstep.capture import _names as names
from lockstep.capture import _summary as summary

LAYERS = 3
FAMILIES = Path(__file__).parents[2] / "src/hub/families.cpp"


def options(**changes):
    usual = {"tokens": [1, 2, 3], "prompt": None, "text_file": None, "max_tokens": 4, "batch": 512, "temp": 0.0,
             "seed": 0, "ignore_eos": False, "checkpoints": "all", "output": ""}  # fmt: skip
    return argparse.Namespace(**{**usual, **changes})


class NamesTest(unittest.TestCase):
    def find(self, engine, architecture, node, op="", reads=()):
        return [name for _, name in names.load_map(engine, architecture).find(node, op, reads)]

    def test_llama_cpp(self):
        cases = [
            ("llama", "attn_norm-12", "MUL", (), ["blk.12.attn_norm"]),
            ("llama", "Qcur-0", "MUL_MAT", (), ["blk.0.q"]),
            ("llama", "Qcur-0", "ROPE", (), ["blk.0.q_rope"]),
            ("qwen3", "Kcur_normed-7", "MUL", (), ["blk.7.k"]),
            ("phi3", "Qcur-3", "SCALE", (), []),
            ("phi3", "ffn_up-3", "MUL_MAT", (), ["blk.3.ffn_gate", "blk.3.ffn_up"]),
            ("llama", "ffn_up-3", "MUL_MAT", (), ["blk.3.ffn_up"]),
            ("gpt2", "ffn_up_b-3", "ADD", (), ["blk.3.ffn_up"]),
            ("gpt2", "node_65", "MUL_MAT", ("blk.1.attn_output.weight", "kqv_out-1"), ["blk.1.attn_out"]),
            ("gpt2", "node_66", "ADD", ("node_65", "blk.1.attn_output.bias"), ["blk.1.attn_out"]),
            ("phi3", "norm-1", "RMS_NORM", ("node_62",), ["blk.1.attn_residual"]),
            ("llama", "norm-1", "RMS_NORM", ("ffn_inp-1",), []),
            ("llama", "result_output", "MUL_MAT", (), ["logits"]),
            ("llama", "attn_norm-x", "MUL", (), []),
            ("llama", "attn_norm-1 (view)", "VIEW", (), []),
        ]
        for architecture, node, op, reads, wanted in cases:
            with self.subTest(node=node, op=op, architecture=architecture):
                self.assertEqual(self.find("llama.cpp", architecture, node, op, reads), wanted)

    def test_transformers(self):
        self.assertEqual(self.find("transformers", "qwen3", "model.layers.5.self_attn.q_norm"), ["blk.5.q"])
        self.assertEqual(self.find("transformers", "qwen3", "model.layers.5.self_attn.q_proj"), [])
        self.assertEqual(self.find("transformers", "qwen2", "model.layers.5.self_attn.q_proj"), ["blk.5.q"])
        self.assertEqual(self.find("transformers", "phi3", "model.layers.0.self_attn.qkv_proj"),
                         ["blk.0.q", "blk.0.k", "blk.0.v"])  # fmt: skip
        found = names.load_map("transformers", "mistral")
        self.assertEqual(found.architecture, "llama")
        self.assertEqual(found.find("model.layers.1.self_attn.k_proj")[0][0].order, "adjacent")

    @unittest.skipIf(not FAMILIES.exists(), "done where the package is not at hand")
    def test_architectures_are_those_of_folders(self):
        found = re.findall(r'\.model_type = "(\w+)",\s*\.architecture = "([\w-]+)"', FAMILIES.read_text(encoding="utf-8"))
        self.assertGreater(len(found), 20)
        for engine in ("transformers", "vllm"):
            for own, ours in found:
                self.assertEqual(names.load_map(engine, own).architecture, ours, (engine, own))

    def test_an_expert_that_all_tokens_share(self):
        for architecture, wanted in (("granitemoe", ["blk.2.ffn_out"]), ("granitemoeshared", ["blk.2.ffn_experts"])):
            self.assertEqual(self.find("transformers", architecture, "model.layers.2.block_sparse_moe"), wanted)
        self.assertEqual(self.find("transformers", "granitemoeshared", "model.layers.2.shared_mlp.input_linear"),
                         ["blk.2.ffn_shared_gate", "blk.2.ffn_shared_up"])  # fmt: skip

    def test_every_checkpoint_has_a_rule(self):
        # What only models with an expert that all tokens share have, and what those lack in llama.cpp.
        shared = {"blk.N.ffn_experts", "blk.N.ffn_shared_act"}
        dense = {"blk.N.ffn_gate", "blk.N.ffn_up", "blk.N.ffn_act"}
        turned = {"blk.N.q_pe", "blk.N.k_pe"}  # of latent attention, which other modules have other functions for
        for engine, architecture, lacking in (
            ("llama.cpp", "llama", shared), ("llama.cpp", "phi3", shared), ("llama.cpp", "qwen2moe", dense),
            ("llama.cpp", "deepseek2", {"blk.N.k"}), ("transformers", "llama", {"blk.N.ffn_experts"} | turned),
            ("transformers", "phi3", {"blk.N.ffn_experts"} | turned), ("transformers", "qwen2_moe", turned),
            ("transformers", "deepseek_v2", set()), ("transformers", "deepseek_v3", set()),
        ):  # fmt: skip
            rules = names.load_map(engine, architecture).rules
            wanted = {name.replace("blk.N.", "blk.{N}.") for name in set(checkpoints.CHECKPOINTS) - lacking}
            self.assertEqual({rule.checkpoint for rule in rules}, wanted, (engine, architecture))

    def test_experts(self):
        for architecture, node, op, reads, wanted in (
            ("qwen3moe", "ffn_moe_logits-2", "MUL_MAT", (), ["blk.2.ffn_router"]),
            ("qwen3moe", "ffn_moe_topk-2", "VIEW", (), ["blk.2.ffn_choice"]),
            ("qwen3moe", "ffn_moe_weights_norm-2", "DIV", (), ["blk.2.ffn_weights"]),
            ("qwen3moe", "ffn_moe_down-2", "MUL_MAT_ID", (), ["blk.2.ffn_expert_out"]),
            ("qwen3moe", "ffn_moe_out-2", "ADD", (), ["blk.2.ffn_out"]),
            ("llama", "ffn_moe_out-2", "ADD", (), ["blk.2.ffn_out"]),
            ("qwen2moe", "ffn_moe_out-2", "ADD", (), ["blk.2.ffn_experts"]),
            ("qwen2moe", "ffn_out-2", "ADD", (), ["blk.2.ffn_out"]),
            ("qwen2moe", "ffn_up-2", "MUL_MAT", ("blk.2.ffn_up_shexp.weight", "x"), ["blk.2.ffn_shared_up"]),
            ("qwen2moe", "ffn_swiglu-2", "GLU", ("ffn_gate-2", "ffn_up-2"), ["blk.2.ffn_shared_act"]),
            ("qwen2", "ffn_swiglu-2", "GLU", ("ffn_gate-2", "ffn_up-2"), ["blk.2.ffn_act"]),
        ):
            with self.subTest(node=node, architecture=architecture):
                self.assertEqual(self.find("llama.cpp", architecture, node, op, reads), wanted)
        experts = [f"blk.4.ffn_expert_{part}" for part in ("gate", "up", "act", "out")]
        for architecture, node, wanted in (
            ("mixtral", "model.layers.4.mlp.gate", ["blk.4.ffn_router", "blk.4.ffn_weights", "blk.4.ffn_choice"]),
            ("mixtral", "model.layers.4.mlp.experts:linear", experts),
            ("mixtral", "model.layers.4.mlp", ["blk.4.ffn_out"]),
            ("qwen3", "model.layers.4.mlp", []),
            ("granitemoe", "model.layers.4.block_sparse_moe.experts:linear", experts),
            ("qwen2_moe", "model.layers.4.mlp.experts", ["blk.4.ffn_experts"]),
            ("qwen2_moe", "model.layers.4.mlp.shared_expert.down_proj", ["blk.4.ffn_shared_act", "blk.4.ffn_shared_out"]),
        ):
            with self.subTest(node=node, architecture=architecture):
                self.assertEqual(self.find("transformers", architecture, node), wanted)

    def test_latent_attention(self):
        for node, op, reads, wanted in (
            ("q-2", "MUL_MAT", ("blk.2.attn_q_a.weight", "attn_norm-2"), ["blk.2.q_a"]),
            ("q-2", "MUL", ("norm-2", "blk.2.attn_q_a_norm.weight"), ["blk.2.q_a_norm"]),
            ("q-2", "MUL_MAT", ("blk.2.attn_q_b.weight", "q-2"), ["blk.2.q"]),
            ("q-2", "MUL_MAT", ("blk.2.attn_q.weight", "attn_norm-2"), ["blk.2.q"]),
            ("kv_cmpr_pe-2", "MUL_MAT", ("blk.2.attn_kv_a_mqa.weight", "attn_norm-2"), ["blk.2.kv_a"]),
            ("k_pe-2", "VIEW", ("kv_cmpr_pe-2",), []),
            ("k_pe-2", "ROPE", ("k_pe-2", "inp_pos"), ["blk.2.k_pe"]),
            # The absorbed form: heads of the short row are no keys.
            ("Qcur-2", "CONCAT", ("q_nope_absorbed_perm-2", "q_pe-2"), []),
            ("Kcur-2", "CONCAT", ("Vcur-2", "k_pe-2"), []),
            ("Vcur-2", "RESHAPE", ("kv_cmpr-2",), []),
            ("Kcur-2", "CONCAT", ("k_nope_view-2", "x"), ["blk.2.k_rope"]),
            ("Qcur-2", "ROPE", ("q-2", "inp_pos"), ["blk.2.q_rope"]),
            ("Vcur_cont-2", "CONT", ("Vcur_view-2",), ["blk.2.v"]),
            ("ffn_out-0", "MUL_MAT", ("blk.0.ffn_down.weight", "ffn_swiglu-0"), ["blk.0.ffn_act", "blk.0.ffn_out"]),
        ):
            with self.subTest(node=node, op=op, reads=reads):
                self.assertEqual(self.find("llama.cpp", "deepseek2", node, op, reads), wanted)
        attention = "model.layers.3.self_attn:eager_attention_forward"
        for own, order in (("deepseek_v2", None), ("deepseek_v3", "adjacent_end")):
            found = names.load_map("transformers", own)
            self.assertEqual(found.architecture, "deepseek2")
            self.assertEqual([(name, rule.take, rule.order) for rule, name in found.find(attention)],
                             [("blk.3.v", "new_values", None), ("blk.3.q_rope", "query", order),
                              ("blk.3.k_rope", "new_keys", order)])  # fmt: skip
        self.assertEqual(self.find("transformers", "deepseek_v2", "model.layers.3.self_attn:apply_rotary_pos_emb"), [])

    def test_rules_of_the_package_are_of_checkpoints(self):
        for path in sorted(Path(names.__file__).with_name("names").glob("*.json")):
            for rule in names.parse_map(path.read_text()).rules:
                self.assertIn(rule.checkpoint.replace("{N}", "N"), checkpoints.CHECKPOINTS, path.name)

    def test_what_is_no_map_is_refused(self):
        good = {"format": "lockstep-names", "version": 1, "engine": "x", "rules": [{"checkpoint": "q", "nodes": ["a"]}]}
        self.assertEqual(names.parse_map(json.dumps(good)).engine, "x")
        rule = good["rules"][0]
        for wrong in (
            {"format": "gguf"}, {"version": 2}, {"engine": None}, {"rules": {}}, {"rules": [1]},
            {"rules": [{"nodes": ["a"]}]}, {"rules": [{"checkpoint": "q"}]}, {"rules": [{**rule, "nodes": "a"}]},
            {"rules": [{**rule, "op": ["ROPE"]}]}, {"rules": [{**rule, "part": "third"}]},
            {"rules": [{**rule, "take": "all"}]}, {"rules": [{**rule, "order": "odd"}]},
            {"rules": [{**rule, "nodes": []}]},
        ):  # fmt: skip
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                names.parse_map(json.dumps({**good, **wrong}))
        for text in ("", "[", "[]", "null"):
            with self.assertRaises(ValueError):
                names.parse_map(text)

    def test_order_and_layers(self):
        wanted = ["embedding", "blk.2.attn_norm", "blk.2.output", "blk.10.q", "final_norm", "logits", "norm-3"]
        self.assertEqual(sorted(reversed(wanted), key=checkpoints.execution_order), wanted)
        every = checkpoints.names(11)
        self.assertEqual(sorted(reversed(every), key=checkpoints.execution_order), every)
        self.assertEqual(checkpoints.names(2)[-4:], ["blk.1.ffn_post_norm", "blk.1.output", "final_norm", "logits"])
        self.assertEqual(len(every), 3 + 11 * 38)
        for name in ("norm-3", "blk.1.other", "blk.N.q", "blk..q", "q", "blk.1.logits", "blk.1.q.x", ""):
            self.assertFalse(checkpoints.is_checkpoint(name), name)
        for name in checkpoints.names(2):
            self.assertTrue(checkpoints.is_checkpoint(name), name)
            self.assertEqual(checkpoints.is_scores(name), name.endswith(("attn_scores", "attn_probs")), name)
        for node, without in (("norm-12", "norm-{N}"), ("cache_k_l3 (view)", "cache_k_l{N} (view)"),
                              ("h.4.mlp.dense_4h_to_h", "h.{N}.mlp.dense_4h_to_h"), ("norm", "norm")):  # fmt: skip
            self.assertEqual(names.without_layer(node), without)


class CommandTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.seed = int.from_bytes(os.urandom(4), "little")
        self.random = np.random.default_rng(self.seed)

    def test_sets(self):
        for sets, name, inside in (
            ("all", "blk.0.attn_scores", True), ("ops", "blk.0.attn_scores", False), ("ops", "blk.0.q", True),
            ("layers", "blk.3.output", True), ("layers", "blk.3.q", False), ("logits", "logits", True),
            ("embedding,blk.*.q", "blk.7.q", True), ("embedding,blk.*.q", "blk.7.k", False), ("all", "norm-0", False),
        ):  # fmt: skip
            self.assertEqual(command.wanted(sets, name), inside, (sets, name))
        command.check_checkpoints("all,blk.2.q", LAYERS)
        for sets in ("", "blk.3.q", "layer", "all,none"):
            with self.assertRaises(command.CaptureError):
                command.check_checkpoints(sets, LAYERS)

    def engine(self, width, fail_at=None, end=None):
        """Gives rows that say their own positions; chooses what `self.random` says."""
        seen = []

        def evaluate(tokens, first):
            if fail_at is not None and first + len(tokens) > fail_at:
                raise command.CaptureError("the engine failed")
            seen.append((list(tokens), first))
            rows = np.arange(first, first + len(tokens), dtype=np.float32)[:, None] * np.ones(width, np.float32)
            return {"logits": rows, "embedding": rows + 1}

        def last():
            return self.random.standard_normal(width).astype(np.float32)

        return seen, evaluate, last, lambda token: token == end

    def generate(self, given, engine):
        _, evaluate, last, is_end = engine
        folder = self.folder / "trace"

        def writer():
            return lockstep.TraceWriter(folder, engine="test", tokens=given.tokens, notes=["a note"], unmapped=["norm"])

        command.generate(given.tokens, given, evaluate, last, is_end, writer)
        return lockstep.open_trace(folder)

    def test_prompt_in_steps_then_a_token_each(self):
        for batch in (1, 3, 7, 100):
            with self.subTest(batch=batch, seed=self.seed):
                given = options(tokens=list(range(7)), batch=batch)
                engine = self.engine(50)
                trace = self.generate(given, engine)
                self.assertTrue(trace.complete)
                self.assertEqual(len(trace.tokens), 7 + 4)
                self.assertEqual(trace.n_prompt, 7)
                self.assertEqual(trace.positions("logits").tolist(), list(range(10)))
                np.testing.assert_array_equal(trace["logits"][:, 0], np.arange(10))
                self.assertEqual([len(tokens) for tokens, _ in engine[0]][-3:], [1, 1, 1])
                self.assertEqual([t for step, _ in engine[0] for t in step], trace.tokens[:-1].tolist())
                self.assertEqual(list(trace), ["embedding", "logits"])
                self.assertEqual((trace.manifest["notes"], trace.manifest["unmapped"]), (["a note"], ["norm"]))
                for file in (self.folder / "trace").iterdir():
                    file.unlink()

    def test_nothing_to_choose(self):
        trace = self.generate(options(max_tokens=0), self.engine(5))
        self.assertEqual(trace.tokens.tolist(), [1, 2, 3])
        self.assertTrue(trace.complete)

    def test_end_of_text(self):
        self.random = np.random.default_rng(1)
        choice = int(np.random.default_rng(1).standard_normal(5).astype(np.float32).argmax())
        trace = self.generate(options(max_tokens=9), self.engine(5, end=choice))
        self.assertEqual(len(trace.tokens), 4)

    def test_failure_leaves_no_complete_trace(self):
        with self.assertRaises(command.CaptureError):
            self.generate(options(), self.engine(5, fail_at=4))  # positions 0 to 3 succeed
        trace = lockstep.open_trace(self.folder / "trace")
        self.assertFalse(trace.complete)
        self.assertEqual(trace.positions("logits").tolist(), [0, 1, 2, 3])

    def test_temperature_and_seed(self):
        logits = self.random.standard_normal(40).astype(np.float32)
        draw = [command.choose(logits, options(temp=1.5), np.random.default_rng(s)) for s in range(50)]
        again = [command.choose(logits, options(temp=1.5), np.random.default_rng(s)) for s in range(50)]
        self.assertEqual(draw, again)
        self.assertGreater(len(set(draw)), 1)
        self.assertEqual(command.choose(logits, options(), np.random.default_rng(0)), logits.argmax())
        logits[7] = np.nan
        with self.assertRaises(command.CaptureError):
            command.choose(logits, options(temp=1.0), np.random.default_rng(0))

    def test_flags(self):
        parser = command.make_parser("x", "", "", "a file")
        given = parser.parse_args(["-m", "a", "-o", "b", "--tokens", "1,2 3", "--temp", "0.5"])
        self.assertEqual((given.tokens, given.temp, given.max_tokens, given.checkpoints), ([1, 2, 3], 0.5, 1, "all"))
        for wrong in (["--tokens", "x"], ["-p", "a", "--tokens", "1"], [], ["-p", "a", "--temp", "nan"],
                      ["-p", "a", "-n", "-1"], ["-p", "a", "--batch", "0"], ["-p", "a", "--temp", "-1"]):  # fmt: skip
            with self.subTest(wrong=wrong), contextlib.redirect_stderr(io.StringIO()):
                with self.assertRaises(SystemExit) as ended:
                    parser.parse_args(["-m", "a", "-o", "b", *wrong])
                self.assertEqual(ended.exception.code, 2)

    def test_wrong_input(self):
        for given in (options(tokens=[]), options(tokens=None, prompt=""), options(tokens=None, text_file="/no/file")):
            with self.assertRaises(command.CaptureError):
                command.read_prompt(given)
        (self.folder / "bytes").write_bytes(b"\xff\xfe\xff")
        with self.assertRaises(command.CaptureError):
            command.read_prompt(options(tokens=None, text_file=str(self.folder / "bytes")))
        for tokens, limit in (([], 9), ([1, 7], 9), ([-1], 9), ([1], 3)):
            with self.assertRaises(command.CaptureError):
                command.check_tokens(tokens, 7, 4, limit)
        file = self.folder / "file"
        file.write_text("x")
        for path in (file, self.folder, file / "inside"):
            with self.assertRaises(command.CaptureError):
                command.check_output(str(path))
        command.check_output(str(self.folder / "new" / "trace"))

    def test_errors_are_one_line_and_status_2(self):
        def broken(_):
            raise command.CaptureError("no such file")

        self.assertEqual(command.run("x", broken, options(output=str(self.folder / "t"))), 2)
        self.assertEqual(command.run("x", lambda _: None, options(output=str(self.folder / "t"))), 0)

    def test_a_capture_says_what_it_wrote(self):
        def capture(given):
            with lockstep.TraceWriter(given.output, engine="x", tokens=[1, 2, 3]) as trace:
                trace.step(0, {"embedding": np.zeros((2, 5), np.float32), "logits": np.zeros((2, 7), np.float32)})
                trace.step(2, {"embedding": np.zeros((1, 5), np.float32)})

        given = options(output=str(self.folder / "t"), model="hub/id", program="lockstep")
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.assertEqual(command.run("x", capture, given), 0)
        self.assertRegex(shown.getvalue(), r"^.*/t: 3 positions, 2 checkpoints, [0-9.]+ k?B\n")
        self.assertIn("(MODEL.gguf: the same model as a GGUF file)", shown.getvalue())

    def test_the_next_commands_take_what_was_captured(self):
        def capture(given):
            with lockstep.TraceWriter(given.output, engine="x", tokens=[1, 2, 3]) as trace:
                trace.step(0, {"logits": np.zeros((3, 7), np.float32)})

        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        for name, expected in (("t", model), ("u", model / "only.gguf")):
            given = options(output=str(self.folder / name), model=str(model), program="lockstep")
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                self.assertEqual(command.run("x", capture, given), 0)
            self.assertEqual(shown.getvalue().count(f" -m {expected}"), 2, shown.getvalue())
            self.assertNotIn("MODEL.gguf", shown.getvalue())
            (model / "only.gguf").write_bytes(b"")


PROGRAM = os.environ.get("LOCKSTEP")
MODELS = Path(os.environ.get("LOCKSTEP_MODELS", ""))


@unittest.skipIf(not PROGRAM, "no program at hand")
class SummaryTest(unittest.TestCase):
    """The commands that a capture ends with are run as they are printed."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name) / "it's here"
        self.folder.mkdir()
        self.model = str(MODELS / "haiku-llama-q4_k_m.gguf")

    def follow(self, flags, output="theirs it's.trace", model=None, **changes):
        """Our own engine stands for the other one. The commands, after they were run."""
        place = f"--trace={output}"
        subprocess.run([PROGRAM, "run", "-m", self.model, *flags, place, "--checkpoints=all"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        given = options(**{"tokens": None, "output": output, "model": model or self.model, "program": PROGRAM, "kv": "f16",
                           **changes})  # fmt: skip
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            what, next_step, commands = summary.text(given).split("\n", 2)
        finally:
            os.chdir(before)
        self.assertRegex(what, r": [0-9]+ positions, 71 checkpoints, [0-9.]+ [kM]B$")
        self.assertEqual(next_step, "Next, the same with lockstep, then both side by side:")
        done = subprocess.run(["sh", "-ec", commands], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{commands}: {done.stdout}{done.stderr}")
        self.assertIn("In parity: ", done.stdout)
        self.assertIn("100% of the rows are on both sides", done.stdout)
        return commands

    def test_prompts(self):
        odd = "it's $HOME; `x` \"y\"\n"
        self.follow(["-p", odd, "-n", "3"], prompt=odd, max_tokens=3)
        self.follow(["--prompt=-p", "-n", "3"], output="-dash", prompt="-p", max_tokens=3)
        # The name of the first is taken now.
        commands = self.follow(["-p", odd, "-n", "3"], output="theirs it's", prompt=odd, max_tokens=3)
        self.assertIn("-lockstep2.trace", commands)

    def test_other_prompts(self):
        (self.folder / "a text").write_text("GPU haiku")
        self.follow(["-f", "a text", "-n", "2"], text_file="a text", max_tokens=2)
        self.follow(["--tokens", "635,3,4", "-n", "1"], output="b", tokens=[635, 3, 4], max_tokens=1)
        # Drawn by chance: what was drawn is given.
        self.follow(["-p", "x", "-n", "5", "--temp", "3", "--seed", "7"], output="c", prompt="x", max_tokens=5, temp=3.0)

    def test_the_file_in_the_folder_of_a_model(self):
        hub = self.folder / "hub model"
        hub.mkdir()
        os.symlink(self.model, hub / "one.gguf")
        commands = self.follow(["-p", "x", "-n", "2"], model="hub model", prompt="x", max_tokens=2)
        self.assertIn("-m 'hub model/one.gguf'", commands)


if __name__ == "__main__":
    unittest.main()
