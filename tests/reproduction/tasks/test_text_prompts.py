"""The prompts of the text tasks, the examples rendered from them, and files of examples."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.tasks.text import TASKS
from reproduction.tasks.text.prompt_files import Prompt, prompts_of
from reproduction.tasks.text.rendering import LONGEST, RENDERING, render
from reproduction.tasks.text.text_catalogue import example
from reproduction.tasks.texts import FREE, Text, open_texts, write_texts
from tallmasks.errors import TallmasksError

CHOICES = {"qasc": 8, "cosmos_qa": 4, "quail": 4, "social_iqa": 3}

# all characters except "\r", which Jinja replaces, and the one that protects separators; no white space at the ends
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\ue000"), max_size=300).map(str.strip)


@pytest.mark.parametrize("task", TASKS)
def test_every_prompt_of_a_row_has_its_right_answer(task: str) -> None:
    """Some prompts would train or score a model with a wrong answer."""
    known = TASKS[task]
    for prompt in TASKS[task].prompt_file.prompts:
        text = example(known, prompt, known.row)
        assert text.input and "{{" not in text.input and "|||" not in text.input
        if task == "ropes":
            assert (text.answers, text.answer) == (("Bente's",), FREE)
            continue
        assert len(set(text.answers)) == len(text.answers) == (len(known.classes) or CHOICES.get(task, 2))
        assert render(prompt, known.row).target == text.answers[text.answer] == text.target


@given(first=VALUES, second=VALUES)
def test_texts_come_through_letter_for_letter(first: str, second: str) -> None:
    """A text that contains braces, bars or a separator would be cut in two, or run as a template."""
    row = {"sentence1": f"<{first}>", "sentence2": f"<{second}>", "label": 1}
    text = example(TASKS["paws"], prompts_of("paws").prompts[3], row)
    asked = "Question: Can we rewrite Sentence 1 to Sentence 2?"
    assert text.input == f"Sentence 1: <{first}>\nSentence 2: <{second}>\n{asked}"
    assert (text.answers, text.answer) == (("No", "Yes"), 1)


def test_long_texts_are_cut_as_promptsource_cuts_them() -> None:
    """Models would read more of a long text than the published models did."""
    row = {**TASKS["wiki_qa"].row, "answer": "word " * 1000}
    found = render(prompts_of("wiki_qa").prompts[0], row).input
    kept = found.split('"')[1]
    assert kept.endswith("word...") and LONGEST - 10 < len(kept) <= LONGEST
    barely = "x" * (LONGEST + 5)  # within the tolerance of Jinja's truncate
    assert barely in render(prompts_of("wiki_qa").prompts[0], {**row, "answer": barely}).input
    choices = {**TASKS["story_cloze"].row, "sentence_quiz2": "word " * 1000}  # choices are not cut
    whole = example(TASKS["story_cloze"], prompts_of("story_cloze").prompts[0], choices)
    assert whole.target == ("word " * 1000).strip()


def test_several_accepted_answers() -> None:
    """A model that gives the second accepted answer would be marked wrong, or would be trained on two targets."""
    row = {**TASKS["ropes"].row, "answers": {"text": ["Bente's ", "Bente's", "hers"]}}
    for prompt in prompts_of("ropes").prompts:
        text = example(TASKS["ropes"], prompt, row)
        assert (text.answers, text.target) == (("Bente's", "hers"), "Bente's")


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [
        ("wsc", {"label": -1}, "label .* 2 choices"),
        ("qasc", {"answerKey": ""}, "label .* 8 choices|prompt '"),
        ("ropes", {"answers": {"text": []}}, "prompt '"),
        ("winogrande", {"answer": "01"}, "'vase'.*'shelf'"),
    ],
)
def test_a_row_without_a_right_answer_is_refused(task: str, change: dict[str, object], said: str) -> None:
    """A published test split without labels would be scored against made-up answers."""
    row = {**TASKS[task].row, **change}
    with pytest.raises(TallmasksError, match=said):
        for prompt in TASKS[task].prompt_file.prompts:
            example(TASKS[task], prompt, row)


@pytest.mark.parametrize("jinja", ["{{ a.__class__.__mro__ }}", "{{ a.append(1) }}", "{{ a['x'](1) }}", "{{ a"])
def test_a_template_can_do_nothing_but_render(jinja: str) -> None:
    """Prompts written by others could run code on the user's machine."""
    with pytest.raises(TallmasksError, match="'odd'"):
        render(Prompt("odd", None, f"{jinja} ||| x"), {"a": [1, 2]})


def test_changed_examples_have_another_number() -> None:
    """Examples rendered by older code would be reused; if this fails, increase RENDERING and add the new digest."""
    rows = [(task, prompt) for task in TASKS.values() for prompt in task.prompt_file.prompts]
    texts = [[*example(task, prompt, task.row)] for task, prompt in rows]
    found = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]
    assert {1: "75617268e03d"}[RENDERING] == found


EXAMPLES = st.lists(
    st.tuples(st.text(), st.lists(st.text(), min_size=1, max_size=4)).flatmap(
        lambda drawn: st.builds(Text, st.just(drawn[0]), st.just(tuple(drawn[1])), st.integers(FREE, len(drawn[1]) - 1))
    ),
    max_size=6,
)


@settings(max_examples=10, deadline=None)
@given(examples=EXAMPLES)
def test_a_file_gives_back_every_example(tmp_path_factory, examples: list[Text]) -> None:
    """Lost characters, or answers moved to a neighbouring example, would give wrong scores."""
    path = tmp_path_factory.mktemp("texts") / "examples.safetensors"
    assert write_texts(path, examples, {}) == len(examples)
    assert list(open_texts(path)) == examples


def test_some_examples_are_taken_in_the_order_asked_for(tmp_path: Path) -> None:
    """Training (shuffled indices) and evaluation (slices) would use the wrong examples."""
    examples = [Text(f"question {n}", ("yes", "no"), n % 2) for n in range(7)]
    write_texts(path := tmp_path / "examples.safetensors", examples, {})
    texts = open_texts(path)
    assert list(texts[2:5]) == examples[2:5]
    assert list(texts[np.array([6, 0, 3])][1:]) == [examples[0], examples[3]]
    assert examples[3].target == "no"
    assert Text("write", ("first", "second"), FREE).target == "first"
