"""Fine-tuning, and the pretraining of the tiny model."""
