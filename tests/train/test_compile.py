"""Compiled training passes: the same results and names; where nothing can be compiled, a clear word before training."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fpl.config.compose import load_config
from fpl.config.sections import ModelConfig
from fpl.errors import FplError
from fpl.models import build_network
from fpl.models.backbone import Features
from fpl.models.network import Details
from fpl.sweep.places import Places
from fpl.train.runtime import Workers, compile_networks
from tests.train.runs import elsewhere, run, weights


@pytest.fixture
def only_traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let torch.compile trace and guard as ever, but run the traced operations one by one; notes each trace."""
    traces: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        traces.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    yield traces
    torch._dynamo.reset()


def test_compiled_run_has_the_same_weights(run_file: Path, places: Places, only_traced: list[int]) -> None:
    keys = ["train.concatenate=true", "train.steps=2", "train.evaluate_every=2"]
    plain = elsewhere(places, "plain")
    run(load_config(run_file, overrides=keys), plain)
    assert not only_traced
    run(load_config(run_file, overrides=[*keys, "train.compile=true"]), places)
    # The probe, and a pass with and without gradients; both networks share them, and validation stays as it is.
    assert len(only_traced) == 3
    one, other = weights(plain), weights(places)
    assert list(one) == list(other)
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_evaluation_is_not_compiled(only_traced: list[int]) -> None:
    model = ModelConfig(backbone="tiny", pretrained="none", head_channels=8, low_level_channels=4, tiny_width=8)
    network = build_network(model, 3)
    network.compile(dynamic=False)
    for side in (40, 44):
        network.eval()(torch.zeros(1, 3, side, side))
    assert not only_traced
    network.train()(torch.zeros(2, 3, 40, 40))
    assert len(only_traced) == 1


def test_no_compiler_is_told_before_training(run_file: Path, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **keys: object) -> None:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\nand a long trace")

    monkeypatch.setattr(torch, "compile", refuse)
    with pytest.raises(FplError, match="No working C\\+\\+ compiler found") as caught:
        run(load_config(run_file, overrides=["train.compile=true"]), places)
    assert "and a long trace" not in str(caught.value) and "train.compile = false" in str(caught.value)


def test_several_cpu_workers_are_refused(only_traced: list[int]) -> None:
    with pytest.raises(FplError, match="several CPU workers"):
        compile_networks([], torch.device("cpu"), Workers(0, 2))
    assert not only_traced


def test_details_are_compiled_where_they_are_asked_for(only_traced: list[int]) -> None:
    model = ModelConfig(backbone="tiny", pretrained="none", head_channels=8, low_level_channels=4, tiny_width=8)
    torch.manual_seed(0)
    network = build_network(model, 3)
    plain = copy.deepcopy(network)
    network.compile(dynamic=False)
    image = torch.randn(2, 3, 40, 40)
    found = network.details(image)
    assert len(only_traced) == 1
    expected = plain.details(image)
    assert type(found) is Details and type(found.features) is Features
    for one, other in ((found.fused, expected.fused), *zip(found.features, expected.features, strict=True)):
        assert torch.equal(one, other)
    assert torch.equal(found.embedding, expected.embedding) and torch.equal(found.logits, expected.logits)
