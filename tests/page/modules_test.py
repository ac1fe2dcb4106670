"""The modules of web/ fit together: CMake joins them into one script, and a browser could load them as they are."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.M)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)(.*)", re.M)


def declared(text, only_exported=False):
    names = []
    for match in DECLARED.finditer(text):
        if only_exported and not match[0].startswith("export "):
            continue
        names.append(match[1])
        # const A = 0, B = 1;
        if match[0].startswith(("const", "export const")):
            names += re.findall(r", ([A-Z_]+) = ", match[2])
    return names


class Modules(unittest.TestCase):
    def pages(self):
        for name, modules in re.findall(r"^embed_page\((\w+) \w+ ([\w ]+)\)", (ROOT / "CMakeLists.txt").read_text(), re.M):
            yield name, {module: (ROOT / "web" / f"{module}.js").read_text() for module in modules.split()}

    def test_imports_are_exported_by_modules_that_stand_before(self):
        for _, modules in self.pages():
            before = []
            for name, text in modules.items():
                self.assertEqual(len(IMPORT.findall(text)), len(re.findall(r"^import", text, re.M)), f"{name}: an import is one line")
                imported = set()
                for names, source in IMPORT.findall(text):
                    for each in names.split(", "):
                        self.assertIn(each, declared(modules[source], only_exported=True), f"{name}: {source} does not export it")
                        self.assertRegex(IMPORT.sub("", text), rf"\b{each}\b", f"{name} does not use it")
                        imported.add(each)
                    # Functions may be used before their place, by calls after all modules.
                    if source not in before:
                        self.assertTrue(all(re.search(rf"^export function {each}\b", modules[source], re.M) for each in names.split(", ")), f"{name} comes before {source}")
                # What others export and this module calls, it imports.
                for other, its in modules.items():
                    for each in set(declared(its, only_exported=True)) - imported if other != name else ():
                        self.assertNotRegex(text, rf"(?<![.\w]){each}\(", f"{name} uses {each} of {other} without an import")
                before.append(name)

    def test_names_are_unique(self):
        count = 0
        for _, modules in self.pages():
            names = [name for text in modules.values() for name in declared(text)]
            self.assertEqual(sorted(names), sorted(set(names)))
            count += len(names)
        self.assertGreater(count, 50)

    def test_every_file_is_used(self):
        used = {f"{module}.js" for _, modules in self.pages() for module in modules}
        used |= {f"{name}.{ending}" for name, _ in self.pages() for ending in ("html", "css")} | {"page.h.in", "shell.html", "shared.css"}
        self.assertEqual({path.name for path in (ROOT / "web").iterdir()}, used)


if __name__ == "__main__":
    unittest.main()
