"""The real texts: read from packages in the layout of the published ones, and from those that `make real` installed."""

import gzip
import json
from pathlib import Path

import pytest

from real_texts import real_catalogue, real_tasks
from real_texts.real_catalogue import CATALOGUE, split_of
from real_texts.real_tasks import TASKS
from reproduction.tasks.catalogues import ExamplesFile
from tallmasks.errors import TallmasksError

COUNTS = {"test": 6, "validation": 4, "train": 1000}
MODEL = {"tasks": "real_texts", "examples": {"seed": 0, **COUNTS}}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few invented texts in the files of the packages."""
    monkeypatch.setattr(real_catalogue, "PACKAGES", tmp_path)

    def write(name: str, content: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())

    for number, folder in enumerate(("business", "sports", "tech")):
        write(f"{real_tasks.NEWS}/{folder}/001.txt", f"Headline {number}\n\nText of  {folder}.")
    codes = {"A00": [False, "Cholera"], "D50": [True, "Anaemia"], "S52": [True, "Fracture of ulna"]}
    write(real_tasks.ICD, json.dumps(codes | {"H60": [True, "Otitis"]}))
    titles = {
        "nurse": {"#": {"291141": 90, "111021": 10}, "registered": {"#": {"291141": 50}}},
        "rare": {"#": {"291141": 3}}, "captain": {"#": {"551011": 500}}, "unclear": {"#": {"291141": 30, "111021": 30}},
    }  # fmt: skip
    write(real_tasks.JOBS, json.dumps(titles))
    verses = '"1","1","1","1","In the beginning{A note} God"\n"2","66","1","1","The end"\n'
    write(real_tasks.BIBLE, f"field,field,field,field,field\n{verses}")
    write(real_tasks.BIBLE_BOOKS, 'f,f,f,f\n"1","Genesis","OT","1"\n"66","Revelation","NT","8"\n')
    glosses = ["POS,ID,PosScore,NegScore,SynsetTerms,Gloss", "n,1,0.75,0,joy#1,great happiness"]
    glosses += ["v,2,0,0.625,harm#1,to hurt"]
    glosses += ["a,3,0.25,0,fair#1,rather good", "n,4,0,0,twice#1,said of both", "v,5,0,0,twice#2,said of both"]
    write(real_tasks.GLOSSES, "\n".join(glosses))
    concepts = ["CONCEPT,I,T,A,S,PRIMARY EMOTION,SECONDARY EMOTION", "sad_day,0,0,0,0,#grief,", "joy,0,0,0,0,#joy,"]
    write(real_tasks.CONCEPTS, "\n".join([*concepts, "good_day,0,0,0,0,#ecstasy,"]))
    return tmp_path


def read(task: str) -> dict[str, str]:
    found = split_of(TASKS[task], "train", {"train": 100}, 0)
    return {text.input: text.answers[text.answer] for text in found}


def test_each_package_is_read_as_it_is(packages: Path) -> None:
    """Labels would belong to other texts, or texts with two labels be right and wrong at once."""
    assert read("news")["Headline 2 Text of tech."] == "technology"
    assert read("diagnoses") == {
        "Cholera": "infections and parasites", "Anaemia": "blood and the immune system",
        "Fracture of ulna": "injuries and poisoning", "Otitis": "the ear",
    }  # fmt: skip
    assert read("injuries") == {"Fracture of ulna": "the elbow and forearm"}
    healthcare = real_tasks.OCCUPATIONS["29"]
    assert read("jobs") == {"nurse": healthcare, "registered nurse": healthcare}
    assert read("verses") == {"In the beginning God": "the law of Moses", "The end": "the apocalypse"}
    assert read("glosses") == {"great happiness": "a noun", "to hurt": "a verb", "rather good": "an adjective"}
    assert list(read("sentiment")) == ["to hurt", "great happiness"]
    assert read("emotions") == {"sad day": "sadness", "good day": "joy"}


def test_missing_and_changed_packages_are_named(packages: Path) -> None:
    """A table would be of other texts than the published one, or a traceback not say how to get them."""
    recipe = CATALOGUE.recipe({}, MODEL, "jobs", "test", Path())
    out = ExamplesFile(packages / "out", {}, say=lambda line: None)
    with pytest.raises(TallmasksError, match=r"trie_job_titles\.json: found sha256 .*make real"):
        CATALOGUE.write(recipe.params, {}, out)
    (packages / real_tasks.JOBS).unlink()
    assert "make real" in str(CATALOGUE.missing(recipe.params))
