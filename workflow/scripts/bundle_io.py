"""The pretrained weights as the base of a bundle."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from job import Job
from tallmasks.models.families import family
from tallmasks.store.tensor_files import open_tensors
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def open_theta0(job: Job) -> Checkpoint:
    """theta_0 in its file, which says where it is: by its path from the project's folder, and by the repository of the
    hub and the commit where it was downloaded from one."""
    path = job.input("pretrained")
    said = json.loads(open_tensors(path).metadata.get("origin", "{}"))
    origin = {"path": os.path.relpath(path)}
    if "repository" in said:
        origin |= {"repository": said["repository"], "revision": said["commit"]}
    return replace(open_checkpoint(path), origin=origin)


def trainable_of(job: Job, theta0: Checkpoint) -> tuple[str, ...]:
    """The tensors of theta_0 that fine-tuning changes."""
    return family(job.params).trainable_names(theta0.tensors)
