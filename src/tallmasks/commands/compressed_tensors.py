"""The bundle of a method that compresses each tensor of each task by itself."""

from __future__ import annotations

from tallmasks.bundles.bundle_writer import BundleFacts, bytes_of_bundle, new_own_bundle
from tallmasks.commands.opened_models import Models, passes
from tallmasks.methods import Method, Place
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import parallel


def compress(method: Method, models: Models, dry_run: bool) -> int:
    """Write the bundle, one tensor of one task in memory at a time, and print where it is and how large.

    Raises:
        TallmasksError: another dtype than float32 is asked for, or a checkpoint holds what cannot be compressed.
    """
    given, own = models.given, method.own_tensors
    assert own is not None
    if given.dtype not in (None, "float32"):
        raise TallmasksError(
            f"--dtype {given.dtype}: {method.name} has no merged vector that it could be of; leave it out"
        )
    codings = own.codings(models.layout, len(given.tasks))
    facts = BundleFacts(
        method=method.name,
        base=models.base_from_anywhere,
        tasks=list(given.tasks),
        options=dict(given.options),
        unchanged=models.unchanged,
        include_base=given.include_base,
        codings=codings,
        entropy_coding=given.entropy_coding,
    )
    if dry_run:
        how = f"compress by {method.title}{', before entropy coding' if given.entropy_coding else ''}"
        models.describe(how, sum(bytes_of_bundle(facts).values()))
        return 0
    with models.progress("compressing", passes(None)) as progress, new_own_bundle(given.output, facts) as new:
        stream = models.stream(progress)

        def work(place: Place) -> None:
            coding = codings[place.name]
            for task in given.tasks:
                tensor = stream.row(task, place).reshape(coding.shape)
                new.write(task, place.name, own.content(tensor, coding, **method.chosen))

        # a tensor at a time: it may be large, and products have threads of their own
        parallel(work, stream.places(whole_tensors=True), threads=1)
    models.say_written(method.title)
    return 0
