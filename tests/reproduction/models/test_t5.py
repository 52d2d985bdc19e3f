"""T5: scoring, batching, training, the two embedding tables and (IA)^3, compared with plain transformers code."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import T5Config, T5ForConditionalGeneration

from reproduction.models.families import family, load
from reproduction.models.language.text_model import TextModel
from reproduction.models.language.text_scoring import Scoring, exact_match, f1
from reproduction.models.t5 import FAMILY
from reproduction.models.t5.t5_architectures import IA3_SUFFIX, PEFT_PREFIX, Architecture
from reproduction.models.t5.t5_network import Ia3Model, T5Model
from reproduction.tasks.texts import Texts, open_texts, write_texts
from small_t5 import (
    ARCHITECTURE,
    SPEC,
    plain_network,
    save_small,
    sentences,
    small_examples,
    tokenizer_json,
)
from tallmasks.io.tensor_files import load_state, write_tensors

IA3: dict[str, Any] = {**SPEC, "adapter": "ia3"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Contains `weights.safetensors`, a small pretrained T5."""
    found = tmp_path_factory.mktemp("t5")
    save_small(found / "weights.safetensors")
    return found


@pytest.fixture
def model(folder: Path) -> T5Model:
    return load(SPEC, folder / "weights.safetensors", device="cpu")  # type: ignore[return-value]


@pytest.fixture
def adapted(folder: Path) -> Ia3Model:
    return load(IA3, folder / "weights.safetensors", device="cpu")  # type: ignore[return-value]


def some_vectors(model: Ia3Model, count: int, seed: int = 0) -> list[torch.Tensor]:
    """Random weight sets around 1, far enough from it to change the answers."""
    draw = np.random.default_rng(seed)
    return [torch.from_numpy(draw.normal(1, 0.7, model.initial().numel()).astype(np.float32)) for _ in range(count)]


def tokens_of(text: str) -> list[int]:
    """With the end of sequence."""
    tokenizer = Tokenizer.from_str(tokenizer_json())
    return [*tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.token_to_id("</s>")]


def plain_scores(state: dict[str, np.ndarray], examples: Texts) -> list[list[float]]:
    """Log-likelihood of each choice, from an unpadded forward pass of its own with transformers' loss."""
    network, found = plain_network(state), []
    with torch.no_grad():
        for example in examples:
            inputs = torch.tensor([tokens_of(example.input)])
            rows = [torch.tensor([tokens_of(answer)]) for answer in example.answers]
            found.append([-network(input_ids=inputs, labels=row).loss.item() * row.numel() for row in rows])
    return found


def evaluated(model: T5Model, examples: Texts, batch_size: int) -> int:
    with torch.inference_mode():
        return sum(int(model.count_right(batch)) for batch in model.batches(examples, batch_size))


def test_the_papers_storage_follows_from_the_name() -> None:
    """The tables would report the storage of a different model, or planning would need 3 GB of weights."""
    spec = {"family": "t5", "architecture": "google/t5-large-lm-adapt"}
    trainable, frozen = family(spec).parameter_counts(spec, {})
    assert (trainable, frozen) == (750_251_008, 32_899_072)
    assert FAMILY.parameter_counts({**spec, "adapter": "ia3"}, {}) == (282_624, 783_150_080)


@pytest.mark.parametrize("projection", ["gated-gelu", "relu"])
def test_the_tensors_are_those_of_the_network(projection: str) -> None:
    """Complete weight files would be refused, or the parameters of a different network would be counted."""
    architecture = Architecture.of({**ARCHITECTURE, "num_decoder_layers": 3, "feed_forward_proj": projection})
    with torch.device("meta"):
        network = T5ForConditionalGeneration(T5Config(**architecture.config))
    state = {name: tuple(t.shape) for name, t in network.state_dict().items() if "embed_tokens" not in name}
    assert architecture.shapes == state and list(architecture.shapes) == sorted(state)


def test_layers_are_told_from_names() -> None:
    """Plots of the masks would show all layers at the same position."""
    names = [*Architecture.of(ARCHITECTURE).shapes, *Architecture.of(ARCHITECTURE).trainable("ia3")]
    layers, kinds = (set(found) for found in zip(*map(FAMILY.layer_of, names), strict=True))
    assert layers == {"before", "0", "1", "d0", "d1", "after"} and "other" not in kinds
    assert FAMILY.layer_of("decoder.block.1.layer.1.EncDecAttention.o.weight") == ("d1", "cross-attention out")


def test_scores_are_the_plain_log_probabilities(model: T5Model, folder: Path) -> None:
    """A choice's score would depend on padding or on how many choices share an input, or would use the wrong table."""
    examples = small_examples(folder, 12, choices=4)
    plain = plain_scores(load_state(folder / "weights.safetensors"), examples)
    tokens = [[len(tokens_of(answer)) for answer in example.answers] for example in examples]
    settings = {"length_normalized": True}
    mean: Any = load({**SPEC, "scoring": settings}, folder / "weights.safetensors", device="cpu")
    with torch.inference_mode():
        np.testing.assert_allclose(model.choice_scores(model.prepare(examples))[0], plain, atol=1e-4)
        np.testing.assert_allclose(mean.choice_scores(mean.prepare(examples))[0], np.array(plain) / tokens, atol=1e-4)
    cut: Any = load({**SPEC, "scoring": {"max_input_tokens": 5}}, folder / "weights.safetensors", device="cpu")
    batch = cut.prepare(small_examples(folder, 6))
    assert batch.inputs.shape == (6, 5) and (batch.inputs[:, 4] == tokens_of("")[0]).all()


def test_batches_order_and_numbers_of_choices_do_not_change_counts(model: T5Model, folder: Path) -> None:
    """Accuracy would depend on the machine's memory or on the order of the examples."""
    mixed = [text for pair in zip(sentences(8, 2), sentences(8, 5, seed=1), strict=True) for text in pair]
    write_texts(folder / "forward", mixed, {})
    write_texts(folder / "backward", mixed[::-1], {})
    forward, backward = open_texts(folder / "forward"), open_texts(folder / "backward")
    plain = plain_scores(load_state(folder / "weights.safetensors"), forward)
    expected = sum(int(np.argmax(row)) == text.answer for row, text in zip(plain, mixed, strict=True))
    assert [evaluated(model, forward, size) for size in (3, 64)] == [expected] * 2
    assert evaluated(model, backward, 12) == expected
    same = [text._replace(answers=("cat", "cat"), answer=answer) for text in sentences(6) for answer in (0, 1)]
    write_texts(folder / "same", same, {})
    assert evaluated(model, open_texts(folder / "same"), 8) == 6


def test_a_network_that_overflows_has_no_right_answers(model: T5Model, folder: Path) -> None:
    """NaN is the largest of its row: every question with the first choice would count as right."""
    model.flat.fill_(torch.nan)
    assert evaluated(model, small_examples(folder, 12), 8) == 0


def test_answers_are_written_as_transformers_writes_them(folder: Path) -> None:
    """A generated answer would depend on the other examples in its batch."""
    model = load({**SPEC, "scoring": {"max_new_tokens": 12}}, folder / "weights.safetensors", device="cpu")
    examples = small_examples(folder, 10, free=True)
    network, tokenizer = plain_network(load_state(folder / "weights.safetensors")), Tokenizer.from_str(tokenizer_json())
    pad, end = map(tokenizer.token_to_id, ("<pad>", "</s>"))
    expected = []
    for example in examples:
        words = torch.tensor([tokens_of(example.input)])
        tokens = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": pad}
        (row,) = network.generate(words, max_new_tokens=12, do_sample=False, num_beams=1, **tokens).tolist()
        expected.append(tokenizer.decode(row))
    assert written(model, examples, 4) == expected and len(set(expected)) > 1
    plainly = TextModel.written(model, model.prepare(examples))  # type: ignore[arg-type]
    assert plainly == expected, "as a causal model writes, without T5's cache"


def written(model: Any, examples: Texts, batch_size: int) -> list[str]:
    starts = range(0, len(examples), batch_size)
    return [text for start in starts for text in model.written(model.prepare(examples[start : start + batch_size]))]


def test_free_answers_are_counted_or_scored(folder: Path) -> None:
    """Partial scores of generated answers would be truncated to whole numbers."""
    examples = small_examples(folder, 8, free=True)
    probe: Any = load({**SPEC, "scoring": {"max_new_tokens": 6}}, folder / "weights.safetensors", device="cpu")
    found = written(probe, examples, 8)
    accepted = [text._replace(answers=(f"The {found[0]}!", "x") if place < 3 else text.answers) for place, text in
                enumerate(examples)]  # fmt: skip
    write_texts(folder / "accepted", accepted, {})
    truth = open_texts(folder / "accepted")
    exact = [exact_match(text, example.answers) for text, example in zip(found, truth, strict=True)]
    partly = [f1(text, example.answers) for text, example in zip(found, truth, strict=True)]
    assert sum(exact) >= 1
    expected = {"exact_match": sum(exact), "f1": sum(partly), "mean": (sum(exact) + sum(partly)) / 2}
    for kind, total in expected.items():
        spec = {**SPEC, "scoring": {"max_new_tokens": 6, "free_answers": kind}}
        model: Any = load(spec, folder / "weights.safetensors", device="cpu")
        with torch.inference_mode():
            counts = [model.count_right(batch) for batch in model.batches(truth, 3)]
        assert {count.dtype for count in counts} == {torch.int64 if kind == "exact_match" else torch.float64}
        assert math.isclose(sum(map(float, counts)), total)
        assert model.further_scores(truth, 3) == pytest.approx({"exact_match": sum(exact), "f1": sum(partly)})
    assert probe.further_scores(small_examples(folder, 4), 3) == {}, "choices have no other score"


def test_squads_comparison() -> None:
    """The answer "The Eiffel Tower." would be marked wrong where "eiffel tower" is accepted."""
    assert exact_match("The  Eiffel-Tower.", ["eiffeltower"]) == 1 and exact_match("Tower", ["the"]) == 0
    assert f1("a red cat", ["the cat", "dog"]) == pytest.approx(2 / 3)
    assert f1("dog", ["cat"]) == 0 and f1("", [""]) == 0


def test_loss_is_transformers_mean_over_the_batchs_tokens(model: T5Model, folder: Path) -> None:
    """Short answers would weigh more than in the training that is reproduced, or evaluation would use dropout."""
    batch = model.prepare(small_examples(folder, 9))
    network = plain_network(load_state(folder / "weights.safetensors"))
    plain = network(input_ids=batch.inputs, attention_mask=batch.mask.long(), labels=batch.targets).loss
    assert model.loss(batch).item() == pytest.approx(plain.item(), abs=1e-5)
    assert batch.weight == (batch.targets != -100).sum()
    for training in (True, False):
        model.train(training)
        assert torch.equal(model.loss(batch), model.loss(batch)) != training


def test_micro_batches_are_no_larger_than_asked_for(model: T5Model, folder: Path) -> None:
    """A GPU's memory would not be enough, or long training texts would be left out."""
    batch = model.prepare(small_examples(folder, 10))
    batch = replace(batch, longest=batch.inputs.shape[1])
    pieces = batch.split(3)
    assert sum(piece.weight for piece in pieces) == batch.weight and sum(map(len, pieces)) == 10
    assert all(piece.inputs.numel() <= 3 * batch.longest for piece in pieces)
    assert len(pieces[0]) == 3 < max(map(len, pieces)), "more at once of short inputs"


@pytest.mark.parametrize("table", ["shared", "lm_head", "none"])
def test_the_two_tables_stay_two(table: str, folder: Path) -> None:
    """Answers would be scored with the input embedding table, because transformers would tie the two tables."""
    spec = {**SPEC, "architecture": {**ARCHITECTURE, "frozen_table": table}}
    state = load_state(folder / "weights.safetensors")
    model: Any = load(spec, folder / "weights.safetensors", device="cpu")
    tables = {"shared.weight", "lm_head.weight"}
    assert tables - set(model.trainable) == ({f"{table}.weight"} if table != "none" else set())
    assert sum(FAMILY.parameter_counts(spec, {})) == sum(a.size for n, a in state.items() if n != "tokenizer.json")
    assert model.flat.numel() == FAMILY.parameter_counts(spec, {})[0]
    model.flat.add_(0.05)
    examples = small_examples(folder, 4)
    with torch.inference_mode():
        found = model.choice_scores(model.prepare(examples))[0]
    arrays = model.named_arrays()
    np.testing.assert_allclose(found, plain_scores(state | arrays, examples), rtol=1e-4, atol=1e-4)
    assert all((arrays[name] == state[name] + np.float32(0.05)).all() for name in model.trainable)
    assert list(arrays) == list(FAMILY.initial_state(spec, folder / "weights.safetensors"))
    if table == "none":
        assert not np.array_equal(arrays["shared.weight"], arrays["lm_head.weight"])


def folded(model: Ia3Model, folder: Path, vectors: torch.Tensor) -> dict[str, np.ndarray]:
    """The pretrained tensors, with the (IA)^3 vectors multiplied into the matrices."""
    state = load_state(folder / "weights.safetensors")
    sizes = [math.prod(shape) for shape in model.shapes.values()]
    for (name, shape), vector in zip(model.shapes.items(), vectors.split(sizes), strict=True):
        matrix = name.removeprefix(PEFT_PREFIX).removesuffix(IA3_SUFFIX) + ".weight"
        state[matrix] = state[matrix] * vector.view(shape).numpy()  # rows of k and v, columns of wo
    return state


def test_ia3_is_its_vectors_folded_into_the_matrices(adapted: Ia3Model, folder: Path) -> None:
    """Keys, values or feed-forward activations would be rescaled at a different point than in Liu et al."""
    examples = small_examples(folder, 12)
    (vectors,) = some_vectors(adapted, 1)
    adapted.use(vectors)
    with torch.inference_mode():
        found = adapted.choice_scores(adapted.prepare(examples))
    write_tensors(folder / "folded.safetensors", folded(adapted, folder, vectors), {})
    whole: Any = load(SPEC, folder / "folded.safetensors", device="cpu")
    with torch.inference_mode():
        expected = whole.choice_scores(whole.prepare(examples))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("free", "budget"), [(False, 200), (True, 1 << 14)], ids=["many passes", "one pass, free"])
def test_one_pass_serves_many_weight_sets(
    free: bool, budget: int, adapted: Ia3Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight set would get the score of another one."""
    monkeypatch.setattr("reproduction.models.t5.t5_network.INPUT_TOKENS", budget)
    adapted.scoring = Scoring(max_new_tokens=4, free_answers="mean")
    sets, seen = [adapted.initial(), *some_vectors(adapted, 3)], set()
    for batch in adapted.batches(small_examples(folder, 12, free=free), 8):
        with torch.inference_mode():
            found = adapted.count_right_of(batch, sets)
            expected = []
            for vectors in sets:
                former = adapted.use(vectors)
                expected.append(adapted.count_right(batch))
                adapted.use(former)
        assert found.dtype == (torch.float64 if free else torch.int64)
        torch.testing.assert_close(found, torch.stack(expected))
        seen.add(len(set(found.tolist())))
    assert max(seen) > 1, "weight sets that all give the same show nothing"
