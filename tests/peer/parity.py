"""Traces of one model by every engine, and what `lockstep compare` says of each pair."""

import argparse
import functools
import json
import math
import shutil
import subprocess

import torch

from peer import LOCKSTEP, ROOT, run_ours  # first: it knows the way to our package
import hf_models
from lockstep.capture import llama_cpp, transformers

PEERS = ("llama.cpp", "transformers")


@functools.cache
def devices():
    """Our executors that this machine and this build have."""
    model = ROOT / "models" / "haiku-llama-q4_k_m.gguf"
    return [device for device in ("reference", "cpu", "cuda")
            if subprocess.run([LOCKSTEP, "run", "-m", model, "--tokens", "1", "-n", "1", "--device", device],
                              capture_output=True).returncode == 0]  # fmt: skip


@functools.lru_cache(maxsize=2)
def _load(path, dtype):
    return hf_models.load(path, getattr(torch, dtype))


class Bench:
    """Of one model and prompt; each trace is made once. The folder is removed at the end of a `with`."""

    def __init__(self, folder, path, tokens, count, checkpoints="all"):
        self.folder, self.path, self.tokens, self.count, self.checkpoints = folder, path, tokens, count, checkpoints
        self.fingerprint = ""

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _ids(self):
        return ",".join(map(str, self.tokens))

    def ours(self, device, *flags):
        trace = self.folder / "-".join((device, *flags)).replace("--", "")
        if not trace.exists():
            run_ours([LOCKSTEP, "run", "-m", self.path, "--tokens", self._ids, "-n", self.count, "--ignore-eos",
                      "--device", device, "-t", 1, "--trace", trace, "--checkpoints", self.checkpoints,
                      *flags])  # fmt: skip
            self.fingerprint = json.loads((trace / "manifest.json").read_text())["model"]["fingerprint"]
        return trace

    def llama_cpp(self, *flags):
        trace = self.folder / "-".join(("llama.cpp", *flags)).replace("--", "")
        if not trace.exists():
            status = llama_cpp.main(["-m", str(self.path), "--tokens", self._ids, "-n", str(self.count),
                                     "-o", str(trace), "--ignore-eos", "-t", "1", "--checkpoints", self.checkpoints,
                                     "--fingerprint", self.fingerprint, *flags])  # fmt: skip
            if status != 0:
                raise RuntimeError(f"the capture of llama.cpp exited with {status}")
        return trace

    def transformers(self, dtype="float32"):
        trace = self.folder / f"transformers-{dtype}"
        if not trace.exists():
            torch.set_num_threads(1)
            options = argparse.Namespace(output=str(trace), dtype=dtype, fingerprint=self.fingerprint, temp=0.0,
                                         seed=0, batch=512, max_tokens=self.count, ignore_eos=True)  # fmt: skip
            with transformers.Run(_load(self.path, dtype), self.checkpoints) as run:
                transformers.write(run, options, self.tokens, "", lambda token: False, self.path.name)
        return trace

    def peer(self, engine):
        return self.llama_cpp() if engine == "llama.cpp" else self.transformers()

    def compare(self, reference, suspect):
        command = [LOCKSTEP, "compare", reference, suspect, "-m", self.path, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"compare exited with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def largest_ratio(result, side):
    """Own error over its bound: the largest of all checkpoints, and where."""
    found = []
    for checkpoint in result["checkpoints"]:
        judged = checkpoint[side]
        if judged.get("ratio") is not None:
            found.append((judged["ratio"], checkpoint["name"]))
        elif judged.get("first_defect_position") is not None:  # a mask of another shape, or a NaN
            found.append((math.inf, checkpoint["name"]))
    return max(found, key=lambda item: item[0], default=(0.0, ""))


def logits_nmse(result):
    return next(c["nmse"] for c in result["checkpoints"] if c["name"] == "logits")
