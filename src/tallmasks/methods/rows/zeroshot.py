"""Zero-shot: the pretrained model as it is."""

from tallmasks.methods import Fixed, Vector, method


@method(name="zeroshot", row=10, title="Zeroshot", paper="Radford et al. 2021", protocol=Fixed(0.0))
def zeroshot(pretrained: Vector) -> Vector:
    """Nothing: alpha = 0."""
    return 0 * pretrained
