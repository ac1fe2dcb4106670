"""lockstep models pull: servers that are too slow or never end, signals, full disks, links in the way."""

import pathlib
import resource
import signal
import subprocess
import time
import unittest

from server import PROGRAM, PullTest, SlowServer


class Stop(PullTest):
    def test_stall(self):
        server = SlowServer(self.data)
        self.addCleanup(server.close)
        url = f"http://127.0.0.1:{server.port}/model.gguf"
        done = self.run_it([PROGRAM, "models", "pull", "m", "--url", url, "--stall", "1",
                            "--retries", "0"])  # fmt: skip
        self.assert_failed(done, "too slow", "are kept")
        self.assertEqual(self.part.read_bytes(), self.data[: server.sent])

    def test_drip(self):
        done = self.pull("drip", "--stall", "1", "--retries", "1")
        self.assert_failed(done, "too slow", "are kept")
        self.assertEqual(len(self.state["log"]), 2)  # a few bytes are no reason to ask for ever
        self.assertTrue(self.data.startswith(self.part.read_bytes()))

    def test_endless(self):
        done = self.pull("endless", "--most", "1")
        self.assert_failed(done, "does not say how large the file is", "more than 1000000 bytes")
        self.assertLessEqual(self.part.stat().st_size, 1_000_000)

    def test_links_are_not_followed(self):
        self.models.mkdir(parents=True)
        victim = pathlib.Path(self.folder.name, "victim")
        for name in ("m.gguf.part", "m.gguf.lock", "m.gguf.part.json"):
            victim.write_text("precious")
            (self.models / name).symlink_to(victim)
            done = self.pull("whole")
            self.assertEqual(victim.read_text(), "precious", name)
            if name == "m.gguf.part":
                self.assert_failed(done, "symbolic link")
            (self.models / name).unlink(missing_ok=True)
            self.final.unlink(missing_ok=True)

    def test_interrupt_and_lock(self):
        server = SlowServer(self.data)
        self.addCleanup(server.close)
        url = f"http://127.0.0.1:{server.port}/model.gguf"
        command = [PROGRAM, "models", "pull", "m", "--url", url]
        first = subprocess.Popen(
            command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        deadline = time.time() + 30
        while not (self.part.exists() and self.part.stat().st_size == server.sent):
            self.assertLess(time.time(), deadline, "the first bytes never came")
            time.sleep(0.02)
        self.assert_failed(self.run_it(command), "under way already")
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=30)
        self.assertEqual(first.returncode, 2)
        self.assertIn(b"interrupted", errors)
        self.assertEqual(self.part.read_bytes(), self.data[: server.sent])
        self.assertFalse(self.final.exists())
        self.assertFalse(pathlib.Path(f"{self.final}.lock").exists())

    def test_killed(self):
        # Not even the last words of the program are needed to go on.
        server = SlowServer(self.data)
        self.addCleanup(server.close)
        url = f"http://127.0.0.1:{server.port}/model.gguf"
        first = subprocess.Popen(
            [PROGRAM, "models", "pull", "m", "--url", url], env=self.environment(),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.time() + 30
        while not (self.part.exists() and self.part.stat().st_size == server.sent):
            self.assertLess(time.time(), deadline, "the first bytes never came")
            time.sleep(0.02)
        first.kill()
        first.wait()
        self.assertEqual(self.part.read_bytes(), self.data[: server.sent])
        self.assertFalse(self.final.exists())
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))

    def test_disk_full(self):
        limit = len(self.data) // 2

        def little_room():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.assert_failed(self.pull("whole", preexec_fn=little_room), "cannot write", "are kept")
        self.assertEqual(self.part.read_bytes(), self.data[:limit])
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))


if __name__ == "__main__":
    unittest.main()
