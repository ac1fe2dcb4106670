"""A worker as the tests see it: started on a free port, spoken to through plain sockets, stopped at the end."""

import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

# Generous: machines that run tests are busy. Nothing here waits that long unless something is wrong.
PATIENCE_S = 60


class Worker:
    # One thread unless a test is about several: tests run side by side on few cores.
    def __init__(self, program, *flags, model="haiku", threads=1, env=None, limits=None):
        self.log = tempfile.TemporaryFile("w+")
        command = [program, "serve", "-m", str(model), "--port", "0", "--threads", str(threads), *flags]

        def restrict():
            for what, limit in (limits or {}).items():
                resource.setrlimit(what, (limit, limit))

        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, **(env or {})}, preexec_fn=restrict)
        line = self.process.stdout.readline()
        match = re.search(r"http://(\S+):(\d+)", line)
        if not match:
            self.process.wait()
            said = self.log_text()
            self.kill()
            raise RuntimeError(f"the worker did not start: {line!r} {said!r}")
        self.host, self.port = match[1].strip("[]"), int(match[2])
        self.url = f"http://{match[1]}:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        if self.log.closed:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        said = self.log_text()
        self.log.close()
        assert "Sanitizer: " not in said, said

    def stop(self, number=signal.SIGTERM):
        """Tells it to stop; its exit status and what it logged."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        return status, self.log_text()

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        assert status == 200, (path, status, body)
        return json.loads(body) if body.startswith(b"{") else body.decode()

    def post(self, path, body, headers=None):
        """(status, JSON) of a request that is not answered with events."""
        status, _, answer = self.request("POST", path, body, headers)
        return status, json.loads(answer)

    def execute(self, **fields):
        return Stream(self, fields)

    def run(self, job_id="job", prompt="Write a haiku about rain", **fields):
        """All events of a job."""
        with Stream(self, {"job_id": job_id, "prompt": prompt, **fields}) as stream:
            return stream.rest()

    def cancel(self, job_id):
        status, _ = self.post("/cancel", {"job_id": job_id})
        assert status == 202, status

    def metric(self, name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").splitlines() if re.match(name + r"[ {]", line))

    def wait_for(self, condition, what):
        """Until condition(health) holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.get("/health")):
            assert time.monotonic() < deadline, f"waited in vain: {what}: {self.get('/health')}"
            time.sleep(0.005)

    def wait_idle(self):
        self.wait_for(lambda h: h["active_job"] is None and h["queue_length"] == 0, "no job is left")


class Stream:
    """The events of POST /execute as they come: (name, data) pairs."""

    def __init__(self, worker, fields, path="/execute", headers=None):
        self.connection = http.client.HTTPConnection(worker.host, worker.port, timeout=PATIENCE_S)
        self.connection.request("POST", path, json.dumps(fields), headers or {})
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            body = self.answer.read()
            self.close()
            raise Refused(self.answer.status, dict(self.answer.getheaders()), json.loads(body)["error"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()
        self.answer.close()

    def next(self):
        """The next event, or None at the end."""
        name = None
        while line := self.answer.readline():
            line = line.decode("utf-8").rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
                return name, data if data == "[DONE]" else json.loads(data)
        return None

    def rest(self):
        events = []
        while event := self.next():
            events.append(event)
        return events


class Refused(Exception):
    def __init__(self, status, headers, error):
        super().__init__(status, error)
        self.status, self.headers, self.error = status, {k.lower(): v for k, v in headers.items()}, error


def check_order(events):
    """The order that every stream has; the last event."""
    names = [name for name, _ in events]
    assert names[0] == "started", names
    assert names[-1] in ("end", "error"), names[-1]
    assert set(names[1:-1]) <= {"token"}, set(names)
    assert [data["i"] for name, data in events if name == "token"] == list(range(len(names) - 2))
    name, data = events[-1]
    if name == "end":
        assert set(data) >= {"tokens_out", "decode_time_ms", "stop_reason"}, data
        assert data["tokens_out"] == len(names) - 2, data
    else:
        assert set(data) >= {"code", "message"}, data
    return name, data


def text_of(events):
    return "".join(data["t"] for name, data in events if name == "token")


def forge(program, path, *flags):
    """A model with random weights and the haiku models' words: its jobs last as long as a test needs."""
    models = pathlib.Path(__file__).resolve().parents[2] / "models"
    command = [program, "forge", "--tokenizer", models / "haiku-llama-f16.gguf", "--arch", "llama", "--context", "32768", *flags, path]
    subprocess.run(command, check=True, capture_output=True)
    return path


def in_threads(count, work):
    """work(i) side by side; the results in order. What one raises is raised."""
    results, problems = [None] * count, []

    def one(i):
        try:
            results[i] = work(i)
        except BaseException as problem:  # noqa: BLE001, raised again below
            problems.append(problem)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return results
