"""The paper's 20 vision tasks, with their data from the Hugging Face hub or from local folders."""

from tallmasks.tasks.vision.vision_catalogue import CATALOGUE
from tallmasks.tasks.vision.vision_tasks import TASKS, DatasetSource, VisionTask

__all__ = ["CATALOGUE", "TASKS", "DatasetSource", "VisionTask"]
