"""Suites on a real cluster of Ray, of several local nodes: one that dies, one that is slow, a task that always fails.

usage: ray_test.py PROGRAM (in a Python that has Ray and the package: with_ray.py)
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
os.environ.update(LOCKSTEP=str(PROGRAM), RAY_USAGE_STATS_ENABLED="0", GITHUB_ACTIONS="", GITHUB_SHA="0123456789abcdef")

import ray.cluster_utils  # noqa: E402  (after the environment is set)

# An engine: our cpu device, late on a node that is slow. Notes where it ran.
ENGINE = r"""
import os, pathlib, subprocess, sys, time
program, model, tokens, n, trace, notes, seconds, wrong = sys.argv[1:9]
node = os.environ.get("TEST_NODE", "none")
with open(pathlib.Path(notes, "runs"), "a") as file:
    file.write(f"{node} {tokens} {os.getpid()} {os.getcwd()}\n")
time.sleep(float(seconds) * (20 if node == "slow" else 1))
subprocess.run([program, "run", "-m", model, "--tokens", tokens, "-n", n, "--trace", trace, "--device", "cpu"], check=True,
               stdout=subprocess.DEVNULL)
if wrong == "yes":
    values = sorted(pathlib.Path(trace).glob("*.safetensors"))[-1]
    values.write_bytes(values.read_bytes()[:-2] + bytes([0x80, 0x44]))  # the last number of the last step becomes about 1000
"""


def without_times(text):
    found = json.loads(text)
    found.pop("time"), found.pop("seconds"), found.pop("reports", None)  # where --out lies
    for result in found["results"]:
        result.pop("seconds"), result.pop("engine_seconds")
    return found


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class RayTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        (self.root / "engine.py").write_text(ENGINE)
        (self.root / "notes").mkdir()
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.root / "cache"))

    def cluster(self, *nodes):
        """A head without cores, and a node with one core for each name."""
        small = {"object_store_memory": 80 << 20, "include_dashboard": False}
        cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self.addCleanup(cluster.shutdown)
        made = {name: cluster.add_node(num_cpus=1, env_vars={"TEST_NODE": name}, **small) for name in nodes}
        return cluster, made

    def suite(self, prompts, seconds=0, more=""):
        def engine(name, wrong="no"):
            words = [sys.executable, str(self.root / "engine.py"), str(PROGRAM), "{model}", "{tokens}", "{n}", "{trace}",
                     str(self.root / "notes"), str(seconds), wrong]  # fmt: skip
            return f"[engine.{name}]\ncommand = {json.dumps(words)}\n"

        path = self.root / "suite" / "suite.toml"
        path.parent.mkdir(exist_ok=True)
        tokens = json.dumps([[7 + i, 3] for i in range(prompts)])
        path.write_text(f'name = "many"\n{engine("mine")}{engine("wrong", "yes")}[[case]]\nmodel = "haiku"\ntokens = {tokens}\n'
                        f'n = 1\nsuspects = ["mine"]\n{more}')  # fmt: skip
        return path

    def start(self, cluster, suite, *arguments):
        command = [sys.executable, "-m", "lockstep.ray", suite, "--address", cluster.address, "--json", self.root / "ray.json"]
        return subprocess.Popen([*map(str, command), *map(str, arguments)], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def finish(self, running, status):
        out, err = running.communicate(timeout=240)
        self.assertEqual(running.returncode, status, out + err)
        return without_times((self.root / "ray.json").read_text()), out

    def alone(self, suite, *arguments, status=0):
        done = subprocess.run([PROGRAM, "check", suite, "--json", self.root / "alone.json", *arguments], env=self.environment,
                              capture_output=True, text=True)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return without_times((self.root / "alone.json").read_text())

    def runs(self):
        path = self.root / "notes/runs"
        return [line.split(" ", 3) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, what):
        end = time.monotonic() + 120
        while not (found := what()):
            self.assertLess(time.monotonic(), end, "waited for too long")
            time.sleep(0.05)
        return found

    def test_the_same_as_on_one_machine(self):
        more = ('[[case]]\nname = "b"\nmodel = "haiku-gpt2-f32"\ntokens = [[1], [2, 5]]\nn = 2\n'
                'suspects = ["wrong", "cpu", "fails", "known"]\n[engine.fails]\ncommand = "sh -c \'echo no; exit 5\' {trace}"\n'
                '[engine.known]\ncommand = "false {trace}"\n[[known]]\nsuspect = "wrong"\nreason = "it is"\n'
                '[[known]]\nsuspect = "mine"\nreason = "stale"\n')  # fmt: skip
        suite = self.suite(3, more=more)
        cluster, _ = self.cluster("a", "b")
        folder = self.root / "failed"
        folder.mkdir()
        options = [f"--out={folder / 'cases'}", *(f"--{name}={folder / name}" for name in ("junit", "markdown", "html"))]

        def left():
            """All files but traces, whose parts are cut by time, and times in texts."""
            out = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            shutil.rmtree(folder)
            folder.mkdir()
            times = rb'[\d.]+ s\b|time(stamp)?="[^"]*"|"seconds":[\d.e-]+|<td[^>]*>[\d.]+</td>|20\d\d-[\dTZ:-]+'
            return {name: re.sub(times, b"", content) for name, content in out.items() if ".trace/" not in name}

        expected, files = self.alone(suite, *options, status=1), left()
        self.assertEqual([result["status"] for result in expected["results"]],
                         ["passed"] * 3 + ["known", "passed", "error", "error"] * 2)  # fmt: skip
        self.assertIn("cases/b/0/wrong/report.html", files)
        for more in ([], ["--parts=2"], ["--send", self.root / "suite"]):
            with self.subTest(more=more):
                found, out = self.finish(self.start(cluster, suite, *options, *more), 1)
                self.maxDiff = None
                self.assertEqual(json.dumps(found, indent=1), json.dumps(expected, indent=1))
                self.assertIn("[11/11]", out)
                there = left()
                self.assertEqual(sorted(there), sorted(files))
                self.assertEqual([name for name in files if files[name] != there[name]], [])
        self.assertTrue(any("lockstep-ray-" in run[3] for run in self.runs()), self.runs())
        shutil.rmtree(next(run[3] for run in self.runs() if "lockstep-ray-" in run[3]))

    def test_a_node_that_dies_and_tasks_that_always_fail(self):
        more = ('[engine.kills]\ncommand = "sh -c \'kill -9 $PPID; sleep 9\' {trace}"\n[[case]]\nname = "bad"\nmodel = "haiku"\n'
                'tokens = [[1]]\nn = 1\nsuspects = ["kills"]\n')  # fmt: skip
        suite = self.suite(6, seconds=1, more=more)
        cluster, nodes = self.cluster("a", "b", "c")
        running = self.start(cluster, suite, "--retries", 2)
        node, tokens, pid, _ = self.wait_for(lambda: [run for run in self.runs() if run[0] == "b"])[0]
        cluster.remove_node(nodes["b"], allow_graceful=False)
        self.wait_for(lambda: not is_running(pid))  # nothing is left of the task
        found, _ = self.finish(running, 1)
        again = [run[0] for run in self.runs() if run[1] == tokens]
        self.assertEqual((again[0], len(again)), ("b", 2))
        self.assertNotEqual(again[1], "b")
        bad = found["results"].pop()
        self.assertEqual((bad["id"], bad["status"]), ("bad/0/kills", "error"))
        self.assertRegex(bad["reason"], "^part 7 of 7 failed 3 times: node .*: lockstep check was ended by signal 9")
        self.assertEqual(found["results"], self.alone(self.suite(6, seconds=1))["results"])
        self.assertEqual((found["complete"], found["passed"], found["errors"]), (True, 6, 1))

    def test_one_comparison_in_parts(self):
        traces = [self.root / "reference", self.root / "cpu"]
        for trace in traces:
            subprocess.run([PROGRAM, "run", "-m", "haiku", "--tokens", "5,7,9", "-n", "3", "--device", trace.name, "--trace", trace],
                           check=True, capture_output=True, env=self.environment)  # fmt: skip
        shard = sorted(traces[1].glob("*.safetensors"))[-1]
        shard.write_bytes(shard.read_bytes()[:-2] + bytes([0x80, 0x44]))  # the last number becomes about 1000
        cluster, _ = self.cluster("a", "b")

        def told(*command, status):
            done = subprocess.run([*map(str, command)], env=self.environment, capture_output=True, text=True, cwd=self.root)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return re.sub(r'"seconds": [\d.e-]+', "", done.stdout), done.stderr

        arguments = ["reference", "cpu", "-m", "haiku", "--json"]
        alone, _ = told(PROGRAM, "compare", *arguments, status=1)
        self.assertEqual(json.loads(alone.replace("\n ,", ""))["first_defect"]["checkpoint"], "logits")
        ray_compare = [sys.executable, "-m", "lockstep.ray", "compare", "--address", cluster.address]
        for more, count in ((["--parts=5"], 5), ([], 2)):
            merged, said = told(*ray_compare, *arguments, *more, status=1)
            self.assertEqual(merged, alone, said)
            self.assertIn(f"[{count}/{count}] part", said)
        shutil.rmtree(traces[1])
        _, said = told(*ray_compare, *arguments, "--retries=1", status=2)
        self.assertRegex(said, "lockstep.ray: part . of 2 failed 2 times: node .*: .*cpu: no such file or folder")

    def test_a_slow_node_and_a_run_that_is_ended(self):
        suite = self.suite(8, seconds=0.3)
        cluster, _ = self.cluster("fast", "slow")
        found, _ = self.finish(self.start(cluster, suite), 0)
        nodes = [run[0] for run in self.runs()]
        self.assertTrue(1 <= nodes.count("slow") < nodes.count("fast"), nodes)
        self.assertEqual(found, self.alone(suite))

        (self.root / "notes/runs").unlink()
        suite = self.suite(5, seconds=1)
        running = self.start(cluster, suite)
        self.wait_for(lambda: len([run for run in self.runs() if run[0] == "fast"]) > 1)
        running.send_signal(signal.SIGTERM)
        ended, _ = self.finish(running, 128 + signal.SIGTERM)
        self.assertFalse(ended["complete"])
        self.assertTrue(0 < len(ended["results"]) < 5)
        for run in self.runs():
            self.wait_for(lambda: not is_running(run[2]))
        before = len(self.runs())
        shutil.copy(self.root / "ray.json", self.root / "ended.json")
        found, _ = self.finish(self.start(cluster, suite, "--resume", self.root / "ended.json"), 0)
        self.assertEqual(len(self.runs()) - before, 5 - len(ended["results"]))
        self.assertEqual(found, self.alone(suite))

    def test_no_node_has_a_gpu(self):
        cluster, _ = self.cluster("a")
        running = self.start(cluster, self.suite(1), "--num-gpus", 1)
        self.assertIn("no node has what a task takes (CPU 1, GPU 1)", self.next_note(running))
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=60)
        self.assertEqual((running.returncode, out), (128 + signal.SIGINT, "No case has run.\n"))
        self.assertFalse((self.root / "ray.json").exists())

    def next_note(self, running):
        while (line := running.stderr.readline()) and not line.startswith("note: "):
            pass
        return line

    def test_wrong_use(self):
        suite = self.suite(1)
        for arguments, words in (
            (["nowhere.toml"], "nowhere.toml"),
            ([suite, "--send", self.root / "notes"], "does not lie in it"),
            ([suite, "--retries", "-1"], "--retries"),
            ([suite, "--junit", self.root / "none/x.xml"], "no such folder"),
            ([suite, "--baseline", self.root / "none.json"], "none.json"),
            ([suite, "--bogus"], "--bogus"),
            ([], "SUITE"),
        ):
            done = subprocess.run([sys.executable, "-m", "lockstep.ray", *map(str, arguments), "--num-cpus", "0"],
                                  capture_output=True, text=True, env=self.environment)  # fmt: skip
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
