"""config.json of a stranger: it takes neither time nor memory without end, and reaches no network."""

import json

from loopback_hub import loopback_hub
from small_models import made
from tallmasks.vectors.checkpoints import transformers_models
from tallmasks.vectors.checkpoints.opening import open_checkpoint

HOSTILE = [
    {"num_hidden_layers": 10**7},
    {"num_hidden_layers": 4 * 10**9},
    {"hidden_size": "x"},
    {"architectures": ["Trainer"]},
    {"model_type": "timm_backbone", "architectures": ["TimmBackbone"], "backbone": "hf-hub:evil/model"},
]


def test_a_configuration_builds_no_more_than_the_file_has(tmp_path):
    """A stranger's config.json could fill the memory, never end, or download a repository that nobody named."""
    folder = tmp_path / "base"
    made("Dinov2Model").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"use_pretrained_backbone": True}
    with loopback_hub(folder, tmp_path / "cache") as server:
        transformers_models._questions.cache_clear()  # one that knows of this hub
        for change in HOSTILE:
            (folder / "config.json").write_text(json.dumps(config | change))
            assert transformers_models.library_model(open_checkpoint(folder)) is None, change
        transformers_models._questions.cache_clear()
    assert not server.requests
