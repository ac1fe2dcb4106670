"""Traces survive what happens to processes and disks: kill -9 at random moments, a full disk, folders that cannot be written."""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
RUN = [PROGRAM, "run", "-p", "GPU haiku with word seven: ", "--ignore-eos"]


def whole_shard(path):
    """The names in a shard, whose data is all there."""
    shard = path.read_bytes()
    size = int.from_bytes(shard[:8], "little")
    header = json.loads(shard[8 : 8 + size])
    assert len(shard) == 8 + size + max(entry["data_offsets"][1] for entry in header.values())
    return set(header)


def check(folder):
    """The manifest; every shard that it names is whole."""
    manifest = json.loads((folder / "manifest.json").read_text())
    shards = {name: whole_shard(folder / name) for name in {step["shard"] for step in manifest["steps"]}}
    for step in manifest["steps"]:
        for checkpoint in manifest["checkpoints"]:
            assert f"{step['index']}/{checkpoint['name']}" in shards[step["shard"]]
    return manifest


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.work.name) / "trace"
        self.addCleanup(self.work.cleanup)

    def run_program(self, *flags, **options):
        return subprocess.run([*RUN, *flags], capture_output=True, text=True, check=False, **options)

    def test_kill_at_random_moments(self):
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        with self.subTest(seed=seed):
            lifetime = {}
            for checkpoints in ("layers", "ops", "all"):
                folder = self.folder.with_name(checkpoints)
                began = time.monotonic()
                done = self.run_program("-n", "240", "--trace", str(folder), "--checkpoints", checkpoints)
                lifetime[checkpoints] = time.monotonic() - began
                self.assertEqual(done.returncode, 0)
                whole = check(folder)
                self.assertTrue(whole["complete"])
            steps = []
            for attempt in range(50):
                folder = self.folder.with_name(f"trace{attempt}")
                checkpoints = rng.choice(list(lifetime))
                command = [*RUN, "-n", "240", "--trace", str(folder), "--checkpoints", checkpoints]
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                while not (folder / "manifest.json").exists() and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(rng.random() * lifetime[checkpoints])
                process.kill()
                ended = process.wait()
                self.assertIn(ended, (0, -signal.SIGKILL))
                manifest = check(folder)
                # Killed between the last line of the manifest and the end of the process, a trace is complete.
                everything = (len(manifest["steps"]), manifest["tokens"]) == (len(whole["steps"]), whole["tokens"])
                self.assertTrue(everything if manifest["complete"] else ended == -signal.SIGKILL)
                steps.append(len(manifest["steps"]))
                shutil.rmtree(folder)
            print(f"killed 50 times; steps that were whole: {sorted(steps)}")

    def test_full_disk_keeps_the_text(self):
        plain = self.run_program("-n", "200")
        # Python ignores SIGXFSZ, and so does the child: writing beyond the limit is an error then.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        done = self.run_program("-n", "200", "--trace", str(self.folder), preexec_fn=limit)
        self.assertEqual(done.stdout, plain.stdout)
        self.assertEqual(done.returncode, 2)
        self.assertIn("safetensors: cannot write: File too large", done.stderr)
        self.assertIn("the recording failed", done.stderr)
        self.assertEqual(list(self.folder.parent.iterdir()), [])  # no step was whole

    def test_a_value_before_the_logits(self):
        """It has all rows, where only the last row of logits is computed."""
        for device in ("reference", "cpu"):
            for logits in ("all", "last"):
                folder = self.folder.with_name(f"{device}-{logits}")
                done = self.run_program("-m", "haiku-granite", "-n", "3", "--device", device, "--trace", str(folder),
                                        "--checkpoints", "output_projection,logits", "--logits", logits)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(check(folder)["complete"])

    def test_folder_that_is_there_is_not_written_over(self):
        self.folder.mkdir()
        (self.folder / "mine").write_text("precious")
        done = self.run_program("-n", "4", "--trace", str(self.folder))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("exists and is not empty", done.stderr)
        self.assertEqual((self.folder / "mine").read_text(), "precious")

    def test_place_that_cannot_be_written(self):
        file = pathlib.Path(self.work.name) / "file"
        file.write_text("")
        for place in (file, file / "below", "/proc/nowhere"):
            done = self.run_program("-n", "4", "--trace", str(place))
            self.assertEqual((done.returncode, done.stdout), (2, ""), place)
            self.assertIn(str(place), done.stderr)

    def test_a_signal_leaves_a_trace_that_says_so(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(signal=number):
                folder = pathlib.Path(f"{self.folder}-{number}")
                process = subprocess.Popen([*RUN, "-n", "1000", "--trace", str(folder)],
                                           stdout=subprocess.PIPE, text=True)
                process.stdout.read(1)
                process.send_signal(number)
                rest = process.stdout.read()
                self.assertEqual(process.wait(), status)
                process.stdout.close()
                manifest = check(folder)
                self.assertFalse(manifest["complete"])
                self.assertTrue(rest.endswith("\n"))
                last = manifest["steps"][-1]
                self.assertGreaterEqual(len(manifest["tokens"]), last["first_pos"] + last["n_tokens"])


if __name__ == "__main__":
    os.umask(0o022)
    unittest.main()
