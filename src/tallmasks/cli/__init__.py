"""The commands of `tallmasks`, one module each: `add_arguments(parser)` and `run(arguments)`, the exit status."""
