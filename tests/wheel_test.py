"""A wheel in an empty environment, outside the source tree: the program, its models, the package, capture and pytest's plugin work.

usage: wheel_test.py [WHEEL [PYTHON...]]   without a wheel: scripts/wheel builds it
       wheel_test.py --program PROGRAM [PYTHON...]   a wheel around a program that was built before: for this machine alone
It is tried with every Python from 3.9 on that is named, or that is in PATH or pyenv; with the newest one also in a notebook, with pandas and pytest.
Exits with 77 (skipped) where pip can download nothing.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77
# What every system has, by the rules for manylinux wheels.
SYSTEM = re.compile(r"(ld-linux[\w-]*|lib(c|m|dl|rt|pthread|resolv|gcc_s|z))\.so\.[\d.]+$")

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

WITH_OTHERS = """
import nbclient, nbformat, pathlib, sys
import lockstep
found = lockstep.compare("truth.trace", "mineTrue.trace")
table = found.to_dataframe()
assert table.loc[table["name"] == "blk.1.k", "verdict"].tolist() == ["defect"], table
assert len(table) == len(found.checkpoints) and "<iframe" in found._repr_html_()
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(pathlib.Path(sys.argv[1]).parent)}}).execute()
shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
assert any("<iframe" in data.get("text/html", "") for data in shown), shown
"""

TESTS = """
def test_right(lockstep_parity):
    assert lockstep_parity("truth.trace", "mineFalse.trace").verdict == "exact"

def test_wrong(lockstep_parity):
    lockstep_parity("truth.trace", "mineTrue.trace")
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        if "No matching distribution" in done.stdout or "Could not fetch" in done.stdout:
            print(f"skipped: pip cannot download what is needed: {done.stdout[-500:]}")
            raise SystemExit(SKIPPED)
        raise SystemExit(f"{' '.join(map(str, command))[:300]}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def around(program, folder):
    """A wheel with a program that was built before."""
    run(sys.executable, "-m", "venv", folder / "tools")
    run(folder / "tools/bin/pip", "wheel", ROOT, "--quiet", "--disable-pip-version-check", "--no-deps", "-w", folder,
        f"--config-settings=build-dir={folder}/build", f"--config-settings=cmake.define.LOCKSTEP_PROGRAM={program.resolve()}")  # fmt: skip
    (wheel,) = folder.glob("lockstep-*.whl")
    return wheel


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
    """No program or library in the wheel needs a newer C library than the wheel's name says, a library of CUDA, or one that
    neither the wheel nor every system has: the machine at hand may have it."""
    told = re.search(r"manylinux_2_(\d+)_", wheel.name)
    with zipfile.ZipFile(wheel) as files:
        inside = {name.rpartition("/")[2] for name in files.namelist()}
        for name in files.namelist():
            content = files.read(name) if "/bin/" in name or ".so" in name else b""
            if not content.startswith(b"\x7fELF"):
                continue
            strings = section(content, b".dynstr")  # names of libraries and symbols that the loader looks for
            needed = max(map(int, re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", strings)), default=0)
            assert told is None or needed <= int(told[1]), f"{wheel.name}: {name} needs glibc 2.{needed}"
            elsewhere = [found for found in libraries(content, strings) if found not in inside and not SYSTEM.match(found)]
            assert told is None or not elsewhere, f"{wheel.name}: {name} needs {elsewhere}, which it does not bring along"
            cuda = re.search(rb"\0lib(cu(da|dart|blas)\w*)\.so[.\d]*(?=\0)", strings)
            assert cuda is None, f"{wheel.name}: {name} needs {cuda[1].decode()}"


def section(elf, wanted):
    """A section of a 64-bit ELF file."""
    (table,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<II4Q", elf, table + size * i) for i in range(count)]
    start = sections[names][4]
    for name, _, _, _, offset, length in sections:
        if elf[start + name :].startswith(wanted + b"\0"):
            return elf[offset : offset + length]
    return b""


def libraries(elf, strings):
    """What the loader is told to load: the entries NEEDED of the section .dynamic."""
    entries = struct.iter_unpack("<qQ", section(elf, b".dynamic"))
    return [strings[value : strings.index(b"\0", value)].decode() for tag, value in entries if tag == 1]


def check_with_others(root, options):
    """pandas, a notebook and pytest beside the package."""
    run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pandas", "pytest", "nbclient", "ipykernel", **options)
    shutil.copytree(ROOT / "examples", root / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    run("python", "-c", WITH_OTHERS, root / "examples/find_a_bug.ipynb", **options)
    (root / "test_mine.py").write_text(TESTS)
    told = subprocess.run(["python", "-m", "pytest", "--lockstep-report=pages", "test_mine.py"], capture_output=True, text=True, **options)
    assert told.returncode == 1 and "1 failed, 1 passed" in told.stdout and "blk.1.k" in told.stdout, told
    assert sorted(page.name for page in root.glob("pages/*")) == ["test_mine.py_test_right.html", "test_mine.py_test_wrong.html"]


def check(python, wheel, root, with_others):
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
    assert "Cause: " in run("lockstep", "demo", "bug", **options)
    if with_others:
        check_with_others(root, options)


def main():
    named = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if named[:1] == ["--program"]:
            wheel, named = around(Path(named[1]), Path(folder)), named[2:]
        else:
            wheel, named = ROOT / (named[0] if named else run(ROOT / "scripts/wheel").strip().splitlines()[-1]), named[1:]
        check_name(wheel)
        found = sorted(pythons(named).items())
        for version, python in found:
            with tempfile.TemporaryDirectory(prefix="with a space ") as root:
                check(python, wheel, Path(root), version == found[-1][0])
            print(f"{wheel.name} works with Python {version[0]}.{version[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
