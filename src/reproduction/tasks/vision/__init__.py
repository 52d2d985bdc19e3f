"""The paper's 20 vision tasks; their data come from the Hugging Face hub or a local folder."""

from reproduction.tasks.vision.vision_catalogue import CATALOGUE
from reproduction.tasks.vision.vision_tasks import TASKS, DatasetSource, VisionTask

__all__ = ["CATALOGUE", "TASKS", "DatasetSource", "VisionTask"]
