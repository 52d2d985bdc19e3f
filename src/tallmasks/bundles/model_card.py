"""README.md of a bundle: the model card shown on the hub."""

from __future__ import annotations

import json

from rich.filesize import decimal

from tallmasks.bundles.manifest import Manifest
from tallmasks.io.markdown import plain_markdown


def model_card(manifest: Manifest, model_class: str | None = None) -> str:
    """The card in Markdown: contents, sizes, noise, and how to load the bundle. ``model_class``: the class of
    transformers that a task's config.json names."""
    base = manifest.base
    front = ["library_name: tallmasks", "tags:", "- model-merging", "- tall-masks"]
    if base.repository is None:
        origin = plain_markdown(base.path or "a local model")
    else:
        front.insert(0, f"base_model: {json.dumps(base.repository)}")
        origin = f"[{base.repository}](https://huggingface.co/{base.repository}) at `{base.revision}`"
    where = "included here, under `base/`" if base.included else "not included"
    values = sum(tensor.size for tensor in manifest.tensors.values())
    kept = sum(tensor.size for tensor in (*manifest.encoded.values(), *manifest.buffers.values()))
    total = sum(part.size for part in manifest.files.values())
    sizes = {task: decimal(manifest.files[file].size) for task, file in manifest.task_files.items()}
    if manifest.masks:
        what = (
            "All tasks share one merged vector. The weights of a task are theta_0 plus those values of the vector that"
            " the task's mask selects."
        )
        rows = ["| task | size | noise | mask lambda | mask density |", "|---|---:|---:|---:|---:|"]
        ends = [f" {manifest.mask_lambda[task]:g} | {manifest.density[task]:.1%} |" for task in manifest.tasks]
    else:
        what = "The weights of a task are theta_0 plus the task's compressed change of the weights."
        rows, ends = ["| task | size | noise |", "|---|---:|---:|"], [""] * len(manifest.tasks)
    rows += [
        f"| {plain_markdown(task)} | {sizes[task]} | {noise_of(manifest, task)} |{end}"
        for task, end in zip(manifest.tasks, ends, strict=True)
    ]
    if manifest.is_exact:
        what += " Every tensor comes back exactly, bit for bit."
    else:
        what += (
            "\nThe noise is the relative error of a tensor's restored weights, as the root mean square over the"
            " tensors, weighted by size; a model quantised to 4 bits has about 10 %."
        )
    task, load = manifest.tasks[0], 'bundle = tallmasks.load_bundle("<this folder or repository>")'
    if model_class:
        imports = f"import tallmasks\nfrom transformers import AutoConfig, {model_class}"
        load += f"\nmodel = {model_class}(AutoConfig.for_model(**bundle.config({task!r})))"
    else:
        imports = "import tallmasks"
    front_matter = "\n".join(front)
    table = "\n".join(rows)
    return f"""---
{front_matter}
---

# {len(manifest.tasks)} fine-tuned models in one bundle

Compressed by {plain_markdown(manifest.method)}. The base theta_0 is {origin} ({where}).
{what}
Fine-tuning changed {kept:,} of the model's {values:,} values; only these are stored.
The tensor files take {decimal(total)}.

{table}

```python
{imports}
{load}
bundle.apply_(model, {task!r})  # in place; call it again to switch to another task
bundle.restore_(model)  # back to the base
```
"""


def noise_of(manifest: Manifest, task: str) -> str:
    """The noise of a task, for people."""
    if manifest.is_exact:
        return "exact"
    return f"{manifest.noise[task]:.2%}" if task in manifest.noise else ""
