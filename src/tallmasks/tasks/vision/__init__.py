"""The paper's 20 vision tasks, with their data from the Hugging Face hub or from local folders."""

from tallmasks.tasks.vision.vision_tasks import SPLITS, TASKS, Source, VisionTask

__all__ = ["SPLITS", "TASKS", "Source", "VisionTask"]
