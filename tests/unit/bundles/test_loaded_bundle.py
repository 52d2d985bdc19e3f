"""Models of a bundle as streams of tensors, and bundles in a worker."""

import pickle

import pytest
from test_task_bundle import Everything, weights_of

from tallmasks.bundles.loaded_bundle import load_bundle
from tallmasks.store.errors import TallmasksError
from task_bundles import TASKS, all_same, expected, make


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"), "bfloat16")


def test_a_model_comes_as_a_stream(made):
    """Another server's loader would get other weights than state_dict gives, or learn of a wrong task too late."""
    bundle = load_bundle(made.folder, made.base_file)
    for task in TASKS:
        stream = bundle.named_tensors(task)
        assert iter(stream) is stream
        pairs = list(stream)
        assert [name for name, _ in pairs] == sorted(made.base)
        assert all_same(dict(pairs), expected(made, task))
    with pytest.raises(TallmasksError, match="no task 'mnits'"):
        bundle.named_tensors("mnits")


@pytest.mark.parametrize("given", [True, False])
def test_a_pickled_bundle_is_the_same_bundle(made, given, monkeypatch, tmp_path):
    """A worker, which may be in another folder, would get another base's model, or none."""
    monkeypatch.chdir(made.folder.parent)
    bundle = load_bundle(made.folder.name, made.base_file.name if given else None)
    monkeypatch.chdir(tmp_path)
    bundle.apply_(Everything(made.base), "mnist")
    again = pickle.loads(pickle.dumps(bundle))
    assert all_same(again.state_dict("mnist"), expected(made, "mnist"))


@pytest.mark.parametrize("act", ["apply_", "restore_", "state_dict"])
def test_a_state_dict_is_no_module(made, act):
    """A user would read of an attribute, and not what to do."""
    bundle, state = load_bundle(made.folder, made.base_file), dict(made.base)
    arguments = {"apply_": (state, "mnist"), "restore_": (state,), "state_dict": ("mnist", state)}[act]
    with pytest.raises(TallmasksError, match=r"found a dict; expected a torch.nn.Module. .*bundle.state_dict"):
        getattr(bundle, act)(*arguments)


def test_theta_0_of_a_module_goes_along_with_a_pickled_bundle(made):
    """A worker would take a module that holds a task's weights for theta_0."""
    hidden = made.base_file.rename(made.base_file.with_suffix(".hidden"))
    try:
        bundle, module = load_bundle(made.folder), Everything(made.base)
        bundle.apply_(module, "mnist")
        pickle.loads(pickle.dumps(bundle)).apply_(module, TASKS[1])
        assert all_same(weights_of(module), expected(made, TASKS[1]))
    finally:
        hidden.rename(made.base_file)
