"""What the capture commands share: flags, the prompt, choosing tokens, progress, errors."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

from .. import _checkpoints
from .._checkpoints import execution_order
from .._writer import TraceWriter
from . import _summary


class CaptureError(Exception):
    """Wrong use, or input that cannot be read: one line for the user, exit status 2."""


def wanted(sets: str, name: str) -> bool:
    """Whether a checkpoint is in a set of --checkpoints: logits, layers, ops, all, names and globs."""
    for part in sets.split(","):
        if _checkpoints.in_set(name, part) if part in _checkpoints.SETS else fnmatch.fnmatchcase(name, part):
            return True
    return False


def check_checkpoints(sets: str, layers: int) -> None:
    names = _checkpoints.names(layers)
    for part in sets.split(","):
        if not any(wanted(part, name) for name in names):
            raise CaptureError(
                f"no checkpoint matches '{part}'; sets are {', '.join(_checkpoints.SETS)}; names are such as "
                "embedding, blk.0.q, blk.*.ffn_out, logits"
            )


def _ids(text: str) -> List[int]:
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of token ids such as 1,2,3") from None


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no temperature")
    return value


def make_parser(module: str, summary: str, examples: str, model_help: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m lockstep.capture.{module}",
        description=summary,
        epilog="examples:\n" + examples + "\n\nExit status: 0 done, 2 wrong use or unreadable input.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-m", "--model", required=True, help=model_help)
    parser.add_argument("-o", "--output", required=True, metavar="TRACE", help="new folder for the trace")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; the engine's own tokenizer reads it")
    prompt.add_argument("--text-file", metavar="FILE", help="file with the prompt; - is standard input")
    prompt.add_argument("--tokens", type=_ids, metavar="IDS", help="the prompt as token ids: 1,2,3")
    parser.add_argument("-n", "--max-tokens", type=_not_negative, default=1, metavar="N",
                        help="tokens to generate (default 1: the prompt is evaluated and one token chosen; "
                        "0: none is chosen)")  # fmt: skip
    parser.add_argument("--checkpoints", default="all", metavar="SET",
                        help="logits, layers, ops, all (default), or names and globs: embedding,blk.*.q")  # fmt: skip
    parser.add_argument("--batch", type=_positive, default=512, metavar="N",
                        help="most prompt tokens of one step (default %(default)s)")  # fmt: skip
    parser.add_argument("--temp", type=_temperature, default=0.0, metavar="T",
                        help="temperature; 0 (default) always takes the largest logit")  # fmt: skip
    parser.add_argument("--seed", type=_not_negative, default=0, help="of the choice where --temp is not 0")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after an end-of-text token")
    parser.add_argument("-t", "--threads", type=_positive, default=os.cpu_count() or 1, help="default: all cores")
    parser.add_argument("--fingerprint", default="", metavar="HEX",
                        help="of the model file, as `lockstep inspect --fingerprint` prints it")  # fmt: skip
    parser.add_argument("--program", default="lockstep", metavar="LOCKSTEP", help=argparse.SUPPRESS)
    return parser


def read_prompt(options: argparse.Namespace) -> Optional[str]:
    """The text; None where token ids were given."""
    if options.tokens is not None:
        if not options.tokens:
            raise CaptureError("--tokens: no token ids")
        return None
    text = options.prompt
    if text is None:
        try:
            if options.text_file == "-":
                text = sys.stdin.buffer.read().decode("utf-8")
            else:
                text = Path(options.text_file).read_text(encoding="utf-8")
        except OSError as problem:
            raise CaptureError(f"{options.text_file}: {problem.strerror}") from problem
        except UnicodeDecodeError as problem:
            raise CaptureError(f"{options.text_file}: no UTF-8: {problem.reason}") from problem
    if not text:
        raise CaptureError("the prompt is empty")
    return str(text)


def check_tokens(tokens: Sequence[int], vocabulary: int, positions: int, limit: int) -> None:
    if not tokens:
        raise CaptureError("the prompt has no tokens")
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise CaptureError(f"token {token} is not in the vocabulary of {vocabulary}")
    if 0 < limit < positions:
        raise CaptureError(f"prompt and -n need {positions} positions; the model has {limit}")


def check_output(path: str) -> None:
    """Refuses before the work what the writer would refuse after it."""
    folder = Path(path)
    try:
        if folder.exists() and not folder.is_dir():
            raise CaptureError(f"{folder}: is a file; expected a folder for the trace")
        if folder.is_dir() and any(folder.iterdir()):
            raise CaptureError(f"{folder}: is not empty; a trace is never written over")
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise CaptureError(f"{folder}: cannot be written to")
        if made:
            folder.rmdir()
    except OSError as problem:
        raise CaptureError(f"{folder}: {problem.strerror}") from problem


def choose(logits: npt.NDArray[np.float32], options: argparse.Namespace, random: np.random.Generator) -> int:
    if options.temp <= 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / options.temp
    if not np.isfinite(scaled.max()):
        raise CaptureError("a token cannot be drawn: logits are not numbers")
    chances = np.exp(scaled - scaled.max())
    return int(random.choice(len(chances), p=chances / chances.sum()))


class Progress:
    """A line on a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.shown = sys.stderr.isatty()
        self.marks = "█·" if (sys.stderr.encoding or "").lower().startswith("utf") else "#."
        self.begin = time.monotonic()

    def show(self, done: int) -> None:
        if self.shown:
            filled = 24 * done // max(1, self.total)
            bar = self.marks[0] * filled + self.marks[1] * (24 - filled)
            seconds = time.monotonic() - self.begin
            line = f"\rcapturing {bar} {done}/{self.total} positions, {seconds:.0f} s "
            print(line, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def generate(
    tokens: Sequence[int],
    options: argparse.Namespace,
    evaluate: Callable[[List[int], int], Dict[str, npt.NDArray[Any]]],
    last_logits: Callable[[], npt.NDArray[Any]],
    is_end: Callable[[int], bool],
    open_writer: Callable[[], TraceWriter],
) -> TraceWriter:
    """The prompt in steps of --batch tokens, then a token a step; all that is wanted goes to the trace.

    `evaluate(tokens, first position)` gives the checkpoints of a step, `last_logits()` those of its last token.
    """
    random = np.random.default_rng(options.seed)
    progress = Progress(len(tokens) + max(0, options.max_tokens - 1))
    writer: Optional[TraceWriter] = None
    known = list(tokens)
    first, chosen = 0, 0
    try:
        while True:
            step = known[first : first + options.batch]
            values = evaluate(step, first)
            if writer is None:  # only now it is known what the engine computes with
                writer = open_writer()
            writer.tokens = list(known)
            record = {n: values[n] for n in sorted(values, key=execution_order)}
            if record:
                writer.step(first, record)
            first += len(step)
            progress.show(first)
            if first < len(known):
                continue
            if chosen < options.max_tokens:
                known.append(choose(last_logits(), options, random))
                writer.tokens = list(known)
                chosen += 1
            if chosen >= options.max_tokens or (is_end(known[-1]) and not options.ignore_eos):
                break
        writer.close()
        return writer
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    finally:
        progress.end()


def sampling(options: argparse.Namespace) -> Mapping[str, Any]:
    return {"temperature": options.temp, "seed": options.seed}


def run(module: str, capture: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Exit status; problems as one line on standard error."""
    try:
        check_output(options.output)
        capture(options)
        if (Path(options.output) / "manifest.json").is_file():
            print(_summary.text(options), flush=True)
        return 0
    except CaptureError as problem:
        message = str(problem)
    except OSError as problem:
        message = f"{problem.filename or options.output}: {problem.strerror or problem}"
    except MemoryError:
        message = "not enough memory"
    except KeyboardInterrupt:
        message = "interrupted; the trace is not complete"
    print(f"lockstep.capture.{module}: {message}", file=sys.stderr)
    return 2
