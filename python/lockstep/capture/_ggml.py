"""Tensors of ggml, read through the library that llama-cpp-python installs."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional

import numpy as np
import numpy.typing as npt

from .._dtypes import bfloat16_to_float32

SOFT_MAX = "SOFT_MAX"
_NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "f64": np.float64,
          "i32": np.int32}  # fmt: skip


class Tensor(ctypes.Structure):
    """struct ggml_tensor, up to its name."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name_bytes", ctypes.c_char * 64),
    ]


class Ggml:
    """The functions that reading needs. `layout_problem` says what is wrong where a tensor does not lie as above."""

    def __init__(self, library: ctypes.CDLL) -> None:
        def declare(name: str, result: Any, *arguments: Any) -> Any:
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments)
            return function

        self._op_name = declare("ggml_op_name", ctypes.c_char_p, ctypes.c_int)
        self._type_name = declare("ggml_type_name", ctypes.c_char_p, ctypes.c_int)
        self._nbytes = declare("ggml_nbytes", ctypes.c_size_t, ctypes.c_void_p)
        self._get_name = declare("ggml_get_name", ctypes.c_void_p, ctypes.c_void_p)
        self._get_data = declare("ggml_get_data", ctypes.c_void_p, ctypes.c_void_p)
        self._tensor_get = declare("ggml_backend_tensor_get", None, ctypes.c_void_p, ctypes.c_void_p,
                                   ctypes.c_size_t, ctypes.c_size_t)  # fmt: skip
        self._ops: Dict[int, str] = {}
        self._types: Dict[int, str] = {}

    def at(self, address: int) -> "Node":
        return Node(self, address)

    def op_name(self, op: int) -> str:
        if op not in self._ops:
            self._ops[op] = self._op_name(op).decode()
        return self._ops[op]

    def type_name(self, kind: int) -> str:
        if kind not in self._types:
            self._types[kind] = self._type_name(kind).decode()
        return self._types[kind]

    def layout_problem(self, address: int) -> Optional[str]:
        """The library tells where name and data of a tensor lie; another version of it may have moved them."""
        tensor = Tensor.from_address(address)
        if self._get_name(address) != address + Tensor.name_bytes.offset or self._get_data(address) != tensor.data:
            return "this version of llama.cpp lays tensors out in another way than this capture knows"
        return None


class Node:
    """One tensor of a graph."""

    def __init__(self, ggml: Ggml, address: int) -> None:
        self.address = address
        self.tensor = Tensor.from_address(address)
        self._ggml = ggml

    @property
    def name(self) -> str:
        return str(self.tensor.name_bytes.decode(errors="replace"))

    @property
    def op(self) -> str:
        return self._ggml.op_name(self.tensor.op)

    @property
    def type(self) -> str:
        return self._ggml.type_name(self.tensor.type)

    @property
    def nbytes(self) -> int:
        return int(self._ggml._nbytes(self.address))

    def sources(self) -> List["Node"]:
        return [Node(self._ggml, address) for address in self.tensor.src if address]

    def float_param(self, index: int) -> float:
        return float(np.int32(self.tensor.op_params[index]).view(np.float32))

    def array(self) -> Optional[npt.NDArray[np.float32]]:
        """A copy in float32 as numpy counts dimensions, [ne3, ne2, ne1, ne0]; None where it holds no plain numbers.

        Read through the backend, so that it may lie on a GPU; strides as they are.
        """
        stored = _NUMPY.get(self.type)
        if stored is None:
            return None
        size = self.nbytes
        raw = np.empty(size, np.uint8)
        self._ggml._tensor_get(self.address, raw.ctypes.data, 0, size)
        shape, strides = list(self.tensor.ne)[::-1], list(self.tensor.nb)[::-1]
        values = np.lib.stride_tricks.as_strided(raw.view(stored), shape, strides)
        if self.type == "bf16":
            return bfloat16_to_float32(np.ascontiguousarray(values))
        return np.array(values, np.float32, order="C")
