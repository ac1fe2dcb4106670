"""suites/peers.toml: llama.cpp, ik_llama.cpp and transformers through `lockstep check`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import hf_models
from peer import LOCKSTEP, ROOT, WORK, Report

ARCHITECTURES = ("gpt2", "llama", "qwen2", "qwen3", "phi3", "granite")


def make_models(folder):
    """A folder that transformers reads and a GGUF file with the same weights, for every architecture."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed, arch in enumerate(ARCHITECTURES):
        model = hf_models.random_model(hf_models.config_of(arch, {}), seed)
        hf_models.export(model, folder / f"{arch}.gguf")
        model.float().save_pretrained(folder / arch)


def ik_llama():
    """The folder of the program that records ik_llama.cpp. LOCKSTEP_IK_LLAMA names one that is built already."""
    place = Path(os.environ.get("LOCKSTEP_IK_LLAMA", WORK / "ik"))
    if not (place / "bin" / "ik_llama").exists():
        print("building ik_llama.cpp (half an hour on two cores)", file=sys.stderr, flush=True)
        subprocess.run([Path(__file__).with_name("build_ik_llama"), place], check=True, stdout=subprocess.DEVNULL)
    return place / "bin"


def main():
    report = Report("suite")
    place = ROOT / "build" / "peer" / "suite"  # where the suite looks
    make_models(place)
    WORK.mkdir(parents=True, exist_ok=True)
    output, failed = WORK / "suite.json", WORK / "suite-failed"
    output.unlink(missing_ok=True)
    shutil.rmtree(failed, ignore_errors=True)
    # `capture` takes the Python that has the engines: this one.
    paths = os.pathsep.join([str(Path(sys.executable).parent), str(ik_llama()), os.environ["PATH"]])
    done = subprocess.run([LOCKSTEP, "check", ROOT / "suites" / "peers.toml", "--json", output, "--out", failed],
                          env=os.environ | {"PATH": paths})  # fmt: skip
    report.case("exit status 0", done.returncode == 0, f"{done.returncode}")
    results = json.loads(output.read_text())
    for one in results["results"]:
        report.case(one["id"], one["status"] in ("passed", "known"), one["reason"] or "")
    stale = [entry["reason"] for entry in results["known_defects"] if entry["stale"]]
    report.case("known defects are still met", not stale, ", ".join(stale))
    report.finish()


main()
