"""What the checks share: where things are, running our program, comparing, and reporting cases.

A check is a program check_X.py that prints a line a case and `N passed, N failed` at the end, and exits with 1 where
a case failed. tests/peer/run adds the counts up.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build"))
WORK = BUILD / "peer"  # models and values that the checks make
LOCKSTEP = BUILD / "lockstep"
DUMP_VALUES = BUILD / "tests" / "dump_values"

sys.path.insert(0, str(ROOT / "python"))  # our package, from the tree: whoever imports this module first has it


class Report:
    def __init__(self, title):
        self.title = title
        self.passed = 0
        self.failed = 0

    def case(self, name, ok, detail=""):
        self.passed += bool(ok)
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {self.title}: {name}" + (f": {detail}" if detail else ""), flush=True)

    def below(self, name, value, bound):
        """A figure that must stay below a bound; not-a-number fails."""
        self.case(name, value < bound, f"{value:.1e} (bound {bound:.0e})")

    def attempt(self, name, function, *args):
        """Runs one case; whatever it raises fails the case and not those after it."""
        try:
            function(*args)
        except Exception as problem:  # noqa: BLE001: any failure belongs to the case
            self.case(name, False, f"{type(problem).__name__}: {problem}")

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed else 0)


def nmse(ours, theirs):
    """Mean square difference over the mean square of `theirs`."""
    if ours.shape != theirs.shape:
        raise ValueError(f"shapes differ: {ours.shape} here, {theirs.shape} there")
    theirs = theirs.astype(np.float64)
    return float(np.sum((ours - theirs) ** 2) / np.sum(theirs**2))


def run_ours(command, environment=None):
    """Standard output; `environment` adds to the variables that there are."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          env=os.environ | (environment or {}))  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def fresh_folder(name):
    """A folder under build/peer without what an earlier run left there."""
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.npy"):
        old.unlink()
    return folder


def our_values(model, tokens, globs=("*",), *, chunk=None, context=None, greedy=None, target=None, flags=()):
    """{name: array}; with `greedy`, also the tokens chosen. Of the reference executor unless `flags` say otherwise;
    `target` is the kind of machine that the CPU executor takes this one for."""
    folder = fresh_folder(f"values-{os.getpid()}")
    command = [DUMP_VALUES, *flags]
    for flag, value in (("--chunk", chunk), ("--ctx", context), ("--greedy", greedy)):
        if value is not None:
            command += [flag, value]
    command += [model, ",".join(map(str, tokens)), folder, *globs]
    out = run_ours(command, {"LOCKSTEP_CPU_TARGET": target} if target else None)
    values = {path.name.removesuffix(".npy"): np.load(path) for path in folder.glob("*.npy")}
    for path in folder.glob("*.npy"):
        path.unlink()
    folder.rmdir()
    return values if greedy is None else (values, [int(token) for token in out.split()])
