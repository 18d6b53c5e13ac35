"""One of two processes of test_dropout.py: draws and drops for its share and writes what came out.

Usage: python dropout_worker.py FOLDER RANK, with FOLDER/case.pt in place.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from fpl.config.sections import ModelConfig
from fpl.models import build_network
from fpl.models.dropout import GlobalDropout2d, global_normal, global_uniform


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=2)
    case = torch.load(folder / "case.pt", weights_only=True)
    image = case["images"].chunk(2)[rank]
    network = build_network(ModelConfig(**case["model"]), case["classes"], world_size=2).double()
    network.load_state_dict(case["state"])
    torch.manual_seed(case["seed"])
    uniform = global_uniform((len(image), 5), image.device)
    normal = global_normal((len(image), 3, 7, 5), image.device)
    dropped = GlobalDropout2d(0.5)(image)
    with torch.no_grad():
        logits = network(image)
    after = torch.rand(3)
    drawn = {"uniform": uniform, "normal": normal, "dropped": dropped, "logits": logits, "after": after}
    torch.save(drawn, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
