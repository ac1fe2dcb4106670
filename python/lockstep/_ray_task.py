"""One part of a suite on a node of Ray.

Sent to the nodes by value: uses nothing of this package, so that a node needs the program alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

LEAVINGS = ("report.html", "output.txt", "suspect.trace", "reference.trace")  # of a failed case, the small ones first


@dataclass
class SentFile:
    """A file of --send: its bytes lie in Ray's object store."""

    path: str  # below the folder that is sent
    mode: int
    digest: str
    content: Any  # reference to an object


@dataclass
class Part:
    """All that a node has to know of its part."""

    index: int
    of: int
    suite: str
    folder: str  # that the run was started in
    program: str  # on the machine that the run was started on
    version: str  # as the results name it
    options: List[str] = field(default_factory=list)  # further ones of `lockstep check`
    commit: Optional[str] = None
    resume: Any = None  # results that are there: reference to an object
    out: Optional[str] = None
    mark: Optional[str] = None  # a file that only this run has: where a node sees it, `out` is shared
    return_bytes: int = 0  # of failed cases, that come back where `out` is not shared
    sent: List[SentFile] = field(default_factory=list)
    sent_from: str = ""  # the folder of --send

    def name(self) -> str:
        return f"part {self.index} of {self.of}"


@dataclass
class Outcome:
    """What a part brings back."""

    results: bytes  # the JSON
    shared: bool = False  # the folder of --out
    files: List[Tuple[str, bytes]] = field(default_factory=list)  # of it, where it is not shared
    left_out: List[str] = field(default_factory=list)  # files that were too large for that


def digest_of(files: List[SentFile]) -> str:
    told = json.dumps([[one.path, one.mode, one.digest] for one in files])
    return hashlib.sha256(told.encode()).hexdigest()


def unpack(files: List[SentFile], fetch: Callable[[Any], bytes]) -> Path:
    """The folder that was sent, made once on a node and kept: its name tells its contents."""
    home = Path(tempfile.gettempdir()) / f"lockstep-ray-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.getuid() or home.stat().st_mode & 0o077:
        raise RuntimeError(f"{home} belongs to somebody else, or others may write to it")
    place = home / digest_of(files)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return place
        aside = Path(f"{place}.new")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for one in files:
            target = aside / one.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(fetch(one.content))
            target.chmod(one.mode)
        aside.rename(place)
    return place


def moved(path: str, old: str, new: Path) -> str:
    """A path within the folder that was sent, as it is on this node; others stay as they are."""
    inside = os.path.relpath(path, old)
    return path if inside.split(os.sep)[0] == os.pardir else os.path.normpath(new / inside)


def program_here(named: str) -> str:
    for found in (os.environ.get("LOCKSTEP"), named, "lockstep"):
        if found and (path := shutil.which(found)):
            return path
    raise RuntimeError(f"the program is not there: neither {named} nor `lockstep` in PATH, and LOCKSTEP names none")


def _end_with_parent() -> None:
    """A worker that is killed takes the program with it; the program ends its engines then."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))


def call_program(command: List[str], folder: str, environment: Dict[str, str]) -> None:
    # The system ends the child with the thread that began it: of other threads than the first we know nothing.
    first = threading.current_thread() is threading.main_thread()
    child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, preexec_fn=_end_with_parent if first else None)  # fmt: skip
    try:
        _, said = child.communicate()
    finally:
        if child.poll() is None:  # the run was ended
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    if child.returncode in (0, 1):
        return
    text = said.decode("utf-8", "replace").strip().removeprefix("lockstep: ")
    name = f"lockstep {command[1]}"
    if child.returncode < 0:
        text = f"{name} was ended by signal {-child.returncode}. {text}".strip()
    raise RuntimeError(text or f"{name} ended with the status {child.returncode}")


def collect(out: Path, ids: List[str], limit: int, outcome: Outcome) -> None:
    """The files of failed cases, up to so many bytes; pages before traces."""
    for leaving in LEAVINGS:
        for one in ids:
            place = out / one / leaving
            files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
            size = sum(path.stat().st_size for path in files)
            if size > limit:
                outcome.left_out.append(f"{one}/{leaving}")
                continue
            limit -= size
            outcome.files += [(str(path.relative_to(out)), path.read_bytes()) for path in files]


def run_part(part: Part, fetch: Callable[[Any], bytes]) -> Outcome:
    """Runs the part. What keeps it from having results is an exception: Ray tries again."""
    suite, folder, options = part.suite, part.folder, part.options
    if part.sent:
        root = unpack(part.sent, fetch)
        suite, options = moved(suite, part.sent_from, root), [moved_option(one, part.sent_from, root) for one in options]
        inside = moved(folder, part.sent_from, root)
        folder = inside if inside != folder and os.path.isdir(inside) else str(root)
    for path in (suite, folder):
        if not os.path.exists(path):
            raise RuntimeError(f"{path} is not there: put it on storage that all nodes share, or use --send")
    environment = {**os.environ, "GITHUB_ACTIONS": ""}  # the merged result is told to GitHub, once
    if part.commit:
        environment.update(GITHUB_SHA=part.commit, CI_COMMIT_SHA=part.commit)
    with tempfile.TemporaryDirectory(prefix="lockstep-") as own:
        results = Path(own) / "results.json"
        shared = part.mark is not None and os.path.exists(part.mark)
        out = None if part.out is None else Path(part.out) if shared else Path(own) / "out"
        command = [program_here(part.program), "check", suite, f"--part={part.index}/{part.of}", f"--json={results}", *options]
        if out is not None:
            command.append(f"--out={out}")
        if part.resume is not None:
            earlier = Path(own) / "earlier.json"
            earlier.write_bytes(fetch(part.resume))
            command.append(f"--resume={earlier}")
        call_program(command, folder, environment)
        outcome = Outcome(results.read_bytes(), shared)
        found = json.loads(outcome.results)
        if found["program"] != part.version:
            raise RuntimeError(f"the program here is {found['program']}, expected {part.version} as where the run was started")
        if not found["complete"]:
            raise RuntimeError("lockstep check was ended before its end")
        if out is not None and not shared:
            collect(out, [one["id"] for one in found["results"] if one["status"] != "passed"], part.return_bytes, outcome)
        return outcome


def moved_option(option: str, old: str, new: Path) -> str:
    """As moved, of --goldens=PATH; of other options nothing changes."""
    name, _, value = option.partition("=")
    return f"{name}={moved(value, old, new)}" if value.startswith("/") else option


@dataclass
class ComparePart:
    """A part of one comparison: `lockstep compare --part`."""

    index: int
    of: int
    folder: str  # that the run was started in
    program: str  # on the machine that the run was started on
    arguments: List[str] = field(default_factory=list)  # traces, model and options

    def name(self) -> str:
        return f"part {self.index} of {self.of}"


def run_compare(part: ComparePart) -> bytes:
    """What the part finds, as its file has it."""
    if not os.path.exists(part.folder):
        raise RuntimeError(f"{part.folder} is not there: put it on storage that all nodes share")
    with tempfile.TemporaryDirectory(prefix="lockstep-") as own:
        found = Path(own) / "part.json"
        command = [program_here(part.program), "compare", *part.arguments, f"--part={part.index}/{part.of}", f"--output={found}"]
        call_program(command, part.folder, dict(os.environ))
        return found.read_bytes()


def compare_task(part: ComparePart) -> bytes:
    """As run_compare; what it raises names the node."""
    try:
        return run_compare(part)
    except Exception as problem:
        raise RuntimeError(f"node {socket.gethostname()}: {problem}") from None


def task(part: Part) -> Outcome:
    """As run_part; what it raises names the node."""
    import ray

    try:
        return run_part(part, ray.get)
    except Exception as problem:
        raise RuntimeError(f"node {socket.gethostname()}: {problem}") from None
