"""How the weights of the tiny models, models/*.safetensors, were made; no part of the workflow."""
