"""How a worker starts, stops, asks for a key, logs and records."""

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from worker import PATIENCE_S, Stream, Worker, check_order, forge, text_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "
LONG = {"prompt": "rain", "max_tokens": 20000, "ignore_eos": True, "temperature": 1}


def setUpModule():
    global SLOW, FOLDER
    FOLDER = tempfile.TemporaryDirectory()
    SLOW = forge(PROGRAM, pathlib.Path(FOLDER.name) / "slow.gguf", "--layers", "8", "--width", "512", "--heads", "8",
                 "--kv-heads", "2", "--feed-forward", "1024", "--type", "q8_0")


def tearDownModule():
    FOLDER.cleanup()


class Stop(unittest.TestCase):
    def test_the_active_job_ends_and_no_other_begins(self):
        for way in (signal.SIGTERM, signal.SIGINT, "/shutdown"):
            with self.subTest(way=way), Worker(PROGRAM, model=SLOW) as worker:
                active = worker.execute(job_id="active", **{**LONG, "max_tokens": 400})
                first = active.next()
                waiting = worker.execute(job_id="waiting", **LONG)
                kept = worker.connect()
                if way == "/shutdown":
                    self.assertEqual(worker.post("/shutdown", {})[0], 202)
                else:
                    worker.process.send_signal(way)
                worker.wait_for(lambda h: h["status"] == "stopping", "it stops")
                status, headers, body = worker.request("POST", "/execute", {"job_id": "late", "prompt": "x"})
                self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "SHUTTING_DOWN"))
                self.assertIn("retry-after", headers)
                name, end = check_order(waiting.rest())
                self.assertEqual((name, end["code"]), ("error", "SHUTTING_DOWN"))
                name, end = check_order([first, *active.rest()])
                self.assertEqual((name, end["tokens_out"]), ("end", 400))
                self.assertEqual(worker.process.wait(PATIENCE_S), 0)
                active.close(), waiting.close(), kept.close()

    def test_grace(self):
        for prompt in ("rain", "rain " * 6000):
            with self.subTest(prompt=prompt[:10]), Worker(PROGRAM, "--grace", "0.3", model=SLOW) as worker:
                with worker.execute(job_id="active", **{**LONG, "prompt": prompt}) as stream:
                    first = stream.next()
                    began = time.monotonic()
                    worker.process.send_signal(signal.SIGTERM)
                    name, end = check_order([first, *stream.rest()])
                    self.assertEqual((name, end["code"]), ("error", "SHUTTING_DOWN"))
                    self.assertGreater(time.monotonic() - began, 0.25)
                self.assertEqual(worker.process.wait(PATIENCE_S), 0)

    def test_a_second_signal(self):
        with Worker(PROGRAM, model=SLOW) as worker, worker.execute(job_id="active", **LONG) as stream:
            stream.next()
            worker.process.send_signal(signal.SIGTERM)
            worker.wait_for(lambda h: h["status"] == "stopping", "it stops")
            worker.process.send_signal(signal.SIGTERM)
            self.assertEqual(worker.process.wait(PATIENCE_S), 128 + signal.SIGTERM)

    def test_a_terminal_that_closes(self):
        with Worker(PROGRAM, model=SLOW) as worker, worker.execute(job_id="active", **{**LONG, "max_tokens": 200}) as stream:
            first = stream.next()
            for _ in range(3):
                worker.process.send_signal(signal.SIGHUP)
            name, end = check_order([first, *stream.rest()])
            self.assertEqual((name, end["tokens_out"]), ("end", 200))
            self.assertEqual(worker.get("/health")["status"], "ok")
        # The same with a real one: its session's leader gets the signal, and nobody takes its log any more.
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM, "serve", "-m", "haiku", "--port", "0", "--threads", "1"], stdin=theirs, stdout=theirs,
                                   stderr=theirs, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        said = b""
        while b"\n" not in said:
            said += os.read(ours, 1000)
        worker = object.__new__(Worker)
        worker.process, worker.host, worker.port = process, "127.0.0.1", int(re.search(rb":(\d+)\s", said)[1])
        os.close(ours)
        try:
            self.assertEqual(check_order(worker.run("after", HAIKU))[0], "end")
        finally:
            process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_a_client_that_does_not_read_does_not_hold_it_up(self):
        with Worker(PROGRAM, model=SLOW) as worker:
            body = json.dumps({"job_id": "x", **LONG, "max_tokens": 300})
            with worker.connect() as slow:
                slow.sendall(f"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                worker.wait_for(lambda h: h["active_job"] == "x", "it has begun")
                self.assertEqual(worker.stop()[0], 0)

    def test_wrong_use(self):
        def refused(*flags, env=None):
            port = [] if "--port" in flags else ["--port", "0"]
            done = subprocess.run([PROGRAM, "serve", *port, *flags], capture_output=True, text=True, check=False,
                                  timeout=PATIENCE_S, env={**os.environ, **(env or {})})
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            return done.stderr

        file = pathlib.Path(FOLDER.name) / "file"
        file.write_text("\n")
        self.assertIn("empty", refused("--api-key-file", str(file)))
        self.assertIn("nowhere", refused("--api-key-file", "/nowhere"))
        self.assertIn(str(file), refused("--trace-dir", str(file)))
        self.assertIn("192.0.2.1", refused("--host", "192.0.2.1"))  # nobody's (RFC 5737)
        self.assertIn("ORCH_LOG_VALUES", refused(env={"ORCH_LOG_FILE": str(file), "ORCH_LOG_VALUES": "x"}))
        self.assertIn("/nowhere", refused(env={"ORCH_LOG_FILE": "/nowhere/x"}))
        pipe = pathlib.Path(FOLDER.name) / "pipe"
        os.mkfifo(pipe)
        self.assertIn("a pipe that nobody reads", refused(env={"ORCH_LOG_FILE": str(pipe)}))
        self.assertIn("checkpoint", refused("--trace-dir", FOLDER.name, "--checkpoints", "no.such"))
        self.assertIn("context", refused("--ctx", "100000"))
        with Worker(PROGRAM) as worker:
            self.assertIn("in use", refused("--port", str(worker.port)))
        plain = pathlib.Path(FOLDER.name) / "plain.gguf"
        subprocess.run([PROGRAM, "forge", "--arch", "llama", "--layers", "1", "--width", "32", "--heads", "2", plain], check=True, capture_output=True)
        self.assertIn("tokenizer", refused("-m", str(plain)))

    def test_addresses(self):
        with Worker(PROGRAM) as worker:
            self.assertEqual(worker.host, "127.0.0.1")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect(("192.0.2.1", 9))  # sends nothing, but tells our own address
                    mine = probe.getsockname()[0]
                except OSError:
                    mine = "127.0.0.1"
            if not mine.startswith("127."):
                with self.assertRaises(OSError):
                    socket.create_connection((mine, worker.port), timeout=5)
        for host in ("localhost", "127.0.0.2"):
            with Worker(PROGRAM, "--host", host) as worker:
                self.assertEqual(worker.get("/health")["status"], "ok")
                self.assertEqual(worker.log_text().count("--api-key-file"), 0)
        with Worker(PROGRAM, "--host", "0.0.0.0") as worker:
            self.assertIn("--api-key-file", worker.log_text())
            worker.host = "127.0.0.1"
            self.assertEqual(worker.get("/health")["status"], "ok")


class Key(unittest.TestCase):
    def test_everything_but_health_needs_the_key(self):
        file = pathlib.Path(FOLDER.name) / "key"
        file.write_text("se cret-Key\n")
        right = {"Authorization": "Bearer se cret-Key"}
        with Worker(PROGRAM, "--api-key-file", str(file)) as worker:
            self.assertEqual(worker.request("GET", "/health")[0], 200)
            for method, path in (("GET", "/"), ("GET", "/metrics"), ("GET", "/v1/models"), ("POST", "/execute"), ("POST", "/cancel"),
                                 ("POST", "/shutdown"), ("POST", "/v1/completions"), ("GET", "/nothing"), ("GET", "/healthy"), ("GET", "/health/")):
                for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer se cret-Ke"}, {"Authorization": "Bearer se cret-Keyy"},
                                {"Authorization": "Bearer SE CRET-KEY"}, {"Authorization": "Basic se cret-Key"}, {"Authorization": "se cret-Key"}):
                    status, answer, body = worker.request(method, path, {} if method == "POST" else None, headers)
                    self.assertEqual((status, json.loads(body)["error"]["code"]), (401, "UNAUTHORIZED"), (path, headers))
                    self.assertEqual(answer["www-authenticate"], "Bearer")
            self.assertEqual(worker.request("GET", "/metrics", headers=right)[0], 200)
            self.assertEqual(worker.request("GET", "/metrics", headers={"authorization": "bearer se cret-Key"})[0], 200)
            with Stream(worker, {"job_id": "a", "prompt": HAIKU}, headers=right) as stream:
                check_order(stream.rest())
            self.assertEqual(worker.post("/shutdown", {}, right)[0], 202)
            self.assertEqual(worker.process.wait(PATIENCE_S), 0)


class Logs(unittest.TestCase):
    def test_text(self):
        with Worker(PROGRAM) as worker:
            worker.run("my job\x1b[1m", "a secret prompt", max_tokens=3)
            worker.get("/health")
            worker.request("GET", "/%0a\x01x".replace("\x01", "%01"))
            status, log = worker.stop()
        self.assertEqual(status, 0)
        lines = log.splitlines()
        self.assertRegex(lines[0], r"^\d{4}-\d\d-\d\dT\S+Z 127\.0\.0\.1 POST /execute 200 \d+\.\d ms \d+ bytes job=my job\\x1b\[1m in=\d+ out=3 length first=\d+\.\d+ms$")
        self.assertRegex(lines[1], "GET /health 200")
        self.assertNotIn("secret", log)
        self.assertNotIn("\x1b", log)

    def test_json(self):
        for flags, shown in (([], False), (["--log-prompts"], True)):
            with Worker(PROGRAM, "--log", "json", *flags) as worker:
                worker.run('quo"te', 'a "secret"\nprompt', max_tokens=3)
                worker.post("/execute", {"job_id": 1})
                with worker.connect() as broken:
                    broken.sendall(b"nonsense\r\n\r\n")
                    broken.recv(10000)
                status, log = worker.stop()
            entries = [json.loads(line) for line in log.splitlines()]
            first = entries[0]
            self.assertEqual((first["method"], first["path"], first["status"], first["job_id"], first["tokens_out"], first["outcome"]),
                             ("POST", "/execute", 200, 'quo"te', 3, "length"))
            self.assertEqual([e.get("status") for e in entries[1:3]], [400, 400])
            self.assertEqual("secret" in log, shown)

    def test_nobody_reads_the_log(self):
        process = subprocess.Popen([PROGRAM, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        worker = object.__new__(Worker)
        worker.process = process
        match = re.search(r"http://(\S+):(\d+)", process.stdout.readline())
        worker.host, worker.port = match[1], int(match[2])
        for _ in range(1500):  # more than a pipe holds
            worker.get("/health")
        self.assertGreater(worker.metric("lockstep_log_lines_dropped_total"), 0)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0)
        process.stdout.close(), process.stderr.close()


class Recording(unittest.TestCase):
    def test_a_trace_a_job(self):
        with tempfile.TemporaryDirectory() as folder:
            traces = pathlib.Path(folder) / "new" / "traces"
            with Worker(PROGRAM, "--trace-dir", str(traces)) as worker:
                texts = {}
                for job in ("plain-1", "../../etc/x", "plain-1", ".hidden", "a/b", "漢", "x" * 256, "CON", "plain-1~2"):
                    events = worker.run(job, HAIKU)
                    self.assertEqual(check_order(events)[0], "end")
                    texts[job] = text_of(events)
                with worker.execute(job_id="cancelled", prompt=HAIKU, max_tokens=250, ignore_eos=True) as stream:
                    stream.next()
                    worker.cancel("cancelled")
                    stream.rest()
                worker.wait_idle()
                self.assertEqual(worker.stop()[0], 0)
            self.assertEqual(len(set(texts.values())), 1)
            names = sorted(p.name for p in traces.iterdir())
            self.assertEqual([p for p in names if not re.fullmatch(r"[\w%~-][\w.%~-]*", p, re.A)], [])
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["new"])
            self.assertEqual(len(names), 10)
            for name in names:
                manifest = json.loads((traces / name / "manifest.json").read_text())
                self.assertEqual((manifest["format"], manifest["prompt"]), ("lockstep-trace", HAIKU))
                self.assertEqual(manifest["complete"], name != "cancelled")
                if name != "cancelled":
                    self.assertEqual(manifest["steps"][0]["first_pos"], 0)
            # What was recorded through the worker is what `run` computes.
            whole = pathlib.Path(folder) / "run"
            subprocess.run([PROGRAM, "run", "-p", HAIKU, "--trace", whole, "--logits", "last", "--checkpoints", "layers"], check=True, capture_output=True)
            done = subprocess.run([PROGRAM, "compare", whole, traces / "plain-1", "--json"], check=True, capture_output=True, text=True)
            verdicts = {c["verdict"] for c in json.loads(done.stdout)["checkpoints"]}
            self.assertEqual(verdicts, {"exact"})

    def test_folder_that_cannot_be_written(self):
        if os.geteuid() == 0:
            place = "/proc"
        else:
            place = FOLDER.name + "/readonly"
            os.mkdir(place, stat.S_IRUSR | stat.S_IXUSR)
        with Worker(PROGRAM, "--trace-dir", place) as worker:
            self.assertEqual(check_order(worker.run("x", HAIKU))[0], "end")
            self.assertEqual(worker.metric("lockstep_recordings_failed_total"), 1)
            self.assertIn("not recorded", worker.stop()[1])

    def test_orch_log(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "log.jsonl"
            with Worker(PROGRAM, env={"ORCH_LOG_FILE": str(file), "ORCH_LOG_TEAM": "us", "ORCH_LOG_VALUES": "3"}) as worker:
                events = worker.run("x", HAIKU)
                check_order(events)
                lines = [json.loads(line) for line in file.read_text().splitlines()]
            self.assertEqual({(line["team"], len(line["values"])) for line in lines}, {("us", 3)})
            logits = [line["token_idx"] for line in lines if line["checkpoint"] == "logits"]
            self.assertEqual(logits, list(range(events[0][1]["tokens_in"] + events[-1][1]["tokens_out"])))


if __name__ == "__main__":
    unittest.main()
