"""The stored bits of each method, tensor by tensor and by the paper's formulas."""

import pytest

from tallmasks import methods

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
        ("tall_mask_ties", TRAINABLE + 32 * TRAINABLE // 8),  # tau_MTL is that of all eight tasks
        ("emr", TRAINABLE + 32 * TRAINABLE // 8 + 32),
        ("tall_mask_ties:bits=3", TRAINABLE * (3 + 8) // 8),
        ("tvq", 2 * (3 * 768 * 3072 + 2 * 32) + 32 * 768 * (768 + 1)),
        ("dare_per_task", 4 * 3 * TRAINABLE // 100),
        ("bitdelta", 768 * 3072 + 32 + 32 * 768 * (768 + 3 * 32 * 32 + 1)),
        ("t_switch", TRAINABLE + sum(int(0.4 * n) for n in (768 * 3072, 768 * 768, 768 * 3072, 768)) + 4 * 32),
        ("t_switch:drop=0.9", TRAINABLE + sum(int(n * 0.1) for n in (768 * 3072, 768 * 768, 768 * 3072, 768)) + 4 * 32),
    ],
)
def test_storage_is_counted_tensor_by_tensor(name: str, bits_of_a_task: int) -> None:
    """The table would leave out tensors that a method stores with 32 bits per weight."""
    method, frozen = methods.get(name), 1000
    expected = 32 * (TRAINABLE + frozen) + 8 * bits_of_a_task
    assert abs(method.stored_size(8, TRAINABLE, frozen, SHAPES).bits - expected) <= 8 * len(SHAPES)  # rounding


def test_without_shapes_storage_is_the_leading_term() -> None:
    """A model of which only parameter counts are known would have no storage, or a wrong order of magnitude."""
    each = {name: (methods.get(name).stored_size(8, 10**8, 0).bits / 10**8 - 32) / 8 for name in ("tsv_c", "bitdelta")}
    assert each == pytest.approx({"tsv_c": 8, "bitdelta": 1}, rel=1e-2)
