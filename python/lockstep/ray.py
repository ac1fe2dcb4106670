"""A suite of cases on a cluster of Ray: python -m lockstep.ray SUITE [options]

The suite is cut into parts, as `lockstep check --part` does it, and each part is a task of Ray. `lockstep check --merge` makes
one result of all parts: files and exit status are those of one machine. docs/check.md tells of suites.

python -m lockstep.ray compare REFERENCE SUSPECT [options] does the same with one large comparison (_ray_compare.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _ray_task
from ._program import LockstepError, call, program
from ._ray_task import LEAVINGS, Outcome, Part, SentFile

MOST_PARTS = 100_000  # of `lockstep check --part`
TASKS_AT_A_PLACE = 8  # for each place where a task can run: starting one costs some 50 ms
CLUSTER_NUMBERS = (("num_cpus", 0), ("num_gpus", 0), ("retries", 0), ("parts", 1), ("memory_gb", 0))
TASK_VALUES = ("cache", "cache-limit", "goldens", "record-goldens", "min-coverage", "device", "threads")
TASK_FLAGS = ("no-cache", "no-diagnosis")
RESULT_VALUES = ("json", "junit", "markdown", "html", "history", "baseline")
PATHS = ("cache", "goldens", "record-goldens", *RESULT_VALUES)


def add_cluster(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument("--address", help="of the cluster (default: $RAY_ADDRESS, or one that runs here, or a new one)")
    cluster.add_argument("--num-cpus", type=float, default=1, metavar="N", help="cores that a task takes (default 1)")
    cluster.add_argument("--num-gpus", type=float, default=0, metavar="N", help="GPUs that a task takes (default 0)")
    cluster.add_argument("--memory-gb", type=float, metavar="N", help="memory that a task takes")
    cluster.add_argument("--retries", type=int, default=3, metavar="N", help="tries after the first (default 3)")
    return cluster


def parse(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m lockstep.ray", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("suite", metavar="SUITE", help="TOML file of cases (docs/check.md)")
    cluster = add_cluster(parser)
    cluster.add_argument("--parts", type=int, metavar="N", help="number of tasks (default: 8 for each place "
                         "where one can run, at most one for each prompt)")  # fmt: skip
    cluster.add_argument("--send", metavar="FOLDER", help="the nodes get this folder through Ray, with the suite in it: "
                         "for clusters without shared storage")  # fmt: skip
    cluster.add_argument("--send-limit", type=float, default=1, metavar="GB", help="that it may have (default 1)")
    cluster.add_argument("--return-limit", type=float, default=100, metavar="MB", help="of failed cases, that a task brings "
                         "back where a node does not see the folder of --out (default 100)")  # fmt: skip
    check = parser.add_argument_group("as `lockstep check` has them")
    check.add_argument("--out", metavar="FOLDER")
    check.add_argument("--resume", metavar="FILE")
    for name in (*TASK_VALUES, *RESULT_VALUES):
        check.add_argument(f"--{name}", metavar="PATH" if name in PATHS else "X")
    for name in TASK_FLAGS:
        check.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(arguments)
    check_numbers(parser, given, (*CLUSTER_NUMBERS, ("send_limit", 0)))
    return given


def check_numbers(parser: argparse.ArgumentParser, given: argparse.Namespace, least: Sequence[Tuple[str, int]]) -> None:
    for name, smallest in least:
        value = getattr(given, name)
        if value is not None and not smallest <= value < float("inf"):
            parser.error(f"--{name.replace('_', '-')}: found {value}, expected {smallest} or more")


def flags(given: argparse.Namespace, names: Sequence[str]) -> List[str]:
    """The options that were given, for the program; paths from the root on."""
    out = []
    for name in names:
        value = getattr(given, name.replace("-", "_"))
        if value is True:
            out.append(f"--{name}")
        elif value not in (None, False):
            out.append(f"--{name}={os.path.abspath(value) if name in PATHS else value}")
    return out


def quietly(arguments: Sequence[str]) -> None:
    """Calls the program; GitHub is not told."""
    kept = os.environ.get("GITHUB_ACTIONS")
    os.environ["GITHUB_ACTIONS"] = ""
    try:
        call(arguments, good=(0, 1))
    finally:
        os.environ.pop("GITHUB_ACTIONS")
        if kept is not None:
            os.environ["GITHUB_ACTIONS"] = kept


def read_folder(folder: Path, limit: float, put: Any) -> List[SentFile]:
    """The files of --send, each an object of Ray's store."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    size = sum(path.stat().st_size for path in found)
    if size > limit:
        raise LockstepError(f"--send {folder}: {size / 1e9:.2f} GB, expected {limit / 1e9:g} at most: put large files on storage "
                            "that all nodes share, or raise --send-limit")  # fmt: skip
    out = []
    for path in found:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        out.append(SentFile(str(path.relative_to(folder)), path.stat().st_mode & 0o777, digest, put(content)))
    return out


def check_paths(given: argparse.Namespace) -> None:
    """What would fail after all tasks fails before them."""
    for name in ("json", "junit", "markdown", "html"):
        path = getattr(given, name)
        if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise LockstepError(f"--{name}: {os.path.dirname(os.path.abspath(path))}: no such folder")
    for name in ("baseline", "resume"):
        path = getattr(given, name)
        if path is not None:
            with open(path, "rb"):
                pass


class Run:
    """One suite on a cluster."""

    def __init__(self, given: argparse.Namespace, work: Path) -> None:
        self.given = given
        self.work = work
        self.suite = os.path.abspath(given.suite)
        self.out = None if given.out is None else Path(os.path.abspath(given.out))
        check_paths(given)
        plan = work / "plan.json"
        quietly(["check", self.suite, "--give-up=not run", "--no-cache", f"--json={plan}"])
        self.plan: Dict[str, Any] = json.loads(plan.read_text(encoding="utf-8"))
        prompts = {one["id"][: -len(one["suspect"])] for one in self.plan["results"]}
        self.count = min(given.parts or len(prompts) or 1, len(prompts) or 1, MOST_PARTS)
        self.done = 0  # results
        self.merged = 0.0  # when, and how long it took
        self.merging = 0.0

    def parts(self, put: Any, mark: Optional[Path]) -> List[Part]:
        given = self.given
        options = flags(given, (*TASK_VALUES, *TASK_FLAGS))
        if given.threads is None:
            options.append(f"--threads={max(1, int(given.num_cpus))}")  # of judging: as many as the task has
        resume = None if given.resume is None else put(Path(given.resume).read_bytes())
        sent: List[SentFile] = []
        if given.send is not None:
            folder = Path(os.path.abspath(given.send))
            if folder not in Path(self.suite).parents:
                raise LockstepError(f"--send {folder}: the suite {self.suite} does not lie in it")
            sent = read_folder(folder, given.send_limit * 1e9, put)
        return [
            Part(index=index, of=self.count, suite=self.suite, folder=os.getcwd(), program=str(program()),
                 version=self.plan["program"], options=options, commit=self.plan["commit"], resume=resume,
                 out=None if self.out is None else str(self.out), mark=None if mark is None else str(mark),
                 return_bytes=int(given.return_limit * 1e6), sent=sent,
                 sent_from="" if given.send is None else os.path.abspath(given.send))  # fmt: skip
            for index in range(1, self.count + 1)
        ]

    def file(self, index: int) -> Path:
        return self.work / f"{index}.json"

    def take(self, index: int, outcome: Outcome) -> None:
        """What a task brought."""
        found = json.loads(outcome.results)
        if self.out is not None:
            if not outcome.shared:  # what an earlier run left of these cases
                for one in found["results"]:
                    for name in LEAVINGS:
                        place = self.out / one["id"] / name
                        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
            for path, content in outcome.files:
                (self.out / path).parent.mkdir(parents=True, exist_ok=True)
                (self.out / path).write_bytes(content)
            for path in outcome.left_out:
                print(f"note: {path} stayed on its node: too large for --return-limit", flush=True)
        self.file(index).write_bytes(outcome.results)
        self.tell(found)

    def give_up(self, index: int, reason: str) -> None:
        """A part that always fails: its cases could not be judged."""
        resume = [] if self.given.resume is None else [f"--resume={os.path.abspath(self.given.resume)}"]
        quietly(["check", self.suite, f"--part={index}/{self.count}", f"--give-up={reason}", "--no-cache",
                 f"--json={self.file(index)}", *resume])  # fmt: skip
        self.tell(json.loads(self.file(index).read_text(encoding="utf-8")))

    def tell(self, found: Dict[str, Any]) -> None:
        for one in found["results"]:
            self.done += 1
            said = one["verdict"] if one["status"] == "passed" else one["reason"]
            place = f"[{self.done}/{self.plan['jobs']}]"
            print(f"{place} {one['status']}  {one['id']}  {said}  {one['seconds']:.2f} s".replace("\n", " "), flush=True)

    def files(self) -> List[str]:
        """Of the parts that are there."""
        return sorted(str(path) for path in self.work.glob("[0-9]*.json"))

    def arguments(self, partial: bool) -> List[str]:
        return ["check", "--merge", *self.files(), *(["--partial"] if partial else [])]

    def merge_some(self) -> None:
        """The results so far, as --json: now and then, so that it takes little of the time."""
        start = time.monotonic()
        if self.given.json is None or start - self.merged < 10 + 20 * self.merging:
            return
        quietly([*self.arguments(True), *flags(self.given, ("json",))])
        self.merged = time.monotonic()
        self.merging = self.merged - start

    def merge(self, partial: bool) -> int:
        """All files that were asked for; the exit status of `lockstep check`."""
        out = [] if self.out is None else [f"--out={self.out}"]
        command = [str(program()), *self.arguments(partial), *flags(self.given, RESULT_VALUES), *out]
        sys.stdout.flush()
        return subprocess.call(command, stdin=subprocess.DEVNULL)

    def on_cluster(self, ray: Any, mark: Optional[Path]) -> None:
        """All parts as tasks, each taken as it ends."""
        given = self.given
        remote, resources = remote_of(ray, given, _ray_task.task, "lockstep check")
        if given.parts is None:
            self.count = min(self.count, TASKS_AT_A_PLACE * places(ray.nodes(), resources))
        waiting = {remote.remote(part): part for part in self.parts(ray.put, mark)}
        try:
            while waiting and not ended_by:
                for reference in ray.wait(list(waiting), num_returns=1, timeout=1)[0]:
                    part = waiting.pop(reference)
                    try:
                        outcome = ray.get(reference)
                    except ray.exceptions.RayError as problem:
                        self.give_up(part.index, f"{part.name()} failed {tries(given.retries)}: {why(problem)}")
                    else:
                        self.take(part.index, outcome)
                    self.merge_some()
        finally:
            for reference in waiting:  # the run was ended
                ray.cancel(reference, force=True)


def remote_of(ray: Any, given: argparse.Namespace, task: Any, name: str) -> Tuple[Any, Dict[str, Any]]:
    """A task that the cluster can run, and what it takes."""
    resources: Dict[str, Any] = {"num_cpus": given.num_cpus, "num_gpus": given.num_gpus}
    if given.memory_gb is not None:
        resources["memory"] = int(given.memory_gb * 1e9)
    ray.cloudpickle.register_pickle_by_value(_ray_task)
    tell_missing(ray.nodes(), resources)
    return ray.remote(task).options(**resources, max_retries=given.retries, retry_exceptions=True, name=name), resources


def places(nodes: Sequence[Dict[str, Any]], needed: Dict[str, Any]) -> int:
    """How many tasks can run at the same time; 1 where none can yet."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    taken = {names[name]: amount for name, amount in needed.items() if amount}
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    rooms = [min((has.get(name, 0) // amount for name, amount in taken.items()), default=has.get("CPU", 1)) for has in alive]
    return max(1, int(sum(rooms)))


def tell_missing(nodes: Sequence[Dict[str, Any]], needed: Dict[str, Any]) -> None:
    """Ray waits in silence for a node that has what a task takes: one may come later."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    for node in nodes:
        has = node["Resources"]
        if node["Alive"] and all(has.get(names[name], 0) >= amount for name, amount in needed.items()):
            return
    wanted = ", ".join(f"{names[name]} {amount:g}" for name, amount in needed.items() if amount)
    print(f"note: no node has what a task takes ({wanted}); the tasks wait for one that has", file=sys.stderr, flush=True)


def tries(retries: int) -> str:
    return "at its only try" if retries == 0 else f"{retries + 1} times"


def why(problem: Exception) -> str:
    """The reason in a line: our own words where the task had some."""
    cause = getattr(problem, "cause", None)
    text = str(cause or problem) or type(problem).__name__
    return " ".join(text.split())[:1000]


# Signals that came: Ctrl-C or SIGTERM. An exception would come in the midst of Ray's own code.
ended_by: List[int] = []


def on_signal(number: int, _: Any) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one ends the program
    ended_by.append(number)


def run(given: argparse.Namespace, ray: Any) -> int:
    mark: Optional[Path] = None
    with tempfile.TemporaryDirectory(prefix="lockstep-") as work:
        suite = Run(given, Path(work))
        if suite.out is not None:
            suite.out.mkdir(parents=True, exist_ok=True)
            mark = suite.out / f".lockstep-ray-{uuid.uuid4().hex}"
            mark.touch()
        try:
            ray.init(address=given.address, logging_level="error", log_to_driver=False)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, on_signal)
            suite.on_cluster(ray, mark)
        finally:
            if mark is not None:
                mark.unlink(missing_ok=True)
            ray.shutdown()
        status = 128 + ended_by[0] if ended_by else 0
        if status != 0 and not any(suite.files()):
            print("No case has run.")
            return status
        merged = suite.merge(partial=status != 0)
        return status or merged


def main(arguments: Optional[Sequence[str]] = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    from . import _ray_compare

    compares = list(arguments[:1]) == ["compare"]
    given = _ray_compare.parse(arguments[1:]) if compares else parse(arguments)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as problem:
        print(f"lockstep.ray: Ray is not there: {problem}; pip install ray", file=sys.stderr)
        return 2
    try:
        return _ray_compare.run(given, ray) if compares else run(given, ray)
    except (LockstepError, OSError) as problem:
        print(f"lockstep.ray: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
