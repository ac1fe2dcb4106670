"""Links between the documents lead somewhere: to a file of the checkout, and to a heading that it has."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def prose(text):
    """Without code blocks, where brackets are no links."""
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def anchors(path):
    """As GitHub makes them of headings: small letters, dashes for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Links(unittest.TestCase):
    def test_links(self):
        pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "models/README.md", ROOT / "python/README.md"]
        count = 0
        for page in pages:
            for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
                if target.startswith(("http:", "https:")):
                    continue
                count += 1
                file, _, anchor = target.partition("#")
                path = (page.parent / file).resolve() if file else page
                with self.subTest(page=page.name, target=target):
                    self.assertTrue(path.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(path))
        self.assertGreater(count, 40)

    def test_readme_lists_every_document(self):
        readme = (ROOT / "README.md").read_text()
        for page in ROOT.glob("docs/*.md"):
            self.assertIn(f"(docs/{page.name})", readme)


if __name__ == "__main__":
    unittest.main()
