"""Files and formats: tensors, JSON, YAML, archives, the Hugging Face hub; atomic writes."""
