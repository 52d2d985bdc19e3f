"""TALL-masks and consensus merging (Wang et al. 2024), as rows on merges."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tallmasks.masks.mask_grids import apply_mask
from tallmasks.methods import ALPHAS_TO_3, Between, Masked, Scaled, Vector, method
from tallmasks.methods.contract import Group, masked_vector

Threshold = Annotated[int, Between(0, 255)]


def masking_row(merge: str, *, order: int, title: str, name: str = "", group: Group = "later") -> None:
    """Registers the TALL-mask method on a merge (default name: ``tall_mask_<merge>``): m_t * tau_MTL per task."""
    fields = {"order": order, "title": title, "merge": merge, "group": group, "usage": Masked()}
    method(name=name or f"tall_mask_{merge}", paper="Wang et al. 2024, Eq. 5", **fields)(masked_vector)


def keep_agreed(multi_task_vector: Vector, agreement: NDArray[np.uint8], *, k: Threshold = 2) -> Vector:
    """m_consensus(k) * tau_MTL, where m_consensus(k) = 1{n >= k} keeps the weights that at least k tasks' masks keep:
    k = 0 keeps everything, k > T nothing."""
    return apply_mask(multi_task_vector, agreement >= k)


def consensus_row(
    merge: str,
    *,
    order: int,
    title: str,
    name: str = "",
    k: int = 2,
    group: Group = "later",
    usage: Scaled | None = None,
) -> None:
    """Registers consensus merging on a merge that has masks (default name: ``consensus_<merge>``)."""
    fields = {"order": order, "title": title, "merge": merge, "group": group, "usage": usage or Scaled()}
    name = name or f"consensus_{merge}"
    method(name=name, chosen={"k": k}, paper="Wang et al. 2024, Eq. 8 and 9", **fields)(keep_agreed)


masking_row("sum", name="tall_mask_task_arithmetic", order=100, title="TALL Mask + TA", group="paper")
masking_row("ties_sum", name="tall_mask_ties", order=110, title="TALL Mask + TIES", group="paper")
masking_row("dare", order=112, title="TALL Mask + DARE")
masking_row("breadcrumbs", order=113, title="TALL Mask + Breadcrumbs")
masking_row("tsv_m", order=114, title="TALL Mask + TSV-M")
masking_row("iso_c", order=115, title="TALL Mask + Iso-C")

consensus_row("sum", name="consensus_task_arithmetic", order=50, title="Consensus TA", group="paper")
consensus_row("sum", name="consensus_task_arithmetic_k1", order=52, title="Consensus TA (k = 1)", k=1, group="paper")
consensus_row("ties_sum", name="consensus_ties", order=60, title="Consensus TIES", group="paper")
consensus_row("ties_sum", name="consensus_ties_k1", order=62, title="Consensus TIES (k = 1)", k=1, group="paper")
consensus_row("dare", order=54, title="Consensus DARE")
consensus_row("breadcrumbs", order=56, title="Consensus Breadcrumbs", usage=Scaled(ALPHAS_TO_3))
