"""Two small worlds whose examples are computed from a seed, and the pretraining of the tiny models.

Their catalogues, `tiny_worlds.drawn` and `tiny_worlds.written`, are the shipped example of catalogues from outside.
"""
