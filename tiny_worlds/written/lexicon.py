"""The vocabulary and the tokenizer of the written world."""

from __future__ import annotations

from string import Formatter

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tiny_worlds.written import world
from tiny_worlds.written.documents import CLAUSES, GAPS
from tiny_worlds.written.questions import ANSWERS, NAMES
from tiny_worlds.written.written_tasks import TASKS

PADDING, END, UNKNOWN_WORD = "<pad>", "</s>", "<unk>"  # ids 0, 1 and 2, as in T5


def lexicon() -> tuple[str, ...]:
    """All words in the order of their ids: T5's special tokens, words of the world, of the wordings, then gaps."""
    wordings = [wording for task in TASKS.values() for wording in (task.plain, *task.wordings)]
    outside_slots = (text for one in (*CLAUSES.values(), *wordings) for text, *_ in Formatter().parse(one))
    known = [
        *(PADDING, END, UNKNOWN_WORD, *world.DIALECTS, *world.THING_WORDS, *world.DEED_WORDS),
        *(value for values in world.VALUES.values() for value in values),
        *(*world.FOODS, *ANSWERS, *NAMES),
        *(word for text in outside_slots for word in text.split()),
        *GAPS,
    ]
    return tuple(dict.fromkeys(known))


def tokenizer_json() -> str:
    """The JSON of a whole-word tokenizer that appends the end of sequence."""
    numbers = {word: number for number, word in enumerate(lexicon())}
    tokenizer = Tokenizer(models.WordLevel(numbers, UNKNOWN_WORD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(f"$A {END}", f"$A {END} $B {END}", [(END, numbers[END])])
    tokenizer.add_special_tokens([PADDING, END, UNKNOWN_WORD, *GAPS])
    return tokenizer.to_str()
