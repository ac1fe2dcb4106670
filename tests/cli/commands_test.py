"""Small things that users meet: warnings, folders where files are expected, what commands say of their work.

usage: commands_test.py PROGRAM
"""

import json
import math
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*arguments, status=0, **options):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}, expected {status}: {done.stdout}{done.stderr}"
    return done


class Commands(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.addCleanup(self.holder.cleanup)
        self.root = pathlib.Path(self.holder.name)

    def test_standard_error_that_takes_nothing_costs_nothing(self):
        log = self.root / "log"
        log.write_text('{"checkpoint":"a","token_idx":0,"values":[1]}\noops\n')
        for number, (command, status) in enumerate((
            (("inspect", "nothing"), 2), (("run", "--foo"), 2), (("run", "-p", "x", "-n", "1"), 0),
            (("import", log, self.root / "trace"), 1), (("compare", log, log), 1),
        )):
            for where in ("2>/dev/full", "2>&-"):
                words = [str(w) + (where[-1] if w == self.root / "trace" else "") for w in command]
                done = subprocess.run(["sh", "-c", f'exec "$@" {where}', "sh", PROGRAM, *words], stdout=subprocess.DEVNULL)
                self.assertEqual(done.returncode, status, (number, where))

    def test_what_is_no_file_is_told_at_once(self):
        pipe, folder = self.root / "pipe", self.root / "trace"
        os.mkfifo(pipe)
        folder.mkdir()
        os.mkfifo(folder / "manifest.json")
        for command in (("inspect", pipe), ("scan", pipe), ("compare", pipe, pipe), ("import", pipe, self.root / "new"),
                        ("scan", folder), ("export", folder, "--npz", self.root / "x.npz")):
            self.assertIn("not a regular file", run(*command, status=2, timeout=20).stderr)
        self.assertIn("more than 67108864 bytes", run("run", "-f", "/dev/zero", status=2, timeout=20).stderr)

    def test_escape_sequences_of_names_are_shown_not_sent(self):
        self.assertIn(r"\x1b[31mx", run("inspect", "\x1b[31mx", status=2).stderr)
        self.assertNotIn("\x1b", run("scan", "\x1b[31mx", status=2).stderr)

    def test_names_from_logs_harm_no_spreadsheet_and_no_folder(self):
        names = ("=cmd()", "@x", "-1", "+1", "../../evil", "/etc/evil", "a\\\\b", "plain")
        log, trace = self.root / "log", self.root / "trace"
        log.write_text("".join('{"checkpoint":"%s","token_idx":0,"values":[1,2]}\n' % name for name in names))
        run("import", log, trace)
        run("export", trace, "--npz", self.root / "x.npz")
        with zipfile.ZipFile(self.root / "x.npz") as archive:
            members = archive.namelist()
        self.assertEqual(len(set(members)), len(names) + 1)
        for member in members:
            self.assertFalse(set(member) & set("/\\:") or member.startswith("."), member)
        self.assertIn("%2Fetc%2Fevil.npy", members)
        run("compare", trace, trace, "--checkpoints", "all", "--csv", self.root / "x.csv", status=1)
        cells = [line.split(",")[0] for line in (self.root / "x.csv").read_text().splitlines()]
        self.assertEqual(cells[1:5], ["'=cmd()", "'@x", "'-1", "'+1"])
        self.assertIn("plain", cells)

    def test_compare_of_a_log_that_is_ended_leaves_nothing(self):
        log, place = self.root / "log", self.root / "tmp"
        place.mkdir()
        values = ",".join(["0.123456789"] * 50)
        log.write_text("".join('{"checkpoint":"a","token_idx":%d,"values":[%s]}\n' % (i, values) for i in range(5000)))
        for ending in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([PROGRAM, "compare", log, log], env={**os.environ, "TMPDIR": str(place)},
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not any(place.iterdir()) and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(ending)
            self.assertEqual(process.wait(timeout=60), -ending)
            self.assertEqual(list(place.iterdir()), [])

    def test_arrays_for_numpy_have_names_of_their_own(self):
        names = ("a/b", "a_b", "a:b", "a%2Fb", ".a", "_.a", "%2Ea", "b", "b.positions2")
        log, trace = self.root / "log", self.root / "trace"

        def export(names, status):
            log.write_text("".join('{"checkpoint":"%s","token_idx":%d,"values":[1,2]}\n' % (name, token)
                                   for name in names for token in range(1 + ("pos" not in name))))
            shutil.rmtree(trace, ignore_errors=True)
            run("import", log, trace)
            return run("export", trace, "--npz", self.root / "x.npz", status=status)

        export(names, 0)
        with zipfile.ZipFile(self.root / "x.npz") as archive:
            members = archive.namelist()
        self.assertEqual(len(set(members)), len(members))
        self.assertEqual(set(members), {member + ".npy" for member in (
            "positions", "a%2Fb", "a_b", "a%3Ab", "a%252Fb", "%2Ea", "_.a", "%252Ea", "b", "b.positions2",
            "b.positions2.positions")})
        self.assertIn("two arrays have the name 'positions'", export(("positions", "b"), 2).stderr)

    def test_input_without_an_end_is_refused(self):
        for flags in ((), ("--json",), ("--decode",), ("--jsonl",)):
            with open("/dev/zero") as endless:
                done = run("tokenize", *flags, status=2, stdin=endless, timeout=60)
            self.assertRegex(done.stderr, "standard input: (the prompt|a line) has more than 67108864 bytes")
            self.assertEqual(done.stdout, "")
        self.assertEqual(run("tokenize", "--jsonl", input='"a"\n\n', status=2).stdout.count("\n"), 1)
        lines = run("tokenize", "--jsonl", input='"a"\n"a"').stdout.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[0], lines[1])
        self.assertIn("is no token id", run("tokenize", "--decode", "-p", "x" * 100000, status=2).stderr)

    def test_a_log_into_a_pipe(self):
        pipe = self.root / "pipe"
        os.mkfifo(pipe)
        command = ("run", "-m", "haiku", "-p", "GPU", "-n", "2", "--threads", "1")
        env = {**os.environ, "ORCH_LOG_FILE": str(pipe)}
        done = run(*command, status=2, env=env, timeout=60)
        self.assertIn("pipe: cannot write the log (ORCH_LOG_FILE): a pipe that nobody reads", done.stderr)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
            # Its end of the pipe opens when ours does.
            writer = os.open(pipe, os.O_WRONLY)
            run(*command, env=env, timeout=60)
            os.close(writer)
            lines = [json.loads(line) for line in reader.stdout]
        self.assertIn("logits", {line["checkpoint"] for line in lines})

    def test_scan_of_nothing_is_not_clean(self):
        (self.root / "manifest.json").write_text(json.dumps({
            "format": "lockstep-trace", "version": 1, "complete": False, "engine": {"name": "x"},
            "checkpoints": [{"name": "a", "dtype": "f32", "width": 1}], "steps": []}))
        self.assertIn("nothing to scan: no numbers", run("scan", self.root, status=1).stdout)
        out = json.loads(run("scan", self.root, "--json", status=1).stdout)
        self.assertEqual((out["clean"], out["files"][0]["clean"]), (False, False))

    def test_scan_of_a_recording_that_broke_off_is_not_clean(self):
        trace = self.root / "trace"
        run("run", "-m", "haiku", "-p", "GPU", "-n", "3", "--threads", "1", "--trace", trace)
        log = self.root / "log.jsonl"
        run("export", trace, "--jsonl", log)

        def check(path, complete):
            status = 0 if complete else 1
            text = run("scan", path, status=status).stdout
            self.assertIn("no garbage", text)
            self.assertEqual("the recording broke off" in text, not complete)
            self.assertEqual("what was to come after it is not there" in text, not complete)
            out = json.loads(run("scan", path, "--json", status=status).stdout)
            (file,) = out["files"]
            self.assertEqual([out["clean"], file["clean"], file["complete"]], [complete] * 3)
            self.assertEqual(file["garbage_numbers"], 0)
            self.assertGreater(file["numbers"], 0)

        check(trace, True)
        check(log, True)
        manifest = trace / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
        check(trace, False)
        log.write_bytes(log.read_bytes()[:-9])
        check(log, False)

    def test_more_threads_than_cores_is_warned_of(self):
        cores = len(os.sched_getaffinity(0))
        trace = self.root / "trace"
        run("run", "-p", "x", "-n", "1", "--trace", trace, "--checkpoints", "logits")
        for command in (("run", "-p", "x", "-n", "1"), ("compare", trace, trace)):
            done = run(*command, "--threads", cores + 7)
            words = f"lockstep: warning: --threads {cores + 7} on {cores} core"
            self.assertEqual(done.stderr.count(words), 1, done.stderr)
            self.assertNotIn("warning", done.stdout)
            self.assertNotIn("warning", run(*command, "--threads", cores).stderr)
        self.assertIn("from 1 to 4096", run("run", "-p", "x", "--threads", "5000", status=2).stderr)
        self.assertIn("from 1 to 4096", run("run", "-p", "x", "--threads", "0", status=2).stderr)

    def test_a_folder_where_a_file_is_needed(self):
        folder = self.root / "a folder"
        folder.mkdir()
        self.assertIn(f"--file: {folder} is a folder, expected a file", run("run", "-f", folder, status=2).stderr)
        for command in (("run", "-p", "x", "-m"), ("inspect",), ("tensor", "-m"), ("tokenize", "-p", "x", "-m"),
                        ("serve", "-m"), ("bench", "-m"), ("demo", "bug", "-m")):  # fmt: skip
            self.assertIn(f"{folder} is a folder with no GGUF file in it", run(*command, folder, status=2).stderr)
        (folder / "a.gguf").touch()
        self.assertIn(f"{folder} is a folder; give the GGUF file in it: {folder}/a.gguf",
                      run("run", "-p", "x", "-m", folder, status=2).stderr)  # fmt: skip
        (folder / "b.gguf").touch()
        self.assertIn(f"2 GGUF files; give one of them: {folder}/a.gguf, {folder}/b.gguf",
                      run("run", "-p", "x", "-m", folder, status=2).stderr)  # fmt: skip
        # Without a slash, and not the name of a model.
        self.assertIn("hub is a folder with no GGUF", self.relative("hub", "notes.txt"))
        self.assertIn("hub is a folder with a Hugging Face checkpoint (model.safetensors); its config.json is missing",
                      self.relative("hub", "model.safetensors"))  # fmt: skip
        self.assertIn("hub/config.json: no valid JSON", self.relative("hub", "config.json"))  # a model then

    def relative(self, name, *files):
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        for file in files:
            folder.joinpath(file).touch()
        return run("run", "-p", "x", "-m", name, status=2, cwd=self.root).stderr

    def test_a_folder_called_like_a_model_is_no_model(self):
        (self.root / "haiku").mkdir()
        run("run", "-p", "x", "-n", "1", "-m", "haiku", cwd=self.root)

    def test_results_go_to_files_that_can_be_written(self):
        trace = self.root / "t.trace"
        run("run", "-p", "x", "-n", "2", "--trace", trace, "--checkpoints", "logits")
        for flag in ("--html", "--junit", "--markdown", "--csv"):
            for value, words in (("-", "found '-', expected the name of a file"), ("", "found an empty text"),
                                 (self.root, "is a folder, expected a file to write"),
                                 (self.root / "no/x", "no such folder")):  # fmt: skip
                done = run("compare", trace, trace, flag, value, status=2)
                self.assertIn(f"{flag}: ", done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")
        self.assertFalse((pathlib.Path.cwd() / "-").exists())

    def test_tokens_have_text_and_piece(self):
        text = "Hi there, é"
        for model in ("haiku-llama-q4_k_m", "haiku-phi3-q4_k_m"):
            out = json.loads(run("tokenize", "-m", model, "--json", "--no-bos", "-p", text).stdout)
            self.assertEqual(out["count"], len(out["ids"]))
            self.assertEqual(out["ids"], [token["id"] for token in out["tokens"]])
            self.assertEqual(list(out["tokens"][0]), ["id", "text", "piece"])
            spelled = "".join(token["text"] for token in out["tokens"] if "\ufffd" not in token["text"])
            self.assertEqual(spelled.strip(), "Hi there,")
            space = next(token for token in out["tokens"] if token["text"].startswith(" "))
            self.assertIn(space["piece"][0], "Ġ▁")  # a space, as vocabularies write it
            self.assertEqual(space["piece"][1:], space["text"][1:])
            # Half a character is told apart by its piece.
            broken = [token["piece"] for token in out["tokens"] if "\ufffd" in token["text"]]
            self.assertEqual(len(set(broken)), len(broken))
        self.assertIn("text, what it spells; piece, as the vocabulary has it",
                      " ".join(run("tokenize", "--help").stdout.split()))  # fmt: skip

    def values(self, model, tensor):
        done = subprocess.run([PROGRAM, "tensor", "-m", model, tensor, "--raw"], capture_output=True, check=True)
        return struct.unpack(f"<{len(done.stdout) // 4}f", done.stdout)

    def test_quantize_tells_the_error_of_each_tensor(self):
        source, target = self.root / "in.gguf", self.root / "out.gguf"
        run("forge", source, "--arch", "llama", "--width", "96", "--heads", "3", "--layers", "2", "--type", "f32",
            "--seed", "5")  # fmt: skip
        out = json.loads(run("quantize", source, target, "--type", "q4_k_m", "--json").stdout)
        inspected = json.loads(run("inspect", target, "--json").stdout)["tensors"]
        self.assertEqual([(row["name"], row["type"], row["bytes"]) for row in out["tensors"]],
                         [(row["name"], row["type"], row["bytes"]) for row in inspected])  # fmt: skip
        for row in out["tensors"]:
            before, after = self.values(source, row["name"]), self.values(target, row["name"])
            error = math.sqrt(sum((a - b) ** 2 for a, b in zip(before, after)) / sum(a * a for a in before))
            self.assertAlmostEqual(row["relative_rms_error"], error, delta=1e-9)
            self.assertEqual(row["relative_rms_error"] == 0, row["type"] == "F32")
        shown = run("quantize", source, target, "Q4_K_M", "--force").stdout
        for row in out["tensors"]:
            line = next(line for line in shown.splitlines() if line.startswith(row["name"] + " "))
            self.assertEqual(line.split()[1:3], [row["source_type"], row["type"]])
            self.assertAlmostEqual(float(line.split()[-1]), row["relative_rms_error"], delta=6e-3 * row["relative_rms_error"])
        dry = json.loads(run("quantize", source, target, "Q8_0", "--dry-run", "--json").stdout)
        self.assertNotIn("relative_rms_error", dry["tensors"][0])

    def test_without_a_command_the_help_is_shown(self):
        shown = run().stdout
        self.assertIn("Subcommands:", shown)
        self.assertEqual(shown, run("help").stdout)
        self.assertEqual(run("help", "compare").stdout, run("compare", "--help").stdout)
        self.assertIn("did you mean compare?", run("comprae", status=2).stderr)
        self.assertEqual(run("comprae", status=2).stdout, "")


if __name__ == "__main__":
    unittest.main()
