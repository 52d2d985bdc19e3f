"""TALL-mask + TA: the summed vector, masked by what each task needs of it."""

from tallmasks.masks.mask_bundles import apply_mask
from tallmasks.methods import method

method(
    name="tall_mask_task_arithmetic",
    row=100,
    title="TALL Mask + TA",
    section="compression",
    paper="Wang et al. 2024, Eq. 5",
    protocol="masked",
    storage="masked",
    merge="sum",
)(apply_mask)
