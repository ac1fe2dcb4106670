"""An installed program finds the models that ship with it, from any folder and through links; headers and the Python package come along.

usage: install_test.py CMAKE BUILD_FOLDER
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile


def main():
    cmake, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        subprocess.run(
            [cmake, "--install", build, "--prefix", root / "prefix"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        models = root / "prefix/share/lockstep/models"
        shipped = sorted(pathlib.Path(__file__).parent.parent.glob("models/*.gguf"))
        assert sorted(p.name for p in models.glob("*")) == [p.name for p in shipped], (
            f"installed {list(models.glob('*'))}, expected {shipped}"
        )
        package = root / "prefix/share/lockstep/python/lockstep"
        assert package.joinpath("__init__.py").exists() and not list(package.rglob("__pycache__")), package
        headers = pathlib.Path(__file__).parent.parent / "include"
        installed = root / "prefix/include"
        assert {p.relative_to(installed) for p in installed.rglob("*.h")} == {
            p.relative_to(headers) for p in headers.rglob("*.h")
        }
        # One more, so that the test says something where no model ships yet.
        models.mkdir(parents=True, exist_ok=True)
        extra = models / "haiku-probe-q4_k_m.gguf"
        extra.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))

        elsewhere = root / "elsewhere"
        elsewhere.mkdir()
        elsewhere.joinpath("haiku").mkdir()  # must not be taken for the model
        elsewhere.joinpath("link").symlink_to(root / "prefix/bin/lockstep")
        elsewhere.joinpath("link2").symlink_to("link")
        environment = os.environ | {"HOME": str(elsewhere), "XDG_CACHE_HOME": ""}

        def run(*command):
            return subprocess.run(
                command, cwd=elsewhere, env=environment, capture_output=True, text=True
            )

        for program in [root / "prefix/bin/lockstep", "./link", "./link2"]:
            done = run(program, "models", "--json")
            assert done.returncode == 0, done.stderr
            rows = {row["name"]: row for row in json.loads(done.stdout)["models"]}
            for path in [*shipped, extra]:
                row = rows[path.stem]
                assert row["source"] == "shipped" and row["here"], row
                assert row["path"] == str(models / path.name), row
            # The precision may be left out.
            done = run(program, "models", "pull", "haiku-probe")
            assert done.stdout == f"{extra}\n", done
            if any(path.stem.startswith("haiku-llama") for path in shipped):
                done = run(program, "models", "pull", "haiku")
                assert done.stdout.startswith(f"{models}/haiku-llama"), done


main()
