"""A run on several threads that is recorded, and its comparison on several threads."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())


def call(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


class Threads(unittest.TestCase):
    def test_record_and_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            traces = {device: str(pathlib.Path(folder) / device) for device in ("cpu", "reference")}
            for device, trace in traces.items():
                call("run", "-m", "haiku", "--tokens", "1,2,3,4,5,6,7", "-n", "3", "--device", device, "--threads", "3", "--trace", trace)
            said = call("compare", traces["reference"], traces["cpu"], "-m", "haiku", "--threads", "3")
            self.assertIn("In parity", said)


if __name__ == "__main__":
    unittest.main()
