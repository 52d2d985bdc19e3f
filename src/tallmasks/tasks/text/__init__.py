"""The paper's 11 language tasks: rows of datasets from the Hugging Face hub or from local folders, put into prompts."""

from tallmasks.tasks.text.text_catalogue import CATALOGUE
from tallmasks.tasks.text.text_tasks import TASKS, TextTask

__all__ = ["CATALOGUE", "TASKS", "TextTask"]
