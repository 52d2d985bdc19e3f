"""The written world: the data of the small language model."""

from collections import Counter

import numpy as np
import pytest

from reproduction.tasks.texts import FREE
from tiny_worlds.written import TASKS, examples
from tiny_worlds.written.documents import begun, problem, with_gaps
from tiny_worlds.written.lexicon import lexicon

SMALL = 60
MANY = 1000
CHOICES = {
    "qasc": 8, "quartz": 2, "paws": 2, "story_cloze": 2, "wiki_qa": 2, "winogrande": 2, "wsc": 2,
    "cosmos_qa": 4, "quail": 4, "social_iqa": 3,
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_an_example_does_not_depend_on_how_many_there_are(task: str) -> None:
    """Asking for more training examples would also change the ones that were there before."""
    assert list(examples(task, "test", 2 * SMALL, 0))[:SMALL] == list(examples(task, "test", SMALL, 0))


@pytest.mark.parametrize("task", TASKS)
def test_the_answer_is_one_of_the_choices_and_each_as_often(task: str) -> None:
    """A task could not be answered, or a model that always picks the same choice would score above chance."""
    texts = list(examples(task, "train", MANY, 0))
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


@pytest.fixture(scope="module")
def shown() -> set[str]:
    """The words of a sample of pretraining texts."""
    rng = np.random.default_rng(0)
    return {word for _ in range(1000) for write in (with_gaps, begun, problem) for word in write(rng)[0].split()}


def test_every_word_is_in_the_lexicon() -> None:
    """The model would read a task's own words as unknown, and could not tell its wordings apart."""
    known = set(lexicon())
    assert len(known) == len(lexicon()) < 400
    for task in TASKS:
        for text in examples(task, "train", SMALL, 0):
            assert {word for part in (text.input, *text.answers) for word in part.split()} <= known
    rng = np.random.default_rng(0)
    for write in (with_gaps, begun, problem):
        for _ in range(SMALL):
            assert {word for part in write(rng) for word in part.split()} <= known


def test_pretraining_never_shows_a_wording(shown: set[str]) -> None:
    """Zero-shot accuracy would be too high, because pretraining had already shown the tasks' wordings."""
    for task in TASKS.values():
        for wording in task.wordings:
            own = {word for word in wording.split() if not word.startswith("{")} - shown
            assert len(own) >= 2, wording
