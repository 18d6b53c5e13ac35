"""One of two processes of test_sub_batches.py: normalises its concatenated shares of two parts.

Usage: python sub_batches_worker.py FOLDER RANK, with FOLDER/cases.pt in place.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from fpl.models.norm import CrossProcessBatchNorm2d
from fpl.models.sub_batches import prepare_sub_batches, sub_batches


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=2)
    case = torch.load(folder / "cases.pt", weights_only=True)
    layer = CrossProcessBatchNorm2d(4).double()
    prepare_sub_batches(layer)
    with sub_batches(layer, case["sizes"]):
        output = layer(torch.cat(case["shares"][rank])).detach()
    outputs = [part.clone() for part in output.split(case["sizes"])]
    torch.save({"outputs": outputs, "state": layer.state_dict()}, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
