"""Every word of the written world, in the order of a tokenizer's numbers."""

from __future__ import annotations

import json
from string import Formatter

from tallmasks.tasks.written import world
from tallmasks.tasks.written.documents import CLAUSES, GAPS
from tallmasks.tasks.written.questions import ANSWERS, NAMES
from tallmasks.tasks.written.written_tasks import TASKS

PADDING, END, UNKNOWN_WORD = "<pad>", "</s>", "<unk>"  # numbers 0, 1 and 2, as T5 has them


def _words(text: str) -> list[str]:
    """The words of a wording outside its slots."""
    return " ".join(literal for literal, *_ in Formatter().parse(text)).split()


def lexicon() -> tuple[str, ...]:
    """All words, each once: what T5 needs first, then the world's, then the wordings', then the gaps."""
    wordings = [wording for task in TASKS.values() for wording in (task.plain, *task.wordings)]
    known = [
        *(PADDING, END, UNKNOWN_WORD, *world.DIALECTS, *world.THING_WORDS, *world.DEED_WORDS),
        *(value for values in world.VALUES.values() for value in values),
        *(*world.FOODS, *ANSWERS, *NAMES),
        *(word for text in (*CLAUSES.values(), *wordings) for word in _words(text)),
        *GAPS,
    ]
    return tuple(dict.fromkeys(known))


def tokenizer_json() -> str:
    """A tokenizer of whole words for the library `tokenizers`, which ends every text with the end of sequence."""
    end = {"SpecialToken": {"id": END, "type_id": 0}}
    numbers = {word: number for number, word in enumerate(lexicon())}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": numbers[word], "content": word, **special} for word in (PADDING, END, UNKNOWN_WORD, *GAPS)
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
                "special_tokens": {END: {"id": END, "ids": [numbers[END]], "tokens": [END]}},
            },
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": numbers, "unk_token": UNKNOWN_WORD},
        }
    )
