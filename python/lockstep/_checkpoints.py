"""The checkpoints, values that all engines call the same: a copy of include/lockstep/detail/checkpoints.h.

docs/checkpoints.md says what each of them is.
"""

from __future__ import annotations

import re
from typing import Mapping, Optional, Tuple

SETS = ("logits", "layers", "ops", "all")
SCORES_SHAPE = "[heads, tokens, positions]"

# In order of execution; N stands for the number of the layer: (shape, sets that have it).
CHECKPOINTS: Mapping[str, Tuple[str, str]] = {
    "embedding": ("[tokens, width]", "layers ops all"),
    "blk.N.attn_norm": ("[tokens, width]", "ops all"),
    "blk.N.q_a": ("[tokens, query_latent]", "ops all"),
    "blk.N.kv_a": ("[tokens, latent + rotated]", "ops all"),
    "blk.N.q_a_norm": ("[tokens, query_latent]", "ops all"),
    "blk.N.kv_a_norm": ("[tokens, latent]", "ops all"),
    "blk.N.q": ("[tokens, heads * head_size]", "ops all"),
    "blk.N.k": ("[tokens, kv_heads * head_size]", "ops all"),
    "blk.N.v": ("[tokens, kv_heads * value_size]", "ops all"),
    "blk.N.q_pe": ("[tokens, heads * rotated]", "ops all"),
    "blk.N.k_pe": ("[tokens, rotated]", "ops all"),
    "blk.N.q_rope": ("[tokens, heads * head_size]", "ops all"),
    "blk.N.k_rope": ("[tokens, kv_heads * head_size]", "ops all"),
    "blk.N.attn_scores": (SCORES_SHAPE, "all"),
    "blk.N.attn_probs": (SCORES_SHAPE, "all"),
    "blk.N.attn_mix": ("[tokens, heads * value_size]", "ops all"),
    "blk.N.attn_out": ("[tokens, width]", "ops all"),
    "blk.N.attn_post_norm": ("[tokens, width]", "ops all"),
    "blk.N.attn_residual": ("[tokens, width]", "ops all"),
    "blk.N.ffn_norm": ("[tokens, width]", "ops all"),
    "blk.N.ffn_gate": ("[tokens, feed_forward]", "ops all"),
    "blk.N.ffn_up": ("[tokens, feed_forward]", "ops all"),
    "blk.N.ffn_act": ("[tokens, feed_forward]", "ops all"),
    "blk.N.ffn_router": ("[tokens, experts]", "ops all"),
    "blk.N.ffn_choice": ("[tokens, experts_used]", "layers ops all"),
    "blk.N.ffn_weights": ("[tokens, experts_used]", "ops all"),
    "blk.N.ffn_expert_gate": ("[tokens, experts_used * expert_feed_forward]", "ops all"),
    "blk.N.ffn_expert_up": ("[tokens, experts_used * expert_feed_forward]", "ops all"),
    "blk.N.ffn_expert_act": ("[tokens, experts_used * expert_feed_forward]", "ops all"),
    "blk.N.ffn_expert_out": ("[tokens, experts_used * width]", "ops all"),
    "blk.N.ffn_experts": ("[tokens, width]", "ops all"),
    "blk.N.ffn_shared_gate": ("[tokens, shared_feed_forward]", "ops all"),
    "blk.N.ffn_shared_up": ("[tokens, shared_feed_forward]", "ops all"),
    "blk.N.ffn_shared_act": ("[tokens, shared_feed_forward]", "ops all"),
    "blk.N.ffn_shared_out": ("[tokens, width]", "ops all"),
    "blk.N.ffn_shared_router": ("[tokens, 1]", "ops all"),
    "blk.N.ffn_out": ("[tokens, width]", "ops all"),
    "blk.N.ffn_post_norm": ("[tokens, width]", "ops all"),
    "blk.N.output": ("[tokens, width]", "layers ops all"),
    "final_norm": ("[tokens, width]", "layers ops all"),
    "logits": ("[tokens, vocabulary]", "logits layers ops all"),
}

_ORDER = {name: index for index, name in enumerate(CHECKPOINTS)}
_LAYER = re.compile(r"blk\.([0-9]+)\.(\w+)\Z")
_FIRST_IN_LAYER = next(index for name, index in _ORDER.items() if _LAYER.match(name.replace("N", "0")))


def _row(name: str) -> Optional[Tuple[str, int]]:
    """A checkpoint's name with N for its layer, and the layer; None for other names."""
    match = _LAYER.match(name)
    row = f"blk.N.{match[2]}" if match else name
    if row not in CHECKPOINTS or (not match and "blk." in row):
        return None
    return row, int(match[1]) if match else -1


def is_checkpoint(name: str) -> bool:
    return _row(name) is not None


def is_scores(name: str) -> bool:
    """Whether the value is one of [heads, tokens, positions]."""
    row = _row(name)
    return row is not None and CHECKPOINTS[row[0]][0] == SCORES_SHAPE


def is_choice(name: str) -> bool:
    """Whether the value is the experts that tokens chose: whole numbers."""
    row = _row(name)
    return row is not None and row[0] == "blk.N.ffn_choice"


def shape_of(name: str) -> Optional[str]:
    """The shape in words: `[tokens, heads * head_size]`; None for other names."""
    row = _row(name)
    return None if row is None else CHECKPOINTS[row[0]][0]


def has_heads(name: str) -> bool:
    """Whether a row is one of heads: queries, keys, values and what attention makes of them."""
    return "heads *" in (shape_of(name) or "")


def in_set(name: str, wanted: str) -> bool:
    """Whether a checkpoint is in one of SETS."""
    row = _row(name)
    return row is not None and wanted in CHECKPOINTS[row[0]][1].split()


def names(layers: int) -> "list[str]":
    """All names of a model with so many layers, in order of execution."""
    found = {name.replace("blk.N.", f"blk.{layer}.") for name in CHECKPOINTS for layer in range(layers)}
    return sorted(found, key=execution_order)


def execution_order(name: str) -> Tuple[int, int, int, str]:
    """A key to sort checkpoints by; names that are not ours come last."""
    row = _row(name)
    if row is None:
        return (3, 0, 0, name)
    index = _ORDER[row[0]]
    if row[1] >= 0:
        return (1, row[1], index, "")
    return (0 if index < _FIRST_IN_LAYER else 2, 0, index, "")
