"""Records what llama.cpp computes: every node of its graph that is a checkpoint of a trace.

Runs through the low-level API of the llama-cpp-python package with the graph-evaluation callback, so that values come
from the very run that chooses the tokens. On CPU and GPU builds.
"""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from typing import Optional, Sequence

from .._writer import TraceWriter
from . import _command as command
from ._llama_run import KV_TYPES, Model, Run, load_api

__all__ = ["Model", "Run", "capture", "load_api", "main"]

EXAMPLES = """\
  python -m lockstep.capture.llama_cpp -m model.gguf -p 'The sky is' -n 16 -o theirs.trace
  python -m lockstep.capture.llama_cpp -m model.gguf --tokens 1,15043,3186 -n 1 -o theirs.trace --kv f32
  lockstep run -m model.gguf -p 'The sky is' -n 16 --trace ours.trace --checkpoints all
  lockstep compare ours.trace theirs.trace -m model.gguf"""


def version() -> str:
    try:
        return f"llama-cpp-python {metadata.version('llama-cpp-python')}"
    except metadata.PackageNotFoundError:
        return ""


def capture(options: argparse.Namespace) -> None:
    text = command.read_prompt(options)
    gpu = options.gpu_layers > 0
    with Model(options.model, options.gpu_layers) as model:
        tokens = options.tokens if text is None else model.tokenize(text)
        positions = len(tokens) + max(0, options.max_tokens - 1)
        command.check_tokens(tokens, model.vocabulary, positions, model.positions)
        command.check_checkpoints(options.checkpoints, int(model.api.llama_model_n_layer(model.handle)))
        run = Run(model, positions, checkpoints=options.checkpoints, batch=min(options.batch, max(len(tokens), 1)),
                  kv=options.kv, threads=options.threads, flash=options.flash_attn, gpu=gpu,
                  all_nodes=options.all_nodes)  # fmt: skip
        notes = [f"flash attention {'on: attention scores do not exist' if options.flash_attn else 'off'}"]

        def open_writer() -> TraceWriter:
            return TraceWriter(
                options.output,
                engine={"name": "llama.cpp", "version": version(), "device": "gpu" if gpu else "cpu"},
                precision=run.precision(options.kv, gpu),
                forward={"context_length": run.context_length()},
                model={"file": model.path.name, "path": str(model.path.resolve()), "architecture": model.architecture,
                       "fingerprint": options.fingerprint, "quantization": run.quantization()},
                tokens=tokens, prompt=text or "", sampling=command.sampling(options), notes=notes,
                unmapped=sorted(run.unmapped),
            )  # fmt: skip

        with run:
            command.generate(
                tokens, options, run.step, lambda: run.logits[-1],
                lambda token: bool(model.api.llama_vocab_is_eog(model.vocab, token)), open_writer,
            )  # fmt: skip


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = command.make_parser("llama_cpp", __doc__ or "", EXAMPLES, "GGUF file")
    parser.add_argument("--kv", choices=tuple(KV_TYPES), default="f16",
                        help="numbers of the KV cache (default f16, as llama.cpp has it)")  # fmt: skip
    parser.add_argument("--flash-attn", action="store_true",
                        help="flash attention, as llama.cpp has it by default: there are no scores then")  # fmt: skip
    parser.add_argument("-ngl", "--gpu-layers", type=int, default=0, metavar="N",
                        help="layers on the GPU (default 0; 99: all)")  # fmt: skip
    parser.add_argument("--all-nodes", action="store_true",
                        help="also record nodes that the name map does not know, under their own names")  # fmt: skip
    return command.run("llama_cpp", capture, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
