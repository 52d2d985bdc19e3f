"""The drawn and the written world: the data of the small models."""

from collections import Counter

import numpy as np
import pytest

from reproduction.tasks.texts import FREE
from tiny_worlds import drawn, written


@pytest.mark.parametrize("task", drawn.NAMES)
def test_every_class_occurs(task: str) -> None:
    """A model could be tested on a class that it never saw in fine-tuning."""
    classes = len(drawn.TASKS[task].classes)
    labels = drawn.examples(task, "validation", 100, seed=0)[1]
    assert set(labels.tolist()) == set(range(classes))


@pytest.mark.parametrize("task", drawn.NAMES)
def test_every_class_has_a_look_of_its_own(task: str) -> None:
    """No model could tell two classes apart, or a job would hang while it looks for a colour that fits."""
    labels = range(len(drawn.TASKS[task].classes))
    for field in (False, True):
        looks = {drawn.picture(drawn.TASKS[task], label, field, np.random.default_rng(3)).tobytes() for label in labels}
        assert len(looks) == len(labels)


def test_prompts_name_the_class() -> None:
    """Two classes could share a prompt, which would give them equal rows in the zero-shot head."""
    for task in drawn.TASKS.values():
        prompts = [task.prompts(label) for label in range(len(task.classes))]
        assert len({prompt for row in prompts for prompt in row}) == len(task.templates) * len(task.classes)


SMALL = 60
MANY = 1000
CHOICES = {
    "qasc": 8, "quartz": 2, "paws": 2, "story_cloze": 2, "wiki_qa": 2, "winogrande": 2, "wsc": 2,
    "cosmos_qa": 4, "quail": 4, "social_iqa": 3,
}  # fmt: skip


@pytest.mark.parametrize("task", written.TASKS)
def test_an_example_does_not_depend_on_how_many_there_are(task: str) -> None:
    """Asking for more training examples would also change the ones that were there before."""
    assert list(written.examples(task, "test", 2 * SMALL, 0))[:SMALL] == list(written.examples(task, "test", SMALL, 0))


@pytest.mark.parametrize("task", written.TASKS)
def test_the_answer_is_one_of_the_choices_and_each_as_often(task: str) -> None:
    """A task could not be answered, or a model that always picks the same choice would score above chance."""
    texts = list(written.examples(task, "train", MANY, 0))
    if task == "ropes":
        assert all(
            (len(text.answers), text.answer) == (1, FREE) and text.target in text.input.split() for text in texts
        )
        return
    count = CHOICES[task]
    assert all(len(text.answers) == len(set(text.answers)) == count for text in texts)
    places, words = Counter(text.answer for text in texts), Counter(text.target for text in texts)
    assert set(places) == set(range(count))
    fair = MANY / count
    assert max(abs(one - fair) for one in places.values()) < 0.15 * fair + 30
    assert max(words.values()) < 1.15 * fair + 30
