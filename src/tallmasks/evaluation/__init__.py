"""Counting right answers, choosing on validation data, and the records of both."""
