"""The six shipped models: their shapes, and how each is built with transformers.

Every one keeps the structure that sets its architecture apart (see README.md), at a size that trains in minutes. Row lengths
that Q4_K needs are multiples of 256; haiku-qwen2 is 192 wide on purpose, so that Q4_K_M falls back to Q5_0 and Q8_0 for most of
its weights, as it does for Qwen2.5-0.5B.
"""

from dataclasses import dataclass, field

CONTEXT = 256
VOCAB = 640


@dataclass(frozen=True)
class Spec:
    name: str
    architecture: str  # as GGUF spells it
    precision: str  # of the weights: f16 or f32
    tokenizer: str  # the pre-tokenizer, as GGUF spells it; "spm" for SentencePiece
    specials: tuple  # special tokens; bos, eos and roles refer to them by text
    bos: str | None  # put before every text; None where the architecture's models have no such habit
    eos: str
    chat_template: str | None
    shape: dict = field(hash=False)
    learning_rate: float = 3e-3
    weight_noise: float = 0.08  # relative, in training: what makes the weights survive 4-bit quantization


HEADER_CHAT = (
    "{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
IM_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PHI_CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLE_CHAT = (
    "{% for message in messages %}<|start_of_role|>{{ message['role'] }}<|end_of_role|>"
    "{{ message['content'] }}<|end_of_text|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)

SPECS = {
    spec.name: spec
    for spec in [
        Spec(
            "haiku-llama", "llama", "f16", "llama-bpe",
            ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "<|begin_of_text|>", "<|eot_id|>", HEADER_CHAT,
            dict(hidden=256, layers=4, heads=4, kv_heads=2, inner=512, rope_theta=500000.0, eps=1e-5),
        ),
        Spec(
            "haiku-qwen2", "qwen2", "f16", "qwen2",
            ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), None, "<|im_end|>", IM_CHAT,
            dict(hidden=192, layers=3, heads=3, kv_heads=1, inner=512, rope_theta=1000000.0, eps=1e-6),
            weight_noise=0.05,
        ),
        Spec(
            "haiku-phi3", "phi3", "f16", "spm",
            ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), "<s>", "<|end|>", PHI_CHAT,
            dict(hidden=256, layers=3, heads=4, kv_heads=4, inner=256, rope_theta=10000.0, eps=1e-5, window=64),
        ),
        Spec(
            "haiku-gpt2", "gpt2", "f32", "gpt-2", ("<|endoftext|>",), None, "<|endoftext|>", None,
            dict(hidden=128, layers=5, heads=2, kv_heads=2, inner=512, eps=1e-5),
            learning_rate=2e-3, weight_noise=0.0,
        ),
        Spec(
            "haiku-granite", "granite", "f16", "refact",
            ("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"), None, "<|end_of_text|>", ROLE_CHAT,
            dict(hidden=256, layers=3, heads=4, kv_heads=2, inner=256, rope_theta=10000.0, eps=1e-5,
                 embedding_scale=12.0, residual_scale=0.5, attention_scale=0.0625, logits_scale=4.0),
        ),
        Spec(
            "haiku-moe", "qwen3moe", "f16", "qwen2",
            ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), None, "<|im_end|>", IM_CHAT,
            dict(hidden=256, layers=3, heads=4, kv_heads=1, head_size=32, inner=128, rope_theta=1000000.0, eps=1e-6,
                 experts=8, experts_used=2, expert_inner=64),
        ),
    ]
}


def build(spec, token_ids):
    """The transformers model with fresh weights. `token_ids` maps the special tokens to their ids."""
    import transformers as tf

    s = spec.shape
    # No padding token: transformers would keep its embedding at zero.
    ends = dict(bos_token_id=token_ids[spec.bos or spec.eos], eos_token_id=token_ids[spec.eos], pad_token_id=None)
    if spec.architecture == "gpt2":
        config = tf.GPT2Config(
            vocab_size=VOCAB, n_positions=CONTEXT, n_embd=s["hidden"], n_layer=s["layers"], n_head=s["heads"],
            n_inner=s["inner"], layer_norm_epsilon=s["eps"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **ends,
        )
        return tf.GPT2LMHeadModel(config)
    common = dict(
        vocab_size=VOCAB, hidden_size=s["hidden"], intermediate_size=s["inner"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], num_key_value_heads=s["kv_heads"], max_position_embeddings=CONTEXT,
        rms_norm_eps=s["eps"], rope_parameters={"rope_type": "default", "rope_theta": s["rope_theta"]}, **ends,
    )
    if spec.architecture == "llama":
        return tf.LlamaForCausalLM(tf.LlamaConfig(tie_word_embeddings=False, **common))
    if spec.architecture == "qwen2":
        return tf.Qwen2ForCausalLM(tf.Qwen2Config(tie_word_embeddings=True, use_sliding_window=False, **common))
    if spec.architecture == "phi3":
        config = tf.Phi3Config(
            tie_word_embeddings=False, sliding_window=s["window"], original_max_position_embeddings=CONTEXT,
            resid_pdrop=0.0, embd_pdrop=0.0, **common,
        )
        return tf.Phi3ForCausalLM(config)
    if spec.architecture == "granite":
        config = tf.GraniteConfig(
            tie_word_embeddings=True, embedding_multiplier=s["embedding_scale"], residual_multiplier=s["residual_scale"],
            attention_multiplier=s["attention_scale"], logits_scaling=s["logits_scale"], **common,
        )
        return tf.GraniteForCausalLM(config)
    if spec.architecture == "qwen3moe":
        config = tf.Qwen3MoeConfig(
            tie_word_embeddings=True, head_dim=s["head_size"], num_experts=s["experts"], norm_topk_prob=True,
            num_experts_per_tok=s["experts_used"], moe_intermediate_size=s["expert_inner"], mlp_only_layers=[],
            decoder_sparse_step=1, router_aux_loss_coef=0.01, **common,
        )
        return tf.Qwen3MoeForCausalLM(config)
    raise ValueError(f"{spec.name}: no transformers class for the architecture {spec.architecture!r}")
