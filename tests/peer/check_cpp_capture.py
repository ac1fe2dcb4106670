"""examples/llama_cpp.cpp gives the same trace as `lockstep capture llama.cpp`, bit for bit.

It is compiled against the headers and libraries that the llama-cpp-python package installs, and reads nothing of ours
but include/.
"""

import json
import shutil
import subprocess
import sys
from importlib import metadata

from peer import LOCKSTEP, ROOT, WORK, Report, run_ours
from smollm2 import chat, model_file

sys.path.insert(0, str(ROOT / "python"))
import lockstep  # noqa: E402: needs the path above

FOLDER = WORK / "cpp_capture"
FLAGS = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-ffp-contract=off"]
PROMPT = "GPU haiku with word thirty-seven: "


def installed(name):
    """The folder of a file that the llama-cpp-python package installed."""
    for path in metadata.files("llama-cpp-python"):
        if path.name == name:
            return path.locate().resolve().parent
    raise RuntimeError(f"llama-cpp-python has no {name}")


def build():
    program = FOLDER / "capture"
    libraries = installed("libllama.so")
    run_ours(["g++", *FLAGS, "-I", ROOT / "include", "-isystem", installed("llama.h"), ROOT / "examples/llama_cpp.cpp",
              "-o", program, "-L", libraries, "-lllama", "-lggml-base", f"-Wl,-rpath,{libraries}"])  # fmt: skip
    return program


def captured(name, *command):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([*map(str, command), str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name} exited with {done.returncode}: {done.stderr.strip()}")
    return lockstep.open_trace(folder)


def manifest(trace):
    """Without what must differ: who called the engine, and how steps are gathered in files."""
    out = json.loads(json.dumps(trace.manifest))
    out["engine"].pop("version", None)
    out["model"] = {field: value for field, value in out["model"].items() if value}
    for step in out["steps"]:
        del step["shard"]
    return out


def value(trace, name, step):
    try:
        return trace.value(name, step)
    except KeyError:
        return None


def same_bits(one, two):
    if one is None or two is None:
        return one is two
    return one.shape == two.shape and one.dtype == two.dtype and one.tobytes() == two.tobytes()


def compare(report, program, model, prompt, tokens):
    theirs = captured("python.trace", LOCKSTEP, "capture", "llama.cpp", "--python", sys.executable, "-m", model,
                      "-p", prompt, "-n", tokens, "-o")  # fmt: skip
    ours = captured("cpp.trace", program, model, prompt, tokens)
    one, two = manifest(theirs), manifest(ours)
    fingerprint = one["model"].pop("fingerprint")  # which the command adds
    report.case(f"{model.name}: fingerprint", fingerprint in run_ours([LOCKSTEP, "inspect", "--fingerprint", model]))
    differing = [field for field in sorted(one.keys() | two.keys()) if one.get(field) != two.get(field)]
    report.case(f"{model.name}: manifest", not differing and two["complete"], ", ".join(differing))
    pairs = [(name, step) for step in range(len(theirs.steps)) for name in theirs]
    wrong = [f"{step}/{name}" for name, step in pairs
             if not same_bits(value(theirs, name, step), value(ours, name, step))]  # fmt: skip
    detail = f"{len(pairs)} values in {len(theirs.steps)} steps" + (f"; differ: {', '.join(wrong[:5])}" if wrong else "")
    report.case(f"{model.name}: values", not wrong, detail)


def main():
    report = Report("C++ capture")
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = build()
    models = sorted((ROOT / "models").glob("haiku-*.gguf"))
    cases = [(path, PROMPT, 6) for path in models]
    for arch, kind in (("qwen3", "q8_0"), ("llama", "q4_1"), ("granite", "bf16"), ("llama", "f32")):
        path = FOLDER / f"{arch}-{kind}.gguf"
        run_ours([LOCKSTEP, "forge", "--arch", arch, "--type", kind, "--layers", 2, "--width", 256, "--heads", 4, "--kv-heads",
                  2, "--feed-forward", 512, "--context", 2048, "--tokenizer", models[0], "--force", path])  # fmt: skip
        cases.append((path, PROMPT, 3))
    cases.append((cases[-1][0], PROMPT * 70, 3))  # a prompt of several steps
    cases.append((model_file(), chat("Why is the sky blue?"), 3))
    for path, prompt, tokens in cases:
        report.attempt(path.name, compare, report, program, path, prompt, tokens)
    report.finish()


if __name__ == "__main__":
    main()
