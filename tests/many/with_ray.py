"""Runs ray_test.py with Ray and the Python package, in an environment of its own under the build folder.

usage: with_ray.py BUILD_FOLDER PROGRAM
Exits with 77 (skipped) where pip cannot install Ray.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    build, program = Path(sys.argv[1]), sys.argv[2]
    home = build / "ray-tests"
    python = home / "venv" / "bin" / "python"
    try:
        if not python.exists():
            venv.create(home / "venv", with_pip=True, clear=True)
        if subprocess.run([python, "-c", "import numpy, ray"], capture_output=True, check=False).returncode != 0:
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy", "ray"], check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"skipped: Ray cannot be installed here: {problem}")
        return SKIPPED
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    command = [python, Path(__file__).with_name("ray_test.py"), program, "-v"]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
