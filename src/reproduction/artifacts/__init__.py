"""Artifacts in the store: labels, code fingerprints, project folders."""
