"""config.json of a stranger: it takes no time without end, and reaches no network."""

import json

from loopback_hub import loopback_hub
from small_models import made
from tallmasks.vectors.checkpoints import known_tensors
from tallmasks.vectors.checkpoints.opening import open_checkpoint

HOSTILE = [
    {"num_hidden_layers": 10**7},
    {"hidden_size": "x"},
    {"architectures": ["Trainer"]},
    {"model_type": "timm_backbone", "architectures": ["TimmBackbone"], "backbone": "hf-hub:evil/model"},
]


def test_a_configuration_neither_builds_without_end_nor_downloads(tmp_path):
    """A stranger's config.json could keep a command from ending, or download a repository that nobody named."""
    folder = tmp_path / "base"
    made("Dinov2Model").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"use_pretrained_backbone": True}
    with loopback_hub(folder, tmp_path / "cache") as server:
        known_tensors._questions.cache_clear()  # one that knows of this hub
        for change in HOSTILE:
            (folder / "config.json").write_text(json.dumps(config | change))
            one = open_checkpoint(folder)
            assert not known_tensors.known_tensors(one.names, one), change
        known_tensors._questions.cache_clear()
    assert not server.requests
