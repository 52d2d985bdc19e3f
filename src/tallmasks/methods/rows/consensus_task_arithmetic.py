"""Consensus TA: the multi-task vector without the weights that fewer than k tasks need."""

from functools import partial

from tallmasks.masks.consensus import keep_agreed
from tallmasks.methods import method

for k, suffix, row in ((2, "", 50), (1, "_k1", 52)):
    method(
        name=f"consensus_task_arithmetic{suffix}",
        row=row,
        title="Consensus TA" if k == 2 else f"Consensus TA (k = {k})",
        section="merging",
        paper="Wang et al. 2024, Eq. 8 and 9",
        protocol="scaled",
        storage="single",
        k=k,
        merge="sum",
    )(partial(keep_agreed, k=k))
