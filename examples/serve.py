"""Serve all text classifiers of a bundle from one model in memory.

BUNDLE=./bundle fastapi run examples/serve.py
curl localhost:8000/tickets -H 'Content-Type: application/json' -d '["please cancel my invoice"]'
"""

import os
import shutil
import tempfile
import threading
from pathlib import Path

import torch
from fastapi import FastAPI, HTTPException
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

import tallmasks

bundle = tallmasks.load_bundle(os.environ.get("BUNDLE", "./bundle"))
app, lock, models, tokenizers = FastAPI(), threading.Lock(), {}, {}
for task in bundle.tasks:
    config = AutoConfig.for_model(**bundle.config(task))
    models[task] = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32).eval()
    body = models[bundle.tasks[0]].base_model
    setattr(models[task], body.base_model_prefix, body)  # one body for all tasks; each has a head of its own
    with tempfile.TemporaryDirectory() as folder:
        for name, path in bundle.tokenizer_files(task).items():
            shutil.copy(path, Path(folder, name))
        tokenizers[task] = AutoTokenizer.from_pretrained(folder)


@app.post("/{task}")
def classify(task: str, texts: list[str]) -> list[str]:
    """The class names of some texts."""
    if task not in models:
        raise HTTPException(404, f"no task {task!r}; expected one of {', '.join(models)}")
    if not texts:
        return []
    inputs = tokenizers[task](texts, padding=True, truncation=True, return_tensors="pt")
    with lock, torch.inference_mode():  # no other request may switch the weights in between
        if getattr(app.state, "task", None) != task:
            bundle.apply_(models[task], task)
            app.state.task = task
        answers = models[task](**inputs).logits.argmax(-1)
    return [models[task].config.id2label[number] for number in answers.tolist()]
