"""The lines of README.md that record an engine compile, run, and are compared as README.md says.

usage: ten_lines_test.py PROGRAM

The engine is one whose numbers are known: what `lockstep run --device reference` computed, in single precision.
With the Python package and numpy at hand (tests/cli/with_python_package.py) the lines in Python are tried, else those
in C++.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ.get("LOCKSTEP") or str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
NAMES = ("embedding", "blk.0.q", "logits")

try:
    import numpy

    import lockstep  # noqa: F401: whether it is there
except ImportError:
    numpy = None

ENGINE = """
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>
%s
std::vector<float> numbers(const char* path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::vector<float> out(static_cast<size_t>(in.tellg()) / 4);
  in.seekg(0);
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(4 * out.size()));
  return out;
}
int main() {
  const std::vector<int32_t> prompt = {%s};
  const auto count = static_cast<int64_t>(prompt.size());
  const std::vector<float> xs = numbers("embedding"), qs = numbers("blk.0.q"), ls = numbers("logits");
  const float *x = xs.data(), *q = qs.data(), *logits = ls.data();
  const auto columns = [&](const std::vector<float>& v) { return static_cast<int64_t>(v.size()) / count; };
  const int64_t width = columns(xs), q_width = columns(qs), vocabulary = columns(ls);
%s
}
"""


def code(language):
    return re.search(rf"```{language}\n(.*?)```", README, re.S)[1]


class TenLines(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "model.gguf").symlink_to(ROOT / "models/haiku-llama-q4_k_m.gguf")
        # README.md's commands, in its order.
        self.commands = re.findall(r"^    lockstep (.*)$", README, re.M)
        self.assertEqual([command.split()[0] for command in self.commands], ["run", "compare"])
        self.run_command(self.commands[0])
        self.prompt = [int(token) for token in re.search(r"--tokens ([\d,]+)", self.commands[0])[1].split(",")]
        manifest = json.loads((self.folder / "truth.trace/manifest.json").read_text())
        data = (self.folder / "truth.trace" / manifest["steps"][0]["shard"]).read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:start])
        self.values = {}
        for name in NAMES:
            begin, end = header[f"0/{name}"]["data_offsets"]
            self.assertEqual(header[f"0/{name}"]["dtype"], "F64")
            doubles = struct.unpack(f"<{(end - begin) // 8}d", data[start + begin : start + end])
            self.values[name] = struct.pack(f"<{len(doubles)}f", *doubles)

    def run_command(self, command, status=0):
        done = subprocess.run([PROGRAM, *command.split()], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def check(self, mistake):
        """The trace of a right engine is in parity; that of one with a mistake in q is not, and q is named."""
        outcome = json.loads(self.run_command(self.commands[1] + " --json", status=1 if mistake else 0))
        self.assertEqual(outcome["parity"], not mistake)
        if mistake:
            defect = outcome["first_defect"]
            self.assertEqual((defect["checkpoint"], defect["side"]), ("blk.0.q", "suspect"))
        (self.folder / "mine.trace").rename(self.folder / f"tried{mistake}")

    def values_with(self, mistake):
        """`mistake`: two numbers of q are exchanged."""
        values = dict(self.values)
        if mistake:
            q = values["blk.0.q"]
            values["blk.0.q"] = q[4:8] + q[:4] + q[8:]
        return values

    @unittest.skipIf(numpy is not None, "done without the package")
    def test_cpp(self):
        lines = code("cpp").split("\n")
        includes = [line for line in lines if line.startswith("#")]
        body = [line for line in lines if not line.startswith("#")]
        source = ENGINE % ("\n".join(includes), ", ".join(map(str, self.prompt)), "\n".join(body))
        (self.folder / "engine.cpp").write_text(source)
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-I", ROOT / "include"]
        subprocess.run(["g++", *flags, "engine.cpp", "-o", "engine"], cwd=self.folder, check=True)
        for mistake in (False, True):
            for name, values in self.values_with(mistake).items():
                (self.folder / name).write_bytes(values)
            done = subprocess.run(["./engine"], cwd=self.folder, capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, "")
            self.check(mistake)

    @unittest.skipIf(numpy is None, "without the Python package")
    def test_python(self):
        for mistake in (False, True):
            arrays = {name: numpy.frombuffer(values, "<f4").reshape(len(self.prompt), -1)
                      for name, values in self.values_with(mistake).items()}  # fmt: skip
            x, q, logits = (arrays[name] for name in NAMES)
            names = {"x": x, "q": q, "logits": logits, "prompt": self.prompt}
            before = os.getcwd()
            os.chdir(self.folder)
            try:
                exec(code("python"), names)
            finally:
                os.chdir(before)
            self.check(mistake)

    def test_about_ten_lines(self):
        for language in ("cpp", "python"):
            self.assertLessEqual(len([line for line in code(language).split("\n") if line]), 12)


if __name__ == "__main__":
    unittest.main()
