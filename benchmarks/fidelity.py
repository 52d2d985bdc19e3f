"""How far later merges and compressions are from their authors' code, on random checkpoints.

    git clone https://github.com/AntoAndGar/task_singular_vectors OFFICIAL/task_singular_vectors   # and so on
    python benchmarks/fidelity.py OFFICIAL [--tasks 6]

OFFICIAL is a folder of checkouts named as their repositories are.  The functions that merge are taken out of the
authors' files and run as they stand, in float32 on the CPU; what they ask of a GPU, a data set or a progress bar is
given to them here.  DARE's random bits are ours on both sides, and both are given the same random Grams and Fishers:
it is the merging that is compared, not how statistics are gathered.  Of what compresses, the task vectors that come
back are compared, all tasks' together.  Prints, for each, the largest difference of any weight, that as a share of the
largest weight, and how many weights differ by more than a thousandth of that.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import io
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from tallmasks import methods
from tallmasks.methods.rows.parts.layers_in_blocks import is_layer_in_block
from tallmasks.methods.rows.parts.seeded_draws import draws, task_keys
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

Tensors = dict[str, torch.Tensor]
WIDTH, BLOCKS, DROP, BETA = 48, 3, 0.5, 0.5


class Official:
    """Functions, also those within methods, and classes of one file of a checkout, without the rest of it.

    Args:
        folder: of the checkouts.
        path: the file, from there.
        names: what is taken.
        given: what the file would import or define, by name.
    """

    def __init__(self, folder: Path, path: str, names: Sequence[str], **given: Any) -> None:
        tree = ast.parse("from __future__ import annotations\n" + (folder / path).read_text())
        defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))
        wanted = [node for node in defined if node.name in names]
        tree.body = [tree.body[0], *wanted]
        self.found = {"torch": torch, "nn": nn, "copy": copy, "OrderedDict": OrderedDict, "ABC": object, **given}
        exec(compile(tree, path, "exec"), self.found)

    def __getattr__(self, name: str) -> Any:
        return self.found[name]


def checkpoints(tasks: int) -> list[TaskVector]:
    """The task vectors of random fine-tunings of a small ViT with the names of open_clip's: a few directions a task and
    noise, all of it in common in part."""
    shapes = {
        "visual.class_embedding": (WIDTH,),
        "visual.positional_embedding": (17, WIDTH),
        "visual.conv1.weight": (WIDTH, 3, 8, 8),
        "visual.proj": (WIDTH, 32),
        "visual.ln_post.weight": (WIDTH,),
    }
    for block in range(BLOCKS):
        at = f"visual.transformer.resblocks.{block}"
        shapes |= {
            f"{at}.attn.in_proj_weight": (3 * WIDTH, WIDTH),
            f"{at}.attn.out_proj.weight": (WIDTH, WIDTH),
            f"{at}.mlp.c_fc.weight": (4 * WIDTH, WIDTH),
            f"{at}.mlp.c_proj.weight": (WIDTH, 4 * WIDTH),
            f"{at}.mlp.c_fc.bias": (4 * WIDTH,),
            f"{at}.ln_1.weight": (WIDTH,),
        }
    layout = Layout(tuple(sorted(shapes)), tuple(shapes[name] for name in sorted(shapes)))
    draw = np.random.default_rng(0)
    pretrained = 0.02 * draw.standard_normal(layout.size, np.float32)
    shared = draw.standard_normal(layout.size, np.float32)
    vectors = []
    for _ in range(tasks):
        change = {}
        for name, noise in layout.split(0.3 * shared + draw.standard_normal(layout.size, np.float32)).items():
            low = 0
            if noise.ndim == 2:
                low = 0.3 * draw.normal(size=(noise.shape[0], 4)) @ draw.normal(size=(4, noise.shape[1]))
            change[name] = 3e-4 * (noise + low)
        finetuned = pretrained + layout.join(change)
        vectors.append(TaskVector(finetuned - pretrained, layout, {}))
    return vectors


def tensors_of(vector: TaskVector) -> Tensors:
    return {name: torch.from_numpy(part.copy()) for name, part in vector.layout.split(vector.flat).items()}


def ours(spec: str, vectors: list[TaskVector]) -> dict[str, np.ndarray]:
    if spec in COMPRESSIONS:
        return _by_task([vectors[0].layout.split(flat) for flat in _compressed(spec, vectors)])
    out = np.empty_like(vectors[0].flat)
    merge = methods.get_merge(spec)
    merge(vectors, out, STATISTICS[merge.statistics](vectors) if merge.statistics else [])
    return vectors[0].layout.split(out)


def _compressed(spec: str, vectors: list[TaskVector]) -> list[np.ndarray]:
    """What each task gets of a method that compresses."""
    method = methods.get(spec)
    given: dict[str, Any] = {"layout": vectors[0].layout, "tasks": len(vectors)}
    if method.merge:
        given["multi_task_vector"] = np.empty_like(vectors[0].flat)
        methods.get_merge(method.merge)(vectors, given["multi_task_vector"])
    every = [{**given, "task_vector": vector.flat} for vector in vectors]
    return [method(**{name: one[name] for name in method.needs}) for one in every]


def _by_task(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{task}/{name}": tensor for task, tensors in enumerate(every) for name, tensor in tensors.items()}


def grams(vectors: list[TaskVector]) -> list[dict[str, np.ndarray]]:
    """For each task what X^T X / n of random inputs is, of attention's last layer and the MLP's."""
    draw = np.random.default_rng(1)
    shapes = dict(zip(vectors[0].layout.names, vectors[0].layout.shapes, strict=True))
    linear = [name for name in shapes if name.endswith(("out_proj.weight", "c_fc.weight", "c_proj.weight"))]
    found = []
    for _ in vectors:
        inputs = {name: draw.standard_normal((500, shapes[name][1]), np.float32) for name in linear}
        found.append({name: values.T @ values / len(values) for name, values in inputs.items()})
    return found


def squared_gradients(vectors: list[TaskVector]) -> list[dict[str, np.ndarray]]:
    """For each task squares of random numbers, of every weight."""
    draw = np.random.default_rng(1)
    layout = vectors[0].layout
    return [dict(layout.split(1e-3 * np.square(draw.standard_normal(layout.size, np.float32)))) for _ in vectors]


STATISTICS = {"grams": grams, "fisher": squared_gradients}


# -- the authors' merges --------------------------------------------------------------------------------------


def settings(vectors: Sequence[TaskVector], **method: Any) -> tuple[list[Any], Any]:
    """Task vectors and a configuration as the code of TSV and Iso takes them."""
    given = [SimpleNamespace(vector=tensors_of(vector)) for vector in vectors]
    return given, SimpleNamespace(device="cpu", DATASETS=list(range(len(given))), method=SimpleNamespace(**method))


def tsv_m(folder: Path, vectors: list[TaskVector]) -> Tensors:
    name = "compute_and_sum_svd_mem_reduction"
    code = Official(folder, "task_singular_vectors/src/utils/TSVM_utils.py", [name])
    return code.found[name](*settings(vectors))


def iso_c(folder: Path, vectors: list[TaskVector]) -> Tensors:
    return Official(folder, "iso-merging/src/utils/iso.py", ["iso_c"]).iso_c(*settings(vectors))


def iso_cts(folder: Path, vectors: list[TaskVector]) -> Tensors:
    code = Official(folder, "iso-merging/src/utils/iso.py", ["iso_cts"])
    return code.iso_cts(*settings(vectors, common_space_fraction=0.8))


def lines(folder: Path, vectors: list[TaskVector]) -> Tensors:
    return _lines(folder, vectors, sum(torch.from_numpy(vector.flat) for vector in vectors))


def lines_ties(folder: Path, vectors: list[TaskVector]) -> Tensors:
    path, names = "LiNeS/src/utils/ties_utils.py", ["ties_merging", "resolve_sign", "resolve_zero_signs"]
    code = Official(folder, path, [*names, "disjoint_merge", "topk_values_mask"], topk_values_mask=None)
    shared = Official(folder, "LiNeS/src/utils/utils.py", ["topk_values_mask"])
    code.found["topk_values_mask"] = shared.topk_values_mask
    flats = torch.stack([torch.from_numpy(vector.flat) for vector in vectors])
    return _lines(folder, vectors, code.ties_merging(flats, reset_thresh=20, merge_func="dis-mean"))


def _lines(folder: Path, vectors: list[TaskVector], merged: torch.Tensor) -> Tensors:
    code = Official(folder, "LiNeS/src/eval/eval.py", ["LiNeS_scaling"])
    total = sum(torch.from_numpy(vector.flat) for vector in vectors)
    alpha = (total.abs().sum().item() / merged.abs().sum().item()) / len(vectors)  # as `evaluate` there has it
    parts = vectors[0].layout.split(merged.numpy())
    given = SimpleNamespace(vector={name: torch.from_numpy(part) for name, part in parts.items()})
    return code.LiNeS_scaling(given, alpha=alpha, beta=BETA, num_blocks=BLOCKS).vector


def breadcrumbs(folder: Path, vectors: list[TaskVector]) -> Tensors:
    code = Official(folder, "breadcrumbs/src/task_vectors.py", ["TaskVectorABC", "TaskVectorMiddleKeep"])
    given = [
        code.TaskVectorMiddleKeep(vector=tensors_of(vector), top_k_keep=0.15, top_k_remove=0.006) for vector in vectors
    ]
    return sum(given).vector


def dare(folder: Path, vectors: list[TaskVector]) -> Tensors:
    left = _dropped(folder, vectors)
    return {name: sum(tensors[name] for tensors in left) for name in left[0]}


def dare_ties(folder: Path, vectors: list[TaskVector]) -> Tensors:
    names = Official(folder, "MergeLM/utils/utils.py", ["get_param_names_to_merge"], re=__import__("re"))
    vector = Official(
        folder,
        "MergeLM/model_merging_methods/task_vector.py",
        ["TaskVector"],
        get_param_names_to_merge=names.get_param_names_to_merge,
    )
    code = Official(folder, MERGELM, ["MergingMethod"], TaskVector=vector.TaskVector)
    base = {name: torch.zeros_like(tensor) for name, tensor in tensors_of(vectors[0]).items()}
    models = [_module(tensors) for tensors in (base, *_dropped(folder, vectors))]
    found = code.MergingMethod.ties_merging(None, models[0], models[1:], [], 0.8, 1.0)
    return {name.replace("/", "."): tensor.detach() for name, tensor in found.items()}


def _dropped(folder: Path, vectors: list[TaskVector]) -> list[Tensors]:
    """What their DARE leaves of each task vector, with our bits."""
    bits = _Bits()
    code = Official(
        folder, "MergeLM/model_merging_methods/mask_weights_utils.py", ["mask_input_with_mask_rate"], torch=bits
    )
    left = []
    for vector, key in zip(vectors, task_keys(vectors, 0), strict=True):
        found = {}
        for name, tensor in tensors_of(vector).items():
            bits.next = draws(key, name, 0, tensor.numel()).reshape(tensor.shape) < np.uint32(DROP * 2**32)
            found[name] = code.mask_input_with_mask_rate(tensor, DROP, use_rescale=True, mask_strategy="random")
        left.append(found)
    return left


class _Bits:
    """torch, but for where bits come from."""

    next: np.ndarray

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def bernoulli(self, rates: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.next).to(rates.dtype)


def _module(tensors: Tensors) -> nn.Module:
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_parameter(name.replace(".", "/"), nn.Parameter(tensor))
    return module


MERGELM = "MergeLM/model_merging_methods/merging_methods.py"


def regmean(folder: Path, vectors: list[TaskVector]) -> Tensors:
    code = Official(folder, MERGELM, ["merging_with_regmean_weights", "reduce_non_diagonal_elements"])
    known = [
        {name.removesuffix(".weight"): torch.from_numpy(gram) for name, gram in one.items()} for one in grams(vectors)
    ]
    return code.merging_with_regmean_weights(_by_name(vectors), known)


def fisher(folder: Path, vectors: list[TaskVector]) -> Tensors:
    """Each tensor as one row: torch has no norm over more than two dimensions, which that of patches has."""
    code = Official(folder, MERGELM, ["merging_with_fisher_weights", "get_models_fisher_norm"])
    known = [
        {name: torch.from_numpy(part).reshape(-1) for name, part in one.items()} for one in squared_gradients(vectors)
    ]
    rows = {name: [tensor.reshape(-1) for tensor in tensors] for name, tensors in _by_name(vectors).items()}
    found = code.merging_with_fisher_weights(rows, known, torch.ones(len(vectors)))
    shapes = zip(vectors[0].layout.names, vectors[0].layout.shapes, strict=True)
    return {name: found[name].reshape(shape) for name, shape in shapes}


def _by_name(vectors: list[TaskVector]) -> dict[str, list[torch.Tensor]]:
    every = [tensors_of(vector) for vector in vectors]
    return {name: [tensors[name] for tensors in every] for name in every[0]}


def wudi(folder: Path, vectors: list[TaskVector]) -> Tensors:
    code = Official(
        folder,
        "WUDI-Merging/vit/wudi_main.py",
        ["get_redundant_task_vector", "decompose_task_vectors"],
        tqdm=lambda steps: steps,
        deepcopy=copy.deepcopy,
        TaskVector=SimpleNamespace,
    )
    on_gpu = torch.Tensor.cuda
    torch.Tensor.cuda = lambda self, *words, **more: self  # type: ignore[method-assign,assignment]
    try:
        found = code.decompose_task_vectors([SimpleNamespace(vector=tensors_of(one)) for one in vectors], 300).vector
    finally:
        torch.Tensor.cuda = on_gpu  # type: ignore[method-assign]
    return {name: found.get(name, torch.zeros_like(tensor)) for name, tensor in tensors_of(vectors[0]).items()}


def pcb(folder: Path, vectors: list[TaskVector]) -> Tensors:
    merged: list[torch.Tensor] = []
    code = Official(
        folder,
        "pcb-merging/vision_source_code/pcb_ES.py",
        ["PCB", "compute_acc", "normalize", "clamp"],
        vector_to_state_dict=lambda vector, *more, **words: merged.append(vector),
        loadCheckpoint_intoModel=lambda *words: None,
        eval_single_dataset=lambda *words: 0.0,
    )
    flats = torch.stack([torch.from_numpy(vector.flat) for vector in vectors])
    clamped, scale = code.PCB(flats, pcb_ratio=0.05)
    lambdas = [1.0] * len(vectors)
    code.compute_acc(lambdas, clamped, scale, 0, None, [""], SimpleNamespace(), "test", None, [])
    return {name: torch.from_numpy(part) for name, part in vectors[0].layout.split(merged[0].numpy()).items()}


# -- the authors' compressions --------------------------------------------------------------------------------


def emr(folder: Path, vectors: list[TaskVector]) -> Tensors:
    code = Official(folder, "EMR_Merging/merge_vit/src/main_emr_merging.py", ["emr_merge"])
    unified, masks, scales = code.emr_merge([SimpleNamespace(vector=tensors_of(vector)) for vector in vectors])
    tasks = range(len(vectors))
    return _by_task([{name: unified[name] * masks[name][task] * scales[task] for name in unified} for task in tasks])


def bitdelta(folder: Path, vectors: list[TaskVector]) -> Tensors:
    """Packed in sixteens: the width of these matrices is no multiple of the kernel's 32.  Of linear layers in blocks
    alone, as `compress_diff` there finds them."""
    bits = Official(folder, "BitDelta/bitdelta/binary_gemm_kernel.py", ["pack", "unpack"])
    code = Official(folder, "BitDelta/bitdelta/diff.py", ["BinaryDiff"], pack=lambda mask: bits.pack(mask, n_bits=16))

    def back(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not is_layer_in_block(name, tuple(tensor.shape)):
            return tensor
        diff = code.BinaryDiff(base=torch.zeros_like(tensor), finetune=tensor)
        return ((bits.unpack(diff.mask, n_bits=16) * 2 - 1) * diff.coeff).T.detach()  # as `load_diff` there adds it

    return _by_task([{name: back(name, tensor) for name, tensor in tensors_of(vector).items()} for vector in vectors])


def tsv_c(folder: Path, vectors: list[TaskVector]) -> Tensors:
    path, names = "task_singular_vectors/src/utils/TSVC_utils.py", ["compute_svd_and_compress", "compress_tv"]
    code = Official(folder, path, names)
    given = {task: SimpleNamespace(vector=tensors_of(vector)) for task, vector in enumerate(vectors)}
    found = code.compress_tv(given, 1 / len(vectors))

    def back(parts: Tensors) -> torch.Tensor:
        return parts["dim1"] if "dim1" in parts else parts["u"] @ torch.diag(parts["s"]) @ parts["v"]

    return _by_task([{name: back(parts) for name, parts in found[task].items()} for task in given])


def t_switch(folder: Path, vectors: list[TaskVector]) -> Tensors:
    names = ["process_matrix", "drop_elements_separately", "binarize_matrix"]
    code = Official(folder, "Binary-Task-Switch/merge_vit/merge_vit.py", names)
    zero = _module({name: torch.zeros_like(tensor) for name, tensor in tensors_of(vectors[0]).items()})
    found = []
    for vector in vectors:
        left = code.drop_elements_separately(zero, _module(tensors_of(vector)), 60)
        found.append({name.replace("/", "."): tensor for name, tensor in code.binarize_matrix(left)[0].items()})
    return _by_task(found)


COMPRESSIONS = {"emr": emr, "bitdelta": bitdelta, "tsv_c": tsv_c, "t_switch": t_switch}
OFFICIAL: dict[str, Callable[[Path, list[TaskVector]], Tensors]] = {
    "iso_c": iso_c,
    "tsv_m": tsv_m,
    "iso_cts": iso_cts,
    "lines": lines,
    "lines_ties": lines_ties,
    "breadcrumbs": breadcrumbs,
    "dare": dare,
    "dare_ties": dare_ties,
    "wudi": wudi,
    "pcb": pcb,
    "regmean": regmean,
    "fisher": fisher,
    **COMPRESSIONS,
}


def differences(mine: Mapping[str, np.ndarray], theirs: Mapping[str, Any]) -> tuple[float, float, int]:
    """The largest difference, also as a share of the largest of their values, and how many exceed a thousandth."""
    apart = np.concatenate([np.abs(values - theirs[name].numpy()).reshape(-1) for name, values in mine.items()])
    largest = max(float(tensor.abs().max()) for tensor in theirs.values())
    return float(apart.max()), float(apart.max()) / largest, int((apart > 1e-3 * largest).sum())


def main() -> None:
    """Print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("official", type=Path, help="a folder of checkouts")
    parser.add_argument("--tasks", type=int, default=6)
    arguments = parser.parse_args()
    vectors = checkpoints(arguments.tasks)
    print(f"{arguments.tasks} tasks, {vectors[0].layout.size} weights")
    print("method,largest_difference,share_of_the_largest_weight,weights_that_differ")
    for name, official in OFFICIAL.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                theirs = official(arguments.official, vectors)
        except FileNotFoundError as missing:
            print(f"{name},no checkout: {missing.filename},,")
            continue
        apart, share, count = differences(ours(name, vectors), theirs)
        print(f"{name},{apart:.2g},{share:.2g},{count}", flush=True)


if __name__ == "__main__":
    main()
