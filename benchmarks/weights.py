"""What a weight of a framework's own distance is as one of cross-entropy, for `matched_weight` in the table Frameworks.

    python benchmarks/weights.py [--scale mini] [--seeds 3] [--share 0.1] [--data-root data]
                                 [--csv results/benchmarks/weights.csv]

For each framework of the table whose own pixel loss is no cross-entropy: the first tenth of a run with that loss. At
each step the gradient of either loss, at equal `method.weight` and without a ramp, by the parameters where supervised
and unsupervised loss meet (`Method.probe_parameters`: the classifiers; of CCT the decoder below). The factor is the
mean norm of the own loss's gradient over that of cross-entropy's: with it both pull as hard at the start. Needs the
data that `fpl reproduce frameworks --scale SCALE` draws or looks for; a minute at scale mini.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from rounds import machine_of, write_rows

from fpl.config.campaign import load_campaign
from fpl.config.cells import Cell
from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.config.weights import default_folder
from fpl.data.batches import Batch, make_loader
from fpl.methods.base import Clock, Method
from fpl.sweep.local import LocalContext
from fpl.sweep.places import Places
from fpl.sweep.prepare import Prepared, prepare
from fpl.text import table
from fpl.train.build import build_method
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.runtime import Workers, prepare_torch
from fpl.train.step import take_step

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CPU = torch.device("cpu")


def build(config: RunConfig, prepared: Prepared, places: Places) -> Method:
    """The method of a run in training mode, with its first weights."""
    context = LocalContext(Workers(), CPU, CheckpointFolder(places.out))
    arguments = (config, prepared.split, prepared.images, context, Workers(), places.weights_dir, lambda text: None)
    method, _ = build_method(*arguments)
    return method.train()


def changed(config: RunConfig, weight: float) -> RunConfig:
    """The run with another weight and without a ramp."""
    tree: dict[str, Any] = config.model_dump(mode="json")
    tree["method"] |= {"weight": weight, "ramp": 0.0}
    return validate(tree)


def gradient(method: Method, batch: Batch, clock: Clock) -> torch.Tensor:
    """Of the unsupervised loss by the probe parameters, as one vector."""
    unsupervised = method.losses(batch.to(CPU), clock).unsupervised
    assert unsupervised is not None
    return torch.cat([part.flatten() for part in torch.autograd.grad(unsupervised, method.probe_parameters())])


def norms(cells: tuple[Cell, Cell], seed: int, places: Places, share: float) -> list[tuple[float, float]]:
    """Norms of the gradients of the own loss and of cross-entropy at weight 1, at each step of the start of a run."""
    own, cross_entropy = (cell.configs[seed] for cell in cells)
    prepared = prepare(own, places)
    prepare_torch(own.train, 1)
    runner = build(prepared.config, prepared, places)
    # The rest of an unsupervised loss (flaw correction, say) has weights of its own: differences leave it out.
    probes = [[build(changed(config, by), prepared, places) for by in (1.0, 2.0)] for config in (own, cross_entropy)]
    optimizers = runner.optimizers()
    found = []
    steps = math.ceil(share * own.train.steps)
    loader = make_loader(prepared.config, prepared.split, prepared.images, runner.request)
    for step, batch in zip(range(steps), loader, strict=False):
        clock = Clock(step, own.train.steps)
        state, drawn = runner.state_dict(), torch.get_rng_state()
        pair = []
        for once, twice in probes:
            parts = []
            for probe in (once, twice):
                probe.load_state_dict(state)
                torch.set_rng_state(drawn)
                parts.append(gradient(probe, batch, clock))
            pair.append(float((parts[1] - parts[0]).norm()))
        found.append((pair[0], pair[1]))
        torch.set_rng_state(drawn)
        take_step(runner, optimizers, batch, clock, own.train, CPU)
    return found


def measure(scale: str, seeds: int, share: float, data_root: Path, splits: Path) -> list[dict[str, str]]:
    """One row per framework whose own loss is another distance."""
    campaign = load_campaign(EXPERIMENTS, scale, ["frameworks.*.own", "frameworks.*.ce"], seeds)
    cells = {cell.name: cell for cell in campaign.all_cells if cell.configs}
    others = [cell for cell in cells.values() if cell.column.key == "own" and cell.configs[0].loss.kind != "ce"]
    weights = default_folder(data_root, [config for cell in others for config in cell.configs])
    places = Places(data_root / "no-store", data_root, splits, weights)
    rows = []
    for number, cell in enumerate(others):
        print(f"\r{number + 1} of {len(others)}: {cell.row.label}          ", end="", file=sys.stderr, flush=True)
        pair = (cell, cells[cell.name.removesuffix("own") + "ce"])
        factors, means = [], []
        for seed in range(seeds):
            own, entropy = map(statistics.fmean, zip(*norms(pair, seed, places, share), strict=True))
            factors.append(own / entropy)
            means.append((own, entropy))
        rows.append(
            {
                "row": cell.row.key,
                "framework": cell.row.label,
                "own": cell.configs[0].loss.kind,
                "gradient_own": f"{statistics.fmean(each for each, _ in means):.3g}",
                "gradient_ce": f"{statistics.fmean(each for _, each in means):.3g}",
                "factor": f"{statistics.fmean(factors):.2g}",
                "lowest": f"{min(factors):.2g}",
                "highest": f"{max(factors):.2g}",
            }
        )
    print(file=sys.stderr)
    return rows


def main() -> None:
    """Measure, print, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="mini")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.1, help="of the run that counts as its start")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--splits", type=Path, default=EXPERIMENTS / "splits")
    parser.add_argument("--csv", type=Path)
    chosen = parser.parse_args()
    rows = measure(chosen.scale, chosen.seeds, chosen.share, chosen.data_root, chosen.splits)
    print(table(rows))
    if chosen.csv:
        known = {"scale": chosen.scale, "seeds": str(chosen.seeds), "share": f"{chosen.share:g}"}
        write_rows(chosen.csv, [{**row, **known, "machine": machine_of(CPU)} for row in rows])
        print(f"written to {chosen.csv}")


if __name__ == "__main__":
    main()
