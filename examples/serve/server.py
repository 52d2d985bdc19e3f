"""One model in memory that answers for any task of a bundle, over HTTP.

    python examples/serve/server.py ./bundle [--base ./base] [--port 8000] [--most 16] [--wait 0.005]

    curl localhost:8000/predict -H 'Content-Type: application/json' -d '{"task": "cars", "text": "w1 w2"}'
    {"label": "LABEL_0", "logits": [0.4, -0.2, ...]}

LitServe collects up to --most requests, for --wait seconds at most.  Each such batch is sorted by task, so that the
model is switched once per task in it.  The base is the folder of a sequence classifier of transformers, with its
tokenizer: that in the bundle (`tallmasks compress --include-base`), or --base.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import litserve
import torch
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tallmasks
from tallmasks.bundles.loaded_bundle import Bundle


class Question(BaseModel):
    """A request; LitServe answers anything else with status 422."""

    task: str
    text: str


class EveryTask(litserve.LitAPI):
    """LitServe runs `setup` once in a process of its own, and then the other functions for each batch of requests."""

    def __init__(self, bundle: Bundle, base: Path, **batching: Any) -> None:
        super().__init__(**batching)
        self.bundle, self.base = bundle, base

    def setup(self, device: str) -> None:
        """Load the model, and read and check the file of every task."""
        self.device = device
        self.tokenizer = AutoTokenizer.from_pretrained(self.base)
        self.model = AutoModelForSequenceClassification.from_pretrained(self.base).to(device).eval()
        for reading in [self.bundle.read_ahead(task) for task in self.bundle.tasks]:
            reading.join()

    @contextmanager
    def model_of(self, task: str) -> Iterator[torch.nn.Module]:
        """A block in which the model is that of a task."""
        with self.bundle.switched(self.model, task):
            yield self.model

    def decode_request(self, request: Question) -> Question:
        return request

    def batch(self, questions: list[Question]) -> list[Question]:
        return questions

    def predict(self, questions: list[Question]) -> list[dict[str, Any]]:
        """An answer for each question, in their order; an error for a task that the bundle lacks."""
        known = [number for number, question in enumerate(questions) if question.task in self.bundle.tasks]
        expected = f"expected one of {', '.join(self.bundle.tasks)}"
        answers: list[dict[str, Any]] = [{"error": f"no task {each.task!r}; {expected}"} for each in questions]
        for task, numbers in self.bundle.grouped((questions[number].task, number) for number in known):
            texts = [questions[number].text for number in numbers]
            inputs = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(self.device)
            with self.model_of(task) as model, torch.inference_mode():
                logits = model(**inputs).logits.float().cpu()
            for number, row in zip(numbers, logits, strict=True):
                answers[number] = {"label": self.model.config.id2label[int(row.argmax())], "logits": row.tolist()}
        return answers

    def unbatch(self, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return answers

    def encode_response(self, answer: dict[str, Any]) -> JSONResponse:
        return JSONResponse(answer, status_code=400 if "error" in answer else 200)


def options() -> argparse.ArgumentParser:
    """The command's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="a folder, or a repository ORG/NAME[@REVISION]")
    parser.add_argument("--base", type=Path, help="the base's folder; by default the bundle's own")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 to answer other machines too")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto (the default)")
    parser.add_argument("--most", type=int, default=16, help="requests in a batch")
    parser.add_argument("--wait", type=float, default=0.005, help="seconds that a request waits for others")
    return parser


def serve(arguments: argparse.Namespace, kind: type[EveryTask] = EveryTask) -> None:
    """Answer requests until Ctrl-C."""
    base = arguments.base or Path(arguments.bundle) / "base"
    if not (base / "config.json").is_file():
        raise SystemExit(f"error: {base} is no folder of a model; give --base, or compress with --include-base")
    try:
        bundle = tallmasks.load_bundle(arguments.bundle, base=arguments.base)
    except tallmasks.TallmasksError as error:
        raise SystemExit(f"error: {error}") from None
    api = kind(bundle, base, max_batch_size=max(arguments.most, 2), batch_timeout=arguments.wait)
    server = litserve.LitServer(api, accelerator=arguments.device)
    print(f"http://{arguments.host}:{arguments.port}/predict for {', '.join(bundle.tasks)}", flush=True)
    server.run(host=arguments.host, port=arguments.port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    serve(options().parse_args())
