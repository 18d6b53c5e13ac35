"""First values of convolutions, and what a network without values and a step of training load."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from fpl.models.initial import initialize, initialize_glorot

META = """
import sys, torch
from fpl.config.sections import ModelConfig, TrainConfig
from fpl.methods.optimizers import OptimizerSpec, make_optimizer
from fpl.models import build_network
from fpl.train.runtime import prepare_torch
with torch.device("meta"):
    network = build_network(ModelConfig(backbone="tiny", pretrained="none"), 2)
assert all(tensor.is_meta for tensor in network.parameters())
prepare_torch(TrainConfig(steps=1, evaluate_every=1, deterministic="strict"), 1)
assert torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
for kind in ("sgd", "adam", "adamw"):
    layer = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(OptimizerSpec(0.1, kind), [layer])
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
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


def test_neither_a_network_without_values_nor_a_step_loads_a_compiler() -> None:
    answer = subprocess.run([sys.executable, "-c", META], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
