"""Commands that write a file and are ended before it is whole leave nothing behind.

usage: signals_test.py LOCKSTEP
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
FORGE = [PROGRAM, "forge", "--arch", "llama", "--layers", "8", "--width", "1024", "--type", "f16"]


def unnamed_files_work(folder):
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o666))
    except OSError:
        return False
    return os.path.isdir("/proc/self/fd")


class SignalsTest(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.work.name)
        self.addCleanup(self.work.cleanup)

    def end_early(self, command, number, delay):
        """The status of a command that gets a signal while it writes."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(number)
        return process.wait()

    def check(self, command, target):
        signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        if unnamed_files_work(self.folder):
            signals.append(signal.SIGKILL)
        before = set(self.folder.iterdir())
        for number in signals:
            with self.subTest(signal=number):
                delay, status = 0.2, 0
                while status == 0 and delay > 0.001:  # it was done before the signal came
                    target.unlink(missing_ok=True)
                    status = self.end_early(command, number, delay)
                    delay /= 2
                self.assertEqual(status, -number)
                self.assertEqual(set(self.folder.iterdir()), before)

    def test_forge(self):
        target = self.folder / "new.gguf"
        self.check([*FORGE, str(target)], target)

    def test_quantize(self):
        source, target = self.folder / "source.gguf", self.folder / "new.gguf"
        subprocess.run([*FORGE, str(source)], check=True, capture_output=True)
        self.check([PROGRAM, "quantize", str(source), str(target), "Q4_K_M"], target)


if __name__ == "__main__":
    unittest.main()
