"""Files of text examples."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.tasks.texts import FREE, Text, open_texts, write_texts

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
