"""examples/slurm/check.sbatch on a real Slurm: this machine is controller and node.

usage: slurm_test.py PROGRAM
Exits with 77 (skipped) where Slurm is not installed (apt-get install slurm-wlm) or the user is not root, as its daemons want.
"""

import getpass
import json
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples/slurm/check.sbatch"
SKIPPED = 77
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=10 State=UP
"""


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def without_times(path):
    found = json.loads(path.read_text())
    found.pop("time"), found.pop("seconds"), found.pop("reports", None)  # where --out lies
    for result in found["results"]:
        result.pop("seconds"), result.pop("engine_seconds")
    return found


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp")
        cls.addClassCleanup(holder.cleanup)
        cls.root = pathlib.Path(holder.name)
        cls.root.chmod(0o755)
        for name in ("munge", "state", "spool", "bin"):
            (cls.root / name).mkdir(mode=0o755)
        (cls.root / "munge/key").write_bytes(secrets.token_bytes(128))
        (cls.root / "munge/key").chmod(0o400)
        (cls.root / "bin/lockstep").symlink_to(PROGRAM)
        values = {"host": socket.gethostname(), "ports": free_ports(2), "user": getpass.getuser(), "root": cls.root,
                  "cores": os.cpu_count()}  # fmt: skip
        (cls.root / "slurm.conf").write_text(CONFIG.format(**values))
        cls.environment = {**os.environ, "PATH": f"{cls.root / 'bin'}:{PATH}", "SLURM_CONF": str(cls.root / "slurm.conf"),
                           "XDG_CACHE_HOME": str(cls.root / "cache"), "GITHUB_ACTIONS": ""}  # fmt: skip
        munge = cls.root / "munge"
        cls.daemon("munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")  # fmt: skip
        cls.wait_for(lambda: (munge / "socket").exists())
        cls.daemon("slurmctld", "-D")
        cls.daemon("slurmd", "-D", "-N", values["host"])
        cls.wait_for(lambda: "idle" in cls.call("sinfo", "-h", "-o", "%t"))

    @classmethod
    def daemon(cls, *command):
        log = open(cls.root / f"{command[0]}.out", "w")
        cls.addClassCleanup(log.close)
        child = subprocess.Popen(command, env=cls.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def end():
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

        cls.addClassCleanup(end)

    @classmethod
    def call(cls, *command):
        done = subprocess.run(list(map(str, command)), env=cls.environment, capture_output=True, text=True, cwd=cls.root)
        return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr}"

    @classmethod
    def wait_for(cls, what):
        end = time.monotonic() + 120
        while not (found := what()):
            if time.monotonic() > end:
                logs = "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in cls.root.glob("*.log"))
                raise AssertionError(f"waited for too long\n{logs}")
            time.sleep(0.2)
        return found

    def submit(self, *arguments):
        job = self.call("sbatch", "--parsable", "--output=job-%A-%a.out", *arguments)
        self.assertRegex(job, r"^\d+$")
        return job

    def state(self, job):
        told = self.call("scontrol", "show", "job", "-o", job)
        return dict(word.split("=", 1) for word in told.splitlines()[0].split() if "=" in word)

    def finished(self, job):
        self.wait_for(lambda: self.state(job)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"))
        return self.state(job)

    def suite(self, more=""):
        path = self.root / "suite.toml"
        path.write_text('name = "array"\n[engine.broken]\ncommand = "sh -c \'echo why; exit 3\' {trace}"\n'
                        '[engine.kills]\ncommand = "sh -c \'kill -9 $PPID; sleep 5\' {trace}"\n'
                        '[[case]]\nmodel = "haiku"\ntokens = [[1, 2], [3], [4], [5, 6, 7]]\nn = 1\nsuspects = ["cpu"]\n'
                        + more)  # fmt: skip
        return path

    def array(self, suite, results, count):
        """The exit status and the output of the merge."""
        array = self.submit(f"--array=1-{count}", SCRIPT, suite, results)
        merge = self.submit(f"--dependency=afterany:{array}", SCRIPT, "--merge", suite, results, array)
        state = self.finished(merge)
        output = "".join(path.read_text() for path in self.root.glob(f"job-{merge}-*.out"))
        return int(state["ExitCode"].split(":")[0]), output

    def test_the_same_as_on_one_machine(self):
        suite = self.suite('[[case]]\nname = "b"\nmodel = "haiku-gpt2-f32"\ntokens = [[1]]\nn = 1\nsuspects = ["broken", "cpu"]\n'
                           '[[known]]\nsuspect = "cpu"\ncase = "b"\nreason = "stale"\n')  # fmt: skip
        alone = self.root / "alone.json"
        done = subprocess.run([PROGRAM, "check", suite, "--json", alone, "--out", self.root / "alone"], env=self.environment,
                              capture_output=True, text=True, cwd=self.root)  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for count in (1, 3):
            with self.subTest(count=count):
                results = self.root / f"100% results of {count}"
                status, output = self.array(suite, results, count)
                self.assertEqual(status, 1, output)
                self.assertIn("6 results: 5 passed, 1 failed", output)
                self.assertEqual(without_times(results / "results.json"), without_times(alone))
                self.assertEqual((results / "failed/b/0/broken/output.txt").read_text(), "why\n")
                self.assertTrue((results / "results.xml").exists() and (results / "index.html").exists())

    def test_a_part_that_dies(self):
        suite = self.suite('[[case]]\nname = "bad"\nmodel = "haiku"\ntokens = [[1]]\nn = 1\nsuspects = ["kills"]\n')
        status, output = self.array(suite, self.root / "dies", 5)
        self.assertEqual(status, 1, output)
        found = without_times(self.root / "dies/results.json")
        self.assertEqual([one["status"] for one in found["results"]], ["passed"] * 4 + ["error"])
        self.assertIn("job 5 of the array left no results", found["results"][4]["reason"])

    def test_parity(self):
        status, output = self.array(self.suite(), self.root / "good", 2)
        self.assertEqual(status, 0, output)
        self.assertIn("4 results: 4 passed", output)


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if missing or os.getuid() != 0:
        print(f"skipped: Slurm cannot be run here: {', '.join(missing) + ' not installed' if missing else 'not root'}")
        sys.exit(SKIPPED)
    unittest.main()
