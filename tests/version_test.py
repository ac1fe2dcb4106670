"""The version stands in several files, and is the same in all of them."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACES = {
    "CMakeLists.txt": r"^project\(lockstep VERSION ([\w.]+)",
    "python/lockstep/__init__.py": r'^__version__ = "([\w.]+)"$',
    "python/pyproject.toml": r'^version = "([\w.]+)"$',
}


class Version(unittest.TestCase):
    def test_all_places_agree(self):
        found = {place: re.findall(pattern, (ROOT / place).read_text(), re.M) for place, pattern in PLACES.items()}
        self.assertEqual({len(versions) for versions in found.values()}, {1}, found)
        self.assertEqual(len({versions[0] for versions in found.values()}), 1, found)


if __name__ == "__main__":
    unittest.main()
