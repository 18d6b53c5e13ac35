"""One of two processes of test_norm.py: runs every case on its share and writes what came out.

Usage: python norm_worker.py FOLDER RANK, with FOLDER/cases.pt in place.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from fpl.config.sections import ModelConfig
from fpl.models import build_network
from fpl.models.norm import CrossProcessBatchNorm2d


def run_layer(case: dict, rank: int) -> dict:
    layer = CrossProcessBatchNorm2d(case["channels"]).to(case["parameters"])
    layer.load_state_dict(case["state"])
    passes = []
    for shares, factors in case["passes"]:
        image = shares[rank].requires_grad_(True)
        output = layer(image)
        (output * factors[rank]).sum().backward()
        passes.append((output.detach(), image.grad))
    with torch.no_grad():
        without_grad = layer(shares[rank])
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    evaluated = layer.eval()(shares[rank]).detach()
    gradients = (layer.weight.grad, layer.bias.grad)
    return {
        "passes": passes,
        "gradients": gradients,
        "without_grad": without_grad,
        "state": state,
        "evaluated": evaluated,
    }


def run_network(case: dict, rank: int) -> dict:
    network = build_network(ModelConfig(**case["model"]), case["classes"], world_size=2).double()
    network.load_state_dict(case["state"])
    F.cross_entropy(network(case["images"][rank]), case["labels"][rank]).backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    for gradient in gradients.values():
        dist.all_reduce(gradient)
        gradient /= 2
    return {"gradients": gradients, "state": network.state_dict()}


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=2)
    cases = torch.load(folder / "cases.pt", weights_only=True)
    results = {}
    for name, case in cases.items():
        results[name] = run_network(case, rank) if "model" in case else run_layer(case, rank)
    try:
        CrossProcessBatchNorm2d(2)(torch.ones(1 - rank, 2, 1, 1))
    except ValueError as error:
        results["single_value"] = str(error)
    torch.save(results, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
