"""CLIP, by open_clip."""
