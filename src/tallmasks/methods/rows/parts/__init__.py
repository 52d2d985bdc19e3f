"""Code shared by methods and merges. The digest of a file here is part of the recipes of all methods that import it."""
