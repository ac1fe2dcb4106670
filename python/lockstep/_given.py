"""Arguments that callers give, checked: the message says which one, what was found, and what was expected."""

from __future__ import annotations

import operator
import os
from typing import Any, Iterable, List, Mapping


def whole(name: str, value: Any, least: int = 0) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}; expected a whole number") from None
    if number < least:
        raise ValueError(f"{name}={value!r}; expected a whole number from {least} on")
    return number


def token_ids(name: str, tokens: Iterable[Any]) -> List[int]:
    try:
        return [operator.index(token) for token in tokens]
    except TypeError:
        raise TypeError(f"{name}: expected whole numbers in a row, such as [1, 2, 3]") from None


def model_file(name: str, model: Any) -> Any:
    """A file, or what a manifest says of one."""
    if model is not None and not isinstance(model, (str, os.PathLike, Mapping)):
        raise TypeError(f"{name}={model!r}; expected the GGUF file, or a mapping with its path and fingerprint")
    return model
