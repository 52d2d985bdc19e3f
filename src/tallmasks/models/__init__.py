"""Model families: the one contract, and a folder for each."""
