"""The CPS network's size, shapes and initialisation, as the released CPS code has them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fpl.config.sections import ModelConfig
from fpl.models import SegmentationNetwork, build_network
from fpl.models.network import nearest, resize

TINY = ModelConfig(backbone="tiny", pretrained="none", head_channels=32, low_level_channels=16)


def count(parameters) -> int:
    return sum(parameter.numel() for parameter in parameters)


def shapes_only(backbone: str, num_classes: int, **keys) -> SegmentationNetwork:
    with torch.device("meta"):
        return build_network(ModelConfig(backbone=backbone, pretrained="none", **keys), num_classes)


@pytest.mark.parametrize(
    ("backbone", "num_classes", "total", "in_backbone"),
    [
        ("resnet50", 19, 40_475_443, 23_631_808),
        ("resnet50", 21, 40_475_957, 23_631_808),
        ("resnet101", 19, 59_467_571, 42_623_936),
        ("resnet101", 21, 59_468_085, 42_623_936),
    ],
)
def test_parameter_counts_are_those_of_the_released_network(backbone, num_classes, total, in_backbone):
    network = shapes_only(backbone, num_classes)
    assert count(network.parameters()) == total
    assert count(network.backbone_parameters()) == in_backbone
    assert count(network.head_parameters()) == total - in_backbone


def test_backbone_and_head_parameters_are_disjoint_and_complete():
    network = build_network(TINY, 5)
    parts = [*network.backbone_parameters(), *network.head_parameters()]
    assert {id(part) for part in parts} == {id(parameter) for parameter in network.parameters()}
    assert len(parts) == len(list(network.parameters()))


def test_resnet_feature_shapes():
    network = shapes_only("resnet50", 19)
    backbone = network.backbone
    features = network.encode(torch.empty(2, 3, 128, 128, device="meta"))
    low, middle, high = features
    assert low.shape == (2, 256, 32, 32)
    assert high.shape == (2, 2048, 8, 8)
    second = backbone.layer2(low)
    assert second.shape == (2, 512, 16, 16)
    assert middle.shape == backbone.layer3(second).shape == (2, 1024, 8, 8)
    assert network.decode(features).shape == (2, 256, 32, 32)


@pytest.mark.parametrize("backbone", ["resnet50", "resnet101"])
def test_last_stage_is_dilated_instead_of_strided(backbone):
    layer4 = shapes_only(backbone, 19).backbone.layer4
    assert [block.conv2.dilation for block in layer4] == [(2, 2), (4, 4), (8, 8)]
    assert [block.conv2.padding for block in layer4] == [(2, 2), (4, 4), (8, 8)]
    assert {module.stride for module in layer4.modules() if isinstance(module, nn.Conv2d)} == {(1, 1)}


def test_resnet_state_dict_has_the_published_names():
    names = shapes_only("resnet50", 19).backbone.state_dict()
    expected = {"conv1.0.weight": (64, 3, 3, 3), "conv1.3.weight": (64, 64, 3, 3), "conv1.6.weight": (128, 64, 3, 3)}
    assert {name: tuple(names[name].shape) for name in expected} == expected
    assert names["bn1.weight"].shape == (128,)
    assert names["layer1.0.conv1.weight"].shape == (64, 128, 1, 1)
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        theirs = timm.create_model("resnet50s", num_classes=0).state_dict()
    assert {name: value.shape for name, value in theirs.items()} == {n: v.shape for n, v in names.items()}


@pytest.mark.parametrize("size", [(33, 33), (37, 53), (65, 129)])
@pytest.mark.parametrize("backbone", ["tiny", "resnet50"])
def test_logits_have_the_input_size(backbone, size):
    network = shapes_only(backbone, 7, head_channels=8, low_level_channels=4)
    assert network(torch.empty(2, 3, *size, device="meta")).shape == (2, 7, *size)


@pytest.mark.parametrize("size", [(33, 33), (37, 53), (65, 129)])
def test_tiny_trains_and_evaluates_at_any_size(size):
    network = build_network(TINY, 7)
    logits = network(torch.randn(2, 3, *size))
    logits.square().mean().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    network.eval()
    with torch.no_grad():
        assert network(torch.randn(1, 3, *size)).isfinite().all()


def test_resnet50_computes_at_an_odd_size():
    torch.manual_seed(0)
    network = build_network(ModelConfig(backbone="resnet50", pretrained="none", head_channels=16), 4).eval()
    with torch.no_grad():
        logits = network(torch.randn(1, 3, 37, 53))
    assert logits.shape == (1, 4, 37, 53)
    assert logits.isfinite().all()
    assert logits.std() > 0


def test_tiny_is_small_and_depth_adds_blocks():
    sizes = [count(build_network(TINY.model_copy(update={"tiny_depth": depth}), 19).parameters()) for depth in (1, 2)]
    assert 100_000 < sizes[0] < 200_000
    assert sizes[1] > sizes[0]


def test_pyramid_follows_the_configuration():
    network = build_network(TINY.model_copy(update={"aspp_rates": (1, 2, 3)}), 5)
    assert [branch.dilation[0] for branch in network.pyramid.branches] == [1, 1, 2, 3]
    assert network.pyramid.reduce[0].num_features == 4 * 32
    assert {m.negative_slope for m in network.pyramid.modules() if isinstance(m, nn.LeakyReLU)} == {0.01}


def test_head_initialisation():
    torch.manual_seed(0)
    network = build_network(ModelConfig(backbone="tiny", pretrained="none"), 19)
    head = [network.pyramid, network.low_level, network.decoder, network.classifier]
    convolutions = [m for part in head for m in part.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 4 + 1 + 2 + 1 + 2 + 1
    for convolution in convolutions:
        fan_in = convolution.weight[0].numel()
        tolerance = 5 / math.sqrt(2 * convolution.weight.numel())
        assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=tolerance)
    assert all(c.bias is None for c in convolutions[:-1])
    assert network.classifier.bias.abs().max() <= 1 / math.sqrt(256)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((n.weight == 1).all() and (n.bias == 0).all() for n in norms)
    assert {(n.eps, n.momentum) for n in norms} == {(1e-5, 0.1)}


def test_seed_decides_and_two_builds_differ():
    torch.manual_seed(3)
    first, second = build_network(TINY, 5), build_network(TINY, 5)
    torch.manual_seed(3)
    again = build_network(TINY, 5)
    pairs = zip(first.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert not torch.equal(first.classifier.weight, second.classifier.weight)
    assert not torch.equal(first.pyramid.branches[0].weight, second.pyramid.branches[0].weight)


def test_state_dict_round_trip():
    source, target = build_network(TINY, 5), build_network(TINY, 5)
    source(torch.randn(2, 3, 33, 33))
    target.load_state_dict(source.state_dict())
    image = torch.randn(1, 3, 40, 40)
    assert torch.equal(source.eval()(image), target.eval()(image))


def test_image_level_branch_is_added():
    network = build_network(TINY, 5).eval()
    high = torch.randn(1, 64, 6, 5)
    pyramid = network.pyramid
    local = pyramid.reduce(torch.cat([branch(high) for branch in pyramid.branches], 1))
    expected = pyramid.normalise(local + pyramid.image_level(high.mean((2, 3), keepdim=True)).expand_as(local))
    assert torch.allclose(pyramid(high), expected, atol=1e-6)


def test_classify_enlarges_with_aligned_corners():
    network = build_network(TINY, 5)
    embedding = torch.randn(1, 32, 4, 6)
    logits = network.classify(embedding, (13, 21))
    small = network.classifier(embedding)
    assert torch.allclose(logits[..., 0, 0], small[..., 0, 0], atol=1e-6)
    assert torch.allclose(logits[..., -1, -1], small[..., -1, -1], atol=1e-6)
    assert resize(small, (4, 6)) is small


@pytest.mark.parametrize("size", [(3, 5), (7, 9), (14, 4), (6, 13)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_nearest_takes_the_pixel_of_the_rounded_down_place(size, dtype):
    pixels = torch.randint(0, 256, (2, 7, 9), generator=torch.Generator().manual_seed(0)).to(dtype)
    found = nearest(pixels, size)
    assert found.dtype == dtype and found.shape == (2, *size)
    for row in range(size[0]):
        for column in range(size[1]):
            expected = pixels[:, row * 7 // size[0], column * 9 // size[1]]
            assert torch.equal(found[:, row, column], expected)
