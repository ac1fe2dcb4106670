"""Copies from a GPU, on a stand-in for torch: what is done on which stream, in which order, and that nobody waits too early."""

import contextlib
import sys
import types
import unittest
import unittest.mock

import numpy as np

from lockstep._copies import Copier


class Machine:
    """A GPU that does what it was told only when somebody waits; `log` has what the host did."""

    def __init__(self):
        self.log, self.todo, self.capturing = [], [], False
        self.active = "main"

    def work(self):
        for task in self.todo:
            task()
        self.todo = []

    def torch(self):
        machine = self

        class Stream:
            def __init__(self, device=None, name="side"):
                self.name = name
                machine.log.append(f"new stream on {device}") if device else None

            def wait_stream(self, other):
                machine.log.append(f"{self.name} waits for {other.name}")

        class Event:
            def __init__(self):
                self.at = None

            def record(self, stream):
                machine.log.append(f"event on {stream.name}")
                machine.todo.append(lambda: setattr(self, "at", "done"))

            def query(self):
                return self.at == "done"

            def synchronize(self):
                machine.log.append("host waits for the event")
                machine.work()

        @contextlib.contextmanager
        def stream(one):
            before, machine.active = machine.active, one.name
            yield
            machine.active = before

        def empty(shape, dtype, pin_memory):
            machine.log.append("pinned" if pin_memory else "not pinned")
            return Tensor(machine, np.zeros(shape, np.float32), "cpu")

        cuda = types.SimpleNamespace(Stream=Stream, Event=Event, stream=stream,
                                     current_stream=lambda device: Stream(name="main"),
                                     is_current_stream_capturing=lambda: machine.capturing)  # fmt: skip
        return types.SimpleNamespace(cuda=cuda, empty=empty)


class Device:
    """Hashable, as devices of torch are."""

    def __init__(self, name):
        self.name, self.type = name, name.partition(":")[0]

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == other.name

    def __str__(self):
        return self.name


class Tensor:
    dtype = "torch.float32"
    layout = "torch.strided"

    def __init__(self, machine, array, device="cuda:0"):
        self.machine, self.data = machine, array
        self.device, self.name = Device(device), device

    shape = property(lambda self: self.data.shape)

    def detach(self):
        return self

    def cpu(self):
        assert self.device.type == "cpu", "the host would wait for the device"
        return self

    def contiguous(self):
        return self

    def numpy(self):
        return self.data

    def numel(self):
        return self.data.size

    def element_size(self):
        return 4

    def clone(self):
        self.machine.log.append(f"clone on {self.machine.active}")
        return Tensor(self.machine, self.data.copy(), self.name)

    def copy_(self, other, non_blocking):
        self.machine.log.append(f"copy on {self.machine.active}" + (", not waiting" if non_blocking else ""))
        self.machine.todo.append(lambda: self.data.__setitem__(..., other.data))

    def record_stream(self, stream):
        self.machine.log.append(f"memory is kept for {stream.name}")


class CopiesTest(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        patched = unittest.mock.patch.dict(sys.modules, torch=self.machine.torch())
        patched.start()
        self.addCleanup(patched.stop)

    def test_from_a_gpu(self):
        tensors = [Tensor(self.machine, np.full((2, 3), value, np.float32)) for value in (1, 2)]
        copier = Copier()
        copies = [copier.copy(tensor) for tensor in tensors]
        each = ["clone on main", "side waits for main", "pinned", "copy on side, not waiting", "event on side",
                "memory is kept for side"]  # fmt: skip
        self.assertEqual(self.machine.log, ["new stream on cuda:0", *each, *each])
        tensors[0].data[:] = 9  # the model writes over it
        self.assertFalse(copies[0].ready())
        np.testing.assert_array_equal(copies[0].array("x"), np.ones((2, 3)))
        self.assertEqual(self.machine.log[-1], "host waits for the event")
        self.assertTrue(copies[1].ready())
        self.assertEqual([copy.bytes for copy in copies], [24, 24])

    def test_on_the_host(self):
        tensor = Tensor(self.machine, np.ones(3, np.float32), "cpu")
        copy = Copier().copy(tensor)
        tensor.data[:] = 2
        self.assertTrue(copy.ready())
        np.testing.assert_array_equal(copy.array("x"), np.ones(3))
        self.assertIsNone(Copier().copy(None))

    def test_graphs_that_are_being_captured_are_refused(self):
        self.machine.capturing = True
        tensor = Tensor(self.machine, np.ones(3, np.float32))
        with self.assertRaisesRegex(RuntimeError, "CUDA graph.*eagerly"):
            Copier().copy(tensor)


if __name__ == "__main__":
    unittest.main()
