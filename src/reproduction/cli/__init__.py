"""The commands of the reproduction, one module each, as in `tallmasks.cli`."""
