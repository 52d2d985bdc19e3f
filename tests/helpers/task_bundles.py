"""A small model of every dtype and odd size, a bundle of it, and the weights that the bundle must restore."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from tallmasks import methods
from tallmasks.bundles.bundle_writer import BundleContents, new_bundle
from tallmasks.bundles.streams import encoded, mask_words
from tallmasks.bundles.updates import in_order
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.codec import encode_piece
from tallmasks.methods.few_bits import in_few_bits
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.multiples import PIECE

FORMS = {
    "a.bias": (torch.float32, (13,)),
    "a.weight": (torch.bfloat16, (5, 7)),
    "precise": (torch.float64, (9,)),
    "empty": (torch.float32, (0, 4)),
    "frozen": (torch.bfloat16, (4, 4)),
    "long": (torch.float16, (PIECE // 512 + 1, 513)),  # the end of its first piece is inside a row
    "short": (torch.float16, (3, 3, 5)),
    "narrow": (torch.float32, (6, 1)),
    "scalar": (torch.float32, ()),
    "steps": (torch.int64, (3,)),
    "tall": (torch.bfloat16, (24, 17)),
    "wide": (torch.float32, (9, 8)),
}
UNCHANGED = "frozen"
TASKS = ("mnist", "two words/../x", "ümlaut")
MASKED = "tall_mask_ties:bits=3"
METHODS = ("stochastic_rounding", "lossless", MASKED)


@dataclass(frozen=True)
class Made:
    """A bundle and its base; by task and name, what it must restore, and float32 updates, in the tensor's shape."""

    folder: Path
    base_file: Path
    base: dict[str, torch.Tensor]
    wanted: dict[str, dict[str, torch.Tensor]]
    updates: dict[str, dict[str, np.ndarray]]
    masks: dict[str, np.ndarray]


def base_tensors(rng: np.random.Generator, forms: dict = FORMS) -> dict[str, torch.Tensor]:
    """Random weights, among them zeros of both signs, subnormal numbers, and a row of zeros."""
    found = {}
    for name, (dtype, shape) in forms.items():
        values = torch.from_numpy(np.asarray(rng.standard_normal(shape)))
        if values.numel() > 8:
            values[-1] = 0
            values.view(-1)[:4] = torch.tensor([-0.0, 0.0, 1e-40, -3e-7])
        found[name] = values.to(dtype).contiguous()
    return found


def make(folder: Path, method: str = METHODS[0], *, forms: dict = FORMS, tasks=TASKS, **contents) -> Made:
    """Write a base model, and a bundle of random task vectors, masks or, for lossless, weights."""
    rng, row = np.random.default_rng(0), methods.get(method)
    folder.mkdir(parents=True, exist_ok=True)
    base, base_file = base_tensors(rng, forms), folder / "base.safetensors"
    save_file(base, base_file)
    stored = sorted(name for name, (kind, _) in forms.items() if kind.is_floating_point and name != UNCHANGED)
    layout = Layout(tuple(stored), tuple(forms[name][1] for name in stored))
    theta = layout.join({name: base[name].float().numpy() for name in stored})
    vectors = {task: task_vector(rng, layout) for task in tasks}
    masks = {task: rng.random(layout.size) < 0.4 for task in tasks}
    merged = np.sum(list(vectors.values()), axis=0, dtype=np.float32)
    wanted, updates = {}, {}
    for task in tasks:
        if method == "lossless":
            wanted[task] = base | {name: any_bits(rng, base[name]) for name in stored}
            updates[task] = {name: (wanted[task][name].float() - base[name].float()).numpy() for name in stored}
            continue
        given = {"task_vector": vectors[task], "pretrained": theta, "layout": layout, "mask": masks[task]}
        given["stored_vector"] = nearest(merged, layout, 3)
        updates[task] = layout.split(row(**{key: given[key] for key in row.needs}))
        wanted[task] = base | {name: changed(base[name], updates[task][name]) for name in stored}

    def stream(task: str, name: str, start: int, stop: int) -> tuple:
        here, shape = slice(layout.parts[name].start + start, layout.parts[name].start + stop), forms[name][1]
        if method == "lossless":
            tuned, before = (in_order(patterns(of[name])[start:stop]) for of in (wanted[task], base))
            return (encoded(tuned - before),)
        if row.codec:
            return encode_piece(row.codec, vectors[task][here], theta[here], name, shape, start, **row.values)
        if task is None:
            quantized = in_few_bits(merged[here], shape, 3)
            return encoded(quantized.integers), quantized.scale
        return (encoded(mask_words(np.packbits(masks[task][here], bitorder="little"), stop - start)),)

    described = BundleContents(
        method=method,
        base=open_checkpoint(base_file),
        tasks=tasks,
        coding=row.codec.coding if row.codec else None,
        row_step=row.codec.row_step_of(row.values) if row.codec else 0.0,
        unchanged={UNCHANGED} & forms.keys(),
        **contents,
    )
    with new_bundle(folder / "bundle", described) as new:
        for piece in new.pieces:
            for task in tasks if row.codec else (None, *tasks):
                new.append(task, *stream(task, *piece))
        if not row.codec:
            new.mask_lambda.update(dict.fromkeys(tasks, 0.4))
            new.density.update({task: float(masks[task].mean()) for task in tasks})
    return Made(folder / "bundle", base_file, base, wanted, updates, masks)


def task_vector(rng: np.random.Generator, layout: Layout) -> np.ndarray:
    """Some tensors hardly move, some much; a value by hundreds of steps; a row, and a tensor, not at all."""
    vector = rng.standard_normal(layout.size).astype(np.float32)
    for number, (name, tensor) in enumerate(layout.split(vector).items()):
        tensor *= 0 if name == "narrow" else (0.005, 0.3)[number % 2]
        if tensor.ndim > 1 and tensor.size:
            tensor[1] = 0
        if name == "long":
            np.clip(10 * tensor, -0.1, 0.1, out=tensor)
            tensor[0, 0] = 60
    return vector


def changed(theta: torch.Tensor, update: np.ndarray) -> torch.Tensor:
    """theta_0 + update, rounded to the dtype of theta_0; what does not change keeps its sign."""
    added = torch.from_numpy(np.array(update))
    wide = theta if theta.dtype == torch.float64 else theta.float()
    return torch.where(added == 0, theta, (wide + added).to(theta.dtype))


def patterns(tensor: torch.Tensor) -> np.ndarray:
    return tensor.reshape(-1).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]).numpy()


def any_bits(rng: np.random.Generator, base: torch.Tensor) -> torch.Tensor:
    """Every second value has random bits; NaN, infinity, -0.0 and subnormal numbers are there."""
    bits = patterns(base).copy()
    bits[::2] = np.frombuffer(rng.bytes(bits[::2].nbytes), bits.dtype)
    special = torch.tensor([np.nan, np.inf, -np.inf, -0.0, 1e-45, 1e-310], dtype=base.dtype)[: bits.size]
    bits[: special.numel()] = patterns(special)
    return torch.from_numpy(bits).view(base.dtype).reshape(base.shape)


def nearest(vector: np.ndarray, layout: Layout, bits: int) -> np.ndarray:
    """Each piece at the nearest multiples of 1 / 2^(bits - 2) of its root mean square, or 1 / 10 of it in a vector."""
    out = np.zeros_like(vector)
    for name, part in layout.parts.items():
        is_vector = sum(length > 1 for length in layout.by_name[name]) < 2
        for start in range(part.start, part.stop, PIECE):
            here = slice(start, min(start + PIECE, part.stop))
            step = np.float32(
                np.sqrt(np.mean(vector[here].astype(np.float64) ** 2)) / (10 if is_vector else 2 ** (bits - 2))
            )
            if step:
                out[here] = np.rint(vector[here] / np.float64(step)).astype(np.float32) * step
    return out


def same_bits(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """True if two tensors have the same dtype, shape and bytes."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    pair = [tensor.detach().cpu().contiguous().reshape(-1) for tensor in (found, wanted)]
    return pair[0].numel() == 0 or torch.equal(pair[0].view(torch.uint8), pair[1].view(torch.uint8))


def all_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    """True if two state dicts have the same names and bits."""
    return found.keys() == wanted.keys() and all(same_bits(found[name], wanted[name]) for name in wanted)
