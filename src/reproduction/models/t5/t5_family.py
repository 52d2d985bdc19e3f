"""The model family T5; torch and transformers are imported only when needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reproduction.models.checkpoint_sources import download
from reproduction.models.families import STATISTICS, ModelParams, Precision, refuse_keys
from reproduction.models.language.text_family import TextFamily
from reproduction.models.t5 import t5_architectures
from reproduction.models.t5.t5_architectures import TOKENIZER_FILES, Architecture
from tallmasks.methods.merges import GRAMS, Statistic
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reproduction.models.cuda import Wanted
    from reproduction.models.t5.t5_network import T5Model

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


class T5(TextFamily):
    """transformers' T5 v1.1; trains all tensors except one table, or (IA)^3's vectors (`adapter: ia3`)."""

    imports = ("torch", "torch._dynamo", "transformers.models.t5.modeling_t5", "tokenizers")

    def check(self, name: str, spec: ModelParams) -> None:
        refuse_keys(name, spec, ("heads",), "T5 models")
        refuse_keys(f"{name}.finetuning", spec.get("finetuning", {}), ("augmentation",), "T5 models")
        refuse_keys(f"{name}.scoring", spec.get("scoring", {}), ("cosine_scale",), "T5 models")
        Architecture.of(spec["architecture"])

    def statistics(self, spec: ModelParams) -> tuple[Statistic, ...]:
        """No `GRAMS` with an adapter, since its vectors are not weights of linear layers."""
        return tuple(one for one in STATISTICS if one is not GRAMS or not spec.get("adapter"))

    def counts_frozen(self, spec: ModelParams) -> bool:
        return not spec.get("adapter")

    def initial_state(self, spec: ModelParams, pretrained: Path) -> dict[str, NDArray[Any]]:
        """(IA)^3's vectors are not in the file and start as ones."""
        adapter = spec.get("adapter")
        trainable = Architecture.of(spec["architecture"]).trainable(adapter)
        if adapter:
            return {name: np.ones(shape, np.float32) for name, shape in trainable.items()}
        checkpoint = open_checkpoint(pretrained)
        return {name: checkpoint.float32(name) for name in trainable}

    def parameter_counts(self, spec: ModelParams, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return Architecture.of(spec["architecture"]).counts(spec.get("adapter"))

    def layer_of(self, tensor: str) -> tuple[str, str]:
        return t5_architectures.layer_of(tensor)

    def load(
        self, spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None
    ) -> T5Model:
        from reproduction.models.t5 import t5_network

        return t5_network.load(spec, weights, precision, device)

    def convert_pretrained(self, spec: ModelParams, weights: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.t5 import t5_states

        return t5_states.pretrained_state(Architecture.of(spec["architecture"]), weights)

    def download_pretrained(self, spec: ModelParams, pretrained: ModelParams) -> tuple[Path, dict[str, str]]:
        return download(pretrained, self.pretrained_files(pretrained))

    def pretrained_files(self, pretrained: ModelParams) -> tuple[tuple[str, ...], ...]:
        return (pretrained["file"],) if "file" in pretrained else _WEIGHTS, TOKENIZER_FILES

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[np.float32]]:
        from reproduction.models.t5 import t5_states

        architecture = Architecture.of(spec["architecture"])
        if spec.get("adapter"):
            return t5_states.ia3_state(architecture, path)
        return t5_states.fine_tuned_state(architecture, path, pretrained)
