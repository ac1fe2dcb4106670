"""lockstep models pull: whole downloads, resumed ones, and what servers send instead."""

import json
import pathlib
import random
import unittest

from server import SEED, PullTest, gguf_file

CERTIFICATE = pathlib.Path(__file__).with_name("server.pem")  # with its key


class Download(PullTest):
    def test_whole(self):
        self.assert_complete(self.pull("whole", "--sha256", self.sha256.upper()))

    def test_without_a_hash(self):
        done = self.pull("whole")
        self.assert_complete(done)
        self.assertIn(f"{self.sha256} (nothing to compare it with)", done.stderr)

    def test_there_already(self):
        self.pull("whole")
        self.state["log"].clear()
        done = self.pull("whole", "--sha256", self.sha256)
        self.assert_complete(done)
        self.assertIn("there already", done.stderr)
        self.assertEqual(self.state["log"], [])

    def test_there_but_broken(self):
        self.models.mkdir(parents=True)
        self.final.write_bytes(self.data[:-1])
        done = self.pull("whole", "--sha256", self.sha256)
        self.assert_complete(done)
        self.assertIn("not right", done.stderr)

    def test_resume(self):
        cut = self.cut_off()
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))
        self.assertEqual(self.state["log"], [("whole", f"bytes={cut}-", '"one"')])

    def test_resume_in_one_run(self):
        self.state["cut"] = cut = len(self.data) // 2
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))
        self.assertEqual([entry[1] for entry in self.state["log"]], [None, f"bytes={cut}-"])

    def test_resume_of_all_but_the_checks(self):
        self.cut_off()
        self.part.write_bytes(self.data)
        self.assert_complete(self.pull("whole"))
        self.assertEqual(self.state["log"], [])

    def test_server_without_ranges(self):
        cut = self.cut_off(mode="no-ranges")
        self.assert_complete(self.pull("no-ranges", "--sha256", self.sha256))
        self.assertEqual(self.state["log"], [("no-ranges", f"bytes={cut}-", '"one"')])

    def test_server_with_wrong_range(self):
        cut = self.cut_off(mode="wrong-range")
        self.assert_complete(self.pull("wrong-range", "--sha256", self.sha256))
        self.assertEqual([entry[1] for entry in self.state["log"]], [f"bytes={cut}-", None])

    def test_changed_file(self):
        self.cut_off()
        self.data = self.state["data"] = gguf_file(50_001, random.Random(SEED))
        self.state["etag"] = '"two"'
        self.assert_complete(self.pull("whole"))

    def test_changed_file_without_etag(self):
        self.cut_off(mode="no-etag")
        self.data = self.state["data"] = gguf_file(90_001, random.Random(SEED))
        self.assert_complete(self.pull("no-etag"))

    def test_other_url(self):
        self.cut_off(mode="no-etag")
        self.assert_complete(self.pull("whole"))
        self.assertIsNone(self.state["log"][0][1])

    def test_part_too_long(self):
        self.cut_off()
        self.part.write_bytes(self.data + b"more")
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))

    def test_part_without_origin(self):
        self.cut_off()
        self.models.joinpath("m.gguf.part.json").write_text("{")
        self.assert_complete(self.pull("whole"))
        self.assertIsNone(self.state["log"][0][1])

    def test_wrong_hash(self):
        self.assert_failed(self.pull("whole", "--sha256", "ab" * 32), self.sha256, "ab" * 32)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_wrong_bytes_resumed(self):
        cut = self.cut_off()
        self.part.write_bytes(bytes(cut))
        self.assert_failed(self.pull("whole", "--sha256", self.sha256), "SHA-256")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_no_gguf_file(self):
        self.state["data"] = b"<html>log in first</html>"
        self.assert_failed(self.pull("whole"), "GGUF")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_missing(self):
        done = self.pull("missing")
        self.assert_failed(done, "HTTP status 404 (not found)")
        self.assertEqual(len(self.state["log"]), 1)

    def test_missing_after_a_part(self):
        cut = self.cut_off()
        origin = self.models / "m.gguf.part.json"
        url = f"{self.base}/missing/model.gguf"
        origin.write_text(json.dumps(json.loads(origin.read_text()) | {"url": url}))
        self.assert_failed(self.pull("missing"), "404", "are kept")
        self.assertEqual(self.part.read_bytes(), self.data[:cut])

    def test_busy_server(self):
        self.assert_complete(self.pull("busy"))
        self.assertEqual(len(self.state["log"]), 2)

    def test_without_length(self):
        self.assert_complete(self.pull("no-length", "--sha256", self.sha256))

    def test_without_length_cut_off(self):
        # Nothing says that it is not all, but the tensors do not fit into it.
        self.state["cut"] = len(self.data) - 4
        self.assert_failed(self.pull("no-length"), "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_redirect_with_hash(self):
        done = self.pull("redirect")
        self.assert_complete(done)
        self.assertIn("as expected", done.stderr)

    def test_redirect_with_wrong_hash(self):
        self.state["stated"] = "cd" * 32
        self.assert_failed(self.pull("redirect"), "expected " + "cd" * 32)

    def test_redirect_resumed(self):
        self.state["cut"] = cut = len(self.data) // 2
        done = self.pull("redirect")
        self.assert_complete(done)
        self.assertIn("as expected", done.stderr)
        again = (f"bytes={cut}-", '"one"')  # not the ETag of the redirect
        self.assertEqual([entry[1:] for entry in self.state["log"]], [(None, None)] * 2 + [again] * 2)

    def test_redirect_loop(self):
        self.assert_failed(self.pull("loop"), "redirects")

    def test_https_with_a_certificate_of_ours(self):
        plain = self.base
        self.base = f"https://127.0.0.1:{self.serve(certificate=CERTIFICATE)}"
        self.assert_failed(self.pull("whole", "--retries", "0"), "certificate")
        self.more_environment = {"SSL_CERT_FILE": str(CERTIFICATE)}
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))
        self.final.unlink()
        # Not from https to what others on the way could change.
        self.state["elsewhere"] = f"{plain}/whole/model.gguf"
        self.state["log"].clear()
        self.assert_failed(self.pull("elsewhere", "--retries", "0"), "rotocol")
        self.assertEqual([entry[0] for entry in self.state["log"]], ["elsewhere"])

    def test_https_with_certificates_that_are_not_there(self):
        self.base = f"https://127.0.0.1:{self.serve(certificate=CERTIFICATE)}"
        self.more_environment = {"SSL_CERT_FILE": "/nowhere/certificates.pem"}
        self.assert_failed(self.pull("whole", "--retries", "0"), "/nowhere/certificates.pem")


if __name__ == "__main__":
    unittest.main()
