"""What engines hand over, as arrays of a trace: tensors of torch and others, with a batch or heads as dimensions."""

from __future__ import annotations

import sys
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np
import numpy.typing as npt

from . import _checkpoints, _limits
from ._dtypes import manifest_dtype

Array = npt.NDArray[Any]
LOGITS = "logits"
_WHOLE = ("int64", "int32", "int16", "uint8")  # numbers of experts, as torch.topk and others have them


def is_tensor(value: Any) -> bool:
    """Whether the value is a tensor of torch, without importing torch."""
    return str(getattr(value, "dtype", "")).startswith("torch.") and hasattr(value, "detach")


def tensor_to_numpy(tensor: Any, name: str = "value") -> Array:
    """A copy of a tensor's numbers with all their bits: bfloat16 as its bits, 8-bit floats as the same numbers in float16."""
    kind = str(tensor.dtype)[len("torch.") :]
    device = str(getattr(tensor, "device", "cpu"))
    if device.startswith("meta"):
        raise TypeError(f"{name}: the tensor is on the device 'meta', where there are no numbers")
    if getattr(tensor, "is_nested", False):
        raise TypeError(f"{name}: a nested tensor cannot be recorded; expected one with a row for each token")
    whole = _checkpoints.is_choice(name) and kind in _WHOLE
    if not whole and kind not in ("float64", "float32", "float16", "bfloat16") and not kind.startswith("float8"):
        raise _wrong_type(name, f"torch.{kind}")
    torch = sys.modules["torch"]
    if whole:
        tensor = tensor.to(torch.float32)
    tensor = tensor.detach().cpu()
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        tensor = tensor.to_dense()
    tensor = tensor.contiguous()
    if kind == "bfloat16":
        return np.array(tensor.view(torch.int16).numpy().view(np.uint16))
    if kind.startswith("float8"):
        # Every 8-bit float is a float16; powers of two alone (e8m0) reach further.
        tensor = tensor.to(torch.float32 if "e8m0" in kind else torch.float16)
    return np.array(tensor.numpy())


def _wrong_type(name: str, kind: str) -> TypeError:
    return TypeError(
        f"{name}: values of type {kind} cannot be recorded; expected floating-point numbers: float64, float32, float16, "
        "bfloat16 (of torch, of ml_dtypes, or its bits as uint16), or 8-bit floats"
    )


def to_array(name: str, value: Any) -> Array:
    """The numbers, perhaps still in the engine's memory; TypeError where they cannot be recorded."""
    if is_tensor(value):
        return tensor_to_numpy(value, name)
    try:
        array = np.asarray(value)
    except Exception as problem:
        raise TypeError(f"{name}: {type(value).__name__} is no array: {problem}") from problem
    if _checkpoints.is_choice(name) and array.dtype.name in _WHOLE:
        array = array.astype(np.float32)
    if array.dtype.name.startswith("float8"):  # of ml_dtypes
        array = array.astype(np.float32 if "e8m0" in array.dtype.name else np.float16)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    try:
        manifest_dtype(array.dtype)
    except TypeError:
        raise _wrong_type(name, str(array.dtype)) from None
    return array


def wrong_shape(name: str, shape: Tuple[int, ...], tokens: Optional[int], why: str = "") -> ValueError:
    """The message of a shape that does not fit, with the shape that does."""
    expected = _checkpoints.shape_of(name) or "[tokens, width]"
    if tokens is not None:
        expected += f" with {tokens} tokens"
    also = "a batch of one before that"
    if _checkpoints.has_heads(name):
        also = "[tokens, heads, size], and a batch of one before either"
    return ValueError(f"{name}: shape {list(shape)}, expected {expected} (or {also}){why and '; ' + why}")


def infer_tokens(shapes: Mapping[str, Tuple[int, ...]], has_batch: bool) -> Optional[int]:
    """Tokens of a step by the values that can be read in one way only; None where there are none."""
    sure: Dict[int, str] = {}
    for name, shape in shapes.items():
        rank = len(shape)
        if name == LOGITS or rank == 0 or 0 in shape:
            continue
        if _checkpoints.is_scores(name):
            count = shape[-2] if rank >= 3 else None
        elif not _checkpoints.is_checkpoint(name):
            count = shape[0] if rank == 2 else None
        elif rank <= 2:
            count = shape[0] if rank == 2 else 1
        elif _checkpoints.has_heads(name):
            count = shape[1] if has_batch and rank == 3 else None
        else:
            count = shape[1] if rank == 3 else None
        if count is not None:
            sure.setdefault(count, name)
    if len(sure) > 1:
        (first, one), (second, other) = list(sure.items())[:2]
        raise wrong_shape(other, shapes[other], None,
                          f"{other} has {second} rows, while {one} has {first} rows in the same step")  # fmt: skip
    return next(iter(sure), None)


def shaped(name: str, array: Array, tokens: Optional[int], batch: Optional[int]) -> Array:
    """As a trace has it: `[tokens, width]`, of scores `[heads, tokens, positions]`.

    `tokens`: how many the step has; None: not known. `batch`: which sequence of a batch; None: a batch has one sequence.
    """
    shape = array.shape
    if array.ndim == 0 or 0 in shape:
        raise wrong_shape(name, shape, tokens)
    if _checkpoints.is_scores(name):
        array = _scores(name, array, tokens, batch)
    elif array.ndim <= 2:
        array = array.reshape(-1, shape[-1])
    else:
        array = _rows(name, array, tokens, batch)
    if array.ndim == 2:
        if tokens is not None and array.shape[0] != tokens and not (name == LOGITS and array.shape[0] < tokens):
            raise wrong_shape(name, shape, tokens, f"{array.shape[0]} rows in a step of {tokens} tokens")
        width = array.shape[1]
    else:
        width = array.shape[0]
    if width > _limits.MOST_WIDTH:
        raise ValueError(f"{name}: width {width}, expected at most {_limits.MOST_WIDTH}")
    return np.array(array, order="C")  # a copy: the engine may reuse its memory


def _without_batch(name: str, array: Array, tokens: Optional[int], batch: Optional[int]) -> Array:
    count = array.shape[0]
    if batch is None and count > 1:
        raise wrong_shape(name, array.shape, tokens, f"of a batch of {count} sequences say which one: batch=0")
    if not 0 <= (batch or 0) < count:
        raise ValueError(f"{name}: batch={batch}, expected less than {count}: shape {list(array.shape)}")
    found: Array = array[batch or 0]
    return found


def _scores(name: str, array: Array, tokens: Optional[int], batch: Optional[int]) -> Array:
    shape = array.shape
    if array.ndim == 4:
        array = _without_batch(name, array, tokens, batch)
    elif array.ndim == 2 and tokens == 1:  # [heads, positions] of one token
        array = array[:, np.newaxis]
    if array.ndim != 3 or (tokens is not None and array.shape[1] != tokens):
        raise wrong_shape(name, shape, tokens)
    return array


def _rows(name: str, array: Array, tokens: Optional[int], batch: Optional[int]) -> Array:
    """Of three dimensions or more: a batch, heads, or both."""
    shape = array.shape
    heads = _checkpoints.has_heads(name)
    own = not _checkpoints.is_checkpoint(name)
    if array.ndim > 4 or (array.ndim == 4 and not heads and not own):
        raise wrong_shape(name, shape, tokens)
    if array.ndim == 4:
        array = _without_batch(name, array, tokens, batch)
    elif batch is not None or not (heads or own):
        return _without_batch(name, array, tokens, batch)
    elif shape[0] == 1 and (shape[1] == tokens or (tokens is None and own)):
        found: Array = array[0]
        return found
    # [tokens, heads, size], or the heads first
    first, second = array.shape[0], array.shape[1]
    if own and tokens is None or (own and second == tokens and array.ndim == 3 and len(shape) == 3):
        return array  # an engine's own scores: [heads, tokens, positions]
    if tokens is None:
        raise wrong_shape(name, shape, tokens, "the number of tokens is not known: give tokens=")
    if first == tokens and second == tokens and first > 1 and len(shape) == 4:
        raise wrong_shape(name, shape, tokens, "heads and tokens are equally many, and either may come first")
    if first == tokens:
        return array.reshape(tokens, -1)
    if second == tokens and len(shape) == 4:
        return array.swapaxes(0, 1).reshape(tokens, -1)
    if second == tokens:
        raise wrong_shape(name, shape, tokens,
                          f"{first} may be sequences of a batch (say which one: batch=0) or heads")  # fmt: skip
    raise wrong_shape(name, shape, tokens)
