"""A concatenated batch, normalised part by part, against one pass per part."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fpl.config.sections import ModelConfig
from fpl.models import SegmentationNetwork, build_network
from fpl.models.dropout import GlobalDropout2d
from fpl.models.sub_batches import prepare_sub_batches, sub_batches
from tests.models.two_processes import run_two

WORKER = Path(__file__).with_name("sub_batches_worker.py")
TINY = {"pretrained": "none", "head_channels": 16, "low_level_channels": 8}
SIZES = (3, 2)


def network(backbone: str, **keys: str) -> SegmentationNetwork:
    torch.manual_seed(0)
    return build_network(ModelConfig(**TINY, backbone=backbone, **keys), 5).double()


def images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 3, 40, 36, generator=generator, dtype=torch.float64) * (1 + size) for size in SIZES]


@pytest.mark.parametrize("backbone", ["tiny", "efficientnet_lite0"])
def test_concatenated_pass_equals_one_pass_per_part(backbone: str) -> None:
    if backbone == "efficientnet_lite0":
        pytest.importorskip("timm")
    apart = network(backbone)
    joined = copy.deepcopy(apart)
    names = list(apart.state_dict())
    prepare_sub_batches(joined)
    parts = images()
    expected = [apart(part) for part in parts]
    with sub_batches(joined, SIZES):
        found = joined(torch.cat(parts)).split(SIZES)
    factors = [torch.randn_like(part) for part in expected]
    for outputs in (expected, found):
        torch.stack([(output * factor).sum() for output, factor in zip(outputs, factors, strict=True)]).sum().backward()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    assert list(joined.state_dict()) == names
    for (name, ours), theirs in zip(joined.state_dict().items(), apart.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11, msg=name)
        if name.endswith("num_batches_tracked"):
            assert ours == len(SIZES)
    for (name, ours), theirs in zip(joined.named_parameters(), apart.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-8, msg=name)


def test_layer_is_the_same_bits_and_ends_with_the_context() -> None:
    plain, layer = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
    prepare_sub_batches(layer)
    whole = torch.randn(5, 4, 3, 3)
    with sub_batches(layer, SIZES):
        found = layer(whole)
    assert torch.equal(found, torch.cat([plain(part) for part in whole.split(SIZES)]))
    # The order of the parts decides running statistics.
    assert torch.equal(layer.running_mean, plain.running_mean) and torch.equal(layer.running_var, plain.running_var)
    assert torch.equal(layer(whole), plain(whole))
    with sub_batches(layer.eval(), SIZES):
        assert torch.equal(layer(whole), plain.eval()(whole))


def test_plain_concatenation_is_something_else() -> None:
    parts = images()
    expected = [network("tiny")(part) for part in parts]
    found = network("tiny")(torch.cat(parts)).split(SIZES)
    assert (found[0] - expected[0]).abs().max() > 0.05 * expected[0].abs().max()


def test_dropout_is_drawn_part_by_part() -> None:
    dropout = GlobalDropout2d(0.5)
    prepare_sub_batches(dropout)
    whole = torch.ones(5, 64, 1, 1)
    torch.manual_seed(3)
    with sub_batches(dropout, SIZES):
        found = dropout(whole)
    torch.manual_seed(3)
    assert torch.equal(found, torch.cat([GlobalDropout2d(0.5)(part) for part in whole.split(SIZES)]))


def test_two_processes_normalise_each_part_together(tmp_path: Path) -> None:
    """Each holds half of either part; one process with the parts whole gives the truth."""
    generator = torch.Generator().manual_seed(2)
    parts = [torch.randn(2 * size, 4, 5, 6, generator=generator, dtype=torch.float64) + size for size in SIZES]
    shares = [
        [part[rank * size : (rank + 1) * size] for part, size in zip(parts, SIZES, strict=True)] for rank in (0, 1)
    ]
    torch.save({"shares": shares, "sizes": SIZES}, tmp_path / "cases.pt")
    results = run_two(WORKER, tmp_path)
    layer = nn.BatchNorm2d(4).double()
    for number, part in enumerate(parts):
        torch.testing.assert_close(torch.cat([result["outputs"][number] for result in results]), layer(part).detach())
    for key, value in layer.state_dict().items():
        for result in results:
            torch.testing.assert_close(result["state"][key], value)
