#!/usr/bin/env python3
"""Renders chat templates with Jinja and with Lockstep, and compares.

    check_chat_template.py [--render build/tests/render_chat] [FILE ...]

FILE is a GGUF file, a .jinja file or a tokenizer_config.json.
Without any: the GGUF files of $LOCKSTEP_SHARED/vocabs (default: ../shared beside the checkout),
the shipped models and SmolLM2, a real one. Exit status 1 where anything differs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import chat_template_cases
import smollm2

ROOT = pathlib.Path(__file__).resolve().parents[2]


def gguf_templates(path):
    import gguf

    for name, field in gguf.GGUFReader(path).fields.items():
        if name.startswith("tokenizer.chat_template") and not name.endswith("templates"):
            yield name, field.contents()


def config_templates(path):
    found = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
    if isinstance(found, str):
        found = [{"name": "default", "template": found}]
    for entry in found or []:
        yield entry["name"], entry["template"]


def templates(path):
    if path.suffix == ".jinja":
        return [("", path.read_text(encoding="utf-8"))]
    if path.suffix == ".json":
        return config_templates(path)
    return gguf_templates(path)


def default_files():
    shared = pathlib.Path(os.environ.get("LOCKSTEP_SHARED", ROOT.parent / "shared"))
    return sorted(shared.glob("vocabs/*.gguf")) + sorted((ROOT / "models").glob("*.gguf")) + [smollm2.model_file()]


def ours(render, requests):
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([render], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{render} ended with {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def agree(want, got):
    """Equal texts; errors on both sides, and with the same words where the template raised."""
    if "text" in want:
        return got.get("text") == want["text"]
    raised = want["error"].removeprefix("TemplateError: ")
    return "error" in got and (raised == want["error"] or got["error"].endswith(raised))


def check(label, template, render, verbose):
    cases = list(chat_template_cases.contexts())
    got = ours(render, [{"template": template, "context": context} for _, context in cases])
    texts = failures = 0
    for (name, context), answer in zip(cases, got, strict=True):
        want = chat_template_cases.expected(template, context)
        texts += "text" in want
        if not agree(want, answer):
            failures += 1
            if failures <= verbose:
                print(f"  {name}\n    Jinja: {want}\n    ours:  {answer}")
    verdict = "same" if failures == 0 else f"{failures} DIFFER"
    print(f"{label}: {len(cases)} contexts ({texts} texts, {len(cases) - texts} errors): {verdict}")
    return failures == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--render", default=str(ROOT / "build/tests/render_chat"))
    parser.add_argument("--verbose", type=int, default=2, help="differences to show a template")
    options = parser.parse_args()
    good, count = True, 0
    for path in options.files or default_files():
        for name, template in templates(path):
            good &= check(f"{path.name} {name}".strip(), template, options.render, options.verbose)
            count += 1
    print(f"{count} templates, {'all the same' if good else 'DIFFERENCES'}")
    return 0 if good and count else 1


if __name__ == "__main__":
    sys.exit(main())
