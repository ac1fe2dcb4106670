"""What the arguments of a module's call say of its tokens: which they are, and at which positions."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Dict, Mapping, Optional, Tuple

from ._watch import first_tensor

_IDS = ("input_ids", "tokens", "token_ids", "ids", "idx")
PLACES = ("position_ids", "positions", "input_pos", "cache_position", "attention_mask", "mask")
# Where the position of the first token is one number, as in the models of Llama's authors.
_STARTS = ("start_pos", "input_pos", "cache_position", "position", "pos", "offset", "past_length")
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
    rows = next((value for value in others.values() if value.is_floating_point() and value.dim() in (2, 3)), None)
    named = next((whole[name] for name in _IDS if name in whole), None)
    if named is None:  # beside rows of numbers a number for each sequence may be its length
        named = next((ids for ids in whole.values() if rows is None or ids.dim() == 2 or ids.shape == rows.shape[:-1]), None)
    if named is not None:
        return named, tuple(named.shape)
    return None, () if rows is None else tuple(rows.shape[:-1])


def cache_of(named: Mapping[str, Any]) -> Any:
    found = (named.get(name) for name in ("past_key_values", "past_key_value", "cache_params"))
    return next((cache for cache in found if cache is not None), None)


def past(named: Mapping[str, Any]) -> Optional[int]:
    """How many positions a cache holds; None where nothing tells."""
    cache = cache_of(named)
    if cache is None:
        numbers = (named[name] for name in _STARTS if name in named)
        return next((number for number in numbers if isinstance(number, int) and not isinstance(number, bool)), None)
    if hasattr(cache, "get_seq_length"):
        with contextlib.suppress(ValueError):  # states alone, which do not count
            return int(cache.get_seq_length())
        return None
    if isinstance(cache, (tuple, list)):  # of each layer, keys and values
        keys = first_tensor(cache)
        return 0 if keys is None else int(keys.shape[-2])
    return None


def seen_last(mask: Any, length: int) -> Any:
    """[batch, positions] of a mask for each pair of positions: what the last token sees, which padding is not."""
    import torch

    row = mask[:, 0, -1, :length]
    return (row if row.dtype == torch.bool else row == 0).to(torch.int8)
