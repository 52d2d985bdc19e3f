"""What lies in the store: labels of artifacts, digests of code, the folders of a project."""
