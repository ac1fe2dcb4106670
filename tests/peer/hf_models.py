"""Models of Hugging Face transformers and GGUF files that mean the same: small random ones exported, files loaded.

Both ways are written here from the meaning of the formats, so that they share nothing with either engine's code.
"""

import contextlib
import math

import gguf
import numpy as np
import safetensors.torch  # noqa: F401
import torch
import transformers

import peer
from lockstep._checkpoints import execution_order
from lockstep.capture import transformers as capture

LAYERS = 7  # a whole period of every pattern of layers, and one more
WIDTH = 48
VOCABULARY = 101
CONTEXT = 256


ADDED_ONE = ("gemma2", "gemma3")  # norms multiply by 1 + weight; files hold the sum


def arch_of(config):
    """What GGUF files call the architecture."""
    names = {"gemma3_text": "gemma3", "phi": "phi2", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
             "gpt_oss": "gpt-oss", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2"}  # fmt: skip
    return names.get(config.model_type, config.model_type)


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
    layer_norm = {"layer_norm_eps": 1e-5}
    # A query scale other than the head's size has no place in a GGUF file.
    gemma = {**_common(6, 3, 67), "head_dim": 14, "query_pre_attn_scalar": 14, "sliding_window": 11,
             "hidden_activation": "gelu_pytorch_tanh"}  # fmt: skip
    half = {"partial_rotary_factor": 0.5}
    kinds |= {
        "gemma2": (transformers.Gemma2Config, {**gemma, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
        "gemma3": (transformers.Gemma3TextConfig, gemma),
        "olmo2": (transformers.Olmo2Config, _common(6, 3, 67)),
        "smollm3": (transformers.SmolLM3Config, _common(6, 3, 67)),
        "glm4": (transformers.Glm4Config, {**_common(4, 2, 67), "head_dim": 12, "attention_bias": True}),
        "stablelm": (transformers.StableLmConfig, {**_common(4, 2, 67), **layer_norm, "use_qkv_bias": True}),
        "phi2": (transformers.PhiConfig, {**_common(4, 4, 67), **layer_norm, "hidden_act": "gelu_new"}),
        "starcoder2": (transformers.Starcoder2Config,
                       {**_common(6, 3, 67), "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None}),
    }  # fmt: skip
    experts = {"num_experts": 7, "num_experts_per_tok": 3}
    local = {"num_local_experts": 7, "num_experts_per_tok": 3}
    kinds |= {
        "mixtral": (transformers.MixtralConfig, {**_common(6, 3, 31), **local, "sliding_window": None}),
        "qwen2moe": (transformers.Qwen2MoeConfig,
                     {**_common(6, 2, 67), **experts, "moe_intermediate_size": 29, "shared_expert_intermediate_size": 37,
                      "norm_topk_prob": False}),
        "qwen3moe": (transformers.Qwen3MoeConfig,
                     {**_common(3, 1, 67), **experts, "head_dim": 22, "moe_intermediate_size": 29, "norm_topk_prob": True}),
        "olmoe": (transformers.OlmoeConfig, {**_common(6, 3, 31), **experts, "norm_topk_prob": False}),
        "granitemoe": (transformers.GraniteMoeConfig, {**kinds["granite"][1], **local, "intermediate_size": 31}),
        "gpt-oss": (transformers.GptOssConfig, {**_common(6, 3, 31), **local, "head_dim": 14, "sliding_window": 11}),
    }  # fmt: skip
    # The norms of the short rows have an epsilon of their own in transformers, which files do not know.
    latent = {**_common(6, 6, 67), "rms_norm_eps": 1e-6, "kv_lora_rank": 22, "q_lora_rank": 17, "qk_nope_head_dim": 10,
              "qk_rope_head_dim": 6, "v_head_dim": 9, "n_routed_experts": 9, "num_experts_per_tok": 3,
              "moe_intermediate_size": 29, "n_shared_experts": 2, "first_k_dense_replace": 2,
              "routed_scaling_factor": 1.7, "n_group": 1, "topk_group": 1}  # fmt: skip
    kinds |= {
        "deepseek_v2": (transformers.DeepseekV2Config, {**latent, "q_lora_rank": None, "topk_method": "greedy"}),
        "deepseek_v3": (transformers.DeepseekV3Config, {**latent, "norm_topk_prob": True}),
    }
    kind, usual = kinds[arch]
    if arch in ("glm4", "stablelm", "phi2"):
        return kind(**{**usual, **_rope(**half), **options})
    if arch == "gemma3":
        other = {"rope_type": "default", "rope_theta": 1000.0}
        scaled = {"rope_type": "linear", "rope_theta": 30000.0, "factor": 8.0}
        return kind(**{**usual, "rope_parameters": {"full_attention": scaled, "sliding_attention": other}, **options})
    return kind(**{**usual, **_rope(), **options})


def _by_expert(values):
    """Chosen experts in the order of their numbers: engines choose in any order."""
    out = dict(values)
    for name, choice in values.items():
        if not name.endswith(".ffn_choice"):
            continue
        order = np.argsort(choice, axis=1)
        for slots in ("ffn_choice", "ffn_weights", "ffn_expert_gate", "ffn_expert_up", "ffn_expert_act", "ffn_expert_out"):
            full = name.replace("ffn_choice", slots)
            rows = values[full].reshape(*choice.shape, -1)
            out[full] = np.take_along_axis(rows, order[..., None], axis=1).reshape(values[full].shape)
    return out


def farthest(ours, theirs, bound):
    """(name, error) of the checkpoint that is farthest from transformers, or of the first one that is too far."""
    ours, theirs = _by_expert(ours), _by_expert(theirs)
    worst_name, worst = "", -1.0
    for checkpoint, value in sorted(theirs.items(), key=lambda item: execution_order(item[0])):
        own = ours[checkpoint]
        if checkpoint.endswith("attn_scores"):  # what a mask hides is a large negative number there
            hidden = value < -5000
            if not np.array_equal(hidden, np.isinf(own)):
                raise ValueError(f"{checkpoint}: masked in other places")
            own, value = own[~hidden], value[~hidden]
        error = peer.nmse(own, value)
        if not error <= worst:
            worst_name, worst = checkpoint, error
        if not error < bound:
            break
    return worst_name, worst


@contextlib.contextmanager
def in_double():
    """Norms, rotations, softmax and routers too, which transformers computes in single precision whatever the model's type.

    What makes a table of types when it is imported, as safetensors does, must be imported before.
    """
    single, same, method = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = single, same, method


def random_model(config, seed):
    """In double precision; the weights are single-precision numbers, so that an F32 file holds them exactly."""
    with in_double():  # frequencies of the rotation
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", experts_implementation="eager"
        ).eval()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = torch.randn(weight.shape, generator=random)
            if weight.dim() == 1:
                zero = name.endswith(("bias", "sinks")) or (arch_of(config) in ADDED_ONE and "norm" in name)
                values = (2.0 if name.endswith("sinks") else 0.3) * values + (0.0 if zero else 1.0)
            elif name.endswith("_bias"):  # of experts
                values *= 0.3
            elif "embed_tokens" not in name and "wte" not in name and "wpe" not in name:
                from_first = config.model_type == "gpt2" and "lm_head" not in name
                fan_in = weight.shape[0 if from_first else 1]
                if weight.dim() == 3:
                    fan_in = weight.shape[1 if config.model_type == "gpt_oss" else 2]
                values *= 2 / math.sqrt(fan_in)
                if config.model_type == "gpt_oss" and name.endswith("gate_up_proj"):
                    values *= 3  # some beyond the limits of the activation
            weight.copy_(values)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=random))
    return model.double()


def forward(model, tokens, checkpoints="all"):
    """{checkpoint: array}, in one step, all of it in double precision."""
    with in_double(), capture.Run(model, checkpoints) as run:
        return run.step(tokens, 0)


def _pairs(heads, head_size):
    """Where a row of q or k of a llama file comes from: there (2i, 2i + 1) turns, here (i, i + half of the head)."""
    return [head * head_size + half * (head_size // 2) + i
            for head in range(heads) for i in range(head_size // 2) for half in (0, 1)]  # fmt: skip


_GPT2_NAMES = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
               "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "transformer.wte": "token_embd",
               "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}  # fmt: skip
_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    # Gemma, OLMo 2, GLM 4
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    # Phi 2, StarCoder 2
    "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "model.final_layernorm": "output_norm",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    # Experts
    "mlp.router": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.router": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    # DeepSeek
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}  # fmt: skip
# Whose post_attention_layernorm has that name in files: it is what it says, or (gpt-oss) it is not.
_AFTER_ATTENTION = ("gemma2", "gemma3", "olmo2", "gpt-oss")


def _gguf_name(full_name, arch):
    names, prefix = (_GPT2_NAMES, "transformer.h.") if arch == "gpt2" else (_NAMES, "model.layers.")
    name, kind = full_name.rsplit(".", 1)
    if not name.startswith(prefix):
        return f"{names[name]}.{kind}"
    index, inner = name.removeprefix(prefix).split(".", 1)
    if inner == "post_attention_layernorm" and arch in _AFTER_ATTENTION:
        return f"blk.{index}.post_attention_norm.{kind}"
    return f"blk.{index}.{names[inner]}.{kind}"


def _paired_heads(name, config):
    """Of q and k of the architectures whose files have other pairs than transformers; 0: as they are."""
    if config.model_type not in ("llama", "granite", "smollm3", "mixtral", "granitemoe"):
        return 0
    return {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2], 0)


def _transposed(name, value, arch):
    return arch == "gpt2" and value.ndim == 2 and name.startswith("blk.")  # stored as [in, out] in transformers


def _expert_tensors(full_name, value, arch):
    """Gate and up of all experts are one weight in transformers, the gate's rows first; in gpt-oss they take turns."""
    layer = full_name.removeprefix("model.layers.").split(".")[0]
    if arch == "gpt-oss":
        kind = "bias" if full_name.endswith("_bias") else "weight"
        if kind == "weight":
            value = value.transpose(0, 2, 1)
        if ".down_proj" in full_name:
            yield f"blk.{layer}.ffn_down_exps.{kind}", value
            return
        yield f"blk.{layer}.ffn_gate_exps.{kind}", value[:, 0::2]
        yield f"blk.{layer}.ffn_up_exps.{kind}", value[:, 1::2]
        return
    if full_name.endswith("down_proj"):
        yield f"blk.{layer}.ffn_down_exps.weight", value
        return
    half = value.shape[1] // 2
    yield f"blk.{layer}.ffn_gate_exps.weight", value[:, :half]
    yield f"blk.{layer}.ffn_up_exps.weight", value[:, half:]


def _joined_experts(full_name, tensors):
    """The other way round."""
    layer = f"blk.{full_name.removeprefix('model.layers.').split('.')[0]}"
    if full_name.endswith("down_proj"):
        return tensors.pop(f"{layer}.ffn_down_exps.weight")
    return np.concatenate([tensors.pop(f"{layer}.ffn_{part}_exps.weight") for part in ("gate", "up")], axis=1)


def _split_kv_b(name, value, config):
    """The weight of keys and values in two, that of keys transposed, as files have it today."""
    heads = value.reshape(config.num_attention_heads, -1, value.shape[1])
    still = config.qk_nope_head_dim
    yield name.replace("kv_b", "k_b"), heads[:, :still].transpose(0, 2, 1)
    yield name.replace("kv_b", "v_b"), heads[:, still:]


def _tensors(model, whole_kv_b=False):
    """(GGUF name, array) of every weight."""
    arch = arch_of(model.config)
    for full_name, buffer in model.named_buffers():
        if full_name.endswith("e_score_correction_bias"):
            yield f"blk.{full_name.split('.')[2]}.exp_probs_b.bias", buffer.numpy()
    heads_norms = {}  # weights of each head's own norm
    for full_name, weight in model.named_parameters():
        if "_layernorm.norms." in full_name:
            of, _, head = full_name.removesuffix(".weight").partition("_layernorm.norms.")
            heads_norms.setdefault(of, {})[int(head)] = weight.detach().numpy()
            continue
        if ".experts." in full_name:
            yield from _expert_tensors(full_name, weight.detach().numpy(), arch)
            continue
        if full_name.endswith(".sinks"):
            layer = full_name.removeprefix("model.layers.").split(".")[0]
            yield f"blk.{layer}.attn_sinks.weight", weight.detach().numpy()
            continue
        name, value = _gguf_name(full_name, arch), weight.detach().numpy()
        if name.endswith("attn_kv_b.weight") and not whole_kv_b:
            yield from _split_kv_b(name, value, model.config)
            continue
        if name.endswith("ffn_gate_inp_shexp.weight"):
            value = value[0]
        if arch in ADDED_ONE and "norm" in name:
            value = (value.astype(np.float32) + np.float32(1)).astype(np.float64)
        if _transposed(name, value, model.config.model_type):
            value = value.T
        if heads := _paired_heads(name, model.config):
            value = value[_pairs(heads, value.shape[0] // heads)]
        yield name, value
    for of, norms in heads_norms.items():
        layer, which = of.removeprefix("model.layers.").split(".self_attn.")
        yield f"blk.{layer}.attn_{which}_norm.weight", np.stack([norms[head] for head in sorted(norms)])


def _config_of_file(reader, tensors):
    """A transformers configuration that means what the metadata of a GGUF file says. No rope scaling."""
    arch = reader.get_field("general.architecture").contents()

    def read(key, otherwise=None):
        field = reader.get_field(f"{arch}.{key}")
        return otherwise if field is None else field.contents()

    vocabulary, width = tensors["token_embd.weight"].shape
    heads = read("attention.head_count")
    if arch == "gpt2":
        return transformers.GPT2Config(
            vocab_size=vocabulary, n_positions=read("context_length"), n_embd=width, n_layer=read("block_count"),
            n_head=heads, n_inner=read("feed_forward_length"), layer_norm_epsilon=read("attention.layer_norm_epsilon"),
            bos_token_id=None, eos_token_id=None, tie_word_embeddings="output.weight" not in tensors,
        )  # fmt: skip
    head_size = read("attention.key_length", width // heads)
    more = {"head_dim": head_size}
    rope = {"rope_type": "default", "rope_theta": read("rope.freq_base", 10000.0)}
    if arch == "phi3":
        more = {"sliding_window": read("attention.sliding_window")}
        rope["partial_rotary_factor"] = read("rope.dimension_count", head_size) / head_size
    if arch == "granite":
        more = {"embedding_multiplier": read("embedding_scale", 1.0),
                "residual_multiplier": read("residual_scale", 1.0),
                "attention_multiplier": read("attention.scale", head_size**-0.5),
                "logits_scaling": read("logit_scale", 1.0)}  # fmt: skip
    if arch in ("gemma2", "gemma3"):
        more |= {"sliding_window": read("attention.sliding_window", 4096), "query_pre_attn_scalar": head_size,
                 "hidden_activation": "gelu_pytorch_tanh",
                 "attn_logit_softcapping": read("attn_logit_softcapping", 50.0 if arch == "gemma2" else None),
                 "final_logit_softcapping": read("final_logit_softcapping", 30.0 if arch == "gemma2" else None)}  # fmt: skip
    if arch == "gemma3":
        windowed = {"rope_type": "default", "rope_theta": read("rope.freq_base_swa", 10000.0)}
        rope = {"full_attention": rope, "sliding_attention": windowed}
    if arch in ("glm4", "stablelm", "phi2"):
        rope["partial_rotary_factor"] = read("rope.dimension_count", head_size) / head_size
    if arch == "qwen3moe":
        more |= {"num_experts": read("expert_count"), "num_experts_per_tok": read("expert_used_count"),
                 "moe_intermediate_size": read("expert_feed_forward_length"), "norm_topk_prob": True}  # fmt: skip
    bias = "blk.0.attn_q.bias" in tensors
    more |= {
        "glm4": {"attention_bias": bias},
        "stablelm": {"layer_norm_eps": read("attention.layer_norm_epsilon"), "use_qkv_bias": bias,
                     "use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors,
                     "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors},
        "phi2": {"layer_norm_eps": read("attention.layer_norm_epsilon"), "hidden_act": "gelu_new"},
        "starcoder2": {"norm_epsilon": read("attention.layer_norm_epsilon"), "use_bias": True, "sliding_window": None},
    }.get(arch, {})  # fmt: skip
    kinds = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
             "qwen3moe": transformers.Qwen3MoeConfig, "phi3": transformers.Phi3Config, "granite": transformers.GraniteConfig,
             "gemma2": transformers.Gemma2Config, "gemma3": transformers.Gemma3TextConfig,
             "olmo2": transformers.Olmo2Config, "smollm3": transformers.SmolLM3Config, "glm4": transformers.Glm4Config,
             "stablelm": transformers.StableLmConfig, "phi2": transformers.PhiConfig,
             "starcoder2": transformers.Starcoder2Config}  # fmt: skip
    if arch == "qwen2":
        more = {}
    if epsilon := read("attention.layer_norm_rms_epsilon"):
        more["rms_norm_eps"] = epsilon
    return kinds[arch](
        vocab_size=vocabulary, hidden_size=width, intermediate_size=read("feed_forward_length"),
        num_hidden_layers=read("block_count"), num_attention_heads=heads,
        num_key_value_heads=read("attention.head_count_kv", heads), max_position_embeddings=read("context_length"),
        tie_word_embeddings="output.weight" not in tensors,
        bos_token_id=None, eos_token_id=None, pad_token_id=None, rope_parameters=rope, **more,
    )  # fmt: skip


def load(path, dtype=torch.float32):
    """The model of a GGUF file, with the very numbers that its weights decode to."""
    reader = gguf.GGUFReader(path)
    tensors = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    config = _config_of_file(reader, tensors)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    with torch.no_grad():
        for full_name, weight in model.named_parameters():
            if ".experts." in full_name:
                weight.copy_(torch.tensor(_joined_experts(full_name, tensors)))
                continue
            name = _gguf_name(full_name, arch_of(config))
            value = tensors.pop(name)
            if arch_of(config) in ADDED_ONE and "norm" in name:
                value = value - np.float32(1)
            if heads := _paired_heads(name, config):
                value = value[np.argsort(_pairs(heads, value.shape[0] // heads))]
            weight.copy_(torch.tensor(value.T if _transposed(name, value, config.model_type) else value))
    if tensors:
        raise ValueError(f"{path}: no place in transformers for {', '.join(tensors)}")
    return model.to(dtype)


def _llama3_factors(config, head_size):
    """What Llama 3.1's scaling divides each frequency by."""
    rope = config.rope_parameters
    context = rope["original_max_position_embeddings"]
    for pair in range(head_size // 2):
        turns = context * rope["rope_theta"] ** (-2 * pair / head_size) / (2 * math.pi)  # over the original context
        low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
        own_share = min(1.0, max(0.0, (turns - low) / (high - low)))
        yield 1 / ((1 - own_share) / factor + own_share)


def _export_latent(writer, config, rope, whole_kv_b):
    """DeepSeek's metadata; files with the weight of keys and values in two count the short row as one head."""
    rotated, size = config.qk_rope_head_dim, config.qk_nope_head_dim + config.qk_rope_head_dim
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_head_count_kv(config.num_attention_heads if whole_kv_b else 1)
    writer.add_key_length(size if whole_kv_b else config.kv_lora_rank + rotated)
    writer.add_value_length(config.v_head_dim if whole_kv_b else config.kv_lora_rank)
    if not whole_kv_b:
        writer.add_key_length_mla(size)
        writer.add_value_length_mla(config.v_head_dim)
    writer.add_rope_dimension_count(rotated)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    if config.model_type == "deepseek_v3":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if "mscale_all_dim" in rope:
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def export(model, path, whole_kv_b=False):
    config = model.config
    arch = arch_of(config)
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
        if arch == "gemma3":
            writer.add_float32("gemma3.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
            rope = rope["full_attention"]
        writer.add_feed_forward_length(config.intermediate_size)
        if arch in ("stablelm", "phi2", "starcoder2"):
            writer.add_layer_norm_eps(config.norm_epsilon if arch == "starcoder2" else config.layer_norm_eps)
        else:
            writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        if experts := getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None):
            writer.add_expert_count(experts)
            writer.add_expert_used_count(config.num_experts_per_tok)
        if arch in ("qwen2moe", "qwen3moe"):
            writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        if arch == "qwen2moe":
            writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
        if arch == "gpt-oss":
            writer.add_expert_feed_forward_length(config.intermediate_size)
        if arch == "deepseek2":
            _export_latent(writer, config, rope, whole_kv_b)
        else:
            writer.add_head_count_kv(config.num_key_value_heads)
            writer.add_key_length(head_size)
            writer.add_value_length(head_size)
            writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1.0)))
        writer.add_rope_freq_base(rope["rope_theta"])
        if arch in ("gemma2", "gemma3", "gpt-oss"):
            writer.add_sliding_window(config.sliding_window)
        if arch == "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        if arch in ("gemma2", "gemma3") and config.final_logit_softcapping:
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
        if arch == "stablelm":
            writer.add_parallel_residual(config.use_parallel_residual)
        if rope["rope_type"] == "llama3":
            factors = np.array(list(_llama3_factors(config, head_size)), np.float32)
            writer.add_tensor("rope_freqs.weight", factors)
        elif rope["rope_type"] in ("linear", "yarn"):
            writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
            writer.add_rope_scaling_factor(rope["factor"])
            if rope["rope_type"] == "yarn":
                writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
                writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast", 32.0))
                writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow", 1.0))
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
        if arch in ("granite", "granitemoe"):
            writer.add_embedding_scale(config.embedding_multiplier)
            writer.add_residual_scale(config.residual_multiplier)
            writer.add_attention_scale(config.attention_multiplier)
            writer.add_logit_scale(config.logits_scaling)
    for name, value in _tensors(model, whole_kv_b):
        single = np.ascontiguousarray(value, np.float32)
        if not np.array_equal(single.astype(np.float64), value):
            raise ValueError(f"{name} is not in single precision")
        writer.add_tensor(name, single)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
