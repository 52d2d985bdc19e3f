"""Every word of the written world, in the order of a tokenizer's numbers."""

from __future__ import annotations

from string import Formatter

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tiny_worlds.written import world
from tiny_worlds.written.documents import CLAUSES, GAPS
from tiny_worlds.written.questions import ANSWERS, NAMES
from tiny_worlds.written.written_tasks import TASKS

PADDING, END, UNKNOWN_WORD = "<pad>", "</s>", "<unk>"  # numbers 0, 1 and 2, as T5 has them


def lexicon() -> tuple[str, ...]:
    """All words, each once: what T5 needs first, then the world's, then the wordings', then the gaps."""
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
    """A tokenizer of whole words for the library `tokenizers`, which ends every text with the end of sequence."""
    numbers = {word: number for number, word in enumerate(lexicon())}
    tokenizer = Tokenizer(models.WordLevel(numbers, UNKNOWN_WORD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(f"$A {END}", f"$A {END} $B {END}", [(END, numbers[END])])
    tokenizer.add_special_tokens([PADDING, END, UNKNOWN_WORD, *GAPS])
    return tokenizer.to_str()
