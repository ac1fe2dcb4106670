"""The command `lockstep` of a wheel: the program that lies in the package, without importing the package."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lockstep", "bin", "lockstep")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as problem:
        sys.exit(f"lockstep: {program}: {problem.strerror}")
