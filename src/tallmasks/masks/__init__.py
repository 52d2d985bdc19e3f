"""Masks for a grid of lambdas, and their consensus."""
