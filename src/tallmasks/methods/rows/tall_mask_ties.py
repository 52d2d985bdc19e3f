"""TALL-mask + TIES: the disjoint sum of TIES, masked by what each task needs of it."""

from tallmasks.masks.mask_bundles import apply_mask
from tallmasks.methods import method

method(
    name="tall_mask_ties",
    row=110,
    title="TALL Mask + TIES",
    section="compression",
    paper="Wang et al. 2024, Eq. 5",
    protocol="masked",
    storage="masked",
    merge="ties_sum",
)(apply_mask)
