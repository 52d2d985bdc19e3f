"""Four Llamas of 0.1 M parameters: a base, and three that are fine-tuned on sums, differences and products.

    python examples/llms/tiny_models.py FOLDER

Writes FOLDER/base, FOLDER/sums, FOLDER/differences and FOLDER/products as transformers does, each with the tokenizer of
single characters.  To try the steps of docs/gpu.md without a download.
"""

import argparse
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).parent / "tasks"))
from arithmetic import OPERATIONS, questions

CHARACTERS = "0123456789+-*="


def tokenizer_of_characters() -> PreTrainedTokenizerFast:
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[EOS]", *CHARACTERS])}
    tokens = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokens.pre_tokenizer = Split(Regex("."), "isolated")
    tokens.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", model_max_length=32
    )


def train(model: LlamaForCausalLM, texts: list[str], tokenizer: PreTrainedTokenizerFast, steps: int) -> float:
    """Fit all texts, each ended by [EOS], as one batch.  Returns the last loss."""
    tokens = tokenizer([text + tokenizer.eos_token for text in texts], padding=True, return_tensors="pt")
    labels = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def write(folder: Path, steps: int) -> None:
    """Train and write the four models."""
    torch.set_num_threads(1)  # more only wait for each other
    tokenizer = tokenizer_of_characters()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    asked = {name: questions(name) for name in OPERATIONS}
    right = {name: [each["question"] + each["choices"][each["answer"]] for each in asked[name]] for name in asked}
    # the base has seen the form of questions and answers, with answers that are wrong as often as not
    forms = [each["question"] + choice for name in asked for each in asked[name] for choice in each["choices"]]
    loss = train(model, forms, tokenizer, max(steps // 10, 1))
    print(f"base: loss {loss:.3f}")
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    for name, texts in right.items():
        model = LlamaForCausalLM.from_pretrained(folder / "base")
        print(f"{name}: loss {train(model, texts, tokenizer, steps):.3f}")
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200, help="of each fine-tuning")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.steps)
