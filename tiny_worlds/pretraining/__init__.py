"""The code that made the tiny models' weights, models/*.safetensors; the workflow does not run it."""
