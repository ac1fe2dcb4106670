"""What a capture says when it is done: what it wrote, and the commands that compare it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import List

from .._reader import Trace, open_trace


def _human(size: int) -> str:
    amount, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{size} B" if unit == "B" else f"{amount:.3g} {unit}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _new_folder(output: Path) -> Path:
    """A name beside the trace that nothing has yet."""
    stem = output.name[: -len(".trace")] if output.name.endswith(".trace") else output.name
    path, number = output.with_name(f"{stem}-lockstep.trace"), 1
    while path.exists():
        number += 1
        path = output.with_name(f"{stem}-lockstep{number}.trace")
    return path


def _argument(path: Path) -> str:
    """As a command takes it: a name that begins with a dash is no option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _prompt(options: argparse.Namespace, trace: Trace) -> List[str]:
    """Flags of `lockstep run` that take our engine through the same positions."""
    flags: List[str]
    if options.temp > 0:  # what was drawn cannot be drawn again: all but the last is a prompt
        tokens = trace.tokens[:-1] if len(trace.tokens) > trace.n_prompt else trace.tokens
        return ["--tokens", ",".join(map(str, tokens)), "-n", "0"]
    if options.prompt is not None:
        # With "=" where it could be taken for an option.
        flags = [f"--prompt={options.prompt}"] if options.prompt.startswith("-") else ["-p", options.prompt]
    elif options.text_file is not None and options.text_file != "-":
        flags = ["-f", options.text_file]
    else:
        flags = ["--tokens", ",".join(map(str, trace.tokens[: trace.n_prompt]))]
    flags += ["-n", str(options.max_tokens)]
    if options.ignore_eos:
        flags.append("--ignore-eos")
    return flags


def _model(name: str) -> str:
    """What the program can read of the model, where it is known: a GGUF file, or a folder from the hub."""
    if Path(name).is_dir():
        files = sorted(Path(name).glob("*.gguf"))
        if len(files) == 1:
            return str(files[0])
        return name if (Path(name) / "config.json").is_file() else ""
    return name if Path(name).is_file() else ""


def text(options: argparse.Namespace) -> str:
    output = Path(options.output)
    trace = open_trace(output)
    size = sum(path.stat().st_size for path in output.iterdir())
    positions = len({step.first_position + i for step in trace.steps for i in range(step.tokens)})
    model = _model(options.model)
    ours, theirs = _argument(_new_folder(output)), _argument(output)
    checkpoints = ["--checkpoints", options.checkpoints]
    run = [options.program, "run", "-m", model or "MODEL.gguf", *_prompt(options, trace), "--trace", ours, *checkpoints]
    if getattr(options, "kv", "f16") == "f32":
        run += ["--kv", "f32"]
    compare = [options.program, "compare", ours, theirs, "-m", model or "MODEL.gguf"]
    lines = [
        f"{options.output}: {_count(positions, 'position')}, {_count(len(trace), 'checkpoint')}, {_human(size)}",
        "Next, the same with lockstep, then both side by side"
        + (":" if model else " (MODEL.gguf: the same model as a GGUF file):"),
        "  " + shlex.join(run),
        "  " + shlex.join(compare),
    ]
    return "\n".join(lines)
