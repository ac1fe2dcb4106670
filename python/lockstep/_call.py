"""What the arguments of a module's call say of its tokens: which they are, and at which positions."""

from __future__ import annotations

import inspect
from typing import Any, Dict, Mapping, Optional, Tuple

from ._watch import first_tensor

_IDS = ("input_ids", "tokens", "token_ids", "ids", "idx")
PLACES = ("position_ids", "positions", "input_pos", "cache_position", "attention_mask", "mask")
# Numbers for each token that are neither its id nor its row.
_NO_IDS = (*PLACES, "labels", "targets", "token_type_ids", "segment_ids")
_DECODER = "decoder_"  # what a model of an encoder and a decoder is given for the latter


def arguments(module: Any, args: Any, kwargs: Any) -> Dict[str, Any]:
    """By name."""
    inner = getattr(module, "_orig_mod", module)
    try:
        bound = inspect.signature(inner.forward).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{f"argument {i}": value for i, value in enumerate(args)}, **kwargs}
    named: Dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name} {i}": item for i, item in enumerate(value)})
        elif bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    for value in [value for value in named.values() if isinstance(value, Mapping)]:  # a batch as one argument
        named = {**{name: item for name, item in value.items() if isinstance(name, str)}, **named}
    if isinstance(named.get("attention_mask"), Mapping):  # one for each kind of layer
        named["attention_mask"] = named.get("full_attention")
    return named


def of_decoder(tensors: Mapping[str, Any]) -> Dict[str, Any]:
    """What the decoder is given, by the names that a model without an encoder has for it."""
    return {name[len(_DECODER) :]: value for name, value in tensors.items() if name.startswith(_DECODER)}


def ids_and_shape(tensors: Mapping[str, Any]) -> Tuple[Any, Tuple[int, ...]]:
    """The token ids, where there are any, and [batch, tokens] or [tokens]; () where nothing tells."""
    import torch

    others = {name: value for name, value in tensors.items() if name not in _NO_IDS}
    whole = {name: value for name, value in others.items()
             if not value.is_floating_point() and value.dtype != torch.bool and value.dim() in (1, 2)}  # fmt: skip
    if whole:
        ids = whole[next((name for name in _IDS if name in whole), next(iter(whole)))]
        return ids, tuple(ids.shape)
    rows = next((value for value in others.values() if value.is_floating_point() and value.dim() in (2, 3)), None)
    return None, () if rows is None else tuple(rows.shape[:-1])


def past(named: Mapping[str, Any]) -> Optional[int]:
    """How many positions a cache holds; None where there is no cache to ask."""
    cache = named.get("past_key_values", named.get("past_key_value"))
    if cache is None:
        return None
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length())
    if isinstance(cache, (tuple, list)):  # of each layer, keys and values
        keys = first_tensor(cache)
        return 0 if keys is None else int(keys.shape[-2])
    return None


def seen_last(mask: Any, length: int) -> Any:
    """[batch, positions] of a mask for each pair of positions: what the last token sees, which padding is not."""
    import torch

    row = mask[:, 0, -1, :length]
    return (row if row.dtype == torch.bool else row == 0).to(torch.int8)
