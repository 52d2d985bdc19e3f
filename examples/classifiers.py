"""Train six small text classifiers of one base, to try tallmasks on.

    python examples/classifiers.py ./demo

Writes a base, `demo/base`; the classifiers, `demo/tickets` and so on, as transformers saves them; and their labelled
texts, `demo/tickets.csv` and so on, which they were not trained on. The base has been trained to tell all topics
apart. Takes about a minute on a laptop.
"""

import copy
import csv
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

TASKS = {
    "tickets": {
        "billing": "invoice refund charged payment card price receipt cancel",
        "login": "password account locked email reset code browser sign",
        "delivery": "parcel courier address late tracking arrived damaged return",
    },
    "mails": {
        "spam": "winner prize click offer free lottery urgent claim",
        "work": "meeting report deadline project client slides budget review",
        "family": "birthday dinner mum weekend visit photos kids holiday",
    },
    "reviews": {
        "positive": "great lovely perfect friendly tasty recommend clean quick",
        "negative": "awful rude cold dirty slow broken noisy overpriced",
    },
    "news": {
        "sport": "match goal coach season striker league final stadium",
        "politics": "minister vote parliament party law election senate treaty",
        "science": "study cells planet telescope vaccine fossil particle climate",
        "markets": "shares bank profit inflation merger bonds trade investors",
    },
    "commands": {
        "music": "play song album louder playlist artist shuffle radio",
        "weather": "rain umbrella sunny forecast temperature wind snow degrees",
        "alarm": "wake timer minutes remind snooze morning clock evening",
    },
    "questions": {
        "person": "who president author inventor actor queen wrote born",
        "place": "where river capital mountain country located island city",
        "number": "many much tall old far percent years population",
    },
}
FILLERS = ["the", "a", "is", "it", "and", "of", "to", "in", "my", "this", "that", "for", "with", "on", "was", "please"]
TOPICS = [words.split() for classes in TASKS.values() for words in classes.values()]
WORDS = ["[PAD]", "[UNK]", *FILLERS, *sorted({word for words in TOPICS for word in words})]
LENGTH = 16


def texts(topics: list[list[str]], count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts in which one topic has most words; some words are of other topics. With the number of that topic."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, len(topics), count)
    written = []
    for label in labels:
        other = TOPICS[draw.integers(len(TOPICS))]
        words = [*draw.choice(topics[label], 3), *draw.choice(other, 2), *draw.choice(FILLERS, draw.integers(4, 10))]
        written.append(" ".join(draw.permutation(words)))
    return written, labels


def train(model: BertForSequenceClassification, topics: list[list[str]], steps: int, rate: float, seed: int) -> None:
    """AdamW on batches of 32 new texts."""
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    written, labels = texts(topics, 32 * steps, seed)
    numbers = {word: number for number, word in enumerate(WORDS)}
    ids = torch.tensor([[*map(numbers.get, text.split()), *[0] * LENGTH][:LENGTH] for text in written])
    for step in range(steps):
        some = slice(32 * step, 32 * step + 32)
        mask, answers = (ids[some] > 0).long(), torch.from_numpy(labels[some])
        model(input_ids=ids[some], attention_mask=mask, labels=answers).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(folder: Path) -> None:
    """Write all models and texts to a new folder."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # faster for small matrices
    words = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    small |= {"max_position_embeddings": LENGTH, "vocab_size": len(WORDS), "pad_token_id": 0}
    base = BertForSequenceClassification(BertConfig(**small, num_labels=len(TOPICS)))
    train(base, TOPICS, 300, 2e-3, seed=1)
    base.bert.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    for seed, (task, classes) in enumerate(TASKS.items(), 2):
        config = BertConfig(**small, id2label=dict(enumerate(classes)))
        model, topics = BertForSequenceClassification(config), [words.split() for words in classes.values()]
        model.bert = copy.deepcopy(base.bert)
        train(model, topics, 100, 3e-4, seed)
        model.save_pretrained(folder / task)
        tokenizer.save_pretrained(folder / task)
        with Path(folder, f"{task}.csv").open("w", newline="") as file:
            written, labels = texts(topics, 500, 100 + seed)
            rows = ((text, list(classes)[label]) for text, label in zip(written, labels, strict=True))
            csv.writer(file).writerows([("text", "label"), *rows])
        print(f"{task}: {', '.join(classes)}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-") or Path(sys.argv[1]).exists():
        sys.exit("usage: python examples/classifiers.py NEW_FOLDER")
    main(Path(sys.argv[1]))
