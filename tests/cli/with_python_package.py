"""Runs the tests that need python/ installed, in an environment of their own under the build folder.

usage: with_python_package.py BUILD_FOLDER PROGRAM
Exits with 77 (skipped) where pip cannot install what they need.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

SKIPPED = 77


def style_checks(python: Path, package: Path) -> list:
    """ruff and mypy at work, as python/pyproject.toml has them."""
    commands = (["ruff", "check", "--no-cache", "lockstep", "lockstep_command.py", "tests", *sorted(package.parent.glob("examples/*.py"))],
                ["mypy", "--cache-dir", str(python.parents[2] / "mypy"), "lockstep", "lockstep_command.py"])  # fmt: skip
    return [subprocess.Popen([python, "-m", *command], cwd=package) for command in commands]


def main() -> int:
    build, program = Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2])
    root = Path(__file__).resolve().parents[2]
    home = build / "python-tests"
    python = home / "venv" / "bin" / "python"
    try:
        if not python.exists():
            venv.create(home / "venv", with_pip=True, clear=True)
        # pip leaves files where it builds; the checkout stays clean.
        source = home / "package"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(root / "python", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        f"{source}[test]"], check=True)
        # The same version as last time, perhaps with other contents.
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--no-deps", "--force-reinstall", source], check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"skipped: the Python package cannot be installed here: {problem}")
        return SKIPPED
    checks = style_checks(python, root / "python")
    failed = 0
    environment = dict(os.environ, LOCKSTEP=program, LOCKSTEP_MODELS=str(root / "models"))
    for test in (*sorted((root / "python/tests").glob("test_*.py")), root / "tests/cli/package_test.py",
                 root / "tests/cli/examples_test.py", root / "tests/docs/ten_lines_test.py"):
        outcome = subprocess.run([python, test, "-v"], env=environment, cwd=home)
        if outcome.returncode != 0:
            failed = 1
    return max([failed, *(check.wait() for check in checks)])


if __name__ == "__main__":
    sys.exit(main())
