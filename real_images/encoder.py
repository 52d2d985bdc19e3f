"""Write DINOv2-small, which a package holds in an ONNX file, as a folder that transformers loads.

`python -m real_images.encoder FILE.onnx FOLDER`; `make real-images` runs it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "image_size": 518,
    "patch_size": 14,
}
PROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_convert_rgb": True,
    "size": {"shortest_edge": 70},
    "crop_size": {"height": 70, "width": 70},
    "resample": 3,  # bicubic
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
SHA256 = "684c245fc715d8d2cbfdfb71c3b48d6ae7b667058dcc01dad5f5aed799e5a161"
"""Of model.safetensors."""
GRAPH = 7  # numbers of fields in the messages of ONNX
NODE, INITIALIZER = 1, 5
INPUT, NODE_NAME = 1, 3
DIMENSION, TENSOR_NAME, RAW = 1, 8, 9


def dinov2(onnx: Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of the backbone in the ONNX file, under the names of the published model.

    The weight of a linear layer is stored transposed, as the second input of the node with the layer's name.  The
    position embeddings are two constants.  There is no mask token, which only pretraining uses: it is zeros.
    """
    (graph,) = _values(memoryview(onnx.read_bytes()), GRAPH)
    stored = dict(map(_tensor, _values(graph, INITIALIZER)))
    tensors = {name.removeprefix("backbone."): values for name, values in stored.items() if name[:9] == "backbone."}
    for node in _values(graph, NODE):
        name = "".join(str(part, "utf-8") for part in _values(node, NODE_NAME))
        inputs = [str(part, "utf-8") for part in _values(node, INPUT)]
        if name.startswith("/backbone/") and len(inputs) == 2 and inputs[1].startswith("onnx::MatMul_"):
            layer = name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            tensors[f"{layer}.weight"] = np.ascontiguousarray(stored[inputs[1]].T)
    positions = [stored["onnx::Concat_1957"], stored["onnx::Reshape_1962"]]
    tensors["embeddings.position_embeddings"] = np.concatenate(positions, axis=1)
    tensors["embeddings.mask_token"] = np.zeros((1, 384), np.float32)
    return tensors


def _tensor(message: memoryview) -> tuple[str, NDArray[np.float32]]:
    (name,), (raw,) = _values(message, TENSOR_NAME), _values(message, RAW)
    return str(name, "utf-8"), np.frombuffer(raw, "<f4").reshape([*_values(message, DIMENSION)])


def _values(message: memoryview, number: int) -> Iterator:
    """The values of one field of a message in the wire format of protocol buffers."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key & 7 == 0:
            value, position = _varint(message, position)
        else:
            size, position = _varint(message, position) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], position)
            part, position = message[position : position + size], position + size
        if key >> 3 == number:
            yield value if key & 7 == 0 else part


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return value, position


def main(onnx: str, folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    content = save(dinov2(Path(onnx)))
    if (found := hashlib.sha256(content).hexdigest()) != SHA256:
        raise SystemExit(f"{onnx}: found weights with sha256 {found}, expected {SHA256}")
    Path(folder, "model.safetensors").write_bytes(content)
    for name, settings in (("config.json", CONFIG), ("preprocessor_config.json", PROCESSOR)):
        Path(folder, name).write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
