"""CLIP models, built by open_clip."""

from reproduction.models.clip.clip_family import Clip

FAMILY = Clip()
