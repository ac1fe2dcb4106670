"""Weights and settings of a GGUF file, as the program reads them."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, Mapping, Optional

import numpy as np
import numpy.typing as npt

from ._program import PathLike, call_bytes, call_json


class Model(Mapping[str, "npt.NDArray[np.float32]"]):
    """A GGUF file, or a model that the program knows by name: its weights by name, decoded to float32 whatever their format is.

    >>> model = lockstep.open_model("model.gguf")
    >>> model["blk.0.attn_q.weight"].shape     # [rows, columns]
    >>> model.metadata["llama.block_count"]
    >>> model.setting("attention.head_count")  # of its own architecture
    """

    def __init__(self, path: PathLike) -> None:
        self._name = os.fspath(path)
        found = call_json(["inspect", f"--model={self._name}", "--json", "--full"])
        self.path: str = found["path"]
        self.architecture: str = found["architecture"]
        self.metadata: Dict[str, Any] = {key: entry["value"] for key, entry in found["metadata"].items()}
        self._shapes = {entry["name"]: tuple(reversed(entry["shape"])) for entry in found["tensors"]}

    def setting(self, name: str, otherwise: Optional[Any] = None) -> Any:
        """A value of the metadata, without the architecture before its name."""
        return self.metadata.get(f"{self.architecture}.{name}", otherwise)

    def __getitem__(self, name: str) -> "npt.NDArray[np.float32]":
        shape = self._shapes[name]
        raw = call_bytes(["tensor", f"--model={self.path}", name, "--raw"])
        return np.frombuffer(raw, "<f4").reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"<lockstep.Model {self.path!r}: {self.architecture}, {len(self)} tensors>"


def open_model(path: PathLike) -> Model:
    """Opens a model file for its weights. LockstepError where it cannot be read."""
    return Model(path)
