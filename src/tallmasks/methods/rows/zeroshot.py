"""Zero-shot: the unchanged pretrained model."""

from tallmasks.methods import Fixed, Vector, method


@method(name="zeroshot", order=10, title="Zeroshot", paper="Radford et al. 2021", usage=Fixed(0.0))
def zeroshot(pretrained: Vector) -> Vector:
    """No update: alpha = 0."""
    return 0 * pretrained
