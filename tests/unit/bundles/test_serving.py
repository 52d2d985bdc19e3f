"""A module that threads take turns with, requests by task, models as streams of tensors, bundles in a worker."""

import pickle
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from test_task_bundle import Everything, weights_of

from conftest import ROOT
from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.loaded_bundle import load_bundle
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.store.errors import TallmasksError
from task_bundles import TASKS, all_same, expected, make


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"), "bfloat16")


def forward(module):
    """What a forward sees of the weights."""
    return {name: tensor.detach().clone() for name, tensor in weights_of(module).items()}


def test_only_a_forward_in_a_block_never_sees_the_weights_of_two_tasks(made, monkeypatch):
    """A server's answer would be that of no model; or the documents would promise what only a block gives."""
    bundle, module = load_bundle(made.folder, made.base_file), Everything(made.base)
    half_way, go_on = threading.Event(), threading.Event()
    fill = TaskWeights.fill

    def slow_fill(weights, name, *arguments):
        if weights.task == TASKS[1] and name == "wide":
            half_way.set()
            assert go_on.wait(60)
        fill(weights, name, *arguments)

    def answer(task):
        with bundle.switched(module, task):
            return forward(module)

    answer(TASKS[0])
    monkeypatch.setattr(TaskWeights, "fill", slow_fill)
    with ThreadPoolExecutor(2) as pool:
        switching = pool.submit(answer, TASKS[1])
        assert half_way.wait(60)
        bare = forward(module)
        in_a_block = pool.submit(answer, TASKS[0])
        go_on.set()
        assert all_same(switching.result(), expected(made, TASKS[1]))
        assert all_same(in_a_block.result(), expected(made, TASKS[0]))
    assert not any(all_same(bare, expected(made, task)) for task in TASKS)


def test_threads_take_turns(made):
    """Some of many answers would be another task's."""
    bundle, module = load_bundle(made.folder, made.base_file), Everything(made.base)

    def right(number):
        task = TASKS[number % 3]
        with bundle.switched(module, task):
            return all_same(forward(module), expected(made, task))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(60)))


def test_a_module_that_holds_the_task_is_not_written_again(made):
    """A server with one busy task would switch for every request; or a changed weight would stay in an answer."""
    bundle, module = load_bundle(made.folder, made.base_file), Everything(made.base)

    def versions():
        with bundle.switched(module, "mnist"):
            assert all_same(forward(module), expected(made, "mnist"))
        return module.wide._version

    assert versions() == versions()
    changes = (
        lambda: bundle.restore_(module),
        lambda: module.load_state_dict({**module.state_dict(), "wide": torch.ones(9, 8)}),
        lambda: setattr(module, "wide", torch.nn.Parameter(torch.ones(9, 8))),
        lambda: load_bundle(made.folder, made.base_file).apply_(module, TASKS[1]),
    )
    for change in changes:
        change()
        assert not all_same(forward(module), expected(made, "mnist"))
        versions()
    with torch.inference_mode():
        module = Everything(made.base)
        for task in (*TASKS, *TASKS):
            with bundle.switched(module, task):
                assert all_same(forward(module), expected(made, task))


def test_a_block_in_a_block_is_refused(made):
    """After the inner block the outer one would go on with the inner one's weights."""
    bundle, module = load_bundle(made.folder, made.base_file), Everything(made.base)
    with bundle.switched(module, "mnist"):
        with pytest.raises(TallmasksError, match="stands in another block"), bundle.switched(module, TASKS[1]):
            pass
        assert all_same(forward(module), expected(made, "mnist"))
    with pytest.raises(TallmasksError, match="no task 'mnits'"), bundle.switched(module, "mnits"):
        pass
    with bundle.switched(module, TASKS[1]):
        assert all_same(forward(module), expected(made, TASKS[1]))


def test_requests_are_grouped_by_task(made):
    """A server would switch for every request, or give an answer to another request."""
    bundle, module = load_bundle(made.folder, made.base_file), Everything(made.base)
    requests = [(TASKS[number % 3], number) for number in range(6)]
    assert bundle.grouped(requests) == [(TASKS[0], [0, 3]), (TASKS[1], [1, 4]), (TASKS[2], [2, 5])]
    with bundle.switched(module, TASKS[2]):
        pass
    assert [task for task, _ in bundle.grouped(requests)] == [TASKS[2], TASKS[0], TASKS[1]]
    assert bundle.grouped([]) == []
    with pytest.raises(TallmasksError, match="no task 'mnits'; did you mean 'mnist'"):
        bundle.grouped([("mnits", 0)])


def test_a_task_is_read_ahead_while_another_is_switched_to(made, monkeypatch):
    """The first request for a task would wait for its download; or all others would wait too; or an error be lost."""
    may_read, checked, files = threading.Event(), BundleParts._checked, []

    def slowly(parts, name):
        files.append(name)
        assert name != mnist or may_read.wait(60)
        return checked(parts, name)

    monkeypatch.setattr(BundleParts, "_checked", slowly)
    bundle, module = load_bundle(made.folder, made.base_file), Everything(made.base)
    mnist = bundle.manifest.task_files["mnist"]
    reading = bundle.read_ahead("mnist")
    bundle.apply_(module, TASKS[1])
    assert reading.is_alive() and all_same(weights_of(module), expected(made, TASKS[1]))
    may_read.set()
    reading.join()
    bundle.apply_(module, "mnist")
    assert files.count(mnist) == 1 and all_same(weights_of(module), expected(made, "mnist"))


def test_what_goes_wrong_ahead_is_said_by_the_switch(made, tmp_path):
    """A server would crash in a thread, or never say which file is damaged."""
    folder = Path(shutil.copytree(made.folder, tmp_path / "bundle"))
    bundle = load_bundle(folder, made.base_file)
    (folder / bundle.manifest.task_files["mnist"]).write_bytes(b"cut")
    bundle.read_ahead("mnist").join()
    with pytest.raises(TallmasksError, match="has 3 bytes"):
        bundle.apply_(Everything(made.base), "mnist")


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
def test_a_pickled_bundle_is_the_same_bundle(made, given):
    """Who hands a bundle to a worker would get another base's model."""
    bundle = load_bundle(made.folder, made.base_file if given else None)
    bundle.apply_(Everything(made.base), "mnist")
    again = pickle.loads(pickle.dumps(bundle))
    assert all_same(again.state_dict("mnist"), expected(made, "mnist"))


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


def test_the_block_of_the_page_answers_every_request_by_its_task(made):
    """A reader would copy a loop that gives other models' answers."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/bundles.md").read_text(), re.M | re.S)
    module, answered = Everything(made.base), []
    module.forward = lambda texts: answered.append((texts, forward(module)))
    requests = [(TASKS[number % 3], TASKS[number % 3]) for number in range(6)]
    names = {"bundle": load_bundle(made.folder), "model": module, "tokenizer": list, "requests": requests}
    exec(block, names)
    assert [texts for texts, _ in answered] == [[task] * 2 for task in TASKS]
    assert all(all_same(weights, expected(made, texts[0])) for texts, weights in answered)
