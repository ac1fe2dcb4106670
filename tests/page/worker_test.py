"""The worker's page in a real browser: conversations, what tokens show, stopping, and judging an answer.

usage: worker_test.py PROGRAM
SCREENSHOTS and skipping: page_case.py.
"""

import json
import re
import unittest

from page_case import HOSTILE, PROGRAM, PageCase, worker

HAIKU = "GPU haiku with word seven: "
DONE = "!document.getElementById('go').disabled && document.getElementById('talk').textContent"


class WorkerPage(PageCase):
    ready = "document.querySelectorAll('#card dt').length > 5"

    def serve(self, *flags, **more):
        server = worker.Worker(PROGRAM, *flags, env={"TMPDIR": str(self.root)}, **more)
        self.addCleanup(server.kill)
        return server

    def open(self, server, name, width=1000, dark=False, height=900):
        super().open(server.url + "/", name, width, dark, height)

    def set(self, **fields):
        for name, value in fields.items():
            self.browser.eval(f"document.getElementById('{name}').value = {json.dumps(value)}")

    def push(self, button):
        self.browser.eval(f"document.getElementById('{button}').click()")

    def say(self, words):
        self.set(prompt=words)
        self.push("go")
        self.browser.wait(DONE)

    def answers(self):
        return self.texts(".answer")

    def tip(self):
        """[(token, percent)] of the tip that is shown."""
        rows = self.browser.eval("[...document.querySelectorAll('.tip tr')].map(row => [row.cells[0].textContent, row.cells[2].textContent])")
        return [(json.loads(token), 0.0 if share.startswith("below") else float(share[:-1])) for token, share in rows]

    def judged(self, turn=0):
        """Judges a turn's answer; what the page says of it."""
        self.browser.eval(f"document.querySelectorAll('.judge')[{turn}].querySelector('button').click()")
        self.browser.wait(f"document.querySelectorAll('.judge')[{turn}].querySelector('a') !== null")
        return self.texts(".judge")[turn]

    def test_conversations(self):
        server = self.serve()
        self.open(server, "talk")
        health = server.get("/health")
        card = self.browser.eval("document.getElementById('card').innerText")
        for value in (health["architecture"], health["quantization"], health["fingerprint"], health["device"], str(health["context_length"])):
            self.assertIn(value, card)
        self.assertEqual(self.text("h1"), health["model"])
        self.assertTrue(self.browser.eval("document.getElementById('chat').checked"), "the model has a template")
        self.assertTrue(self.browser.eval("document.getElementById('dashboard').hidden"))
        self.push("chat")
        self.say(HAIKU)
        self.assertEqual(self.answers(), [worker.text_of(server.run("same", HAIKU))])
        self.assertRegex(self.text("#speed"), r"\d+ tokens, [\d.]+ tokens/s, first after \d+ ms; the model ended it")
        # A chat has turns; each answer follows from all that was said before it.
        self.push("chat")
        said = []
        for words in ("Write a haiku about rain", "Write a haiku about <b>snow</b> & ice"):
            self.say(words)
            said.append({"role": "user", "content": words})
            wanted = server.post("/v1/chat/completions", {"messages": said, "temperature": 0, "max_tokens": 256})[1]["choices"][0]["message"]["content"]
            said.append({"role": "assistant", "content": wanted})
            self.assertEqual(self.answers(), [each["content"] for each in said[1::2]])
            self.assertEqual(self.browser.eval("document.getElementById('prompt').value"), "", "there is room for the next turn")
        self.assertEqual(self.texts(".said")[1], words)
        # Once more, by another seed; the turn before stays.
        self.set(temperature="2", seed="5")
        self.push("again")
        self.browser.wait(DONE)
        self.assertEqual(self.answers()[0], said[1]["content"])
        self.assertNotEqual(self.answers()[1], said[3]["content"])
        self.push("anew")
        self.assertEqual(self.answers(), [])
        self.browser.eval("document.getElementById('form').noValidate = true")
        self.set(temperature="9")
        self.say("x")
        self.assertIn("temperature", self.text("#speed"))
        self.take_problem("status of 400")

    def test_probabilities_of_tokens(self):
        self.open(self.serve(), "tokens")
        self.push("chat")
        self.say(HAIKU)
        count = self.browser.eval("document.querySelectorAll('.answer span').length")
        self.assertGreater(count, 10)
        self.assertEqual(self.tip(), [])
        # Under the pointer: the likeliest was taken.
        box = self.browser.eval("(() => { const b = document.querySelectorAll('.answer span')[1].getBoundingClientRect(); return [b.left + 3, b.top + 5]; })()")
        self.mouse("mouseMoved", *box)
        self.browser.wait("document.querySelector('.tip') !== null")
        shown = self.tip()
        self.assertGreaterEqual(len(shown), 5)
        self.assertEqual(shown[0][0], self.texts(".answer span")[1])
        self.picture("tokens-tip")
        self.mouse("mouseMoved", 1, 1)
        self.browser.wait("document.querySelector('.tip') === null")
        # By the keyboard: all of them, in order.
        self.browser.eval("document.querySelector('.answer').focus()")
        for i in range(count):
            self.press("ArrowRight")
            shown = self.tip()
            shares = [share for _, share in shown]
            if len(shown) <= 5:  # the texts of several tokens may come as one
                self.assertEqual(shown[0][0], self.texts(".answer span")[i])
                self.assertEqual(shares, sorted(shares, reverse=True), shown)
                self.assertLessEqual(sum(shares), 100.1)
            self.assertEqual("unsure" in self.browser.eval(f"document.querySelectorAll('.answer span')[{i}].className"), shares[0] < 50)
        last = self.tip()
        self.press("ArrowRight")
        self.assertEqual(self.tip(), last)
        self.press("Escape")
        self.assertEqual(self.tip(), [])

    def test_stop(self):
        slow = worker.forge(PROGRAM, self.root / "slow.gguf", "--layers", "8", "--width", "512", "--heads", "8", "--type", "q8_0")
        server = self.serve(model=slow)
        self.open(server, "stop")
        # Whether and when a random model ends its text is luck; this one goes on until it is stopped.
        self.browser.eval("const send = window.fetch; window.fetch = (to, what) => send(to, to === '/v1/completions' ?"
                          " {...what, body: JSON.stringify({...JSON.parse(what.body), ignore_eos: true})} : what)")
        self.set(tokens="20000", temperature="1", seed="5")
        self.push("go")
        self.browser.wait("document.getElementById('talk').textContent.length > 40")
        self.assertIsNotNone(server.get("/health")["active_job"])
        self.push("stop")
        self.browser.wait("!document.getElementById('go').disabled")
        self.assertIn("stopped", self.text("#speed"))
        server.wait_idle()
        worker.check_order(server.run("after", max_tokens=1))
        # What was seen until then can be judged, and that can be called off.
        self.browser.eval("document.querySelector('.judge button').click()")
        self.browser.wait("document.querySelector('.judge').textContent.startsWith('Judging: ')")
        self.picture("judging")
        self.browser.eval("document.querySelector('.judge button').click()")
        self.browser.wait("document.querySelector('.judge').textContent.startsWith('Not judged.')")

    def test_judge_an_answer(self):
        server = self.serve()
        self.open(server, "judge")
        self.set(temperature="1", seed="7")
        self.say("Write a haiku about rain")
        self.say("Another one, about snow")
        shown = self.answers()
        for turn in (1, 0):
            said = self.judged(turn)
            self.assertRegex(said, r"^✓In parity: .*Report[\d.]+ s for \d+ tokens, largest own error 0\.\d+ of its bound, mean KL ")
        self.assertEqual(self.answers(), shown)
        for dark, width in ((False, 1000), (True, 1000), (False, 360)):
            self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            self.browser.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
            self.picture(f"judged-{width}-{'dark' if dark else 'light'}")
            self.check_narrow(width)
        self.check_printed()
        # The report behind the link is of that answer.
        for link, answer in zip(self.browser.eval("[...document.querySelectorAll('.judge a')].map(link => link.href)"), shown):
            self.browser.open(link)
            self.browser.wait("document.documentElement.dataset.ready === 'true'")
            self.assertIn("In parity", self.text("h1"))
            data = re.search('id="data">(.*?)</script>', server.get(link.removeprefix(server.url)))[1]
            self.assertIn(answer, "".join(json.loads(data)["page"]["tokens"]["suspect"]["texts"]))

    def test_what_cannot_be_judged(self):
        # 20 MB of the disk are for the report.
        server = self.serve("--judge-disk", "0.0201")
        self.open(server, "not-judged")
        self.push("chat")
        self.say(HAIKU)
        self.browser.eval("document.querySelector('.judge button').click()")
        self.browser.wait("document.querySelector('.judge .bad') !== null")
        self.assertRegex(self.text(".judge"), r"^Not judged: recordings of these \d+ tokens take 0\.02\d\d? GB; there may be 0\.0201 GB \(--judge-disk\)Judge this answer$")
        self.take_problem("status of 400")
        self.open(self.serve("--judge-disk", "0"), "judges-nothing")
        self.say(HAIKU)
        self.assertEqual(self.text(".judge"), "")

    def test_hostile_text_stays_text(self):
        server = self.serve()
        self.open(server, "hostile-worker")
        self.set(tokens="3")
        self.say(HOSTILE)
        self.assertEqual(self.text(".said"), HOSTILE)
        self.judged()
        self.assertIsNone(self.browser.eval("window.hacked ?? null"))
        self.assertEqual(self.browser.eval("document.querySelectorAll('img, script:not([type=module])').length"), 0)
        self.browser.open(self.browser.eval("document.querySelector('.judge a').href"))
        self.browser.wait("document.documentElement.dataset.ready === 'true'")
        self.assertIsNone(self.browser.eval("window.hacked ?? null"))

    def test_links_to_the_dashboard_and_back(self):
        runs = self.root / "runs"
        runs.mkdir()
        server = self.serve("--history", str(runs))
        self.open(server, "linked")
        self.browser.wait("!document.getElementById('dashboard').hidden")
        self.browser.open(self.browser.eval("document.getElementById('dashboard').href"))
        self.browser.wait("document.documentElement.dataset.ready === 'true'")
        self.assertEqual(self.text("h1"), "There are no runs yet")
        self.picture("linked-dashboard")
        self.browser.open(self.browser.eval("document.querySelector('nav a').href"))
        self.browser.wait(self.ready)
        self.assertEqual(self.text("h1"), server.get("/health")["model"])


if __name__ == "__main__":
    unittest.main()
