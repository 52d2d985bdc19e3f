"""The rows of the results table: each file here registers its own merges and methods; `parts` is shared code."""
