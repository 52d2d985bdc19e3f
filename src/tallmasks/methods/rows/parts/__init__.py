"""What several methods and merges have in common and nothing else uses.

The digest of a file here is in the recipes of those that import it, beside that of their own file.
"""
