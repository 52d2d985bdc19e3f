"""Third-party checkpoints: opened lazily, compared with their base, read and written in pieces."""
