"""What a method adds to its networks is normalised as they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fpl.config.sections import ModelConfig
from fpl.models import build_network
from fpl.models.norm import CrossProcessBatchNorm2d, fit_norms

TINY = ModelConfig(backbone="tiny", pretrained="none", head_channels=16, low_level_channels=8, tiny_width=8)


def extra() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()), nn.InstanceNorm2d(4))
    for _ in range(2):
        module(torch.randn(5, 3, 6, 6))
    norm = module[1][0]
    nn.init.normal_(norm.weight)
    norm.bias.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("kind", "device_type", "world_size", "expected"),
    [
        ("batch", "cpu", 1, nn.BatchNorm2d),
        ("batch", "cuda", 1, nn.BatchNorm2d),
        ("batch", "cpu", 2, CrossProcessBatchNorm2d),
        ("batch", "cuda", 2, nn.SyncBatchNorm),
        ("frozen", "cpu", 1, None),
        ("frozen", "cuda", 2, None),
    ],
)
def test_plain_layers_become_those_of_the_networks(kind, device_type, world_size, expected) -> None:
    from torchvision.ops import FrozenBatchNorm2d  # loads the compiler: not in every process that collects

    module = extra()
    before, layer, generator = module.state_dict(), module[1][0], torch.get_rng_state()
    values = {name: value.clone() for name, value in before.items()}
    fit_norms(module, kind, device_type, world_size)
    fitted = module[1][0]
    assert type(fitted) is (expected or FrozenBatchNorm2d) and type(module[2]) is nn.InstanceNorm2d
    assert torch.equal(torch.get_rng_state(), generator)
    after = module.state_dict()
    lost = {"1.0.num_batches_tracked"} if kind == "frozen" else set()
    assert set(values) - set(after) == lost and not set(after) - set(values)
    assert all(torch.equal(after[name], values[name]) for name in after)
    if kind == "batch":
        assert fitted.weight is layer.weight and fitted.bias is layer.bias and not fitted.bias.requires_grad
    else:
        assert not list(fitted.parameters())
    # In eval mode nothing depends on the kind; SyncBatchNorm is tried on a GPU alone.
    image = torch.randn(2, 4, 5, 5)
    if expected is not nn.SyncBatchNorm:
        torch.testing.assert_close(fitted.eval()(image), layer.eval()(image))


def test_mode_stays() -> None:
    module = extra().eval()
    fit_norms(module, "batch", "cpu", 2)
    assert not module[1][0].training


@pytest.mark.parametrize("world_size", [1, 2])
def test_networks_are_what_they_were_built_as(world_size: int) -> None:
    method = nn.ModuleDict({"network": build_network(TINY, 3, world_size=world_size), "projector": extra()})
    layers = list(method["network"].modules())
    fit_norms(method, "batch", "cpu", world_size)
    assert all(one is other for one, other in zip(method["network"].modules(), layers, strict=True))
    kinds = {type(layer) for layer in method.modules() if isinstance(layer, nn.BatchNorm2d)}
    assert kinds == {nn.BatchNorm2d if world_size == 1 else CrossProcessBatchNorm2d}
