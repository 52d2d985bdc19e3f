"""The written world: 11 small language tasks, named after the paper's 11."""

from tiny_worlds.written.written_catalogue import CATALOGUE
from tiny_worlds.written.written_tasks import SPLITS, TASKS, WrittenTask, examples

__all__ = ["CATALOGUE", "SPLITS", "TASKS", "WrittenTask", "examples"]
