"""Arguments that callers give, checked: the message says which one, what was found, and what was expected."""

from __future__ import annotations

import json
import operator
import os
from typing import Any, Dict, Iterable, List, Mapping

MOST_TOKEN = (1 << 31) - 1


def whole(name: str, value: Any, least: int = 0) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}; expected a whole number") from None
    if number < least:
        raise ValueError(f"{name}={value!r}; expected a whole number from {least} on")
    return number


def is_token(token: int) -> bool:
    return 0 <= token <= MOST_TOKEN


def token_ids(name: str, tokens: Iterable[Any]) -> List[int]:
    try:
        ids = [operator.index(token) for token in tokens]
    except TypeError:
        raise TypeError(f"{name}: expected whole numbers in a row, such as [1, 2, 3]") from None
    wrong = next((token for token in ids if not is_token(token)), None)
    if wrong is not None:
        raise ValueError(f"{name}: {wrong} is no token id; expected 0 to {MOST_TOKEN}")
    return ids


def text(name: str, value: Any) -> str:
    """As UTF-8: text from outside may hold halves of surrogate pairs."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}; expected a text")
    return value.encode("utf-8", "replace").decode("utf-8")


def texts(name: str, values: Iterable[Any]) -> List[str]:
    if isinstance(values, str):
        raise TypeError(f"{name}={values!r}; expected a list of texts")
    return [text(name, value) for value in values]


def plain_fields(name: str, values: Mapping[str, Any]) -> Dict[str, Any]:
    """What JSON can hold; numbers of numpy and torch as plain ones."""
    plain = {field: value.tolist() if hasattr(value, "tolist") else value for field, value in values.items()}
    for field, value in plain.items():
        try:
            json.dumps({field: value}, allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise type(problem)(f"{name}: {field}={value!r}; expected a finite number, a text, or a list of these") from None
    return plain


def model_file(name: str, model: Any) -> Any:
    """A file, or what a manifest says of one."""
    if model is not None and not isinstance(model, (str, os.PathLike, Mapping)):
        raise TypeError(f"{name}={model!r}; expected the GGUF file, or a mapping with its path and fingerprint")
    return model
