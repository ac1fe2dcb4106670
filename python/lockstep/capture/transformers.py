"""Records what Hugging Face transformers computes: forward hooks on its modules, by name.

All architectures that Lockstep runs with every checkpoint; other architectures with the outputs of their layers
and the logits. A folder on disk is enough; nothing is downloaded for one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from .._writer import TraceWriter
from . import _command as command
from ._command import CaptureError
from ._hooked_run import Run

EXAMPLES = """\
  python -m lockstep.capture.transformers -m ./SmolLM2-135M -p 'The sky is' -n 16 -o theirs.trace
  python -m lockstep.capture.transformers -m ./model --tokens 1,15043,3186 -o exact.trace --dtype float64
  lockstep compare ours.trace theirs.trace -m model.gguf"""

DTYPES = ("float32", "float64", "bfloat16", "float16")
_SHORT = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}


def _load_packages() -> Tuple[Any, Any]:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Some machines announce AMX, which is above this, and stop a program at its first tile instruction.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    try:
        import torch
        import transformers
    except ImportError as problem:
        raise CaptureError(
            f"torch and transformers are needed ({problem}); {sys.executable} -m pip install torch transformers"
        ) from problem
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
    return torch, transformers


def _one_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__


def load_model(name: str, dtype: str) -> Any:
    """The model with attention and experts as written out in Python, which have values to look at."""
    torch, transformers = _load_packages()
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path and not Path(name).is_dir():
        raise CaptureError(f"{name}: no such folder")
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise CaptureError(f"{name}: no config.json; expected a folder of a transformers model")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            name, dtype=getattr(torch, dtype), attn_implementation="eager", experts_implementation="eager"
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as problem:
        raise CaptureError(f"{name}: transformers cannot load it: {_one_line(problem)}") from problem
    return model.eval()


def _load_tokenizer(name: str) -> Any:
    _, transformers = _load_packages()
    try:
        return transformers.AutoTokenizer.from_pretrained(name)
    except Exception as problem:  # noqa: BLE001 - whatever is wrong with its files
        raise CaptureError(f"{name}: no tokenizer ({_one_line(problem)}); give --tokens") from problem


def precision(dtype: str, architecture: str) -> Dict[str, str]:
    """Norms, softmax and angles are computed in float32 whatever the type is, float64 included; but not by gpt2."""
    short = _SHORT[dtype]
    compute = "f64" if dtype == "float64" and architecture == "gpt2" else "f32"
    return {"compute": compute, "activations": short, "kv": short}


def write(run: Run, options: argparse.Namespace, tokens: Sequence[int], text: str, is_end: Callable[[int], bool],
          file: str) -> None:  # fmt: skip
    """Records `run` on `tokens` and what it generates."""
    _, transformers = _load_packages()

    def open_writer() -> TraceWriter:
        return TraceWriter(
            options.output,
            engine={"name": "transformers", "version": transformers.__version__, "device": str(run.model.device)},
            precision=precision(options.dtype, run.architecture),
            # Where a model has rope factors for long contexts, the positions so far decide in every step.
            forward={"context_length": "positions so far"},
            model={"file": file, "architecture": run.architecture, "fingerprint": options.fingerprint,
                   "quantization": ""},
            tokens=tokens, prompt=text, sampling=command.sampling(options), notes=run.notes,
            unmapped=sorted(run.unmapped),
        )  # fmt: skip

    command.generate(tokens, options, run.step, lambda: run.logits[-1], is_end, open_writer)


def capture(options: argparse.Namespace) -> None:
    text = command.read_prompt(options)
    torch, _ = _load_packages()
    torch.set_num_threads(options.threads)
    model = load_model(options.model, options.dtype)
    if text is None:
        tokens = list(options.tokens)
    else:
        tokens = [int(token) for token in _load_tokenizer(options.model)(text)["input_ids"]]
    if options.device != "cpu":
        try:
            model = model.to(options.device)
        except (RuntimeError, AssertionError) as problem:
            raise CaptureError(f"--device {options.device}: {_one_line(problem)}") from problem
    config = model.config.get_text_config()
    positions = len(tokens) + max(0, options.max_tokens - 1)
    limit = int(getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0) or 0)
    command.check_tokens(tokens, int(config.vocab_size), positions, limit)
    command.check_checkpoints(options.checkpoints, int(getattr(config, "num_hidden_layers", 1)))
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = set(ends if isinstance(ends, list) else [ends])
    with Run(model, options.checkpoints) as run:
        write(run, options, tokens, text or "", lambda token: token in ends, Path(options.model).name)


def make_parser() -> argparse.ArgumentParser:
    parser = command.make_parser("transformers", __doc__ or "", EXAMPLES,
                                 "folder of a model, or its name on the Hugging Face hub (downloads it)")  # fmt: skip
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="numbers to compute with; default float32")
    parser.add_argument("--device", default="cpu", help="as torch has it: cpu (default), cuda, ...")
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    return command.run("transformers", capture, make_parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
