"""TALL-masks without validation data: lambda gives the masked vector the length of the task vector."""

from typing import Any

import numpy as np

from tallmasks.io.tensor_files import Layout
from tallmasks.masks.equal_lengths import lambda_without_data
from tallmasks.methods import PerTask, Vector, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import array


@method(
    name="tall_mask_ties_equal_length",
    order=111,
    title="TALL Mask + TIES, equal length",
    paper="Wang et al. 2024, Eq. 5, without data",
    usage=PerTask(),
    storage=storage_formulas.masked,
    merge="ties_sum",
    group="later",
)
def equally_long(task_vector: Vector, multi_task_vector: Vector, stored_vector: Vector, layout: Layout) -> Any:
    """TALL-masks with the lambda at which m_t * tau_MTL has the L1 norm of tau_t: the update is as large as that of
    fine-tuning; or half of the L1 norm of tau_MTL, if this is smaller. `tallmasks compress` uses it if no lambda is
    given."""
    mask_lambda = np.float32(lambda_without_data(array(task_vector), array(multi_task_vector)))
    return stored_vector * (abs(task_vector) > mask_lambda * abs(multi_task_vector - task_vector))
