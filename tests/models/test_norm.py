"""Which norm layer is chosen, and batch norm over two processes against batch norm on the joined batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fpl.config.sections import ModelConfig
from fpl.models import build_network, norm_layer
from fpl.models.norm import CrossProcessBatchNorm2d
from tests.models.two_processes import run_two

WORKER = Path(__file__).with_name("norm_worker.py")
TINY = {"backbone": "tiny", "pretrained": "none", "head_channels": 16, "low_level_channels": 8, "tiny_width": 8}
KEYS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}

# name: shapes of the two shares, dtype of images, dtype of parameters, offset of the values
LAYERS = {
    "equal": (((3, 4, 5, 6), (3, 4, 5, 6)), torch.float64, torch.float64, 0.0),
    "unequal": (((1, 4, 5, 6), (4, 4, 5, 6)), torch.float64, torch.float64, 0.0),
    "one_value_each": (((1, 4, 1, 1), (1, 4, 1, 1)), torch.float64, torch.float64, 0.0),
    "large_mean": (((2, 4, 8, 8), (2, 4, 8, 8)), torch.float32, torch.float32, 1e4),
    "bfloat16": (((2, 4, 8, 8), (2, 4, 8, 8)), torch.bfloat16, torch.float32, 0.0),
}


def layer_case(name: str) -> dict:
    shapes, dtype, parameters, offset = LAYERS[name]
    generator = torch.Generator().manual_seed(len(name))

    def draw(shape, add=0.0):
        return (torch.randn(shape, generator=generator, dtype=torch.float64) + add).to(dtype)

    layer = nn.BatchNorm2d(4).to(parameters)
    with torch.no_grad():
        layer.weight.copy_(draw(4, 1.0))
        layer.bias.copy_(draw(4))
    passes = [([draw(shape, offset) for shape in shapes], [draw(shape) for shape in shapes]) for _ in range(2)]
    return {"channels": 4, "parameters": parameters, "state": layer.state_dict(), "passes": passes}


def network_case() -> dict:
    torch.manual_seed(5)
    network = build_network(ModelConfig(**TINY), 3).double()
    images = [torch.randn(1, 3, 40, 36, dtype=torch.float64) for _ in range(2)]
    labels = [torch.randint(0, 3, (1, 40, 36)) for _ in range(2)]
    return {"model": TINY, "classes": 3, "state": network.state_dict(), "images": images, "labels": labels}


@pytest.fixture(scope="module")
def cases() -> dict:
    return {**{name: layer_case(name) for name in LAYERS}, "network": network_case()}


@pytest.fixture(scope="module")
def results(cases, tmp_path_factory) -> list[dict]:
    """Run both processes once; each test looks at its own part."""
    folder = tmp_path_factory.mktemp("gloo")
    torch.save(cases, folder / "cases.pt")
    return run_two(WORKER, folder)


@pytest.mark.parametrize("name", LAYERS)
def test_equals_batch_norm_on_the_joined_batch(name, cases, results):
    case, shares = cases[name], [result[name] for result in results]
    layer = nn.BatchNorm2d(4).to(case["parameters"])
    layer.load_state_dict(case["state"])
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-3, torch.bfloat16: 2e-2}[LAYERS[name][1]]

    def same(ours, theirs, relaxed=1.0):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=relaxed * tolerance, atol=relaxed * tolerance)

    for index, (images, factors) in enumerate(case["passes"]):
        joined = torch.cat([image.detach() for image in images]).requires_grad_(True)
        output = layer(joined)
        (output * torch.cat(factors)).sum().backward()
        same(torch.cat([share["passes"][index][0] for share in shares]), output.detach())
        same(torch.cat([share["passes"][index][1] for share in shares]), joined.grad)
    same(shares[0]["gradients"][0] + shares[1]["gradients"][0], layer.weight.grad, relaxed=10)
    same(shares[0]["gradients"][1] + shares[1]["gradients"][1], layer.bias.grad, relaxed=10)
    with torch.no_grad():
        same(torch.cat([share["without_grad"] for share in shares]), layer(joined))
    for key, value in layer.state_dict().items():
        assert torch.equal(shares[0]["state"][key], shares[1]["state"][key])
        same(shares[0]["state"][key], value)
    same(torch.cat([share["evaluated"] for share in shares]), layer.eval()(joined).detach())


def test_network_of_two_processes_has_the_gradients_of_one(cases, results):
    case = cases["network"]
    network = build_network(ModelConfig(**TINY), 3).double()
    network.load_state_dict(case["state"])
    F.cross_entropy(network(torch.cat(case["images"])), torch.cat(case["labels"])).backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(results[0]["network"]["gradients"][name], parameter.grad, rtol=1e-8, atol=1e-11)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(results[1]["network"]["state"][name], value, rtol=1e-10, atol=1e-12)


def test_single_value_is_refused_on_every_process(results):
    assert all("more than 1 value per channel" in result["single_value"] for result in results)


@pytest.mark.parametrize(
    ("kind", "device_type", "world_size", "expected"),
    [
        ("batch", "cpu", 1, nn.BatchNorm2d),
        ("batch", "cuda", 1, nn.BatchNorm2d),
        ("batch", "cuda", 4, nn.SyncBatchNorm),
        ("batch", "cpu", 2, CrossProcessBatchNorm2d),
        ("batch", "mps", 2, CrossProcessBatchNorm2d),
        ("frozen", "cpu", 1, None),
        ("frozen", "cuda", 4, None),
    ],
)
def test_selection(kind, device_type, world_size, expected):
    from torchvision.ops import FrozenBatchNorm2d  # loads the compiler: not in every process that collects

    layer = norm_layer(kind, device_type, world_size)
    assert layer is (expected or FrozenBatchNorm2d)
    assert set(layer(8).state_dict()) == KEYS - ({"num_batches_tracked"} if kind == "frozen" else set())


def test_without_a_process_group_it_is_plain_batch_norm():
    image = torch.randn(3, 4, 5, 6)
    ours, plain = CrossProcessBatchNorm2d(4), nn.BatchNorm2d(4)
    assert torch.equal(ours(image), plain(image))
    assert torch.equal(ours.running_var, plain.running_var)


@pytest.mark.parametrize("backbone", ["tiny", "efficientnet_lite0"])
@pytest.mark.parametrize(("device_type", "world_size"), [("cpu", 2), ("cuda", 2)])
def test_checkpoints_move_between_world_sizes(backbone, device_type, world_size):
    if backbone == "efficientnet_lite0":
        pytest.importorskip("timm")
    model = ModelConfig(**{**TINY, "backbone": backbone})
    one = build_network(model, 3)
    several = build_network(model, 3, device_type=device_type, world_size=world_size)
    assert list(one.state_dict()) == list(several.state_dict())
    several.load_state_dict(one.state_dict())
    expected = norm_layer("batch", device_type, world_size)
    norms = [m for m in several.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert norms
    assert all(isinstance(norm, expected) for norm in norms)
    image = torch.randn(1, 3, 40, 40)
    with torch.no_grad():
        torch.testing.assert_close(several.eval()(image), one.eval()(image))


@pytest.mark.parametrize("backbone", ["tiny", "efficientnet_lite0"])
def test_frozen_norm_keeps_loaded_statistics_and_trains_with_one_image(backbone):
    if backbone == "efficientnet_lite0":
        pytest.importorskip("timm")
    model = ModelConfig(**{**TINY, "backbone": backbone})
    trained = build_network(model, 3)
    trained(torch.randn(2, 3, 40, 40) + 1)
    frozen = build_network(model.model_copy(update={"norm": "frozen"}), 3)
    frozen.load_state_dict(trained.state_dict())
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in frozen.modules())
    assert all(p.ndim == 4 or name == "classifier.bias" for name, p in frozen.named_parameters())
    before = {name: value.clone() for name, value in frozen.named_buffers()}
    image = torch.randn(1, 3, 40, 40)
    logits = frozen.train()(image)
    logits.mean().backward()
    assert all(torch.equal(before[name], value) for name, value in frozen.named_buffers())
    torch.testing.assert_close(logits, trained.eval()(image), rtol=1e-3, atol=1e-4)
    trained.load_state_dict(frozen.state_dict())


def test_one_image_without_other_processes_cannot_use_batch_norm():
    network = build_network(ModelConfig(**TINY), 3)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        network(torch.randn(1, 3, 40, 40))
