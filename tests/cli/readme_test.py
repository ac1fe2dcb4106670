"""The samples of README.md and docs/tour.md are what the program prints.

usage: readme_test.py PROGRAM [--update]

In a code block, a line that begins with "$ " is a command; what follows is its output, up to the next command. Commands
whose output is shown are run, each in a shell in the checkout:
  build/lockstep ...        as it is, with PROGRAM for build/lockstep
  build/lockstep serve ... &  the same, until the block ends
  make run                  scripts/first_run, which is what it runs once all is built, at minute ten
  curl ...                  to the server of the block
A line "..." stands for any lines. Lines are compared but for:
  the checkout's own path, which the samples leave out
  temporary folders (/tmp/tmp.XXXX, /tmp/lockstep-XXXX)
  the port of the server, and seeds that it chose ("seed":123)
  blank lines at the end of an output
The GPU is left out: the samples show the cpu executor, whose results are the same everywhere.

--update puts what is printed now into the files. What "..." stood for stays "...".
"""

import difflib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = (ROOT / "README.md", ROOT / "docs/tour.md")
ANY = "..."
SECONDS = 120


class Sample:
    """A command and the lines that are shown under it: the file's lines [first, last)."""

    def __init__(self, command, first):
        self.command, self.first, self.last = command, first, first


def read_blocks(lines):
    """The samples of each code block that has any, in their order."""
    blocks, samples, inside = [], [], False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            inside = not inside
            if inside:
                samples = []
                blocks.append(samples)
        elif inside and line.startswith("$ "):
            samples.append(Sample(line[2:], number + 1))
        elif inside and samples and line.strip():
            samples[-1].last = number + 1
    return [block for block in blocks if block]


def same(shown, printed):
    def plain(line):
        return re.sub(r'"seed":\d+', '"seed":0', re.sub(r"/tmp/(tmp\.|lockstep-)\w+", "/tmp/tmp", line)).rstrip()

    return plain(shown) == plain(printed)


def matches(shown, printed):
    """Whether the lines are the printed ones, where "..." is any number of lines."""
    reached = {0}  # of the printed lines, how many may have been passed
    for line in shown:
        if line == ANY:
            reached = set(range(min(reached), len(printed) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(printed) and same(line, printed[at])}
    return len(printed) in reached


def updated(shown, printed):
    """The printed lines, with "..." for what it stood for: found by the lines that stood beside it."""
    if matches(shown, printed):
        return shown

    def place(line, begin):
        return max(range(begin, len(printed)), default=begin,
                   key=lambda at: (difflib.SequenceMatcher(None, line, printed[at]).ratio(), -at))  # fmt: skip

    out, at = [], 0
    for index, line in enumerate(shown):
        if line == ANY:
            out.append(ANY)
            at = place(shown[index + 1], at) if index + 1 < len(shown) else len(printed)
        elif index == 0 or shown[index - 1] == ANY:  # a part begins: up to where the next "..." was
            rest = shown[index:]
            end = len(printed)
            if ANY in rest:
                end = place(rest[rest.index(ANY) - 1], at) + 1
            out += printed[at:end]
            at = end
    return out


class Runner:
    def __init__(self, program):
        self.program = program
        self.environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", NO_COLOR="1", MINUTE="10", LOCKSTEP=str(program))
        self.servers = []

    def lines(self, text):
        for server, given, port in self.servers:
            text = text.replace(f":{port}", f":{given}")
        text = text.replace(str(self.program), "build/lockstep").replace(f"{ROOT}/", "")
        return text.rstrip().split("\n")

    def run(self, sample):
        command = sample.command.replace("build/lockstep", str(self.program))
        if command.endswith("&"):
            return self.serve(command.rstrip("& "), sample.last - sample.first)
        if command == "make run":
            command = "scripts/first_run"
        elif command.startswith("curl "):
            for _, given, port in self.servers:
                command = command.replace(f":{given}", f":{port}")
        elif not command.startswith(str(self.program)):
            raise SystemExit(f"line {sample.first}: no rule runs '{sample.command}'")
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=self.environment, text=True, timeout=SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        if done.returncode not in (0, 1):  # 1: a check that failed, as samples may show
            raise SystemExit(f"line {sample.first}: '{sample.command}' ended with {done.returncode}: {done.stderr}")
        return self.lines(done.stdout)

    def serve(self, command, count):
        """Another port than the sample's, which may be taken."""
        given = re.search(r"--port (\d+)", command)[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        output = tempfile.TemporaryFile("w+")
        server = subprocess.Popen(["bash", "-c", "exec " + command.replace(f"--port {given}", f"--port {port}")],
                                  cwd=ROOT, env=self.environment, stdout=output, stderr=subprocess.DEVNULL)  # fmt: skip
        self.servers.append((server, given, port))
        end = time.monotonic() + SECONDS
        while server.poll() is None and time.monotonic() < end:
            output.seek(0)
            text = output.read()
            if text.count("\n") >= count:
                return self.lines(text)
            time.sleep(0.02)
        raise SystemExit(f"'{command}' said nothing")

    def end_block(self):
        for server, _, _ in self.servers:
            server.terminate()
            server.wait()
        self.servers = []


def check(path, runner, update):
    """How many samples a file has, and how those that are not what is printed differ."""
    lines = path.read_text().split("\n")
    wrong, changes, count = [], [], 0
    for block in read_blocks(lines):
        try:
            for sample in block:
                shown = lines[sample.first : sample.last]
                if not shown:
                    continue
                printed = runner.run(sample)
                count += 1
                if matches(shown, printed):
                    continue
                changes.append((sample, updated(shown, printed)))
                wrong.append(f"{path.name}, line {sample.first}: $ {sample.command}")
                wrong += difflib.unified_diff(shown, updated(shown, printed), "shown", "printed", lineterm="", n=1)
        finally:
            runner.end_block()
    if update:
        for sample, new in reversed(changes):
            lines[sample.first : sample.last] = new
        path.write_text("\n".join(lines))
        print(f"{path.name}: {count} samples, {len(changes)} rewritten")
    return count, wrong


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    update = "--update" in sys.argv[2:]
    runner, count, wrong = Runner(program), 0, []
    for path in FILES:
        found, differences = check(path, runner, update)
        count += found
        wrong += differences
    if wrong and not update:
        print("\n".join(wrong))
        print(f"\nWhere the program is right: {sys.argv[0]} {program} --update")
        return 1
    if count < 7:  # the reading of blocks would be at fault
        print(f"found only {count} samples")
        return 1
    print(f"{count} samples are what the program prints")
    return 0


def check_matching():
    """The comparison itself."""
    printed = ["a", "b", "c", "d"]
    assert matches(printed, printed) and not matches(["a", "b"], printed) and not matches([*printed, "e"], printed)
    assert matches([ANY], printed) and matches([ANY, "d"], printed) and matches(["a", ANY], printed)
    assert matches(["a", ANY, "c", ANY], printed) and matches([ANY, "a", "b", "c", "d", ANY], printed)
    assert not matches([ANY, "c"], printed) and not matches(["a", ANY, "x", ANY], printed) and not matches([], printed)
    assert matches(['{"seed":7}'], ['{"seed":8}']) and not matches(['{"seed":7}'], ['{"sead":8}'])
    assert matches(["/tmp/tmp.A1/x"], ["/tmp/tmp.B2/x"]) and not matches(["/tmp/tmp.A1/x"], ["/tmp/tmp.B2/y"])
    assert updated(["a", "x"], printed) == printed
    assert updated([ANY, "cc", "x"], printed) == [ANY, "c", "d"]
    assert updated(["x", ANY], ["y", "z"])[-1] == ANY
    assert updated([ANY, "b1", ANY, "d1"], printed) == [ANY, "b", ANY, "d"]


if __name__ == "__main__":
    check_matching()
    sys.exit(main())
