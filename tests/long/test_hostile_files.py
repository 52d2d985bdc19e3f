"""Files of a stranger, changed at random: each command ends in a line, and no other values than torch's are read."""

import copy
import io
import json
import random
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.opening import open_checkpoint

DEEP: Any = 0
for _ in range(400):
    DEEP = [DEEP]
ODD = [
    float("inf"), float("nan"), 10**400, -1, 5, 2**63, 1.5, True, None, "", "x" * 300, "x" * 5000, "a\nerror: b\x1b[2J",
    "\ud800", "\0", ".", "../up", "/etc/passwd", "a/b/c", "a\\b", [], {}, [1], ["x"], {"a": 1}, [[1, 2], [3]], DEEP,
]  # fmt: skip


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(value: Any, draw: random.Random) -> Any:
    """A JSON value with one value or key replaced or removed."""
    value, odd = copy.deepcopy(value), draw.choice(ODD)
    path = draw.choice([*places(value)])
    if not path:
        return odd
    inner, last = value, path[-1]
    for key in path[:-1]:
        inner = inner[key]
    way = draw.choice(["replace", "replace", "rename", "remove"])
    if way == "replace":
        inner[last] = odd
    elif way == "rename" and isinstance(inner, dict):
        inner[str(odd)[:5000]] = inner.pop(last)
    else:
        del inner[last]
    return value


def made_lora(folder: Path) -> None:
    folder.mkdir()
    stem = "base_model.model.vit.encoder.layer.0.attention.attention.query.lora_"
    save_file(
        {f"{stem}A.weight": torch.ones(4, 96), f"{stem}B.weight": torch.ones(96, 4)},
        folder / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "rank_pattern": {"a.*b": 2}, "alpha_pattern": {}}
    config |= {"modules_to_save": ["x"], "use_rslora": False, "fan_in_fan_out": False, "base_model_name_or_path": "b"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def sharded(folder: Path) -> None:
    tensors = {name: torch.ones(3) for name in "abcd"}
    folder.mkdir()
    files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    for file, names in zip(files, ("ab", "cd"), strict=True):
        save_file({name: tensors[name] for name in names}, folder / file)
    weight_map = {name: files[name in "cd"] for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


MERGE = ["merge", "--base", "demo/base", "--method", "task_arithmetic", "--heads", "-o", "out", "--task"]
CASES = {
    "lora/adapter_config.json": [["info", "lora", "--base", "demo/base"], [*MERGE, "a=lora"]],
    "shards/model.safetensors.index.json": [["info", "shards"]],
    "demo/cars/tokenizer.json": [[*MERGE, "a=demo/cars"], [*MERGE, "a=demo/cars", "--tokens", "union"]],
}


@pytest.mark.parametrize("file", CASES)
def test_what_a_json_file_says_ends_in_a_line(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A downloaded model would end in a traceback, or print what its author likes."""
    monkeypatch.chdir(tmp_path)
    main(["example", "demo"])
    for name, token in (("base", "c"), ("cars", "d")):
        vocabulary = {"added_tokens": [{"id": 3, "content": "<p>"}], "model": {"vocab": {"a": 0, "b": 1, token: 2}}}
        Path("demo", name, "tokenizer.json").write_text(json.dumps(vocabulary))
    made_lora(Path("lora"))
    sharded(Path("shards"))
    path = Path(file)
    value, draw = json.loads(path.read_text()), random.Random(0)
    for _ in range(60):
        content = changed(value, draw)
        path.write_text(json.dumps(content))
        for command in CASES[file]:
            shutil.rmtree("out", ignore_errors=True)
            capsys.readouterr()
            status = main(command)
            printed = "".join(capsys.readouterr())
            errors = [line for line in printed.splitlines() if line.startswith("error: ")]
            assert len(errors) == bool(status), (content, printed)
            assert "\x1b" not in printed and max(map(len, printed.splitlines())) < 2000, content


def damaged(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(data))
        match draw.choice(["byte", "byte", "remove", "copy"]):
            case "byte":
                data[place] = draw.randrange(256)
            case "remove":
                del data[place : place + draw.randint(1, 8)]
            case "copy":
                start = draw.randrange(len(data))
                data[place:place] = data[start : start + draw.randint(1, 30)]
    return bytes(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_file_of_torch_has_torchs_values_or_is_refused(zipped: bool, tmp_path: Path) -> None:
    """Weights would be merged that torch itself does not load."""
    tensors = {"a": torch.randn(4, 3), "half": torch.randn(5).half(), "brain": torch.randn(3).bfloat16()}
    tensors |= {"turned": tensors["a"].t(), "row": tensors["a"][1], "count": torch.arange(4), "none": torch.zeros(0, 2)}
    saved = io.BytesIO()
    torch.save({"state_dict": tensors, "epoch": 3}, saved, _use_new_zipfile_serialization=zipped)
    path, draw, read = tmp_path / "model.pt", random.Random(0), 0
    for _ in range(1500):
        if zipped:
            with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
                for name in old.namelist():
                    record = old.read(name)
                    new.writestr(name, damaged(record, draw) if name.endswith("data.pkl") else record)
        else:
            path.write_bytes(damaged(saved.getvalue(), draw))
        try:
            checkpoint = open_checkpoint(path)
        except TallmasksError:
            continue
        try:
            expected = torch.load(path, weights_only=True)
        except Exception:  # torch is stricter about what is not a tensor
            continue
        expected = next((one for one in expected.values() if isinstance(one, dict)), expected)
        assert sorted(checkpoint.names) == sorted(expected)
        for name, tensor in expected.items():
            stored = np.concatenate([*checkpoint.raw_pieces(name), np.empty(0, np.uint8)])
            assert stored.tobytes() == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), name
        read += 1
    assert read > 10
