#!/usr/bin/env python3
"""The page of `lockstep quality --html` in Chromium: quality_test.py LOCKSTEP

SCREENSHOTS=FOLDER keeps pictures of it.
"""

import json
import unittest

from page_case import HERE, HOSTILE, PageCase, run

MODELS = HERE.parents[2] / "models"
TOKENS = ",".join(str(17 * i % 500 + 20) for i in range(400))


class QualityPage(PageCase):
    def made(self, *arguments):
        suspect = self.root / "costly.gguf"
        if not suspect.exists():
            suspect.symlink_to(MODELS / "haiku-granite-q4_k_m.gguf")
        page = self.root / "costs.html"
        out = run("quality", MODELS / "haiku-granite-f16.gguf", suspect, "--tokens", TOKENS, "-t", 1, "--html", page,
                  "--json", *arguments)  # fmt: skip
        return json.loads(out), page.as_uri()

    def test_the_picture_and_the_ranking(self):
        found, url = self.made("--sample", 128)
        self.open(url, "quality", 1100, False, 1900)
        different = [tensor for tensor in found["by_tensor"]["tensors"] if not tensor["equal"]]
        self.assertIn("costly.gguf costs a mean KL of", self.text("h1"))
        self.assertEqual(len(self.texts("svg .square")), len(different))
        names = self.texts("#ranking svg > text")[::2]
        self.assertEqual(names, [tensor["name"] for tensor in different])
        self.assertEqual(len(self.texts("#tensors tbody tr")), len(found["by_tensor"]["tensors"]))
        self.open(url, "quality", 360, True, 900)
        self.check_narrow()
        self.check_printed()

    def test_without_tensors_there_is_no_picture(self):
        _, url = self.made("--no-tensors")
        self.open(url, "quality-whole", 1100, False, 900)
        for part in ("picture", "ranking", "tensors"):
            self.assertTrue(self.browser.eval(f"document.getElementById('{part}').hidden"), part)
        self.assertEqual(len(self.texts("#costs tbody tr")), 7)

    def test_names_are_text(self):
        recipe = self.root / f"{HOSTILE.replace('/', '')}.recipe"
        _, url = self.made("--sample", 64, "--recipe", 5, "-o", recipe)
        self.open(url, "quality-hostile", 1100, False, 900)
        self.assertIn("onerror=window.hacked", self.text("#tensors p"))
        self.assertIsNone(self.browser.eval("window.hacked ?? null"))


if __name__ == "__main__":
    unittest.main()
