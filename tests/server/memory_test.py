"""A worker that may have little memory: a job that has none for it ends with an error, and the worker goes on."""

import http.client
import json
import pathlib
import random
import resource
import sys
import tempfile
import unittest

from worker import PATIENCE_S, Worker, in_threads

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
LIMITS = int(sys.argv.pop(1))  # how many are tried: from what it can just start with to plenty
JOB = 12 << 20  # what a small job needs for a moment: the tokenizer has a stack of 8 MiB


def bodies(random):
    """(path, body) of requests of all kinds."""
    words = " ".join(random.choice(["rain", "GPU", "\u2603", "seven", "257"]) for _ in range(random.choice([1, 40, 3000])))
    chat = {"messages": [{"role": "user", "content": words}], "max_tokens": random.choice([1, 7, 40])}
    job = f"job {random.randrange(1 << 40)}"
    return [
        ("/execute", {"job_id": job, "prompt": words, "max_tokens": 20}),
        ("/execute", {"job_id": job + "b", "prompt": "rain", "max_tokens": 255, "ignore_eos": True, "temperature": 1}),
        ("/cancel", {"job_id": job + "b"}),
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", {**chat, "stream": True, "logprobs": True, "top_logprobs": 20}),
        ("/v1/completions", {"prompt": words, "logprobs": 20, "max_tokens": 100}),
        ("/v1/completions", {"prompt": [random.randrange(64) for _ in range(random.choice([1, 255, 20_000]))], "stream": True, "logprobs": 5}),
        ("/v1/completions", {"prompt": "x", "unknown": [[] for _ in range(random.choice([1, 1000, 300_000]))]}),
        ("/v1/completions", {"prompt": "x", "user": words * 30}),
        ("/metrics", None),
        ("/", None),
    ]


def ask(worker, path, body):
    """The whole answer's status and text; None where the connection ended without one."""
    connection = http.client.HTTPConnection(worker.host, worker.port, timeout=PATIENCE_S)
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (ConnectionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class LittleMemory(unittest.TestCase):
    def start(self, limit, *flags):
        return Worker(PROGRAM, *flags, threads=2, limits={resource.RLIMIT_AS: limit})

    def work(self, worker, seed, plenty):
        """Requests of all kinds; the worker must be there afterwards, and compute where it has plenty of memory."""
        source = random.Random(seed)
        job = ("/execute", {"job_id": "before and after", "prompt": "GPU haiku with word seven: "})
        requests = [request for _ in range(2) for request in bodies(source)]
        source.shuffle(requests)
        answers = in_threads(4, lambda i: [ask(worker, *request) for request in requests[i::4]])
        for answer in (answer for some in answers for answer in some if answer):
            if answer[0] == 200 and "event: " in answer[1]:
                self.assertRegex(answer[1], "event: (end|error)\n", answer)
        self.assertIsNone(worker.process.poll(), worker.log_text()[-2000:])
        worker.wait_idle()
        after = ask(worker, *job)[1]
        if plenty:
            self.assertIn("event: end", after, worker.log_text()[-2000:])

    def test_every_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--trace-dir", folder, "--queue", "8")
            with Worker(PROGRAM, *flags, threads=2) as worker:
                self.work(worker, 1, True)
                status = pathlib.Path(f"/proc/{worker.process.pid}/status").read_text()
                most, settled = (int(status.split(name)[1].split()[0]) * 1024 for name in ("VmPeak:", "VmSize:"))
            least, enough = 0, most
            while enough - least > (24 << 20) // LIMITS:  # where it can just start
                limit = (least + enough) // 2
                try:
                    self.start(limit, *flags).kill()
                    enough = limit
                except RuntimeError as problem:
                    self.assertNotRegex(str(problem), "terminate|Aborted")
                    least = limit
            for i in range(LIMITS):
                limit = enough + (most + 2 * JOB - enough) * i // (LIMITS - 1)
                with self.subTest(limit=limit), self.start(limit, *flags) as worker:
                    self.work(worker, i, limit > settled + JOB)
                    self.assertEqual(worker.stop()[0], 0, worker.log_text()[-2000:])


if __name__ == "__main__":
    unittest.main()
