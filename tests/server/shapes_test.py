"""OpenAI's shapes, health, metrics and the page, through real sockets."""

import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from worker import Stream, Worker, check_order, text_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "


def setUpModule():
    global SMALL
    SMALL = Worker(PROGRAM)


def tearDownModule():
    SMALL.kill()


class OpenAi(unittest.TestCase):
    def test_models(self):
        models = SMALL.get("/v1/models")
        name = models["data"][0]["id"]
        self.assertEqual((models["object"], name), ("list", SMALL.get("/health")["model"]))
        self.assertEqual(SMALL.get(f"/v1/models/{name}")["object"], "model")

    def test_completions(self):
        fields = {"model": "any", "prompt": HAIKU, "max_tokens": 64, "temperature": 0}
        _, whole = SMALL.post("/v1/completions", fields)
        choice, usage = whole["choices"][0], whole["usage"]
        self.assertEqual((whole["object"], choice["finish_reason"], choice["index"]), ("text_completion", "stop", 0))
        self.assertEqual(choice["text"], text_of(SMALL.run("same", HAIKU)))
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        ids = subprocess.run([PROGRAM, "tokenize", "-m", "haiku", "-p", HAIKU], check=True, capture_output=True, text=True).stdout
        ids = [int(i) for i in ids.split()]
        self.assertEqual(usage["prompt_tokens"], len(ids))
        for prompt in (ids, [ids], [HAIKU]):
            self.assertEqual(SMALL.post("/v1/completions", {**fields, "prompt": prompt})[1]["choices"][0]["text"], choice["text"])
        with Stream(SMALL, {**fields, "stream": True, "stream_options": {"include_usage": True}}, "/v1/completions") as stream:
            chunks = [data for _, data in stream.rest()]
        self.assertEqual(chunks[-1], "[DONE]")
        self.assertEqual(chunks[-2]["usage"], usage | {"prompt_tokens_details": chunks[-2]["usage"]["prompt_tokens_details"]})
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks[:-2]), choice["text"])
        self.assertEqual([c["choices"][0]["finish_reason"] for c in chunks[:-2]], [None] * (len(chunks) - 3) + ["stop"])
        self.assertEqual(len({c["id"] for c in chunks[:-1]}), 1)
        # Defaults of the interface: 16 tokens.
        _, short = SMALL.post("/v1/completions", {"prompt": HAIKU, "ignore_eos": True})
        self.assertEqual((short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]), (16, "length"))

    def test_chat(self):
        messages = [{"role": "system", "content": "You write haiku."}, {"role": "user", "content": "Write a haiku about rain"}]
        fields = {"model": "any", "messages": messages, "temperature": 0}
        _, whole = SMALL.post("/v1/chat/completions", fields)
        message = whole["choices"][0]["message"]
        self.assertEqual((whole["object"], message["role"], whole["choices"][0]["finish_reason"]), ("chat.completion", "assistant", "stop"))
        ran = subprocess.run([PROGRAM, "run", "--chat", "-p", messages[1]["content"], "--system", messages[0]["content"]],
                             check=True, capture_output=True, text=True)
        self.assertEqual(message["content"].strip(), ran.stdout.strip())
        parts = [messages[0], {"role": "user", "content": [{"type": "text", "text": "Write a haiku "}, {"type": "text", "text": "about rain"}]}]
        self.assertEqual(SMALL.post("/v1/chat/completions", {**fields, "messages": parts})[1]["choices"][0]["message"], message)
        with Stream(SMALL, {**fields, "stream": True}, "/v1/chat/completions") as stream:
            chunks = [data for _, data in stream.rest()]
        deltas = [c["choices"][0]["delta"] for c in chunks[:-1]]
        self.assertEqual((deltas[0]["role"], deltas[-1], chunks[-1]), ("assistant", {}, "[DONE]"))
        self.assertEqual("".join(d.get("content", "") for d in deltas), message["content"])
        _, short = SMALL.post("/v1/chat/completions", {**fields, "max_completion_tokens": 2})
        self.assertEqual((short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]), (2, "length"))

    def test_logprobs(self):
        chat = {"messages": [{"role": "user", "content": "Write a haiku about rain"}], "max_tokens": 5, "logprobs": True, "top_logprobs": 20, "temperature": 0}
        _, answer = SMALL.post("/v1/chat/completions", chat)
        content = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(b"".join(bytes(t["bytes"]) for t in content).decode(), answer["choices"][0]["message"]["content"])
        for token in content:
            top = token["top_logprobs"]
            self.assertEqual((len(top), top[0]["token"], top[0]["logprob"]), (20, token["token"], token["logprob"]))
            self.assertEqual([t["logprob"] for t in top], sorted((t["logprob"] for t in top), reverse=True))
            self.assertLessEqual(sum(math.exp(t["logprob"]) for t in top), 1 + 1e-9)
        with Stream(SMALL, {**chat, "stream": True}, "/v1/chat/completions") as stream:
            chunks = [data["choices"][0] for _, data in stream.rest() if data != "[DONE]"]
        self.assertEqual([t for c in chunks if c["logprobs"] for t in c["logprobs"]["content"]], content)
        _, answer = SMALL.post("/v1/completions", {"prompt": HAIKU, "max_tokens": 5, "logprobs": 3, "temperature": 0})
        values = answer["choices"][0]["logprobs"]
        self.assertEqual("".join(values["tokens"]), answer["choices"][0]["text"])
        self.assertEqual(values["token_logprobs"], [max(top.values()) for top in values["top_logprobs"]])
        self.assertEqual({len(top) for top in values["top_logprobs"]}, {3})
        offsets = [sum(map(len, values["tokens"][:i])) for i in range(5)]
        self.assertEqual(values["text_offset"], offsets)

    def test_refused(self):
        def error(path, **fields):
            status, answer = SMALL.post(path, fields)
            self.assertEqual(status, 400, answer)
            self.assertEqual(answer["error"]["param"], answer["error"]["field"])
            return answer["error"]["field"]

        user = [{"role": "user", "content": "x"}]
        for fields in ({"n": 2}, {"best_of": 2}, {"echo": True}, {"logprobs": 21}, {"logprobs": True}, {"presence_penalty": 0.5},
                       {"frequency_penalty": 1}, {"logit_bias": {"5": 1}}, {"suffix": "x"}, {"stream": 1}, {"whatever": 1}, {"max_tokens": 0},
                       {"prompt": []}, {"prompt": ["a", "b"]}, {"prompt": [[1], [2]]}, {"prompt": [1, "a"]}, {"prompt": [10**6]}, {"prompt": [-1]}):
            self.assertEqual(error("/v1/completions", **{"prompt": "x", **fields}), next(iter(fields)))
        for fields in ({"n": 2}, {"logprobs": 1}, {"top_logprobs": 2}, {"tools": [{}]}, {"response_format": {"type": "json_object"}},
                       {"messages": []}, {"messages": "x"}, {"messages": [1]}, {"messages": user * 1025}, {"messages": [{"role": "user", "content": "x" * 32769}]}):
            self.assertEqual(error("/v1/chat/completions", **{"messages": user, **fields}), next(iter(fields)))
        for message, field in (({"role": "robot", "content": "x"}, "role"), ({"role": "user"}, "content"), ({"role": "user", "content": 5}, "content"),
                               ({"role": "user", "content": [{"type": "image_url"}]}, "content"), ({"role": "user", "content": "x", "y": 1}, "y")):
            self.assertEqual(error("/v1/chat/completions", messages=user + [message]), f"messages[1].{field}")
        # What clients send and what changes nothing is fine.
        self.assertEqual(SMALL.post("/v1/completions", {"prompt": "x", "n": 1, "user": "me", "presence_penalty": 0, "logit_bias": {}, "suffix": None})[0], 200)


class About(unittest.TestCase):
    def test_health(self):
        health = SMALL.get("/health")
        inspected = json.loads(subprocess.run([PROGRAM, "inspect", "haiku", "--json"], check=True, capture_output=True, text=True).stdout)
        self.assertEqual(health["status"], "ok")
        self.assertEqual((health["architecture"], health["quantization"], health["vocabulary_size"], health["context_length"]), ("llama", "Q4_K", 640, 256))
        self.assertEqual(health["fingerprint"], inspected.get("fingerprint", health["fingerprint"]))
        self.assertIn(health["device"], ("cpu", "cuda"))
        self.assertGreater(health["memory_used_bytes"], 1 << 20)
        self.assertGreater(health["uptime_seconds"], 0)
        self.assertEqual((health["active_job"], health["queue_length"]), (None, 0))

    def test_metrics(self):
        check_order(SMALL.run("metrics", HAIKU))
        status, headers, body = SMALL.request("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn("version=0.0.4", headers["content-type"])
        check_metrics(body.decode())
        if shutil.which("promtool"):
            subprocess.run(["promtool", "check", "metrics"], input=body, check=True)
        before = {name: SMALL.metric(name) for name in ("lockstep_generated_tokens_total", "lockstep_prompt_tokens_total")}
        start, *_, end = SMALL.run("metrics", HAIKU)
        self.assertEqual(SMALL.metric("lockstep_generated_tokens_total"), before["lockstep_generated_tokens_total"] + end[1]["tokens_out"])
        self.assertEqual(SMALL.metric("lockstep_prompt_tokens_total"), before["lockstep_prompt_tokens_total"] + start[1]["tokens_in"])

    def test_page(self):
        status, headers, body = SMALL.request("GET", "/")
        self.assertEqual(status, 200)
        self.assertIn("text/html", headers["content-type"])
        self.assertIn("default-src 'none'", headers["content-security-policy"])
        self.assertNotRegex(body.decode(), r"(src|href)=\"?(https?:)?//")

    @unittest.skipUnless(shutil.which("curl"), "no curl on this machine")
    def test_curl(self):
        done = subprocess.run(["curl", "-sSN", SMALL.url + "/execute", "-d", json.dumps({"job_id": "curl", "prompt": HAIKU})],
                              check=True, capture_output=True, text=True)
        self.assertEqual(re.findall(r"^event: (\w+)", done.stdout, re.M)[::999], ["started"])
        self.assertIn("event: end", done.stdout)
        big = json.dumps({"job_id": "curl", "prompt": "x", "y": "z" * 500_000})
        done = subprocess.run(["curl", "-sS", SMALL.url + "/execute", "-H", "Expect: 100-continue", "-d", "@-"], input=big, check=True, capture_output=True, text=True)
        self.assertIn("UNKNOWN_FIELD", done.stdout)


def check_metrics(text):
    """What promtool would refuse: names, help and type before samples, families in one piece, histograms that add up."""
    types, seen, samples = {}, [], {}
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP ([a-z_]+) (.+)", line):
            assert match[1] not in seen, line
            seen.append(match[1])
        elif match := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge|histogram)", line):
            assert seen[-1] == match[1] and match[1] not in types, line
            types[match[1]] = match[2]
        else:
            match = re.fullmatch(r'([a-z_]+)(\{([a-z_]+="(\\.|[^"\\])*",?)+\})? (\S+)', line)
            assert match, line
            family = seen[-1]
            suffix = match[1].removeprefix(family)
            assert match[1].startswith(family) and suffix in (("_bucket", "_sum", "_count") if types[family] == "histogram" else ("",)), line
            assert line.rsplit(" ", 1)[0] not in samples, line
            samples[line.rsplit(" ", 1)[0]] = float(match[5])
            if types[family] == "counter":
                assert family.endswith("_total"), family
    assert text.endswith("\n") and set(types) == set(seen)
    for family, kind in types.items():
        if kind != "histogram":
            continue
        buckets = [(re.search(r'le="(.*)"', name)[1], value) for name, value in samples.items() if name.startswith(family + "_bucket")]
        assert buckets[-1] == ("+Inf", samples[family + "_count"]), family
        assert [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert [float(b) for b, _ in buckets] == sorted(float(b) for b, _ in buckets)


if __name__ == "__main__":
    unittest.main()
