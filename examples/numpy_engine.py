"""A llama engine in numpy that records what it computes, and has a bug. Lockstep finds the bug.

usage: python examples/numpy_engine.py FOLDER [--fixed]     (FOLDER: new, for the traces)
"""

import sys

import numpy as np

import lockstep

PROMPT = [635, 326, 276, 294, 310]


class Engine:
    def __init__(self, model, fixed):
        self.weights = {name: model[name] for name in model}
        self.layers, self.heads = model.setting("block_count"), model.setting("attention.head_count")
        self.size = model.setting("embedding_length") // self.heads
        self.epsilon = np.float32(model.setting("attention.layer_norm_rms_epsilon"))
        # The bug: the base of the first llama, where the file has another.
        self.base = model.setting("rope.freq_base") if fixed else 10000.0

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weights[name]

    def rotate(self, x):
        x = x.reshape(len(x), -1, self.size // 2, 2)
        angle = np.outer(np.arange(len(x)), self.base ** (-np.arange(0, self.size, 2) / self.size))[:, None]
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        a, b = x[..., 0], x[..., 1]
        return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(len(x), -1, self.size)

    def forward(self, tokens):
        """All checkpoints of docs/checkpoints.md but scores and probabilities."""
        seen = {"embedding": self.weights["token_embd.weight"][tokens]}
        x = seen["embedding"]
        for layer in range(self.layers):
            def product(name, value, layer=layer):
                return value @ self.weights[f"blk.{layer}.{name}.weight"].T

            h = self.norm(x, f"blk.{layer}.attn_norm.weight")
            q, k, v = (product(f"attn_{part}", h) for part in "qkv")
            q_rope, k_rope = self.rotate(q), self.rotate(k)
            group = self.heads // k_rope.shape[1]
            keys = k_rope.repeat(group, 1)
            values = v.reshape(len(v), -1, self.size).repeat(group, 1)
            scores = np.einsum("thd,phd->htp", q_rope, keys) / np.float32(np.sqrt(self.size))
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
            probs = np.exp(scores - scores.max(-1, keepdims=True))
            mix = np.einsum("htp,phd->thd", probs / probs.sum(-1, keepdims=True), values)
            attn = product("attn_output", mix.reshape(len(x), -1))
            middle = x + attn
            g = self.norm(middle, f"blk.{layer}.ffn_norm.weight")
            gate, up = product("ffn_gate", g), product("ffn_up", g)
            act = gate / (1 + np.exp(-gate)) * up
            out = product("ffn_down", act)
            x = middle + out
            values = {"attn_norm": h, "q": q, "k": k, "v": v, "q_rope": q_rope, "k_rope": k_rope, "attn_mix": mix,
                      "attn_out": attn, "attn_residual": middle, "ffn_norm": g, "ffn_gate": gate, "ffn_up": up,
                      "ffn_act": act, "ffn_out": out, "output": x}  # fmt: skip
            seen.update({f"blk.{layer}.{name}": value for name, value in values.items()})
        seen["final_norm"] = self.norm(x, "output_norm.weight")
        seen["logits"] = seen["final_norm"] @ self.weights["output.weight"].T
        return seen


def main(folder, *flags):
    model = lockstep.open_model("haiku-llama-f16")
    with lockstep.TraceWriter(f"{folder}/mine.trace", engine="numpy engine", model=model.path, tokens=PROMPT,
                              precision={"compute": "f32", "activations": "f32", "kv": "f32"}) as trace:  # fmt: skip
        trace.step(0, Engine(model, "--fixed" in flags).forward(PROMPT))
    lockstep.run(model=model.path, tokens=PROMPT, max_tokens=1, device="reference", trace=f"{folder}/truth.trace")
    found = lockstep.compare(f"{folder}/truth.trace", f"{folder}/mine.trace")
    print(found)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
