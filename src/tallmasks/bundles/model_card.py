"""README.md of a bundle: the model card shown on the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.filesize import decimal

from tallmasks.bundles.manifest import Manifest
from tallmasks.io.markdown import plain_markdown


def model_card(manifest: Manifest, densities: Mapping[str, float], errors: Mapping[str, float]) -> str:
    """The card in Markdown: contents, sizes, and how to load the bundle. ``densities``: by task, the fraction of stored
    values that its mask keeps. ``errors``: by task, the relative error of its task vector; empty if unknown."""
    base = manifest.base
    front = ["library_name: tallmasks", "tags:", "- model-merging", "- tall-masks"]
    if base.repository is None:
        origin = plain_markdown(base.path or "a local model")
    else:
        front.insert(0, f"base_model: {json.dumps(base.repository)}")
        origin = f"[{base.repository}](https://huggingface.co/{base.repository}) at `{base.revision}`"
    where = "included here, under `base/`" if base.included else "not included"
    values = sum(tensor.size for tensor in manifest.tensors.values())
    kept = sum(tensor.size for tensor in (*manifest.stored.values(), *manifest.buffers.values()))
    total = sum(part.size for part in manifest.files.values())
    sizes = {task: decimal(manifest.files[file].size) for task, file in manifest.task_files.items()}
    if manifest.updates:
        what = "The weights of task *t* are theta_0 plus the task's compressed task vector."
        rows = ["| task | size |", "|---|---:|"]
        rows += [f"| {plain_markdown(task)} | {sizes[task]} |" for task in manifest.tasks]
    else:
        what = (
            "The weights of task *t* are theta_0 + scale_t · (m_t ⊙ tau_MTL).\n"
            f"All tasks share the merged vector tau_MTL ({manifest.form}); m_t is the task's mask, one bit per value."
        )
        rows = ["| task | mask lambda | scale | mask density | size |", "|---|---:|---:|---:|---:|"]
        rows += [
            f"| {plain_markdown(task)} | {_number(manifest.mask_lambda[task])} | {_number(manifest.scale[task])}"
            f" | {densities[task]:.1%} | {sizes[task]} |"
            for task in manifest.tasks
        ]
    if errors:
        cells = [" relative error |", "---:|", *(f" {errors[task]:.3f} |" for task in manifest.tasks)]
        rows = [row + cell for row, cell in zip(rows, cells, strict=True)]
        what += "\nThe relative error is |tau_t - tau'_t| / |tau_t|, where tau'_t is the restored task vector."
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
import tallmasks
bundle = tallmasks.load_bundle("<this folder or repository>")
bundle.apply_(model, {manifest.tasks[0]!r})  # in place; call it again to switch to another task
bundle.restore_(model)  # back to the base
```
"""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
