"""How many weights differ from mergekit's, where the method is the same: its own example files, and some more.

    make .venv/mergekit/installed
    python benchmarks/mergekit_values.py [--peer .venv/mergekit] [--out docs/benchmarks]
    python benchmarks/mergekit_values.py --values tests/helpers/mergekit_values.safetensors

Both merge the same three small Llamas, made here from a seed, with the same files.  mergekit_values.csv has a row for
each file and dtype: how many weights there are, how many differ, and the largest difference beside the largest change
of a weight.  Models are float32, and float16 for mergekit's own files as they are shipped, which say `dtype: float16`.
`--values` stores models and mergekit's results in float32 instead, for a test.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("base", "one", "two", "three")
SHAPE = {"vocab_size": 8, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 3, "num_attention_heads": 2,
         "num_key_value_heads": 1, "tie_word_embeddings": True}  # fmt: skip
COLUMNS = ("file", "dtype", "mergekit_computes_in", "weights", "differ", "largest_difference", "largest_change")
EQUAL_KEPT = "float32, equal magnitudes kept"
"""mergekit with one rule of this package: its TIES keeps every weight that ties with the last one kept."""
MINUS = f"{EQUAL_KEPT}, minus where tasks cancel"
"""And with another: where tasks cancel exactly, the sign is the model's majority, which is minus for these models."""
ON_BASE = "base_model: base\n"
TWO = (
    "models:\n  - {model: one, parameters: {weight: 0.7, density: 0.5}}\n  - {model: two, parameters: {weight: 0.4}}\n"
)
BOTH = "models: [{model: one}, {model: two}]\n"
ALL = "models: [{model: one}, {model: two}, {model: three}]\n"
FILES = {
    # mergekit's own examples, with these models in the place of theirs
    "examples/linear.yml": """\
models:
  - {model: one, parameters: {weight: 1.0}}
  - {model: two, parameters: {weight: 0.3}}
  - {model: three, parameters: {weight: 0.5}}
merge_method: linear
""",
    "examples/bio-merge.yml": """\
models:
  - {model: one, parameters: {density: 0.5, weight: 0.5}}
  - {model: two, parameters: {density: 0.5, weight: 0.5}}
merge_method: ties
base_model: base
parameters: {normalize: false, int8_mask: true}
""",
    "examples/ties.yml": """\
models:
  - {model: one, parameters: {density: [1, 0.7, 0.1], weight: 1.0}}
  - {model: two, parameters: {density: 0.5, weight: [0, 0.3, 0.7, 1]}}
  - model: three
    parameters:
      density: 0.33
      weight: [{filter: mlp, value: 0.5}, {value: 0}]
merge_method: ties
base_model: base
parameters: {normalize: true, int8_mask: true}
""",
    "examples/gradient-slerp.yml": """\
slices:
  - sources:
      - {model: one, layer_range: [0, 3]}
      - {model: two, layer_range: [0, 3]}
merge_method: slerp
base_model: one
parameters:
  t:
    - {filter: self_attn, value: [0, 0.5, 0.3, 0.7, 1]}
    - {filter: mlp, value: [1, 0.5, 0.7, 0.3, 0]}
    - value: 0.5
""",
    # and more
    "task arithmetic": f"{TWO}{ON_BASE}merge_method: task_arithmetic\nparameters: {{lambda: 0.8}}\n",
    "task arithmetic, mean": f"{TWO}{ON_BASE}merge_method: task_arithmetic\nparameters: {{normalize: true}}\n",
    "ties, one density": f"{TWO}{ON_BASE}merge_method: ties\n",
    "model stock": f"{ALL}{ON_BASE}merge_method: model_stock\n",
    "model stock by row": f"{BOTH}{ON_BASE}merge_method: model_stock\nparameters: {{filter_wise: true}}\n",
    "sce": f"{ALL}{ON_BASE}merge_method: sce\nparameters: {{select_topk: 0.6}}\n",
    "sce, all weights": f"{BOTH}{ON_BASE}merge_method: sce\n",
    "della, nothing dropped": f"{TWO.replace(', density: 0.5', '')}{ON_BASE}merge_method: della\n",
    "slerp": f"{BOTH}base_model: two\nmerge_method: slerp\nparameters: {{t: 0.3}}\n",
    "linear with the base": f"{TWO}  - {{model: base, parameters: {{weight: 0.2}}}}\n{ON_BASE}merge_method: linear\n",
}


def make_models(folder: Path, width: int) -> None:
    """The base and three models of it, in float32, and in the folder `float16` the same in float16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    wider = {key: width * SHAPE[key] for key in ("vocab_size", "hidden_size", "intermediate_size")}
    model = LlamaForCausalLM(LlamaConfig(**SHAPE | wider)).float()
    for name in MODELS:
        if name != "base":
            model = LlamaForCausalLM.from_pretrained(folder / "base")
            for parameter in model.parameters():
                parameter.data += 0.01 * torch.randn(parameter.shape) * (torch.rand(parameter.shape) < 0.7)
        model.save_pretrained(folder / name)
    for name in MODELS:
        LlamaForCausalLM.from_pretrained(folder / name).half().save_pretrained(folder / "float16" / name)


def runs(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    """What to compare of a file: the models' folder, what it says of dtypes, and how mergekit computes."""
    for dtype in ("float32", "bfloat16"):
        yield ".", f"dtype: float32\nout_dtype: {dtype}\n", "float32"
    if name.startswith("examples/"):
        yield "float16", "dtype: float16\n", "float16"
        for computed in ("float32", EQUAL_KEPT, MINUS) if "merge_method: ties" in text else ("float32",):
            yield "float16", "dtype: float32\nout_dtype: float16\n", computed


def weights(folder: Path) -> dict[str, np.ndarray]:
    """All weights of a folder's model as float32, by name."""
    from safetensors.torch import load_file

    return {name: tensor.float().numpy() for name, tensor in sorted(load_file(folder / "model.safetensors").items())}


def flat(folder: Path) -> np.ndarray:
    """All weights in one run."""
    return np.concatenate([values.ravel() for values in weights(folder).values()])


def call(command: list[str | Path], folder: Path, **environment: str) -> None:
    words = list(map(str, command))
    done = subprocess.run(words, cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def theirs(config: str, out: str, computed: str) -> None:
    """In mergekit's environment: merge."""
    import yaml
    from mergekit import sparsify
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.merge_methods import generalized_task_arithmetic
    from mergekit.options import MergeOptions

    def equal_kept(tensor: Any, density: float, rescale_norm: None = None) -> Any:
        smallest = tensor.abs().flatten().sort(descending=True).values[max(1, int(density * tensor.numel())) - 1]
        return tensor * (tensor.abs() >= smallest)

    def minus(deltas: Any, **_: Any) -> Any:
        return deltas.sign() == 2 * (deltas.sum(dim=0) > 0) - 1

    if computed in (EQUAL_KEPT, MINUS):
        sparsify.magnitude = equal_kept
    if computed == MINUS:
        generalized_task_arithmetic.get_mask = minus
    content = MergeConfiguration.model_validate(yaml.safe_load(Path(config).read_text()))
    run_merge(content, out_path=out, options=MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, default=Path(".venv/mergekit"), help="where mergekit is installed")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--width", type=int, default=16, help="times the width of the models of the test")
    parser.add_argument("--values", type=Path, help="a file for the models and mergekit's results; its width is 1")
    parser.add_argument("--only", nargs="*", help="names of files, as the table has them; all")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return theirs(*arguments.worker)
    kept: dict[str, np.ndarray] = {}
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make_models(folder, 1 if arguments.values else arguments.width)
        kept |= {name: flat(folder / name) for name in MODELS}
        shapes = {name: values.shape for name, values in weights(folder / "base").items()}
        for name, text in FILES.items():
            if arguments.only and name not in arguments.only:
                continue
            for place, dtypes, computed in runs(name, text) if not arguments.values else [next(runs(name, text))]:
                config = folder / place / f"{len(rows)}.yml"
                config.write_text(text + dtypes)
                results = [folder / f"{who}-{config.stem}" for who in ("mergekit", "tallmasks")]
                worker = [sys.executable, Path(__file__).resolve(), "--worker", config, results[0], computed]
                call(worker, config.parent, PYTHONPATH=str(arguments.peer.resolve()))
                call(
                    [sys.executable, "-m", "tallmasks.commands.main", "merge", config, "-o", results[1]], config.parent
                )
                first, second = map(flat, results)
                change, apart = abs(second - flat(folder / place / "base")).max(), abs(first - second).max()
                dtype = dtypes.split()[-1]
                counts = [first.size, int((first != second).sum()), f"{apart:.1e}", f"{change:.1e}"]
                rows.append([name, dtype, computed, *counts])
                print(*rows[-1], sep=", ", flush=True)
                kept[name] = first
    if arguments.values:
        from safetensors.numpy import save_file

        save_file(kept, arguments.values, metadata={"shapes": json.dumps(shapes), "files": json.dumps(FILES)})
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "mergekit_values.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
