"""One comparison on a cluster of Ray: python -m lockstep.ray compare REFERENCE SUSPECT -m MODEL [options]

Each part of `lockstep compare --part` is a task; `lockstep compare --merge` makes the reports, on the machine that the run
was started on. Traces and model lie where all nodes see them under the same path.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, List, Optional, Sequence

from . import _ray_task
from . import ray as driver
from ._program import LockstepError, program
from ._ray_task import ComparePart

PART_VALUES = ("model", "checkpoints", "positions", "names", "device")
MERGE_VALUES = ("min-coverage", "depth", "html", "html-limit", "junit", "markdown", "csv")
MERGE_FLAGS = ("no-diagnosis", "search", "json")


def parse(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    text = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser("python -m lockstep.ray compare", description=text, allow_abbrev=False)
    parser.add_argument("reference", metavar="REFERENCE", help="trace of the engine that is trusted")
    parser.add_argument("suspect", metavar="SUSPECT", help="trace of the engine in question")
    cluster = driver.add_cluster(parser)
    cluster.add_argument("--parts", type=int, metavar="N", help="number of tasks (default: one for each place where one can run)")
    compare = parser.add_argument_group("as `lockstep compare` has them")
    for name in (*PART_VALUES, *MERGE_VALUES):
        compare.add_argument(*(["-m"] if name == "model" else []), f"--{name}", metavar="X")
    for name in MERGE_FLAGS:
        compare.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(arguments)
    driver.check_numbers(parser, given, driver.CLUSTER_NUMBERS)
    return given


def parts_of(given: argparse.Namespace, count: int) -> List[ComparePart]:
    threads = [f"--threads={max(1, int(given.num_cpus))}"]  # as many as the task has
    arguments = [given.reference, given.suspect, *driver.flags(given, PART_VALUES), *threads]
    return [ComparePart(k, count, os.getcwd(), str(program()), arguments) for k in range(1, count + 1)]


def merge(given: argparse.Namespace, files: Sequence[Path]) -> int:
    """The reports; the exit status of `lockstep compare`."""
    options = driver.flags(given, (*MERGE_VALUES, *MERGE_FLAGS))
    sys.stdout.flush()
    return subprocess.call([str(program()), "compare", "--merge", *map(str, files), *options], stdin=subprocess.DEVNULL)


def run(given: argparse.Namespace, ray: Any) -> int:
    with tempfile.TemporaryDirectory(prefix="lockstep-") as work:
        files: List[Path] = []
        try:
            ray.init(address=given.address, logging_level="error", log_to_driver=False)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, driver.on_signal)
            remote, resources = driver.remote_of(ray, given, _ray_task.compare_task, "lockstep compare")
            count = min(given.parts or driver.places(ray.nodes(), resources), driver.MOST_PARTS)
            waiting = {remote.remote(part): part for part in parts_of(given, count)}
            try:
                while waiting and not driver.ended_by:
                    for reference in ray.wait(list(waiting), num_returns=1, timeout=1)[0]:
                        part = waiting.pop(reference)
                        try:
                            found = ray.get(reference)
                        except ray.exceptions.RayError as problem:
                            tried = driver.tries(given.retries)
                            raise LockstepError(f"{part.name()} failed {tried}: {driver.why(problem)}") from None
                        files.append(Path(work) / f"{part.index}.json")
                        files[-1].write_bytes(found)
                        print(f"[{len(files)}/{count}] {part.name()}", file=sys.stderr, flush=True)
            finally:
                for reference in waiting:  # the run was ended
                    ray.cancel(reference, force=True)
        finally:
            ray.shutdown()
        if driver.ended_by:
            return 128 + driver.ended_by[0]
        return merge(given, files)
