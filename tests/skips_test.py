"""scripts/check_skips finds every kind of skip in what ctest writes, and lets only listed ones pass.

usage: skips_test.py CTEST
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CTEST = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parent.parent

GTEST = """[ RUN      ] Odd.Name/0
x_test.cpp:7: Skipped
no such thing
[  SKIPPED ] Odd.Name/0 (0 ms)
[ RUN      ] Odd.Fine
[       OK ] Odd.Fine (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Odd.Name/0
"""
UNITTEST = '''
import unittest
class Case(unittest.TestCase):
    def test_fine(self):
        pass
    def test_bare(self):
        self.skipTest("no such thing")
    def test_told(self):
        """It has a sentence."""
        self.skipTest("no such thing")
    def test_talks(self):
        print("in between", flush=True)
        self.skipTest("it's none")
@unittest.skip("no such thing")
class Whole(unittest.TestCase):
    def test_one(self):
        pass
unittest.main()
'''


class Skips(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        (self.root / "tests").mkdir()
        (self.root / "scripts").mkdir()
        (self.root / "scripts/check_skips").write_text((ROOT / "scripts/check_skips").read_text())
        (self.root / "cases.py").write_text(UNITTEST)
        (self.root / "printed").write_text(GTEST)
        self.allow("")

    def allow(self, lines):
        (self.root / "tests/skips.txt").write_text(lines)

    def report(self, *tests):
        """Runs tests with ctest: name, properties, command."""
        lines = []
        for name, properties, *command in tests:
            quoted = " ".join(f"[==[{part}]==]" for part in command)
            lines += [f"add_test({name} {quoted})", f"set_tests_properties({name} PROPERTIES LABELS x {properties})"]
        (self.root / "CTestTestfile.cmake").write_text("\n".join(lines))
        subprocess.run([CTEST, "--test-output-size-passed", "10000000", "--output-junit", self.root / "report.xml"],
                       cwd=self.root, capture_output=True, check=False)  # fmt: skip

    def check(self, status, *reports):
        done = subprocess.run([sys.executable, self.root / "scripts/check_skips", *(reports or [self.root / "report.xml"])],
                              capture_output=True, text=True, check=False)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def unlisted(self, status=1):
        lines = self.check(status).stdout.splitlines()
        start = "skipped, and not in tests/skips.txt: "
        return [line.removeprefix(start).split(": ")[0] for line in lines if line.startswith(start)]

    def test_every_kind_is_found(self):
        self.report(
            ("fine", "", "true"),
            ("coded", "SKIP_RETURN_CODE 77", "sh", "-c", "echo skipped: no such thing; exit 77"),
            ("disabled", "DISABLED TRUE", "true"),
            ("absent", "", "/no/such/program"),
            ("google", "", "cat", self.root / "printed"),
            ("named", "", sys.executable, self.root / "cases.py", "-v"),
            ("nameless", "", sys.executable, self.root / "cases.py"),
        )
        every = ["absent", "coded", "disabled", "google/Odd.Name/0", "named/Case.test_bare", "named/Case.test_talks",
                 "named/Case.test_told", "named/Whole.test_one", "nameless/?"]  # fmt: skip
        self.assertEqual(self.unlisted(), every)
        # A name alone allows nothing: the reason must be the one that is listed.
        self.allow("# why\n\n*: no such thing\n")
        self.assertEqual(self.unlisted(), ["absent", "disabled", "named/Case.test_talks", "nameless/?"])
        self.allow("google/*: no such thing\nnamed/Case.*: no\ncoded: no such\nnot/there: x\n")
        self.assertEqual(self.unlisted(), ["absent", "disabled", "named/Whole.test_one", "nameless/?"])

    def test_nothing_skipped_and_all_listed(self):
        self.report(("fine", "", "true"))
        self.assertEqual(self.check(0).stdout, "")
        self.report(("google", "", "cat", self.root / "printed"))
        self.allow("google/Odd.Name/?: no such thing\n")
        self.assertIn("skipped: google/Odd.Name/0: x_test.cpp:7: Skipped no such thing", self.check(0).stdout)

    def test_what_cannot_be_read(self):
        self.assertIn("expected what ctest --output-junit writes", self.check(2, self.root / "none.xml").stderr)
        self.assertIn("expected what ctest --output-junit writes", self.check(2, self.root / "printed").stderr)
        (self.root / "empty.xml").write_text("<testsuite/>")
        self.assertIn("no tests", self.check(2, self.root / "empty.xml").stderr)
        self.report(("fine", "", "true"))
        for line in ("word", "word:", ": word", "word:  "):
            self.allow(f"# first\n{line}\n")
            self.assertIn("line 2", self.check(2).stderr)

    def test_the_list_of_the_project_is_sound(self):
        self.allow((ROOT / "tests/skips.txt").read_text())
        self.report(("fine", "", "true"))
        self.check(0)


if __name__ == "__main__":
    unittest.main()
