"""Task arithmetic and weight averaging: the sum of the task vectors, with a tuned scale or 1 / T."""

from collections.abc import Sequence

from tallmasks.methods import Fixed, TensorPiece, Vector, merge, merged_row


@merge("sum", combine="sum")
def sum_merge(vectors: Sequence[Vector], piece: TensorPiece, prepared: None) -> Vector:
    """tau_MTL = the sum of the tau_t, added task by task in float32."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total


def one_share(tasks: int) -> float:
    return 1 / tasks


merged_row("task_arithmetic", order=30, title="Task arithmetic", paper="Ilharco et al. 2023", merge="sum")
merged_row(
    "weight_averaging",
    order=20,
    title="Weight averaging",
    paper="Wortsman et al. 2022",
    merge="sum",
    usage=Fixed(one_share),
)
