"""Task and benchmark names as the paper spells them."""

TITLES = {
    name.lower(): name
    for name in (
        "Cars", "DTD", "EuroSAT", "GTSRB", "MNIST", "RESISC45", "SUN397", "SVHN",
        "CIFAR100", "STL10", "Flowers102", "OxfordIIITPet", "PCAM", "FER2013",
        "EMNIST", "CIFAR10", "Food101", "FashionMNIST", "RenderedSST2", "KMNIST",
    )
}  # fmt: skip
"""The vision tasks in the paper's order."""

_NLP_TITLES = {
    "qasc": "QASC", "quartz": "QuaRTz", "paws": "PAWS", "story_cloze": "Story Cloze", "wiki_qa": "WikiQA",
    "winogrande": "Winogrande", "wsc": "WSC", "cosmos_qa": "CosmosQA", "quail": "QuAIL", "ropes": "ROPES",
    "social_iqa": "SocialIQA",
}  # fmt: skip


def title(task: str) -> str:
    """The paper's spelling of a task's name; other names are returned unchanged."""
    return {**TITLES, **_NLP_TITLES}.get(task, task)


def benchmark_title(name: str, tasks: int) -> str:
    """A benchmark's display name, such as "8 tasks", "11 NLP tasks" or "animals (3 tasks)"."""
    count = "1 task" if tasks == 1 else f"{tasks} tasks"
    for kind in ("NLP", "QA"):
        if name == f"{tasks}{kind.lower()}":
            return count.replace(" ", f" {kind} ")
    return count if name == f"{tasks}tasks" else f"{name} ({count})"
