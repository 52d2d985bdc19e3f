"""The rows of the results table. Each file registers its own merges and methods; `parts` contains shared code."""
