"""The keys, types and bounds of params.yaml; docs/params.md is generated from it."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from typing_extensions import TypeAliasType

from reproduction.tasks.own_data import FRACTIONS
from tallmasks.errors import short
from tallmasks.io.validation import Section, matching, optional
from tallmasks.methods.contract import Group


def _different(values: list[Any]) -> list[Any]:
    if repeated := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"{short(repeated[0])} listed twice; list each once")
    return values


def _ascending(values: list[float]) -> list[float]:
    if values != sorted(set(values)):
        raise ValueError(f"found {short(values)}, expected different numbers in ascending order, such as [0.2, 0.3]")
    return values


def _leave_some(fractions: dict[str, float]) -> dict[str, float]:
    if sum({**FRACTIONS, **fractions}.values()) >= 1:
        raise ValueError(f"found {short(fractions)}, expected a sum below 1, so that training examples are left")
    return fractions


WholeNumber = Annotated[int, Field(ge=1)]
# used in file names, which are limited to 255 bytes
NAME = "letters, digits, dots, dashes and underscores, at most 100, with a letter or a digit first"
Name = Annotated[str, matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", NAME, max_length=100)]
Path = Annotated[str, matching(r"^[^\x00-\x1f]+$", "a path", min_length=1, max_length=4000)]
Different = AfterValidator(_different)
Texts = Annotated[list[str], Different, Field(min_length=1, description="no duplicates")]
Names = Annotated[Literal["all"] | Texts, Field(description='"all" or a list of names')]
Option = dict[str, float | str | bool]
Row = str | Annotated[dict[str, Annotated[Option, Field(min_length=1)]], Field(min_length=1, max_length=1)]
Grid = Annotated[  # mask files store the level as one byte
    list[Annotated[float, Field(ge=0, le=1000)]],
    AfterValidator(_ascending),
    Field(min_length=1, max_length=255, description="different numbers in ascending order"),
]
SplitImages = dict[Literal["validation", "test"], WholeNumber]
Warmup = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]  # numpy's RandomState takes 32 bits
Positive = Annotated[float, Field(gt=0)]
Strength = Annotated[float, Field(ge=0)]
Precision = Annotated[
    Literal["float32", "tf32", "bfloat16"],
    Field(description="precision of matrix products; weights stay float32; on a CPU tf32 means float32"),
]
Repository = Annotated[str, matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$", "organisation/name")]
Commit = Annotated[str, matching("^[0-9a-f]{40}$", "a full commit hash")]
Sha256 = Annotated[str, matching("^[0-9a-f]{64}$", "sha256 of the file")]
Registered = Annotated[str, matching(r"^[A-Za-z_][A-Za-z0-9_.]*$", "a name", max_length=200)]
Wording = Annotated[Literal["ours", "published", "fusionbench"], Field(description="class names")]
Origin = Annotated[Path, Field(description="finetune, published, fusionbench, or a folder of checkpoints")]
AUGMENTATION = "crop (open_clip's training transform), or ranges of random changes"
Column = Annotated[str, Field(min_length=1)]
Fractions = Annotated[
    dict[Literal["validation", "test"], Annotated[float, Field(gt=0, lt=1)]], AfterValidator(_leave_some)
]
Prompt = Annotated[str, matching(r"^[^{}]*\{\}[^{}]*$", "a prompt with one {} for the class name")]

Setting = TypeAliasType("Setting", "float | str | bool | list[Setting] | dict[str, Setting] | None")
"""A value of a network's configuration."""


class Grids(Section):
    scaling_coefficient: Grid = Field(description="values of alpha to try, in ascending order")
    mask_lambda: Grid = Field(description="values of lambda to try, in ascending order")


class Statistics(Section):
    examples: WholeNumber = Field(description="training examples per task")


class Subsets(Section):
    orders: Annotated[Names, Field(description="task orders")]
    methods: Texts


class Paper(Section):
    benchmarks: Names
    subsets: Subsets


class Data(Section):
    """either path (a folder) or revision (a commit)"""

    path: Path = optional()
    revision: Commit = optional()

    @model_validator(mode="after")
    def _one(self) -> Data:
        if len(self.model_fields_set) != 1:
            found = " and ".join(self.model_fields_set) or "neither"
            raise ValueError(f"found {found}, expected one of path (a folder) and revision (a commit)")
        return self


class OwnTexts(Section):
    """a file with labelled texts"""

    files: Path = Field(description="a .csv, .tsv, .jsonl or .parquet file")
    text: Column | Annotated[list[Column], Different, Field(min_length=1, max_length=2)] = Field(
        description="the column of the texts, or the two columns of pairs of texts"
    )
    label: Column
    split: Column = optional("a column with train, validation and test; default: fractions of every class")
    fractions: Fractions = optional("default: {validation: 0.1, test: 0.2}")
    seed: Seed = optional("of the fractions; default: 0")
    classes: Annotated[list[Column], Different, Field(min_length=2)] = optional(
        "the labels in the order of a trained head; default: sorted"
    )
    templates: Annotated[list[Prompt], Field(min_length=1)] = optional(
        "prompts for heads of class names; {} is the label; default: A text about {}."
    )


class OwnImages(Section):
    """labelled images"""

    images: Path = Field(
        description="a folder with a folder per class, or a .csv, .tsv, .jsonl or .parquet file with images or paths"
    )
    image: Column = optional("the column of the images or paths; default: image, or file_name for paths")
    label: Column = optional("default: label")
    split: Column = optional("a column with train, validation and test; default: fractions of every class")
    fractions: Fractions = optional("default: {validation: 0.1, test: 0.2}")
    seed: Seed = optional("of the fractions; default: 0")
    classes: Annotated[list[Column], Different, Field(min_length=2)] = optional(
        "the class names in the order of a trained head; default: sorted"
    )


class OwnVisionTask(Section):
    path: Path
    classes: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Different,
        Field(min_length=2, description="at least two distinct class names in label order"),
    ]
    templates: Annotated[
        list[Prompt], Field(min_length=1, description="{} is the class name, as in 'a photo of a {}.'")
    ]


class Hub(Section):
    hub: Repository
    file: str = optional("default: open_clip's usual file names")
    revision: str = Field(description="a commit")
    sha256: Sha256 = optional()
    local: Path = optional("a folder with these files, used instead of the hub if it exists")


class Tagged(Section):
    tag: str = Field(description="one of open_clip's pretrained tags for this architecture")
    revision: str = optional()
    sha256: Sha256 = optional()


def _data(value: Any) -> str:
    if not isinstance(value, dict):
        return "Data"
    return "OwnImages" if "images" in value else "OwnTexts" if "files" in value else "Data"


def _pretrained(value: Any) -> str:
    return ("Tagged" if "tag" in value else "Hub") if isinstance(value, dict) else "Path"


class ImagePreparation(Section):
    """preprocessing of images, for clip"""

    size: WholeNumber
    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[Positive], Field(min_length=3, max_length=3)]


def _preprocess(value: Any) -> str:
    return "Processor" if isinstance(value, dict) and "image_processor_type" in value else "ImagePreparation"


class Checkpoints(Section):
    source: Origin
    revision: str = optional("commit of the hub repository")
    path: Path = optional("a local copy of the hub files")
    tasks: dict[str, Origin] = optional("another source for some tasks")


class AnswerScoring(Section):
    """how answers are scored"""

    length_normalized: bool = optional("mean instead of sum of the tokens' log-probabilities")
    free_answers: Literal["exact_match", "f1", "mean"] = optional("score of generated answers")
    max_input_tokens: Annotated[int, Field(ge=2)] = optional()
    max_new_tokens: WholeNumber = optional()
    cosine_scale: Positive = optional("frozen heads of classifiers: factor of the cosines")


class EvaluationSettings(Section):
    batch_size: WholeNumber
    precision: Precision


class NumbersOfExamples(Section):
    """number of examples per split; text tasks: the maximum (default: all)"""

    seed: Seed = optional()
    train: WholeNumber = optional()
    validation: WholeNumber = optional()
    test: WholeNumber = optional()


class Changes(Section):
    """random changes of an image"""

    rotation: Strength = Field(description="degrees")
    scale: Annotated[float, Field(ge=0, le=1)]
    shift: Strength = Field(description="fraction of half the side")
    brightness: Strength
    noise: Strength


class Finetuning(Section):
    iterations: WholeNumber
    batch_size: WholeNumber
    schedule: Literal["cosine", "constant"] = optional("learning-rate schedule after the warm-up")
    learning_rate: Positive
    warmup_iterations: Warmup = optional()
    weight_decay: Strength
    epsilon: Positive
    clip_norm: Positive = optional()
    precision: Precision = optional()
    validate_every: WholeNumber = optional("steps between validations; the best validated weights are kept")
    patience: WholeNumber = optional("stop after this many validations without improvement")
    augmentation: Literal["crop"] | Changes = optional(AUGMENTATION)

    @model_validator(mode="after")
    def _limits(self) -> Finetuning:
        if (self.warmup_iterations or 0) > self.iterations:
            raise ValueError(
                f"warmup_iterations: found {self.warmup_iterations}, expected at most iterations, {self.iterations}"
            )
        if self.patience and not self.validate_every:
            raise ValueError(
                "patience: it counts validations, but validate_every (steps between validations) is missing; add it, "
                "or remove patience"
            )
        return self


class ClipFinetuning(Finetuning):
    warmup_iterations: Warmup
    clip_norm: Positive
    augmentation: Literal["crop"] | Changes = Field(description=AUGMENTATION)


class StepResources(Section):
    threads: WholeNumber
    gpu: Annotated[int, Field(ge=0)]
    mem_mb: WholeNumber = Field(description="megabytes")
    runtime: WholeNumber = Field(description="minutes")


class CpuResources(StepResources):
    gpu: Literal[0] = Field(description="these steps use no GPU")


class FinetuningResources(StepResources):
    micro_batch_size: WholeNumber = optional("most examples per pass; halved if GPU memory is too small")


class Resources(Section):
    cpu: CpuResources
    one_task: StepResources = Field(description="heads, and evaluations of one model on one task")
    evaluation: StepResources
    finetuning: FinetuningResources
    jobs_per_gpu: Literal[1, 2, 4] = optional("jobs that share one GPU of this machine; default: 1")


class UnseenTasks(Section):
    """merge some tasks and evaluate the result on others"""

    merge: Texts
    evaluate: Texts


Benchmark = Texts | UnseenTasks


class ModelEntry(Section):
    family: Annotated[
        Registered,
        Field(description="clip, t5, text_classifier, image_classifier, or a Python module with another family"),
    ]
    tasks: Annotated[Registered, Field(description="vision, text, or a Python module with another catalogue")]
    pretrained: Annotated[
        Annotated[Path, Tag("Path")] | Annotated[Hub, Tag("Hub")] | Annotated[Tagged, Tag("Tagged")],
        Discriminator(_pretrained),
    ] = Field(description="a file of weights, or its location on the hub")
    architecture: str | dict[str, Setting] = Field(description="the network, in the form that the family expects")
    preprocess: Annotated[
        Annotated[ImagePreparation, Tag("ImagePreparation")]
        | Annotated[dict[str, Setting], Tag("Processor"), Field(description="a preprocessor_config.json")],
        Discriminator(_preprocess),
    ] = optional("image size and normalisation; for image_classifier the content of a preprocessor_config.json")
    checkpoints: Origin | Checkpoints = optional("source of the fine-tuned models; default: finetune")
    wording: Wording | dict[str, Wording] = optional(
        "class names of the zero-shot heads, for all tasks or by task; default: as for the fine-tuned models"
    )
    heads: Literal["class_names", "class_means", "trained"] = optional(
        "classifiers: frozen heads, of class names (texts) or of the class means of training images; or trained ones"
    )
    adapter: Literal["ia3"] = optional("fine-tune this adapter instead of the whole network")
    scoring: AnswerScoring = optional()
    evaluation: EvaluationSettings
    examples: NumbersOfExamples = optional()
    templates: (
        Literal["all"]
        | Annotated[list[Annotated[int, Field(ge=0, le=99)]], Different, Field(min_length=1, max_length=100)]
    ) = optional("numbers of the prompts for text tasks")
    finetuning: Finetuning
    pretraining: dict[str, Setting] = optional("settings that produced the weights shipped with the project")
    benchmarks: dict[Name, Benchmark] = optional(
        "for this model only: more benchmarks, or replacements of those with the same name"
    )
    grids: dict[Literal["scaling_coefficient", "mask_lambda"], Grid] = optional(
        "scaling_coefficient, mask_lambda; override the grids of all models"
    )
    sweeps: dict[Literal["thresholds", "subsets"], SplitImages] = optional(
        "thresholds (figures 6 and 7), subsets (figure 5): examples per plotted value, over all tasks, by split"
    )
    resources: Resources

    @model_validator(mode="after")
    def _images(self) -> ModelEntry:
        if self.tasks == "vision" and self.preprocess is None:
            raise ValueError("preprocess: vision tasks need the size, mean and std of their images; add it")
        return self


class ClipEntry(ModelEntry):
    finetuning: ClipFinetuning


def _model(value: Any) -> str:
    return "ClipEntry" if isinstance(value, dict) and value.get("family") == "clip" else "ModelEntry"


class ParamsFile(Section):
    build: list[Name] = Field(description="models to build if no target is named")
    benchmarks: dict[Name, Benchmark] = Field(
        min_length=1,
        description="lists of tasks; or {merge: [...], evaluate: [...]}, for methods with one model for all tasks",
    )
    methods: Group | Annotated[list[Row], Field(min_length=1)] = Field(
        description="rows of every table; a name can have options, such as {ties: {keep: 0.1}}"
    )
    bundle: Row = optional("method of bundles, with or without options; default: stochastic_rounding")
    grids: Grids
    kept_fractions_of: Literal["parameters", "trainable"] = Field(
        description="TIES and magnitude masking keep a fraction of these"
    )
    statistics: Statistics = optional("for RegMean, ESM and Fisher merging")
    seeds: Annotated[
        list[Seed], Different, Field(min_length=1, max_length=1000, description="for fine-tuning; no duplicates")
    ]
    paper: Paper = Field(description="contents of figures and tables")
    data: dict[
        Name,
        Annotated[
            Annotated[Data, Tag("Data")]
            | Annotated[OwnTexts, Tag("OwnTexts")]
            | Annotated[OwnImages, Tag("OwnImages")],
            Discriminator(_data),
        ],
    ] = optional("per task: a local folder, another commit of the hub repository, or your own labelled texts or images")
    vision_tasks: dict[Name, OwnVisionTask] = optional("your own vision tasks")
    models: dict[
        Name,
        Annotated[
            Annotated[ClipEntry, Tag("ClipEntry")] | Annotated[ModelEntry, Tag("ModelEntry")], Discriminator(_model)
        ],
    ] = Field(min_length=1)
