"""The AEL network's size, shapes, strides and initialisation, as the released AEL code has them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fpl.config.sections import ModelConfig
from fpl.models import SegmentationNetwork, build_network, load_pretrained
from fpl.models.deeplab_ael import AelDeepLab, ConcatenatedPyramid
from fpl.models.dropout import GlobalDropout2d

AEL = {"network": "ael", "pretrained": "none", "aspp_rates": (12, 24, 36), "low_level_channels": 256}
SMALL = {**AEL, "aspp_rates": (1, 2, 3), "head_channels": 16, "low_level_channels": 8}
TINY = ModelConfig(backbone="tiny", **SMALL)


def shapes_only(backbone: str, num_classes: int, **keys) -> SegmentationNetwork:
    with torch.device("meta"):
        return build_network(ModelConfig(**{**AEL, "backbone": backbone, **keys}), num_classes)


def count(parameters) -> int:
    return sum(parameter.numel() for parameter in parameters)


@pytest.mark.parametrize(
    ("backbone", "num_classes", "total"),
    [
        ("resnet50", 19, 45_995_494),
        ("resnet50", 21, 45_996_522),
        ("resnet101", 19, 64_987_622),
        ("resnet101", 21, 64_988_650),
    ],
)
def test_parameter_counts_are_those_of_the_released_network(backbone, num_classes, total):
    network = shapes_only(backbone, num_classes)
    assert count(network.parameters()) == total
    # Auxiliary head: a 3x3 convolution from 1024 to 256 channels and its norm layer, and the classifier.
    assert count(network.auxiliary.parameters()) == 1024 * 256 * 9 + 3 * 256 + 257 * num_classes
    parts = [*network.backbone_parameters(), *network.head_parameters()]
    assert {id(part) for part in parts} == {id(parameter) for parameter in network.parameters()}
    assert count(parts) == total


@pytest.mark.parametrize(
    ("size", "low", "high"),
    [
        # 769: 385 after the stem, 193 after pooling, 97. Odd sides fare as in the CPS network.
        ((769, 513), (193, 129), (97, 65)),
        # 768: 384 after the stem; pooling with ceil_mode makes 193 of it, not 192.
        ((768, 512), (193, 129), (97, 65)),
        ((64, 66), (17, 17), (9, 9)),
        ((33, 35), (9, 10), (5, 5)),
    ],
)
def test_resnet_has_output_stride_8_and_pools_upwards(size, low, high):
    network = shapes_only("resnet50", 19)
    features = network.encode(torch.empty(2, 3, *size, device="meta"))
    assert features.low.shape == (2, 256, *low)
    assert features.middle.shape == (2, 1024, *high)
    assert features.high.shape == (2, 2048, *high)
    assert network.decode(features).shape == (2, 256, *low)
    assert network.classify_auxiliary(features, size).shape == (2, 19, *size)
    assert network(torch.empty(2, 3, *size, device="meta")).shape == (2, 19, *size)


@pytest.mark.parametrize(("backbone", "blocks"), [("resnet50", 6), ("resnet101", 23)])
def test_last_two_stages_are_dilated(backbone, blocks):
    trunk = shapes_only(backbone, 19).backbone
    for layer, dilations in ((trunk.layer3, [1] + [2] * (blocks - 1)), (trunk.layer4, [4, 8, 16])):
        assert [block.conv2.dilation for block in layer] == [(dilation, dilation) for dilation in dilations]
        assert [block.conv2.padding for block in layer] == [(dilation, dilation) for dilation in dilations]
        assert {module.stride for module in layer.modules() if isinstance(module, nn.Conv2d)} == {(1, 1)}
    assert trunk.layer2[0].conv2.stride == (2, 2)


def test_backbone_initialisation_and_silent_blocks():
    torch.manual_seed(0)
    trunk = build_network(ModelConfig(**{**SMALL, "backbone": "resnet50"}), 5).backbone
    blocks = [block for layer in (trunk.layer1, trunk.layer2, trunk.layer3, trunk.layer4) for block in layer]
    assert len(blocks) == 16
    assert all((block.bn3.weight == 0).all() and (block.bn3.bias == 0).all() for block in blocks)
    others = [m for name, m in trunk.named_modules() if isinstance(m, nn.BatchNorm2d) and not name.endswith(".bn3")]
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in others)
    for convolution in (trunk.conv1[3], trunk.layer3[2].conv2, trunk.layer4[0].conv3):
        fan_out = convolution.weight[:, 0].numel()
        assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.02)
    # Then every block but the first of a stage passes its input through.
    features = torch.rand(1, 1024, 3, 3)
    assert torch.equal(trunk.layer3[1](features), features)


def test_frozen_norm_is_not_silenced():
    trunk = shapes_only("resnet50", 5, norm="frozen").to_empty(device="cpu").backbone
    frozen = build_network(ModelConfig(**{**SMALL, "backbone": "resnet50", "norm": "frozen"}), 5).backbone
    assert list(trunk.state_dict()) == list(frozen.state_dict())
    assert (frozen.layer1[0].bn3.weight == 1).all()


def test_published_weights_load_by_name(tmp_path):
    cps = ModelConfig(backbone="resnet50", pretrained="none", head_channels=8, low_level_channels=4)
    source = build_network(cps, 5).backbone.state_dict()
    torch.save({**source, "fc.weight": torch.zeros(10, 4)}, tmp_path / "resnet50_v1c.pth")
    model = ModelConfig(**{**SMALL, "backbone": "resnet50", "pretrained": "imagenet"})
    network = build_network(model, 5)
    report = load_pretrained(network, model, tmp_path)
    assert report is not None
    assert (report.loaded, report.missing, report.unexpected) == (len(source), (), ())
    assert all(torch.equal(value, source[name]) for name, value in network.backbone.state_dict().items())
    assert (network.backbone.layer1[0].bn3.weight == 1).all()


def test_heads_have_the_released_layers():
    network = shapes_only("resnet50", 19)
    assert isinstance(network, AelDeepLab)
    assert [branch[0].dilation[0] for branch in network.pyramid.branches] == [1, 12, 24, 36]
    with_bias = {
        name for name, module in network.named_modules() if isinstance(module, nn.Conv2d) and module.bias is not None
    }
    assert with_bias == {
        "low_level.0",
        "decoder.0.0",
        "decoder.1.0",
        "classifier",
        "auxiliary.0.0",
        "auxiliary.1",
    }
    dropped = {name: module.p for name, module in network.named_modules() if isinstance(module, GlobalDropout2d)}
    assert dropped == {"reduce.3": 0.1, "decoder.0.3": 0.1, "decoder.1.3": 0.1, "auxiliary.0.3": 0.1}
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {(n.eps, n.momentum) for n in norms} == {(1e-5, 0.1)}


def test_heads_keep_the_default_initialisation():
    torch.manual_seed(0)
    network = build_network(ModelConfig(backbone="tiny", **{**SMALL, "head_channels": 64}), 5)
    for convolution in (network.reduce[0], network.decoder[0][0], network.auxiliary[0][0]):
        # Uniform within 1 / sqrt(fan_in).
        bound = 1 / math.sqrt(convolution.weight[0].numel())
        assert convolution.weight.abs().max() <= bound
        assert convolution.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_pyramid_concatenates_the_pooled_branch():
    torch.manual_seed(0)
    pyramid = ConcatenatedPyramid(6, 4, (1, 2, 3), nn.BatchNorm2d).eval()
    high = torch.randn(2, 6, 5, 7)
    context = pyramid(high)
    assert context.shape == (2, 20, 5, 7)
    pooled = pyramid.image_level(high.flatten(2).mean(2)[..., None, None])
    enlarged = nn.functional.interpolate(pooled, size=(5, 7), mode="bilinear", align_corners=True)
    torch.testing.assert_close(context[:, :4], enlarged)
    torch.testing.assert_close(context[:, 12:16], pyramid.branches[2](high))


def test_embedding_and_auxiliary_by_hand():
    torch.manual_seed(0)
    network = build_network(TINY, 5).eval()
    image = torch.randn(1, 3, 40, 49)
    features = network.encode(image)
    assert torch.equal(network.backbone.context(features.middle), features.high)
    coarse = network.reduce(network.pyramid(features.high))
    enlarged = nn.functional.interpolate(coarse, size=(10, 13), mode="bilinear", align_corners=True)
    fused = torch.cat([network.low_level(features.low), enlarged], 1)
    expected = network.classifier(network.decoder(fused))
    torch.testing.assert_close(network.classify(network.decode(features), (10, 13)), expected)
    small = network.auxiliary(features.middle)
    assert small.shape == (1, 5, 5, 7)
    assert torch.equal(network.classify_auxiliary(features, (5, 7)), small)
    large = network.classify_auxiliary(features, (40, 49))
    torch.testing.assert_close(large[..., -1, 0], small[..., -1, 0])


@pytest.mark.parametrize("backbone", ["tiny", "efficientnet_lite0"])
def test_small_networks_train_all_parameters_at_odd_sizes(backbone):
    if backbone == "efficientnet_lite0":
        pytest.importorskip("timm")
    torch.manual_seed(0)
    network = build_network(ModelConfig(backbone=backbone, **SMALL), 7)
    features = network.encode(torch.randn(2, 3, 37, 53))
    logits = network.classify(network.decode(features), (37, 53))
    auxiliary = network.classify_auxiliary(features, (37, 53))
    assert logits.shape == auxiliary.shape == (2, 7, 37, 53)
    (logits.square().mean() + auxiliary.square().mean()).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_dropout_acts_in_training_alone_and_follows_the_configuration():
    torch.manual_seed(0)
    image = torch.randn(2, 3, 40, 40)
    for share, differ in ((0.5, True), (0.0, False)):
        network = build_network(TINY.model_copy(update={"dropout": share}), 5)
        with torch.no_grad():
            assert torch.equal(network(image), network(image)) != differ
            network.eval()
            assert torch.equal(network(image), network(image))


def test_the_cps_network_has_no_auxiliary_head():
    network = build_network(ModelConfig(backbone="tiny", pretrained="none"), 5)
    assert network.auxiliary is None
    with pytest.raises(AssertionError, match="no auxiliary head"):
        network.classify_auxiliary(network.encode(torch.randn(2, 3, 33, 33)), (33, 33))
