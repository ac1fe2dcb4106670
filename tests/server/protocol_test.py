"""Jobs through POST /execute, from the first event to the last, and what is refused."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

from worker import Refused, Stream, Worker, check_order, forge, in_threads, text_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "
LONG = {"prompt": "Write a haiku about rain", "max_tokens": 20000, "ignore_eos": True, "temperature": 1}


def setUpModule():
    global SMALL, SLOW, FOLDER
    FOLDER = tempfile.TemporaryDirectory()
    slow = forge(PROGRAM, pathlib.Path(FOLDER.name) / "slow.gguf", "--layers", "8", "--width", "512", "--heads", "8",
                 "--kv-heads", "2", "--feed-forward", "1024", "--type", "q8_0")
    SMALL = Worker(PROGRAM)
    SLOW = Worker(PROGRAM, "--queue", "3", model=slow, threads=2)


def tearDownModule():
    SMALL.kill()
    SLOW.kill()
    FOLDER.cleanup()


class Execute(unittest.TestCase):
    def test_events(self):
        events = SMALL.run("first", HAIKU, temperature=0)
        name, end = check_order(events)
        self.assertEqual((name, end["stop_reason"]), ("end", "end"))
        self.assertEqual(events[0][1]["job_id"], "first")
        text = text_of(events)
        self.assertIn("seven", text.lower())
        ran = subprocess.run([PROGRAM, "run", "-p", HAIKU], check=True, capture_output=True, text=True)
        self.assertEqual(text.strip(), ran.stdout.strip())

    def test_stop_reasons(self):
        def reason(**fields):
            events = SMALL.run("reason", HAIKU, **fields)
            return check_order(events)[1]["stop_reason"], events

        self.assertEqual(reason(max_tokens=1)[0], "length")
        kind, events = reason(max_tokens=7, ignore_eos=True)
        self.assertEqual((kind, events[-1][1]["tokens_out"]), ("length", 7))
        kind, events = reason(max_tokens=100000, ignore_eos=True)
        self.assertEqual(kind, "context")
        context = SMALL.get("/health")["context_length"]
        self.assertEqual(events[0][1]["tokens_in"] + events[-1][1]["tokens_out"], context + 1)

    def test_stop_sequences(self):
        whole = text_of(SMALL.run("stop", HAIKU))
        rng = random.Random(seed := random.randrange(1 << 30))
        for _ in range(12):
            begin = rng.randrange(1, len(whole) - 4)
            stop = whole[begin : begin + rng.randrange(1, 5)]
            with self.subTest(seed=seed, stop=stop):
                for given in (stop, ["never there", stop]):
                    events = SMALL.run("stop", HAIKU, stop=given)
                    self.assertEqual(check_order(events)[1]["stop_reason"], "stop")
                    self.assertEqual(text_of(events), whole[: whole.index(stop)])
        # What was held back since it looked like a stop sequence comes at the end.
        events = SMALL.run("stop", HAIKU, stop=whole[-3:] + "?")
        self.assertEqual((check_order(events)[1]["stop_reason"], text_of(events)), ("end", whole))

    def test_seeds(self):
        warm = {"temperature": 1.5, "prompt": "Write a haiku about rain"}
        texts = [text_of(SMALL.run("seed", seed=seed, **warm)) for seed in (1, 1, 2, 3, -5, 2**64 - 1)]
        self.assertEqual(texts[0], texts[1])
        self.assertGreater(len(set(texts)), 2)
        # Without a seed, the one that was taken is told and gives the same text.
        events = SMALL.run("seed", **warm)
        self.assertEqual(text_of(SMALL.run("seed", seed=events[0][1]["seed"], **warm)), text_of(events))
        self.assertEqual(text_of(SMALL.run("seed", **{**warm, "top_k": 1})), text_of(SMALL.run("seed", prompt=warm["prompt"])))

    def test_characters_are_whole(self):
        # Random tokens are full of half characters.
        rng = random.Random(seed := random.randrange(1 << 30))
        for _ in range(3):
            with self.subTest(seed=seed):
                events = SLOW.run("utf8", "é漢😀", max_tokens=200, temperature=2, ignore_eos=True, seed=rng.randrange(1 << 40))
                self.assertEqual(check_order(events)[1]["tokens_out"], 200)
                text_of(events).encode("utf-8")  # no half of a surrogate pair either

    def test_long_prompt(self):
        prompt = ("rain " * 6554)[:32768]
        with Stream(SLOW, {**LONG, "job_id": "long", "prompt": prompt}) as stream:
            self.assertEqual(stream.next()[0], "started")
            SLOW.cancel("long")
            self.assertEqual(stream.rest()[-1][1]["code"], "CANCELLED")
        SLOW.wait_idle()


class Validation(unittest.TestCase):
    def refused(self, body, status=400, path="/execute"):
        answer, headers, text = SMALL.request("POST", path, body)
        self.assertEqual(answer, status, (body, text))
        self.assertEqual(headers["content-type"], "application/json")
        error = json.loads(text)["error"]
        self.assertTrue(error["code"] and error["message"], error)
        self.assertIn("field", error)
        return error

    def test_fields(self):
        good = {"job_id": "a", "prompt": "x"}
        wrong = {
            "job_id": [None, "", 5, [], {}, True, "x" * 257],
            "prompt": [None, "", 7, ["x"], {}, False, "x" * 32769, "漢" * 32769],
            "max_tokens": [0, -1, 1.5, "5", [], 2**31, 2**64, 1e300, True],
            "temperature": [-0.1, 2.1, "1", [], True, 1e300],
            "top_p": [0, -1, 1.01, "0.5", {}],
            "top_k": [-1, 0.5, "3", 2**63],
            "min_p": [-0.1, 1.1, "x"],
            "repetition_penalty": [0, -1, 101, "1"],
            "stop": ["", [""], [1], 3, {}, ["x"] * 17, "x" * 257, [["x"]]],
            "seed": [1.5, "1", [], True, 1e30],
            "ignore_eos": [0, "true"],
        }
        for field, values in wrong.items():
            for value in values:
                with self.subTest(field=field, value=str(value)[:40]):
                    error = self.refused({**good, field: value} if value is not None else {k: v for k, v in good.items() if k != field})
                    self.assertEqual(error["field"], field)
                    self.assertIn(field, error["message"])
        for field in set(wrong) - {"job_id", "prompt"}:  # null is as if it were not there
            check_order(SMALL.run("null", max_tokens=1, **({field: None} if field != "max_tokens" else {})))

    def test_unknown_fields_are_named(self):
        error = self.refused({"job_id": "a", "prompt": "x", "temprature": 1})
        self.assertEqual((error["code"], error["field"]), ("UNKNOWN_FIELD", "temprature"))
        self.assertIn("temperature", error["message"])
        error = self.refused({"job_id": "a", "prompt": "x", "b\x00\x1b": 1, "zz": 2})
        self.assertIn("zz", error["message"])

    def test_no_json(self):
        deep = b'{"job_id": "a", "prompt": "x", "stop": ' + b"[" * 100000
        for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', deep,
                     b'{"job_id": "a", "prompt": "x", "temperature": 1e999}', b'{"job_id": "a", "prompt": "x"} x'):
            with self.subTest(body=body[:40]):
                self.assertEqual(self.refused(body)["code"], "INVALID_JSON")

    def test_prompt_longer_than_the_context(self):
        error = self.refused({"job_id": "a", "prompt": "rain " * 1000})
        self.assertEqual(error["field"], "prompt")
        self.assertIn("256", error["message"])

    def test_paths_and_methods(self):
        for path in ("/nothing", "/v1", "/execute/", "//", "/v1/models/none"):
            status, _, body = SMALL.request("GET", path)
            self.assertEqual((status, json.loads(body)["error"]["code"]), (404, "NOT_FOUND"), path)
        for method, path, allow in (("GET", "/execute", "POST"), ("POST", "/health", "GET, HEAD"), ("DELETE", "/cancel", "POST")):
            status, headers, _ = SMALL.request(method, path)
            self.assertEqual((status, headers["allow"]), (405, allow))
        self.assertEqual(SMALL.request("GET", "/health?x=1")[0], 200)
        status, headers, body = SMALL.request("HEAD", "/health")
        self.assertEqual((status, body), (200, b""))
        self.assertGreater(int(headers["content-length"]), 100)

    def test_pages_of_others_are_refused(self):
        self.assertEqual(SMALL.post("/shutdown", {}, {"Origin": "http://evil.example"})[0], 403)
        self.assertEqual(SMALL.post("/cancel", {"job_id": "x"}, {"Origin": SMALL.url})[0], 202)


class Jobs(unittest.TestCase):
    def setUp(self):
        SLOW.wait_idle()

    def test_one_at_a_time_in_order(self):
        def job(i):
            time.sleep(0.1 * i)
            events = SMALL.run(f"job {i}", HAIKU)
            return text_of(events)

        self.assertEqual(len(set(in_threads(8, job))), 1)
        first = SLOW.execute(job_id="first", **LONG)
        first.next(), first.next()
        second = SLOW.execute(job_id="second", **{**LONG, "max_tokens": 3})
        SLOW.wait_for(lambda h: h["active_job"] == "first" and h["queue_length"] == 1, "one waits")
        SLOW.cancel("first")
        self.assertEqual(check_order(second.rest())[0], "end")
        self.assertEqual(first.rest()[-1][1]["code"], "CANCELLED")
        first.close(), second.close()

    def test_cancel(self):
        for where in ("prompt", "generation"):
            with self.subTest(where=where), SLOW.execute(job_id="c", **{**LONG, "prompt": "rain " * (6000 if where == "prompt" else 1)}) as stream:
                self.assertEqual(stream.next()[0], "started")
                if where == "generation":
                    self.assertEqual(stream.next()[0], "token")
                else:
                    time.sleep(0.2)
                began = time.monotonic()
                SLOW.cancel("c")
                events = stream.rest()
                print(f"cancelled in the {where}: stream ended after {1000 * (time.monotonic() - began):.1f} ms", end=", ")
                self.assertEqual((events[-1][0], events[-1][1]["code"]), ("error", "CANCELLED"))
                self.assertEqual({name for name, _ in events[:-1]} - {"token"}, set())
                # The next job can start: the computing stopped too.
                check_order(SLOW.run("next", max_tokens=1))
                print(f"the next was done after {1000 * (time.monotonic() - began):.1f} ms")
                self.assertLess(time.monotonic() - began, 5)
        for _ in range(3):
            SLOW.cancel("c")
            SLOW.cancel("never was")

    def test_cancel_while_waiting(self):
        with SLOW.execute(job_id="active", **LONG) as active, SLOW.execute(job_id="waits", **LONG) as waits:
            active.next()
            SLOW.wait_for(lambda h: h["queue_length"] == 1, "one waits")
            SLOW.cancel("waits")
            name, end = check_order(waits.rest())
            self.assertEqual((name, end["code"]), ("error", "CANCELLED"))
            self.assertEqual(SLOW.get("/health")["queue_length"], 0)
            self.assertEqual(active.next()[0], "token")

    def test_clients_that_leave_cancel_their_jobs(self):
        left = SLOW.metric(r'lockstep_jobs_total\{outcome="disconnected"\}')
        for leave in ("prompt", "generation", "waiting", "whole"):
            with self.subTest(leave=leave):
                if leave == "waiting":
                    first = SLOW.execute(job_id="first", **LONG)
                    first.next()
                if leave == "whole":
                    stream = SLOW.connect()
                    body = json.dumps({**LONG, "temperature": 1})
                    stream.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                    SLOW.wait_for(lambda h: h["active_job"] is not None, "it has begun")
                else:
                    stream = SLOW.execute(job_id="leaves", **{**LONG, "prompt": "rain " * (6000 if leave == "prompt" else 1)})
                    if leave != "waiting":
                        stream.next()
                    if leave == "generation":
                        stream.next()
                stream.close()
                if leave == "waiting":
                    SLOW.wait_for(lambda h: h["queue_length"] == 0, "the waiting one is gone")
                    self.assertEqual(first.next()[0], "token")
                    SLOW.cancel("first")
                    first.close()
                SLOW.wait_idle()
        self.assertEqual(SLOW.metric(r'lockstep_jobs_total\{outcome="disconnected"\}'), left + 4)
        check_order(SLOW.run("leaves", max_tokens=1))

    def test_an_id_twice(self):
        with SLOW.execute(job_id="same", **LONG) as stream:
            stream.next()
            with self.assertRaises(Refused) as refused:
                SLOW.run("same")
            self.assertEqual((refused.exception.status, refused.exception.error["code"]), (409, "DUPLICATE_JOB"))
            self.assertEqual(refused.exception.error["field"], "job_id")
            SLOW.cancel("same")
            stream.rest()
            check_order(SLOW.run("same", max_tokens=1))

    def test_full_queue(self):
        streams = [SLOW.execute(job_id="full 0", **LONG)]
        streams[0].next()
        streams += [SLOW.execute(job_id=f"full {i}", **LONG) for i in range(1, 4)]
        for path, body in (("/execute", {"job_id": "more", "prompt": "x"}), ("/v1/completions", {"prompt": "x"})):
            status, headers, answer = SLOW.request("POST", path, body)
            self.assertEqual((status, json.loads(answer)["error"]["code"]), (503, "QUEUE_FULL"))
            self.assertGreaterEqual(int(headers["retry-after"]), 1)
        for i, stream in enumerate(streams):
            SLOW.cancel(f"full {i}")
            self.assertEqual(stream.rest()[-1][1]["code"], "CANCELLED")
            stream.close()


class Reuse(unittest.TestCase):
    def test_a_shared_prefix_leaves_all_bits(self):
        rng = random.Random(seed := random.randrange(1 << 30))
        words = "rain sun moon the a stone river seven old".split()
        prompt = " ".join(rng.choice(words) for _ in range(300))
        fields = {"max_tokens": 12, "temperature": 0, "logprobs": 20, "ignore_eos": True}

        def answer(prompt):
            status, answer = SLOW.post("/v1/completions", {"prompt": prompt, **fields})
            self.assertEqual(status, 200)
            return answer["choices"][0]["logprobs"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        def cold(prompt):
            answer("漢")  # shares nothing
            values, reused = answer(prompt)
            self.assertLessEqual(reused, 1)
            return values

        with self.subTest(seed=seed):
            longer = prompt + " " + " ".join(rng.choice(words) for _ in range(40))
            expected = {text: cold(text) for text in (prompt, longer)}
            answer("漢")
            for text, least in ((prompt, 0), (longer, 300), (prompt, 290), (prompt, 290)):
                values, reused = answer(text)
                self.assertGreaterEqual(reused, least)
                self.assertEqual(values, expected[text])
            # Also after a job that was cancelled in the middle of the prompt.
            with SLOW.execute(job_id="half", **{**LONG, "prompt": longer + " rain" * 6000}) as stream:
                stream.next()
                time.sleep(0.1)
                SLOW.cancel("half")
                stream.rest()
            self.assertEqual(answer(longer)[0], expected[longer])


if __name__ == "__main__":
    unittest.main()
