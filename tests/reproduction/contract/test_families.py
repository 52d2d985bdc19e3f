"""The contract of a model family: its weights in one flat buffer, and files of others imported right or refused.

`small_clip`, `small_t5` and `small_classifier` have the small models of the package, `toys` two from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import small_classifier
import small_clip
import small_t5
from reproduction.models.clip import network as clip
from reproduction.models.families import family, load
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.tasks.texts import open_texts, write_texts
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tiny_worlds.drawn import examples
from toys import llama_network, questions_toy
from toys.numbers_toy import Numbers

LLAMA = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32,
}  # fmt: skip
COUNT = 12
State = dict[str, torch.Tensor]


def images(folder: Path) -> ImageExamples:
    draw = np.random.default_rng(0)
    return ImageExamples(*examples("cars", "train", COUNT, seed=0), draw.normal(size=(8, 16)).astype(np.float32))


def numbers(folder: Path) -> Numbers:
    draw = np.random.default_rng(0)
    return Numbers(draw.normal(size=(COUNT, 8)).astype(np.float32), draw.integers(0, 4, COUNT))


def questions(folder: Path) -> Any:
    write_texts(folder / "questions", list(questions_toy.CATALOGUE.texts("colours", "train", COUNT)), {})
    return open_texts(folder / "questions")


def save_linear(path: Path) -> None:
    weight = np.random.default_rng(0).normal(0, 0.1, (4, 8)).astype(np.float32)
    write_tensors(path, {"bias": np.zeros(4, np.float32), "weight": weight}, {})


@dataclass(frozen=True)
class Small:
    """A small model: its entry in params.yaml, what writes its pretrained file, and examples."""

    spec: dict[str, Any]
    save: Callable[[Path], object]
    examples: Callable[[Path], Any]


T5 = {**small_t5.SPEC, "scoring": {"max_input_tokens": 20}}
SMALL = {
    "clip": Small(small_clip.SPEC, small_clip.save_random, images),
    "t5": Small(T5, small_t5.save_small, lambda folder: small_t5.small_examples(folder, COUNT)),
    "t5, (IA)^3": Small({**T5, "adapter": "ia3"}, small_t5.save_small, lambda f: small_t5.small_examples(f, COUNT)),
    "class names": Small(
        small_classifier.SPEC, small_classifier.save_small, lambda f: small_classifier.small_examples(COUNT)
    ),
    "trained heads": Small(
        small_classifier.TRAINED,
        lambda path: small_classifier.save_small(path, small_classifier.TRAINED),
        lambda f: small_classifier.small_examples(COUNT, heads="trained"),
    ),
    "linear": Small({"family": "toys.numbers_toy", "architecture": "linear"}, save_linear, numbers),
    "llama": Small(
        {"family": "toys.llama_toy", "architecture": LLAMA, "scoring": {"max_input_tokens": 8}},
        lambda path: llama_network.write_random(LLAMA, path),
        questions,
    ),
}


@pytest.fixture(params=SMALL)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Small, Path, Any]:
    """A small model of every family, its pretrained file, and the model loaded from it."""
    small = SMALL[request.param]
    small.save(tmp_path / "weights.safetensors")
    return small, tmp_path / "weights.safetensors", load(small.spec, tmp_path / "weights.safetensors", device="cpu")


def test_the_buffer_is_theta_0_in_name_order(small: tuple[Small, Path, Any]) -> None:
    """A task vector would be added to the wrong weights, or measured from other ones."""
    case, weights, model = small
    initial = family(case.spec).initial_state(case.spec, weights)
    assert model.trainable == tuple(initial) == tuple(sorted(initial))
    assert dict(model.shapes) == {name: array.shape for name, array in initial.items()}
    flat = np.concatenate([np.asarray(array, np.float32).ravel() for array in initial.values()])
    np.testing.assert_array_equal(model.flat.numpy(), flat)
    np.testing.assert_array_equal(model.initial().numpy(), flat)
    shapes = {name: tuple(tensor.shape) for name, tensor in load_file(weights).items()}
    assert family(case.spec).parameter_counts(case.spec, shapes)[0] == flat.size
    assert all(family(case.spec).layer_of(name) for name in model.trainable)


def test_the_network_computes_with_the_buffer_in_use(small: tuple[Small, Path, Any], tmp_path: Path) -> None:
    """A merged model would be scored with the weights of the one before."""
    case, _, model = small
    batch = model.prepare(case.examples(tmp_path))
    before = float(model.loss(batch))
    other = model.initial() + 0.1 * torch.randn(model.flat.shape, generator=torch.Generator().manual_seed(0))
    former = model.use(other)
    assert float(model.loss(batch)) != before
    np.testing.assert_array_equal(np.concatenate([a.ravel() for a in model.named_arrays().values()]), other.numpy())
    assert [tuple(parameter.shape) for parameter in model.parameters()] == list(model.shapes.values())
    model.use(former)
    assert float(model.loss(batch)) == before


def test_every_example_counts_once_however_many_share_a_batch(small: tuple[Small, Path, Any], tmp_path: Path) -> None:
    """An accuracy, or what is learned, would depend on how much memory there is."""
    case, _, model = small
    data = case.examples(tmp_path)
    with torch.no_grad():
        counts = {size: sum(int(model.count_right(b)) for b in model.batches(data, size)) for size in (1, 5, COUNT)}
    assert len(set(counts.values())) == 1
    batch = model.prepare(data)
    pieces = list(batch.split(5))
    assert len(pieces) > 1 and sum(map(len, pieces)) == len(batch) == COUNT
    whole = torch.autograd.grad(model.loss(batch), model.parameters())
    parts = sum(model.loss(piece) * (piece.weight / batch.weight) for piece in pieces)
    for one, other in zip(whole, torch.autograd.grad(parts, model.parameters()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


NAMES = {
    "clip": "visual.transformer.resblocks.0.mlp.c_fc.weight",
    "t5": "encoder.block.1.layer.1.DenseReluDense.wo.weight",
    "class names": "encoder.layer.1.output.dense.weight",
}
CONVERTING = pytest.mark.parametrize("kind", NAMES)


def tensors_of(kind: str, folder: Path) -> tuple[Path, State]:
    """A pretrained file, and the tensors of its network: CLIP's with open_clip's whole vocabulary."""
    path = folder / "weights.safetensors"
    SMALL[kind].save(path)
    if kind == "clip":
        save_file(clip.build(SMALL[kind].spec["architecture"]).state_dict(), path)
    return path, {name: tensor for name, tensor in load_file(path).items() if not name.startswith("tokenizer")}


def fine_tuned(kind: str, folder: Path) -> tuple[Path, State]:
    """A pretrained file, and a checkpoint that was trained from it: what is frozen is as it was."""
    weights, tensors = tensors_of(kind, folder)
    trained = load(SMALL[kind].spec, weights, device="cpu").trainable
    return weights, {n: t + 0.01 if n in trained else t.clone() for n, t in tensors.items()}


def with_value(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """One value is another."""
    found = tensor.clone()
    found.view(-1)[found.numel() // 2] = value
    return found


HARMLESS: dict[str, Callable[[torch.Tensor], Any]] = {
    "half": lambda t: t.half(),
    "bfloat16": lambda t: t.bfloat16(),
    "transposed in memory": lambda t: t.mT.contiguous().mT,
}
HARMFUL: dict[str, Callable[[torch.Tensor], Any]] = {
    "of another shape": lambda t: t[:1].repeat(3, 1),
    "int64": lambda t: t.to(torch.int64),
    "NaN": lambda t: with_value(t, math.nan),
    "beyond float32": lambda t: with_value(t.double(), 1e300),
    "sparse": lambda t: t.to_sparse(),  # which safetensors cannot hold
}
ODD_STATES: dict[str, Callable[[dict[Any, Any], str], object]] = {
    "missing": lambda state, name: state.pop(name),
    "twice": lambda state, name: state.update({f"model.{name}": state[name] + 1}),
    "unknown": lambda state, name: state.update({f"{name}_scale": torch.ones(1)}),
    **{
        what: lambda state, name, change=change: state.update({name: change(state[name])})
        for what, change in HARMFUL.items()
    },
}


@CONVERTING
@pytest.mark.parametrize("change", HARMLESS)
def test_what_holds_the_same_values_is_imported(kind: str, change: str, tmp_path: Path) -> None:
    """A checkpoint would be refused, or read wrong, for how it lies in memory."""
    weights, state = fine_tuned(kind, tmp_path)
    state[NAMES[kind]] = HARMLESS[change](state[NAMES[kind]])
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "cars.pt")
    found = family(SMALL[kind].spec).convert_checkpoint(SMALL[kind].spec, tmp_path / "cars.pt", weights)
    assert tuple(found) == load(SMALL[kind].spec, weights, device="cpu").trainable
    for name, values in found.items():
        expected = state[name].detach().float().numpy()
        np.testing.assert_array_equal(values, expected, name, strict=True)


@CONVERTING
@pytest.mark.parametrize("change", ODD_STATES)
def test_every_odd_tensor_is_refused_by_name(kind: str, change: str, tmp_path: Path) -> None:
    """An accuracy of 200 % would be printed, or the user would not know which of 150 tensors to look at."""
    weights, state = fine_tuned(kind, tmp_path)
    name = NAMES[kind]
    ODD_STATES[change](state, name)
    path = tmp_path / "mnist.pt"
    torch.save(state, path)
    spec = SMALL[kind].spec
    for read in (family(spec).convert_pretrained, lambda s, p: family(spec).convert_checkpoint(s, p, weights)):
        with pytest.raises(TallmasksError) as refused:
            read(spec, path)
        said = str(refused.value)
        assert "mnist.pt" in said and "\n" not in said and len(said) < 700, said
        assert name in said, said


@pytest.mark.parametrize("kind", ["clip", "t5"])
def test_a_frozen_tensor_that_moved_is_refused(kind: str, tmp_path: Path) -> None:
    """A task vector would be computed against weights that it has nothing to do with."""
    weights, state = fine_tuned(kind, tmp_path)
    name = {"clip": "logit_scale", "t5": "shared.weight"}[kind]
    torch.save({**state, name: state[name] + 0.5}, tmp_path / "there.pt")
    with pytest.raises(TallmasksError, match=f"there.pt.*'{name}'"):
        family(SMALL[kind].spec).convert_checkpoint(SMALL[kind].spec, tmp_path / "there.pt", weights)
