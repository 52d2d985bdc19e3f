"""The drawn world: the images that the default model is fine-tuned on."""

import numpy as np
import pytest

from tiny_worlds.drawn import NAMES, SPLITS, TASKS, examples, picture


@pytest.mark.parametrize("task", NAMES)
def test_every_class_occurs(task: str) -> None:
    """A model could be tested on a class that it never saw in fine-tuning."""
    classes = len(TASKS[task].classes)
    labels = examples(task, "validation", 100, seed=0)[1]
    assert set(labels.tolist()) == set(range(classes))


@pytest.mark.parametrize("task", NAMES)
def test_every_class_has_a_look_of_its_own(task: str) -> None:
    """No model could tell two classes apart, or a job would hang while it looks for a colour that fits."""
    labels = range(len(TASKS[task].classes))
    for field in (False, True):
        looks = {picture(TASKS[task], label, field, np.random.default_rng(3)).tobytes() for label in labels}
        assert len(looks) == len(labels)


def test_real_digits_fill_the_splits() -> None:
    """The only task with real images would have too few test images, or share images between splits."""
    sizes = [len(examples("mnist", split, 5000, seed=0)[1]) for split in SPLITS]
    assert sizes == [1000, 300, 497]


def test_prompts_name_the_class() -> None:
    """Two classes could share a prompt, which would give them equal rows in the zero-shot head."""
    for task in TASKS.values():
        prompts = [task.prompts(label) for label in range(len(task.classes))]
        assert len({prompt for row in prompts for prompt in row}) == len(task.templates) * len(task.classes)
