"""What a suite of 200 small cases takes on several workers of this machine: bench/many.py PROGRAM [--ray]

Each worker runs a part with one thread; the parts are merged. Prints seconds, and milliseconds a case besides the
engines. --ray: the same by `python -m lockstep.ray`, with as many tasks as it takes by itself, and a task for each case.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = 200
program = Path(sys.argv[1]).resolve()
package = Path(__file__).resolve().parents[1] / "python"


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(name, workers, start, cpu, output):
    wall = time.monotonic() - start
    results = json.loads(output.read_text())["results"]
    assert len(results) == CASES and all(one["status"] == "passed" for one in results)
    engines = sum(one["engine_seconds"] for one in results)
    rest = 1000 * (wall * workers - engines) / CASES
    cpu = f", cores busy for {cpu_seconds() - cpu:.1f} s" if cpu is not None else ""
    print(f"{name}: {wall:.1f} s, engines {engines:.1f} s of the workers{cpu}; besides them {rest:.0f} ms of a worker a case",
          flush=True)  # fmt: skip


with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    subprocess.run([program, "forge", "--arch", "llama", "--type", "f16", "--seed", "1", "--layers", "2", "--width", "64",
                    "--heads", "2", "--kv-heads", "2", "--feed-forward", "128", "--vocab", "256", "--context", "256",
                    root / "small.gguf"], check=True, capture_output=True)  # fmt: skip
    tokens = [[i % 256, (7 * i) % 256, (31 * i) % 256, 5] for i in range(CASES)]
    suite, output = root / "suite.toml", root / "results.json"
    suite.write_text(
        '[engine.x]\ndevice = "cpu"\nthreads = 1\n[engine.trusted]\ndevice = "reference"\nthreads = 1\n'
        '[[case]]\nmodel = "small.gguf"\nn = 4\nreference = "trusted"\nsuspects = ["x"]\n'
        f"tokens = {json.dumps(tokens)}\n"
    )
    for workers in (1, 2, 4):
        if workers > 2 * (os.cpu_count() or 1):
            break
        start, cpu = time.monotonic(), cpu_seconds()
        parts = [root / f"part{k}.json" for k in range(1, workers + 1)]
        command = [program, "check", suite, "--no-cache", "--threads=1"]
        running = [subprocess.Popen([*command, f"--part={k}/{workers}", f"--json={part}"], stdout=subprocess.DEVNULL)
                   for k, part in enumerate(parts, 1)]  # fmt: skip
        assert not any([one.wait() for one in running])
        subprocess.run([program, "check", "--merge", *parts, f"--json={output}"], check=True, stdout=subprocess.DEVNULL)
        report(f"{workers} workers", workers, start, cpu, output)
    if "--ray" in sys.argv[2:]:
        import ray.cluster_utils

        environment = {**os.environ, "PYTHONPATH": str(package), "LOCKSTEP": str(program)}
        for workers in (1, 2):
            node = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": 100 << 20}
            cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=node)
            command = [sys.executable, "-m", "lockstep.ray", suite, "--no-cache"]
            for name, more in (("its own number of tasks", []), (f"{CASES} tasks", [f"--parts={CASES}"])):
                start = time.monotonic()
                options = [f"--address={cluster.address}", f"--json={output}", *more]
                subprocess.run([*command, *options], check=True, env=environment, stdout=subprocess.DEVNULL)
                report(f"Ray, {workers} workers, {name}", workers, start, None, output)
            cluster.shutdown()
