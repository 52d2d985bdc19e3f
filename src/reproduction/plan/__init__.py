"""Plans a build from params.yaml: which artifacts and results it needs, and which of them exist."""
