"""Small random models of Hugging Face transformers, and the GGUF files that mean the same.

The export is written here from the meaning of both formats, so that it shares nothing with either engine's code.
"""

import math

import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from lockstep.capture import transformers as capture  # noqa: E402: needs the path above

LAYERS = 3
WIDTH = 48
VOCABULARY = 101
CONTEXT = 256


def _common(heads, kv_heads, ff):
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": ff,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "attn_implementation": "eager",
    }


def _rope(**more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **more}}


def config_of(arch, options):
    """A transformers configuration; `options` replace the usual values."""
    if arch == "gpt2":
        return transformers.GPT2Config(**{
            "vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4,
            "n_inner": 77, "bos_token_id": None, "eos_token_id": None, "attn_implementation": "eager", **options,
        })  # fmt: skip
    kinds = {
        "llama": (transformers.LlamaConfig, _common(6, 3, 67)),
        "qwen2": (transformers.Qwen2Config, _common(6, 2, 67)),
        "qwen3": (transformers.Qwen3Config, {**_common(3, 1, 67), "head_dim": 22}),
        "phi3": (transformers.Phi3Config, _common(4, 2, 67)),
        "granite": (
            transformers.GraniteConfig,
            {
                **_common(6, 3, 67),
                "embedding_multiplier": 11.5,
                "residual_multiplier": 0.25,
                "attention_multiplier": 0.125,
                "logits_scaling": 7.5,
            },
        ),
    }
    kind, usual = kinds[arch]
    return kind(**{**usual, **_rope(), **options})


def random_model(config, seed):
    """In double precision; the weights are single-precision numbers, so that an F32 file holds them exactly."""
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = torch.randn(weight.shape, generator=random)
            if weight.dim() == 1:
                values = 0.3 * values + (0.0 if name.endswith("bias") else 1.0)
            elif "embed_tokens" not in name and "wte" not in name and "wpe" not in name:
                fan_in = weight.shape[0 if config.model_type == "gpt2" and "lm_head" not in name else 1]
                values *= 2 / math.sqrt(fan_in)
            weight.copy_(values)
    return model.double()


def forward(model, tokens, checkpoints="all"):
    """{checkpoint: array}, in one step."""
    with capture.Run(model, checkpoints) as run:
        return run.step(tokens, 0)


def _adjacent_pairs(rows, heads):
    """Rows of q or k: there the pair (i, i + half of the head) turns, in llama's files (2i, 2i + 1)."""
    head_size = rows.shape[0] // heads
    order = [head * head_size + half * (head_size // 2) + i
             for head in range(heads) for i in range(head_size // 2) for half in (0, 1)]  # fmt: skip
    return rows[order]


def _tensors(model):
    """(GGUF name, array) of every weight."""
    config = model.config
    arch = config.model_type
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    if arch == "gpt2":
        names = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
                 "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}  # fmt: skip
        top = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}
        layer_prefix = "transformer.h."
    else:
        names = {
            "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
            "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
            "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }  # fmt: skip
        top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
        layer_prefix = "model.layers."
    for full_name, value in weights.items():
        name, kind = full_name.rsplit(".", 1)
        if not name.startswith(layer_prefix):
            yield f"{top[name]}.{kind}", value
            continue
        index, inner = name.removeprefix(layer_prefix).split(".", 1)
        ours = names[inner]
        if arch == "gpt2" and value.ndim == 2:
            value = value.T  # stored as [in, out] there
        if arch in ("llama", "granite") and ours in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if ours == "attn_q" else config.num_key_value_heads
            value = _adjacent_pairs(value, heads)
        yield f"blk.{index}.{ours}.{kind}", value


def _llama3_factors(config, head_size):
    """What Llama 3.1's scaling divides each frequency by."""
    rope = config.rope_parameters
    context = rope["original_max_position_embeddings"]
    for pair in range(head_size // 2):
        turns = context * rope["rope_theta"] ** (-2 * pair / head_size) / (2 * math.pi)  # over the original context
        low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
        own_share = min(1.0, max(0.0, (turns - low) / (high - low)))
        yield 1 / ((1 - own_share) / factor + own_share)


def export(model, path):
    config = model.config
    arch = config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("tokenizer.ggml.model", "none")
    writer.add_vocab_size(VOCABULARY)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_head_count(config.num_attention_heads)
    if arch == "gpt2":
        writer.add_feed_forward_length(config.n_inner)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        head_size = getattr(config, "head_dim", None) or WIDTH // config.num_attention_heads
        rope = config.rope_parameters
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
        writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1.0)))
        writer.add_rope_freq_base(rope["rope_theta"])
        if rope["rope_type"] == "llama3":
            factors = np.array(list(_llama3_factors(config, head_size)), np.float32)
            writer.add_tensor("rope_freqs.weight", factors)
        elif rope["rope_type"] in ("linear", "yarn"):
            writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
            writer.add_rope_scaling_factor(rope["factor"])
            if rope["rope_type"] == "yarn":
                writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        elif rope["rope_type"] == "longrope":
            original = rope["original_max_position_embeddings"]
            writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(CONTEXT / original) / math.log(original)))
            writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
            writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        elif rope["rope_type"] != "default":
            raise ValueError(f"no export of rope type {rope['rope_type']}")
        if arch == "phi3":
            writer.add_sliding_window(config.sliding_window or CONTEXT)
        if arch == "granite":
            writer.add_embedding_scale(config.embedding_multiplier)
            writer.add_residual_scale(config.residual_multiplier)
            writer.add_attention_scale(config.attention_multiplier)
            writer.add_logit_scale(config.logits_scaling)
    for name, value in _tensors(model):
        single = np.ascontiguousarray(value, np.float32)
        if not np.array_equal(single.astype(np.float64), value):
            raise ValueError(f"{name} is not in single precision")
        writer.add_tensor(name, single)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
