"""Model families: their common interface, and one folder per family."""
