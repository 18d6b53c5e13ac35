"""Weights files, good and bad: the test writes each of them itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fpl.config.sections import ModelConfig
from fpl.config.weights import tiny_file_name
from fpl.errors import FplError
from fpl.files import file_sha256
from fpl.models import SegmentationNetwork, build_network, load_pretrained, pretrained

RESNET = ModelConfig(backbone="resnet50", pretrained="imagenet", head_channels=8, low_level_channels=4)
TINY = ModelConfig(backbone="tiny", pretrained="imagenet", head_channels=16, low_level_channels=8)

State = dict[str, Tensor]

TINY_FILE = tiny_file_name(16, 1)


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    """Neither a folder of the user's nor the network: a test that wants one says so."""

    def refuse(_repository: str) -> Path:
        raise ConnectionError("no network in tests")

    monkeypatch.delenv("FPL_WEIGHTS", raising=False)
    monkeypatch.setattr(pretrained, "_download", refuse)


def network_without_values(model: ModelConfig) -> SegmentationNetwork:
    with torch.device("meta"):
        network = build_network(model, 5)
    return network.to_empty(device="cpu")


def numbered_state(model: ModelConfig) -> State:
    """One constant per tensor, stored as a single number: a whole ResNet fits into a small file."""
    with torch.device("meta"):
        shapes = build_network(model, 5).backbone.state_dict()
    return {
        name: torch.tensor(number, dtype=value.dtype).expand(value.shape)
        for number, (name, value) in enumerate(shapes.items(), start=1)
    }


def three_convolutions(state: State) -> State:
    names = {
        "conv1.0": "conv1",
        "conv1.1": "bn1",
        "conv1.3": "conv2",
        "conv1.4": "bn2",
        "conv1.6": "conv3",
        "bn1": "bn3",
    }
    split = (name.rpartition(".") for name in state)
    return {f"{names.get(layer, layer)}.{kind}": state[f"{layer}.{kind}"] for layer, _, kind in split}


def assert_numbered(network: SegmentationNetwork) -> None:
    for number, (name, value) in enumerate(network.backbone.state_dict().items(), start=1):
        assert (value == number).all(), name


def refusal(model: ModelConfig, folder: Path | None, network: SegmentationNetwork | None = None) -> str:
    with pytest.raises(FplError) as caught:
        load_pretrained(network or network_without_values(model), model, folder)
    return caught.value.message


CLASSIFIER = {"fc.weight": torch.zeros(10, 4), "fc.bias": torch.zeros(10)}
LAYOUTS = {
    "plain": lambda state: {**state, **CLASSIFIER},
    "parallel": lambda state: {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in state.items()}},
    "wrapped": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "three_convolutions": three_convolutions,
    "without_counters": lambda state: {n: v for n, v in state.items() if not n.endswith("num_batches_tracked")},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resnet_file_loads_by_name(layout, tmp_path):
    path = tmp_path / "resnet50_v1c.pth"
    state = numbered_state(RESNET)
    torch.save(LAYOUTS[layout](state), path)
    network = network_without_values(RESNET)
    report = load_pretrained(network, RESNET, tmp_path)
    counters = [name for name in state if name.endswith("num_batches_tracked")]
    missing = counters if layout == "without_counters" else []
    if missing:
        for name, buffer in network.backbone.named_buffers():
            if name in missing:
                buffer.fill_(list(state).index(name) + 1)
    assert_numbered(network)
    assert report is not None
    assert report.source == str(path)
    assert report.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (report.loaded, report.missing) == (len(state) - len(missing), tuple(missing))
    assert report.unexpected == ()


def test_unexpected_tensors_are_reported(tmp_path):
    torch.save({**numbered_state(RESNET), "extra.weight": torch.zeros(1)}, tmp_path / "resnet50_v1c.pth")
    report = load_pretrained(network_without_values(RESNET), RESNET, tmp_path)
    assert report is not None
    assert report.unexpected == ("extra.weight",)


def test_file_of_a_deeper_network_is_refused(tmp_path):
    deeper = {**numbered_state(RESNET), "layer3.6.conv1.weight": torch.zeros(1)}
    torch.save(deeper, tmp_path / "resnet50_v1c.pth")
    assert "of a deeper network" in refusal(RESNET, tmp_path)


def test_head_is_left_alone_and_two_networks_share_the_backbone(tmp_path, monkeypatch):
    torch.save(build_network(TINY, 5).backbone.state_dict(), tmp_path / TINY_FILE)
    monkeypatch.setenv("FPL_WEIGHTS", str(tmp_path))
    first, second = build_network(TINY, 5), build_network(TINY, 5)
    head = first.classifier.weight.clone()
    for network in (first, second):
        assert load_pretrained(network, TINY, None) is not None
    assert torch.equal(first.classifier.weight, head)
    assert not torch.equal(first.classifier.weight, second.classifier.weight)
    pairs = zip(first.backbone_parameters(), second.backbone_parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_none_loads_nothing(tmp_path):
    model = TINY.model_copy(update={"pretrained": "none"})
    assert load_pretrained(build_network(model, 5), model, tmp_path / "no such folder") is None


def test_frozen_norm_takes_the_statistics_of_the_file(tmp_path):
    state = numbered_state(RESNET)
    torch.save(state, tmp_path / "resnet50_v1c.pth")
    frozen = RESNET.model_copy(update={"norm": "frozen"})
    network = network_without_values(frozen)
    report = load_pretrained(network, frozen, tmp_path)
    assert report is not None
    assert (report.missing, report.unexpected) == ((), ())
    assert torch.equal(network.backbone.bn1.running_var, state["bn1.running_var"])


def test_safetensors_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    state = {name: value.contiguous() for name, value in numbered_state(RESNET).items()}
    safetensors.save_file(state, tmp_path / "resnet50s.gluon_in1k.safetensors")
    network = network_without_values(RESNET)
    load_pretrained(network, RESNET, tmp_path)
    assert_numbered(network)


def test_stem_of_other_width_is_named(tmp_path):
    state = numbered_state(RESNET)
    shapes = {"conv1.0.weight": (32, 3, 3, 3), "conv1.3.weight": (32, 32, 3, 3), "conv1.6.weight": (64, 32, 3, 3)}
    torch.save({**state, **{name: torch.zeros(shape) for name, shape in shapes.items()}}, tmp_path / "resnet50_v1c.pth")
    message = refusal(RESNET, tmp_path)
    for part in ("32-32-64", "v1c", "64, 64 and 128", "resnet50s", "resnet50_v1c.pth"):
        assert part in message


def test_torchvision_stem_is_named(tmp_path):
    state = {name: value for name, value in numbered_state(RESNET).items() if not name.startswith("conv1.")}
    torch.save({**state, "conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "resnet50_v1c.pth")
    message = refusal(RESNET, tmp_path)
    assert "single 7x7 convolution of 64 channels" in message
    assert "64, 64 and 128" in message


def test_other_shape_is_named(tmp_path):
    state = {**numbered_state(RESNET), "layer4.0.conv1.weight": torch.zeros(7, 7, 1, 1)}
    torch.save(state, tmp_path / "resnet50_v1c.pth")
    assert "layer4.0.conv1.weight (7, 7, 1, 1) instead of (512, 1024, 1, 1)" in refusal(RESNET, tmp_path)


def test_missing_tensors_are_named_and_nothing_is_changed(tmp_path):
    state = build_network(TINY, 5).backbone.state_dict()
    del state["context.0.weight"], state["low.0.bn1.running_mean"]
    torch.save(state, tmp_path / TINY_FILE)
    network = build_network(TINY, 5)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    message = refusal(TINY, tmp_path, network)
    assert "lacks 2 of" in message
    assert "context.0.weight" in message
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "code", "no_tensors"])
def test_damaged_file(damage, tmp_path):
    path = tmp_path / TINY_FILE
    torch.save(build_network(TINY, 5).backbone.state_dict(), path)
    content = path.read_bytes()
    if damage == "code":
        torch.save({"weight": Path}, path)
    elif damage == "no_tensors":
        torch.save({"state_dict": {"epoch": 3}}, path)
    else:
        path.write_bytes({"truncated": content[: len(content) // 2], "empty": b"", "text": b"<html>"}[damage])
    message = refusal(TINY, tmp_path)
    assert str(path) in message
    assert ("holds no tensors" if damage == "no_tensors" else "cannot be read") in message


def test_damaged_safetensors_file(tmp_path):
    pytest.importorskip("safetensors.torch")
    (tmp_path / "resnet50s.gluon_in1k.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    assert "cannot be read" in refusal(RESNET, tmp_path)


def test_checksum_in_the_file_name_is_checked(tmp_path):
    path = tmp_path / "resnet50-ebb6acbb.pth"
    torch.save(numbered_state(RESNET), path)
    message = refusal(RESNET, tmp_path)
    assert "ebb6acbb" in message
    assert hashlib.sha256(path.read_bytes()).hexdigest() in message


def test_pinned_checksum(tmp_path):
    path = tmp_path / TINY_FILE
    torch.save(build_network(TINY, 5).backbone.state_dict(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    network = build_network(TINY, 5)
    report = load_pretrained(network, TINY.model_copy(update={"pretrained_sha256": digest[:8]}), tmp_path)
    assert report is not None
    wrong = "0" * 8 if digest[0] != "0" else "1" * 8
    message = refusal(TINY.model_copy(update={"pretrained_sha256": wrong}), tmp_path)
    assert digest in message
    assert wrong in message


def test_a_file_is_hashed_once_for_all_runs_and_again_when_it_changes(tmp_path, monkeypatch):
    path, hashed = tmp_path / TINY_FILE, []
    monkeypatch.setattr(pretrained, "file_sha256", lambda path: hashed.append(path) or file_sha256(path))
    for seed, larger in ((1, 0), (2, 1)):
        state = {**build_network(TINY, 5).backbone.state_dict(), "unused": torch.full((larger + 1,), float(seed))}
        torch.save(state, path)
        found = {pretrained.find_pretrained(TINY, tmp_path) for _ in range(3)}
        assert found == {(path, hashlib.sha256(path.read_bytes()).hexdigest())}
    assert hashed == [path, path]


def test_pin_chooses_among_several_files(tmp_path):
    state = numbered_state(RESNET)
    torch.save({**state, "extra": torch.zeros(1)}, tmp_path / "resnet50_v1c.pth")
    second = tmp_path / "resnet50s.gluon_in1k.pth"
    torch.save(state, second)
    digest = hashlib.sha256(second.read_bytes()).hexdigest()
    pinned = RESNET.model_copy(update={"pretrained_sha256": digest})
    report = load_pretrained(network_without_values(RESNET), pinned, tmp_path)
    assert report is not None
    assert report.source == str(second)


@pytest.mark.parametrize("model", [RESNET, TINY])
def test_missing_file_says_what_was_looked_for_and_the_ways_out(model, tmp_path):
    message = refusal(model, tmp_path)
    for part in (*pretrained.weights_file_names(model), str(tmp_path), 'model.pretrained = "none"'):
        assert part in message
    assert "FPL_WEIGHTS" in refusal(model, None)
    if model is RESNET:
        assert "https://" in message
        assert "ConnectionError" in message


def test_missing_folder(tmp_path):
    assert "does not exist" in refusal(TINY, tmp_path / "nowhere")


def test_download_is_checked_like_a_local_file(tmp_path, monkeypatch):
    path = tmp_path / "model.pth"
    torch.save(numbered_state(RESNET), path)
    asked = []
    monkeypatch.setattr(pretrained, "_download", lambda repository: asked.append(repository) or path)
    network = network_without_values(RESNET)
    load_pretrained(network, RESNET, None)
    assert_numbered(network)
    assert asked == ["timm/resnet50s.gluon_in1k"]
    assert "is required" in refusal(RESNET.model_copy(update={"pretrained_sha256": "0" * 8}), None)
