"""The paper's 11 language tasks: dataset rows from the Hugging Face hub or a local folder, rendered into prompts."""

from reproduction.tasks.text.text_catalogue import CATALOGUE
from reproduction.tasks.text.text_tasks import TASKS, TextTask

__all__ = ["CATALOGUE", "TASKS", "TextTask"]
