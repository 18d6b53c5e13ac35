"""Dropout by hand, and on two processes against one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fpl.config.sections import ModelConfig
from fpl.models import build_network
from fpl.models.dropout import GlobalDropout2d, global_normal, global_uniform
from tests.models.two_processes import run_two

WORKER = Path(__file__).with_name("dropout_worker.py")
MODEL = {
    "backbone": "tiny",
    "pretrained": "none",
    "network": "ael",
    "aspp_rates": (1, 2, 3),
    "head_channels": 16,
    "low_level_channels": 8,
    "tiny_width": 8,
    "dropout": 0.5,
}
SEED = 11


def test_one_process_multiplies_by_a_mask_drawn_from_the_global_generator():
    features = torch.randn(3, 4, 2, 5, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(SEED)
    uniform = torch.rand(3, 4)
    torch.manual_seed(SEED)
    result = GlobalDropout2d(0.25)(features)
    mask = torch.where(uniform < 0.25, 0.0, 4 / 3).double()
    assert 0 < (mask == 0).sum() < mask.numel()
    torch.testing.assert_close(result, features * mask[:, :, None, None], rtol=1e-6, atol=0)
    result.sum().backward()
    torch.testing.assert_close(features.grad, mask[:, :, None, None].expand_as(features), rtol=1e-6, atol=0)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_share_and_expectation(p):
    torch.manual_seed(SEED)
    result = GlobalDropout2d(p)(torch.ones(100, 1000, 1, 2))
    # A hundred thousand channels: five standard deviations of the share and of the mean.
    deviation = (p * (1 - p) / 1e5) ** 0.5
    assert (result == 0).float().mean().item() == pytest.approx(p, abs=5 * deviation)
    assert result.mean().item() == pytest.approx(1.0, abs=5 * deviation / (1 - p))
    assert torch.equal(result[..., 0], result[..., 1])


def test_identity_without_a_draw_in_eval_mode_and_for_p_0():
    features = torch.randn(2, 3, 4, 4)
    before = torch.get_rng_state()
    assert GlobalDropout2d(0.5).eval()(features) is features
    assert GlobalDropout2d(0.0)(features) is features
    assert torch.equal(torch.get_rng_state(), before)


def test_dtype_and_memory_format_stay():
    features = torch.randn(2, 8, 4, 4).bfloat16().to(memory_format=torch.channels_last)
    result = GlobalDropout2d(0.5)(features)
    assert result.dtype == torch.bfloat16
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_normal_numbers_have_mean_0_and_variance_1():
    torch.manual_seed(SEED)
    drawn = global_normal((10, 100, 100), torch.device("cpu"))
    assert drawn.dtype == torch.float32
    # A hundred thousand: five standard deviations of the mean, of the variance and of the share above 1.
    assert abs(drawn.mean().item()) < 5 / 1e5**0.5
    assert abs(drawn.var().item() - 1) < 5 * (2 / 1e5) ** 0.5
    assert abs((drawn > 1).float().mean().item() - 0.158655) < 5 * (0.158655 * 0.841345 / 1e5) ** 0.5


def test_two_processes_get_the_rows_of_one(tmp_path):
    torch.manual_seed(3)
    network = build_network(ModelConfig(**MODEL), 3).double()
    images = torch.randn(4, 3, 40, 36, dtype=torch.float64)
    case = {"model": MODEL, "classes": 3, "state": network.state_dict(), "images": images, "seed": SEED}
    torch.save(case, tmp_path / "case.pt")
    results = run_two(WORKER, tmp_path)
    torch.manual_seed(SEED)
    assert torch.equal(torch.cat([result["uniform"] for result in results]), global_uniform((4, 5), images.device))
    assert torch.equal(torch.cat([result["normal"] for result in results]), global_normal((4, 3, 7, 5), images.device))
    dropped = GlobalDropout2d(0.5)(images)
    assert torch.equal(torch.cat([result["dropped"] for result in results]), dropped)
    with torch.no_grad():
        logits = network(images)
    torch.testing.assert_close(torch.cat([result["logits"] for result in results]), logits, rtol=1e-9, atol=1e-11)
    # The generators have drawn equally much.
    after = torch.rand(3)
    assert all(torch.equal(result["after"], after) for result in results)
