"""lockstep check from the outside: suites with engines that are right, wrong, broken, or hang.

usage: check_test.py PROGRAM
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]

# An engine: copies a trace of the cpu device, with a mistake where one is asked for.
ENGINE = r'''
import json, pathlib, struct, subprocess, sys
program, model, tokens, n, trace, mistake = sys.argv[1:7]
subprocess.run([program, "run", "-m", model, "--tokens", tokens, "-n", n, "--trace", trace,
                "--device", "cpu"], check=True, stdout=subprocess.DEVNULL)
folder = pathlib.Path(trace)
manifest = json.loads((folder / "manifest.json").read_text())
if mistake == "cut":
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:100])
elif mistake == "incomplete":
    manifest["complete"] = False
    (folder / "manifest.json").write_text(json.dumps(manifest))
elif mistake != "none":  # the name of a checkpoint whose numbers are twice as large
    for shard in folder.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        for name, info in header.items():
            if name.split("/")[-1] == mistake or name.endswith("." + mistake) or name == mistake:
                begin, end = info["data_offsets"]
                for at in range(8 + size + begin, 8 + size + end, 4):
                    value = struct.unpack_from("<f", data, at)[0]
                    struct.pack_into("<f", data, at, 2 * value)
        shard.write_bytes(data)
'''


def check(*arguments, status=0, **options):
    done = subprocess.run([PROGRAM, "check", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}, expected {status}: {done.stdout}{done.stderr}"
    return done


class Check(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.addCleanup(self.holder.cleanup)
        self.root = pathlib.Path(self.holder.name)
        (self.root / "engine.py").write_text(ENGINE)
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.root / "cache"), GITHUB_ACTIONS="")

    def engine(self, name, mistake="none", more=""):
        return (f"[engine.{name}]\ncommand = [\"{sys.executable}\", \"{self.root}/engine.py\", \"{PROGRAM}\", \"{{model}}\", "
                f"\"{{tokens}}\", \"{{n}}\", \"{{trace}}\", \"{mistake}\"]\n{more}\n")

    def suite(self, text, name="suite.toml"):
        path = self.root / name
        path.write_text(text)
        return path

    def case(self, suspects, more="", model="haiku"):
        return f"[[case]]\nmodel = \"{model}\"\ntokens = [[1, 2, 3], [5]]\nn = 2\nsuspects = {json.dumps(suspects)}\n{more}\n"

    def run_suite(self, text, *arguments, status=0):
        output = self.root / "results.json"
        done = check(self.suite(text), "--json", output, *arguments, status=status, env=self.environment)
        return json.loads(output.read_text()), done

    def test_engines_that_are_right_pass(self):
        results, done = self.run_suite(self.engine("mine") + self.case(["mine", "cpu"]))
        self.assertEqual([r["id"] for r in results["results"]],
                         ["haiku/0/mine", "haiku/0/cpu", "haiku/1/mine", "haiku/1/cpu"])
        self.assertEqual((results["passed"], results["failed"], results["known"], results["jobs"]), (4, 0, 0, 4))
        for one in results["results"]:
            self.assertEqual((one["status"], one["parity"], one["coverage"]), ("passed", True, 1))
            self.assertLess(one["worst_ratio"], 1)
        self.assertEqual(len(done.stdout.splitlines()), 5)
        # The same engine by either way gives the same numbers.
        for a, b in (results["results"][:2], results["results"][2:]):
            self.assertEqual((a["worst_ratio"], a["kl_mean"]), (b["worst_ratio"], b["kl_mean"]))

    def test_what_goes_wrong_is_told_and_the_others_go_on(self):
        text = "".join([
            self.engine("wrong", "blk.1.ffn_act"), self.engine("cut", "cut"), self.engine("incomplete", "incomplete"),
            '[engine.crash]\ncommand = "sh -c \'echo goodbye; kill -SEGV $$\' {trace}"\n',
            '[engine.fails]\ncommand = "sh -c \'echo why >&2; exit 3\' {trace}"\n',
            '[engine.hangs]\ncommand = "sh -c \'sleep 100\' {trace}"\ntimeout = 0.2\n',
            '[engine.silent]\ncommand = "true {trace}"\n',
            '[engine.absent]\ncommand = "/nowhere/engine {trace}"\n',
            self.case(["wrong", "cut", "incomplete", "crash", "fails", "hangs", "silent", "absent", "cpu"])])
        out = self.root / "out"
        results, _ = self.run_suite(text, "--out", out, status=1)
        found = {r["id"]: r for r in results["results"]}
        self.assertEqual((results["passed"], results["failed"], results["errors"]), (2, 16, 14))
        wrong = found["haiku/0/wrong"]
        self.assertEqual((wrong["status"], wrong["verdict"], wrong["first_defect"]["checkpoint"], wrong["defects"]),
                         ("failed", "defect", "blk.1.ffn_act", ["blk.1.ffn_act", "blk.1.ffn_out"]))
        self.assertTrue((out / wrong["report"]).read_text().startswith("<!"))
        self.assertTrue((out / "haiku/0/wrong/suspect.trace/manifest.json").exists())
        self.assertTrue((out / "haiku/0/wrong/reference.trace/manifest.json").exists())
        self.assertFalse((out / "haiku/0/cpu").exists())
        for name, reason in (("crash", "signal 11"), ("fails", "exit status 3"), ("hangs", "longer than 0.2 s"),
                             ("silent", "wrote no trace"), ("absent", "cannot start"), ("incomplete", "not complete"),
                             ("cut", "safetensors")):
            one = found[f"haiku/1/{name}"]
            self.assertEqual((one["status"], one["verdict"], one["parity"]), ("error", "error", False))
            self.assertIn(reason, one["reason"])
        self.assertEqual(found["haiku/0/crash"]["output"], "goodbye\n")
        self.assertEqual((out / "haiku/0/fails/output.txt").read_text(), "why\n")

    def test_memory_that_a_program_takes(self):
        text = ('[engine.eats]\ncommand = ["sh", "-c", "a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done", "{trace}"]\n'
                'memory_gb = 0.05\n' + self.case(["eats"]))
        results, _ = self.run_suite(text, status=1)
        self.assertIn("of memory", results["results"][0]["reason"])

    def test_known_defects_do_not_hide_others(self):
        known = "[[known]]\nsuspect = \"w*\"\ncheckpoint = \"blk.*.ffn_{}\"\nreason = \"a table\"\n"
        stale = "[[known]]\nsuspect = \"cpu\"\nreason = \"long gone\"\n"
        text = self.engine("wrong", "blk.1.ffn_act") + self.case(["wrong", "cpu"])
        results, done = self.run_suite(text + known.format("*") + stale)
        self.assertEqual((results["passed"], results["known"]), (2, 2))
        self.assertEqual([r["known"] for r in results["results"]], ["a table", None, "a table", None])
        self.assertEqual([k["stale"] for k in results["known_defects"]], [False, True])
        self.assertEqual([k["matched"] for k in results["known_defects"]], [2, 0])
        self.assertIn("stale: the known defect of line", done.stdout)
        # Of two wrong checkpoints one is known.
        results, _ = self.run_suite(text + known.format("act"), status=1)
        self.assertEqual((results["failed"], results["known"]), (2, 0))

    def test_placeholders_are_no_shell_words(self):
        bait = self.root / "bait"
        prompt = f"a'b\"; touch {bait} $(touch {bait}) `touch {bait}` {{tokens}}"
        for shell in ("", "shell = true\n"):
            command = (f"printf %s {{prompt}}; exit 4 # {{trace}}" if shell else
                       f"sh -c 'printf %s \"$0\"; exit 4' {{prompt}} {{trace}}")
            text = (f"[engine.says]\ncommand = {json.dumps(command)}\n{shell}"
                    f"[[case]]\nmodel = \"haiku\"\nprompts = [{json.dumps(prompt)}]\nsuspects = [\"says\"]\n")
            results, _ = self.run_suite(text, status=1)
            self.assertEqual(results["results"][0]["output"], prompt)
            self.assertIn("exit status 4", results["results"][0]["reason"])
            self.assertFalse(bait.exists())

    def test_parts_make_the_whole(self):
        text = (self.engine("wrong", "blk.0.q") + self.engine("half", "incomplete") + self.case(["cpu", "wrong", "half"]) + self.case(["reference"], model="haiku-gpt2-f32")
                + "[[known]]\nsuspect = \"wrong\"\nreason = \"it is\"\n")
        whole, _ = self.run_suite(text, status=1)
        self.assertEqual((whole["passed"], whole["known"], whole["errors"]), (4, 2, 2))
        suite = self.suite(text)
        for count in (1, 7):
            parts = []
            for k in range(1, count + 1):
                parts.append(self.root / f"part{k}.json")
                # The first two groups have the broken engine.
                broken = any(group % count == k - 1 for group in (0, 1))
                check(suite, "--part", f"{k}/{count}", "--json", parts[-1], env=self.environment, status=int(broken))
            check("--merge", *reversed(parts), "--json", self.root / "merged.json", status=1)
            merged = json.loads((self.root / "merged.json").read_text())
            self.assertEqual(json.dumps(without_times(merged)), json.dumps(without_times(whole)))  # in its order too
        self.assertIn("part 3 of 7 is missing", check("--merge", *parts[:2], *parts[3:], status=2).stderr)
        self.assertIn("which", check("--merge", *parts, parts[2], status=2).stderr)
        other = self.root / "other.json"
        check(self.suite(self.case(["cpu"]), "other.toml"), "--part", "3/7", "--json", other, env=self.environment)
        self.assertIn("of another suite", check("--merge", *parts[:2], other, *parts[3:], status=2).stderr)
        self.assertIn("expected those of a part", check("--merge", self.root / "results.json", status=2).stderr)

    def test_parts_that_are_missing(self):
        text = self.case(["cpu", "reference"]) + self.case(["cpu"], model="haiku-gpt2-f32")
        whole, _ = self.run_suite(text)
        parts = [self.root / f"part{k}.json" for k in range(1, 6)]
        for k in (2, 4, 5):  # the last one has no case
            check(self.root / "suite.toml", "--part", f"{k}/5", "--json", parts[k - 1], env=self.environment)
        some = [parts[k - 1] for k in (5, 4, 2)]
        output = self.root / "partial.json"
        check("--merge", *some, "--json", output, status=2)
        self.assertIn("Not all cases", check("--merge", "--partial", *some, "--json", output, status=1).stdout)
        partial = json.loads(output.read_text())
        self.assertEqual((partial["complete"], partial["part"], partial["jobs"]), (False, None, 6))
        self.assertEqual([r["index"] for r in partial["results"]], [2, 3, 5])
        self.assertEqual(without_times(partial)["results"], [without_times(whole)["results"][i] for i in (2, 3, 5)])
        # What is missing, by parts again: one has all of its results, one has none.
        for k in (1, 2, 3):
            check(self.root / "suite.toml", "--part", f"{k}/3", "--resume", output, "--json", parts[k - 1], env=self.environment)
        check("--merge", "--partial", *parts[:3], "--json", output)
        self.assertEqual(without_times(json.loads(output.read_text())), without_times(whole))
        self.assertIn("--merge", check(self.root / "suite.toml", "--partial", status=2).stderr)
        for index, words in ((7, "comparison 7"), (3, "comparison 3 twice")):
            broken = json.loads(parts[0].read_text())
            broken["results"][0]["index"] = index
            parts[4].write_text(json.dumps(broken))
            self.assertIn(words, check("--merge", parts[4], *parts[1:3], "--json", output, status=2).stderr)

    def test_given_up(self):
        text = self.case(["cpu", "reference"]) + "[[known]]\nsuspect = \"*\"\nreason = \"all\"\n"
        first = self.root / "first.json"
        check(self.suite(text), "--part", "1/2", "--json", first, env=self.environment)
        results, done = self.run_suite(text, "--resume", first, "--give-up", "the machine is <gone>", status=1)
        self.assertEqual([r["status"] for r in results["results"]], ["passed"] * 2 + ["error"] * 2)
        self.assertEqual((results["complete"], results["errors"]), (True, 2))
        self.assertEqual(results["results"][3]["reason"], "the machine is <gone>")
        self.assertEqual([results["results"][3][name] for name in ("id", "prompt", "verdict", "parity", "seconds")],
                         ["haiku/1/reference", "5", "error", False, 0])
        self.assertIn("ERROR   haiku/1/reference  the machine is <gone>", done.stdout)

    def test_what_was_ended_goes_on(self):
        slow = self.engine("mine") + '[engine.waits]\ncommand = "sleep 100 {trace}"\n'
        mark = self.root / "mark"
        text = (slow.replace('"sleep 100 {trace}"', json.dumps(f"sh -c 'touch {mark}; sleep 100' {{trace}}"))
                + self.case(["mine", "waits", "cpu"]))
        output = self.root / "ended.json"
        for ending in (signal.SIGINT, signal.SIGTERM):
            mark.unlink(missing_ok=True)
            running = subprocess.Popen([PROGRAM, "check", self.suite(text), "--json", output], env=self.environment,
                                       stdout=subprocess.DEVNULL)
            while not mark.exists():
                time.sleep(0.01)
            running.send_signal(ending)
            self.assertEqual(running.wait(60), 128 + ending)
            ended = json.loads(output.read_text())
            self.assertFalse(ended["complete"])
            self.assertEqual([r["id"] for r in ended["results"]], ["haiku/0/mine"])
        ended["results"][0]["seconds"] = 12345  # to see that it is taken over
        output.write_text(json.dumps(ended))
        # The engine that waited is another one now: what it said before would not count.
        text = text.replace("sleep 100", "exit 5")
        results, done = self.run_suite(text, "--resume", output, status=1)
        self.assertTrue(results["complete"])
        self.assertEqual([r["status"] for r in results["results"]], ["passed", "error", "passed"] * 2)
        self.assertEqual(results["results"][0]["seconds"], 12345)
        self.assertEqual(len(done.stdout.splitlines()), 6)
        self.assertIn("of another one", check(self.suite(self.case(["cpu"]), "x.toml"), "--resume", output, status=2).stderr)

    def test_results_are_there_before_the_end(self):
        output = self.root / "r.json"
        text = ('[engine.slow]\ncommand = ["sh", "-c", "sleep 0.6; exit 1", "{trace}"]\n'
                + self.case(["slow", "cpu"]).replace("[5]", "[5], [6]"))
        running = subprocess.Popen([PROGRAM, "check", self.suite(text), "--json", output], env=self.environment,
                                   stdout=subprocess.DEVNULL)
        while not output.exists():
            self.assertIsNone(running.poll())
            time.sleep(0.05)
        running.kill()
        running.wait()
        partial = json.loads(output.read_text())
        self.assertFalse(partial["complete"])
        self.assertIn(len(partial["results"]), (1, 2, 3))  # as many as the machine came to, of four

    def test_what_got_worse_than_the_baseline_fails(self):
        text = self.case(["cpu"])
        results, _ = self.run_suite(text)
        baseline = self.root / "baseline.json"
        baseline.write_text(json.dumps(results))
        self.run_suite(text, "--baseline", baseline)
        for field in ("worst_ratio", "kl_mean"):
            better = json.loads(json.dumps(results))
            for one in better["results"]:
                one[field] /= 100
                if field == "kl_mean":
                    one["kl_worst"] /= 100
            baseline.write_text(json.dumps(better))
            worse, _ = self.run_suite(text, "--baseline", baseline, status=1)
            self.assertEqual([r["status"] for r in worse["results"]], ["failed"] * 2, field)
            self.assertIn("worse than the baseline", worse["results"][0]["reason"])

    def test_history_keeps_every_run(self):
        runs = self.root / "runs" / "deep"
        for _ in range(3):
            self.run_suite(self.case(["cpu"]), "--history", runs)
        files = sorted(runs.iterdir())
        self.assertEqual(len(files), 3)
        for file in files:
            self.assertEqual(json.loads(file.read_text())["passed"], 2)
            self.assertIsNone(json.loads(file.read_text())["reports"])
        # Where the reports lie is said as seen from each file.
        results, _ = self.run_suite(self.engine("wrong", "blk.0.q") + self.case(["wrong"]), "--history", runs, "--out", self.root / "failed", status=1)
        self.assertEqual(results["reports"], "failed")
        newest = json.loads(max(set(runs.iterdir()) - set(files), key=lambda file: file.name).read_text())
        self.assertEqual(newest["reports"], "../../failed")
        self.assertTrue((runs / newest["reports"] / newest["results"][0]["report"]).is_file())

    def test_results_for_people_and_ci(self):
        out, junit, markdown, page, summary = (self.root / name for name in ("out", "j.xml", "m.md", "p/i.html", "s.md"))
        page.parent.mkdir()
        summary.write_text("before\n")
        self.environment.update(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary), GITHUB_SHA="a" * 40)
        text = ('name = "<b>&| x"\n' + self.engine("wrong", "blk.0.q") + self.engine("old", "logits")
                + '[engine.fails]\ncommand = ["sh", "-c", "echo \'<oops> 50%\'; exit 3", "{trace}"]\n'
                + self.case(["cpu", "wrong", "fails", "old"])
                + '[[known]]\nsuspect = "old"\nreason = "50% <i>:,\\n\\u001b[31m"\n')
        results, done = self.run_suite(text, "--out", out, "--junit", junit, "--markdown", markdown, "--html", page, status=1)
        self.assertEqual(results["commit"], "a" * 40)
        suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
        self.assertEqual({k: suite.get(k) for k in ("name", "tests", "failures", "errors", "skipped")},
                         {"name": "<b>&| x", "tests": "8", "failures": "2", "errors": "2", "skipped": "2"})
        self.assertEqual([c.get("name") for c in suite.findall("testcase")], [r["id"] for r in results["results"]])
        self.assertEqual(suite.find(".//system-out").text, "<oops> 50%\n")
        self.assertIn("exit status 3", suite.find(".//error").get("message"))
        self.assertIn("blk.0.q", suite.find(".//failure").get("message"))
        told = markdown.read_text()
        self.assertIn("2 of 8 in parity, 4 failed, 2 known", told)
        self.assertNotIn("<b>", told)
        self.assertEqual(summary.read_text(), "before\n" + told)
        links = re.findall(r'href="([^"]*)"', page.read_text())
        self.assertEqual(len(links), 4)
        for link in links:
            self.assertTrue((page.parent / link).is_file(), link)
        self.assertNotIn("<b>", page.read_text())
        lines = [line for line in done.stdout.splitlines() if line.startswith("::")]
        self.assertEqual([line.split(" ")[0] for line in lines], ["::error", "::error", "::notice"] * 2)
        self.assertEqual(lines[2], "::notice title=haiku/0/old::known: 50%25 <i>:,\\n\\x1b[31m")
        self.assertNotIn("\x1b", done.stdout)

    def test_one_model_without_a_suite(self):
        output, trace = self.root / "r.json", self.root / "mine.trace"
        command = f"{PROGRAM} run -m {{model}} --tokens {{tokens}} -n {{n}} --trace {{trace}}"
        for against, tokens in (("cpu", None), (command, "5,6,7"), (command, None)):
            more = ["--tokens", tokens] if tokens else []
            check("-m", "haiku", "--against", against, "-n", "2", "--json", output, *more, env=self.environment)
            result, = json.loads(output.read_text())["results"]
            self.assertEqual((result["status"], result["prompt"]), ("passed", tokens or "Write a haiku about rain"))
        subprocess.run([PROGRAM, "run", "-m", "haiku", "--tokens", "9,8", "-n", "3", "--trace", trace], check=True,
                       stdout=subprocess.DEVNULL, env=self.environment)
        check("-m", "haiku", "--against", trace, "--json", output, env=self.environment)
        result, = json.loads(output.read_text())["results"]
        self.assertEqual((result["prompt"], result["kl_positions"], result["suspect"]), ("9,8", 4, "trace"))
        for wrong, message in ((["-m", "haiku"], "expected its file"), (["-m", "haiku", "--against", "what"], "expected llama.cpp"),
                               (["-m", "haiku", "--against", "x {trace} {modle}"], "unknown placeholder {modle}"),
                               (["-m", "haiku", "--against", "cpu", "--folder", "x"], "is for transformers")):
            self.assertIn(message, check(*wrong, status=2, env=self.environment).stderr)

    def test_reference_traces_are_kept_and_made_again_when_damaged(self):
        cache = self.root / "kept"
        text = self.case(["cpu"])
        first, _ = self.run_suite(text, "--cache", cache)
        entries = sorted(p for p in cache.glob("*/*") if p.is_dir())
        self.assertEqual(len(entries), 2)
        made = [(entry / "trace/manifest.json").stat().st_mtime_ns for entry in entries]
        again, _ = self.run_suite(text, "--cache", cache)
        self.assertEqual(without_times(again), without_times(first))
        self.assertEqual([(entry / "trace/manifest.json").stat().st_mtime_ns for entry in entries], made)
        shard = next((entries[0] / "trace").glob("*.safetensors"))
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
        (entries[1] / "digest").unlink()
        again, _ = self.run_suite(text, "--cache", cache)
        self.assertEqual(without_times(again), without_times(first))
        for entry, before in zip(entries, made):
            self.assertNotEqual((entry / "trace/manifest.json").stat().st_mtime_ns, before)
        # What was not used for longest goes.
        self.run_suite(text.replace("[5]", "[6]"), "--cache", cache, "--cache-limit", "0")
        left = [p for p in cache.glob("*/*") if p.is_dir()]
        self.assertEqual(len(left), 1)
        self.assertNotIn(left[0], entries)
        self.assertFalse((self.root / "cache/lockstep/references").exists())
        self.run_suite(text, "--no-cache")
        self.assertFalse((self.root / "cache/lockstep/references").exists())
        self.run_suite(text)
        self.assertTrue((self.root / "cache/lockstep/references").exists())

    def test_several_processes_share_the_kept_traces(self):
        cache, suite = self.root / "kept", self.suite(self.case(["cpu"]))
        for _ in range(2):
            running = [subprocess.Popen([PROGRAM, "check", suite, "--cache", cache, "--json", self.root / f"{i}.json"],
                                        env=self.environment, stdout=subprocess.DEVNULL) for i in range(4)]
            self.assertEqual([one.wait(60) for one in running], [0] * 4)
        same = [without_times(json.loads((self.root / f"{i}.json").read_text())) for i in range(4)]
        self.assertEqual(same, same[:1] * 4)
        self.assertEqual(sorted(len(p.name) for p in cache.glob("*/*")), [64, 64])  # whole entries, nothing else

    def test_progress_on_a_terminal(self):
        import pty
        ours, theirs = pty.openpty()
        done = subprocess.run([PROGRAM, "check", self.suite(self.case(["cpu"]))], env=self.environment | {"TERM": "xterm"},
                              stderr=theirs, stdout=subprocess.PIPE, timeout=60)
        os.close(theirs)
        self.assertEqual(done.returncode, 0)
        shown = os.read(ours, 1 << 16).decode()
        os.close(ours)
        self.assertIn("haiku/0/cpu", shown)  # what runs
        self.assertIn("1/2 cases", shown)  # what is done
        self.assertIn("s left", shown)
        self.assertTrue(shown.endswith("\r\033[K"))

    def test_goldens(self):
        goldens = self.root / "goldens"
        text = self.case(["cpu"])
        first, _ = self.run_suite(text, "--record-goldens", goldens)
        self.assertEqual(sorted(p.name for p in (goldens / "haiku").iterdir()),
                         ["0.trace", "0.trace.key", "1.trace", "1.trace.key"])
        again, _ = self.run_suite(text, "--goldens", goldens)
        self.assertEqual(without_times(again), without_times(first))
        results, _ = self.run_suite(text.replace("n = 2", "n = 3"), "--goldens", goldens, status=1)
        self.assertIn("is of another model, prompt, n", results["results"][0]["reason"])
        results, _ = self.run_suite(text, "--goldens", self.root / "nowhere", status=1)
        self.assertIn("no golden trace", results["results"][0]["reason"])

    def test_the_document_is_right(self):
        text = (ROOT / "docs/check.md").read_text()
        example, = re.findall(r"^```toml\n(.*?)^```", text, re.S | re.M)
        check(self.suite(example), "--part", "100/100", env=self.environment)  # read, and nothing to run
        results, _ = self.run_suite(self.engine("wrong", "logits") + self.case(["wrong"]) + "[[known]]\nsuspect = \"x\"\nreason = \"y\"\n",
                                    status=1)
        told = set(re.findall(r"`(\w+)`", text))
        self.assertEqual(set(results) - told, set())
        self.assertEqual(set(results["results"][0]) - told, set())
        self.assertEqual(set(results["known_defects"][0]) - told - {"line"}, set())
        flags = set(re.findall(r"--[a-z-]+", check("--help").stdout)) - {"--help", "--device", "--threads", "--no-diagnosis", "--tokens",
                                                                       "--max-tokens", "--prompt", "--file", "--folder", "--reference",
                                                                       "--checkpoints", "--model", "--trace"}
        self.assertEqual({flag for flag in flags if flag not in text}, set())

    def test_wrong_use(self):
        self.assertIn("found no suite", check(status=2).stderr)
        self.assertIn("no such file", check("nowhere.toml", status=2).stderr)
        self.assertIn("x.toml:1:1: the suite: unknown key", check(self.suite("a = 1", "x.toml"), status=2).stderr)
        suite = self.suite(self.case(["cpu"]))
        self.assertIn("expected a part", check(suite, "--part", "3/2", status=2).stderr)
        self.assertIn("no file of", check(self.suite(self.case(["cpu"], model="*.gguf"), "y.toml"), status=2).stderr)
        file = self.root / "file"
        file.write_text("")
        for flag in ("--out", "--record-goldens", "--cache"):
            self.assertIn("file", check(suite, flag, file / "below", status=2, env=self.environment).stderr)
        broken = self.root / "broken.json"
        for text in ("", "[]", "{}", '{"format": "lockstep-check", "version": 1}', '{"format": "lockstep-check", "version": 2}'):
            broken.write_text(text)
            self.assertIn("broken.json", check("--merge", broken, status=2).stderr)

    def test_models_that_are_missing_cost_their_cases_alone(self):
        results, _ = self.run_suite(self.case(["cpu"], model="nowhere.gguf") + self.case(["cpu"]), status=1)
        self.assertEqual([r["status"] for r in results["results"]], ["error"] * 2 + ["passed"] * 2)
        self.assertIn("nowhere.gguf", results["results"][0]["reason"])

    def test_little_coverage_is_no_pass(self):
        trace = self.root / "mine.trace"
        subprocess.run([PROGRAM, "run", "-m", "haiku", "--tokens", "1,2,3", "-n", "2", "--trace", trace, "--checkpoints",
                        "logits"], check=True, stdout=subprocess.DEVNULL, env=self.environment)
        text = ('[engine.mine]\ntrace = "mine.trace"\n[[case]]\nmodel = "haiku"\ntokens = [[1, 2, 3]]\nn = 2\n'
                'suspects = ["mine"]\n')
        results, _ = self.run_suite(text)
        self.assertLess(results["results"][0]["coverage"], 0.5)
        results, _ = self.run_suite(text, "--min-coverage", "0.5", status=1)
        self.assertEqual(results["results"][0]["verdict"], "inconclusive")


def without_times(document):
    out = {name: value for name, value in document.items() if name not in ("time", "seconds")}
    out["results"] = [{k: v for k, v in one.items() if k not in ("seconds", "engine_seconds")} for one in document["results"]]
    return out


if __name__ == "__main__":
    unittest.main()
