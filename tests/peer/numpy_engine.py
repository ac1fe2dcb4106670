"""A small engine in numpy that records traces, with one bug at a time on request: a stranger for the judge.

gpt2, llama, qwen2, phi3 and granite, in float32 or float64 throughout, with a KV cache. Written from the definition of
the models; it shares no code with the program. Weights come from a GGUF file through the gguf package.
"""

from math import erf
from pathlib import Path

import gguf
import numpy as np

import peer  # noqa: F401: the way to our package
import lockstep

ADJACENT_PAIRS = ("llama", "granite")  # of rotation; the others pair the halves of a head
SCORES = ("attn_scores", "attn_probs")  # not in the set `ops`


def round_bfloat16(x):
    return lockstep.bfloat16_to_float32(lockstep.float32_to_bfloat16(x.astype(np.float32)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return (0.5 * x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2.0)))).astype(x.dtype)


def silu(x):
    return x / (1 + np.exp(-x))


class Weights:
    """What is in the file; engines share it."""

    def __init__(self, path):
        self.path = Path(path)
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        self.architecture = reader.get_field("general.architecture").contents()

        def read(key, otherwise=None):
            field = reader.get_field(f"{self.architecture}.{key}")
            return otherwise if field is None else field.contents()

        self.layers = read("block_count")
        self.heads = read("attention.head_count")
        self.kv_heads = read("attention.head_count_kv", self.heads)
        self.head_size = read("embedding_length") // self.heads
        self.epsilon = float(read("attention.layer_norm_rms_epsilon", read("attention.layer_norm_epsilon")))
        self.rope_base = float(read("rope.freq_base", 10000.0))
        self.window = int(read("attention.sliding_window", 0))
        self.embedding_scale = float(read("embedding_scale", 1.0))
        self.residual_scale = float(read("residual_scale", 1.0))
        self.logit_divisor = float(read("logit_scale", 1.0))
        self.attention_scale = float(read("attention.scale", 1 / np.sqrt(self.head_size)))


class NumpyEngine:
    """`bug` names the one thing that is wrong; None: nothing is."""

    def __init__(self, weights, dtype=np.float32, bug=None):
        self.w = weights
        self.bug = bug
        self.dtype = np.dtype(dtype)
        self.tensors = {name: tensor.astype(dtype) for name, tensor in weights.tensors.items()}
        self.cache = [([], []) for _ in range(weights.layers)]  # keys and values, a row a position
        self.pairs_adjacent = weights.architecture in ADJACENT_PAIRS
        if bug == "rope pairing":
            self.pairs_adjacent = not self.pairs_adjacent
        self.rope_base = weights.rope_base
        if bug == "rope base 10000":
            self.rope_base = 10000.0
        if bug == "rope base 1%":
            self.rope_base *= 1.01
        self.epsilon = {"epsilon 1e-6": 1e-6, "epsilon 1e-3": 1e-3}.get(bug, weights.epsilon)
        self.window = weights.window
        if bug == "no window":
            self.window = 0
        if bug == "window + 1":
            self.window += 1
        if bug == "window - 1":
            self.window -= 1
        self.last_logits = None

    # Parts

    def number(self, value):
        return self.dtype.type(value)

    def norm(self, x, name):
        weight = self.tensors[f"{name}.weight"]
        if self.w.architecture == "gpt2":
            x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.number(self.epsilon)) * weight
        return x + self.tensors[f"{name}.bias"] if self.w.architecture == "gpt2" else x

    def linear(self, x, name, rows=slice(None)):
        """[tokens, columns] to [tokens, rows]; `rows` of a fused weight."""
        y = x @ self.tensors[f"{name}.weight"][rows].T
        bias = self.tensors.get(f"{name}.bias")
        part = name.split(".")[-1]
        if bias is None or self.bug == f"no {part} bias":
            return y
        return y + bias[rows] * self.number(2 if self.bug == f"twice {part} bias" else 1)

    def rotate(self, x, first, of):
        """[tokens, heads * size]"""
        size = self.w.head_size
        if self.w.architecture == "gpt2":
            return None
        if self.bug == "q not rotated" and of == "q":
            return x.copy()
        positions = np.arange(first, first + len(x)) + (self.bug == "rope position + 1")
        angles = np.outer(positions, self.rope_base ** (-np.arange(0, size, 2) / size))[:, None, :]
        cos, sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)
        x = x.reshape(len(x), -1, size)
        half = size // 2
        a, b = (x[..., 0::2], x[..., 1::2]) if self.pairs_adjacent else (x[..., :half], x[..., half:])
        turned = (a * cos - b * sin, a * sin + b * cos)
        joined = np.stack(turned, axis=-1) if self.pairs_adjacent else np.concatenate(turned, axis=-1)
        return joined.reshape(len(x), -1)

    def attention(self, layer, q, k, v, first, prompt):
        """Appends to the cache; [heads, tokens, positions] twice, and [tokens, heads * size]."""
        w, count = self.w, len(q)
        keys, values = self.cache[layer]
        if self.bug == "stale key" and not prompt:
            k = keys[-1].reshape(1, -1)
        keys.extend(k)
        values.extend(v)
        keys, values = (np.array(rows).reshape(len(rows), w.kv_heads, w.head_size) for rows in (keys, values))
        query = q.reshape(count, w.heads, w.head_size).transpose(1, 0, 2)
        of = np.arange(w.heads) // (w.heads // w.kv_heads)
        if self.bug == "head grouping":
            of = np.arange(w.heads) % w.kv_heads
        scores = query @ keys[:, of].transpose(1, 2, 0)
        if self.bug != "no attention scale":
            scores = scores * self.number(w.attention_scale)
        at, seen = np.arange(first, first + count)[:, None], np.arange(len(keys))
        visible = seen <= at + (self.bug == "sees the next")
        if self.window:
            visible &= seen > at - self.window
        scores = np.where(visible, scores, self.number(-np.inf))
        probs = np.exp(scores - scores.max(axis=-1, keepdims=True))
        probs /= probs.sum(axis=-1, keepdims=True)
        mix = probs @ values[:, of].transpose(1, 0, 2)
        return scores, probs, mix.transpose(1, 0, 2).reshape(count, -1)

    def qkv(self, layer, x):
        w, at = self.w, f"blk.{layer}."
        q_width, k_width = w.heads * w.head_size, w.kv_heads * w.head_size
        for_q = x
        if layer == 2 and self.bug == "q from half":
            for_q = x.astype(np.float16).astype(self.dtype)
        if layer == 2 and self.bug == "q from bfloat16":
            for_q = round_bfloat16(x).astype(self.dtype)
        if f"{at}attn_qkv.weight" not in self.tensors:
            return self.linear(for_q, f"{at}attn_q"), self.linear(x, f"{at}attn_k"), self.linear(x, f"{at}attn_v")
        ends = (0, q_width, q_width + k_width, q_width + 2 * k_width)
        return [
            self.linear(source, f"{at}attn_qkv", slice(begin, end))
            for source, begin, end in zip((for_q, x, x), ends, ends[1:])
        ]

    def feed_forward(self, layer, x, first):
        """Gate (or None), up, act, out."""
        at = f"blk.{layer}."
        if self.w.architecture == "gpt2":
            gate, up = None, self.linear(x, f"{at}ffn_up")
            act = (gelu_erf if self.bug == "gelu-erf" else gelu_tanh)(up)
        else:
            if f"{at}ffn_gate.weight" in self.tensors:
                gate, up = self.linear(x, f"{at}ffn_gate"), self.linear(x, f"{at}ffn_up")
            else:
                half = len(self.tensors[f"{at}ffn_up.weight"]) // 2
                gate = self.linear(x, f"{at}ffn_up", slice(half))
                up = self.linear(x, f"{at}ffn_up", slice(half, None))
            if self.bug == "gate and up swapped":
                gate, up = up, gate
            if self.bug == "NaN in up" and layer == 1 and first == 0:
                up[3, 5] = np.nan
            opened, passed = (up, gate) if self.bug == "up activated" else (gate, up)
            act = (np.maximum(opened, 0) if self.bug == "relu" else silu(opened)) * passed
        if self.bug == "ffn_down of layer 0" and layer == 1:
            at = "blk.0."
        return gate, up, act, self.linear(act, f"{at}ffn_down")

    # The whole

    def forward(self, tokens, first):
        """One step: {checkpoint: values}, in the order of execution."""
        w, values = self.w, {}
        x = self.tensors["token_embd.weight"][tokens] * self.number(w.embedding_scale)
        if w.architecture == "gpt2":
            x = x + self.tensors["position_embd.weight"][first : first + len(tokens)]
        values["embedding"] = x
        scale = self.number(1 if self.bug == "no residual scale" else w.residual_scale)
        for layer in range(w.layers):
            at = f"blk.{layer}."
            h = self.norm(x, f"{at}attn_norm")
            q, k, v = self.qkv(layer, h)
            turned_q, turned_k = self.rotate(q, first, "q"), self.rotate(k, first, "k")
            scores, probs, mix = self.attention(
                layer, q if turned_q is None else turned_q, k if turned_k is None else turned_k, v, first, first == 0
            )
            if self.bug == "attn_output transposed":
                out = mix @ self.tensors[f"{at}attn_output.weight"]
                out = out + self.tensors.get(f"{at}attn_output.bias", self.number(0))
            else:
                out = self.linear(mix, f"{at}attn_output")
            lost = self.bug == "no residual in layer 1" and layer == 1
            residual = out * scale if lost else x + out * scale
            normed = self.norm(residual, f"{at}ffn_norm")
            gate, up, act, down = self.feed_forward(layer, normed, first)
            x = residual + down * scale
            names = "attn_norm q k v q_rope k_rope attn_scores attn_probs attn_mix attn_out attn_residual ffn_norm"
            made = (h, q, k, v, turned_q, turned_k, scores, probs, mix, out, residual, normed, gate, up, act, down, x)
            for name, value in zip((names + " ffn_gate ffn_up ffn_act ffn_out output").split(), made):
                if value is not None:
                    values[at + name] = value
        values["final_norm"] = self.norm(x, "output_norm")
        output = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        if self.bug == "output layout":
            output = output.reshape(output.shape[::-1]).T
        logits = values["final_norm"] @ output.T / self.number(w.logit_divisor)
        if self.bug == "stale logits" and first > 0:
            logits = self.last_logits
        self.last_logits = logits[-1:].copy()
        values["logits"] = logits
        return values


def record(weights, folder, tokens, count, *, dtype=np.float32, bug=None, forced=None, fingerprint="", scores=True):
    """Runs the prompt `tokens` and `count` greedy steps (or the tokens of `forced`); all the tokens."""
    engine = NumpyEngine(weights, dtype, bug)
    precision = {8: "f64", 4: "f32"}[engine.dtype.itemsize]
    with np.errstate(all="ignore"), lockstep.TraceWriter(
        folder,
        engine={"name": "numpy", "version": np.__version__, "device": "cpu"},
        precision={"compute": precision, "activations": precision, "kv": precision},
        model={"file": weights.path.name, "architecture": weights.architecture, "fingerprint": fingerprint},
        tokens=tokens,
    ) as trace:
        first, step = 0, list(tokens)
        for index in range(count):
            values = engine.forward(step, first)
            trace.step(first, {n: v for n, v in values.items() if scores or not n.endswith(SCORES)})
            first += len(step)
            step = [int(forced[first] if forced else values["logits"][-1].argmax())]
            trace.tokens += step
        return list(trace.tokens)
