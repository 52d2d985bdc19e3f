"""The evaluation engine against the bare forward pass of a T5, in one run, at the same precision.

    python benchmarks/evaluation_text.py [--width 768] [--layers 2] [--free]

Random weights, random texts.  The engine reads texts from a file, makes tokens and batches of them, and counts right
answers of several weight sets that it builds from an update; the bare pass is encoder, decoder and output layer alone,
on the same batches, made before.  With --free answers are written, token by token, where they are else chosen.  Both
take turns.  Prints tokens (of inputs and answers, padding left out, times weight sets) per second of either, their
ratio in every round and the median ratio; exits with status 1 where that is under the --least share.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from measured import median_ratio
from torch.nn import functional

from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.models import cuda
from reproduction.models.language.text_batches import TextBatch
from reproduction.models.language.text_scoring import Scoring
from reproduction.models.language.text_tokenizer import TextTokenizer
from reproduction.models.t5.t5_architectures import Architecture
from reproduction.models.t5.t5_network import T5Model, network_of
from reproduction.tasks.texts import FREE, Text, open_texts, write_texts

sys.path.append(str(Path(__file__).parents[1]))

from tiny_worlds.written.lexicon import lexicon, tokenizer_json

VOCABULARY = 32_128  # T5's, of whose words the written world's are used
CHOICES = 3
ANSWER_WORDS = 4


def texts(count: int, longest: int, free: bool) -> Iterator[Text]:
    """Questions of different lengths with answers of different lengths."""
    draw, words = np.random.default_rng(0), lexicon()[3:]
    for _ in range(count):
        read = " ".join(draw.choice(words, draw.integers(longest // 2, longest)))
        answers = tuple(" ".join(draw.choice(words, draw.integers(1, ANSWER_WORDS))) for _ in range(CHOICES))
        yield Text(read, answers, FREE if free else int(draw.integers(CHOICES)))


def random_model(architecture: Architecture, scoring: Scoring, device: torch.device) -> T5Model:
    """A network of the size of a trained one, whose layers keep their scale."""
    torch.manual_seed(0)
    tensors = {
        name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * shape[-1] ** -0.5
        for name, shape in architecture.shapes.items()
    }
    network = network_of(architecture, tensors).to(device)
    named = dict(network.named_parameters())
    tokenizer = TextTokenizer(tokenizer_json(), Path("lexicon"), architecture.vocab_size)
    return T5Model(network, {name: named[name] for name in architecture.trainable()}, tokenizer, scoring)


def plain_pass(model: T5Model, batch: TextBatch) -> None:
    """Encoder, decoder and output layer on tensors that are there."""
    network = model._network
    mask = batch.mask
    states = network.encoder(input_ids=batch.inputs, attention_mask=mask).last_hidden_state
    labels = batch.choices.clamp(min=0).flatten(0, 1)
    hidden = network.decoder(
        input_ids=labels, encoder_hidden_states=states, encoder_attention_mask=mask[:, None, None]
    ).last_hidden_state
    functional.linear(hidden, network.lm_head.weight)


def plain_writing(model: T5Model, batch: TextBatch, steps: int) -> None:
    """The same for answers that are written: one step of the decoder for each token."""
    network, mask = model._network, batch.mask
    states = network.encoder(input_ids=batch.inputs, attention_mask=mask).last_hidden_state
    token, cache = torch.zeros((len(states), 1), dtype=torch.int64, device=states.device), None
    for _ in range(steps):
        output = network.decoder(
            input_ids=token,
            encoder_hidden_states=states,
            encoder_attention_mask=mask[:, None, None],
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        token = functional.linear(output.last_hidden_state, network.lm_head.weight).argmax(dim=-1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=2, help="of the encoder, and of the decoder")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--examples", type=int, default=96)
    parser.add_argument("--input-tokens", type=int, default=96, help="of the longest input; the shortest has half")
    parser.add_argument("--new-tokens", type=int, default=8, help="of an answer that is written")
    parser.add_argument("--free", action="store_true", help="answers are written, not chosen")
    parser.add_argument("--coefficients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--least", type=float, default=0.85)
    said = parser.parse_args()
    torch.set_num_threads(said.threads)
    device = cuda.choose(None)
    architecture = Architecture.of(
        {
            "vocab_size": VOCABULARY,
            "d_model": said.width,
            "d_kv": 64,
            "d_ff": said.width * 11 // 4,
            "num_heads": said.width // 64,
            "num_layers": said.layers,
        }
    )
    model = random_model(architecture, Scoring(max_new_tokens=said.new_tokens), device)
    coefficients = [k / said.coefficients for k in range(said.coefficients)]
    update = 1e-3 * np.random.default_rng(0).standard_normal(model.flat.numel(), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.safetensors")
        write_texts(path, texts(said.examples, said.input_tokens, said.free), {})
        examples = open_texts(path)
        evaluator = Evaluator(model, [TaskData("random", {"test": examples})], said.batch_size)
        ready = list(model.batches(examples, said.batch_size))
        tokens = sum(int(batch.mask.sum()) for batch in ready)
        written = sum(len(answer) for batch in ready for example in batch.examples for answer in example.answers)
        tokens += said.new_tokens * said.examples if said.free else written

        def engine() -> int:
            evaluator.scaled("test", update, coefficients)
            return tokens * len(coefficients)

        def bare() -> int:
            with torch.inference_mode():
                for _ in coefficients:
                    for batch in ready:
                        plain_writing(model, batch, said.new_tokens) if said.free else plain_pass(model, batch)
            return tokens * len(coefficients)

        print(
            f"T5 of width {said.width}, {said.layers} + {said.layers} layers, {VOCABULARY} words, {device}, "
            f"{torch.get_num_threads()} threads, {said.examples} {'free ' if said.free else ''}questions in batches of "
            f"{said.batch_size}, {len(coefficients)} weight sets",
            flush=True,
        )
        median = median_ratio(engine, bare, device, said.rounds, "tokens")
    print(f"median ratio {median:.3f}, at least {said.least} wanted")
    return int(median < said.least)


if __name__ == "__main__":
    sys.exit(main())
