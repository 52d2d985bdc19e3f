"""CLIP models, built by open_clip."""

from tallmasks.models.clip.clip_family import Clip

FAMILY = Clip()
