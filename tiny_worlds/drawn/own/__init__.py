"""Drawn tasks beyond the paper's twenty: each file registers its own, as the README shows."""
