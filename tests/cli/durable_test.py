"""Recordings with --durable: what is named on the disk is there itself, in the order in which the power may fail.

usage: durable_test.py LOCKSTEP LOG_SYNCS_LIBRARY EXIT_PROGRAM
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from worker import Worker  # noqa: E402

PROGRAM, LIBRARY, EXIT_PROGRAM = (str(pathlib.Path(sys.argv.pop(1)).resolve()) for _ in range(3))


def inode(path):
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}"


class DurableTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.work = pathlib.Path(holder.name)
        self.log = self.work / "syncs"
        self.env = {**os.environ, "LD_PRELOAD": LIBRARY, "LOG_SYNCS": str(self.log),
                    "XDG_CACHE_HOME": str(self.work / "cache")}

    def events(self):
        """(what, inode, bytes, path) of each call, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(*line.split(" ", 3)[:3], line.split(" ", 3)[3]) for line in lines]

    def check(self, trace, made):
        """All names in a trace; `made`: the folders that were made for it."""
        folder, synced, waiting, names = inode(trace), set(), [], []
        parents = {inode(path.parent) for path in made}
        for what, file, size, path in self.events():
            if what == "sync":
                synced.add((file, size))
                parents.discard(file)
                waiting = [] if file == folder else waiting
            elif pathlib.Path(path).parent == trace and ".part" not in path:
                self.assertIn((file, size), synced, f"{path} has its name before it is on the disk")
                self.assertEqual(waiting, [], f"{path} has its name before the folder is on the disk")
                waiting = [path]
                names.append(pathlib.Path(path).name)
        self.assertEqual(waiting, [])
        self.assertEqual(parents, set(), "the name of a folder that was made is not on the disk")
        self.assertEqual(names[-1], "manifest.json")
        self.assertEqual(sorted(set(names)), sorted(path.name for path in trace.iterdir()))
        self.assertGreater(len(set(names)), 1)

    def check_nothing_synced(self, trace):
        files = {inode(path) for path in (trace, trace.parent, *trace.iterdir())}
        self.assertEqual([event for event in self.events() if event[0] == "sync" and event[1] in files], [])
        self.assertIn("manifest.json", [pathlib.Path(event[3]).name for event in self.events()])

    def run_recorded(self, trace, *flags):
        subprocess.run([PROGRAM, "run", "-m", "haiku", "-p", "GPU haiku", "-n", "5", "--threads", "1", "--trace", trace,
                        *flags], check=True, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def test_run(self):
        trace = self.work / "a" / "b" / "trace"
        self.run_recorded(trace, "--durable")
        self.check(trace, [trace, trace.parent, trace.parent.parent])

    def test_run_into_a_folder_that_is_there(self):
        trace = self.work / "trace"
        trace.mkdir()
        self.run_recorded(trace, "--durable", "--checkpoints", "all")
        self.check(trace, [])

    def test_run_without_it(self):
        trace = self.work / "trace"
        self.run_recorded(trace)
        self.check_nothing_synced(trace)

    def test_it_needs_a_trace(self):
        done = subprocess.run([PROGRAM, "run", "-p", "x", "--durable"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--trace", done.stderr)

    def test_serve(self):
        for name, flags in (("durable", ["--durable"]), ("plain", [])):
            traces = self.work / name / "traces"
            self.log.unlink(missing_ok=True)
            with Worker(PROGRAM, "--trace-dir", str(traces), *flags, env=self.env) as worker:
                status, _, _ = worker.request("POST", "/execute", {"job_id": "1", "prompt": "GPU", "max_tokens": 3})
                self.assertEqual(status, 200)
                worker.stop()
            if flags:
                self.check(traces / "1", [traces / "1", traces, traces.parent])
            else:
                self.check_nothing_synced(traces / "1")

    def test_the_header_for_other_engines(self):
        for mode in ("durable", "durable_large", "flushed"):
            trace = self.work / mode / "trace"
            self.log.unlink(missing_ok=True)
            subprocess.run([EXIT_PROGRAM, trace, "7", mode], check=True, env=self.env)
            if mode == "flushed":
                self.check_nothing_synced(trace)
            else:
                self.check(trace, [trace, trace.parent])


if __name__ == "__main__":
    unittest.main()
