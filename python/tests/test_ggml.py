"""Reading tensors of ggml, from a library that stands in for it."""

import ctypes
import os
import unittest

import numpy as np

import lockstep
from lockstep.capture._ggml import Ggml, Tensor

TYPES = {0: "f32", 1: "f16", 8: "q8_0", 26: "i32", 28: "f64", 30: "bf16"}


class StandIn:
    """The functions of ggml that reading needs. Functions take the attributes that ctypes' have."""

    def __init__(self):
        def ggml_op_name(op):
            return b"MUL_MAT" if op == 1 else b"NONE"

        def ggml_type_name(kind):
            return TYPES[kind].encode()

        def ggml_nbytes(address):
            tensor = Tensor.from_address(address)
            item = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}.get(TYPES[tensor.type], 4)
            return item + sum((count - 1) * stride for count, stride in zip(tensor.ne, tensor.nb))

        def ggml_get_name(address):
            return address + Tensor.name_bytes.offset + self.moved

        def ggml_get_data(address):
            return Tensor.from_address(address).data

        def ggml_backend_tensor_get(address, target, offset, size):
            ctypes.memmove(target, Tensor.from_address(address).data + offset, size)

        self.moved = 0
        for function in list(locals().values()):
            if callable(function):
                setattr(self, function.__name__, function)


class GgmlTest(unittest.TestCase):
    def setUp(self):
        self.seed = int.from_bytes(os.urandom(4), "little")
        self.random = np.random.default_rng(self.seed)
        self.library = StandIn()
        self.ggml = Ggml(self.library)

    def tensor(self, array, kind, name="x", op=1):
        """`array` [ne3, ne2, ne1, ne0], strides as it has them."""
        tensor = Tensor(type=kind, op=op, data=array.ctypes.data, name_bytes=name.encode())
        tensor.ne[:], tensor.nb[:] = array.shape[::-1], array.strides[::-1]
        self.kept = (array, tensor)
        return self.ggml.at(ctypes.addressof(tensor))

    def test_every_float_type_and_any_strides(self):
        for kind, dtype in ((0, np.float32), (1, np.float16), (28, np.float64), (30, np.uint16)):
            whole = self.random.standard_normal((2, 5, 7, 12))
            whole = lockstep.float32_to_bfloat16(whole) if kind == 30 else whole.astype(dtype)
            for name, array in (
                ("contiguous", whole), ("part", whole[:, :, :, 3:8]), ("permuted", whole.transpose(0, 2, 1, 3)),
                ("transposed", whole.transpose(0, 1, 3, 2)), ("steps", whole[:, ::2, 1::3]),
                ("one", whole[:1, :1, :1, :1]),
            ):  # fmt: skip
                with self.subTest(kind=TYPES[kind], name=name, seed=self.seed):
                    found = self.tensor(array, kind).array()
                    wanted = lockstep.bfloat16_to_float32(array.copy()) if kind == 30 else array.astype(np.float32)
                    self.assertEqual(found.dtype, np.float32)
                    np.testing.assert_array_equal(found, wanted)

    def test_a_copy(self):
        array = np.ones((1, 1, 2, 3), np.float32)
        found = self.tensor(array, 0).array()
        array[:] = 2
        np.testing.assert_array_equal(found, 1)

    def test_no_floats_no_array(self):
        self.assertIsNone(self.tensor(np.ones((1, 1, 2, 3), np.float32), 8).array())

    def test_whole_numbers_are_those_of_experts(self):
        numbers = np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4)
        np.testing.assert_array_equal(self.tensor(numbers[..., :2], 26).array(), numbers[..., :2])

    def test_what_a_node_says(self):
        source = Tensor(type=0, name_bytes=b"blk.0.attn_q.weight")
        node = self.tensor(np.ones((1, 1, 1, 1), np.float32), 0, "Qcur-0")
        node.tensor.src[1] = ctypes.addressof(source)
        node.tensor.op_params[1] = int(np.float32(0.125).view(np.int32))
        self.assertEqual((node.name, node.op, node.type), ("Qcur-0", "MUL_MAT", "f32"))
        self.assertEqual([s.name for s in node.sources()], ["blk.0.attn_q.weight"])
        self.assertEqual(node.float_param(1), 0.125)

    def test_another_layout_is_noticed(self):
        node = self.tensor(np.ones((1, 1, 1, 1), np.float32), 0)
        self.assertIsNone(self.ggml.layout_problem(node.address))
        self.library.moved = 8
        self.assertIn("another way", self.ggml.layout_problem(node.address))


if __name__ == "__main__":
    unittest.main()
