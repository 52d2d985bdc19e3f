"""Files and formats: tensors, JSON, YAML, archives, the hub; whole or not at all."""
