"""The names that a trace's precision may have: the table of include/lockstep/detail/precision.h."""

from __future__ import annotations

import re
from typing import Mapping, Tuple

MOST_IN_BLOCK = 65536

# name: (fields that it may stand in, whether it has a scale: "never", "maybe", "always")
TYPES: Mapping[str, Tuple[str, str]] = {
    "f64": ("compute activations kv weights", "never"),
    "f32": ("compute activations kv weights sums", "never"),
    "tf32": ("compute activations weights", "never"),
    "f16": ("compute activations kv weights sums", "never"),
    "bf16": ("compute activations kv weights", "never"),
    "e4m3": ("activations kv weights", "maybe"),
    "e5m2": ("activations kv weights", "maybe"),
    "int8": ("activations kv weights", "always"),
    "q8_0": ("activations", "never"),
    "q8_1": ("activations", "never"),
    "q8_k": ("activations", "never"),
    "i16": ("activations", "never"),
    "by_weight": ("activations", "never"),
}
FIELDS = ("compute", "activations", "kv", "weights", "sums")


def is_known(field: str, name: str) -> bool:
    """Whether `name` may stand in `field`."""
    kind, colon, scale = name.partition(":")
    if kind not in TYPES or field not in TYPES[kind][0].split():
        return False
    if not colon:
        return TYPES[kind][1] != "always"
    if TYPES[kind][1] == "never":
        return False
    block = re.fullmatch(r"block([1-9][0-9]{0,4})", scale, re.ASCII)
    return scale in ("tensor", "row") or (block is not None and int(block[1]) <= MOST_IN_BLOCK)


def known_names(field: str) -> str:
    """What a message says is known."""
    of_field = [(kind, scaled) for kind, (fields, scaled) in TYPES.items() if field in fields.split()]
    plain = ", ".join(kind for kind, scaled in of_field if scaled != "always")
    scaled = ", ".join(f"{kind}:S" for kind, scaled in of_field if scaled != "never")
    if not scaled:
        return plain
    return f"{plain}, {scaled} with S tensor, row or block1 to block{MOST_IN_BLOCK}"


def check(precision: Mapping[str, str]) -> None:
    """Raises ValueError where a field or a name is unknown."""
    for field, name in precision.items():
        if field not in FIELDS:
            raise ValueError(f"precision: found the field {field!r}, expected one of {', '.join(FIELDS)}")
        if not isinstance(name, str) or not is_known(field, name):
            raise ValueError(f"precision: {field}: found {name!r}, expected one of {known_names(field)}")
