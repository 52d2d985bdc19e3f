"""What a model is fine-tuned and tested on: tasks, in catalogues that make their examples."""
