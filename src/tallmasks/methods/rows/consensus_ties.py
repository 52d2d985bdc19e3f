"""Consensus TIES: the multi-task vector without the weights that fewer than k tasks need."""

from functools import partial

from tallmasks.masks.consensus import keep_agreed
from tallmasks.methods import method

for k, suffix, row in ((2, "", 60), (1, "_k1", 62)):
    method(
        name=f"consensus_ties{suffix}",
        row=row,
        title="Consensus TIES" if k == 2 else f"Consensus TIES (k = {k})",
        section="merging",
        paper="Wang et al. 2024, Eq. 8 and 9",
        protocol="scaled",
        storage="single",
        k=k,
        merge="ties_sum",
    )(partial(keep_agreed, k=k))
