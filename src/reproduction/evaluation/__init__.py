"""Evaluation: counts correct answers, chooses values on validation data, and stores the results."""
