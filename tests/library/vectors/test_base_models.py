"""Which files have only weights of a base model is known without importing torch."""

from pathlib import Path
from typing import Any

import pytest

from small_models import CLASSES, made
from tallmasks.vectors.checkpoints.base_models import is_base_model
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.transformers_models import library_model

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these

KNOWN = {
    "BartForConditionalGeneration", "GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration",
}  # fmt: skip
"""Classes whose files have no head, or one that is tied to the embedding, under names that the source has."""


@pytest.mark.parametrize("name", CLASSES)
def test_the_source_says_what_the_class_says(name: str, tmp_path: Path) -> None:
    """A head would be compressed like a weight; or every command wait for torch."""
    made(name).save_pretrained(tmp_path)
    one = open_checkpoint(tmp_path)
    known, model = is_base_model(one.config, one.layout.names), library_model(one)
    assert model and known == (name in KNOWN)
    assert not known or not model.inside_and_outside(one.layout.names)[1]


BERT = {"model_type": "bert", "architectures": ["BertModel"]}
CLASSIFIER = {**BERT, "architectures": ["BertForSequenceClassification"]}
LAYER = "encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (BERT, [LAYER, "embeddings.LayerNorm.gamma", "encoder.layer.11.output.dense.bias", "pooler.dense.weight"]),
        (CLASSIFIER, [LAYER, "pooler.dense.weight"]),
        (CLASSIFIER, [f"bert.{LAYER}", "bert.pooler.dense.weight"]),
    ],
)
def test_weights_of_base_models_are_known(config: dict[str, Any], names: list[str]) -> None:
    """Compressing models of 90 MB would take twice the time."""
    assert is_base_model(config, names)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        *((BERT, [LAYER, name]) for name in (
            "linear.weight", "classifier.weight", "pooler.classifier.weight", "encoder.layer.0.adapter.weight",
            "bert.pooler.dense.weight", f"0.auto_model.{LAYER}", "weight", "",
        )),
        (CLASSIFIER, [f"bert.{LAYER}", "classifier.weight"]),
        ({**BERT, "architectures": ["HF_ColBERT"]}, [LAYER]),
        ({**BERT, "architectures": "BertModel"}, [LAYER]),
        ({**BERT, "architectures": [None]}, [LAYER]),
        ({**BERT, "model_type": ["bert"]}, [LAYER]),
        ({**BERT, "model_type": "../models/bert"}, [LAYER]),
        ({}, [LAYER]),
        # vectors of a codebook are a buffer
        ({"model_type": "encodec", "architectures": ["EncodecModel"]}, ["quantizer.layers.0.codebook.embed"]),
    ],
)  # fmt: skip
def test_other_tensors_are_not_taken_for_weights_of_base_models(config: dict[str, Any], names: list[str]) -> None:
    """A head in a folder whose configuration names a base model would be compressed: ColBERT's, for example."""
    assert not is_base_model(config, names)
