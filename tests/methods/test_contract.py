"""What every method has to keep, over all that are registered: the suite's own, and those of packages beside it.

A new method is checked by being registered; `MethodOptions.examples` says in which ways it can be trained.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor

import fpl
from fpl.config.compose import load_config
from fpl.config.identity import run_id
from fpl.config.registry import all_options
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, make_loader
from fpl.data.spec import get_spec
from fpl.errors import FplError
from fpl.losses.pixel import KINDS
from fpl.methods.base import Clock, Losses
from fpl.methods.optimizers import Scheduled
from fpl.models import SegmentationNetwork
from fpl.sweep.places import Places
from fpl.sweep.plan.count import count
from fpl.sweep.prepare import Prepared, prepare
from fpl.train.build import build_method
from fpl.train.runtime import Workers
from fpl.train.step import take_step
from tests import warm
from tests.methods.examples import EXAMPLES, STEPS, Example
from tests.ports import free_ports
from tests.train.runs import assert_equal_results, killed, run, weights

CPU = torch.device("cpu")
WITH_UNLABELED = [example for example in EXAMPLES if all_options()[example.method].unlabeled]


def each(examples: list[Example]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples, ids=str)


class Training:
    """A method with its optimizers and batches, outside the loop."""

    def __init__(self, config: RunConfig, places: Places) -> None:
        self.prepared: Prepared = prepare(config, places)
        self.config = config = self.prepared.config
        self.method, _ = build_method(
            config, self.prepared.split, self.prepared.images, _Alone(), Workers(), None, lambda text: None
        )
        self.method.train()
        self.optimizers: dict[str, Scheduled] = self.method.optimizers()
        self._loader = iter(make_loader(config, self.prepared.split, self.prepared.images, self.method.request))
        self._batches: list[Batch] = []

    def batch(self, step: int) -> Batch:
        """Read when it is asked for, and kept."""
        while len(self._batches) <= step:
            self._batches.append(next(self._loader))
        return self._batches[step]

    def clock(self, step: int) -> Clock:
        return Clock(step, STEPS)

    def losses(self, step: int) -> Losses:
        return self.method.losses(self.batch(step).to(CPU), self.clock(step))

    def step(self, number: int) -> Losses:
        return take_step(self.method, self.optimizers, self.batch(number), self.clock(number), self.config.train, CPU)

    def optimized(self) -> dict[str, list[torch.nn.Parameter]]:
        """Parameters by the name of the optimizer that moves them."""
        return {
            name: [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for name, optimizer in self.optimizers.items()
        }


class _Alone:
    """What `build_method` asks of a launcher."""

    rank, world_size, device = 0, 1, CPU


@pytest.fixture(scope="module")
def trained(data_places: Places, run_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Example, Places]:
    """Runs that nothing interrupted, made when the first test asks for them."""
    return _Trained(data_places, run_file, tmp_path_factory.mktemp("trained"))


class _Trained(dict[Example, Places]):
    def __init__(self, data_places: Places, run_file: Path, folder: Path) -> None:
        self.data_places, self.run_file, self.folder = data_places, run_file, folder

    def __missing__(self, example: Example) -> Places:
        out = self.folder / str(example)
        self[example] = places = dataclasses.replace(self.data_places, out=out)
        run(example.config(self.run_file), places)
        return places


@each(EXAMPLES)
def test_a_run_that_is_killed_ends_with_the_same_bits(
    example: Example, trained: _Trained, run_file: Path, places: Places
) -> None:
    killed(example.config(run_file), places, after=2)
    torch.manual_seed(123)  # whatever the process did in between
    run(example.config(run_file), places)
    assert_equal_results(places, trained[example])


@pytest.fixture(scope="module")
def together(data_places: Places, run_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a store for each example, trained by two workers."""
    out = tmp_path_factory.mktemp("together")
    ports = map(str, free_ports(len(EXAMPLES)))
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    environments = [os.environ | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    line = [Path(__file__).with_name("contract_worker.py"), run_file, out, data_places.data_root, *ports]
    for code, _, said in warm.run_together([line] * 2, environments):
        assert code == 0, said
    return out


@each(EXAMPLES)
def test_two_workers_train_what_one_trains(example: Example, trained: _Trained, together: Path) -> None:
    histories = [
        fpl.load_results(out).history.query("loss.notna()") for out in (trained[example].out, together / str(example))
    ]
    terms = [name for name in histories[0].columns if name not in ("run_id", "step") and "share" not in name]
    numbers = [history[terms].dropna(axis=1).reset_index(drop=True) for history in histories]
    assert "loss" in numbers[0].columns
    # Rounding moves single pixels across a threshold: one of 6,000 whose K is another moves the mean K by 1.7e-4.
    pd.testing.assert_frame_equal(*(each.head(1) for each in numbers), rtol=1e-5, atol=5e-4)
    pd.testing.assert_frame_equal(*numbers, rtol=2e-3, atol=1e-4)


@pytest.fixture(scope="module")
def poisoned_root(data_places: Places, run_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set with other labels of all that the split, which is that of every example, calls unlabeled."""
    root = tmp_path_factory.mktemp("poisoned") / "data"
    shutil.copytree(data_places.data_root, root)
    spec = get_spec("synthetic_city")
    for image_id in prepare(load_config(run_file), data_places).split.unlabeled:
        path = spec.label_path(root / "synthetic_city", "train", image_id)
        label = Image.open(path)
        Image.fromarray(np.full((label.height, label.width), 1, dtype=np.uint8)).save(path)
    return root


@each(WITH_UNLABELED)
def test_labels_of_unlabeled_images_have_no_effect(
    example: Example, trained: _Trained, run_file: Path, places: Places, poisoned_root: Path
) -> None:
    assert example.config(run_file).data.split == load_config(run_file).data.split
    poisoned = Places(places.out, poisoned_root, poisoned_root / "splits")
    run(example.config(run_file), poisoned)
    expected, found = weights(trained[example]), weights(poisoned)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@each([example for example in EXAMPLES if all_options()[example.method].ignores_padding])
def test_padding_has_no_part_in_any_loss(example: Example, run_file: Path, places: Places) -> None:
    """Logits far inside the padding get no gradient from any objective."""
    training = Training(example.config(run_file, "data.scales=[0.4]", "data.crop=[97,97]"), places)
    seen: list[Tensor] = []

    def remember(module: torch.nn.Module, arguments: object, logits: Tensor) -> None:
        if logits.requires_grad:
            logits.retain_grad()
            seen.append(logits)

    networks = [part for part in training.method.modules() if isinstance(part, SegmentationNetwork)]
    hooks = [network.classifier.register_forward_hook(remember) for network in networks]
    losses = training.losses(0)
    for hook in hooks:
        hook.remove()
    torch.stack(list(losses.objectives.values())).sum().backward()
    batch = training.batch(0)
    valids = [batch.valid, *(draw.valid for draw in batch.unlabeled), *(more.valid for more in batch.more_labeled)]
    assert seen
    for logits in seen:
        # Around an image lie logits that its own pixels are interpolated from.
        near = torch.nn.functional.max_pool2d(torch.cat(valids).float(), 17, stride=1, padding=8) > 0
        small = torch.nn.functional.interpolate(near[:, None].float(), logits.shape[-2:], mode="area")[:, 0]
        padding = (small == 0).view(-1, *logits.shape[-2:]).all(0)
        gradient = logits.grad
        assert padding.any() and gradient is not None and bool(gradient.any())
        assert not bool(gradient[..., padding].any())


@each(EXAMPLES)
def test_every_objective_reaches_its_own_parameters_and_no_other(
    example: Example, run_file: Path, places: Places
) -> None:
    training = Training(example.config(run_file), places)
    optimized = training.optimized()
    owners = [id(parameter) for parameters in optimized.values() for parameter in parameters]
    trained = {id(parameter) for parameter in training.method.parameters() if parameter.requires_grad}
    assert len(owners) == len(set(owners)), "a parameter with two optimizers"
    assert set(owners) == trained, "a parameter that no optimizer moves, or one that is no part of the method"
    reached = set()
    for number in range(STEPS):
        losses = training.step(number)
        assert set(losses.objectives) <= set(training.optimizers)
        for name, own in optimized.items():
            gradients = [parameter.grad for parameter in own if parameter.grad is not None]
            assert all(bool(gradient.isfinite().all()) for gradient in gradients), name
            assert bool(gradients) == (name in losses.objectives), name
            if any(bool(gradient.any()) for gradient in gradients):
                reached.add(name)
    assert reached == set(optimized)
    # What no optimizer moves has no gradient either: a teacher's weights are constants.
    assert all(p.grad is None for p in training.method.parameters() if id(p) not in trained)


@each(EXAMPLES)
def test_the_state_dict_is_all_that_a_method_remembers(example: Example, run_file: Path, places: Places) -> None:
    training, other = (Training(example.config(run_file), places) for _ in range(2))
    for number in range(2):
        training.step(number)
    other.method.load_state_dict(copy.deepcopy(training.method.state_dict()))
    for name, optimizer in training.optimizers.items():
        other.optimizers[name].load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each_of in (training, other):
        torch.manual_seed(7)
        for number in range(2, STEPS):
            each_of.step(number)
    mine, theirs = training.method.state_dict(), other.method.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@each(WITH_UNLABELED)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pixel_loss_goes_into_every_method(example: Example, kind: str, run_file: Path, places: Places) -> None:
    """By configuration alone: fuzzy positives, and what they are compared with."""
    training = Training(example.config(run_file, f"loss.kind={kind}"), places)
    training.method.pixel_loss.collect = True
    losses = training.step(0)
    assert all(bool(value.isfinite()) for value in losses.objectives.values())
    assert losses.pixel_terms and losses.unsupervised is not None and bool(losses.unsupervised.isfinite())
    for term in losses.pixel_terms.values():
        if kind == "fpl":
            histogram = term.statistics["k_histogram"]
            # Networks that have learned nothing are unsure: a pixel has several positives.
            assert int(histogram.sum()) > 0 and int(histogram[1:].sum()) > 0


@each(EXAMPLES)
def test_run_ids_tables_and_captions_have_words(example: Example, run_file: Path, places: Places) -> None:
    config = prepare(example.config(run_file), places).config
    assert config.method.word.isalnum() and config.method.label and config.method.epoch_images >= 1
    assert f"-{config.method.word}-" in run_id(config)


@each(EXAMPLES)
def test_plans_know_what_it_costs(example: Example, run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted on the method itself: at least its passes over labeled images, and twice as much for twice as many."""
    config = example.config(run_file)
    cost = count(config, (45, 60))
    # The memory of the step is counted by steps of its own; once is enough.
    monkeypatch.setattr("fpl.sweep.plan.count.count_memory", lambda *of: cost.memory)
    doubled = count(example.config(run_file, "data.labeled_batch=8", "data.unlabeled_batch=8"), (45, 60))
    assert cost.look.gflop > 0 and cost.weights > 0 and cost.optimizer > 0
    # A trained pass costs its way there and twice as much back, at least for the labeled images.
    assert cost.step.gflop > 2.5 * config.data.labeled_batch * cost.look.gflop * math.prod(config.data.crop) / (45 * 60)
    assert doubled.step.gflop == pytest.approx(2 * cost.step.gflop, rel=0.05)
    assert doubled.step.images == pytest.approx(2 * cost.step.images)


def _odd_values() -> Iterator[tuple[Example, str]]:
    for name, kind in all_options().items():
        for field in kind.model_fields:
            if field != "name":
                yield Example(name, 0), field


@pytest.mark.parametrize(("example", "field"), list(_odd_values()))
def test_problems_of_options_name_the_key(example: Example, field: str, run_file: Path) -> None:
    with pytest.raises(FplError) as raised:
        load_config(run_file, overrides=example.overrides(f'method.{field}={{ odd = "?" }}'))
    assert f"method.{field}" in str(raised.value)


@each(EXAMPLES)
def test_an_unknown_option_is_refused_with_those_that_are_known(example: Example, run_file: Path) -> None:
    with pytest.raises(FplError, match=r"unknown key method\.gibberish"):
        load_config(run_file, overrides=example.overrides("method.gibberish=1"))
