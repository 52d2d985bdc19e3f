"""Checkpoints that anyone has saved: opened lazily, held against their base, read and written in pieces."""
