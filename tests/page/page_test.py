"""The HTML report in a real browser: what it shows, how it answers, and that nothing in it is taken for markup.

usage: page_test.py PROGRAM
SCREENSHOTS and skipping: page_case.py.
"""

import base64
import json
import math
import os
import random
import re
import struct
import unittest
import zlib
from pathlib import Path

from page_case import HOSTILE, MODEL, Browser, PageCase, find_chromium, plain_trace, run

DATA = re.compile(r'(<script type="application/json" id="data">)(.*?)(</script>)', re.S)
LIGHT = {"missing": (190, 196, 204), "not_judged": (226, 221, 206), "zero": (244, 247, 251), "right": ((219, 233, 246), (31, 95, 168)),
         "wrong": ((247, 168, 60), (158, 20, 10)), "apart": ((239, 233, 247), (74, 20, 134))}
DARK = {"missing": (70, 76, 84), "not_judged": (58, 53, 42), "zero": (27, 35, 44), "right": ((31, 52, 73), (111, 177, 245)),
        "wrong": ((232, 150, 40), (255, 92, 70)), "apart": ((43, 35, 64), (199, 169, 245))}


def packed(codes):
    return base64.b64encode(zlib.compress(struct.pack(f"<{len(codes)}H", *codes), 1)).decode()


def unpacked(text):
    data = zlib.decompress(base64.b64decode(text))
    return struct.unpack(f"<{len(data) // 2}H", data)


def data_of(page):
    return json.loads(DATA.search(page.read_text())[2])


def with_data(page, data, folder):
    """The same page with other data, escaped as the program does it."""
    text = json.dumps(data).replace("<", "\\u003c")
    folder.write_text(DATA.sub(lambda match: match[1] + text + match[3], page.read_text()))
    return folder


def colour(code, own, codes, palette):
    """By docs/report-page.md and the scale that the page shows."""
    if code <= 2:
        return palette[("missing", "not_judged", "zero")[code]]
    if code == 65535:
        return palette["wrong"][1]
    size = (code - 16384) / 16 * math.log10(2)
    if not own:
        sizes = [(c - 16384) / 16 * math.log10(2) for c in codes if 2 < c < 65535]
        pair, share = palette["apart"], (size - min(sizes)) / (max(sizes) - min(sizes)) if max(sizes) > min(sizes) else 1
    elif size <= 0:
        pair, share = palette["right"], 1 + size / 2
    else:
        pair, share = palette["wrong"], size / 4
    share = min(1, max(0, share))
    return tuple(a + share * (b - a) for a, b in zip(*pair))


class Page(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for device in ("reference", "cpu"):
            run("run", "-m", MODEL, "-p", "Write a haiku about snow", "-n", "20", "--device", device, "--trace", cls.root / device, "--checkpoints", "all", status=0)
        cls.trace = plain_trace.Trace(cls.root / "cpu")
        plain_trace.copy(cls.trace, cls.root / "wrong", cls.corrupt)
        plain_trace.copy(cls.trace, cls.root / "gaps", lambda name, tensor, step: None if name in ("blk.1.q", "blk.2.output") else tensor)
        cls.pages = {}
        run("run", "-m", MODEL, "-p", "A haiku about rain", "-n", "9", "--trace", cls.root / "rain", status=0)
        run("run", "-m", MODEL, "-p", "Write a haiku about snow", "-n", "9", "--trace", cls.root / "logits", "--checkpoints", "logits", status=0)
        run("run", "-m", MODEL, "-p", "Write a haiku about snow", "-n", "20", "--temp", "2", "--seed", "9", "--trace", cls.root / "sampled", status=0)
        plain_trace.copy(cls.trace, cls.root / "nan", lambda name, tensor, step: cls.corrupt(name, tensor, step, math.nan))
        for name, suspect, status, flags in (("defect", "wrong", 1, ()), ("prompts", "rain", 1, ()), ("logits", "logits", 1, ()), ("fork", "sampled", 0, ()), ("nan", "nan", 1, ()), ("clean", "cpu", 0, ()), ("exact", "reference", 0, ()),
                                             ("gaps", "gaps", 0, ()), ("sample", "cpu", 0, ("--positions", "3,7"))):
            cls.pages[name] = cls.root / f"{name}.html"
            run("compare", cls.root / "reference", cls.root / suspect, "-m", MODEL, "--html", cls.pages[name], *flags, status=status)

    @staticmethod
    def corrupt(name, tensor, step, value=None):
        if name == "blk.1.ffn_act" and step.first_position <= 3 < step.first_position + step.tokens:
            tensor = tensor.copy()
            tensor[3 - step.first_position, 11] = tensor[0, 0] + 1 if value is None else value
        return tensor

    def open(self, page, width=1100, dark=False, height=900):
        super().open(page.as_uri(), page.stem, width, dark, height)

    def place(self, row, column):
        """Of a cell on the screen."""
        return self.browser.eval("(() => { const m = lockstep.map; m.canvas.scrollIntoView({block: 'center'}); const box = m.canvas.getBoundingClientRect();"
                                 f"const [x, y] = m.centre({row}, {column}); return [box.left + x, box.top + y]; }})()")

    def selected(self):
        return tuple(self.browser.eval("[lockstep.data.names[lockstep.selection.row], lockstep.selection.position]"))

    def test_the_story_from_the_top(self):
        self.open(self.pages["defect"])
        data = data_of(self.pages["defect"])
        self.assertEqual(self.text("h1"), "✕" + data["headline"])
        self.assertEqual(self.text("#evidence"), data["page"]["evidence"])
        self.assertIn(data["diagnoses"][0]["text"], self.text(".cause"))
        self.assertIn(f"doctor {self.root / 'reference'} {self.root / 'wrong'} -m {MODEL}", self.text("#next code"))
        self.assertEqual(self.text("#cell-title"), "blk.1.ffn_act, position 3")
        self.assertIn("ffn_act = silu(ffn_gate) * ffn_up", self.text("#cell .formula"))
        cells = self.browser.eval("[...document.querySelectorAll('#worst tbody tr')[0].cells].map(cell => cell.textContent)")
        worst = data["page"]["opened"][0]["worst"][0]
        self.assertEqual(cells[0], "11")
        for shown, number in zip(cells[1:3] + cells[4:], [worst["recorded"], worst["expected"], *worst["inputs"]]):
            self.assertAlmostEqual(float(shown), number, delta=1e-8 * abs(number))
        self.assertEqual(self.browser.eval("document.querySelectorAll('#checkpoints tbody tr').length"), len(data["checkpoints"]))
        self.assertEqual(self.browser.eval("document.querySelectorAll('#tokens button[data-position]').length"), len(self.trace.tokens))
        self.assertEqual(self.browser.eval("document.querySelectorAll('#tokens .wrong').length"), 1)
        # The formula's names lead to their rows.
        self.browser.eval("document.querySelector('#cell .formula button').click()")
        self.assertEqual(self.selected(), ("blk.1.ffn_gate", 3))

    def test_the_row_under_the_hypothesis(self):
        """A real mistake, which the doctor explains: what it expects of the row is what was recorded."""
        run("demo", "bug", "rope.pairing", "-m", MODEL, "--keep", self.root / "demo", status=0)
        page = self.root / "hypothesis.html"
        run("compare", self.root / "demo/right", self.root / "demo/wrong", "-m", MODEL, "--html", page, status=1)
        data = data_of(page)
        cause = data["diagnoses"][0]
        self.assertEqual(cause["cause"], "rope.pairing")
        rows = [row for row in data["page"]["opened"] if row["hypothesis"]]
        self.assertIn((cause["checkpoint"], data["first_defect"]["position"]), [(row["checkpoint"], row["position"]) for row in rows])
        for row in rows:
            self.assertEqual((row["checkpoint"], row["hypothesis"]["cause"]), (cause["checkpoint"], cause["cause"]))
            count = len(base64.b64decode(row["points"]["index"])) // 4
            recorded, error, found = (struct.unpack(f"<{count}f", base64.b64decode(text)) for text in (row["points"]["recorded"], row["points"]["error"], row["hypothesis"]["points"]))
            self.assertLess(max(abs(a - b) for a, b in zip(recorded, found)), 1e-2 * max(map(abs, error)), "the hypothesis explains the row")
            for worst, number in zip(row["worst"], row["hypothesis"]["worst"], strict=True):
                self.assertLess(abs(worst["recorded"] - number), 1e-2 * abs(worst["recorded"] - worst["expected"]))
        self.open(page)
        self.assertIn("Recorded under rope.pairing", self.text("#hypothesis"))
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('#worst th')].map(head => head.textContent)")[:5], ["element", "recorded", "expected", "under rope.pairing", "error over bound"])
        shown = self.browser.eval("[...document.querySelectorAll('#worst tbody tr')[0].cells].map(cell => cell.textContent)")
        first = next(row for row in rows if row["position"] == data["first_defect"]["position"])
        self.assertAlmostEqual(float(shown[3]), first["hypothesis"]["worst"][0], delta=1e-6 * abs(first["hypothesis"]["worst"][0]))
        self.open(self.pages["defect"])
        self.assertIsNone(self.text("#hypothesis"))

    def test_causes_stand_at_the_top(self):
        data = data_of(self.pages["defect"])
        data["diagnoses"] = [{"cause": "rope.base", "text": "The base is 500, not 10000.", "parameters": {"value": 500}, "side": "suspect", "checkpoint": "blk.0.q_rope",
                              "layers": [0, 1, 2, 5], "positions": [1, 2], "proof": "proved", "evidence": {"rows": 48, "explained": 47, "ratio_before": 9450, "ratio_after": 0.4},
                              "fix": "The table of angles.", "alternatives": ["rope.scaling"]},
                             {"cause": "unknown", "text": "All heads are wrong.", "parameters": {}, "side": "suspect", "checkpoint": "logits", "layers": [], "positions": [],
                              "proof": "consistent", "evidence": {"rows": 0, "explained": 0, "ratio_before": None, "ratio_after": None}, "fix": "", "alternatives": []}]
        self.open(with_data(self.pages["defect"], data, self.root / "causes.html"))
        first, second = self.browser.eval("[...document.querySelectorAll('#story .cause')].map(cause => cause.textContent)")
        for part in ("rope.base", "proved", "The base is 500", "47 of 48", "9450", "0.4", "Layers 0–2, 5", "rope.scaling", "The table of angles", "value: 500"):
            self.assertIn(part, first)
        self.assertIn("Cause not known", second)
        self.assertIn("lockstep doctor", self.text("#next"))

    def test_colours_are_those_of_the_numbers(self):
        chance = random.Random()
        for name in ("defect", "gaps", "sample"):
            data = data_of(self.pages[name])
            rows = {measure: unpacked(text) for measure, text in data["page"]["rows"].items()}
            rows["own"] = [0 if apart == 0 and max(a, b) <= 16384 else max(a, b)
                           for a, b, apart in zip(rows["own_reference"], rows["own_suspect"], rows["relative_l2"])]
            columns = len(rows["own"]) // len(data["checkpoints"])
            for dark, palette in ((False, LIGHT), (True, DARK)):
                self.open(self.pages[name], dark=dark)
                for measure, codes in rows.items():
                    cells = [divmod(chance.randrange(len(codes)), columns) for _ in range(60)]
                    # One of each kind, whatever chance says.
                    cells += [divmod(codes.index(code), columns) for code in (0, 1, 2, max(codes)) if code in codes]
                    found = self.browser.eval(f"""(() => {{ const m = lockstep.map; document.getElementById('measure').value = {measure!r};
                      document.getElementById('measure').dispatchEvent(new Event('change')); const context = m.base.getContext('2d');
                      return {json.dumps(cells)}.map(([row, column]) => {{ const [x, y] = m.centre(row, column);
                        return [...context.getImageData(Math.floor(x) + 2, Math.floor(y) + 1, 1, 1).data].slice(0, 3); }}); }})()""")
                    for (row, column), shown in zip(cells, found):
                        code = codes[row * columns + column]
                        if code in (0, 1):
                            continue  # marks lie over them; their kind is checked below
                        wanted = colour(code, measure.startswith("own"), codes, palette)
                        for a, b in zip(wanted, shown):
                            self.assertAlmostEqual(a, b, delta=1.1, msg=f"{name} {measure} {row} {column} {code}")
        words = self.browser.eval("lockstep.map.describe(0, 0).join(' ')")
        self.assertIn("not judged", words, "position 0 is not among those chosen")

    def test_what_is_missing_is_visibly_that(self):
        self.open(self.pages["gaps"])
        row = self.browser.eval("lockstep.data.rowOf.get('blk.1.q')")
        self.assertIn("suspect: missing ", self.browser.eval(f"lockstep.map.describe({row}, 4).join(' ')"))
        for measure in ("own", "own_suspect", "relative_l2", "inherited"):
            x, y = self.browser.eval(f"document.getElementById('measure').value = '{measure}', document.getElementById('measure').dispatchEvent(new Event('change')), lockstep.map.centre({row}, 4)")
            shown = self.browser.eval(f"[...lockstep.map.base.getContext('2d').getImageData(Math.floor({x}) - 6, Math.floor({y}) - 2, 1, 1).data].slice(0, 3)")
            self.assertEqual(tuple(shown), LIGHT["missing"], measure)
        self.assertIn("blk.1.q, blk.2.output. Record them", self.text("#next"))
        self.assertIn("missing", self.text("#checkpoints tbody"))

    def test_mouse(self):
        self.open(self.pages["defect"])
        row = self.browser.eval("lockstep.data.rowOf.get('blk.2.q_rope')")
        x, y = self.place(row, 9)
        self.mouse("mouseMoved", x, y)
        tip = self.browser.eval("document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent")
        self.assertIn("blk.2.q_rope, position 9", tip)
        self.assertIn("own error over bound, suspect: ≈", tip)
        self.click(x, y)
        self.assertEqual(self.selected(), ("blk.2.q_rope", 9))
        self.assertEqual(self.text("#cell-title"), "blk.2.q_rope, position 9")
        # Not among the worst: the page says how to see its numbers.
        if f"9 blk.2.q_rope" not in self.browser.eval("[...lockstep.data.opened.keys()]"):
            self.assertIn("--positions 9", self.text("#cell code"))
        self.browser.eval("document.querySelector('#tokens button[data-position=\"5\"]').click()")
        self.assertEqual(self.selected(), ("blk.2.q_rope", 5))
        self.assertEqual(self.browser.eval("document.querySelector('#tokens [aria-pressed=true]').dataset.position"), "5")
        # Sorting and filtering the table; its names open the worst row.
        self.browser.eval("document.querySelectorAll('#checkpoints th button')[3].click()")
        self.assertIn("blk.1.ffn_act", self.text("#checkpoints tbody tr"))
        self.browser.eval("document.querySelector('#checkpoints tbody button').click()")
        self.assertEqual(self.selected(), ("blk.1.ffn_act", 3))
        self.browser.eval("(() => { const box = document.querySelector('#checkpoints input'); box.value = 'ffn_norm'; box.dispatchEvent(new Event('input')); })()")
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('#checkpoints tbody tr')].filter(row => !row.hidden).every(row => row.textContent.includes('ffn_norm'))"), True)
        # A drag moves what is zoomed, and opens nothing.
        self.browser.eval("lockstep.map.zoom(3)")
        before = self.browser.eval("lockstep.map.view.x")
        x, y = self.place(row, 10)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseMoved", x + 60, y, button="left", buttons=1)
        self.mouse("mouseReleased", x + 60, y, button="left", clickCount=1)
        self.assertLess(self.browser.eval("lockstep.map.view.x"), before)
        self.assertEqual(self.selected(), ("blk.1.ffn_act", 3))

    def test_keyboard(self):
        self.open(self.pages["defect"])
        names = [c["name"] for c in data_of(self.pages["defect"])["checkpoints"]]
        self.browser.eval("lockstep.map.canvas.focus()")
        here = names.index("blk.1.ffn_act")
        for key, row, position in (("ArrowRight", here, 4), ("ArrowDown", here + 1, 4), ("ArrowLeft", here + 1, 3), ("ArrowUp", here, 3), ("Home", here, 0), ("ArrowLeft", here, 0),
                                   ("End", here, len(self.trace.tokens) - 2), ("PageDown", names.index("blk.2.attn_norm"), len(self.trace.tokens) - 2)):
            self.press(key)
            self.assertEqual(self.selected(), (names[row], position), key)
            self.assertIn(names[row], self.text("#map-now"))
        self.press("n")
        self.assertEqual(self.selected(), ("blk.1.ffn_act", 3))
        self.press("Enter")
        self.assertEqual(self.text("#cell-title"), "blk.1.ffn_act, position 3")
        whole = self.browser.eval("lockstep.map.view.width")
        self.press("+")
        self.assertLess(self.browser.eval("lockstep.map.view.width"), whole)
        for _ in range(12):  # what is selected stays in sight
            self.press("ArrowRight")
        self.assertTrue(self.browser.eval("(() => { const v = lockstep.map.view, c = lockstep.selection.position; return c >= v.x && c + 1 <= v.x + v.width; })()"))
        self.press("0")
        self.assertEqual(self.browser.eval("lockstep.map.view.width"), whole)
        # Every control can be reached.
        self.assertEqual(self.browser.eval("[...document.querySelectorAll('button, select, input, canvas[tabindex]')].filter(one => one.tabIndex < 0).length"), 0)

    def test_clean_exact_empty(self):
        self.open(self.pages["clean"])
        self.assertIn("In parity", self.text("h1"))
        self.assertTrue(self.browser.eval("document.getElementById('story').classList.contains('good')"))
        self.assertIn("--junit", self.text("#next code"))
        self.open(self.pages["exact"])
        self.assertIn("there is no drift", self.text("#drift"))
        self.assertIn("bit for bit", self.text("#cell"))
        data = data_of(self.pages["exact"])
        data.update(checkpoints=[], verdict="nothing to compare", parity=False, judged=0, headline="Nothing to compare")
        data["page"].update(positions=[], opened=[], logits=[], explained=[], rows={name: packed([]) for name in data["page"]["rows"]},
                            tokens={side: {"ids": [], "prompt": 0, "texts": None} for side in ("reference", "suspect")})
        self.open(with_data(self.pages["exact"], data, self.root / "empty.html"))
        self.assertEqual(self.text("h1"), "?Nothing to compare")
        for part in ("map", "tokens", "cell", "drift", "checkpoints"):
            self.assertTrue(self.browser.eval(f"document.getElementById('{part}').hidden"), part)

    def test_other_verdicts(self):
        self.open(self.pages["prompts"])
        self.assertIn("lockstep tokenize", self.text("#next code"))
        self.assertGreater(self.browser.eval("document.querySelectorAll('#tokens .fork').length"), 0)
        self.open(self.pages["logits"])
        self.assertTrue(self.browser.eval("document.getElementById('story').classList.contains('unsure')"))
        self.assertIn("Record it", self.text("#next"))
        self.open(self.pages["fork"])
        first = data_of(self.pages["fork"])["tokens"]["first_difference"]
        self.assertEqual(self.browser.eval("Number(document.querySelector('#tokens .fork').dataset.position)"), first)
        # What one side computed beyond the fork was judged, not compared.
        self.assertIn("relative L2 difference: not compared", self.browser.eval(f"lockstep.map.describe(3, {first + 1}).join(' ')"))
        self.open(self.pages["nan"])
        self.assertEqual(self.text("#cell-title"), "blk.1.ffn_act, position 3")
        self.assertIn("NaN or infinite", self.text("#worst"))
        self.assertIn("Not drawn: 1", self.text("#cell"))
        self.assertEqual(self.browser.eval("lockstep.map.codes[lockstep.selection.row * lockstep.data.columns.length + 3]"), 65535)

    def test_no_model(self):
        out = self.root / "unproved.html"
        strange = self.root / "it's <b>.trace"
        plain_trace.copy(self.trace, strange, self.corrupt, model={"file": "none"}, engine={"name": HOSTILE, "version": "1", "device": "cpu"})
        plain_trace.copy(self.trace, self.root / "bare", model={"file": "none"})
        run("compare", self.root / "bare", strange, "--html", out, status=1)
        self.open(out)
        self.assertIn("-m model.gguf", self.text("#next code"))
        self.assertIn("'\\''", self.text("#next code"), "a shell takes the path as it is")
        self.assertEqual(self.browser.eval("lockstep.map.measure"), "relative_l2")
        self.assertIn("Not replayed", self.text("#cell"))
        self.assertIsNone(self.browser.eval("window.hacked ?? null"))
        self.assertIn(HOSTILE[:40], self.text("#facts"))

    def test_hostile_text_stays_text(self):
        def spoil(value):
            if isinstance(value, dict):
                return {key: spoil(entry) for key, entry in value.items()}
            if isinstance(value, list):
                return [spoil(entry) for entry in value]
            return value + HOSTILE if isinstance(value, str) else value

        data = data_of(self.pages["defect"])
        kept = {"rows": data["page"].pop("rows"), "points": [row.pop("points") for row in data["page"]["opened"]], "verdicts": [c["verdict"] for c in data["checkpoints"]],
                "formulas": data["page"].pop("formulas")}
        data = spoil(data)
        data["page"]["rows"] = kept["rows"]
        data["page"]["formulas"] = {key + HOSTILE: spoil(value) for key, value in kept["formulas"].items()}
        for row, points in zip(data["page"]["opened"], kept["points"]):
            row["points"] = points
        data["diagnoses"] = [{"cause": HOSTILE, "text": HOSTILE, "parameters": {HOSTILE: HOSTILE}, "side": "suspect", "checkpoint": HOSTILE, "layers": [], "positions": [],
                              "proof": HOSTILE, "evidence": {"rows": 1, "explained": 1, "ratio_before": 2, "ratio_after": 0}, "fix": HOSTILE, "alternatives": [HOSTILE]}]
        self.open(with_data(self.pages["defect"], data, self.root / "hostile.html"))
        x, y = self.place(5, 5)
        self.mouse("mouseMoved", x, y)
        self.click(x, y)
        self.assertIn(HOSTILE, self.text("#cell-title"))
        self.assertIsNone(self.browser.eval("window.hacked ?? null"))
        self.assertEqual(self.browser.eval("document.querySelectorAll('img, script:not([type=module])').length"), 0)
        self.assertIn(HOSTILE, self.text("h1"))

    def test_narrow_and_printed(self):
        for name in self.pages:
            self.open(self.pages[name], width=360, height=740)
            self.check_narrow()
        self.check_printed()

    def test_full_size(self):
        layers, ops, columns = 32, 20, 4096
        data = data_of(self.pages["clean"])
        template = next(c for c in data["checkpoints"] if c["name"] == "blk.1.ffn_act")
        data["checkpoints"] = [dict(template, name=f"blk.{layer}.{'output' if op == ops - 1 else f'op{op}'}", layer=layer) for layer in range(layers) for op in range(ops)]
        count = layers * ops * columns
        noise = os.urandom(2 * count)
        # About as noisy as numbers are: some eight bits each.
        codes = [16384 - 160 + byte // 2 for byte in noise[:count]]
        codes[100 * columns + 77] = 16384 + 100
        data["page"].update(positions=[[0, columns - 1]], rows={name: packed(codes) for name in data["page"]["rows"]}, explained=[1e-3] * (layers * ops), opened=[])
        data["page"]["tokens"] = {side: {"ids": [i % 300 for i in range(columns)], "prompt": 4000, "texts": [f" w{i}" for i in range(columns)]} for side in ("reference", "suspect")}
        page = with_data(self.pages["clean"], data, self.root / "full.html")
        print(f"full size: {page.stat().st_size / 1e6:.1f} MB of page", end=", ")
        # A browser that has shown nothing before.
        self.browser.__exit__()
        type(self).browser = Browser(find_chromium())
        before = self.renderers()
        self.open(page)
        seconds = self.browser.eval("performance.now() / 1000")
        pid, used = max(((pid, cpu - before.get(pid, 0)) for pid, cpu in self.renderers().items()), key=lambda pair: pair[1])
        status = Path(f"/proc/{pid}/status").read_text()
        megabytes = int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1000
        print(f"{seconds:.2f} s, {used:.2f} s of CPU, {megabytes:.0f} MB")
        # Time of the processor: others may keep the machine busy.
        self.assertLess(used, 3)
        self.assertLess(megabytes, 200)
        self.press("n")
        self.browser.eval("lockstep.map.nextWrong()")
        self.assertEqual(self.selected(), (data["checkpoints"][100]["name"], 77))
        x, y = self.place(100, 77)
        self.mouse("mouseMoved", x, y)
        self.assertIn("position", self.text(".tip"))

    def renderers(self):
        """Seconds that each renderer has computed."""
        out = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if b"--type=renderer" in (folder / "cmdline").read_bytes() and self.browser.home.name.encode() in (folder / "cmdline").read_bytes():
                    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                    out[folder.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                pass
        return out


if __name__ == "__main__":
    unittest.main()
