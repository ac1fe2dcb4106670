"""lockstep models pull: models that lie in an archive."""

import io
import random
import resource
import unittest
import zipfile

from server import SEED, PullTest, gguf_file


class Archive(PullTest):
    def zipped(self, method=zipfile.ZIP_DEFLATED, member="pkg/model.gguf"):
        """The server's file becomes an archive with the model in it; the flags to get it out."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            archive.writestr("pkg/__init__.py", "x = 1\n")
            archive.writestr(member, self.data)
            archive.writestr("pkg-1.dist-info/RECORD", "")
        self.state["data"] = buffer.getvalue()
        return ["--member", "pkg/model.gguf"]

    def test_model_in_an_archive(self):
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            with self.subTest(method=method):
                self.assert_complete(self.pull("whole", *self.zipped(method), "--sha256", self.sha256))
                self.final.unlink()

    def test_archive_resumed(self):
        flags = self.zipped()
        self.state["cut"] = cut = len(self.state["data"]) // 2
        self.assert_failed(self.pull("whole", *flags, "--retries", "0"), "are kept in")
        self.state["cut"] = None
        self.state["log"].clear()
        self.assert_complete(self.pull("whole", *flags))
        self.assertEqual(self.state["log"], [("whole", f"bytes={cut}-", '"one"')])

    def test_archive_that_is_wrong(self):
        flags = self.zipped(member="pkg/other.gguf")
        self.assert_failed(self.pull("whole", *flags), "has no 'pkg/model.gguf'", "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])
        flags = self.zipped()
        self.assert_failed(self.pull("whole", *flags, "--sha256", "ab" * 32), self.sha256, "ab" * 32)
        self.assertEqual(list(self.models.iterdir()), [])
        broken = bytearray(self.state["data"])
        broken[len(broken) // 2] ^= 0x55
        self.state["data"] = bytes(broken)
        self.assert_failed(self.pull("whole", *flags), "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])
        self.state["data"] = self.data
        self.assert_failed(self.pull("whole", *flags), "no zip archive", "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_archive_unpacked_onto_a_full_disk(self):
        # A tensor of zeros: the archive is much smaller than the model.
        self.data = gguf_file(100_001, random.Random(SEED))[: -4 * 100_001] + bytes(4 * 100_001)
        flags = self.zipped()
        limit = len(self.state["data"]) + 1000
        self.assertLess(limit, len(self.data))

        def little_room():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.assert_failed(self.pull("whole", *flags, preexec_fn=little_room), "cannot write")
        self.assertEqual(self.part.read_bytes(), self.state["data"])  # no need to fetch it again
        self.state["log"].clear()
        self.assert_complete(self.pull("whole", *flags))
        self.assertEqual(self.state["log"], [])


if __name__ == "__main__":
    unittest.main()
