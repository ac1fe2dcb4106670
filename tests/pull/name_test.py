"""lockstep models pull: names of known models, names from URLs, and wrong use."""

import json
import unittest

from server import PROGRAM, PullTest


class Name(PullTest):
    def test_known_name(self):
        # From the hub, whose file is another one: the size gives it away before a byte is kept.
        done = self.run_it([PROGRAM, "models", "pull", "TinyLlama-1.1B-Chat"])
        self.assertEqual(done.returncode, 2)
        self.assertIn(
            f"{self.base}/TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF/resolve/main/"
            f"tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf: the server has a file of {len(self.data)} "
            "bytes, expected 668788096",
            done.stderr,
        )
        self.assertEqual(list(self.models.glob("*.gguf")), [])

    def test_known_name_of_unknown_size(self):
        done = self.run_it([PROGRAM, "models", "pull", "gpt2"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.models.joinpath("gpt2-f16.gguf").read_bytes(), self.data)
        listed = json.loads(self.run_it([PROGRAM, "models", "--json"]).stdout)
        row = next(row for row in listed["models"] if row["name"] == "gpt2-f16")
        self.assertTrue(row["here"])
        self.assertEqual(row["size_bytes"], len(self.data))
        self.assertEqual(row["path"], str(self.models / "gpt2-f16.gguf"))

    def test_name_from_url(self):
        url = f"{self.base}/whole/Other.gguf?download=true"
        done = self.run_it([PROGRAM, "models", "pull", "--url", url])
        self.assertEqual(done.stdout, f"{self.models}/Other.gguf\n")

    def test_wrong_use(self):
        for flags, words in [
            ([], "expected the NAME"),
            (["tinylama"], "did you mean tinyllama-1.1b-chat-q4_k_m?"),
            (["../m", "--url", self.base + "/whole/m.gguf"], "no name for a model"),
            (["m", "--url", "file:///etc/passwd"], "https:// or http://"),
            (["m", "--url", self.base + "/whole/m.gguf", "--sha256", "12"], "64 hexadecimal"),
        ]:
            done = self.run_it([PROGRAM, "models", "pull", *flags])
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(words, done.stderr)
        self.assertEqual(self.state["log"], [])
        self.assertFalse(self.models.exists() and list(self.models.iterdir()))


if __name__ == "__main__":
    unittest.main()
