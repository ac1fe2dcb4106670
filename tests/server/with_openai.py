"""Runs clients_test.py with the openai package, in an environment of its own under the build folder.

usage: with_openai.py BUILD_FOLDER PROGRAM
Exits with 77 (skipped) where pip cannot install it.
"""

import subprocess
import sys
import venv
from pathlib import Path

SKIPPED = 77


def main() -> int:
    build, program = Path(sys.argv[1]), sys.argv[2]
    home = build / "openai-tests"
    python = home / "venv" / "bin" / "python"
    try:
        if not python.exists():
            venv.create(home / "venv", with_pip=True, clear=True)
        if subprocess.run([python, "-c", "import openai"], capture_output=True, check=False).returncode != 0:
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openai"], check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"skipped: the openai package cannot be installed here: {problem}")
        return SKIPPED
    return subprocess.run([python, Path(__file__).with_name("clients_test.py"), program, "-v"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
