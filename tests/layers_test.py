"""The folders of src/ use each other as ARCHITECTURE.md says, and the script that checks it finds what does not.

usage: layers_test.py
"""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "scripts/check_layers"


def load(path):
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


check_layers = load(SCRIPT)

# A checkout in which all is well.
SOUND = {
    "ARCHITECTURE.md": "# A\n\n| `no/` | not this table |\n\n## Layers\n\n| folder | holds |\n|---|---|\n"
    "| `low/` | x |\n| `mid/` | y |\n| `top/` | z |\n\n## More\n\n| `nor/` | this one |\n",
    "src/low/a.h": '#pragma once\n#include <vector>\n#include "lockstep/public.h"\n',
    "src/low/made.h.in": "",
    "src/mid/b.h": '#include "low/a.h"\n# include <low/a.h>\n#include "made.h"\n',
    "src/mid/made.h": '#include "low/made.h"\n',
    "src/mid/b.cpp": '#include "mid/b.h"\n// #include "top/c.h"\n',
    "src/top/deep/c.h": '#include "mid/b.h"\n#include "top/c.h"\n',
    "src/top/c.h": '#include "low/a.h"\n',
    "include/lockstep/public.h": '#include <string>\n#include "detail/more.h"\n',
    "include/lockstep/detail/more.h": "",
}


def check(changes):
    """What the script finds in the sound checkout with these files put in."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**SOUND, **changes}.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.check(pathlib.Path(folder).resolve())


class Layers(unittest.TestCase):
    maxDiff = None

    def test_this_checkout(self):
        done = subprocess.run([SCRIPT], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, r"^\d+ files in \d+ layers include only from above\n$")

    def test_status_and_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "src/a/b.h")
            source.parent.mkdir(parents=True)
            source.write_text("")
            pathlib.Path(folder, "ARCHITECTURE.md").write_text("## Layers\n| `b/` | x |\n")
            done = subprocess.run([SCRIPT, folder], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, ""))
            self.assertEqual(len(done.stdout.splitlines()), 2, done.stdout)

    def test_sound(self):
        self.assertEqual(check({}), ([], "7 files in 3 layers include only from above"))

    def expect(self, changes, *lines):
        self.assertEqual(check(changes)[0], list(lines))

    def test_from_below(self):
        for written in '"top/c.h"', "<top/c.h>", '"../top/c.h"':
            self.expect(
                {"src/low/z.h": f"\n\n  #  include {written}  // why\n"},
                f'src/low/z.h:3: "{written[1:-1]}" is of top/, which stands below low/ in the layers of ARCHITECTURE.md',
            )
        # Of tests, of kernels, of subfolders, of files that are generated.
        below = "which stands below mid/ in the layers of ARCHITECTURE.md"
        for name in "src/mid/b_test.cpp", "src/mid/b.cu", "src/mid/x/y/b.cuh", "src/mid/b.h.in":
            self.expect({name: '#include "top/x.h"\n'}, f'{name}:1: "top/x.h" is of top/, {below}')

    def test_order_is_the_table_s(self):
        table = SOUND["ARCHITECTURE.md"].replace("| `low/` | x |\n| `mid/` | y |\n", "| `mid/` | y |\n| `low/` | x |\n")
        lines, _ = check({"ARCHITECTURE.md": table})
        self.assertEqual([line.split(" ")[0] for line in lines], ["src/mid/b.h:1:", "src/mid/b.h:2:", "src/mid/made.h:1:"])

    def test_folders_and_table(self):
        self.expect({"src/new/x.h": "", "src/new/y.h": ""}, "src/new/x.h:1: src/new/ is missing from the layers of ARCHITECTURE.md")
        self.expect({"src/x.h": ""}, "src/x.h:1: lies in no folder of src/, so in no layer")
        table = SOUND["ARCHITECTURE.md"]
        self.expect({"ARCHITECTURE.md": table.replace("`top/` | z |", "`top/` | z |\n| `gone/` | w |")}, "ARCHITECTURE.md:12: src/gone/ does not exist")
        self.expect({"ARCHITECTURE.md": table.replace("`top/` | z |", "`top/` | z |\n| `low/` | w |")}, "ARCHITECTURE.md:12: low/ stands in the table twice")
        self.expect(
            {"ARCHITECTURE.md": table.replace("`top/` | z |", "`top/` | z |\n| more | w |")},
            "ARCHITECTURE.md:12: expected the name of a folder such as `base/`, found more",
        )
        lines, _ = check({"ARCHITECTURE.md": "nothing"})
        self.assertEqual(lines[0], 'ARCHITECTURE.md: no table of folders under a heading "Layers"')

    def test_circles(self):
        self.expect({"src/top/c.h": '#include "top/c.h"\n'}, 'src/top/c.h:1: "top/c.h" closes a circle: src/top/c.h -> src/top/c.h')
        self.expect(
            {"src/top/c.h": '\n#include "top/d.h"\n', "src/top/d.h": '#include "top/deep/c.h"\n'},
            'src/top/deep/c.h:2: "top/c.h" closes a circle: src/top/c.h -> src/top/d.h -> src/top/deep/c.h -> src/top/c.h',
        )
        self.expect(
            {"include/lockstep/detail/more.h": '#include "../public.h"\n'},
            'include/lockstep/detail/more.h:1: "../public.h" closes a circle: '
            "include/lockstep/public.h -> include/lockstep/detail/more.h -> include/lockstep/public.h",
        )

    def test_public_headers(self):
        for written in '"low/made.h"', "<low/made.h>", '"../../../src/low/made.h.in"':
            self.expect(
                {"include/lockstep/detail/more.h": f"//\n#include {written}\n"},
                f'include/lockstep/detail/more.h:2: "{written[1:-1]}" is src/low/made.h.in, but '
                "include/ is for other engines and uses nothing outside itself",
            )

    def test_what_cannot_be_read(self):
        self.expect({"src/mid/b.h": "#include SOME_FILE\n"}, "src/mid/b.h:1: an include must name its file, found 'SOME_FILE'")
        self.expect({"src/mid/b.h": '#include "b2.h"\n'}, 'src/mid/b.h:1: "b2.h" is neither in src/ nor in include/')


if __name__ == "__main__":
    sys.exit(unittest.main())
