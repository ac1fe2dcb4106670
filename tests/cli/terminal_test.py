"""Whatever files hold, nothing of it drives the terminal: names, metadata, and the text of a model.

usage: terminal_test.py PROGRAM
"""

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "haiku-llama-q4_k_m.gguf"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
EVIL = "\x1b]0;title\x07\x9b31m\u202e\x7f\r\x08"


class TerminalTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.env = {**os.environ, "XDG_CACHE_HOME": str(self.root / "cache"), "NO_COLOR": "1", "TERM": "xterm"}

    def on_terminal(self, *arguments, statuses=(0,)):
        """What a command prints when standard output and standard error are a terminal."""
        parent, child = pty.openpty()
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=child,
                                   stderr=child, env=self.env)
        os.close(child)
        out = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        os.close(parent)
        self.assertIn(process.wait(), statuses, (arguments, out))
        text = out.decode().replace("\r\n", "\n")  # the terminal's own line ends
        # Progress takes its line back, when it is done.
        return re.sub("\r\x1b\\[K|\r", "", text) if "\r\x1b[K" in text else text

    def check(self, *arguments, statuses=(0,)):
        text = self.on_terminal(*arguments, statuses=statuses)
        self.assertIsNone(UNSAFE.search(text), (arguments, text))
        self.assertTrue(text.strip(), arguments)
        return text

    def piped(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True, env=self.env).stdout

    def patched(self, name, *changes):
        data = MODEL.read_bytes()
        for old, new in changes:
            self.assertEqual(len(old), len(new))
            self.assertIn(old, data)
            data = data.replace(old, new, 1)
        path = self.root / name
        path.write_bytes(data)
        return path

    def test_model_files(self):
        path = self.patched("m.gguf", (b"haiku-llama", b"\x1b]0;x\x07\xc2\x9bmab"),
                            (b"blk.0.attn_q.weight", b"\x1b[2J\xc2\x9b31mq.weight.x"))
        for arguments in (("inspect", path), ("inspect", path, "--json"), ("inspect", path, "--tensors", "--metadata"),
                          ("inspect", path, "--json", "--tensors", "--metadata"), ("tensor", "-m", path),
                          ("tensor", "-m", path, "--json"), ("tensor", "-m", path, b"\x1b[2J\xc2\x9b31mq.weight.x".decode()),
                          ("tokenize", "-m", path, "--json", "-p", EVIL), ("tokenize", "-m", path, "-p", EVIL)):
            self.check(*arguments)
        listed = json.loads(self.piped("inspect", path, "--json", "--tensors"))
        self.assertIn("\x1b[2J\x9b31mq.weight.x", [tensor["name"] for tensor in listed["tensors"]])
        self.check("run", "-m", path, "-p", "x", statuses=(2,))
        self.check("quantize", path, self.root / "q.gguf", "--type", "q8_0", statuses=(0, 2))

    def test_model_names(self):
        folder = self.root / "cache" / "lockstep" / "models"
        folder.mkdir(parents=True)
        path = folder / (EVIL.replace("/", "") + ".gguf")
        shutil.copy(MODEL, path)
        for arguments in (("models",), ("models", "--json"), ("inspect", path), ("inspect", path, "--json")):
            self.check(*arguments)

    def test_traces_and_logs(self):
        trace = self.root / "trace"
        self.piped("run", "-m", MODEL, "-p", "GPU haiku", "-n", "3", "--threads", "1", "--trace", trace)
        manifest = json.loads((trace / "manifest.json").read_text())
        evil_name = "embe\x9bing"
        for checkpoint in manifest["checkpoints"]:
            checkpoint["name"] = checkpoint["name"].replace("embedding", evil_name)
        manifest["engine"].update(name=EVIL, version=EVIL, device=EVIL)
        manifest.update(prompt=EVIL, notes=[EVIL], unmapped=[EVIL])
        manifest["model"].update(file=EVIL, quantization=EVIL)
        manifest["sampling"][EVIL] = EVIL
        (trace / "manifest.json").write_text(json.dumps(manifest))
        for shard in trace.glob("*.safetensors"):
            shard.write_bytes(shard.read_bytes().replace(b"embedding", evil_name.encode()))
        log = self.root / "log.jsonl"
        self.check("export", trace, "--jsonl", log, "--npz", self.root / "x.npz")
        log.write_text(log.read_text() + json.dumps({"checkpoint": EVIL, "team": EVIL, "token_idx": 1,
                                                     "values": [1, 2], "source": EVIL}) + "\noops " + EVIL + "\n")
        for arguments in (("scan", trace), ("scan", trace, "--json"), ("scan", trace, "--stats"), ("scan", log),
                          ("scan", log, "--json"), ("scan", trace, "--compare", log), ("scan", trace, log),
                          ("compare", trace, trace), ("compare", trace, trace, "--json"),
                          ("compare", trace, trace, "-m", MODEL), ("compare", trace, trace, "-m", MODEL, "--json"),
                          ("compare", trace, log), ("import", log, self.root / "imported")):
            self.check(*arguments, statuses=(0, 1))
        shutil.rmtree(self.root / "imported")
        self.check("import", log, self.root / "imported", "--json", statuses=(0, 1))

    def test_text_of_a_model(self):
        # Of random weights every byte comes, control characters too.
        model = self.root / "random.gguf"
        self.piped("forge", "--arch", "gpt2", "--layers", "1", "--width", "64", "--type", "f32", "--seed", "3",
                   "--tokenizer", MODEL.with_name("haiku-gpt2-f32.gguf"), model)
        command = ("run", "-m", model, "-p", "x", "-n", "200", "--temp", "5", "--seed", "7", "--threads", "1",
                   "--ignore-eos")
        self.assertIsNotNone(UNSAFE.search(self.piped(*command).decode(errors="replace")))
        self.check(*command)
        self.check(*command, "--json")
        ids = self.piped("tokenize", "-m", model, "-p", "a\tb\n" + EVIL).decode()
        self.assertIn(EVIL.encode(), self.piped("tokenize", "-m", model, "--decode", "-p", ids))
        shown = self.check("tokenize", "-m", model, "--decode", "-p", ids)
        self.assertIn("b\n\\x1b]0;title\\x07\\u009b31m\\u202e\\u007f\\r\\x08", shown)


if __name__ == "__main__":
    unittest.main()
