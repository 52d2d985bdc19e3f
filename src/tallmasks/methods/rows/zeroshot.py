"""Zero-shot: the pretrained model as it is."""

from tallmasks.methods import Vector, method


@method(
    name="zeroshot",
    row=10,
    title="Zeroshot",
    section="merging",
    paper="Radford et al. 2021",
    protocol="fixed",
    storage="single",
    coefficient=lambda tasks: 0.0,
)
def zeroshot(pretrained: Vector) -> Vector:
    """Nothing: alpha = 0."""
    return 0 * pretrained
