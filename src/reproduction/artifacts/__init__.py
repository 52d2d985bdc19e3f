"""Artifacts in the store: labels and project folders."""
