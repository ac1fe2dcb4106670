"""A llama engine in PyTorch that is recorded from outside, and has a bug. Lockstep finds the bug.

usage: python examples/torch_engine.py FOLDER [--fixed]     (FOLDER: new, for the traces)
"""

import sys

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

import lockstep

PROMPT = [635, 326, 276, 294, 310]


class Rotary(nn.Module):
    def __init__(self, size, base):
        super().__init__()
        self.frequencies = base ** (-torch.arange(0, size, 2) / size)

    def forward(self, x):  # [batch, tokens, heads, size]
        angle = torch.arange(x.shape[1])[:, None, None] * self.frequencies
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, feed, base, epsilon, fixed):
        super().__init__()
        self.size, self.group, self.fixed = width // heads, heads // kv_heads, fixed
        self.norm1, self.norm2 = nn.RMSNorm(width, epsilon), nn.RMSNorm(width, epsilon)
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2))
        self.rope_q, self.rope_k = Rotary(self.size, base), Rotary(self.size, base)
        self.w1, self.w3 = (nn.Linear(width, feed, bias=False) for _ in range(2))
        self.w2 = nn.Linear(feed, width, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (product(h).unflatten(-1, (-1, self.size)) for product in (self.wq, self.wk, self.wv))
        q, k, v = (part.transpose(1, 2) for part in (self.rope_q(q), self.rope_k(k), v))
        if self.fixed:
            k, v = k.repeat_interleave(self.group, 1), v.repeat_interleave(self.group, 1)
        else:  # the bug: neighbouring heads of the queries share a head of the keys, and here every second one does
            k, v = k.repeat(1, self.group, 1, 1), v.repeat(1, self.group, 1, 1)
        x = x + self.wo(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.w2(silu(self.w1(h)) * self.w3(h))


class Engine(nn.Module):
    def __init__(self, model, fixed):
        super().__init__()
        width, vocabulary = model.setting("embedding_length"), len(model["token_embd.weight"])
        sizes = [model.setting(f"attention.{name}") for name in ("head_count", "head_count_kv")]
        base, epsilon = model.setting("rope.freq_base"), model.setting("attention.layer_norm_rms_epsilon")
        self.embed, self.norm = nn.Embedding(vocabulary, width), nn.RMSNorm(width, epsilon)
        self.blocks = nn.ModuleList([Block(width, *sizes, model.setting("feed_forward_length"), base, epsilon, fixed)
                                     for _ in range(model.setting("block_count"))])  # fmt: skip
        self.head = nn.Linear(width, vocabulary, bias=False)
        files = {"embed": "token_embd", "norm": "output_norm", "head": "output", "norm1": "attn_norm", "norm2": "ffn_norm",
                 "wq": "attn_q", "wk": "attn_k", "wv": "attn_v", "wo": "attn_output", "w1": "ffn_gate", "w2": "ffn_down",
                 "w3": "ffn_up"}  # fmt: skip
        for name, weight in self.named_parameters():
            *block, module, _ = name.replace("blocks.", "blk.").split(".")
            weight.data = torch.tensor(model[".".join([*block, files[module], "weight"])])

    def forward(self, idx):
        x = self.embed(idx)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


NAMES = {
    "embed": "embedding", "blocks.{N}.norm1": "blk.{N}.attn_norm", "blocks.{N}.wq": "blk.{N}.q", "blocks.{N}.wk": "blk.{N}.k",
    "blocks.{N}.wv": "blk.{N}.v", "blocks.{N}.rope_q": "blk.{N}.q_rope", "blocks.{N}.rope_k": "blk.{N}.k_rope",
    "blocks.{N}.wo": [{"checkpoint": "blk.{N}.attn_mix", "take": "input"}, "blk.{N}.attn_out"],
    "blocks.{N}.norm2": [{"checkpoint": "blk.{N}.attn_residual", "take": "input"}, "blk.{N}.ffn_norm"],
    "blocks.{N}.w1": "blk.{N}.ffn_gate", "blocks.{N}.w3": "blk.{N}.ffn_up",
    "blocks.{N}.w2": [{"checkpoint": "blk.{N}.ffn_act", "take": "input"}, "blk.{N}.ffn_out"],
    "blocks.{N}": "blk.{N}.output", "norm": "final_norm", "head": "logits",
}  # fmt: skip


def main(folder, *flags):
    model = lockstep.open_model("haiku-llama-f16")
    engine = Engine(model, "--fixed" in flags)
    with torch.no_grad(), lockstep.record(engine, f"{folder}/mine.trace", names=NAMES, gguf=model.path):
        engine(torch.tensor([PROMPT]))
    lockstep.run(model=model.path, tokens=PROMPT, max_tokens=1, device="reference", trace=f"{folder}/truth.trace")
    found = lockstep.compare(f"{folder}/truth.trace", f"{folder}/mine.trace")
    print(found)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
