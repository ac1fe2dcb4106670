"""Number types of a trace, and bfloat16, which numpy does not have."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import numpy.typing as npt

try:
    import ml_dtypes

    _BFLOAT16: Optional[np.dtype[Any]] = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    _BFLOAT16 = None

# Name in the manifest: name in safetensors, bytes.
STORED = {"f64": ("F64", 8), "f32": ("F32", 4), "f16": ("F16", 2), "bf16": ("BF16", 2)}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """What numpy reads a manifest's type as: bf16 as ml_dtypes.bfloat16, or its bits as uint16."""
    if name == "bf16":
        return _BFLOAT16 if _BFLOAT16 is not None else np.dtype("<u2")
    return np.dtype({"f64": "<f8", "f32": "<f4", "f16": "<f2"}[name])


def manifest_dtype(dtype: np.dtype[Any]) -> str:
    """The manifest's name of a numpy type. 16-bit unsigned integers are taken as bits of bf16."""
    if dtype == np.float64:
        return "f64"
    if dtype == np.float32:
        return "f32"
    if dtype == np.float16:
        return "f16"
    if dtype == np.uint16 or (_BFLOAT16 is not None and dtype == _BFLOAT16):
        return "bf16"
    raise TypeError(
        f"values of type {dtype} cannot be recorded; expected float64, float32, float16, "
        "ml_dtypes.bfloat16, or bfloat16 bits as uint16"
    )


def bfloat16_to_float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """float32 from bfloat16, given as such or as bits in uint16. Exact."""
    bits = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def float32_to_bfloat16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even, as uint16. NaN stays NaN."""
    numbers = np.ascontiguousarray(values, dtype=np.float32)
    bits = numbers.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(numbers), nan, rounded).astype(np.uint16)
