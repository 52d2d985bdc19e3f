"""Checkpoints that anyone has saved: opened lazily, held against their base, read and written in pieces."""

from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo
from tallmasks.vectors.checkpoints.fitting import check_fit, unchanged
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.writing import NewCheckpoint, new_checkpoint

__all__ = ["Checkpoint", "NewCheckpoint", "TensorInfo", "check_fit", "new_checkpoint", "open_checkpoint", "unchanged"]
