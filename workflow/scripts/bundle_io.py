"""theta_0 as the base of a bundle."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from job import Job
from tallmasks.models.families import family
from tallmasks.results.stored_files import StartingPoint
from tallmasks.store.tensor_files import write_tensors
from tallmasks.vectors.checkpoints.opening import open_checkpoint


@contextmanager
def starting_point(job: Job) -> Iterator[StartingPoint]:
    """What the task vectors of a job's model are measured from.

    That is the pretrained file, which says where it is: by its path from the project's folder.  If it was downloaded,
    also by the hub's repository and commit.  The tensors of an adapter are not in it; they get a small file of their
    own, which a bundle includes.
    """
    path = job.input("pretrained")
    initial = family(job.params).initial_state(job.params, path)
    pretrained = open_checkpoint(path)
    if initial.keys() <= pretrained.tensors.keys():
        recorded = json.loads(pretrained.metadata[path.name].get("origin", "{}"))
        origin = {"path": os.path.relpath(path)}
        if "repository" in recorded:
            origin |= {"repository": recorded["repository"], "revision": recorded["commit"]}
        yield StartingPoint(replace(pretrained, origin=origin), tuple(initial))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "initial.safetensors")
        write_tensors(file, {name: np.asarray(values) for name, values in initial.items()}, {})
        base = replace(open_checkpoint(file), origin={})
        yield StartingPoint(base, tuple(initial), included=True, beside=path.stat().st_size)
