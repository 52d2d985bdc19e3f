"""Images as the image processor of a model's folder prepares them for the network, by transformers.

The settings of a processor are under `preprocess` in a model's entry in params.yaml.  Resized and cropped pixels are
stored once; rescaling and normalisation follow on the device.  Both together return what the folder's own processor
returns, bit for bit.  Processors use torchvision (transformers also has Pillow, whose pixels differ).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tallmasks.errors import TallmasksError, one_line, short
from tallmasks.io.plain_files import read_plain_json
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import TensorInfo, new_tensors
from tallmasks.parallel import parallel

if TYPE_CHECKING:
    import torch

BACKEND = "torchvision"
FILE = "preprocessor_config.json"
_TIMM = "TimmWrapperImageProcessor"  # its settings are in config.json, and it has no separate steps
_EARLY = {"do_resize", "do_center_crop", "do_convert_rgb"}  # steps before the pixels are stored


def has_processor(folder: Path) -> bool:
    return (folder / FILE).is_file() or "pretrained_cfg" in _config(folder)


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings of a folder's image processor, with transformers' defaults.

    Raises TallmasksError if there is none, or transformers cannot use it.
    """
    if not has_processor(folder):
        raise TallmasksError(
            f"{folder}: found no {FILE}; expected the model's image processor, as transformers saves it"
        )
    if not (folder / FILE).is_file():
        config = _config(folder)
        return {"image_processor_type": _TIMM, **{key: config[key] for key in ("pretrained_cfg", "architecture")}}
    content = json.loads(_processor_in(folder).to_json_string())
    return {key: value for key, value in sorted(content.items()) if value is not None}


def _config(folder: Path) -> dict[str, Any]:
    try:
        content = read_plain_json(folder / "config.json")
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _processor_in(folder: Path) -> Any:
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(
            folder, backend=BACKEND, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # ValueError, OSError, or an error of the processor's own validation
        raise TallmasksError(f"{folder / FILE}: transformers cannot use it: {one_line(error)[:200]}") from None


class ImageProcessor:
    """``settings``: see `settings_of`.  Raises TallmasksError if transformers cannot use them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        if settings.get("image_processor_type") == _TIMM:
            from transformers import TimmWrapperImageProcessor

            self._processor: Any = TimmWrapperImageProcessor(settings["pretrained_cfg"], settings["architecture"])
            self._steps: tuple[dict[str, Any], ...] = ()
            return
        with TemporaryFolder() as folder:
            (folder / FILE).write_text(json.dumps(dict(settings)))
            self._processor = _processor_in(folder)
        steps = {key for key in vars(self._processor) if key.startswith("do_") or key == "include_top"}
        self._steps = tuple(dict.fromkeys(some, False) for some in (steps - _EARLY, steps & _EARLY))
        noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (83, 61, 3), np.uint8))
        rest = self.finished(self._resized(noise)[None])
        if not rest.equal(self.inputs([noise])):  # such as DINOv3's, which rescales before it resizes
            self._steps = ()

    def inputs(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """What the processor returns for RGB images, float32 [N, 3, H, W].

        Raises TallmasksError if the images' sizes differ after it.
        """
        return self._run(list(images), {})

    def reduced(self, image: Image.Image) -> NDArray[Any]:
        """What is stored of an image: uint8 [H, W, 3], resized and cropped; float32 [3, H, W], the network's input, if
        a processor cannot do the rest separately."""
        reduced = self._resized(image) if self._steps else self.inputs([image])[0]
        return np.ascontiguousarray(reduced.numpy())

    def _resized(self, image: Image.Image) -> torch.Tensor:
        return self._run([image], self._steps[0])[0].permute(1, 2, 0).round().byte()

    def finished(self, reduced: torch.Tensor) -> torch.Tensor:
        """The network's input, float32 [N, 3, H, W], from what `reduced` returns, stacked; on its device."""
        return reduced if reduced.is_floating_point() else self._run([*reduced.permute(0, 3, 1, 2)], self._steps[1])

    def _run(self, images: list[Any], without: Mapping[str, bool]) -> torch.Tensor:
        try:
            pixels: torch.Tensor = self._processor(images, return_tensors="pt", **without)["pixel_values"]
        except Exception as error:
            raise TallmasksError(f"the image processor cannot use an image: {one_line(error)[:200]}") from None
        return pixels


@functools.lru_cache(maxsize=8)
def _cached(settings: str) -> ImageProcessor:
    return ImageProcessor(json.loads(settings))


def processor_of(settings: Mapping[str, Any]) -> ImageProcessor:
    """An `ImageProcessor`, cached."""
    return _cached(json.dumps(dict(settings), sort_keys=True))


def write_processed(
    images: Iterable[Image.Image],
    labels: NDArray[np.int64],
    settings: Mapping[str, Any],
    output: Path,
    metadata: Mapping[str, str],
    threads: int = 1,
    say: Callable[[str], None] = print,
) -> None:
    """Write examples: `images` as `ImageProcessor.reduced` returns them, [N, ...], and `labels` int64 [N].

    Memory does not depend on the number of images.  Raises TallmasksError if the processor returns images of several
    sizes.
    """
    processor = processor_of(settings)
    rows = _prepared(images, processor, threads)
    first = next(rows)
    infos = {
        "images": TensorInfo("U8" if first.dtype == np.uint8 else "F32", (len(labels), *first.shape)),
        "labels": TensorInfo("I64", labels.shape),
    }
    with new_tensors(output, infos, metadata) as new:
        new.tensors["labels"][:] = labels
        for row, pixels in enumerate(chain([first], rows)):
            if pixels.shape != first.shape or pixels.dtype != first.dtype:
                raise TallmasksError(
                    f"the image processor returns images of several sizes, {short(first.shape)} and "
                    f"{short(pixels.shape)}; expected a processor that returns one, such as one with do_center_crop"
                )
            new.tensors["images"][row] = pixels
            if (row + 1) % 1000 == 0:
                say(f"{row + 1} of {len(labels)} images prepared")


def _prepared(images: Iterable[Image.Image], processor: ImageProcessor, threads: int) -> Iterator[NDArray[Any]]:
    left = iter(images)
    while chunk := list(islice(left, threads)):  # no more, because photographs are large
        yield from parallel(processor.reduced, chunk, threads)
