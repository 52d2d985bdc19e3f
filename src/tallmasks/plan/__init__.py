"""From params.yaml to what has to be made, and what of it is there."""
