"""First values of convolutions, and what a network without values costs."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from fpl.models.initial import initialize, initialize_glorot

META = """
import sys, torch
from fpl.config.sections import ModelConfig
from fpl.models import build_network
with torch.device("meta"):
    network = build_network(ModelConfig(backbone="tiny", pretrained="none"), 2)
assert all(tensor.is_meta for tensor in network.parameters())
print("torch._dynamo" in sys.modules)
"""


def test_the_deviation_is_that_of_the_rule() -> None:
    convolution = nn.Conv2d(64, 128, 3)
    torch.manual_seed(0)
    initialize(convolution, "fan_in")
    torch.testing.assert_close(convolution.weight.std().item(), (2 / (64 * 9)) ** 0.5, rtol=0.02, atol=0)
    initialize(convolution, "fan_out")
    torch.testing.assert_close(convolution.weight.std().item(), (2 / (128 * 9)) ** 0.5, rtol=0.02, atol=0)


def test_glorot_is_uniform_within_its_bound() -> None:
    convolution, bound = nn.Conv2d(300, 100, 1), (6 / 400) ** 0.5
    torch.manual_seed(0)
    initialize_glorot(convolution)
    assert bound * 0.99 < float(convolution.weight.detach().abs().max()) <= bound
    torch.testing.assert_close(convolution.weight.std().item(), bound / 3**0.5, rtol=0.02, atol=0)


def test_a_network_without_values_loads_no_compiler() -> None:
    answer = subprocess.run([sys.executable, "-c", META], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
