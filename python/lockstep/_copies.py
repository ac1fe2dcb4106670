"""Numbers of tensors on their way to the host, without making the device wait."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy.typing as npt

from ._values import tensor_to_numpy


class Copy:
    """One tensor's numbers as they were when the copy was made."""

    def __init__(self, tensor: Any, stream: Any = None) -> None:
        self._event: Any = None
        self._name = ""
        if stream is None:
            self._host = tensor.detach().clone()  # the model may write over its memory
        else:
            import torch

            # A clone in the order of the model's own work; from there to the host on the other stream.
            still = tensor.detach().clone()
            stream.wait_stream(torch.cuda.current_stream(still.device))
            with torch.cuda.stream(stream):
                self._host = torch.empty(still.shape, dtype=still.dtype, pin_memory=True)
                self._host.copy_(still, non_blocking=True)
                self._event = torch.cuda.Event()
                self._event.record(stream)
            still.record_stream(stream)
        self.bytes = int(self._host.numel()) * int(self._host.element_size())

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def host(self) -> Any:
        """The tensor on the host; waits for this copy alone."""
        if self._event is not None:
            self._event.synchronize()
        return self._host

    def array(self, name: str) -> "npt.NDArray[Any]":
        return tensor_to_numpy(self.host(), name)


class Copier:
    """A stream for each device that has streams."""

    def __init__(self) -> None:
        self._streams: Dict[Any, Any] = {}

    def copy(self, tensor: Optional[Any]) -> Optional[Copy]:
        if tensor is None:
            return None
        if tensor.device.type == "meta":
            raise TypeError("record: the module is called on the device 'meta', where there are no numbers")
        if tensor.device.type != "cuda":
            return Copy(tensor)
        import torch

        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the model is being captured as a CUDA graph, which hooks cannot watch: run it eagerly")
        if tensor.device not in self._streams:
            self._streams[tensor.device] = torch.cuda.Stream(tensor.device)
        return Copy(tensor, self._streams[tensor.device])
