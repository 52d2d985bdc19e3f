"""Masks of a grid of lambdas, and the consensus of masks."""
