"""A score of one's own, for `tallmasks merge --choose ... --score "python examples/score.py {}"`.

Prints the part of your validation examples that a merged model gets right; here, of two classifiers with heads of their
own, on the files that examples/classifiers.py writes.  The last line is the score.
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer


def accuracy(merged: Path, task: str) -> float:
    config = AutoConfig.from_pretrained(merged / f"heads/{task}.json")
    model = AutoModelForSequenceClassification.from_pretrained(merged, config=config, ignore_mismatched_sizes=True)
    model.load_state_dict(load_file(merged / f"heads/{task}.safetensors"), strict=False)
    texts = pd.read_csv(f"demo/{task}.csv").iloc[::2]  # the others stay for the test
    tokens = AutoTokenizer.from_pretrained(merged)([*texts["text"]], padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        found = model(**tokens).logits.argmax(1).tolist()
    return sum(config.id2label[number] == label for number, label in zip(found, texts["label"], strict=True)) / len(
        texts
    )


if __name__ == "__main__":
    accuracies = [accuracy(Path(sys.argv[1]), task) for task in ("tickets", "mails")]
    print(accuracies)
    print(sum(accuracies) / len(accuracies))
