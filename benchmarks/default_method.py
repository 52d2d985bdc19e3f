"""The accuracy that stochastic rounding keeps by its step, and what other methods without data keep.

    python benchmarks/default_method.py stored tiny 20tasks   # needs `snakemake checkpoints_tiny`
    python benchmarks/default_method.py trained bert vit llama t5 llama-bfloat16 bert-slow bert-lora bert-few

`stored` takes fine-tuned models of the workflow and their data.  `trained` makes a small base and a few fine-tuned
models of transformers' classes on the spot: each task has four classes, a head of its own, and data that no training
saw; `-bfloat16` rounds all models, `-slow` has a tenth of the learning rate, `-lora` trains and merges LoRAs of rank 4,
`-few` trains 38 of 1,500 rows of the embedding, while weight decay shrinks all.  Prints a line for each method and seed
of the rounding: the accuracy in percent of the fine-tuned models', mean and worst task, on validation and test data;
the bits a weight and task of what is stored; and the largest noise of a task in percent.
"""

import argparse
import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.utils.parametrize
import transformers
from numpy.typing import NDArray

from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.models.families import family
from reproduction.plan import chain
from reproduction.plan.params import FILE, read_params
from reproduction.plan.settings import Plan
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.codec import coded_bytes
from tallmasks.operations.compress import noise_of_tasks, squares_of
from tallmasks.vectors.task_vectors import TaskVector, compute_task_vector, open_task_vector

ROWS = {
    "stochastic_rounding:step=0.05": 1, "stochastic_rounding": 3, "stochastic_rounding:step=0.2": 3,
    "stochastic_rounding:step=0.4": 1, "dare_per_task": 1, "ultradelta": 1,
}  # fmt: skip
"""Seeds of the rounding, by method."""
SPLITS = ("validation", "test")
Flat = NDArray[np.float32]
Accuracy = Callable[[int, Flat, str], float]
"""Of a task's model with an update, in percent of a split's examples."""
CLASSES, TOKENS, LENGTH = 4, 40, 24


def rows(vectors: Sequence[TaskVector], theta_0: Flat) -> Iterator[tuple[str, int, list[Flat], float]]:
    """Each method and seed with the update of every task, and the bits a weight and task, NaN if it has no bundles."""
    layout = vectors[0].layout
    for name, seeds in ROWS.items():
        method = methods.get(name)
        for seed in range(seeds):
            renamed = Layout(tuple(f"{one}{seed or ''}" for one in layout.names), layout.shapes)
            updates, nbytes = [], 0.0
            for vector in vectors:
                inputs = {"task_vector": vector.flat, "layout": renamed}
                updates.append(method(**inputs, **({"pretrained": theta_0} if method.codec else {})))
                if method.codec:
                    nbytes += coded_bytes(method.codec, vector.flat, theta_0, renamed, **method.values)
            bits = 8 * nbytes / (len(vectors) * theta_0.size) if method.codec else float("nan")
            yield name, seed, updates, bits


def errors(vectors: Sequence[TaskVector], updates: Sequence[Flat], theta_0: Flat) -> Iterator[tuple[str, list[Flat]]]:
    """The argument of `noise_of_tasks`."""
    layout = vectors[0].layout
    weights, *both = (layout.split(np.asarray(one)) for one in (theta_0, *(one.flat for one in vectors), *updates))
    for name in layout.names:
        flat = [one[name].reshape(-1) for one in both]
        pairs = zip(flat[: len(vectors)], flat[len(vectors) :], strict=True)
        yield name, [squares_of(vector, update, weights[name].reshape(-1)) for vector, update in pairs]


def stored(model: str, benchmark: str) -> tuple[list[TaskVector], Flat, Accuracy]:
    """Fine-tuned models of the workflow, with their data."""
    plan = Plan(read_params(FILE))
    spec = plan.model(model)
    model_family, params = family(spec), {**plan.evaluator(model), **plan.architecture(model)}
    (source,) = chain.pretrained_source(plan, model).values()
    pretrained = Path(getattr(source, "path", source))
    network = model_family.load(params, pretrained, "float32", "cpu")
    vectors, evaluators = [], []
    with tempfile.TemporaryDirectory() as folder:
        for task in plan.benchmark(model, benchmark).merge:
            checkpoint = Path(chain.finetune(plan, model, task, plan.seeds[0]).path)
            out, initial = Path(folder, f"{task}.safetensors"), model_family.initial_state(params, pretrained)
            compute_task_vector(pretrained, checkpoint, initial, out, {}, [], 0)
            vector = open_task_vector(out)
            vectors.append(TaskVector(np.array(vector.flat), vector.layout, {}))
            inputs = chain.task_inputs(plan, model, [task], plan.seeds[0])
            own = {role: Path(nodes[0].path) for role, nodes in inputs.items()}
            paths = {split: Path(chain.examples(plan, model, task, split).path) for split in SPLITS}
            data = {split: model_family.examples(path, own) for split, path in paths.items()}
            evaluators.append(Evaluator(network, [TaskData(task, data)]))

    def accuracy(task: int, update: Flat, split: str) -> float:
        ((right,),) = evaluators[task].per_task(split, lambda _: iter([update]), 1)
        return 100 * float(right) / evaluators[task].totals(split)[0]

    return vectors, np.asarray(network.initial().cpu()), accuracy


SIZE = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
KINDS = {
    "bert": (transformers.BertForSequenceClassification, {**SIZE, "vocab_size": TOKENS}),
    "vit": (transformers.ViTForImageClassification, {**SIZE, "image_size": 12, "patch_size": 3}),
    "llama": (transformers.LlamaForSequenceClassification, {**SIZE, "vocab_size": TOKENS, "pad_token_id": 0}),
    "t5": (
        transformers.T5ForSequenceClassification,
        {"d_model": 48, "d_ff": 96, "d_kv": 12, "num_layers": 2, "num_heads": 4, "vocab_size": TOKENS,
         "decoder_start_token_id": 0, "eos_token_id": 1},
    ),
}  # fmt: skip


def drawn(kind: str, task: int, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and classes.  A task divides the tokens, or the patches' patterns, into four groups of its own; the class
    is the group that occurs most."""
    of_task, draw = np.random.default_rng(1000 + task), np.random.default_rng([seed, task])
    group = of_task.permutation(np.arange(TOKENS - 2) % CLASSES)
    classes = draw.integers(0, CLASSES, count)
    tokens = draw.integers(0, TOKENS - 2, (count, 16 if kind == "vit" else LENGTH))
    for row, own in zip(tokens, classes, strict=True):
        members = np.flatnonzero(group == own)
        row[: len(row) // 2] = draw.choice(members, len(row) // 2)
        draw.shuffle(row)
    counts = np.stack([(group[tokens] == own).sum(1) for own in range(CLASSES)], 1)
    classes = torch.from_numpy(counts.argmax(1))
    if kind != "vit":
        ends = np.ones((count, 1), np.int64)
        return torch.from_numpy(np.concatenate([tokens + 2, ends], 1)), classes
    patterns = np.random.default_rng(7).normal(size=(TOKENS - 2, 3, 3, 3))
    images = patterns[tokens].reshape(count, 4, 4, 3, 3, 3).transpose(0, 3, 1, 4, 2, 5).reshape(count, 3, 12, 12)
    return torch.from_numpy(images + 0.3 * draw.normal(size=images.shape)).float(), classes


class LowRank(torch.nn.Module):
    """A LoRA as a parametrization of a matrix."""

    def __init__(self, weight: torch.Tensor, rank: int = 4) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.a = torch.nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.b = torch.nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.detach() + 2 * self.b @ self.a


HEADS = ("classifier", "score", "classification_head")


def with_lora(model: torch.nn.Module) -> None:
    """Gives every linear layer but the head a LoRA, and freezes the rest."""
    for name, part in list(model.named_modules()):
        if not name.startswith(HEADS):
            for parameter in part.parameters(recurse=False):
                parameter.requires_grad_(False)
            if isinstance(part, torch.nn.Linear):
                torch.nn.utils.parametrize.register_parametrization(part, "weight", LowRank(part.weight))


def merge_lora(model: torch.nn.Module) -> None:
    for part in list(model.modules()):
        if torch.nn.utils.parametrize.is_parametrized(part):
            torch.nn.utils.parametrize.remove_parametrizations(part, "weight")


def fit(
    model: torch.nn.Module, kind: str, tasks: Sequence[int], steps: int, rate: float, seed: int, few: bool = False
) -> None:
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], rate)
    model.train()
    for step in range(steps):
        inputs, classes = drawn(kind, tasks[step % len(tasks)], 64, 10_000 * (seed + 1) + step)
        if few:  # the base learns other words of its vocabulary at each step
            inputs = torch.where(inputs > 1, inputs + (TOKENS - 2) * (step % 39), inputs)
        loss = torch.nn.functional.cross_entropy(model(inputs).logits, classes)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()


def trained(kind: str, tasks: int) -> tuple[list[TaskVector], Flat, Accuracy]:
    """A base that was trained on tasks of the same kind, and eight models of other tasks."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    kind, *variants = kind.split("-")
    of_class, settings = KINDS[kind]
    if "few" in variants:
        settings = {**settings, "vocab_size": 1500}
    base = of_class(of_class.config_class(**settings, num_labels=CLASSES))
    fit(base, kind, range(100, 108), 1200, 1e-3, 0, few="few" in variants)
    models = []
    for task in range(tasks):
        torch.manual_seed(task)
        model = copy.deepcopy(base)
        for head in (getattr(model, name, None) for name in HEADS):
            if head is not None:
                head.apply(lambda part: part.reset_parameters() if isinstance(part, torch.nn.Linear) else None)
        if "lora" in variants:
            with_lora(model)
        rate = 5e-5 if "slow" in variants else 5e-3 if "lora" in variants else 5e-4
        fit(model, kind, [task], 500, rate, 1 + task)
        merge_lora(model)
        models.append(model)
    if "bfloat16" in variants:
        for model in (base, *models):
            model.bfloat16().float()
    names = [n for n, _ in base.named_parameters() if not n.startswith(HEADS)]
    states = [{name: model.state_dict()[name].numpy() for name in names} for model in (base, *models)]
    layout = Layout.of(states[0])
    flats = [layout.join(state) for state in states]
    vectors = [TaskVector(flat - flats[0], layout, {}) for flat in flats[1:]]
    data = {split: [drawn(kind, task, count, seed) for task in range(tasks)]
            for split, count, seed in (("validation", 512, 9), ("test", 2000, 10))}  # fmt: skip

    @torch.no_grad()
    def accuracy(task: int, update: Flat, split: str) -> float:
        model, (inputs, classes) = copy.deepcopy(models[task]), data[split][task]
        for name, values in layout.split(flats[0] + np.asarray(update)).items():
            model.get_parameter(name).copy_(torch.from_numpy(np.array(values)))
        if "bfloat16" in variants:
            model.bfloat16().float()
        return 100 * float((model(inputs).logits.argmax(1) == classes).float().mean())

    return vectors, flats[0], accuracy


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("stored", "trained"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--tasks", type=int, default=8, help="of `trained` (default: 8)")
    arguments = parser.parse_args()
    print("models,benchmark,method,seed,bits,noise,validation,worst,test,worst", flush=True)
    model, *benchmarks = arguments.names
    is_stored = arguments.source == "stored"
    cases = (
        [(model, name) for name in benchmarks]
        if is_stored
        else [(name, f"{arguments.tasks}tasks") for name in arguments.names]
    )
    for name, benchmark in cases:
        vectors, theta_0, accuracy = stored(name, benchmark) if is_stored else trained(name, arguments.tasks)
        count = range(len(vectors))
        whole = {split: [accuracy(task, vectors[task].flat, split) for task in count] for split in SPLITS}
        nothing = [np.zeros_like(theta_0)] * len(vectors)
        for method, seed, updates, bits in (("pretrained", 0, nothing, 0.0), *rows(vectors, theta_0)):
            noise = 100 * max(noise_of_tasks(list(errors(vectors, updates, theta_0)), len(vectors)))
            scores = []
            for split in SPLITS:
                kept = [100 * accuracy(task, updates[task], split) / whole[split][task] for task in count]
                scores += [f"{np.mean(kept):.1f}", f"{min(kept):.1f}"]
            print(name, benchmark, method, seed, f"{bits:.3f}", f"{noise:.2f}", *scores, sep=",", flush=True)


if __name__ == "__main__":
    main()
