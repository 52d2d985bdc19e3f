"""The storage column against the figures printed in the paper."""

import pytest

from tallmasks.methods.bits import KNOWN

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
        cost = KNOWN[kind](tasks, trainable, parameters - trainable)
        assert round(cost.gigabits, 1) == expected, kind
        assert isinstance(cost.bits, int)
        assert cost.lower_bound == (kind == "pruned")
