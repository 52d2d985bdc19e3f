"""Which method keeps most accuracy without data, and in how many bytes: what `tallmasks compress` does by default.

    python benchmarks/default_method.py stored tiny 8tasks 14tasks 20tasks   # needs `snakemake checkpoints_tiny`
    python benchmarks/default_method.py trained bert vit llama t5 llama-bfloat16 bert-slow
    python benchmarks/default_method.py trained bert-lora bert-lora-bfloat16 bert-few

`stored` takes fine-tuned models of the workflow and their validation data.  `trained` makes a small base and eight
fine-tuned models of transformers' classes on the spot: each task has four classes, a head of its own, and validation
data that no training saw; `-bfloat16` rounds all models, `-slow` has a tenth of the learning rate, `-lora` trains and
merges LoRAs of rank 4, `-few` trains 38 of 1,500 rows of the embedding, while weight decay shrinks all.  Prints a line
for each method: the accuracy in percent of the fine-tuned models', mean and worst task, and the bytes of the bundle's
tensors beside those of the models, all in float32.
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
from reproduction.evaluation.method_evaluation import InMemory, updates_on
from reproduction.models.families import family
from reproduction.plan import chain
from reproduction.plan.params import FILE, read_params
from reproduction.plan.settings import Plan
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector, compute_task_vector, open_task_vector

GRID = [0.2, 0.3, 0.4, 0.5, 0.6]
MASKS = ("tall_mask_ties", "tall_mask_ties:bits=3", "tall_mask_task_arithmetic")
OWN = (
    "lloyd_max:bits=2", "lloyd_max", "lloyd_max:bits=4", "tvq:bits=2", "tvq", "rtvq", "t_switch", "bitdelta", "tsv_c",
    "emr", "emr:bits=3", "tall_mask_ties_equal_length", "tall_mask_ties_equal_length:bits=3",
    "tall_mask_ties_equal_length:bits=2",
)  # fmt: skip
Flat = NDArray[np.float32]
Accuracy = Callable[[int, Flat], float]
"""Of a task's model with an update, in percent."""
TASKS, CLASSES, TOKENS, LENGTH = 8, 4, 40, 24


def rows(vectors: Sequence[TaskVector], theta_0: Flat, accuracy: Accuracy) -> Iterator[tuple[str, list[float], int]]:
    """Each method with the accuracy of every task and the bytes of its bundle's tensors."""
    memory = InMemory(vectors, theta_0, GRID, lambda _: ())
    size, count = vectors[0].flat.size, len(vectors)
    for name in (*MASKS, *OWN):
        method = methods.get(name)
        update = updates_on(_OnCpu(), method, memory.of(method))
        nbytes = method.stored(count, size, 0, vectors[0].layout.by_name).bits // 8 - 4 * size
        if name in MASKS:
            for place, value in enumerate(GRID):
                scores = [accuracy(task, update(task, place)) for task in range(count)]
                yield f"{name}, lambda = {value:g}", scores, nbytes
        else:
            yield name, [accuracy(task, update(task)) for task in range(count)], nbytes


class _OnCpu:
    """What `updates_on` asks of an evaluator."""

    model = argparse.Namespace(device=torch.device("cpu"))

    def to_device(self, values: NDArray) -> torch.Tensor:
        return torch.from_numpy(np.array(values))


def stored(model: str, benchmark: str) -> tuple[list[TaskVector], Flat, Accuracy]:
    """Fine-tuned models of the workflow, with their validation data."""
    plan = Plan(read_params(FILE))
    spec = plan.model(model)
    model_family, params = family(spec), {**plan.evaluator(model), **plan.architecture(model)}
    (source,) = chain.pretrained_source(plan, model).values()
    pretrained = Path(getattr(source, "path", source))
    network = model_family.load(params, pretrained, "float32", "cpu")
    tasks = plan.benchmark(model, benchmark).merge
    vectors, evaluators = [], []
    with tempfile.TemporaryDirectory() as folder:
        for task in tasks:
            checkpoint = Path(chain.finetune(plan, model, task, plan.seeds[0]).path)
            out, initial = Path(folder, f"{task}.safetensors"), model_family.initial_state(params, pretrained)
            compute_task_vector(pretrained, checkpoint, initial, out, {}, [], 0)
            vector = open_task_vector(out)
            vectors.append(TaskVector(np.array(vector.flat), vector.layout, {}))
            inputs = chain.task_inputs(plan, model, task, plan.seeds[0])
            own = {role: Path(nodes[0].path) for role, nodes in inputs.items()}
            examples = model_family.examples(Path(chain.examples(plan, model, task, "validation").path), own)
            evaluators.append(Evaluator(network, [TaskData(task, {"validation": examples})]))

    def accuracy(task: int, update: Flat) -> float:
        ((right,),) = evaluators[task].own("validation", lambda _: iter([update]), 1)
        return 100 * float(right) / evaluators[task].totals("validation")[0]

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


def trained(kind: str) -> tuple[list[TaskVector], Flat, Accuracy]:
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
    for task in range(TASKS):
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
    validation = [drawn(kind, task, 512, 9) for task in range(TASKS)]

    @torch.no_grad()
    def accuracy(task: int, update: Flat) -> float:
        model, (inputs, classes) = copy.deepcopy(models[task]), validation[task]
        for name, values in layout.split(flats[0] + np.asarray(update)).items():
            model.get_parameter(name).copy_(torch.from_numpy(np.array(values)))
        return 100 * float((model(inputs).logits.argmax(1) == classes).float().mean())

    return vectors, flats[0], accuracy


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("stored", "trained"))
    parser.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    print("family,benchmark,method,mean,worst,bytes,models_bytes", flush=True)
    model, *benchmarks = arguments.names
    is_stored = arguments.source == "stored"
    cases = [(model, name) for name in benchmarks] if is_stored else [(name, "8 tasks") for name in arguments.names]
    for name, benchmark in cases:
        vectors, theta_0, accuracy = stored(name, benchmark) if is_stored else trained(name)
        whole = [accuracy(task, vector.flat) for task, vector in enumerate(vectors)]
        models = 4 * theta_0.size * len(vectors)
        zeros = [accuracy(task, 0 * vector.flat) for task, vector in enumerate(vectors)]
        everything = [("pretrained", zeros, 0), ("fine-tuned", whole, models), *rows(vectors, theta_0, accuracy)]
        for method, scores, nbytes in everything:
            share = [100 * one / of for one, of in zip(scores, whole, strict=True)]
            print(f'{name},{benchmark},"{method}",{np.mean(share):.1f},{min(share):.1f},{nbytes},{models}', flush=True)


if __name__ == "__main__":
    main()
