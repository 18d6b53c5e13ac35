"""What networks show of their insides: the same arithmetic as without, alone, concatenated and piece by piece."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from fpl.config.sections import ModelConfig
from fpl.models import SegmentationNetwork, build_network
from fpl.models.network import Details, Raw
from fpl.models.sub_batches import prepare_sub_batches, sub_batches

NETWORKS = pytest.mark.parametrize("name", ["cps", "ael"])
SIZES = (3, 2)


def build(name: str) -> SegmentationNetwork:
    torch.manual_seed(0)
    keys = {"backbone": "tiny", "pretrained": "none", "head_channels": 16, "low_level_channels": 8, "tiny_width": 8}
    return build_network(ModelConfig(**keys, network=name, aspp_rates=(1, 2, 3)), 5)


def images(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 3, 40, 36, generator=generator) for size in sizes]


def pass_with_gradient(network: SegmentationNetwork, image: Tensor, details: bool) -> Raw:
    torch.manual_seed(3)  # of the dropout
    raw = network.details(image).raw if details else network.raw(image)
    (raw.logits.square().sum() + raw.middle.sum()).backward()
    return raw


@NETWORKS
def test_details_are_a_pass_to_the_bit(name: str) -> None:
    plain, looked_into = build(name), build(name)
    (image,) = images(4)
    raw, same = pass_with_gradient(plain, image, False), pass_with_gradient(looked_into, image, True)
    assert torch.equal(raw.logits, same.logits) and torch.equal(raw.middle, same.middle)
    for one, other in zip(plain.parameters(), looked_into.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)
    for one, other in zip(plain.buffers(), looked_into.buffers(), strict=True):
        assert torch.equal(one, other)


@NETWORKS
def test_details_are_the_pieces(name: str) -> None:
    network = build(name).eval()
    (image,) = images(2)
    found = network.details(image)
    for ours, piece in zip(found.features, network.encode(image), strict=True):
        assert torch.equal(ours, piece)
    assert found.features.low.shape[-2:] == found.embedding.shape[-2:] == found.logits.shape[-2:]
    assert found.fused.shape[1] == network.fused_channels == 24
    assert torch.equal(found.fused, network.fuse(found.features))
    assert torch.equal(found.embedding, network.decode(found.features))
    assert torch.equal(found.logits, network.classifier(found.embedding))
    assert torch.equal(network(image), network.classify(found.embedding, image.shape[-2:]))


@NETWORKS
def test_features_may_be_changed_before_they_are_decoded(name: str) -> None:
    """The gradient of one channel of the backbone is cut where that channel is put to zero."""
    network = build(name).eval()
    (image,) = images(2)
    features = network.encode(image)
    high = features.high.detach().requires_grad_()
    kept = torch.ones(high.shape[1]).view(1, -1, 1, 1)
    kept[:, 0] = 0
    network.decode(features._replace(high=high * kept)).sum().backward()
    assert high.grad is not None
    assert high.grad[:, 0].eq(0).all() and high.grad[:, 1:].ne(0).any()


def test_who_does_not_ask_gets_no_more_than_before() -> None:
    assert Raw._fields == ("logits", "middle")
    network = build("cps")
    assert type(network.raw(images(2)[0])) is Raw


@NETWORKS
def test_concatenated_details_are_split_into_those_of_the_parts(name: str) -> None:
    apart = build(name).double()
    joined = copy.deepcopy(apart)
    prepare_sub_batches(joined)
    for network in (apart, joined):
        for module in network.modules():
            if hasattr(module, "p"):
                module.p = 0.0  # dropout is drawn in another order
    parts = [part.double() for part in images(*SIZES)]
    with sub_batches(joined, SIZES):
        found = joined.details(torch.cat(parts)).split(SIZES)
    assert [len(part.logits) for part in found] == list(SIZES)
    for ours, part in zip(found, parts, strict=True):
        assert isinstance(ours, Details)
        theirs = apart.details(part)
        for one, other in zip(ours.features, theirs.features, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
        for one, other in (
            (ours.fused, theirs.fused),
            (ours.embedding, theirs.embedding),
            (ours.logits, theirs.logits),
        ):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
