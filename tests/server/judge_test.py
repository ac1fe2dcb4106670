"""Judging an answer over HTTP, with the real program: what is judged, what it says, and what it leaves behind.

usage: judge_test.py PROGRAM
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

import worker

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "


def judge(server, job_id):
    """The judgement, when it is over."""
    status, judged = server.post("/judge", {"job_id": job_id})
    assert status == 202, (status, judged)
    deadline = time.monotonic() + worker.PATIENCE_S
    seen = [judged["status"]]
    while judged["status"] not in ("done", "failed"):
        assert time.monotonic() < deadline, judged
        time.sleep(0.01)
        judged = server.get("/judge/" + judged["id"])
        seen.append(judged["status"])
    order = ["waiting", "recording", "computing", "judging", "done", "failed"]
    assert [order.index(stage) for stage in seen] == sorted(order.index(stage) for stage in seen), seen
    return judged


class Judge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.place = pathlib.Path(holder.name)  # of temporary files
        cls.log = cls.place / "jobs.jsonl"
        cls.env = {"TMPDIR": holder.name}
        cls.server = worker.Worker(PROGRAM, env={**cls.env, "ORCH_LOG_FILE": str(cls.log)})
        cls.addClassCleanup(cls.server.kill)

    def check(self, judged, tokens):
        self.assertEqual(judged["status"], "done", judged)
        self.assertTrue(judged["parity"], judged)
        self.assertIn("In parity", judged["headline"])
        self.assertEqual((judged["tokens"], judged["tokens_recorded"]), (tokens, tokens))
        self.assertLess(0, judged["worst_ratio"])
        self.assertLess(judged["worst_ratio"], 1)
        self.assertGreater(judged["seconds"]["judging"], 0)
        status, headers, body = self.server.request("GET", judged["report"])
        self.assertEqual(status, 200)
        self.assertIn("sandbox allow-scripts", headers["content-security-policy"])
        return json.loads(re.search(rb'id="data">(.*?)</script>', body, re.S)[1])

    def test_what_is_judged_is_what_was_told(self):
        """However the answer came about, the report has its tokens, and its text."""
        chance = random.Random()
        turns = [{"role": "user", "content": "Write a haiku about rain"}]
        first = self.server.post("/v1/chat/completions", {"messages": turns, "temperature": 0})[1]["choices"][0]["message"]
        turns += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "Another one, about snow"}]
        sampled = {"temperature": 1.5, "top_p": 0.9, "repetition_penalty": 1.2}
        jobs = [("/v1/completions", {"prompt": HAIKU, "max_tokens": chance.choice([1, 2, 7, 40])}),
                ("/v1/completions", {"prompt": HAIKU, "max_tokens": 200, "temperature": 0, "logprobs": 3}),
                ("/v1/completions", {"prompt": HAIKU, "max_tokens": 200, "temperature": 0, "logprobs": 3}),  # its prompt is in the cache
                ("/v1/completions", {"prompt": [1, 2, 3, 4, 5], "max_tokens": 21, "ignore_eos": True, **sampled}),
                ("/v1/completions", {"prompt": HAIKU, "max_tokens": 200, "temperature": 0, "stop": ["\n"]}),
                ("/v1/chat/completions", {"messages": turns, "logprobs": True, **sampled, "temperature": 1})]
        for path, body in jobs:
            answer = self.server.post(path, body)[1]
            data = self.check(judge(self.server, answer["id"]), answer["usage"]["completion_tokens"])
            told = data["page"]["tokens"]["suspect"]
            self.assertEqual(told["prompt"], answer["usage"]["prompt_tokens"], path)
            generated = len(told["ids"]) - told["prompt"]
            self.assertIn(generated - answer["usage"]["completion_tokens"], (0, 1), "an end-of-text token may come after it")
            choice = answer["choices"][0]
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            if "ignore_eos" not in body:  # which has tokens that are no text
                self.assertTrue("".join(told["texts"][told["prompt"]:]).startswith(text), body)
            self.assertEqual(data["choices"]["suspect"]["made"], data["choices"]["suspect"]["checked"])
            self.assertEqual(data["coverage"], 1)
            self.assertEqual(data["judged"], 1)

    def test_an_answer_that_was_stopped(self):
        # What the client saw until then is the answer.
        with self.server.execute(job_id="stopped", prompt=HAIKU, max_tokens=200, ignore_eos=True) as stream:
            events = [stream.next() for _ in range(6)]
            self.server.cancel("stopped")
            events += stream.rest()
        told = sum(name == "token" for name, _ in events)
        self.assertGreater(told, 4)
        data = self.check(judge(self.server, "stopped"), told)
        ids = data["page"]["tokens"]["suspect"]["ids"]
        self.assertEqual(len(ids) - data["page"]["tokens"]["suspect"]["prompt"], told)

    def test_jobs_go_on_meanwhile(self):
        self.server.run("first", HAIKU, max_tokens=100)
        status, judged = self.server.post("/judge", {"job_id": "first"})
        self.assertEqual(status, 202)
        self.assertEqual(self.server.post("/judge", {"job_id": "first"})[1]["id"], judged["id"])
        jobs = 0
        while self.server.get("/judge/" + judged["id"])["status"] not in ("done", "failed"):
            worker.check_order(self.server.run(f"meanwhile {jobs}", HAIKU, max_tokens=5))
            jobs += 1
        self.assertGreater(jobs, 0)
        status, again = self.server.post("/judge", {"job_id": "first"})
        self.assertEqual((status, again["id"], again["status"]), (200, judged["id"], "done"))
        # The log of jobs is about jobs.
        self.assertNotIn("judge-", self.log.read_text())
        self.assertGreater(self.server.metric("lockstep_judgements_total"), 0)

    def test_cancelled(self):
        self.server.run("long", HAIKU, max_tokens=200, ignore_eos=True)
        judged = self.server.post("/judge", {"job_id": "long"})[1]
        self.server.cancel(judged["id"])
        while (now := self.server.get("/judge/" + judged["id"]))["status"] not in ("done", "failed"):
            time.sleep(0.01)
        if now["status"] == "failed":  # it may have been quicker
            self.assertEqual(now["error"]["code"], "CANCELLED")
            self.assertEqual(self.server.request("GET", f"/judge/{judged['id']}/report")[0], 404)
            self.assertEqual(judge(self.server, "long")["status"], "done")

    def test_hostile_requests(self):
        def refused(body, status, code, method="POST", path="/judge"):
            found, headers, answer = self.server.request(method, path, body)
            self.assertEqual((found, json.loads(answer)["error"]["code"]), (status, code), (body, path))

        refused({}, 400, "MISSING_FIELD")
        refused({"job_id": ""}, 400, "MISSING_FIELD")
        refused({"job_id": 7}, 400, "INVALID_FIELD")
        refused({"job_id": "x" * 257}, 400, "INVALID_FIELD")
        refused({"job_id": "x", "tokens": [1]}, 400, "UNKNOWN_FIELD")
        refused([], 400, "INVALID_JSON")
        refused(b"{", 400, "INVALID_JSON")
        refused(b"", 400, "INVALID_JSON")
        refused({"job_id": "../../etc/passwd"}, 404, "NOT_FOUND")
        refused(None, 405, "METHOD_NOT_ALLOWED", "GET")
        refused({}, 405, "METHOD_NOT_ALLOWED", "POST", "/judge/x")
        for path in ("/judge/", "/judge/x", "/judge/../health", "/judge/%2e%2e/report", "/judge/x/report", "/judge/" + "x" * 5000):
            refused(None, 404, "NOT_FOUND", "GET", path)
        self.assertEqual(self.server.request("GET", "/judge/x", headers={"Host": "evil.example"})[0], 403)
        self.assertEqual(self.server.request("POST", "/judge", {"job_id": "x"}, {"Origin": "http://evil.example"})[0], 403)
        self.assertIn('endpoint="/judge",status="405"}', self.server.get("/metrics"))

    def test_what_is_left_behind(self):
        def folders(place):
            return sorted(place.glob("lockstep-judged-*"))

        place = self.place / "kept"
        place.mkdir()
        env = {"TMPDIR": str(place)}
        with worker.Worker(PROGRAM, env=env) as server:
            server.run("one", HAIKU, max_tokens=5)
            judged = judge(server, "one")
            self.assertEqual(judged["status"], "done", judged)
            self.assertEqual(len(folders(place)), 1)
            # The traces of what is kept are there, for the commands that the report tells.
            trace = next(place.glob("*/*/answer.trace"))
            out = subprocess.run([PROGRAM, "compare", trace.parent / "reference.trace", trace, "--json"], capture_output=True, text=True)
            self.assertEqual(json.loads(out.stdout)["headline"], judged["headline"])
            server.process.kill()
        self.assertEqual(len(folders(place)), 1)
        left = folders(place)[0]
        with worker.Worker(PROGRAM, env=env) as server:
            server.run("one", HAIKU, max_tokens=5)
            judge(server, "one")
            self.assertEqual(len(folders(place)), 1)
            self.assertNotEqual(folders(place)[0], left)
            # The end does not wait for a judgement.
            server.run("two", HAIKU, max_tokens=200, ignore_eos=True)
            server.post("/judge", {"job_id": "two"})
            self.assertEqual(server.stop()[0], 0)
        self.assertEqual(folders(place), [])

    def test_no_place(self):
        with worker.Worker(PROGRAM, "--judge-disk", "0", env=self.env) as server:
            server.run("one", HAIKU, max_tokens=5)
            self.assertFalse(server.get("/health")["judge"])
            status, answer = server.post("/judge", {"job_id": "one"})
            self.assertEqual((status, answer["error"]["message"]), (404, "this server judges nothing (--judge-disk 0)"))
        with worker.Worker(PROGRAM, env={"TMPDIR": str(self.place / "nowhere")}) as server:
            server.run("one", HAIKU, max_tokens=5)
            failed = judge(server, "one")
            self.assertEqual(failed["status"], "failed")
            self.assertIn("no folder for temporary files", failed["error"]["message"])

    def test_a_file_that_changed(self):
        model = self.place / "model.gguf"
        shipped = pathlib.Path(__file__).resolve().parents[2] / "models"
        model.write_bytes((shipped / "haiku-llama-q4_k_m.gguf").read_bytes())
        with worker.Worker(PROGRAM, "--no-mmap", model=model, env=self.env) as server:
            server.run("one", HAIKU, max_tokens=5)
            model.write_bytes((shipped / "haiku-llama-f16.gguf").read_bytes())
            failed = judge(server, "one")
            self.assertEqual(failed["status"], "failed", failed)
            self.assertEqual(failed["error"]["message"], f"{model}: the file is no longer the model that is served")
            model.unlink()
            failed = judge(server, "one")
            self.assertIn("the run in double precision ended with exit status 2", failed["error"]["message"])


if __name__ == "__main__":
    unittest.main()
