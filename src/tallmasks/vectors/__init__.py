"""Task vectors, flat and memory-mapped, and the loops over them."""
