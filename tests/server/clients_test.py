"""A client as people have it: the official openai package."""

import pathlib
import sys
import tempfile
import unittest

import openai

from worker import Worker

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


if __name__ == "__main__":
    unittest.main()
