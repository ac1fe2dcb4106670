"""The forward pass of llama models in numpy, double precision: a second opinion on exact arithmetic.

Written from the definition of the model, for reading; it shares no code with the program. Weights come from a GGUF file
through the gguf package.
"""

import gguf
import numpy as np


class NumpyLlama:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.weights = {}  # [rows, columns], or [size]
        for tensor in reader.tensors:
            self.weights[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

        def read(key, otherwise=None):
            field = reader.get_field(f"llama.{key}")
            return otherwise if field is None else field.contents()

        self.layers = read("block_count")
        self.heads = read("attention.head_count")
        self.kv_heads = read("attention.head_count_kv", self.heads)
        self.epsilon = float(read("attention.layer_norm_rms_epsilon"))
        self.rope_base = float(read("rope.freq_base", 10000.0))
        self.head_size = read("attention.key_length", read("embedding_length") // self.heads)

    def logits(self, tokens):
        """[tokens, vocabulary], all positions at once."""
        weights = self.weights
        x = weights["token_embd.weight"][tokens]  # [tokens, width]
        for layer in range(self.layers):
            block = {
                name.removeprefix(f"blk.{layer}.").removesuffix(".weight"): value
                for name, value in weights.items()
                if name.startswith(f"blk.{layer}.")
            }
            x = x + self.attention(self.norm(x, block["attn_norm"]), block)
            h = self.norm(x, block["ffn_norm"])
            gate = h @ block["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ block["ffn_up"].T)) @ block["ffn_down"].T
        output = weights.get("output.weight", weights["token_embd.weight"])
        return self.norm(x, weights["output_norm.weight"]) @ output.T

    def norm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * weight

    def attention(self, h, block):
        count = len(h)

        def split(rows):  # [tokens, heads * size] to [heads, tokens, size]
            return rows.reshape(count, -1, self.head_size).transpose(1, 0, 2)

        q = self.rotate(split(h @ block["attn_q"].T))
        k = self.rotate(split(h @ block["attn_k"].T))
        v = split(h @ block["attn_v"].T)
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(self.head_size)  # [heads, tokens, tokens]
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mix = scores / scores.sum(axis=-1, keepdims=True) @ v
        return mix.transpose(1, 0, 2).reshape(count, -1) @ block["attn_output"].T

    def rotate(self, x):
        """Numbers 2i and 2i + 1 of a head are one complex number, turned by position * base^(-2i / size)."""
        pairs = np.arange(0, self.head_size, 2)
        angles = np.outer(np.arange(x.shape[1]), self.rope_base ** (-pairs / self.head_size))
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
