"""Two synthetic sets of tasks, and the pretraining of the tiny models on them.

The catalogues `tiny_worlds.drawn` and `tiny_worlds.written` are also examples of catalogues outside `src/`.
"""
