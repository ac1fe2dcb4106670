#!/usr/bin/env python3
"""Writes the GGUF files of the shipped models from what models/train.py left.

    python models/export.py --from DIR --out models [--lockstep build/lockstep] [NAME ...]

Needs the Python packages gguf, numpy and safetensors. Weights keep their precision (F16, and F32 for haiku-gpt2; vectors are F32
always). With --lockstep the Q4_K_M files are made too, by `lockstep quantize`. Keys and tensor names are those that llama.cpp's
converter writes, so any GGUF engine loads the files.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

from zoo import CONTEXT, SPECS, VOCAB

COMMON = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
GPT2 = {
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
TOP = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
}


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{kind}"
    for prefix, names in [("model.layers.", COMMON), ("transformer.h.", GPT2)]:
        if stem.startswith(prefix):
            layer, part = stem.removeprefix(prefix).split(".", 1)
            return f"blk.{layer}.{names[part]}.{kind}"
    raise ValueError(f"no GGUF name for the tensor {name}")


def tensors(name, value):
    """(GGUF name, array). The experts of a layer are one weight each in transformers: gate above up, and down."""
    if ".experts." not in name:
        return [(gguf_name(name), value)]
    layer = name.removeprefix("model.layers.").split(".")[0]
    if name.endswith("down_proj"):
        return [(f"blk.{layer}.ffn_down_exps.weight", value)]
    gate, up = np.split(value, 2, axis=1)
    return [(f"blk.{layer}.ffn_gate_exps.weight", gate), (f"blk.{layer}.ffn_up_exps.weight", up)]


def interleave(rows, heads):
    """transformers rotates the two halves of a head; GGUF's llama and granite rotate neighbours. Output row 2i is row i of a
    head's first half, row 2i+1 that of its second. [heads*width, ...]"""
    width = rows.shape[0] // heads
    return rows.reshape(heads, 2, width // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def convert(spec, name, value):
    if spec.architecture in ("llama", "granite"):
        if ".q_proj." in name:
            value = interleave(value, spec.shape["heads"])
        elif ".k_proj." in name:
            value = interleave(value, spec.shape["kv_heads"])
    if spec.architecture == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        value = value.T  # transformers' Conv1D holds [in, out]
    # Routers keep single precision, as llama.cpp's converter has it.
    if value.ndim == 1 or name.endswith(("wpe.weight", ".mlp.gate.weight")):
        return np.ascontiguousarray(value, dtype=np.float32)
    return np.ascontiguousarray(value, dtype=np.float16 if spec.precision == "f16" else np.float32)


def add_architecture(writer, spec):
    s = spec.shape
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(s["hidden"])
    writer.add_block_count(s["layers"])
    writer.add_feed_forward_length(s["inner"])
    writer.add_head_count(s["heads"])
    if spec.architecture == "gpt2":
        writer.add_layer_norm_eps(s["eps"])
        return
    writer.add_head_count_kv(s["kv_heads"])
    writer.add_layer_norm_rms_eps(s["eps"])
    writer.add_rope_freq_base(s["rope_theta"])
    if spec.architecture not in ("qwen2", "qwen3moe"):
        writer.add_rope_dimension_count(s["hidden"] // s["heads"])
    if "head_size" in s:
        writer.add_key_length(s["head_size"])
        writer.add_value_length(s["head_size"])
    if "experts" in s:
        writer.add_expert_count(s["experts"])
        writer.add_expert_used_count(s["experts_used"])
        writer.add_expert_feed_forward_length(s["expert_inner"])
    writer.add_vocab_size(VOCAB)
    if spec.architecture == "phi3":
        writer.add_rope_scaling_orig_ctx_len(CONTEXT)
        writer.add_sliding_window(s["window"])
    if spec.architecture == "granite":
        writer.add_embedding_scale(s["embedding_scale"])
        writer.add_residual_scale(s["residual_scale"])
        writer.add_attention_scale(s["attention_scale"])
        writer.add_logit_scale(s["logits_scale"])


def add_tokenizer(writer, spec, saved):
    if spec.tokenizer == "spm":
        kinds = {"unknown": gguf.TokenType.UNKNOWN, "control": gguf.TokenType.CONTROL, "byte": gguf.TokenType.BYTE,
                 "normal": gguf.TokenType.NORMAL}
        tokens = [piece for piece, _, _ in saved["pieces"]]
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores([score for _, score, _ in saved["pieces"]])
        writer.add_token_types([kinds[kind] for _, _, kind in saved["pieces"]])
        writer.add_unk_token_id(0)
        writer.add_add_space_prefix(True)
    else:
        model = saved["tokenizer_json"]["model"]
        by_id = {i: text for text, i in model["vocab"].items()}
        by_id |= {t["id"]: t["content"] for t in saved["tokenizer_json"]["added_tokens"]}
        tokens = [by_id[i] for i in range(VOCAB)]
        special = set(spec.specials)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(spec.tokenizer)
        writer.add_token_list(tokens)
        writer.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    eos = tokens.index(spec.eos)
    writer.add_bos_token_id(tokens.index(spec.bos) if spec.bos else tokens.index(spec.specials[0]))
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(eos)
    if spec.tokenizer != "gpt-2":
        writer.add_add_bos_token(spec.bos is not None)
        writer.add_add_eos_token(False)
    if spec.chat_template:
        writer.add_chat_template(spec.chat_template)


def export(spec, folder, saved, path):
    writer = gguf.GGUFWriter(path, spec.architecture)
    writer.add_type("model")
    writer.add_name(spec.name)
    writer.add_description(f"A small {spec.architecture} model that writes haiku; made for Lockstep from a generated corpus.")
    writer.add_license("apache-2.0")
    writer.add_languages(["en"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if spec.precision == "f16" else gguf.LlamaFileType.ALL_F32)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_architecture(writer, spec)
    add_tokenizer(writer, spec, saved["tokenizer"])
    for name, value in load_file(folder / f"{spec.name}.safetensors").items():
        if not (spec.architecture == "gpt2" and name.endswith((".attn.bias", ".attn.masked_bias"))):
            for own, part in tensors(name, convert(spec, name, value)):
                writer.add_tensor(own, np.ascontiguousarray(part))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path}: {path.stat().st_size:,} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=pathlib.Path, required=True, help="what train.py left")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the files")
    parser.add_argument("--lockstep", type=pathlib.Path, help="the program, to make the Q4_K_M files with")
    parser.add_argument("names", nargs="*", help="some of the models; all where none is given")
    args = parser.parse_args()
    saved = json.loads((args.folder / "models.json").read_text(encoding="utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)
    total = 0
    for name in args.names or saved:
        spec = SPECS[name]
        path = args.out / f"{name}-{spec.precision}.gguf"
        export(spec, args.folder, saved[name], path)
        total += path.stat().st_size
        if args.lockstep and spec.precision == "f16":
            small = args.out / f"{name}-q4_k_m.gguf"
            subprocess.run([args.lockstep, "quantize", path, small, "Q4_K_M", "--force"], check=True)
            print(f"{small}: {small.stat().st_size:,} bytes")
            total += small.stat().st_size
    print(f"together {total:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
