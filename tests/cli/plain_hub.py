"""A small folder as the hub has them, written with nothing but the standard library."""

import json
import random
import struct

WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD, LAYERS, CONTEXT = 64, 96, 4, 2, 16, 2, 96


def byte_letters():
    """The letter of each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r"), ("Ġw", "or")]
SPECIALS = ["<|begin|>", "<|end|>"]
TOKENS = [*byte_letters().values(), *["".join(pair) for pair in MERGES], *SPECIALS]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


def tokenizer():
    return {
        "version": "1.0",
        "added_tokens": [{"id": TOKENS.index(text), "content": text, "special": True, "normalized": False,
                          "single_word": False, "lstrip": False, "rstrip": False} for text in SPECIALS],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": SPECIALS[0], "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(TOKENS[: -len(SPECIALS)])},
                  "merges": [list(pair) for pair in MERGES]},
    }  # fmt: skip


def config():
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "vocab_size": len(TOKENS), "tie_word_embeddings": False, "bos_token_id": 263, "eos_token_id": 264,
    }  # fmt: skip


def shapes():
    yield "model.embed_tokens.weight", [len(TOKENS), WIDTH]
    yield "model.norm.weight", [WIDTH]
    yield "lm_head.weight", [len(TOKENS), WIDTH]
    for layer in range(LAYERS):
        inside = f"model.layers.{layer}."
        yield inside + "input_layernorm.weight", [WIDTH]
        yield inside + "post_attention_layernorm.weight", [WIDTH]
        yield inside + "self_attn.q_proj.weight", [HEADS * HEAD, WIDTH]
        yield inside + "self_attn.k_proj.weight", [KV_HEADS * HEAD, WIDTH]
        yield inside + "self_attn.v_proj.weight", [KV_HEADS * HEAD, WIDTH]
        yield inside + "self_attn.o_proj.weight", [WIDTH, HEADS * HEAD]
        yield inside + "mlp.gate_proj.weight", [HIDDEN, WIDTH]
        yield inside + "mlp.up_proj.weight", [HIDDEN, WIDTH]
        yield inside + "mlp.down_proj.weight", [WIDTH, HIDDEN]


def safetensors(tensors):
    """The bytes of a file: names to (type, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def weights(seed):
    rng = random.Random(seed)
    out = {}
    for name, shape in shapes():
        count = 1
        for extent in shape:
            count *= extent
        middle, spread = (1, 0.2) if len(shape) == 1 else (0, 2 * WIDTH**-0.5)
        out[name] = ("F32", shape, struct.pack(f"<{count}f", *(rng.gauss(middle, spread) for _ in range(count))))
    return out


def write(folder, seed=1, parts=1):
    """A folder with weights in so many files, a tokenizer and a template."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config()))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": SPECIALS[1], "chat_template": TEMPLATE}))
    tensors = weights(seed)
    if parts == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors))
        return folder
    files = {}
    for i, name in enumerate(tensors):
        files[name] = f"model-{i % parts + 1:05}-of-{parts:05}.safetensors"
    for file in set(files.values()):
        (folder / file).write_bytes(safetensors({name: tensors[name] for name in tensors if files[name] == file}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder
