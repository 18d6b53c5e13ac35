"""What no trained network holds is refused by name, before anything is planned or pinned."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.config.weights import tiny_file_name
from fpl.errors import FplError
from fpl.models import build_network, load_pretrained, pretrained
from fpl.models.weights_file import read_state_dict
from fpl.sweep.places import Places
from fpl.sweep.plan.needs import Needs
from fpl.sweep.prepare import pin

TINY = ModelConfig(backbone="tiny", pretrained="imagenet", head_channels=16, low_level_channels=8)
NAME = tiny_file_name(16, 1)

State = dict[str, Tensor]


def good() -> State:
    return {name: value.clone() for name, value in build_network(TINY, 5).backbone.state_dict().items()}


def first(state: State, ending: str, dimensions: int) -> str:
    return next(name for name, value in state.items() if name.endswith(ending) and value.ndim == dimensions)


def set_one(ending: str, dimensions: int, value: float) -> Callable[[State], tuple[str, str]]:
    def change(state: State) -> tuple[str, str]:
        name = first(state, ending, dimensions)
        state[name].view(-1)[0] = value
        words = "not finite" if value != value or abs(value) == float("inf") else "variance"
        return name, words

    return change


def zero(ending: str, dimensions: int) -> Callable[[State], tuple[str, str]]:
    def change(state: State) -> tuple[str, str]:
        name = first(state, ending, dimensions)
        state[name].zero_()
        return name, "0 everywhere" if ending == "weight" else "variance of 0"

    return change


def retyped(state: State) -> tuple[str, str]:
    name = first(state, "weight", 4)
    state[name] = state[name].to(torch.int32)
    return name, "torch.int32 instead of torch.float32"


def too_large(state: State) -> tuple[str, str]:
    name = first(state, "weight", 4)
    state[name] = state[name].double() + 1e300
    return name, "not finite"


def reshaped(state: State) -> tuple[str, str]:
    name = first(state, "weight", 4)
    state[name] = state[name][:1]
    return name, "instead of"


FAULTS = {
    "nan weight": set_one("weight", 4, float("nan")),
    "infinite bias": set_one("bias", 1, float("inf")),
    "nan variance": set_one("running_var", 1, float("nan")),
    "variance below 0": set_one("running_var", 1, -1e-12),
    "zero convolution": zero("weight", 4),
    "zero scale": zero("weight", 1),
    "zero variance": zero("running_var", 1),
    "integers": retyped,
    "above float32": too_large,
    "shape": reshaped,
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_refused_by_name_when_found_loaded_and_planned(tmp_path: Path, fault: str) -> None:
    state = good()
    name, words = FAULTS[fault](state)
    torch.save({"state_dict": state}, tmp_path / NAME)
    network = build_network(TINY, 5)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    for refuse in (
        lambda: pretrained.find_pretrained(TINY, tmp_path),
        lambda: load_pretrained(network, TINY, tmp_path),
    ):
        with pytest.raises(FplError, match=words) as caught:
            refuse()
        assert name in caught.value.what and caught.value.where == str(tmp_path / NAME)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    planned = Needs(Places(tmp_path, tmp_path, tmp_path, tmp_path)).weights(TINY)
    assert name in planned and words in planned and str(tmp_path / NAME) in planned


def test_no_run_is_pinned_to_such_a_file(config: RunConfig, places: Places, tmp_path: Path) -> None:
    state = good()
    name, _ = FAULTS["nan weight"](state)
    torch.save(state, tmp_path / NAME)
    with_weights = Places(places.out, places.data_root, places.splits_root, tmp_path)
    with pytest.raises(FplError, match=name):
        pin(config.model_copy(update={"model": TINY}), with_weights)


def test_looking_at_a_file_draws_nothing(tmp_path: Path) -> None:
    torch.save(good(), tmp_path / NAME)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    pretrained._check_content.cache_clear()
    pretrained.find_pretrained(TINY, tmp_path)
    assert torch.equal(state, torch.get_rng_state())


def message(path: Path) -> str:
    with pytest.raises(FplError) as caught:
        read_state_dict(path)
    assert "\x1b" not in caught.value.message and str(path) in caught.value.message
    return caught.value.message


def test_weights_under_another_key(tmp_path: Path) -> None:
    torch.save({"model_state_dict": good(), "epoch": 3}, tmp_path / "a.pth")
    said = message(tmp_path / "a.pth")
    assert f"model_state_dict ({len(good())} tensors), epoch (int)" in said
    assert "torch.load('a.pth', map_location='cpu', weights_only=False)['model_state_dict'], 'weights.pth')" in said


@pytest.mark.parametrize("foreign", [argparse.Namespace(lr=0.1), SimpleNamespace(a=1), Path("x")])
def test_objects_beside_the_weights(tmp_path: Path, foreign: Any) -> None:
    torch.save({"state_dict": good(), "args": foreign}, tmp_path / "a.pth")
    said = message(tmp_path / "a.pth")
    assert "its keys are state_dict, args" in said and type(foreign).__name__.replace("PosixPath", "Path") in said
    assert "['state_dict'], 'weights.pth')" in said


def test_a_whole_module(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "a.pth")
    said = message(tmp_path / "a.pth")
    assert "torch.nn.modules.linear.Linear" in said and ".state_dict()" in said


def test_looking_for_keys_runs_nothing(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "harm",))

    torch.save({"state_dict": good(), "args": Harm()}, tmp_path / "a.pth")
    assert "state_dict, args" in message(tmp_path / "a.pth")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("right", [True, False])
def test_a_download_is_of_one_revision_and_has_the_hubs_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"tensors")
    digest = hashlib.sha256(b"tensors").hexdigest()
    asked: list[dict[str, Any]] = []

    def fetch(repository: str, name: str, **options: Any) -> str:
        if options.get("local_files_only"):
            raise FileNotFoundError
        asked.append(options)
        return str(path)

    about = SimpleNamespace(commit_hash="c0ffee", etag=digest if right else "0" * 64)
    hub = SimpleNamespace(
        hf_hub_download=fetch, hf_hub_url=lambda *names: "url", get_hf_file_metadata=lambda url, timeout: about
    )
    monkeypatch.setattr(pretrained.importlib, "import_module", lambda name: hub)
    if right:
        assert pretrained._download("timm/x") == path
    else:
        with pytest.raises(FplError, match="revision c0ffee"):
            pretrained._download("timm/x")
    assert [options["revision"] for options in asked] == ["c0ffee"]


def test_a_dead_channel_is_no_fault(tmp_path: Path) -> None:
    """Its variance is exactly 0, as in 28 layers of EfficientNet-Lite0's published weights."""
    state = good()
    state[first(state, "running_var", 1)][0] = 0.0
    torch.save(state, tmp_path / NAME)
    assert pretrained.find_pretrained(TINY, tmp_path)[0] == tmp_path / NAME


@pytest.mark.parametrize("count", [1, 512])
def test_values_that_a_damaged_disk_changed_are_refused(tmp_path: Path, count: int) -> None:
    """torch reads them without a word: the file is whole but for its checksums."""
    path = tmp_path / NAME
    torch.save(good(), path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + count] = bytes(byte ^ 1 for byte in content[middle : middle + count])
    path.write_bytes(content)
    with pytest.raises(FplError, match=r"has another checksum"):
        read_state_dict(path)
