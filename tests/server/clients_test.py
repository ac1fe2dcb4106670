"""Clients as people have them: the official openai package, and the page in a browser."""

import os
import pathlib
import re
import sys
import tempfile
import unittest

import openai

from browser import Browser, find_chromium
from worker import Worker, check_order, forge, text_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "
RAIN = [{"role": "user", "content": "Write a haiku about rain"}]


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        key = pathlib.Path(cls.folder.name) / "key"
        key.write_text("sk-test\n")
        cls.worker = Worker(PROGRAM, "--api-key-file", str(key))
        cls.client = openai.OpenAI(base_url=cls.worker.url + "/v1", api_key="sk-test", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.worker.kill()
        cls.folder.cleanup()

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_completions(self):
        fields = dict(model=self.model, prompt=HAIKU, max_tokens=64, temperature=0)
        whole = self.client.completions.create(**fields)
        self.assertIn("seven", whole.choices[0].text.lower())
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)
        chunks = list(self.client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        stopped = self.client.completions.create(**fields, stop=["\n"], logprobs=20, seed=3, top_p=0.9)
        self.assertEqual(stopped.choices[0].text, whole.choices[0].text.partition("\n")[0])
        self.assertEqual(len(stopped.choices[0].logprobs.top_logprobs[0]), 20)

    def test_chat(self):
        whole = self.client.chat.completions.create(model=self.model, messages=RAIN, temperature=0, logprobs=True, top_logprobs=20)
        text = whole.choices[0].message.content
        self.assertEqual((whole.choices[0].finish_reason, whole.choices[0].message.role), ("stop", "assistant"))
        self.assertEqual("".join(t.token for t in whole.choices[0].logprobs.content), text)
        with self.client.chat.completions.create(model=self.model, messages=RAIN, temperature=0, stream=True) as stream:
            self.assertEqual("".join(c.choices[0].delta.content or "" for c in stream), text)
        with self.client.chat.completions.stream(model=self.model, messages=RAIN, temperature=0) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.content, text)
        warm = [self.client.chat.completions.create(model=self.model, messages=RAIN, temperature=1, seed=seed).choices[0].message.content for seed in (1, 1, 2, 3)]
        self.assertEqual(warm[0], warm[1])
        self.assertGreater(len(set(warm)), 1)
        extra = self.client.chat.completions.create(model=self.model, messages=RAIN, temperature=1, extra_body={"top_k": 1})
        self.assertEqual(extra.choices[0].message.content, text)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.chat.completions.create(model=self.model, messages=RAIN, n=2)
        self.assertEqual((refused.exception.param, refused.exception.code), ("n", "INVALID_FIELD"))
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.worker.url + "/v1", api_key="wrong", max_retries=0).models.list()

    def test_a_stream_that_is_closed_ends_its_job(self):
        stream = self.client.completions.create(model=self.model, prompt="x", max_tokens=10000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.worker.wait_idle()


@unittest.skipUnless(find_chromium(), "no Chromium on this machine")
class Page(unittest.TestCase):
    def test_it_streams_and_stops(self):
        with tempfile.TemporaryDirectory() as folder, Browser(find_chromium()) as browser:
            with Worker(PROGRAM) as worker:
                browser.open(worker.url)
                health = worker.get("/health")
                browser.wait("document.querySelectorAll('#card dt').length > 5")
                card = browser.eval("document.getElementById('card').innerText")
                for value in (health["architecture"], health["quantization"], health["fingerprint"], health["device"], str(health["context_length"])):
                    self.assertIn(value, card)
                self.assertEqual(browser.eval("document.querySelector('h1').innerText"), health["model"])
                done = "!document.getElementById('go').disabled && document.getElementById('talk').textContent"
                answers = "[...document.querySelectorAll('.answer')].map(answer => answer.textContent)"
                self.assertTrue(browser.eval("document.getElementById('chat').checked"), "the model has a template")
                browser.eval(f"document.getElementById('chat').click(); document.getElementById('prompt').value = {HAIKU!r}; document.getElementById('go').click()")
                browser.wait(done)
                self.assertEqual(browser.eval(answers), [text_of(worker.run("same", HAIKU))])
                self.assertRegex(browser.eval("document.getElementById('speed').innerText"), r"\d+ tokens, [\d.]+ tokens/s, first after \d+ ms; the model ended it")
                # What else might have come, with probabilities: the likeliest was taken.
                titles = browser.eval("[...document.querySelectorAll('.answer span')].map(span => span.title)")
                self.assertGreater(len(titles), 10)
                for title in titles:
                    shares = [float(share) for share in re.findall(r"(?:^|\s)([\d.e+-]+)%$", title, re.M)]
                    self.assertGreater(len(shares), 0, title)
                    self.assertEqual(shares[0], max(shares), title)
                    self.assertLessEqual(sum(shares), 100.1 * title.count("\n\"") + 100.1, title)
                # A chat has turns; each answer follows from all that was said before it.
                browser.eval("document.getElementById('chat').click()")
                said = []
                for words in ("Write a haiku about rain", "Write a haiku about <b>snow</b> & ice"):
                    browser.eval(f"document.getElementById('prompt').value = {words!r}; document.getElementById('go').click()")
                    browser.wait(done)
                    said.append({"role": "user", "content": words})
                    wanted = worker.post("/v1/chat/completions", {"messages": said, "temperature": 0, "max_tokens": 256})[1]["choices"][0]["message"]["content"]
                    self.assertEqual(browser.eval(answers)[-1], wanted)
                    self.assertEqual(len(browser.eval(answers)), (len(said) + 1) // 2)
                    said.append({"role": "assistant", "content": wanted})
                self.assertEqual(browser.eval("document.querySelectorAll('.said')[1].textContent"), words)
                if "SCREENSHOT" in os.environ:
                    browser.screenshot(os.environ["SCREENSHOT"])
                # Once more, by another seed; the turn before stays.
                browser.eval("document.getElementById('temperature').value = 2; document.getElementById('seed').value = 5; document.getElementById('again').click()")
                browser.wait(done)
                self.assertEqual(browser.eval(answers)[0], said[1]["content"])
                self.assertNotEqual(browser.eval(answers)[1], said[3]["content"])
                browser.eval("document.getElementById('anew').click()")
                self.assertEqual(browser.eval(answers), [])
                browser.eval("document.getElementById('temperature').value = 9; document.getElementById('prompt').value = 'x'; generate()")
                self.assertIn("temperature", browser.eval("document.getElementById('speed').innerText"))
            self.assertEqual([p for p in browser.problems if "400" not in p], [])
            slow = forge(PROGRAM, pathlib.Path(folder) / "slow.gguf", "--layers", "8", "--width", "512", "--heads", "8", "--type", "q8_0")
            with Worker(PROGRAM, model=slow) as worker:
                browser.open(worker.url)
                # Whether and when a random model ends its text is luck; this one goes on until it is stopped.
                browser.eval("const send = window.fetch; window.fetch = (to, what) => send(to, to === '/v1/completions' ?"
                             " {...what, body: JSON.stringify({...JSON.parse(what.body), ignore_eos: true})} : what)")
                browser.eval("document.getElementById('tokens').value = 20000; document.getElementById('temperature').value = 1;"
                             "document.getElementById('seed').value = 5; document.getElementById('go').click()")
                browser.wait("document.getElementById('talk').textContent.length > 40")
                self.assertIsNotNone(worker.get("/health")["active_job"])
                browser.eval("document.getElementById('stop').click()")
                browser.wait("!document.getElementById('go').disabled")
                self.assertIn("stopped", browser.eval("document.getElementById('speed').innerText"))
                worker.wait_idle()
                check_order(worker.run("after", max_tokens=1))


if __name__ == "__main__":
    unittest.main()
