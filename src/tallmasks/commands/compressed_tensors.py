"""The bundle of a method that compresses each tensor of each task by itself."""

from __future__ import annotations

from tallmasks.bundles.bundle_writer import BundleFacts, new_own_bundle
from tallmasks.commands.opened_models import Models, passes
from tallmasks.methods import Method, Place
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import parallel


def facts_of(method: Method, models: Models) -> BundleFacts:
    """What is written, before it is.

    Raises:
        TallmasksError: another dtype than float32 is asked for, or a checkpoint holds what cannot be compressed.
    """
    given, own = models.given, method.own_tensors
    assert own is not None
    if given.dtype not in (None, "float32"):
        raise TallmasksError(
            f"--dtype {given.dtype}: {method.name} has no merged vector that it could be of; leave it out"
        )
    return BundleFacts(
        method=method.name,
        base=models.base_from_anywhere,
        tasks=list(given.tasks),
        options=dict(given.options),
        unchanged=models.unchanged,
        include_base=given.include_base,
        codings=own.codings(models.layout, len(given.tasks)),
        entropy_coding=given.entropy_coding,
    )


def write(method: Method, models: Models) -> None:
    """Write the bundle, one tensor of one task in memory at a time."""
    given, own, facts = models.given, method.own_tensors, facts_of(method, models)
    assert own is not None
    with models.progress("compressing", passes(None)) as progress, new_own_bundle(given.output, facts) as new:
        stream = models.stream(progress)

        def work(place: Place) -> None:
            coding = facts.codings[place.name]
            for task in given.tasks:
                tensor = stream.row(task, place).reshape(coding.shape)
                new.write(task, place.name, own.content(tensor, coding, **method.chosen))

        # a tensor at a time: it may be large, and products have threads of their own
        parallel(work, stream.places(whole_tensors=True), threads=1)
