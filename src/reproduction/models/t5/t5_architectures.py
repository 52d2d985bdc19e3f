"""T5's architectures and tensors, for code that does not import torch.

Tensor names are those of the hub's files; `shared.weight` also stands for its aliases `embed_tokens.weight`.

The paper's storage figures show that one of the two tables, `shared` (input) or `lm_head` (output), is frozen
(P' = 750,251,008 of 783,150,080 values), but not which.  Here it is `shared`: only rows of tokens in the batch get a
gradient, so most of its task vector would be exactly 0, and every mask would keep those zeros.  In `lm_head` every row
gets a gradient at every step.  `frozen_table: lm_head` freezes `lm_head` instead, `none` trains both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from tallmasks.errors import TallmasksError, nearest

TOKENIZER_FILES = ("tokenizer.json", "spiece.model")
"""File names of tokenizers; the first that exists is used."""
TABLES = ("shared.weight", "lm_head.weight")
FROZEN = {"shared": TABLES[:1], "lm_head": TABLES[1:], "none": ()}
"""The frozen tensors by the value of `frozen_table`."""
PEFT_PREFIX = "base_model.model."
IA3_SUFFIX = ".ia3_l"
_RESCALED = re.compile(r"(?P<module>.+\.(?:(?P<out>[kv])|wo))\.weight")
_SIZES = {
    "small": (512, 1024, 6, 8),
    "base": (768, 2048, 12, 12),
    "large": (1024, 2816, 16, 24),
    "xl": (2048, 5120, 32, 24),
}
"""d_model, d_ff, heads and layers of T5 v1.1; a head has 64 features."""
NAMES = {f"t5-{kind.format(size)}": size for size in _SIZES for kind in ("{}-lm-adapt", "v1_1-{}")}
"""The size of each model by its name on the hub, without the optional prefix `google/`."""
_KINDS = (
    (r"EncDecAttention\.k\.ia3_l$", "cross keys"),
    (r"EncDecAttention\.v\.ia3_l$", "cross values"),
    (r"\.k\.ia3_l$", "keys"),
    (r"\.v\.ia3_l$", "values"),
    (r"\.ia3_l$", "MLP"),
    (r"layer_norm", "norms"),
    (r"relative_attention_bias", "positions"),
    (r"^shared", "embeddings"),
    (r"^lm_head", "output"),
    (r"EncDecAttention\.[qkv]\.", "cross-attention in"),
    (r"EncDecAttention\.o\.", "cross-attention out"),
    (r"SelfAttention\.[qkv]\.", "attention in"),
    (r"SelfAttention\.o\.", "attention out"),
    (r"\.wi(_\d)?\.", "MLP in"),
    (r"\.wo\.", "MLP out"),
)
"""Pattern in a tensor's name, and the tensor's kind; the first match counts."""

Shapes = dict[str, tuple[int, ...]]


class Architecture(BaseModel):
    """The settings of a T5, named as in transformers' T5Config, and `frozen_table`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    vocab_size: PositiveInt
    d_model: PositiveInt
    d_kv: PositiveInt
    d_ff: PositiveInt
    num_heads: PositiveInt
    num_layers: PositiveInt
    num_decoder_layers: PositiveInt
    feed_forward_proj: Literal["gated-gelu", "gated-silu", "relu"] = "gated-gelu"
    relative_attention_num_buckets: PositiveInt = 32
    relative_attention_max_distance: PositiveInt = 128
    dropout_rate: float = Field(0.1, ge=0, le=0.999)
    layer_norm_epsilon: float = Field(1e-6, ge=1e-12, le=1)
    tie_word_embeddings: Literal[False] = False  # T5 v1.1 has two separate tables
    frozen_table: Literal["shared", "lm_head", "none"] = "shared"

    @classmethod
    def of(cls, written: str | Mapping[str, Any]) -> Architecture:
        """Parse `architecture` of params.yaml: a name, T5Config's keys, or a `name` and overriding keys.

        Raises TallmasksError for an unknown name or key, a missing key or a wrong value.
        """
        settings = {"name": written} if isinstance(written, str) else dict(written)
        if "name" in settings:
            settings = _named(str(settings.pop("name"))) | settings
        elif "num_layers" in settings:
            settings.setdefault("num_decoder_layers", settings["num_layers"])
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            # a misspelt key causes two errors; report the unknown key, not the missing one
            first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
            key, unknown = str(first["loc"][0]), first["type"] == "extra_forbidden"
            problem = f"unknown key{nearest(key, cls.model_fields)}" if unknown else first["msg"]
            raise TallmasksError(f"params.yaml: architecture: {key}: {problem}") from None

    @property
    def config(self) -> dict[str, Any]:
        return self.model_dump(exclude={"frozen_table"})

    @property
    def shapes(self) -> Shapes:
        """All tensors of a pretrained file, sorted by name."""
        inner, model = self.num_heads * self.d_kv, self.d_model
        shapes: Shapes = dict.fromkeys(TABLES, (self.vocab_size, model))
        for side, blocks in (("encoder", self.num_layers), ("decoder", self.num_decoder_layers)):
            attentions = ("SelfAttention", "EncDecAttention") if side == "decoder" else ("SelfAttention",)
            shapes[f"{side}.final_layer_norm.weight"] = (model,)
            bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            shapes[bias] = (self.relative_attention_num_buckets, self.num_heads)
            for block in range(blocks):
                layers = f"{side}.block.{block}.layer"
                for index, attention in enumerate(attentions):
                    shapes |= {f"{layers}.{index}.{attention}.{which}.weight": (inner, model) for which in "qkv"}
                    shapes[f"{layers}.{index}.{attention}.o.weight"] = (model, inner)
                dense = f"{layers}.{len(attentions)}.DenseReluDense"
                gates = ("wi_0", "wi_1") if self.feed_forward_proj.startswith("gated-") else ("wi",)
                shapes |= {f"{dense}.{gate}.weight": (self.d_ff, model) for gate in gates}
                shapes[f"{dense}.wo.weight"] = (model, self.d_ff)
                shapes |= {f"{layers}.{index}.layer_norm.weight": (model,) for index in range(len(attentions) + 1)}
        return dict(sorted(shapes.items()))

    def trainable(self, adapter: str | None = None) -> Shapes:
        """The trainable tensors, sorted by name: all but the frozen table, or (IA)^3's vectors in PEFT's layout."""
        if adapter is None:
            return {name: shape for name, shape in self.shapes.items() if name not in FROZEN[self.frozen_table]}
        vectors: Shapes = {}
        for name, (rows, *columns) in self.shapes.items():
            if part := _RESCALED.fullmatch(name):
                shape = (rows, 1) if part["out"] else (1, *columns)
                vectors[PEFT_PREFIX + part["module"] + IA3_SUFFIX] = shape
        return dict(sorted(vectors.items()))

    def counts(self, adapter: str | None = None) -> tuple[int, int]:
        """P' and F of the paper's storage formula; with (IA)^3 the whole model is frozen."""
        trained = sum(map(math.prod, self.trainable(adapter).values()))
        total = sum(map(math.prod, self.shapes.values()))
        return trained, total if adapter else total - trained


def _named(name: str) -> dict[str, Any]:
    short = name.removeprefix("google/")
    if short not in NAMES:
        raise TallmasksError(
            f"params.yaml: architecture: unknown T5 {name!r}{nearest(short, NAMES)}; expected one of "
            f"{', '.join(NAMES)}, or a mapping with T5Config's keys"
        )
    d_model, d_ff, heads, layers = _SIZES[NAMES[short]]
    counts = {"num_heads": heads, "num_layers": layers, "num_decoder_layers": layers}
    return {"vocab_size": 32128, "d_model": d_model, "d_kv": 64, "d_ff": d_ff, **counts}


def layer_of(tensor: str) -> tuple[str, str]:
    """A tensor's layer ("before", "0", "1", ... in the encoder, "d0", "d1", ... in the decoder, "after") and its kind
    (of `_KINDS`, or "other")."""
    name = tensor.removeprefix(PEFT_PREFIX)
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, name)), "other")
    if block := re.match(r"(en|de)coder\.block\.(\d+)\.", name):
        return ("d" if block[1] == "de" else "") + block[2], kind
    return "before" if name.startswith("shared") else "after", kind
