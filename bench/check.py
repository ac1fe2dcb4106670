"""What `lockstep check` takes besides the engines: bench/check.py PROGRAM

A suite of 200 small cases: our own device, and a program that copies a trace. Prints milliseconds a case in the
engines, in judging and around both.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

program = Path(sys.argv[1]).resolve()
with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    model, trace = root / "small.gguf", root / "copy.trace"
    subprocess.run([program, "forge", "--arch", "llama", "--type", "f16", "--seed", "1", "--layers", "2", "--width", "64",
                    "--heads", "2", "--kv-heads", "2", "--feed-forward", "128", "--vocab", "256", "--context", "256", model],
                   check=True, capture_output=True)  # fmt: skip
    tokens = [[i % 256, (7 * i) % 256, (31 * i) % 256, 5] for i in range(100)]
    subprocess.run([program, "run", "-m", model, "--tokens", ",".join(map(str, tokens[0])), "-n", "4", "--device", "cpu",
                    "--checkpoints", "ops", "--trace", trace], check=True, capture_output=True)  # fmt: skip
    for name, engine, prompts in (("device", 'device = "cpu"', tokens + tokens),
                                  ("program", f'command = ["cp", "-r", "{trace}", "{{trace}}"]', [tokens[0]] * 200)):
        suite, output = root / "suite.toml", root / "results.json"
        suite.write_text(f'[engine.x]\n{engine}\n[[case]]\nmodel = "small.gguf"\ntokens = {json.dumps(prompts)}\nn = 4\n'
                         'suspects = ["x"]\n')
        for cache in ("cold", "warm"):
            start = time.monotonic()
            subprocess.run([program, "check", suite, "--json", output, "--cache", root / f"cache-{name}"], check=True,
                           stdout=subprocess.DEVNULL)
            wall = time.monotonic() - start
            results = json.loads(output.read_text())["results"]
            assert len(results) == 200 and all(r["status"] == "passed" for r in results)
            engines = sum(r["engine_seconds"] for r in results)
            judging = sum(r["seconds"] for r in results) - engines
            print(f"{name}, {cache} cache: a case {1000 * wall / 200:.1f} ms, engines {1000 * engines / 200:.1f}, "
                  f"judging {1000 * judging / 200:.1f}, the rest {1000 * (wall - engines - judging) / 200:.1f}")
