"""The paper's 20 vision tasks: where their data are, what their classes are called, how CLIP is asked for them.

Class names and templates are those of the paper's code (`nik-dim/tall_masks`), letter for letter, since a head is made
from them: Food101 and CIFAR100 keep their underscores, FER2013 the brackets that its lists of synonyms were printed
with.  Class i of `classes` is label i of the dataset on the hub.  Three places where data and paper are not what one
expects:

- FER2013: the paper's code lists the classes as Kaggle's file numbers them, but the dataset it reads
  (`Jeneral/fer-2013`) numbers them alphabetically, so there "neutral", "sad" and "surprise" met the prompts of "sad",
  "surprised" and "neutral".  Here every class has its own prompt; the wording "published" keeps the paper's pairing.
- EMNIST is the split `digits`, as NIST stores it: transposed, like torchvision's.  No commit of its repository is known
  to us, so its files are held to what NIST says of them: so many images, as many of every digit.
- DTD: the paper's training folder holds 5,640 images, all there are, test images included (its accuracies are
  multiples of 1/564 on validation data).  Here train has 3,760 images and test the other 1,880.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal, get_args

from tallmasks.tasks.dataset_files import HubFiles
from tallmasks.tasks.task import Task

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
VALIDATION_SHARE, LARGEST_VALIDATION = 0.1, 5000  # of the training set; the paper's


@dataclass(frozen=True)
class DatasetSource(HubFiles):
    """Where a dataset of images lies on the Hugging Face hub.

    The files are Parquet, WebDataset tars (`<key>.<image format>` and `<key>.cls`) or IDX files (gzipped, images before
    labels).

    Attributes:
        image: The column of the images.
        label: The column of the labels.
    """

    image: str = "image"
    label: str = "label"


@dataclass(frozen=True)
class VisionTask(Task):
    """A task with a dataset.

    Attributes:
        source: The dataset on the hub.
        counts: Images in the dataset's own train and test split.
        aliases: Other names of classes, by label: in the files' metadata or as folder names.
        wordings: Class names that ready-made checkpoints were fine-tuned with, by where these come from ("published",
            "fusionbench"), where they differ from `classes`.
        balanced: Whether every class has as many images as any other.
    """

    source: DatasetSource
    counts: Mapping[str, int]
    aliases: Mapping[int, str] = field(default_factory=dict)
    wordings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    balanced: bool = False

    @property
    def data_recipe(self) -> dict[str, Any]:
        """What decides the content of the examples, apart from what the dataset's own files hold."""
        return {**asdict(self.source), "classes": list(self.classes)}

    def worded_for(self, checkpoints: str) -> Task:
        """The task with the class names of a head that fits checkpoints from `checkpoints`."""
        return replace(self, classes=self.wordings.get(checkpoints, self.classes))


def own_task(name: str, classes: Sequence[str], templates: Sequence[str] = ()) -> VisionTask:
    """A task that params.yaml describes, whose data lie in a local folder."""
    files = {"train": "train-*.parquet", "test": "test-*.parquet"}
    return VisionTask(name, tuple(classes), tuple(templates), "a task of one's own", DatasetSource("", files, None), {})


def task_of(params: Mapping[str, Any]) -> VisionTask:
    """The task whose examples a recipe with these parameters is of."""
    name, data = params["task"], params["data"]
    if name not in TASKS:
        return own_task(name, data["classes"])
    known = TASKS[name]
    return replace(known, source=replace(known.source, revision=data.get("revision", known.source.revision)))


def _class_names(task: str) -> tuple[str, ...]:
    text = (files("tallmasks.tasks.vision") / "class_names" / f"{task}.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def _parquet(
    hub: str, revision: str | None, folder: str = "data", test: str = "test", image: str = "image", label: str = "label"
) -> DatasetSource:
    pattern = {"train": f"{folder}/train-*.parquet", "test": f"{folder}/{test}-*.parquet"}
    return DatasetSource(hub, pattern, revision, image, label)


def _task(
    name: str,
    source: DatasetSource,
    train: int,
    test: int,
    templates: tuple[str, ...],
    description: str,
    aliases: Mapping[int, str] | None = None,
    wordings: Mapping[str, tuple[str, ...]] | None = None,
    balanced: bool = False,
) -> VisionTask:
    return VisionTask(
        name=name,
        classes=_class_names(name),
        templates=templates,
        description=description,
        source=source,
        counts={"train": train, "test": test},
        aliases=aliases or {},
        wordings=wordings or {},
        balanced=balanced,
    )


_OBJECT = ("a photo of a {}.", "a photo of the {}.")
_NUMBER = ('a photo of the number: "{}".',)
_CIFAR = tuple(
    template.format(article, "{}")
    for article in ("a", "the")
    for template in (
        "a photo of {} {}.",
        "a blurry photo of {} {}.",
        "a black and white photo of {} {}.",
        "a low contrast photo of {} {}.",
        "a high contrast photo of {} {}.",
        "a bad photo of {} {}.",
        "a good photo of {} {}.",
        "a photo of {} small {}.",
        "a photo of {} big {}.",
    )
)
_RESISC45 = tuple(
    f"{kind} {medium} of {article}{{}}."
    for article in ("", "a ", "the ")
    for medium in ("imagery", "photo", "view")
    for kind in ("satellite", "aerial")
)
_EMOTIONS = ("angry", "disgust", "fear", "happy", "neutral", "sad", "surprise")
_TFDS_FLOWERS = {15: "globe-flower", 59: "pink-yellow dahlia?", 92: "ball moss"}
_HIRAGANA = tuple("おきすつなはまやれを")


def _except(task: str, others: Mapping[int, str]) -> tuple[str, ...]:
    """The class names of a task with some of them replaced, by label."""
    return tuple(others.get(label, name) for label, name in enumerate(_class_names(task)))


_ALL = (
    _task(
        "cars",
        _parquet("tanganke/stanford_cars", "9abf6cf7d6dfa7b95152a0d6e791ea9435b47a40"),
        8144,
        8041,
        (
            *_OBJECT,
            "a photo of my {}.",
            "i love my {}!",
            "a photo of my dirty {}.",
            "a photo of my clean {}.",
            "a photo of my new {}.",
            "a photo of my old {}.",
        ),
        "makes and models of cars",
    ),
    _task(
        "dtd",
        _parquet("tanganke/dtd", "d2afa97d9f335b1a6b3b09c637aef667f98f966e"),
        3760,
        1880,
        tuple(
            f"a photo of {article} {{}} {noun}."
            for article in ("a", "the")
            for noun in ("texture", "pattern", "thing", "object")
        ),
        "textures",
    ),
    _task(
        "eurosat",
        # the pull request with which main became Parquet: main's own hash is not known to us, its data files are these
        _parquet("tanganke/eurosat", "1c6fda2bcfa81062357a725574e1574169bcded2"),
        21600,
        2700,
        tuple(f"a centered satellite photo of {article}{{}}." for article in ("", "a ", "the ")),
        "land use from Sentinel-2",
        aliases=dict(
            enumerate(
                (
                    "AnnualCrop",
                    "Forest",
                    "HerbaceousVegetation",
                    "Highway",
                    "Industrial",
                    "Pasture",
                    "PermanentCrop",
                    "Residential",
                    "River",
                    "SeaLake",
                )
            )
        ),
    ),
    _task(
        "gtsrb",
        _parquet("tanganke/gtsrb", "ea889fff70dda7b09e94a4b207dded438deca549"),
        26640,
        12630,
        tuple(f'a {kind} photo of a "{{}}" traffic sign.' for kind in ("zoomed in", "centered", "close up")),
        "German traffic signs",
    ),
    _task(
        "mnist",
        _parquet("ylecun/mnist", "77f3279092a1c1579b2250db8eafed0ad422088c", folder="mnist"),
        60000,
        10000,
        _NUMBER,
        "handwritten digits",
    ),
    _task(
        "resisc45",
        _parquet("tanganke/resisc45", "5c484982a196dcb501b8e79c6cf4680dc6f2ccdf"),
        18900,
        6300,
        _RESISC45,
        "scenes from the air",
    ),
    _task(
        "sun397",
        _parquet("tanganke/sun397", "9c4afd6174afa3974f209a0ef099dbbe244dfd27"),
        19850,
        19850,
        _OBJECT,
        "scenes",
    ),
    _task(
        "svhn",
        _parquet("ufldl-stanford/svhn", "f9e1717d73324ebbc1ece84267ccd80d0aca0690", folder="cropped_digits"),
        73257,
        26032,
        _NUMBER,
        "house numbers",
    ),
    _task(
        "cifar100",
        _parquet(
            "uoft-cs/cifar100",
            "aadb3af77e9048adbea6b47c21a81e47dd092ae5",
            folder="cifar100",
            image="img",
            label="fine_label",
        ),
        50000,
        10000,
        _CIFAR,
        "objects, 100 classes",
        aliases={26: "cra"},
        wordings={"fusionbench": _except("cifar100", {26: "cra"})},
    ),
    _task(
        "stl10",
        _parquet("tanganke/stl10", "49ae7f94508f7feae62baf836db284306eab0b0f"),
        5000,
        8000,
        _OBJECT,
        "objects",
    ),
    _task(
        "flowers102",
        _parquet("dpdl-benchmark/oxford_flowers102", "544b55c9af69a05742ead7571cd7ae23cfcd758b"),
        1020,
        6149,
        ("a photo of a {}, a type of flower.",),
        "flowers",
        aliases=_TFDS_FLOWERS,
        wordings={"fusionbench": _except("flowers102", _TFDS_FLOWERS)},
    ),
    _task(
        "oxfordiiitpet",
        _parquet("timm/oxford-iiit-pet", "10b688881011725fa2fa3d856a47536c9a7e6968"),
        3680,
        3669,
        ("a photo of a {}, a type of pet.",),
        "breeds of cats and dogs",
        wordings={
            "fusionbench": tuple(name.lower().replace(" ", "_") for name in _class_names("oxfordiiitpet")),
        },
    ),
    _task(
        "pcam",
        _parquet("1aurent/PatchCamelyon", "94a968413b9ef01b83525a98de519a8832acac06"),
        262144,
        32768,
        ("this is a photo of {}",),
        "tissue with and without metastases",
        aliases={0: "normal", 1: "tumor"},
    ),
    _task(
        "fer2013",
        DatasetSource(
            "clip-benchmark/wds_fer2013",
            {"train": "train/*.tar", "test": "test/*.tar"},
            "9399b94167523fe5c40b3a857e24ef931ee4395b",
        ),
        28709,
        7178,
        (
            "a photo of a {} looking face.",
            "a photo of a face showing the emotion: {}.",
            "a photo of a face looking {}.",
            "a face that looks {}.",
            "they look {}.",
            "look at how {} they are.",
        ),
        "facial expressions",
        aliases=dict(enumerate(_EMOTIONS)),
        wordings={
            "published": tuple(_class_names("fer2013")[i] for i in (0, 1, 2, 3, 5, 6, 4)),
            "fusionbench": ("angry", "disgusted", "fearful", "happy", "neutral", "sad", "surprised"),
        },
    ),
    _task(
        "emnist",
        DatasetSource(
            "Royc30ne/emnist-digits",
            {"train": "emnist-digits-train-*-ubyte.gz", "test": "emnist-digits-test-*-ubyte.gz"},
            None,
        ),
        240000,
        40000,
        ('a photo of the digit character: "{}".',),
        "handwritten digits of other writers, transposed",
        balanced=True,
    ),
    _task(
        "cifar10",
        _parquet("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2", folder="plain_text", image="img"),
        50000,
        10000,
        _CIFAR,
        "objects",
    ),
    _task(
        "food101",
        _parquet("ethz/food101", "e06acf2a88084f04bce4d4a525165d68e0a36c38", test="validation"),
        75750,
        25250,
        ("a photo of {}, a type of food.",),
        "dishes",
        wordings={
            "fusionbench": tuple(
                name.replace("_", " ") for name in _except("food101", {16: "cheese_plate", 17: "cheesecake"})
            )
        },
    ),
    _task(
        "fashionmnist",
        _parquet("zalando-datasets/fashion_mnist", "531be5e2ccc9dba0c201ad3ae567a4f3d16ecdd2", folder="fashion_mnist"),
        60000,
        10000,
        _OBJECT,
        "clothes",
        wordings={"fusionbench": _except("fashionmnist", {0: "T - shirt / top"})},
    ),
    _task(
        "renderedsst2",
        DatasetSource(
            "clip-benchmark/wds_renderedsst2",
            {"train": "train/*.tar", "test": "test/*.tar"},
            "66b9a461eda025201dd147e5f390f5984c33643a",
        ),
        6920,
        1821,
        ("a {} review of a movie.",),
        "sentences of film reviews, rendered as images",
    ),
    _task(
        "kmnist",
        _parquet("tanganke/kmnist", "6b345bef535b98131f1d945d552906452d19b2f9", folder="kmnist"),
        60000,
        10000,
        ("a photo of the character {}.",),
        "handwritten hiragana",
        aliases=dict(enumerate(_HIRAGANA)),
        wordings={"fusionbench": _HIRAGANA},
    ),
)
TASKS: Mapping[str, VisionTask] = {task.name: task for task in _ALL}  # the paper's order: 8, then 6 more, then 6 more
