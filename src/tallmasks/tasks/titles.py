"""How the paper spells its task names: for labels, and for the orders over names of its sample subset selection."""

TITLES = {
    name.lower(): name
    for name in (
        "Cars", "DTD", "EuroSAT", "GTSRB", "MNIST", "RESISC45", "SUN397", "SVHN",
        "CIFAR100", "STL10", "Flowers102", "OxfordIIITPet", "PCAM", "FER2013",
        "EMNIST", "CIFAR10", "Food101", "FashionMNIST", "RenderedSST2", "KMNIST",
    )
}  # fmt: skip


def title(task: str) -> str:
    """The paper's spelling of a task's name; a task that the paper does not have keeps its own."""
    return TITLES.get(task, task)
