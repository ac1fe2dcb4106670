#!/usr/bin/env python3
"""lockstep inspect, end to end: inspect_test.py LOCKSTEP FIXTURES"""

import fcntl
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM, FIXTURES = sys.argv[1], sys.argv[2] + "/gguf/"
TYPES = FIXTURES + "types.gguf"
EXPECTED = json.loads(pathlib.Path(FIXTURES + "expected.json").read_text())["types.gguf"]


def run(*args, status=0, **env):
    done = subprocess.run(
        [PROGRAM, "inspect", *args], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == status, (done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def on_terminal(columns, *args, **env):
    """What it prints to a terminal that is so wide."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    base = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen(
        [PROGRAM, "inspect", *args], stdout=child, env={**base, "TERM": "xterm", **env}
    )
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
    assert process.wait() == 0
    return out.decode().replace("\r\n", "\n")


class Inspect(unittest.TestCase):
    def test_json_has_it_all(self):
        out = json.loads(run(TYPES, "--json"))
        self.assertEqual(out["version"], 3)
        self.assertEqual(out["architecture"], "test")
        self.assertEqual(out["name"], "types")
        self.assertEqual(out["size_bytes"], os.path.getsize(TYPES))
        self.assertEqual(out["files"], [TYPES])
        self.assertFalse(out["runs_here"])
        self.assertTrue(out["problems"])
        self.assertEqual(list(out["metadata"]), [row[0] for row in EXPECTED["metadata"]])
        for key, kind, of, value in EXPECTED["metadata"]:
            entry = out["metadata"][key]
            self.assertEqual((entry["type"], entry.get("of"), entry["value"]), (kind, of, value))
        data = pathlib.Path(TYPES).read_bytes()
        values = 0
        for tensor, expected in zip(out["tensors"], EXPECTED["tensors"], strict=True):
            self.assertEqual(tensor["name"], expected["name"])
            self.assertEqual(tensor["type"], expected["type"])
            self.assertEqual(tensor["shape"], expected["dims"])
            raw = data[tensor["offset"] :][: tensor["bytes"]]
            self.assertEqual(raw.hex(), expected["data"])
            count = 1
            for dim in expected["dims"]:
                count *= dim
            values += count
        self.assertEqual(out["parameters"], values)
        self.assertEqual(sum(f["values"] for f in out["formats"]), values)
        self.assertEqual(sum(f["tensors"] for f in out["formats"]), len(EXPECTED["tensors"]))

    def test_selection(self):
        self.assertEqual(run("-m", TYPES), run(TYPES))
        self.assertEqual(run("--model", TYPES, "--tensors"), run(TYPES, "--tensors"))
        tensors = run(TYPES, "--tensors").splitlines()
        self.assertEqual(tensors[0], f"tensors ({len(EXPECTED['tensors'])})")
        self.assertEqual(len(tensors), 2 + len(EXPECTED["tensors"]))
        metadata = run(TYPES, "--metadata").splitlines()
        self.assertEqual(metadata[0], f"metadata ({len(EXPECTED['metadata'])})")
        self.assertEqual(len(metadata), 2 + len(EXPECTED["metadata"]))
        both = run(TYPES)
        for line in tensors + metadata:
            self.assertIn(line, both)
        self.assertNotIn("tensors", json.loads(run(TYPES, "--json", "--metadata")))

    def test_fingerprint(self):
        with tempfile.TemporaryDirectory() as cache:
            ask = lambda: json.loads(run(TYPES, "--json", "--fingerprint", XDG_CACHE_HOME=cache))
            first = ask()["fingerprint"]
            self.assertRegex(first, "^[0-9a-f]{32}$")
            self.assertEqual(ask()["fingerprint"], first)
            self.assertEqual(len(os.listdir(cache + "/lockstep")), 1)
            split = run(FIXTURES + "split-00001-of-00004.gguf", "--fingerprint", XDG_CACHE_HOME=cache)
            self.assertIn(first, split)

    def test_terminal(self):
        for columns in (40, 57, 80):
            out = on_terminal(columns, TYPES, "--tensors", "--metadata", NO_COLOR="1")
            self.assertNotIn("\033", out)
            for line in out.splitlines():
                self.assertLessEqual(len(line), columns, line)
        self.assertIn("\033[1m", on_terminal(80, TYPES))
        self.assertNotIn("\033", on_terminal(80, TYPES, TERM="dumb"))
        self.assertNotIn("\033", run(TYPES))

    def test_errors(self):
        message = run(FIXTURES + "big_endian.gguf", status=2)
        self.assertIn("big_endian.gguf: byte 4: version: found 50331648", message)
        message = run(FIXTURES + "split-00003-of-00004.gguf", status=2)
        self.assertIn("open the first one, " + FIXTURES + "split-00001-of-00004.gguf", message)
        run("/nonexistent.gguf", status=2)
        run(TYPES, "--nonsense", status=2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
