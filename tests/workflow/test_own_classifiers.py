"""docs/own_table.md, followed word by word with three classifiers that are trained on the spot."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from project import ROOT, Project, lay_out
from small_classifier import ARCHITECTURE, save_folder, small_tokenizer

CLASSES = {"tickets": ("cat", "dog", "bird"), "mails": ("red", "green", "blue"), "reviews": ("likes", "sees")}
FILLERS = ["the", "near", "who", "is", "it", "a"]


def write_task(project: Project, task: str) -> None:
    """A file of texts with the class's word somewhere, and a classifier trained on it."""
    draw, classes = np.random.default_rng(len(task)), CLASSES[task]
    rows = [
        (" ".join(draw.permutation([*draw.choice(FILLERS, draw.integers(3, 7)), name])), name)
        for name in classes for _ in range(60)
    ]  # fmt: skip
    path = project.path("texts", f"{task}.csv")
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    tokenizer = small_tokenizer()
    tokenizer.enable_padding(length=9)
    ids = torch.tensor([encoded.ids for encoded in tokenizer.encode_batch([text for text, _ in rows])])
    labels = torch.tensor([classes.index(name) for _, name in rows])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        settings = AutoConfig.for_model(**ARCHITECTURE, num_labels=len(classes))
        settings.id2label = dict(enumerate(classes))
        network = AutoModelForSequenceClassification.from_pretrained(project.path("models", "base"), config=settings)
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
        for _ in range(60):
            some = torch.from_numpy(draw.choice(len(rows), 32))
            network(input_ids=ids[some], attention_mask=(ids[some] > 0).long(), labels=labels[some]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    network.save_pretrained(project.path("models", task))


def commands(page: str) -> list[list[str]]:
    """The commands in the blocks of a page."""
    blocks = "".join(re.findall(r"^```\n(.*?)^```$", page, re.M | re.S))
    return [line.split() for line in blocks.replace("\\\n", " ").splitlines()]


@pytest.mark.long
def test_the_page_gives_a_table_of_ones_own_models_and_the_winner(tmp_path: Path) -> None:
    """The question people come with would have no answer: which method is best for my models."""
    project = lay_out(tmp_path / "project")
    save_folder(project.path("models", "base"))
    for task in CLASSES:
        write_task(project, task)
    compare, snakemake, merge, compress = commands((ROOT / "docs/own_table.md").read_text())
    tallmasks = [sys.executable, "-m", "tallmasks.cli.main"]
    subprocess.run([*tallmasks, *compare[1:]], cwd=project.root, check=True)
    project.run(*snakemake)
    table = pd.read_csv(project.path("results/mine/all/table.csv")).set_index("method")["accuracy"]
    assert table["fine_tuned"] > 90 > table["task_arithmetic"] > 20
    assert table["tall_mask_task_arithmetic"] > table["task_arithmetic"]
    chosen = json.loads(project.path("results/mine/all/selection.json").read_text())
    assert "mails" in json.dumps(chosen)
    for command in (merge, compress):
        subprocess.run([*tallmasks, *command[1:]], cwd=project.root, check=True)
    assert project.path("merged").is_dir() and project.path("bundle").is_dir()
