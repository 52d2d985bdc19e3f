"""The model card of a merged model."""

from __future__ import annotations

import json

from tallmasks.commands.opened_models import Models
from tallmasks.methods import Method


def card_of_merged(method: Method, alpha: float, models: Models) -> str:
    """README.md of a merged model, as the hub wants it: what was merged, how, and how to load it."""
    repository = models.base.origin.get("repository")
    front = [
        "---",
        *([f"base_model: {json.dumps(repository)}"] if repository else []),
        "library_name: transformers" if "config.json" in models.base.companions else "library_name: safetensors",
        "tags: [merge, model-merging, tallmasks]",
        "---",
    ]
    rows = [f"| {name} | `{checkpoint.title}` |" for name, checkpoint in models.tasks.items()]
    merged = [
        "# Merged model",
        "",
        f"{len(rows)} fine-tuned models of `{models.base.title}`, merged by {method.title} ({method.paper}) with the",
        f"scaling coefficient {alpha:g}: theta_0 + {alpha:g} tau_MTL, written by `tallmasks merge`.",
        "",
        "| task | checkpoint |",
        "|---|---|",
        *rows,
        "",
    ]
    return "\n".join([*front, *merged])
