"""Flat, memory-mapped task vectors, and the kernels that process them."""
