"""The drawn world: 20 small vision tasks, named after the paper's 20."""

from tiny_worlds.drawn.drawn_catalogue import CATALOGUE
from tiny_worlds.drawn.drawn_tasks import NAMES, SPLITS, TASKS, DrawnTask, examples, picture

__all__ = ["CATALOGUE", "NAMES", "SPLITS", "TASKS", "DrawnTask", "examples", "picture"]
