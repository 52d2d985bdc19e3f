"""TALL-mask and consensus rows on merges."""

from typing import Any

import numpy as np

from tallmasks.io.tensor_files import Layout
from tallmasks.masks.equal_lengths import equal_lambda
from tallmasks.methods import ALPHAS_TO_3, PerTask, Scaled, Vector, bits, consensus_row, masking_row, method
from tallmasks.methods.rows.parts.arrays_and_tensors import array

masking_row("sum", name="tall_mask_task_arithmetic", row=100, title="TALL Mask + TA", group="paper")
masking_row("ties_sum", name="tall_mask_ties", row=110, title="TALL Mask + TIES", group="paper")
masking_row("dare", row=112, title="TALL Mask + DARE")
masking_row("breadcrumbs", row=113, title="TALL Mask + Breadcrumbs")
masking_row("tsv_m", row=114, title="TALL Mask + TSV-M")
masking_row("iso_c", row=115, title="TALL Mask + Iso-C")


@method(
    name="tall_mask_ties_equal_length",
    row=111,
    title="TALL Mask + TIES, equal length",
    paper="Wang et al. 2024, Eq. 5, without data",
    protocol=PerTask(),
    storage=bits.masked,
    merge="ties_sum",
    group="later",
)
def equally_long(task_vector: Vector, multi_task_vector: Vector, stored_vector: Vector, layout: Layout) -> Any:
    """TALL-masks whose lambda needs no data: the masked tau_MTL has the L1 norm of tau_t (see `equal_lambda`)."""
    mask_lambda = np.float32(equal_lambda(array(task_vector), array(multi_task_vector)))
    return stored_vector * (abs(task_vector) > mask_lambda * abs(multi_task_vector - task_vector))


consensus_row("sum", name="consensus_task_arithmetic", row=50, title="Consensus TA", group="paper")
consensus_row("sum", name="consensus_task_arithmetic_k1", row=52, title="Consensus TA (k = 1)", k=1, group="paper")
consensus_row("ties_sum", name="consensus_ties", row=60, title="Consensus TIES", group="paper")
consensus_row("ties_sum", name="consensus_ties_k1", row=62, title="Consensus TIES (k = 1)", k=1, group="paper")
consensus_row("dare", row=54, title="Consensus DARE")
consensus_row("breadcrumbs", row=56, title="Consensus Breadcrumbs", protocol=Scaled(ALPHAS_TO_3))
