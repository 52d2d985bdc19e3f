"""Text classifiers: they score as transformers does, train heads that come back, and refuse weights that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, ByT5Tokenizer

from reproduction.models.classifiers.heads import HEAD
from reproduction.models.families import family, load
from reproduction.models.flat_weights import count_right
from reproduction.models.text_classifier.classifier_examples import ClassifierExamples
from reproduction.models.text_classifier.classifier_network import build, positions
from reproduction.models.text_classifier.classifier_tokenizer import ClassifierTokenizer, tokenizer_of
from reproduction.tasks.task import Task
from reproduction.tasks.texts import PAIR, Text, Texts
from reproduction.training.finetuning import FinetuneConfig, finetune
from resumption import Run, ends_as_undisturbed
from small_classifier import (
    ARCHITECTURE,
    CLASSES,
    SPEC,
    TRAINED,
    save_folder,
    save_small,
    save_tokenizer,
    small_texts,
    small_tokenizer,
)
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors

BERT = {**ARCHITECTURE, "hidden_dropout_prob": 0.1}
GPT2 = {
    "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 24, "n_positions": 16,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 24,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16, "eos_token_id": 3,
}  # fmt: skip
XLNET = {
    "model_type": "xlnet", "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "vocab_size": 24, "pad_token_id": 0,
}  # fmt: skip
ROBERTA = {**ARCHITECTURE, "model_type": "roberta", "type_vocab_size": 1, "max_position_embeddings": 18}
MODERNBERT = {
    "model_type": "modernbert", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 24,
    "num_attention_heads": 2, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
    "cls_token_id": 0, "sep_token_id": 0,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 384,
    "decoder_start_token_id": 0,
}  # fmt: skip
NETWORKS = {"bert": BERT, "roberta": ROBERTA, "gpt2": GPT2, "llama": LLAMA, "modernbert": MODERNBERT, "xlnet": XLNET}
TYPES = ("input_ids", "token_type_ids", "attention_mask")
CONFIG = FinetuneConfig(
    iterations=20, batch_size=8, learning_rate=1e-2, weight_decay=0.0, epsilon=1e-8, seed=3, validate_every=5
)


def fine_tuned_folder(folder: Path, architecture: dict[str, Any], classes: int = 3, **config: Any) -> Any:
    """A fine-tuned classifier that transformers saved."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        settings = AutoConfig.for_model(**architecture, num_labels=classes, initializer_range=0.3, **config)
        network = AutoModelForSequenceClassification.from_config(settings).eval()
    network.save_pretrained(folder)
    return network


@pytest.mark.parametrize(
    ("architecture", "inputs"),
    [*((one, TYPES) for one in NETWORKS.values()), (BERT, ("input_ids", "attention_mask")), (BERT, ("input_ids",))],
    ids=[*NETWORKS, "bert without token types", "bert without attention mask"],
)
def test_trained_heads_score_as_transformers_does(
    architecture: dict[str, Any], inputs: tuple[str, ...], tmp_path: Path
) -> None:
    """Every accuracy of an imported classifier would be another than its publisher's."""
    network = fine_tuned_folder(tmp_path / "cat", architecture)
    save_tokenizer(tmp_path / "cat", inputs)
    assert_scored_as_by_transformers(tmp_path / "cat", architecture, network, [text.input for text in small_texts(9)])


def test_a_text_with_the_end_tokens_letters_is_scored_as_transformers_does(tmp_path: Path) -> None:
    """An encoder-decoder would end with a traceback at `</s>` in HTML; and ByT5 has no tokenizer.json."""
    network = fine_tuned_folder(tmp_path / "cat", T5)
    ByT5Tokenizer().save_pretrained(tmp_path / "cat")
    assert_scored_as_by_transformers(tmp_path / "cat", T5, network, ["a <s>b</s> c", "the bird", f"a{PAIR}b</s>"])


def assert_scored_as_by_transformers(folder: Path, architecture: Any, network: Any, texts: list[str]) -> None:
    spec = {**TRAINED, "architecture": architecture, "classes": CLASSES}
    write_tensors(folder / "checkpoint", family(spec).convert_checkpoint(spec, folder, folder), {})
    write_tensors(folder / "w.safetensors", family(spec).convert_pretrained(spec, folder), {})
    examples = Texts.of([Text(text, CLASSES, 0) for text in texts])
    model: Any = load({**TRAINED, "architecture": architecture}, folder / "w.safetensors", device="cpu")
    head = family(spec).trained_head(folder / "checkpoint")  # type: ignore[attr-defined]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if architecture["model_type"] == "roberta":  # one type only
        tokenizer.model_input_names.remove("token_type_ids")
    with torch.no_grad():
        found = model.logits(model.prepare(ClassifierExamples(examples, head)))
        for row, text in zip(found, texts, strict=True):
            alone = tokenizer(*text.split(PAIR), return_tensors="pt")
            torch.testing.assert_close(row, network(**alone).logits[0], rtol=1e-4, atol=1e-5)


def test_every_task_is_scored_with_its_own_head(tmp_path: Path) -> None:
    """All tasks of a table would be scored with the head of the first."""
    save_small(tmp_path / "w.safetensors")
    model: Any = load(SPEC, tmp_path / "w.safetensors", device="cpu")
    heads = [np.full((classes, 16), classes, np.float32) for classes in (2, 3)]
    for head in (*heads, *heads):
        batch = model.prepare(ClassifierExamples(small_texts(2), {"head": head}))
        np.testing.assert_array_equal(batch.head["head"], head)


def test_heads_of_class_names_score_by_cosine(tmp_path: Path) -> None:
    """The zero-shot row would be something else than what sentence encoders are used for."""
    folder = save_folder(tmp_path / "transformers")
    save_small(tmp_path / "w.safetensors")
    model: Any = load({**SPEC, "scoring": {"cosine_scale": 5}}, tmp_path / "w.safetensors", device="cpu")
    network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def embedded(text: str) -> torch.Tensor:
        output = network(**tokenizer(*text.split(PAIR), return_tensors="pt"))
        return functional.normalize(output.last_hidden_state[0].mean(dim=0), dim=0)

    task = Task("animals", CLASSES, ("the {}", "a {} it is"), "")
    head = torch.from_numpy(model.head(task)["head"])
    for label, name in enumerate(CLASSES):
        both = torch.stack([embedded(f"the {name}"), embedded(f"a {name} it is")]).mean(dim=0)
        torch.testing.assert_close(head[label], functional.normalize(both, dim=0), rtol=1e-4, atol=1e-5)
    texts = small_texts(6)
    with torch.no_grad():
        found = model.logits(model.prepare(ClassifierExamples(texts, {"head": head.numpy()})))
    expected = torch.stack([5 * embedded(text.input) @ head.T for text in texts])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", ["class_names", "trained"])
def test_a_training_learns_and_ends_the_same_if_it_is_killed(heads: str, tmp_path: Path) -> None:
    """A trained head would start anew where the body goes on, or be missing from the checkpoint."""
    spec = {**SPEC, "heads": heads, "classes": CLASSES, "seed": 3, "task": "animals"}
    save_small(tmp_path / "w.safetensors", spec)
    head = {} if heads == "trained" else {"head": np.eye(3, 16, dtype=np.float32)}
    examples, validation = (ClassifierExamples(small_texts(24, seed), head) for seed in (0, 1))

    def run(state: Any, report: Any) -> Any:
        model = load(spec, tmp_path / "w.safetensors", device="cpu")
        return finetune(model, "animals", examples, CONFIG, report, state, validation=validation)

    training: Run = run
    result = ends_as_undisturbed(training, tmp_path, 6)
    first, *_, last = (loss for _, _, loss in result.curve)
    assert last < 0.8 * first
    body = family(spec).initial_state(spec, tmp_path / "w.safetensors")
    assert result.checkpoint.keys() == body.keys() | ({HEAD} if heads == "trained" else set())
    model: Any = load({**spec, "classes": None} if heads == "trained" else spec, tmp_path / "w.safetensors")
    write_tensors(tmp_path / "checkpoint", result.checkpoint, {})
    if heads == "trained":
        head = family(spec).trained_head(tmp_path / "checkpoint")  # type: ignore[attr-defined]
    model.use(torch.from_numpy(np.concatenate([result.checkpoint[name].ravel() for name in model.trainable])))
    (batch,) = model.batches(ClassifierExamples(validation.texts, head), 24)
    assert int(model.count_right(batch)) / 24 == dict(result.validation)[result.step] > 0.5


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {  # the network, its config, what the message names
    "other classes": ({}, {"classes": 4}, "classifier"),
    "other order": ({}, {"id2label": {0: "dog", 1: "cat", 2: "bird"}}, "found the classes dog, cat"),
    "other setting": ({"num_attention_heads": 4}, {}, "num_attention_heads"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_classifier_that_does_not_fit_is_refused(what: str, tmp_path: Path) -> None:
    """Labels would be mixed up, or weights computed with in another network than they were trained in."""
    changes, config, named = REFUSED[what]
    fine_tuned_folder(tmp_path / "animals", {**ARCHITECTURE, **changes}, **config)
    spec = {**TRAINED, "classes": CLASSES}
    with pytest.raises(TallmasksError, match=named) as refused:
        family(spec).convert_checkpoint(spec, tmp_path / "animals", tmp_path)
    assert "animals" in str(refused.value) and "\n" not in str(refused.value)


def test_a_head_is_never_dropped_or_invented(tmp_path: Path) -> None:
    """A trained classifier would be scored by class names, or one without a head by random numbers."""
    fine_tuned_folder(tmp_path / "with", ARCHITECTURE)
    save_folder(tmp_path / "without")
    with pytest.raises(TallmasksError, match=r"classifier.* is not expected"):
        family(SPEC).convert_checkpoint(SPEC, tmp_path / "with", tmp_path)
    with pytest.raises(TallmasksError, match=r"classifier.* is missing"):
        family(TRAINED).convert_checkpoint({**TRAINED, "classes": CLASSES}, tmp_path / "without", tmp_path)


def test_a_language_model_is_a_body_without_its_head(tmp_path: Path) -> None:
    """The pretrained weights of most encoders on the hub have a head for masked words, and could not be used; nor those
    of bert-base-uncased, whose norms have the names that they had in TensorFlow."""
    from transformers import BertForMaskedLM

    settings = AutoConfig.for_model(**ARCHITECTURE)
    network = BertForMaskedLM(settings)
    network.save_pretrained(tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(tmp_path / "model.safetensors")
    for new, before in old.items():
        tensors = {name.replace(new, before): tensor for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    save_tokenizer(tmp_path)
    found = family(SPEC).convert_pretrained(SPEC, tmp_path)
    for name, tensor in network.bert.named_parameters():
        np.testing.assert_array_equal(found[name], tensor.detach().numpy())


def test_the_tokenizer_is_the_one_that_transformers_loads(tmp_path: Path) -> None:
    """Texts would be cut at the other end, or cased, and no accuracy be that of the model."""
    folder = save_folder(tmp_path / "bert")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "truncation_side": "left"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    stored = tokenizer_of(family(SPEC).convert_pretrained(SPEC, folder)["tokenizer"])
    (one,) = ClassifierTokenizer(stored, 0)(["the cat a dog"], [0], 4)
    assert one.input[1:3] == stored.convert_tokens_to_ids(["a", "dog"])
    code = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}
    (folder / "evil.py").write_text("raise SystemExit('it ran')")
    (folder / "tokenizer_config.json").write_text(json.dumps(code))
    family(SPEC).convert_pretrained(SPEC, folder)  # without the folder's code


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A training would end in a traceback of the library, or all tokens be unknown."""
    folder, larger = save_folder(tmp_path / "bert"), small_tokenizer()
    larger.add_tokens([f"more {n}" for n in range(20)])
    for content in (larger.to_str(), small_tokenizer().to_str()[:99]):
        (folder / "tokenizer.json").write_text(content)
        with pytest.raises(TallmasksError, match=r"bert: .*belongs? to the weights"):
            family(SPEC).convert_pretrained(SPEC, folder)


def test_another_padding_token_than_the_models_is_refused(tmp_path: Path) -> None:
    """A language model looks for the last token that is no padding: with 0, Qwen would not see `!` at the end."""
    folder = save_folder(tmp_path / "folder", LLAMA)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 5}))
    spec = {**TRAINED, "architecture": LLAMA}
    with pytest.raises(TallmasksError, match="write pad_token_id: 5 under"):
        family(spec).convert_pretrained(spec, folder)
    spec["architecture"] = {**LLAMA, "pad_token_id": 5}
    family(spec).convert_pretrained(spec, folder)


def test_the_published_names_describe_the_published_networks() -> None:
    """`architecture: gpt2` would build a network that the published weights do not fit."""
    sizes = {"all-MiniLM-L6-v2": 22_565_376, "bert-base-uncased": 108_891_648, "gpt2": 124_439_808}
    sizes |= {"distilbert-base-uncased": 66_362_880, "roberta-base": 124_055_040}
    for name, size in sizes.items():
        with torch.device("meta"):
            body = build({**SPEC, "architecture": name}).base_model
        assert sum(parameter.numel() for parameter in body.parameters()) == size, name


def test_a_new_head_is_drawn_for_each_seed_and_task(tmp_path: Path) -> None:
    """The heads of all tasks would start alike, and the spread over seeds be too small."""
    save_small(tmp_path / "w.safetensors", TRAINED)
    heads = set()
    for seed, task in ((0, "a"), (0, "a"), (0, "b"), (1, "a")):
        spec = {**TRAINED, "classes": CLASSES, "seed": seed, "task": task}
        heads.add(load(spec, tmp_path / "w.safetensors", device="cpu").named_arrays()[HEAD].tobytes())
    assert len(heads) == 3


def test_texts_can_be_as_long_as_the_positions() -> None:
    """A text would lose its last tokens, or end in an error of torch."""
    for name in ("bert", "roberta", "gpt2", "llama"):
        network = build({"architecture": NETWORKS[name], "heads": None})
        assert positions(network) == 16
        network(torch.ones(1, 16, dtype=torch.long))


def test_a_network_that_overflows_has_no_right_answers() -> None:
    """NaN is the largest of its row: every text of the first class would count as right, and alpha be chosen by it."""
    logits = torch.tensor([[torch.nan, torch.nan], [1.0, 0.0], [torch.inf, 0.0]])
    assert count_right(logits, torch.tensor([0, 0, 0])) == 2
