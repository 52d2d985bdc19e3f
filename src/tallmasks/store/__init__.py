"""The store: tensor files, what artifacts say of themselves, the folders that they lie in."""
