"""The package for Debian: its fields, and that the program works from where dpkg would put it.

usage: deb_test.py CPACK BUILD_FOLDER
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def main():
    cpack, build = sys.argv[1:]
    if not shutil.which("dpkg-deb") or not shutil.which("dpkg-shlibdeps"):
        print("skipped: no dpkg on this machine")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        # Quick rather than small.
        run(cpack, "--config", pathlib.Path(build) / "CPackConfig.cmake", "-B", root, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none")
        (package,) = root.glob("*.deb")
        version = re.search(r"project\(lockstep VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "--field", package).splitlines() if ": " in line)
        assert (fields["Package"], fields["Version"]) == ("lockstep", version), fields
        assert package.name == f"lockstep_{version}_{fields['Architecture']}.deb", package.name
        for library in ("libc6", "libcurl4", "libstdc++6", "libpcre2-8-", "libutf8proc", "libxxhash"):
            assert library in fields["Depends"], fields["Depends"]
        run("dpkg-deb", "-x", package, root / "system")
        program = root / "system/usr/bin/lockstep"
        rows = {row["name"]: row for row in json.loads(run(program, "models", "--json"))["models"]}
        for model in ROOT.glob("models/*.gguf"):
            assert rows[model.stem]["path"] == str(root / "system/usr/share/lockstep/models" / model.name), rows[model.stem]
        assert (root / "system/usr/include/lockstep/recorder.h").exists()
        assert (root / "system/usr/share/lockstep/python/lockstep/capture/names/vllm.json").exists()
    return 0


sys.exit(main())
