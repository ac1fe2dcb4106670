"""Completion in real interactive shells: bash without and with the bash-completion package, and zsh.

usage: completion_test.py PROGRAM
Keys are typed into a shell at a pseudo-terminal. A key of our own makes the shell print its command line between << and
>>; another one puts every candidate into the line.
"""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
PACKAGE = pathlib.Path("/usr/share/bash-completion/bash_completion")
SHOW, ALL, SECONDS = "\x07", "\x1b*", 60


class Shell:
    """An interactive shell in `folder`; `start` makes it ready."""

    def __init__(self, arguments, folder, environment, start):
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execve(arguments[0], arguments, environment)
        self.seen = ""
        start.append("echo '<''<ready>>'")
        self.write("; ".join(start) + "\n")
        self.line()

    def write(self, text):
        os.write(self.terminal, text.encode())

    def line(self):
        """What the shell prints next between << and >>."""
        end = time.monotonic() + SECONDS
        while True:
            found = re.search(r"<<(.*?)>>", self.seen, re.DOTALL)
            if found:
                self.seen = self.seen[found.end() :]
                return found[1].replace("\r\n", "\n")
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"the shell does not answer: {self.seen!r}")
            self.seen += os.read(self.terminal, 65536).decode(errors="replace")

    def after(self, keys):
        """The command line after these keys."""
        self.write(keys + SHOW)
        return self.line()

    def close(self):
        os.close(self.terminal)  # hangs up, which ends it
        os.waitpid(self.process, 0)


class Completion:
    """What all shells must do. `shell` is set by the classes below."""

    quoted_space = "\\ "
    after_folder = "/"

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name) / "work"
        cls.folder.mkdir()
        for name in ("model one.gguf", "model_two.gguf", "notes.txt", "engine.jsonl"):
            cls.folder.joinpath(name).touch()
        for name in ("first.trace", "second run.trace", "runs/deep.trace"):
            cls.folder.joinpath(name).mkdir(parents=True)
            cls.folder.joinpath(name, "manifest.json").touch()
        home = pathlib.Path(cls.holder.name) / "home"
        cache = home / ".cache/lockstep/models"
        cache.mkdir(parents=True)
        cache.joinpath("downloaded-q8_0.gguf").touch()
        cls.environment = {"HOME": str(home), "TERM": "vt100", "PS1": "$ ", "LC_ALL": "C.UTF-8",
                           "PATH": f"{PROGRAM.parent}:/usr/bin:/bin"}  # fmt: skip
        cls.shell = cls.start()

    @classmethod
    def tearDownClass(cls):
        cls.shell.close()
        cls.holder.cleanup()

    def tab(self, text):
        return self.shell.after(text + "\t").rstrip(" ")

    def offered(self, text):
        """All candidates for the last word."""
        line = self.shell.after(text + ALL)
        before = text.rsplit(" ", 1)[0] + " "
        self.assertEqual(line[: len(before)], before)
        words = line[len(before) :].replace("\\ ", "\0").split()
        return sorted(word.replace("\0", " ") for word in words)

    def test_commands(self):
        self.assertEqual(self.tab("lockstep comp"), "lockstep comp")
        self.assertEqual(self.tab("lockstep compa"), "lockstep compare")
        self.assertEqual(self.tab("lockstep models pu"), "lockstep models pull")
        self.assertEqual(self.offered("lockstep comp"), ["compare", "completion"])
        shown = subprocess.run([PROGRAM, "help"], capture_output=True, text=True, check=True).stdout
        commands = re.findall(r"^  ([a-z]+) ", shown[shown.index("Subcommands:") :], re.MULTILINE)
        self.assertGreater(len(commands), 15)
        self.assertEqual(self.offered("lockstep "), sorted(commands))
        self.assertEqual(self.offered("lockstep help "), sorted(commands))
        self.assertEqual(self.tab("lockstep help models "), "lockstep help models pull")

    def test_options(self):
        self.assertEqual(self.tab("lockstep run --repeat-p"), "lockstep run --repeat-penalty")
        self.assertEqual(self.offered("lockstep run --top"), ["--top-k", "--top-p"])
        self.assertEqual(self.tab("lockstep capture llama.cpp --flash"), "lockstep capture llama.cpp --flash-attn")

    def test_values(self):
        self.assertEqual(self.offered("lockstep run --device "), ["cpu", "cuda", "reference", "reference-cpu"])
        self.assertEqual(self.offered("lockstep forge --type q4_k"), ["q4_k", "q4_k_m", "q4_k_s"])
        self.assertEqual(self.tab("lockstep forge --like tiny"), "lockstep forge --like tinyllama-1.1b")
        self.assertEqual(self.offered("lockstep forge --arch qwen"), ["qwen2", "qwen2moe", "qwen3", "qwen3moe"])
        self.assertEqual(self.offered("lockstep quantize haiku x.gguf --type Q4_K"), ["Q4_K_M", "Q4_K_S"])
        self.assertEqual(self.offered("lockstep quantize haiku x.gguf Q4_K"), ["Q4_K_M", "Q4_K_S"])
        self.assertEqual(self.offered("lockstep capture "), ["llama.cpp", "transformers"])
        self.assertEqual(self.tab("lockstep completion z"), "lockstep completion zsh")
        self.assertEqual(self.tab("lockstep run --device=ref"), "lockstep run --device=reference")
        self.assertEqual(self.shell.after("lockstep run -n \t"), "lockstep run -n ")

    def test_checkpoint_sets(self):
        self.assertEqual(self.offered("lockstep run --checkpoints "), ["all", "layers", "logits", "ops"])
        self.assertEqual(self.tab("lockstep run --checkpoints la"), "lockstep run --checkpoints layers")
        self.assertEqual(self.tab("lockstep run --checkpoints ops,la"), "lockstep run --checkpoints ops,layers")
        self.assertEqual(self.tab("lockstep export x --checkpoints=ops,la"), "lockstep export x --checkpoints=ops,layers")
        self.assertEqual(self.tab("lockstep run --checkpoints 'blk.*.q,la").rstrip("'"),
                         "lockstep run --checkpoints 'blk.*.q,layers")  # fmt: skip

    def test_models(self):
        found = self.offered("lockstep run -m ")
        for name in ("haiku", "haiku-llama-q4_k_m", "haiku-phi3-q4_k_m", "downloaded-q8_0", "model one.gguf"):
            self.assertIn(name, found)
        self.assertNotIn("notes.txt", found)
        self.assertNotIn("engine.jsonl", found)
        self.assertEqual(self.tab("lockstep inspect down"), "lockstep inspect downloaded-q8_0")
        self.assertEqual(self.tab("lockstep run -m model_"), "lockstep run -m model_two.gguf")
        self.assertEqual(self.tab("lockstep models pull tiny"), "lockstep models pull tinyllama-1.1b-chat-q4_k_m")

    def test_files(self):
        self.assertEqual(self.tab("lockstep run -f no"), "lockstep run -f notes.txt")
        self.assertEqual(self.tab("lockstep run --model=model_"), "lockstep run --model=model_two.gguf")
        spaced = f"model{self.quoted_space}one.gguf"
        self.assertEqual(self.tab("lockstep inspect model\\ o"), f"lockstep inspect {spaced}")
        self.assertEqual(self.tab("lockstep inspect 'model o"), "lockstep inspect 'model one.gguf'")
        home = pathlib.Path(self.environment["HOME"])
        home.joinpath("mine.gguf").touch()
        self.assertEqual(self.tab("lockstep inspect ~/mi"), "lockstep inspect ~/mine.gguf")
        self.assertEqual(self.tab(f"lockstep inspect {home}/mi"), f"lockstep inspect {home}/mine.gguf")

    def test_traces(self):
        self.assertEqual(self.tab("lockstep export fir"), "lockstep export first.trace/")
        self.assertEqual(self.tab("lockstep compare first.trace sec"), "lockstep compare first.trace second\\ run.trace/")
        self.assertEqual(self.tab("lockstep scan first.trace runs/"), "lockstep scan first.trace runs/deep.trace/")
        self.assertEqual(self.tab("lockstep scan eng"), "lockstep scan engine.jsonl")
        found = self.offered("lockstep compare first.trace ")
        self.assertEqual([name.rstrip("/") for name in found], ["engine.jsonl", "first.trace", "runs", "second run.trace"])
        self.assertEqual(self.tab("lockstep import eng"), "lockstep import engine.jsonl")
        self.assertEqual(self.tab("lockstep run --trace fir"), "lockstep run --trace first.trace/")

    def test_where_the_program_is_called_by_its_path(self):
        self.assertEqual(self.tab(f"{PROGRAM} compa"), f"{PROGRAM} compare")
        self.assertEqual(self.tab("true && lockstep compa"), "true && lockstep compare")
        self.assertEqual(self.tab("X=1 lockstep compa"), "X=1 lockstep compare")

    def test_odd_lines_do_no_harm(self):
        for line in ("lockstep nothing ", "lockstep run $(touch hacked) ", "lockstep run `touch hacked` --de", "lockstep -- "):
            self.shell.after(line + "\t")
        self.assertFalse(self.folder.joinpath("hacked").exists())
        self.assertEqual(self.tab("lockstep compa"), "lockstep compare")  # still there


class Bash(Completion, unittest.TestCase):
    before = []

    @classmethod
    def start(cls):
        show = """bind -x '"\\C-g": echo "<""<$READLINE_LINE>>"; READLINE_LINE='"""
        return Shell([shutil.which("bash"), "--norc", "--noprofile", "-i"], cls.folder, cls.environment,
                     [*cls.before, "bind 'set bell-style none'", show, *cls.load])  # fmt: skip

    load = ["source <(lockstep completion bash)"]


@unittest.skipUnless(PACKAGE.exists(), "bash-completion is not installed")
class BashWithThePackage(Bash):
    """The script lies where the package looks for it, and is loaded when it is needed."""

    before = [f"source {PACKAGE}"]
    load = []

    @classmethod
    def start(cls):
        place = pathlib.Path(cls.environment["HOME"]) / ".local/share/bash-completion/completions"
        place.mkdir(parents=True)
        script = subprocess.run([PROGRAM, "completion", "bash"], capture_output=True, check=True).stdout
        place.joinpath("lockstep").write_bytes(script)
        return super().start()


class BashWithoutEqualsInWordbreaks(Bash):
    load = ["source <(lockstep completion bash)", "COMP_WORDBREAKS=${COMP_WORDBREAKS//[=:]/}"]


@unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
class Zsh(Completion, unittest.TestCase):
    @classmethod
    def start(cls):
        return Shell(
            [shutil.which("zsh"), "-f", "-i"], cls.folder, cls.environment,
            [*cls.before, "autoload -U compinit", "compinit -u -D", *cls.load, "setopt no_list_beep no_auto_menu no_auto_param_slash",
             "zstyle ':completion:*' menu no",
             "show() { print -r -- '<'\"<$BUFFER>>\"; BUFFER=; CURSOR=0; }", "zle -N show", "bindkey '^G' show",
             "zstyle ':completion:all:*' completer _all_matches _complete", "zstyle ':completion:all:*' insert true",
             "zstyle ':completion:all:*' tag-order '*'",
             "zle -C all complete-word _generic", "bindkey '\\e*' all"],
        )  # fmt: skip

    before = []
    load = ["source <(lockstep completion zsh)"]


class ZshByName(Zsh):
    """The script is a file of $fpath, loaded when it is needed."""

    load = []

    @classmethod
    def start(cls):
        place = pathlib.Path(cls.environment["HOME"]) / "functions"
        place.mkdir()
        script = subprocess.run([PROGRAM, "completion", "zsh"], capture_output=True, check=True).stdout
        place.joinpath("_lockstep").write_bytes(script)
        cls.before = [f"fpath=({place} $fpath)"]
        return super().start()


if __name__ == "__main__":
    unittest.main()
