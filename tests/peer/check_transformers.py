"""Our reference executor against Hugging Face transformers in double precision: every checkpoint."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch

import hf_models
from lockstep._checkpoints import is_checkpoint
from peer import Report, our_values, WORK

BOUND = 1e-12

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
# Six pairs in Phi-3's heads of 12 numbers. Files have factors in single precision: these are exact.
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
            "short_factor": [1.0, 1.0625, 1.125, 1.3125, 1.5, 2.0],
            "long_factor": [1.0, 2.0, 3.5, 5.0, 9.0, 14.0]}  # fmt: skip
# Phi-3's configuration has the original context a second time, and that one counts.
LONG_PHI3 = {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
# The ramp between fast and slow pairs neither begins nor ends at a whole pair.
GPT_OSS_YARN = {**YARN, "rope_theta": 150000.0, "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False}

# Name, architecture, options of the configuration, tokens, context.
CASES = [
    ("gpt2", "gpt2", {}, 60, 60),
    ("llama", "llama", {}, 60, 60),
    ("llama, tied, with biases", "llama",
     {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}, 60, 60),
    ("llama, head size other than width / heads", "llama", {"head_dim": 14}, 60, 60),
    ("llama, llama3 rope scaling", "llama", {"rope_parameters": LLAMA3}, 100, 100),
    ("llama, linear rope scaling", "llama", {"rope_parameters": LINEAR}, 60, 60),
    ("llama, yarn", "llama", {"rope_parameters": YARN}, 100, 100),
    ("qwen2", "qwen2", {}, 60, 60),
    ("qwen2, yarn", "qwen2", {"rope_parameters": YARN}, 100, 100),
    ("qwen3", "qwen3", {}, 60, 60),
    ("granite", "granite", {}, 60, 60),
    ("phi3", "phi3", {}, 60, 60),
    ("phi3, window of 11 positions", "phi3", {"sliding_window": 11}, 60, 60),
    ("phi3, window of 1 position", "phi3", {"sliding_window": 1}, 20, 20),
    ("phi3, half of each head rotated", "phi3",
     {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, 60, 60),
    ("phi3, long rope within the original context", "phi3", LONG_PHI3, 64, 64),
    ("phi3, long rope beyond the original context", "phi3", LONG_PHI3, 100, 100),
    ("phi3, long rope and a window of 33", "phi3", {**LONG_PHI3, "sliding_window": 33}, 100, 256),
    ("gemma2", "gemma2", {}, 60, 60),
    ("gemma2, tied, a window of 1", "gemma2", {"tie_word_embeddings": True, "sliding_window": 1}, 20, 20),
    ("gemma3", "gemma3", {}, 60, 60),
    ("gemma3, capped logits", "gemma3", {"final_logit_softcapping": 2.0, "tie_word_embeddings": True}, 60, 60),
    ("olmo2", "olmo2", {}, 60, 60),
    ("olmo2, yarn", "olmo2", {"rope_parameters": YARN}, 100, 100),
    ("smollm3", "smollm3", {}, 60, 60),
    ("smollm3, yarn", "smollm3", {"rope_parameters": YARN}, 100, 100),
    ("glm4", "glm4", {}, 60, 60),
    ("stablelm", "stablelm", {}, 60, 60),
    ("stablelm, norms of heads", "stablelm", {"qk_layernorm": True, "use_qkv_bias": False}, 60, 60),
    ("stablelm, a norm of one head of keys", "stablelm", {"qk_layernorm": True, "num_key_value_heads": 1}, 60, 60),
    ("stablelm, side by side", "stablelm", {"use_parallel_residual": True, "qk_layernorm": True}, 60, 60),
    ("phi2", "phi2", {}, 60, 60),
    ("starcoder2", "starcoder2", {}, 60, 60),
    ("mixtral", "mixtral", {}, 60, 60),
    ("mixtral, one expert of two", "mixtral", {"num_local_experts": 2, "num_experts_per_tok": 1}, 60, 60),
    ("mixtral, all experts", "mixtral", {"num_local_experts": 5, "num_experts_per_tok": 5}, 7, 60),
    ("qwen2moe", "qwen2moe", {}, 60, 60),
    ("qwen2moe, many experts", "qwen2moe", {"num_experts": 65, "num_experts_per_tok": 8}, 60, 60),
    ("qwen3moe", "qwen3moe", {}, 60, 60),
    ("qwen3moe, yarn", "qwen3moe", {"rope_parameters": YARN, "moe_intermediate_size": 1}, 100, 100),
    ("olmoe", "olmoe", {}, 60, 60),
    ("olmoe, tied", "olmoe", {"tie_word_embeddings": True, "num_experts": 16, "num_experts_per_tok": 4}, 60, 60),
    ("granitemoe", "granitemoe", {}, 60, 60),
    ("gpt-oss", "gpt-oss", {}, 60, 60),
    ("gpt-oss, yarn", "gpt-oss", {"rope_parameters": GPT_OSS_YARN}, 100, 100),
    ("gpt-oss, one of 65 experts, a window of 1", "gpt-oss",
     {"num_local_experts": 65, "num_experts_per_tok": 1, "sliding_window": 1}, 20, 20),
    ("deepseek V2 Lite", "deepseek_v2", {}, 60, 60),
    ("deepseek V2 Lite, one weight for keys and values", "deepseek_v2", {"whole_kv_b": True}, 60, 60),
    ("deepseek V2, groups, yarn", "deepseek_v2",
     {"q_lora_rank": 17, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2,
      "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}}, 100, 100),
    ("deepseek V2, yarn without sharpened scores", "deepseek_v2", {"rope_parameters": YARN}, 100, 100),
    ("deepseek V2, every layer with experts, one head", "deepseek_v2",
     {"first_k_dense_replace": 0, "num_attention_heads": 1, "num_key_value_heads": 1, "n_shared_experts": 1}, 7, 60),
    ("deepseek V3", "deepseek_v3", {}, 60, 60),
    ("deepseek V3, groups, yarn, one weight for keys and values", "deepseek_v3",
     {"n_routed_experts": 12, "n_group": 4, "topk_group": 2, "whole_kv_b": True,
      "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}, 100, 100),
    ("deepseek V3, weights not divided", "deepseek_v3", {"norm_topk_prob": False, "q_lora_rank": None}, 60, 60),
]  # fmt: skip


def run_case(report, path, seed, name, arch, options, count, context):
    options = dict(options)
    whole_kv_b = options.pop("whole_kv_b", False)
    model = hf_models.random_model(hf_models.config_of(arch, options), seed)
    hf_models.export(model, path, whole_kv_b)
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, hf_models.VOCABULARY, count)]
    theirs = hf_models.forward(model, tokens)
    # In one step, and in several that go through the cache.
    for chunk in (count, 7):
        ours = our_values(path, tokens, chunk=chunk, context=context)
        worst_name, worst = hf_models.farthest(ours, theirs, BOUND)
        if not worst < BOUND:
            report.below(f"{name}: {worst_name} is the first to differ", worst, BOUND)
            return
    lacking = [checkpoint for checkpoint in ours if is_checkpoint(checkpoint) and checkpoint not in theirs]
    report.case(f"{name}: transformers has all checkpoints", not lacking, ", ".join(lacking))
    report.below(f"{name}: {len(theirs)} values, worst {worst_name}", worst, BOUND)


def main():
    torch.set_num_threads(2)
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report("transformers")
    path = WORK / "exported.gguf"
    for seed, case in enumerate(CASES, 200):
        report.attempt(case[0], run_case, report, path, seed, *case)
    path.unlink(missing_ok=True)
    report.finish()


if __name__ == "__main__":
    main()
