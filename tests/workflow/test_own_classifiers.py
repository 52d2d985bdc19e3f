"""docs/own_models.md, followed word by word, and the server of the page."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from project import ROOT, lay_out

NOT_RUN = ("BUNDLE=", "curl")  # the server is asked below, without a port
ASK = """
import asyncio, json, runpy

app = runpy.run_path("examples/serve.py")["app"]

async def ask(path, texts):
    sent, body = [], json.dumps(texts).encode()
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}
    async def send(message):
        sent.append(message)
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "http_version": "1.1",
             "headers": [(b"content-type", b"application/json")]}
    await app(scope, receive, send)
    return [sent[0]["status"], json.loads(sent[1]["body"])]

print(json.dumps([asyncio.run(ask(path, texts)) for path, texts in %s]))
"""


def blocks() -> Iterator[tuple[str, str]]:
    """The blocks of the page, each with its language."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs/own_models.md").read_text(), re.M | re.S)


@pytest.mark.long
def test_the_page_goes_from_classifiers_to_a_server(tmp_path: Path) -> None:
    """The job that people come with would stop at a line of the guide, or another command give another accuracy."""
    project = lay_out(tmp_path / "project")
    shutil.copytree(ROOT / "examples", project.path("examples"))
    printed, tables = dict[str, str](), list[list[pd.DataFrame]]()
    for language, block in blocks():
        if language == "python":
            printed["python"] = project.run("python", "-c", block).output
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith(NOT_RUN):
                printed[line] = project.run(*shlex.split(line)).output
            if line.startswith("snakemake"):  # the next one writes to the same folder
                tables.append(
                    [pd.read_csv(project.path(f"results/mine/all/{name}.csv")) for name in ("table", "per_task")]
                )
    assert "billing" in printed["python"]
    kept = [text for line, text in printed.items() if line.startswith("tallmasks evaluate bundle")]
    assert re.search(r"tickets: (9\d|100)\.\d+% of 500 texts", kept[0])
    checks = [
        (
            "compare",
            "texts",
            "demo/{}.csv",
            ["tickets", "questions"],
            ["ties", "consensus_ties", "tall_mask_ties:bits=3"],
        ),
        ("images", "images", "drawn/images/{}", ["shapes", "fills"], ["task_arithmetic", "tall_mask_ties:bits=3"]),
    ]
    for (table, by_task), (name, kind, file, tasks, rows) in zip(tables, checks, strict=True):
        accuracy = table.set_index("method")["accuracy"]
        assert accuracy["fine_tuned"] > 90 and accuracy["fine_tuned"] > accuracy["ties"] > accuracy["zeroshot"], kind
        commands = printed[f"tallmasks compare {name}.yaml"].splitlines()
        for row in rows:
            (pasted,) = [line for line in commands if line.endswith(f"-o {row.partition(':')[0]}")]
            model = f"{kind}-{row.partition(':')[0]}"
            project.run(*shlex.split(pasted), "-o", model)
            data = [f"--{kind}={task}={file.format(task)}" for task in tasks]
            again = project.run("tallmasks", "evaluate", model, *data, "--split", "test").output
            found = dict(re.findall(rf"(\w+): ([\d.]+)% of \d+ {kind} \(test\)", again))
            expected = by_task[(by_task["split"] == "test") & (by_task["method"] == row)].set_index("task")["accuracy"]
            assert [float(found[task]) for task in tasks] == pytest.approx(list(expected[tasks]), abs=0.006), row
    asked = [("/tickets", ["my invoice refund payment"]), ("/mails", ["mum and dinner photos"]), ("/none", ["a"])]
    answers = json.loads(project.run("python", "-c", ASK % repr(asked)).output.splitlines()[-1])
    assert answers[:2] == [[200, ["billing"]], [200, ["family"]]] and answers[2][0] == 404
