"""`lockstep.record` on modules of torch: what is recorded is what the modules computed. Without transformers."""

import os
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import lockstep
from lockstep._experts import ExpertCalls
from lockstep._layout import Heads

# Some machines announce AMX, which is above this, and stop a program at its first tile instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
try:
    import torch
    from torch import nn
except ImportError:
    torch = None

WIDTH, HEADS, KV_HEADS, SIZE, FEED, VOCABULARY, LAYERS = 24, 4, 2, 6, 14, 31, 3

if torch is not None:

    class Attention(nn.Module):
        """Keeps what it computed in `seen`, as a test wants to find it."""

        def __init__(self):
            super().__init__()
            self.wqkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * SIZE, bias=False)
            self.wo = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = self.wqkv(x).split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
            self.seen = {"q": q.detach(), "k": k.detach(), "v": v.detach()}

            def split(value, heads):
                return value.view(batch, tokens, heads, SIZE).transpose(1, 2)

            k, v = (split(part, KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1) for part in (k, v))
            mixed = nn.functional.scaled_dot_product_attention(split(q, HEADS), k, v, is_causal=True)
            return self.wo(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
            self.w13, self.w2 = nn.Linear(WIDTH, 2 * FEED, bias=False), nn.Linear(FEED, WIDTH, bias=False)
            self.drop = nn.Dropout(0.0)

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            gate, up = self.w13(self.norm2(x)).chunk(2, -1)
            self.seen = {"gate": gate.detach(), "up": up.detach()}
            return self.drop(x + self.w2(nn.functional.silu(gate) * up))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.blocks = nn.ModuleList([Layer() for _ in range(LAYERS)])
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, idx):
            x = self.embed(idx)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    class Cache:
        def __init__(self):
            self.rows = torch.zeros(1, 0, WIDTH)

        def get_seq_length(self):
            return self.rows.shape[1]

    class Heads4(nn.Module):
        def forward(self, x):
            return (2 * x).view(*x.shape[:2], HEADS, SIZE)

    class Latent(nn.Module):
        """A cache of short rows: `expand` sees all of them in every call, as [batch, (heads,) positions, width]."""

        def __init__(self, places):
            super().__init__()
            self.embed, self.heads = nn.Embedding(VOCABULARY, WIDTH), Heads4()
            self.expand, self.places = nn.Linear(WIDTH, 2 * WIDTH, bias=False), places

        def forward(self, idx, past_key_values):
            x = self.embed(idx)
            past_key_values.rows = torch.cat([past_key_values.rows, x], 1)
            rows = past_key_values.rows if self.places == "bpw" else past_key_values.rows[:, None]
            wide = self.expand(rows).view(1, -1, 2 * WIDTH)[:, -idx.shape[1] :, :WIDTH]
            return wide + self.heads(x).flatten(2)

    # As the workers of vLLM and SGLang have them: flat tokens, outputs in pairs, norms that add, one rotation for all layers.

    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), None

    class AddNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

        def forward(self, x, residual=None):
            if residual is not None:
                residual.add_(x)  # in place, as the fused kernels do
                x = residual
            normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
            return normed if residual is None else (normed, residual)

    class Rotary(nn.Module):
        def forward(self, positions, q, k):
            factor = 1 + positions[:, None].float() / 100
            return q * factor, k * factor

    class FusedAttention(nn.Module):
        def __init__(self, rotary):
            super().__init__()
            self.qkv_proj = Pair(WIDTH, (HEADS + 2 * KV_HEADS) * SIZE, bias=False)
            self.rotary_emb = rotary
            self.o_proj = Pair(HEADS * SIZE, WIDTH, bias=False)

        def forward(self, positions, hidden_states):
            qkv, _ = self.qkv_proj(hidden_states)
            q, k, v = qkv.split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
            q, k = self.rotary_emb(positions, q, k)
            self.rotated = q.detach().clone()
            return self.o_proj(q + torch.cat([k, v], -1).repeat(1, 1)[:, : HEADS * SIZE])[0]

    class FusedMlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_up_proj, self.down_proj = Pair(WIDTH, 2 * FEED, bias=False), Pair(FEED, WIDTH, bias=False)

        def forward(self, x):
            gate, up = self.gate_up_proj(x)[0].chunk(2, -1)
            return self.down_proj(nn.functional.silu(gate) * up)[0]

    class FusedLayer(nn.Module):
        def __init__(self, rotary):
            super().__init__()
            self.input_layernorm, self.post_attention_layernorm = AddNorm(), AddNorm()
            self.self_attn, self.mlp = FusedAttention(rotary), FusedMlp()

        def forward(self, positions, hidden_states, residual):
            if residual is None:
                residual = hidden_states.clone()
                hidden_states = self.input_layernorm(hidden_states)
            else:
                hidden_states, residual = self.input_layernorm(hidden_states, residual)
            hidden_states = self.self_attn(positions=positions, hidden_states=hidden_states)
            hidden_states, residual = self.post_attention_layernorm(hidden_states, residual)
            self.middle = residual.detach().clone()
            hidden_states = self.mlp(hidden_states)
            self.total = (hidden_states + residual).detach()
            return hidden_states, residual

    class FusedModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
            rotary = Rotary()
            self.layers = nn.ModuleList([FusedLayer(rotary) for _ in range(LAYERS)])
            self.norm = AddNorm()

        def forward(self, input_ids, positions):
            hidden, residual = self.embed_tokens(input_ids), None
            for layer in self.layers:
                hidden, residual = layer(positions, hidden, residual)
            return self.norm(hidden, residual)[0]

    class LogitsProcessor(nn.Module):
        def forward(self, head, hidden):
            return head(hidden)

    class Worker(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = FusedModel()
            self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.logits_processor = LogitsProcessor()

        def forward(self, input_ids, positions):
            return self.model(input_ids, positions)

        def compute_logits(self, hidden):
            return self.logits_processor(self.lm_head, hidden)


NAMES = {
    "embed": "embedding",
    "blocks.{N}.norm1": "blk.{N}.attn_norm",
    "blocks.{N}.attention.wqkv": ("blk.{N}.q", "blk.{N}.k", "blk.{N}.v"),
    "blocks.{N}.attention.wo": [{"checkpoint": "blk.{N}.attn_mix", "take": "input"}, {"checkpoint": "blk.{N}.attn_out"}],
    "blocks.{N}.w13": ("blk.{N}.ffn_gate", "blk.{N}.ffn_up"),
    "*.{N}.w2": "blk.{N}.ffn_out",
    "blocks.{N}": "blk.{N}.output",
    "head": "logits",
}


@unittest.skipIf(torch is None, "torch is not installed")
class ExpertsTest(unittest.TestCase):
    """Products of experts, as modules of transformers call them, in the order of the tokens' choices."""

    EXPERTS, USED, TOKENS = 7, 3, 11

    def setUp(self):
        torch.manual_seed(3)
        wide = {"dtype": torch.float64}  # products of one row and of many round apart
        self.x = torch.randn(self.TOKENS, WIDTH, **wide)
        self.choice = torch.stack([torch.randperm(self.EXPERTS - 1)[: self.USED] for _ in range(self.TOKENS)])
        self.w13 = torch.randn(self.EXPERTS, 2 * FEED, WIDTH, **wide)
        self.w2 = torch.randn(self.EXPERTS, WIDTH, FEED, **wide)
        self.calls = ExpertCalls()
        for expert in range(self.EXPERTS):  # nobody chose the last one
            slots, tokens = torch.where(self.choice.T == expert)
            if len(slots):
                first = self.product(self.x[tokens], self.w13[expert])
                gate, up = first.chunk(2, -1)
                self.product(nn.functional.silu(gate) * up, self.w2[expert])

    def product(self, x, weight):
        result = nn.functional.linear(x, weight)
        self.calls.add((x, weight), result)
        return result

    def test_rows_are_those_of_the_slots(self):
        found = self.calls.finish(self.choice)
        self.assertEqual(list(found), ["expert_gate", "expert_up", "expert_act", "expert_out"])
        for token in range(self.TOKENS):
            for slot, expert in enumerate(self.choice[token]):
                gate, up = (self.w13[expert] @ self.x[token]).chunk(2)
                act = nn.functional.silu(gate) * up
                for take, row in zip(found, (gate, up, act, self.w2[expert] @ act)):
                    own = found[take].view(self.TOKENS, self.USED, -1)[token, slot]
                    torch.testing.assert_close(own, row)
        self.assertEqual(self.calls.finish(self.choice), {})  # the next pass has products of its own

    def test_other_products_are_not_taken(self):
        self.product(self.x, self.w13[0])
        self.assertEqual(self.calls.finish(self.choice), {})
        self.setUp()
        self.assertEqual(self.calls.finish(None), {})
        self.setUp()
        self.assertEqual(self.calls.finish(self.choice[:-1]), {})


@unittest.skipIf(torch is None, "torch is not installed")
class OrderTest(unittest.TestCase):
    """Numbers of a head in the order of GGUF files."""

    def test_ends_of_heads(self):
        heads = Heads(2, 2, 4)
        rows = torch.arange(14).reshape(1, 14)
        wanted = [0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 12, 11, 13]
        self.assertEqual(heads.adjacent_end(rows, "blk.0.q_rope").tolist(), [wanted])
        self.assertEqual(heads.adjacent(rows[:, :4], "blk.0.k_pe").tolist(), [[0, 2, 1, 3]])  # one head for all
        for wrong, width in ((heads, 13), (Heads(2, 2, 0), 14), (Heads(2, 2, 3), 14), (Heads(0, 0, 4), 14), (heads, 6)):
            with self.assertRaisesRegex(ValueError, "blk.0.k_rope: .* numbers are no .* heads that end in"):
                wrong.adjacent_end(torch.zeros(1, width), "blk.0.k_rope")


@unittest.skipIf(torch is None, "torch is not installed")
class RecordTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.seed = int.from_bytes(os.urandom(4), "little")
        torch.manual_seed(self.seed)
        self.count = 0

    def record(self, model, *calls, **options):
        self.count += 1
        folder = self.root / f"{self.count}.trace"
        outputs = []
        with lockstep.record(model, folder, **options) as recording:
            for call in calls:
                outputs.append(model(call) if torch.is_tensor(call) else call())
        for module in model.modules():
            self.assertFalse(module._forward_hooks or module._forward_pre_hooks)
        trace = lockstep.open_trace(folder)
        self.assertTrue(trace.complete)
        return recording, trace, outputs

    def ids(self, *shape):
        return torch.randint(0, VOCABULARY, shape)

    def same(self, trace, name, tensor):
        np.testing.assert_array_equal(trace[name], tensor.detach().reshape(-1, tensor.shape[-1]).numpy(), f"{name}, {self.seed}")

    def test_a_mapping_with_fused_projections(self):
        model, ids = Net(), self.ids(1, 7)
        recording, trace, (logits,) = self.record(model, ids, names=NAMES, heads=HEADS, kv_heads=KV_HEADS)
        self.same(trace, "logits", logits)
        for number, block in enumerate(model.blocks):
            for part, value in block.attention.seen.items():
                self.same(trace, f"blk.{number}.{part}", value)
            for part, value in block.seen.items():
                self.same(trace, f"blk.{number}.ffn_{part}", value)
        self.same(trace, "embedding", model.embed(ids))
        self.assertEqual(trace.tokens.tolist(), ids[0].tolist())
        self.assertEqual(trace.n_prompt, 7)
        self.assertEqual(recording.own_names, [f"blocks.{n}.norm2" for n in range(LAYERS)])
        self.assertIn("blocks.1.norm2", trace)
        self.assertEqual(list(trace)[:3], ["embedding", "blk.0.attn_norm", "blk.0.q"])
        self.assertEqual(trace.manifest["engine"]["precision"], {"compute": "f32", "activations": "f32", "kv": "f32"})

    def test_one_of_a_batch(self):
        model, ids = Net(), self.ids(3, 5)
        for sequence in range(3):
            _, trace, (logits,) = self.record(model, ids, names=NAMES, heads=HEADS, kv_heads=KV_HEADS, sequence=sequence)
            self.same(trace, "logits", logits[sequence])
            self.same(trace, "blk.2.v", model.blocks[2].attention.seen["v"][sequence])
            self.assertEqual(trace.tokens.tolist(), ids[sequence].tolist())
        with self.assertRaisesRegex(ValueError, "sequence=3.*3 sequences"):
            self.record(model, ids, sequence=3)

    def test_types(self):
        ids = self.ids(1, 4)
        for kind, short in ((torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.float64, "f64")):
            model = Net().to(kind)
            _, trace, (logits,) = self.record(model, ids, names=NAMES, heads=HEADS, kv_heads=KV_HEADS)
            self.assertEqual({c.dtype for c in trace.checkpoints.values()}, {short})
            self.assertEqual(trace.manifest["engine"]["precision"]["activations"], short)
            bits = torch.int16 if kind != torch.float64 else torch.int64
            np.testing.assert_array_equal(np.array(trace["logits"]).view(f"i{logits.element_size()}"),
                                          logits.detach()[0].view(bits).numpy())  # fmt: skip

    def test_autocast(self):
        model, ids = Net(), self.ids(1, 4)

        def call():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(ids)

        recording, trace, _ = self.record(model, call, names=NAMES, heads=HEADS, kv_heads=KV_HEADS)
        self.assertEqual((trace.checkpoints["blk.0.q"].dtype, trace.checkpoints["embedding"].dtype), ("bf16", "f32"))
        self.assertEqual(trace.manifest["engine"]["precision"],
                         {"compute": "f32", "activations": "bf16", "kv": "bf16", "weights": "bf16"})  # fmt: skip
        self.assertTrue(any("autocast" in note for note in recording.notes))

    def test_a_model_that_nobody_knows(self):
        model, ids = Net(), self.ids(1, 6)
        recording, trace, (logits,) = self.record(model, ids)
        self.assertEqual([name for name in trace if name.startswith("blk.")], [f"blk.{n}.output" for n in range(LAYERS)])
        self.same(trace, "logits", logits)
        self.same(trace, "embedding", model.embed(ids))
        self.assertIn("blocks.0.attention.wqkv", recording.own_names)
        self.assertNotIn("blocks.0.drop", recording.own_names)
        self.assertIn("no name map", recording.notes[0])
        recording, trace, _ = self.record(model, ids, own_names=False, checkpoints="logits,blk.1.*")
        self.assertEqual((list(trace), recording.own_names), (["blk.1.output", "logits"], []))
        self.assertIn("blocks.0.attention.wqkv", trace.manifest["unmapped"])

    def test_own_names_are_chosen_too(self):
        model, ids = Net(), self.ids(1, 6)
        norms = ["blocks.1.norm1", "blocks.1.norm2"]
        for checkpoints, own in (("logits", []), ("layers", []), (["logits", "blocks.1.norm?"], norms)):
            recording, trace, _ = self.record(model, ids, checkpoints=checkpoints)
            self.assertEqual((recording.own_names, "logits" in trace), (own, True), checkpoints)

    def test_values_that_are_made_anew_from_a_cache(self):
        for places, prompt, more in (("bpw", 4, 3), ("bhpw", 4, 3), ("bhpw", HEADS, 1)):
            model = Latent(places)
            whole, cache = self.ids(1, prompt + more), Cache()
            first, *later = whole.split([prompt, *[1] * more], 1)
            calls = [lambda ids=ids: model(ids, past_key_values=cache) for ids in (first, *later)]
            recording, trace, _ = self.record(model, *calls)
            self.assertEqual(len(trace.steps), 1 + more)
            self.same(trace, "expand", model.expand(model.embed(whole)))
            self.same(trace, "heads", model.heads(model.embed(whole)).flatten(2))  # one token of several heads is no cache
            self.assertFalse([note for note in recording.notes if "left out" in note], recording.notes)

    def test_all_positions_anew_for_each_token(self):
        model, ids = Net().eval(), self.ids(1, 9)
        other = (ids[:, :3] + 1) % VOCABULARY
        recording, trace, outputs = self.record(model, ids[:, :5], ids[:, :6], ids, other, names=NAMES, heads=HEADS,
                                                kv_heads=KV_HEADS)  # fmt: skip
        self.assertEqual([(step.first_position, step.tokens) for step in trace.steps], [(0, 9)])
        self.assertEqual((trace.tokens.tolist(), trace.n_prompt), (ids[0].tolist(), 5))
        self.same(trace, "logits", outputs[2])
        self.assertEqual([note.split()[-1] for note in recording.notes], ["step", "start_pos"])

    def test_what_the_model_writes_over_later_is_recorded_as_it_was(self):
        class InPlace(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.blocks = nn.Embedding(VOCABULARY, 4), nn.ModuleList([nn.Linear(4, 4)])

            def forward(self, idx):
                x = self.embed(idx)
                self.before = x.detach().clone()
                return self.blocks[0](x.mul_(3))

        model = InPlace()
        with torch.no_grad():
            _, trace, _ = self.record(model, self.ids(1, 5), names={"embed": "embedding"})
        self.same(trace, "embedding", model.before)

    def test_heads_before_tokens(self):
        class Rotated(nn.Module):
            def __init__(self, before):
                super().__init__()
                self.embed, self.turn, self.before = nn.Embedding(VOCABULARY, WIDTH), nn.ReLU(), before

            def forward(self, idx):
                x = self.embed(idx).unflatten(-1, (HEADS, SIZE))
                self.seen = torch.relu(x.flatten(-2)).detach()
                return self.turn(x.transpose(1, 2) if self.before else x)

        for before in (False, True):
            for tokens in (1, 3, HEADS, 7):
                model = Rotated(before)
                recording, trace, _ = self.record(model, self.ids(2, tokens), names={"turn": "blk.0.q_rope"}, sequence=1)
                self.same(trace, "blk.0.q_rope", model.seen[1])
                self.assertEqual(any("as many heads" in note for note in recording.notes), tokens == HEADS)

    def test_a_pass_that_fails_leaves_the_next_ones_right(self):
        model, ids = Worker().eval(), self.ids(4)
        layer = model.model.layers[1].mlp
        folder = self.root / "failing.trace"
        with torch.no_grad(), lockstep.record(model, folder, names="vllm", heads=HEADS, kv_heads=KV_HEADS):
            handle = layer.register_forward_pre_hook(lambda *_: 1 / 0)
            with self.assertRaises(ZeroDivisionError):
                model(ids, torch.arange(4))
            handle.remove()
            model.compute_logits(model(ids, torch.arange(4)))
        trace = lockstep.open_trace(folder)
        for number, layer in enumerate(model.model.layers):
            np.testing.assert_array_equal(trace[f"blk.{number}.q_rope"], layer.self_attn.rotated.numpy())
        self.assertEqual(trace.positions("logits").tolist(), [0, 1, 2, 3])

    def test_gradients_still_flow(self):
        model, ids = Net(), self.ids(2, 5)

        def call():
            model(ids).sum().backward()

        self.record(model, call, names=NAMES, heads=HEADS, kv_heads=KV_HEADS)
        self.assertTrue(all(p.grad is not None for p in model.parameters()))

    def test_a_compiled_model(self):
        plain = Net().eval()
        ids = self.ids(1, 5)
        for compiled in (torch.compile(plain, backend="eager"), plain):
            if compiled is plain:
                plain.compile(backend="eager")
            with torch.no_grad():
                before = compiled(ids)  # compiled once without hooks
                recording, trace, (logits,) = self.record(compiled, ids, names=NAMES, heads=HEADS, kv_heads=KV_HEADS)
                torch.testing.assert_close(compiled(ids), before)
            self.same(trace, "logits", logits)
            self.assertIn("blk.2.q", trace)
            self.assertEqual(len([n for n in trace if n.startswith("blk.")]), 10 * LAYERS)
            self.assertTrue(any("breaks a graph" in note for note in recording.notes))

    def test_workers_with_fused_layers(self):
        model, ids = Worker().eval(), self.ids(6)
        folder = self.root / "worker.trace"
        with torch.no_grad():
            recording = lockstep.record(model, folder, names="vllm", heads=HEADS, kv_heads=KV_HEADS).start()
            hidden = model(ids, torch.arange(6))
            logits = model.compute_logits(hidden[-1:])
            rotated = [layer.self_attn.rotated for layer in model.model.layers]
            middle = [layer.middle for layer in model.model.layers]
            total = [layer.total for layer in model.model.layers]
            for position in (6, 7):
                model.compute_logits(model(self.ids(1), torch.tensor([position])))
            recording.close()
        trace = lockstep.open_trace(folder)
        self.assertEqual([(step.first_position, step.tokens) for step in trace.steps], [(0, 6), (6, 1), (7, 1)])
        self.assertEqual(trace.positions("logits").tolist(), [5, 6, 7])
        np.testing.assert_array_equal(trace.value("logits", 0), logits.numpy())
        for number in range(LAYERS):
            np.testing.assert_array_equal(trace.value(f"blk.{number}.q_rope", 0), rotated[number].numpy())
            np.testing.assert_array_equal(trace.value(f"blk.{number}.attn_residual", 0), middle[number].numpy())
            np.testing.assert_array_equal(trace.value(f"blk.{number}.output", 0), total[number].numpy())
            self.assertEqual(trace.checkpoints[f"blk.{number}.k"].width, KV_HEADS * SIZE)
            self.assertEqual(trace.checkpoints[f"blk.{number}.ffn_up"].width, FEED)
        np.testing.assert_array_equal(trace.value("final_norm", 0), hidden.numpy())
        recorded = {name.partition(".")[2].partition(".")[2] for name in trace if name.startswith("blk.")}
        self.assertEqual(recorded, {"attn_norm", "q", "k", "v", "q_rope", "k_rope", "attn_mix", "attn_out", "attn_residual",
                                    "ffn_norm", "ffn_gate", "ffn_up", "ffn_act", "ffn_out", "output"})  # fmt: skip

    def test_wrong_use(self):
        model, ids = Net(), self.ids(1, 3)
        for names, message in (
            ({"nothing.{N}": "blk.{N}.q"}, "no module is called 'nothing.{N}'; modules are embed, "),
            ({"blocks.{N}": "blk.{N}.nothing"}, "no checkpoint"),
            ({"blocks.0": "blk.{N}.output"}, "has no {N}"),
            ({"embed": ("blk.0.q", "embedding")}, "no part"),
            ({"embed": {"checkpoint": "embedding", "take": "all"}}, "take"),
            ("no/such/file.json", "No such file"),
        ):
            with self.subTest(names=names), self.assertRaises(ValueError) as raised:
                lockstep.record(model, self.root / "never", names=names)
            self.assertIn(message, str(raised.exception))
        linear = torch.nn.Linear(2, 2)
        for module, options, message in (
            (object(), {}, "^record: object is no torch.nn.Module$"),
            (torch.jit.script(linear), {}, "compiled by torch.jit, which calls no hooks"),
            (torch.jit.trace(linear, torch.ones(1, 2)), {}, "compiled by torch.jit, which calls no hooks"),
            (model, {"names": 5}, "^names: int; expected a mapping, the file of a name map, or one of transformers, vllm"),
            (model, {"precision": "bf16"}, "^record: precision='bf16'; expected a mapping"),
            (model, {"sequence": "a"}, "^record: sequence='a'; expected a whole number$"),
            (model, {"heads": 2.5}, "^record: heads=2.5; expected a whole number$"),
            (model, {"kv_heads": "2"}, "^record: kv_heads='2'; expected a whole number$"),
            (model, {"gguf": 3}, "^record: gguf=3; expected the GGUF file, or a mapping with its path and fingerprint$"),
            (model, {"checkpoints": 3}, "^record: checkpoints=3; expected names in a text or a list$"),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(TypeError, message):
                lockstep.record(module, self.root / "never", **options)
        for checkpoints in ("layer", "logits,blk.*.nothing", ["blocks.7*"]):
            message = "^record: checkpoints: nothing is called '(layer|blk.*nothing|blocks.7.)'; sets are "
            with self.assertRaisesRegex(ValueError, message):
                lockstep.record(model, self.root / "never", checkpoints=checkpoints)
        for options in ({"sequence": -1}, {"heads": -2}, {"kv_heads": -1}, {"n_prompt": -1}):
            with self.assertRaisesRegex(ValueError, f"{next(iter(options))}=-[12]; expected a whole number from 0 on$"):
                lockstep.record(model, self.root / "never", **options)
        self.assertFalse((self.root / "never").exists())
        with self.assertRaisesRegex(ValueError, "blk.0.q: a fused row of 48 numbers.*heads="):
            self.record(model, ids, names=NAMES)
        self.assertFalse(any(module._forward_hooks for module in model.modules()))
        (self.root / "taken").mkdir()
        (self.root / "taken" / "file").write_text("")
        with self.assertRaises(FileExistsError):
            lockstep.record(model, self.root / "taken")
        with self.assertRaisesRegex(RuntimeError, "mine"):
            with lockstep.record(model, self.root / "cut") as recording:
                model(ids)
                model(torch.cat([ids, self.ids(1, 1)], 1))
                raise RuntimeError("mine")
        self.assertFalse(lockstep.open_trace(recording.folder).complete)
        with lockstep.record(model, self.root / "shown") as recording:
            self.assertEqual(repr(recording), f"<lockstep.Recording {self.root / 'shown'}: not closed yet>")
            model(ids)
        self.assertRegex(repr(recording), r"^<lockstep.Recording .*shown: \d+ checkpoints in 1 step>$")
        recording, trace, _ = self.record(model)
        self.assertEqual((len(trace), len(recording.notes)), (0, 2))
        with self.assertRaisesRegex(ValueError, "is written and closed; lockstep.record makes a new recording"):
            recording.start()


if __name__ == "__main__":
    unittest.main()
