"""T5's architectures and the tensors that follow from one, for steps that do without torch.

Names are those of the hub's files, once for each tensor: the encoder's and the decoder's `embed_tokens.weight` are
`shared.weight` under other names.

The input table `shared` and the output table `lm_head` are two tensors of one shape.  One of them is not trained, as
the paper's storage figures tell (P' = 750,251,008 of 783,150,080 values); which of the two they do not tell.  Here it
is `shared`: a row of it gets a gradient only where its token stands in a batch, so that most of its task vector would
be exactly 0, which the mask rule of every task holds for; `lm_head` gets a gradient in every row at every step, and it
is what an answer's score comes from.  `frozen_table: lm_head` is the other choice, `none` trains both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tallmasks.store.errors import TallmasksError, nearest

TABLES = ("shared.weight", "lm_head.weight")
FROZEN = {"shared": TABLES[:1], "lm_head": TABLES[1:], "none": ()}
"""What is not trained, by `frozen_table`."""
ADAPTERS = ("ia3",)
PEFT_PREFIX = "base_model.model."
IA3_SUFFIX = ".ia3_l"
_RESCALED = re.compile(r"(?P<module>.+\.(?:(?P<out>[kv])|wo))\.weight")
_SIZES = {
    "small": (512, 1024, 6, 8),
    "base": (768, 2048, 12, 12),
    "large": (1024, 2816, 16, 24),
    "xl": (2048, 5120, 32, 24),
}
"""d_model, d_ff, heads and layers of T5 v1.1, whose heads have 64 features each."""
NAMES = {f"t5-{kind.format(size)}": size for size in _SIZES for kind in ("{}-lm-adapt", "v1_1-{}")}
"""What the hub calls the models of each size; `google/` before it is understood."""
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
"""Pattern in a tensor's name, kind of tensor; the first that matches counts."""

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Architecture:
    """What decides the tensors of a T5 and what it computes with them; the names are those of transformers' T5Config,
    but for `frozen_table`."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    num_layers: int
    num_decoder_layers: int
    feed_forward_proj: str = "gated-gelu"
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    frozen_table: str = "shared"

    @classmethod
    def of(cls, written: str | Mapping[str, Any]) -> Architecture:
        """An `architecture` of params.yaml: a name, T5Config's keys, or a `name` and keys that are to be otherwise.

        Raises:
            TallmasksError: There is no such name or key, a key is missing, or its value is not of its kind.
        """
        given = {"name": written} if isinstance(written, str) else dict(written)
        if "name" in given:
            given = _named(str(given.pop("name"))) | given
        elif "num_layers" in given:
            given.setdefault("num_decoder_layers", given["num_layers"])
        if given.pop("tie_word_embeddings", False) is not False:
            raise TallmasksError(
                "params.yaml: architecture: tie_word_embeddings: found true; only T5 v1.1 is here, whose two tables "
                "are two tensors: set it to false or leave it out"
            )
        known = {field.name: field for field in fields(cls)}
        for key in given:
            if key not in known:
                raise TallmasksError(
                    f"params.yaml: architecture: there is no key {key!r}{nearest(key, known)}; known: "
                    f"{', '.join(known)}"
                )
        if missing := [name for name, field in known.items() if name not in given and field.default is _NOTHING]:
            raise TallmasksError(f"params.yaml: architecture: {', '.join(missing)}: not there; name a model or add it")
        found = cls(**given)
        found._check()
        return found

    def _check(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise TallmasksError(f"params.yaml: architecture: {field.name}: found {value!r}, expected 1, 2, ...")
        for name, low, high in (("dropout_rate", 0, 0.999), ("layer_norm_epsilon", 1e-12, 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not low <= value <= high:
                raise TallmasksError(f"params.yaml: architecture: {name}: found {value!r}, expected {low} to {high}")
        for name, known in (("feed_forward_proj", ("gated-gelu", "gated-silu", "relu")), ("frozen_table", FROZEN)):
            value = str(getattr(self, name))
            if value not in known:
                raise TallmasksError(
                    f"params.yaml: architecture: {name}: found {value!r}, expected one of {', '.join(known)}"
                    f"{nearest(value, known)}"
                )

    @property
    def config(self) -> dict[str, Any]:
        """What transformers' T5Config is made with."""
        keys = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "frozen_table"}
        return {**keys, "tie_word_embeddings": False}

    @property
    def shapes(self) -> Shapes:
        """Every tensor of a pretrained file, sorted by name."""
        inner, model = self.num_heads * self.d_kv, self.d_model
        found: Shapes = dict.fromkeys(TABLES, (self.vocab_size, model))
        for side, blocks in (("encoder", self.num_layers), ("decoder", self.num_decoder_layers)):
            attentions = ("SelfAttention", "EncDecAttention") if side == "decoder" else ("SelfAttention",)
            found[f"{side}.final_layer_norm.weight"] = (model,)
            bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            found[bias] = (self.relative_attention_num_buckets, self.num_heads)
            for block in range(blocks):
                layers = f"{side}.block.{block}.layer"
                for place, attention in enumerate(attentions):
                    found |= {f"{layers}.{place}.{attention}.{which}.weight": (inner, model) for which in "qkv"}
                    found[f"{layers}.{place}.{attention}.o.weight"] = (model, inner)
                dense = f"{layers}.{len(attentions)}.DenseReluDense"
                gates = ("wi_0", "wi_1") if self.feed_forward_proj.startswith("gated-") else ("wi",)
                found |= {f"{dense}.{gate}.weight": (self.d_ff, model) for gate in gates}
                found[f"{dense}.wo.weight"] = (model, self.d_ff)
                found |= {f"{layers}.{place}.layer_norm.weight": (model,) for place in range(len(attentions) + 1)}
        return dict(sorted(found.items()))

    def trainable(self, adapter: str | None = None) -> Shapes:
        """What a checkpoint holds, sorted by name: of the whole model all but the frozen table; of (IA)^3 the vectors
        that rescale keys, values and what enters the feed-forward's second matrix (Liu et al. 2022), as PEFT calls and
        shapes them."""
        if adapter is None:
            return {name: shape for name, shape in self.shapes.items() if name not in FROZEN[self.frozen_table]}
        found: Shapes = {}
        for name, (rows, *columns) in self.shapes.items():
            if part := _RESCALED.fullmatch(name):
                shape = (rows, 1) if part["out"] else (1, *columns)
                found[PEFT_PREFIX + part["module"] + IA3_SUFFIX] = shape
        return dict(sorted(found.items()))

    def counts(self, adapter: str | None = None) -> tuple[int, int]:
        """P' and F of the paper's storage formula; of (IA)^3 the whole model is frozen."""
        trained = sum(map(math.prod, self.trainable(adapter).values()))
        every = sum(map(math.prod, self.shapes.values()))
        return trained, every if adapter else every - trained


_NOTHING = fields(Architecture)[0].default


def _named(name: str) -> dict[str, Any]:
    short = name.removeprefix("google/")
    if short not in NAMES:
        raise TallmasksError(
            f"params.yaml: architecture: there is no T5 {name!r}{nearest(short, NAMES)}; known: {', '.join(NAMES)}, or "
            "a mapping of T5Config's keys"
        )
    d_model, d_ff, heads, layers = _SIZES[NAMES[short]]
    counts = {"num_heads": heads, "num_layers": layers, "num_decoder_layers": layers}
    return {"vocab_size": 32128, "d_model": d_model, "d_kv": 64, "d_ff": d_ff, **counts}


def place(tensor: str) -> tuple[str, str]:
    """The layer of a tensor, "before", "0", "1", ... of the encoder, "d0", "d1", ... of the decoder, "after", and its
    kind; "other" where no kind is known."""
    name = tensor.removeprefix(PEFT_PREFIX)
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, name)), "other")
    if block := re.match(r"(en|de)coder\.block\.(\d+)\.", name):
        return ("d" if block[1] == "de" else "") + block[2], kind
    return "before" if name.startswith("shared") else "after", kind
