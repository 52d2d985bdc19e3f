"""`merge_checkpoints` and `compress`: whole checkpoints on disk, read and written in pieces."""
