"""The storage column against the figures printed in the paper."""

import pytest

from tallmasks import methods
from tallmasks.methods import bits

MODELS = {
    "ViT-B/32": (113_448_705, 87_849_216),
    "ViT-B/16": (111_792_129, 86_192_640),
    "ViT-L/14": (342_562_049, 303_966_208),
    "T5-large": (783_150_080, 783_150_080 - 32_899_072),
}
PAPER = [
    # model, tasks, single, finetuned, masked
    ("ViT-B/32", 8, 3.6, 23.3, 7.1),
    ("ViT-B/32", 14, 3.6, 40.2, 7.7),
    ("ViT-B/32", 20, 3.6, 57.0, 8.2),
    ("ViT-B/16", 8, 3.6, 22.9, 7.0),
    ("ViT-B/16", 14, 3.6, 39.4, 7.5),
    ("ViT-B/16", 20, 3.6, 56.0, 8.1),
    ("ViT-L/14", 8, 11.0, 79.1, 23.1),
    ("ViT-L/14", 14, 11.0, 137.4, 24.9),
    ("ViT-L/14", 20, 11.0, 195.8, 26.8),
    ("T5-large", 7, 25.1, 169.1, 54.3),
    ("T5-large", 8, 25.1, 193.1, 55.1),
    ("T5-large", 11, 25.1, 265.1, 57.3),
]


@pytest.mark.parametrize(("model", "tasks", "single", "finetuned", "masked"), PAPER)
def test_storage_is_the_papers(model, tasks, single, finetuned, masked):
    """The storage column could not be compared with the paper's."""
    parameters, trainable = MODELS[model]
    for kind, expected in {
        "single": single,
        "finetuned": finetuned,
        "masked": masked,
        "pruned": masked,
    }.items():
        cost = getattr(bits, kind)(tasks, trainable, parameters - trainable)
        assert round(cost.gigabits, 1) == expected, kind
        assert isinstance(cost.bits, int)
        assert cost.lower_bound == (kind == "pruned")


SHAPES = {
    "blocks.0.fc.weight": (768, 3072),
    "positions_embedding": (768, 768),
    "conv1.weight": (768, 3, 32, 32),
    "bias": (768,),
}
TRAINABLE = 768 * (3072 + 768 + 3 * 32 * 32 + 1)


@pytest.mark.parametrize(
    ("name", "bits_of_a_task"),
    [
        # 768 // 8 = 96 triplets of each matrix
        ("tsv_c", 32 * (96 * (768 + 3072 + 1) + 96 * (768 + 768 + 1) + 768 * (3 * 32 * 32 + 1))),
        ("bitdelta", 768 * 3072 + 32 + 32 * 768 * (768 + 3 * 32 * 32 + 1)),
        ("t_switch", TRAINABLE + sum(int(0.4 * n) for n in (768 * 3072, 768 * 768, 768 * 3072, 768)) + 4 * 32),
        ("t_switch:drop=0.9", TRAINABLE + sum(int(n * 0.1) for n in (768 * 3072, 768 * 768, 768 * 3072, 768)) + 4 * 32),
    ],
)
def test_later_methods_are_counted_tensor_by_tensor(name: str, bits_of_a_task: int) -> None:
    """A bit a weight would be claimed of a model whose first layer is stored whole, at 32 bits a weight."""
    method, frozen = methods.get(name), 1000
    expected = 32 * (TRAINABLE + frozen) + 8 * bits_of_a_task
    assert abs(method.stored(8, TRAINABLE, frozen, SHAPES).bits - expected) <= 8 * len(SHAPES)  # a rounding a tensor


def test_shapes_change_nothing_in_the_papers_formulas() -> None:
    """One row would cost something else in two tables."""
    for name in ("single", "finetuned", "masked", "pruned", "masked_and_scaled"):
        rows = [method for method in map(methods.get, methods.names()) if method.storage is getattr(bits, name)]
        for method in rows:
            assert method.stored(8, TRAINABLE, 1000, SHAPES) == getattr(bits, name)(8, TRAINABLE, 1000)


def test_without_shapes_there_is_the_leading_term() -> None:
    """A model that is known by its counts alone would have no bits, or those of another order."""
    each = {name: (methods.get(name).stored(8, 10**8, 0).bits / 10**8 - 32) / 8 for name in ("tsv_c", "bitdelta")}
    assert each == pytest.approx({"tsv_c": 8, "bitdelta": 1}, rel=1e-2)
