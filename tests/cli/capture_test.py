"""lockstep capture: the right Python, arguments as they were given, the exit status of the module. No network.

usage: capture_test.py PROGRAM
The program is copied beside a package that only tells how it was called; wheels that only have a name stand for the
engines' packages.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import zipfile

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/haiku-llama-q4_k_m.gguf"

FLAGS = ("transformers", "-m", "x", "-p", "x", "-o", "y")

MODULE = """
import json, os, signal, sys
import numpy, {engine}
print(json.dumps({{"argv": sys.argv[1:], "python": sys.executable, "name": __name__, "numpy": numpy.__file__}}))
sys.stdout.flush()
status = int(os.environ.get("STATUS", "0"))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def wheel(folder, name, version, module):
    tag = f"{name}-{version}"
    with zipfile.ZipFile(folder / f"{tag}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{module}/__init__.py", "")
        archive.writestr(f"{tag}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{tag}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{tag}.dist-info/RECORD", "")


class Capture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.holder.name)
        cls.program = cls.root / "prefix/bin/lockstep"
        cls.program.parent.mkdir(parents=True)
        shutil.copy(PROGRAM, cls.program)
        cls.package = cls.root / "prefix/share/lockstep/python/lockstep/capture"
        cls.package.mkdir(parents=True)
        for name, engine in (("llama_cpp", "llama_cpp"), ("transformers", "torch, transformers")):
            cls.package.joinpath(f"{name}.py").write_text(MODULE.format(engine=engine))
        cls.package.joinpath("__init__.py").write_text("")
        cls.package.parent.joinpath("__init__.py").write_text("")
        cls.modules = cls.root / "modules"  # a Python that sees these has all that is needed
        for name in ("numpy", "llama_cpp", "torch", "transformers"):
            cls.modules.joinpath(name).mkdir(parents=True)
            cls.modules.joinpath(name, "__init__.py").write_text("")

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def setUp(self):
        self.work = self.root / self.id().rsplit(".", 1)[1]
        self.work.mkdir()
        self.cache = self.work / "cache"
        self.here = self.work / "here"
        self.here.mkdir()

    def environment(self, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
        return clean | {"XDG_CACHE_HOME": str(self.cache), "HOME": str(self.work), **more}

    def run_it(self, *flags, status=0, **variables):
        done = subprocess.run([self.program, "capture", *map(str, flags)], capture_output=True, text=True,
                              cwd=self.here, env=self.environment(**variables), stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def with_modules(self, *flags, **options):
        """Called with a Python that has everything; what the module was told."""
        done = self.run_it(*flags, "--python", sys.executable, PYTHONPATH=str(self.modules), **options)
        return json.loads(done.stdout)

    def test_arguments_arrive_as_they_are(self):
        odd = "-x 'a\" $(touch hacked); `touch hacked`\n\\ é *"
        told = self.with_modules("llama.cpp", "-m", MODEL, "-p", odd, "-n", "7", "-o", "a b", "--kv", "F32", "--all-nodes")
        self.assertEqual(told["name"], "__main__")
        fingerprint = told["argv"][0].removeprefix("--fingerprint=")
        self.assertRegex(fingerprint, r"\A[0-9a-f]{32}\Z")
        inspected = subprocess.run([PROGRAM, "inspect", "--fingerprint", MODEL], capture_output=True, text=True)
        self.assertIn(fingerprint, inspected.stdout)
        self.assertEqual(told["argv"], [f"--fingerprint={fingerprint}", f"--model={MODEL}", f"--program={self.program}",
                                        "--output=a b", f"--prompt={odd}", "--max-tokens=7", "--kv=f32",
                                        "--all-nodes"])  # fmt: skip
        self.assertEqual(list(self.here.iterdir()), [])
        told = self.with_modules("transformers", "-m", "some/id", "--tokens", "1,2", "--dtype=float64", "-o", "x")
        self.assertEqual(told["argv"], ["--model=some/id", f"--program={self.program}", "--output=x", "--tokens=1,2",
                                        "--dtype=float64"])  # fmt: skip
        told = self.with_modules("llama.cpp", "--engine-help")
        self.assertEqual(told["argv"], ["--help"])

    def test_exit_status_is_kept(self):
        for status in (0, 1, 2, 37):
            self.with_modules(*FLAGS, status=status, STATUS=str(status))
        self.with_modules(*FLAGS, status=-signal.SIGTERM, STATUS=str(-signal.SIGTERM))

    def test_nothing_is_imported_from_the_current_folder(self):
        for name in ("lockstep", "numpy", "runpy", "json", "importlib", "llama_cpp", "sitecustomize"):
            self.here.joinpath(f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
        told = self.with_modules("llama.cpp", "-m", MODEL, "-p", "x", "-o", "y")
        self.assertTrue(told["numpy"].startswith(str(self.modules)))

    def test_a_python_that_does_not_do(self):
        flags = (*FLAGS, "--python")
        self.assertIn("/nowhere/python: cannot start: No such file", self.run_it(*flags, "/nowhere/python", status=2).stderr)
        self.assertIn("is no Python that works", self.run_it(*flags, "false", status=2).stderr)
        for name, module in (("torch", "torch"), ("transformers", "transformers")):
            self.modules.joinpath(module).rename(self.root / "away")
            try:
                done = self.run_it(*flags, sys.executable, status=2, PYTHONPATH=str(self.modules))
            finally:
                (self.root / "away").rename(self.modules / module)
            self.assertIn(f"lacks {name}; to install: {sys.executable} -m pip install 'numpy", done.stderr)
        old = self.work / "old"
        old.write_text("#!/bin/sh\necho old 3.7.1\n")
        old.chmod(0o755)
        self.assertIn("is version 3.7.1, expected 3.9 or later", self.run_it(*flags, old, status=2).stderr)
        self.assertFalse(self.cache.exists())

    def test_wrong_use(self):
        for flags, words in (
            ((), "ENGINE is missing, expected an engine; usage: lockstep capture ENGINE"),
            (("vllm", "-m", "x"), "found 'vllm', expected an engine: llama.cpp, transformers"),
            (("transformers", "-p", "x"), "expected -m"),
            (("llama.cpp", "-m", "no/such.gguf", "-p", "x", "-o", "y"), "no such file"),
            (("llama.cpp", "-m", ROOT / "README.md", "-p", "x", "-o", "y"), "README.md"),
            (("llama.cpp", "-m", ROOT / "models", "-p", "x", "-o", "y"), "is a folder with"),
            (("llama.cpp", "-p", "x", "-o", "y", "--dtype", "float64"), "--dtype is for transformers; this is llama.cpp"),
            ((*FLAGS, "--flash-attn"), "--flash-attn is for llama.cpp; this is transformers"),
            ((*FLAGS, "--tokens", "1"), "found several prompts, expected one of -p TEXT"),
            (("llama.cpp", "-o", "y"), "found no prompt, expected one of -p TEXT"),
            (("llama.cpp", "-p", "x"), "expected -o FOLDER"),
            (("llama.cpp", "-p", "", "-o", "y"), "--prompt: found an empty text"),
            (("llama.cpp", "-p", "x", "-o", ""), "--output: found an empty text"),
            (("llama.cpp", "-p", "x", "-o", ROOT / "README.md"), "README.md is a file, expected a folder"),
            (("llama.cpp", "-p", "x", "-o", "y", "--all-node"), "did you mean --all-nodes?"),
            (("llama.cpp", "-p", "x", "-o", "y", "-n", "-1"), "--max-tokens: found '-1', expected a whole number"),
        ):
            done = self.run_it(*flags, status=2)
            self.assertIn(words, done.stderr + done.stdout)
            self.assertFalse(self.cache.joinpath("lockstep/python").exists())

    def test_without_the_package(self):
        alone = self.work / "bin/lockstep"
        alone.parent.mkdir()
        shutil.copy(PROGRAM, alone)
        done = subprocess.run([alone, "capture", *FLAGS], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"looked in {self.work}/python, {self.work}/share/lockstep/python", done.stderr)

    def packages(self):
        """Wheels for pip instead of the network, and a python3 without packages of its own."""
        wheels = self.work / "wheels"
        wheels.mkdir()
        wheel(wheels, "numpy", "2.0.0", "numpy")
        wheel(wheels, "llama_cpp_python", "0.3.36", "llama_cpp")
        programs = self.work / "programs"
        programs.mkdir()
        # -I -S: whatever is installed on this machine does not count.
        python3 = programs / "python3"
        python3.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -S "$@"\nexec {sys.executable} "$@"\n')
        python3.chmod(0o755)
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PATH": f"{programs}:{os.environ['PATH']}"}

    def test_an_environment_is_made_once(self):
        variables = self.packages()
        flags = ("llama.cpp", "-m", MODEL, "-p", "x", "-o", "y")
        made = self.cache / "lockstep/python/llama.cpp"
        done = self.run_it(*flags, status=2, **variables)
        self.assertIn(f"--yes installs numpy>=1.22, llama-cpp-python==0.3.36 into {made} (", done.stderr)
        self.assertFalse(made.exists())
        self.assertEqual(self.at_a_terminal(flags, "n\n", variables)[0], 2)
        self.assertFalse(made.exists())

        status, shown = self.at_a_terminal(flags, "y\n", variables)
        self.assertEqual(status, 0, shown)
        self.assertIn("[1/2] making a Python environment", shown)
        self.assertIn("[2/2] installing", shown)
        self.assertIn(f'"python": "{made}/bin/python"', shown)
        # It is there now: nothing to ask and nothing to install.
        done = self.run_it(*flags, **variables)
        self.assertEqual(json.loads(done.stdout)["python"], f"{made}/bin/python")
        self.assertEqual(done.stderr, "")
        self.assertEqual([path.name for path in made.parent.iterdir()], ["llama.cpp"])

        # Without one of its packages: only that is installed again.
        site = next(made.glob("lib/python*/site-packages"))
        for path in site.glob("llama_cpp*"):
            shutil.rmtree(path)
        done = self.run_it(*flags, "--yes", **variables)
        self.assertNotIn("[1/2]", done.stderr)
        self.assertEqual(json.loads(done.stdout)["python"], f"{made}/bin/python")

        # pip fails: its words are shown, and the status says so.
        for path in site.glob("llama_cpp*"):
            shutil.rmtree(path)
        done = self.run_it(*flags, "--yes", status=2, **variables | {"PIP_FIND_LINKS": str(self.here)})
        self.assertIn("llama-cpp-python==0.3.36", done.stderr)
        self.assertIn("exit status 1 of:", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_what_is_installed_is_what_the_package_says(self):
        extras = dict(re.findall(r"^([\w-]+) = \[(.*)\]$", (ROOT / "python/pyproject.toml").read_text(), re.MULTILINE))
        for engine, extra in (("llama.cpp", "llama-cpp"), ("transformers", "transformers")):
            if extra not in extras:
                self.skipTest("the package does not say")
            wanted = re.findall('"([^"]+)"', extras["dependencies"] + extras[extra])
            model = MODEL if engine == "llama.cpp" else "x"
            done = self.run_it(engine, "-m", model, "-p", "x", "-o", "y", status=2, PATH="/nowhere")
            self.assertIn(f"--yes installs {', '.join(wanted)} into", done.stderr)

    def test_flags_are_those_of_the_modules(self):
        """What the program declares is what the modules read: names, and the values to choose from."""
        shown = self.run_it("--help").stdout
        declared = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", shown, re.MULTILINE))
        ours = {"--help", "--python", "--yes", "--engine-help"}
        inner = {"--fingerprint", "--program"}
        read = set()
        for name in ("_command", "llama_cpp", "transformers"):
            source = (ROOT / f"python/lockstep/capture/{name}.py").read_text()
            for call in re.findall(r"add_argument\(([^)]*)", source):
                read |= set(re.findall(r'"(--[\w-]+)"', call))
        self.assertEqual(declared - ours, read - inner)

        def offered(flag):
            done = subprocess.run([PROGRAM, "__complete", "words", "lockstep", "capture", flag, ""], capture_output=True,
                                  text=True, check=True)  # fmt: skip
            return {line.split("\t")[0] for line in done.stdout.splitlines()[2:]}

        types = re.search(r"KV_TYPES = \{(.*?)\}", (ROOT / "python/lockstep/capture/_llama_run.py").read_text())
        self.assertEqual(offered("--kv"), set(re.findall(r'"(\w+)"', types[1])))
        types = re.search(r"^DTYPES = \((.*?)\)", (ROOT / "python/lockstep/capture/transformers.py").read_text(), re.M)
        self.assertEqual(offered("--dtype"), set(re.findall(r'"(\w+)"', types[1])))

    def at_a_terminal(self, flags, answer, variables):
        """Exit status and all that was shown, where somebody answers."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.here)
            os.execve(self.program, [str(self.program), "capture", *map(str, flags)], self.environment(**variables))
        shown = b""
        answered = False
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not piece:
                break
            shown += piece
            if b"? [y/N] " in shown and not answered:
                os.write(terminal, answer.encode())
                answered = True
        os.close(terminal)
        _, status = os.waitpid(process, 0)
        self.assertTrue(answered, shown)
        return os.waitstatus_to_exitcode(status), shown.decode()


if __name__ == "__main__":
    unittest.main()
