"""A wheel in an empty environment, outside the source tree: the program, its models, the package, capture and pytest's plugin work.

usage: wheel_test.py [WHEEL [PYTHON...]]   without a wheel: scripts/wheel builds it
It is tried with every Python from 3.9 on that is named, or that is in PATH or pyenv.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77

USE = """
import pathlib, sys
import numpy as np
import lockstep
assert "site-packages" in lockstep.__file__, lockstep.__file__
here = pathlib.Path(lockstep.__file__).parent
assert lockstep.find_program() == here / "bin/lockstep", lockstep.find_program()
assert (here / "py.typed").exists() and (here / "include/lockstep/recorder.h").exists()
made = lockstep.run("Write a haiku about snow", max_tokens=4, device="reference", trace="truth.trace")
trace = made.trace
assert len(trace.tokens) == trace.n_prompt + 4
for wrong in (False, True):
    with lockstep.TraceWriter(f"mine{wrong}.trace", engine="mine", precision=trace.manifest["engine"]["precision"],
                              model=trace.manifest["model"]["path"], tokens=trace.tokens, n_prompt=trace.n_prompt) as out:
        for index, step in enumerate(trace.steps):
            values = {name: np.array(trace.value(name, index)) for name in trace}
            if wrong:
                values["blk.1.k"][:, 5] *= 1.5
            out.step(step.first_position, values)
found = lockstep.compare("truth.trace", "mineFalse.trace")
assert found.parity and found.verdict == "exact", found
found = lockstep.compare("truth.trace", "mineTrue.trace")
assert found.first_defect.checkpoint == "blk.1.k", found
assert lockstep.open_trace("mineTrue.trace").manifest["model"]["fingerprint"]
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))[:300]}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def pythons(named):
    """One of every version: {version: path}."""
    versions = range(9, 30)
    places = [Path(place) / f"python3.{minor}" for place in os.get_exec_path() for minor in versions]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    probe = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    found = {}
    for path in named or [sys.executable, *places]:
        done = subprocess.run([path, "-c", probe], capture_output=True, text=True) if Path(path).exists() else None
        if done is not None and done.returncode == 0:
            version = tuple(map(int, done.stdout.split()))
            if version >= (3, 9):
                found.setdefault(version, path)
        elif named:
            raise SystemExit(f"{path}: no Python that makes environments")
    return found


def check_name(wheel):
    """No program or library in the wheel needs a newer C library than the wheel's name says, or a library of CUDA."""
    told = re.search(r"manylinux_2_(\d+)_", wheel.name)
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            content = files.read(name) if "/bin/" in name or ".so" in name else b""
            if not content.startswith(b"\x7fELF"):
                continue
            strings = dynamic_strings(content)
            needed = max(map(int, re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", strings)), default=0)
            assert told is None or needed <= int(told[1]), f"{wheel.name}: {name} needs glibc 2.{needed}"
            cuda = re.search(rb"\0lib(cu(da|dart|blas)\w*)\.so[.\d]*(?=\0)", strings)
            assert cuda is None, f"{wheel.name}: {name} needs {cuda[1].decode()}"


def dynamic_strings(elf):
    """The names of libraries and symbols that the loader looks for (the section .dynstr of a 64-bit ELF file)."""
    (table,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<II4Q", elf, table + size * i) for i in range(count)]
    start = sections[names][4]
    for name, _, _, _, offset, length in sections:
        if elf[start + name :].startswith(b".dynstr\0"):
            return elf[offset : offset + length]
    return b""


def check(python, wheel, root):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LOCKSTEP", "LD_"))}
    environment.update(HOME=str(root / "home"), CUDA_VISIBLE_DEVICES="")
    run(python, "-m", "venv", root / "empty")
    scripts = root / "empty" / "bin"
    run(scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    environment["PATH"] = f"{scripts}:/usr/bin:/bin"
    options = {"cwd": root, "env": environment}
    assert run("lockstep", "--version", **options).strip().endswith(wheel.name.split("-")[1])
    rows = {row["name"]: row for row in json.loads(run("lockstep", "models", "--json", **options))["models"]}
    for model in ROOT.glob("models/*.gguf"):
        assert rows[model.stem]["here"] and str(root) in rows[model.stem]["path"], rows[model.stem]
    run("python", "-c", USE, **options)
    # capture finds the package beside the program, and says what is missing.
    told = subprocess.run(["lockstep", "capture", "transformers", "-m", "x", "-p", "x", "-o", "y", "--python", scripts / "python"],
                          capture_output=True, text=True, **options)  # fmt: skip
    assert told.returncode == 2 and "torch" in told.stderr, told
    run("python", "-c", "import importlib.metadata as m; e = [e for e in m.distribution('lockstep').entry_points "
        "if e.group == 'pytest11']; assert e[0].value == 'lockstep.pytest_plugin'", **options)  # fmt: skip


def main():
    try:
        wheel = Path(sys.argv[1] if len(sys.argv) > 1 else run(ROOT / "scripts/wheel").strip().splitlines()[-1])
    except SystemExit as problem:
        if "No matching distribution" in str(problem) or "Could not fetch" in str(problem):
            print(f"skipped: the tools that build wheels cannot be installed here: {problem}")
            return SKIPPED
        raise
    wheel = wheel if wheel.is_absolute() else ROOT / wheel
    check_name(wheel)
    for version, python in sorted(pythons(sys.argv[2:]).items()):
        with tempfile.TemporaryDirectory() as folder:
            check(python, wheel, Path(folder))
        print(f"{wheel.name} works with Python {version[0]}.{version[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
