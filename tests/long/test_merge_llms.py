"""docs/gpu.md: its commands for language models, on three tiny Llamas, with lm_eval from its own lock file."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import example_libraries
from conftest import ROOT

NAMES = {"instruct": "sums", "code": "differences", "math": "products"}
LOCAL = {
    "meta-llama/Llama-3.2-3B": "tiny/base", "MergeBench/Llama-3.2-3B_instruction": "tiny/sums",
    "MergeBench/Llama-3.2-3B_coding": "tiny/differences", "MergeBench/Llama-3.2-3B_math": "tiny/products",
    "ifeval": "sums", "mbpp": "differences", "gsm8k_cot": "products",
}  # fmt: skip
"""What stands in the place of the page's models and tasks."""


def run(folder: Path, environment: dict[str, str], words: list[str]) -> None:
    programs = {"tallmasks": [sys.executable, "-m", "tallmasks.cli.main"], ".venv/bin/python": [sys.executable]}
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    command = [*programs[words[0]], *words[1:]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stderr[-3000:]}"


def test_the_commands_of_the_page_merge_and_measure(tmp_path: Path) -> None:
    """A reader would copy a line that fails after hours of download, or get another model's scores."""
    libraries = tmp_path / "libraries"
    example_libraries.install("llms", libraries)
    search = os.pathsep.join([str(ROOT / "src"), str(libraries)])
    environment = {**os.environ, "PYTHONPATH": search, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    section = (ROOT / "docs/gpu.md").read_text().partition("## Merge language models")[2].partition("\n## ")[0]
    main_block, tiny_block = re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)
    for block in (tiny_block, main_block):
        for line in block.replace("\\\n", " ").splitlines():
            words = []
            for word in shlex.split(line):
                name, equals, value = word.rpartition("=")
                words.append(name + equals + LOCAL.get(value, value))
            if words[0] not in ("make", "source"):
                run(tmp_path, environment, words)

    with (tmp_path / "results.csv").open() as file:
        values = {(row["model"], row["task"]): float(row["value"]) for row in csv.DictReader(file)}
    assert values.keys() == {(model, task) for model in ("base", "merged", *NAMES) for task in NAMES.values()}
    for model, task in NAMES.items():
        assert values[model, task] > values["base", task]
