"""Write a merged model, or a model of a bundle, as a PEFT LoRA of its base: `--as-lora`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from tallmasks.errors import OptionError, name_some, warn
from tallmasks.io.atomic_files import atomic_path
from tallmasks.io.markdown import code_block, plain_markdown
from tallmasks.methods import Method, registry
from tallmasks.methods.contract import MethodUpdates
from tallmasks.methods.merges import TensorPiece, pieces_of
from tallmasks.methods.streaming import PieceInputs, StreamedMerge
from tallmasks.methods.weighting import Weighting
from tallmasks.operations.agreed_files import agreed_files, warn_of_files
from tallmasks.operations.input_warnings import changes, warn_of_configurations
from tallmasks.operations.merge_recipes import (
    CARD,
    RECIPE,
    THIS_FOLDER,
    base_arguments,
    base_name,
    card_of_merged,
    heads_files,
    recipe_of,
)
from tallmasks.operations.opened_models import Models, passes
from tallmasks.operations.tensor_roles import Role
from tallmasks.parallel import parallel
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folders import CONFIG, TOKENIZERS, matches
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint
from tallmasks.vectors.checkpoints.lora_writing import Adapter, Difference, planned_adapter
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.low_rank import Matrix

if TYPE_CHECKING:
    from tallmasks.bundles.bundle_models import BundleModel

GENERATION_CONFIG = "generation_config.json"


def adapter_of_merge(
    method: Method,
    scaling_coefficient: float,
    weighting: Weighting,
    models: Models,
    progress: Callable[[int], None] = lambda _: None,
) -> Adapter:
    """The planned adapter. The merge is prepared when the first tensor is read. Raises like `planned_adapter`."""
    settings, stream = models.settings, models.stream(progress)
    if settings.out_shard_size is not None:
        raise OptionError("out_shard_size: a LoRA is a single file; leave out out_shard_size or as_lora")
    if settings.tokens == "union" and models.heads:
        raise OptionError("heads: as_lora does not combine heads with tokens: union; leave out one of them")
    merging = functools.cache(lambda: StreamedMerge(registry.get_merge(str(method.merge)), stream, weighting))

    def read(name: str) -> NDArray[np.float32]:
        info, prepared = models.base.info(name), merging()
        change = np.empty(info.size, np.float32)

        def work(piece: TensorPiece) -> None:
            source = PieceInputs(stream, piece, prepared, settings.mask_lambdas)
            change[piece.start : piece.stop] = np.float32(scaling_coefficient) * MethodUpdates(method, source)()

        step = info.size if prepared.over_tensors else kernels.SLICE
        parallel(work, pieces_of({name: info.size}, step), prepared.threads)
        return change.reshape(info.shape)

    base, model, own = models.base, models.base, list[str]()
    if settings.tokens == "union":
        base = open_checkpoint(settings.base)
        own = [name for name, info in models.base.tensors.items() if info.shape != base.info(name).shape]
    elif models.heads:
        task, heads = next(iter(models.heads.items()))
        model, own = models.tasks[task], heads if len(models.tasks) == 1 else own
    difference = Difference(
        base,
        base_name(base),
        models.layout.names,
        read,
        model,
        own,
        _factors(method, scaling_coefficient, weighting, models),
        [one for one in models.tasks.values() if isinstance(one, LoraCheckpoint)],
    )
    return planned_adapter(difference, settings.as_lora, settings.dtype)


def _factors(
    method: Method, scaling_coefficient: float, weighting: Weighting, models: Models
) -> Callable[[str], tuple[Matrix, Matrix] | None]:
    """The factors of a weighted sum of LoRAs, side by side, with all scales in the left one."""
    merge = registry.get_merge(str(method.merge))
    is_sum = method.is_merge and merge.combine == "sum" and merge.sparsify is None
    weights = [weighting.weights.get(task, 1.0) for task in models.tasks]
    scale = scaling_coefficient / (sum(weights) if weighting.normalize else 1.0)

    def factors(name: str) -> tuple[Matrix, Matrix] | None:
        lefts, rights = [], []
        for weight, one in zip(weights, models.tasks.values(), strict=True):
            if not isinstance(one, LoraCheckpoint) or name in one.replaced:
                return None
            if product := one.products.get(name):
                lefts.append(product.left * np.float32(scale * weight * product.scale))
                rights.append(product.right.reshape(-1, product.columns))
        return np.hstack(lefts), np.vstack(rights)

    return factors if is_sum else lambda name: None


def write_lora_of_merge(
    method: Method, scaling_coefficient: float, weighting: Weighting, models: Models, heads: Mapping[str, bytes]
) -> list[str]:
    """Write the adapter of a merge to the settings' output, with the files ``heads``. Returns lines about it for
    people. Raises like `planned_adapter`."""
    recipe = recipe_of(method, scaling_coefficient, weighting, models)

    def card(lines: Sequence[str]) -> str:
        return card_of_merged(method, scaling_coefficient, models, recipe, heads_files(models) if heads else {}, lines)

    # planned before the progress begins, because transformers is slow to import
    adapter = adapter_of_merge(method, scaling_coefficient, weighting, models, lambda count: progress(count))
    task, *others = models.tasks.values()
    model = task if models.heads and not others else models.base  # a single task with its head
    agreed = agreed_files(models.base, models.tasks) if model is models.base else {}
    files = _files(adapter, model, {name: file.content for name, file in agreed.items()})
    with models.progress("merging", passes(method.merge)) as progress:
        lines = _written(models.settings.output, adapter, card, files, {RECIPE: recipe.encode(), **heads})
    if lost := models.roles.names(Role.AVERAGED):
        warn(f"a LoRA cannot store buffers, so these keep the base's values: {name_some(lost)}")
    if model is models.base:
        warn_of_files(models.base, models.tasks)
        warn_of_configurations(models.base, models.tasks, models.heads)
    return lines


def write_lora_of_task(model: BundleModel, output: Path, rank: int, card: str) -> list[str]:
    """Write a model of a bundle as an adapter of the bundle's base. ``card``: the beginning of README.md. Returns lines
    about it for people. Raises like `planned_adapter`."""
    base = model.weights.base
    own = [name for name in model.tensors if name not in base.names or model.info(name).shape != base.info(name).shape]
    shared = [name for name in base.layout.names if name in model.names and name not in own]
    changed = [name for name in shared if not model.same(base, name)]

    def read(name: str) -> NDArray[np.float32]:
        info = base.info(name)
        return model.difference(base, name, 0, info.size).reshape(info.shape)

    adapter = planned_adapter(Difference(base, base_name(base), changed, read, model, own), rank)
    return _written(output, adapter, lambda lines: "\n".join([card, *lines]), _files(adapter, model, {}), {})


def _files(adapter: Adapter, model: Checkpoint, agreed: Mapping[str, bytes]) -> dict[str, bytes]:
    """The small files of the whole model that are not the base's: those of ``model``, and ``agreed``.

    With a config.json in the folder, transformers no longer finds the base by the folder alone. So it is written only
    if its settings are others, and then with the tokenizer: without, transformers would make an empty one.
    """
    difference, base = adapter.difference, adapter.difference.base
    whole = {name: path.read_bytes() for name, path in model.companions.items()} | {**agreed}
    of_base = {name: path.read_bytes() for name, path in base.companions.items()}
    names = {name for name, content in whole.items() if content != of_base.get(name)}
    if not (difference.own or changes("", base.config, model.config)):
        names.discard(CONFIG)
    of_tokenizers = {name for name in whole if matches(name.rpartition("/")[2], TOKENIZERS)}
    if names & {CONFIG, *of_tokenizers}:
        names |= of_tokenizers
    return {name: whole[name] for name in sorted(names)}


def _written(
    output: Path,
    adapter: Adapter,
    card: Callable[[Sequence[str]], str],
    files: Mapping[str, bytes],
    others: Mapping[str, bytes],
) -> list[str]:
    """``files``: of the model, which are named in the lines and the card; ``others``: the rest of the folder."""
    with atomic_path(output, adapter.nbytes, folder=True, new=True) as hidden:
        lines, line = _about(adapter, files, *adapter.write(hidden)), _loading(adapter, files)
        in_card = [*(f"- {plain_markdown(line)}" for line in lines), "", code_block(f"{line}\n", "python"), ""]
        for name, content in {**files, **others, CARD: card(in_card).encode()}.items():
            (hidden / name).parent.mkdir(parents=True, exist_ok=True)
            (hidden / name).write_bytes(content)
    return [*lines, line]


def _about(
    adapter: Adapter, files: Collection[str], shares: Mapping[str, float], share: float, lost: Mapping[str, float]
) -> list[str]:
    """What an adapter keeps, for people, from the result of `Adapter.write`."""
    worst = min(shares, key=lambda name: shares[name], default="")
    kept = f"kept of the change's squared norm: {share:.1%}; of the worst matrix, {worst}: {shares.get(worst, 1):.1%}"
    is_exact = adapter.factors.keys() == adapter.low_rank.keys() and not lost
    lines = [
        f"rank {adapter.rank}, {decimal(adapter.nbytes)}, layers named as in transformers {version('transformers')}",
        "exact: the change is a sum of LoRAs" if is_exact else kept,
    ]
    if ordered := sorted(lost, key=lambda name: -lost[name]):
        lines.append(
            f"not stored, with the share of each: {name_some(f'{name} ({lost[name]:.2%})' for name in ordered)}"
        )
    if adapter.whole:
        lines.append(f"stored whole, for PEFT but not vLLM: {name_some(adapter.modules_to_save)}")
    if files:
        lines.append(f"files of the model, in place of the base's: {', '.join(files)}")
    return lines


def _loading(adapter: Adapter, files: Collection[str]) -> str:
    """The line of Python that loads it."""
    difference = adapter.difference
    (name, *_) = difference.model.config.get("architectures") or ["AutoModel"]
    arguments = [base_arguments(difference.base)]
    for file, read in ((CONFIG, "config=AutoConfig"), (GENERATION_CONFIG, "generation_config=GenerationConfig")):
        arguments += [f'{read}.from_pretrained("{THIS_FOLDER}")'] if file in files else []
    arguments += ["ignore_mismatched_sizes=True"] if difference.own else []
    return f'PeftModel.from_pretrained({name}.from_pretrained({", ".join(arguments)}), "{THIS_FOLDER}")'
