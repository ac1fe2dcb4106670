"""The program `lockstep`: where it is, and what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]
VARIABLE = "LOCKSTEP"


class LockstepError(RuntimeError):
    """The program was not found, or refused: wrong use, or input that it cannot read. Its message says why."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status  # of the program


def find_program() -> Optional[Path]:
    """The program that $LOCKSTEP names, that came with this package, or that lies in $PATH; None where none is."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise LockstepError(f"{VARIABLE}={named}: no program is there")
        return Path(found)
    package = Path(__file__).resolve().parent
    beside = [package / "bin"]  # a wheel
    if package.parts[-4:] == ("share", "lockstep", "python", "lockstep"):  # cmake --install
        beside.append(package.parents[3] / "bin")
    if (package.parent.parent / "CMakeLists.txt").exists():  # the source tree
        beside.append(package.parent.parent / "build")
    for folder in beside:
        if os.access(folder / "lockstep", os.X_OK):
            return folder / "lockstep"
    elsewhere = shutil.which("lockstep")
    return Path(elsewhere) if elsewhere else None


def program() -> Path:
    """As find_program; LockstepError where there is none."""
    found = find_program()
    if found is None:
        raise LockstepError(
            "the program 'lockstep' is not there: pip install the whole project (pip install . in its folder), put the "
            f"program into PATH, or let the variable {VARIABLE} name it"
        )
    return found


def operand(file: PathLike) -> str:
    """A path that the program does not take for an option."""
    path = os.fspath(file)
    return f"./{path}" if path.startswith("-") else path


def call_bytes(arguments: Sequence[PathLike], good: Sequence[int] = (0,)) -> bytes:
    """What the program prints. LockstepError with its message where the exit status is not one of `good`."""
    command: List[str] = [str(program()), *(os.fspath(argument) for argument in arguments)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as problem:
        raise LockstepError(f"{command[0]}: {problem.strerror or problem}") from problem
    except ValueError as problem:  # a zero byte, or half of a surrogate pair
        raise LockstepError(f"lockstep {command[1]}: a text that no program can be given: {problem}") from problem
    if done.returncode not in good:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = "\n".join(line for line in lines if not line.startswith("'lockstep help "))
        if done.returncode < 0:
            said = f"lockstep {command[1]} was ended by signal {-done.returncode}. {said}".strip()
        said = said or f"lockstep {command[1]} ended with the status {done.returncode}"
        raise LockstepError(said.removeprefix("lockstep: "), done.returncode)
    return done.stdout


def call(arguments: Sequence[PathLike], good: Sequence[int] = (0,)) -> str:
    """As call_bytes, a text."""
    return call_bytes(arguments, good).decode("utf-8", "replace")


def call_json(arguments: Sequence[PathLike], good: Sequence[int] = (0,)) -> Dict[str, Any]:
    """The JSON object that a command with --json prints."""
    printed = call(arguments, good)
    try:
        found = json.loads(printed)
    except ValueError as problem:
        raise LockstepError(f"lockstep {arguments[0]} printed no JSON: {problem}: {printed[:200]!r}") from problem
    if not isinstance(found, dict):
        raise LockstepError(f"lockstep {arguments[0]} printed no JSON object: {printed[:200]!r}")
    return found


def describe_model(path: PathLike) -> Dict[str, str]:
    """Of a GGUF file, what a trace says of its model: file, path and, where the program is at hand, the rest."""
    file = Path(path)
    entry = {"file": file.name}
    if not file.exists():
        warnings.warn(f"{file}: no such file; the trace will have the name of its model alone", stacklevel=4)
        return entry
    entry["path"] = str(file.resolve())
    try:
        with open(file, "rb") as opened:
            is_gguf = opened.read(4) == b"GGUF"
        if not is_gguf or find_program() is None:
            return entry
        found = call_json(["inspect", operand(file), "--fingerprint", "--json"])
    except (OSError, LockstepError) as problem:
        if file.is_file():  # the engine may know better how to read it
            warnings.warn(f"the trace will not have the model's fingerprint: {problem}", stacklevel=3)
        return entry
    formats = found.get("formats") or [{}]
    entry["architecture"] = str(found.get("architecture", ""))
    entry["fingerprint"] = str(found.get("fingerprint", ""))
    entry["quantization"] = str(max(formats, key=lambda item: item.get("bytes", 0)).get("type", ""))
    return entry

