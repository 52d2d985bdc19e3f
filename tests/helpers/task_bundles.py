"""A small model of every dtype and odd size, a bundle of it, and the weights as the formula has them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from tallmasks.bundles.bundle_writer import BundleContents, new_bundle, new_coded_bundle
from tallmasks.bundles.codings import Coding, Dense, Levels, LowRank, Signs, Ternary, in_few_bits
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.few_bits import tau_codings
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.levels import normal_levels

FORMS = {
    "a.bias": (torch.float32, (13,)),
    "a.weight": (torch.bfloat16, (5, 7)),
    "precise": (torch.float64, (9,)),
    "empty": (torch.float32, (0, 4)),
    "frozen": (torch.bfloat16, (4, 4)),
    "short": (torch.float16, (3, 3, 5)),
    "narrow": (torch.float32, (6, 1)),
    "scalar": (torch.float32, ()),
    "steps": (torch.int64, (3,)),
    "tall": (torch.bfloat16, (24, 17)),
    "wide": (torch.float32, (9, 8)),
}
UNCHANGED = ("frozen",)
TASKS = ("mnist", "two words/../x", "ümlaut")
SCALES = {"mnist": 1.0, "two words/../x": 0.3, "ümlaut": -1.7}


@dataclass(frozen=True)
class Made:
    """The content of a bundle: ``merged`` float32 and ``masks`` bool, by tensor, in the tensor's shape."""

    folder: Path
    base_file: Path
    base: dict[str, torch.Tensor]
    merged: dict[str, np.ndarray]
    masks: dict[str, dict[str, np.ndarray]]
    scales: dict[str, float]
    dtype: str


def base_tensors(rng: np.random.Generator, forms: dict = FORMS) -> dict[str, torch.Tensor]:
    """Random weights, with zeros of both signs and subnormal numbers among them."""
    found = {}
    for name, (dtype, shape) in forms.items():
        values = torch.from_numpy(np.asarray(rng.standard_normal(shape)))
        if values.numel() > 8:
            values.view(-1)[:4] = torch.tensor([-0.0, 0.0, 1e-40, -3e-7])
        found[name] = values.to(dtype).contiguous()
    return found


def make(folder: Path, dtype: str = "float32", *, forms: dict = FORMS, tasks=TASKS, seed: int = 0, **contents) -> Made:
    """Write a base model and a bundle of random task masks and a random merged vector, in a dtype or in `N bits`."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    base = base_tensors(rng, forms)
    base_file = folder / "base.safetensors"
    save_file(base, base_file)
    unchanged = [name for name in UNCHANGED if name in forms]
    stored = {name: shape for name, (kind, shape) in forms.items() if kind.is_floating_point and name not in unchanged}
    merged = {name: np.asarray(rng.standard_normal(shape), np.float32) for name, shape in stored.items()}
    for values in merged.values():
        if values.size > 8:
            values.reshape(-1)[3:7] = [0.0, -0.0, 1e-40, 3e-6]
    masks = {task: {name: rng.random(shape) < 0.4 for name, shape in stored.items()} for task in tasks}
    scales = contents.pop("scale", {task: SCALES.get(task, 1.0) for task in tasks})
    options = {"method": "tall_mask_task_arithmetic", "options": {"alpha": 0.4}, **contents}
    if dtype.endswith("bits"):
        layout = Layout(tuple(sorted(stored)), tuple(stored[name] for name in sorted(stored)))
        options["codings"] = tau_codings(layout, int(dtype[0]))
    else:
        options["dtype"] = dtype
    described = BundleContents(
        base=open_checkpoint(base_file), tasks=tasks, unchanged=unchanged, scale=scales, **options
    )
    with new_bundle(folder / "bundle", described) as new:
        for name, values in merged.items():
            packed = {task: np.packbits(masks[task][name], bitorder="little") for task in tasks}
            half = values.size // 2 // new.unit(name) * new.unit(name)
            for start, stop in ((half, values.size), (0, half)):
                bits = {task: held[start // 8 : -(-stop // 8)] for task, held in packed.items()}
                new.write(name, start, values.reshape(-1)[start:stop], bits)
    for name in described.codings:  # a mask holds no zero of a tensor that is rounded to levels
        for of_task in masks.values():
            of_task[name] &= merged[name] != 0
    return Made(folder / "bundle", base_file, base, merged, masks, scales, dtype)


@dataclass(frozen=True)
class MadeCoded:
    """A bundle of compressed tensors, and each task's model."""

    folder: Path
    base_file: Path
    wanted: dict[str, dict[str, torch.Tensor]]


def make_coded(folder: Path, codings: dict[str, Coding], *, forms: dict = FORMS, tasks=TASKS, **contents) -> MadeCoded:
    """Write a base model and a bundle of random tensors of each task, in these codings."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    base, base_file = base_tensors(rng, forms), folder / "base.safetensors"
    save_file(base, base_file)
    theta = open_checkpoint(base_file)
    unchanged = [name for name, (kind, _) in forms.items() if kind.is_floating_point and name not in codings]
    described = BundleContents("own", theta, tasks, unchanged=unchanged, by_task=True, codings=codings, **contents)
    wanted = {task: dict(base) for task in tasks}
    with new_coded_bundle(folder / "bundle", described) as new:
        for task in tasks:
            for name, coding in codings.items():
                content = coded_content(coding, rng)
                new.write(task, name, content)
                update = torch.from_numpy(coding.piece(coding.pack(content), 0, base[name].numel()))
                total = base[name].float() + update.reshape(base[name].shape)
                wanted[task][name] = total.to(base[name].dtype)
    return MadeCoded(folder / "bundle", base_file, wanted)


def coded_content(coding: Coding, draw: np.random.Generator):
    """Something that a method might find for a coding."""
    if isinstance(coding, LowRank):
        left, right = draw.normal(size=(coding.shape[0], coding.rank)), draw.normal(size=(coding.rank, coding.shape[1]))
        tall = coding.shape[0] > coding.shape[1]
        return (left, np.linalg.qr(right.T)[0].T) if tall else (np.linalg.qr(left)[0], right)
    if isinstance(coding, Signs):
        return draw.random(coding.shape) < 0.4, abs(draw.normal())
    if isinstance(coding, Ternary):
        return 1.0 * draw.integers(-1, 2, coding.shape), abs(draw.normal())
    if isinstance(coding, Levels):
        levels, scales = draw.normal(size=2**coding.bits), draw.normal(size=coding.size // coding.group)
        index = draw.integers(0, 2**coding.bits, coding.shape)
        return index, levels.astype(np.float32), scales.astype(np.float32)
    assert isinstance(coding, Dense)
    return np.asarray(draw.normal(size=coding.shape), np.float32)


def as_stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """tau after it was rounded to the bundle's dtype or bits, float32; no mask keeps the zeros of rounded tensors."""
    if dtype == "float32" or values.size == 0:
        return values
    if not dtype.endswith("bits"):
        return torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()
    coding = in_few_bits(values.shape, int(dtype[0]))
    if isinstance(coding, Dense):
        return values
    levels, rows = normal_levels(coding.bits).astype(np.float64), values.reshape(-1, coding.group).astype(np.float64)
    unit = np.sqrt(np.square(rows).mean(1, keepdims=True))
    edges = (levels[1:] + levels[:-1]) / 2
    nearest = levels[((rows / np.where(unit, unit, 1))[..., None] > edges).sum(-1)]
    scales = np.sqrt(np.square(rows).sum(1) / np.square(nearest).sum(1))
    return (nearest.astype(np.float32) * scales.astype(np.float32)[:, None]).reshape(values.shape) * (values != 0)


def update(made: Made, task: str, name: str) -> np.ndarray:
    """scale * tau where the mask holds a weight, +0.0 elsewhere; float32, in the tensor's shape."""
    tau = as_stored(made.merged[name], made.dtype)
    is_rounded = made.dtype.endswith("bits") and isinstance(in_few_bits(tau.shape, 2), Levels)
    kept = made.masks[task][name] & ((tau != 0) | (not is_rounded))
    return np.where(kept, np.float32(made.scales[task]) * tau, np.float32(0))


def expected(made: Made, task: str) -> dict[str, torch.Tensor]:
    """The model of a task as the formula has it: theta_0 + update in float32, rounded to the base's dtype."""
    weights = dict(made.base)
    for name in made.merged:
        total = made.base[name].float() + torch.from_numpy(np.asarray(update(made, task, name)))
        weights[name] = total.to(made.base[name].dtype)
    return weights


def same_bits(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """True if two tensors have the same dtype, shape and bytes."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    pair = [tensor.detach().cpu().contiguous().reshape(-1) for tensor in (found, wanted)]
    return pair[0].numel() == 0 or torch.equal(pair[0].view(torch.uint8), pair[1].view(torch.uint8))


def all_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    """True if two state dicts have the same names and bits."""
    return found.keys() == wanted.keys() and all(same_bits(found[name], wanted[name]) for name in wanted)
