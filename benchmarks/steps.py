"""How long steps of the tiny network take on one CPU core: where `CPU_CORE` of `fpl.sweep.plan.speed` comes from.

    python benchmarks/steps.py [--steps 30]

Times steps of scale mini (supervised, CPS with and without CutMix and FPL, both depths, other crops, batches and
strides) as `fpl plan --calibrate` does, the preparation of images, and runs on two workers; then fits, with equal
relative weight, seconds = per_call * calls + per_gflop * gflop + per_gigabyte * gigabytes. About three minutes. Times
of one core are its process's, so that other processes do not matter; those on two workers need a machine at rest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fpl import load_results
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import BatchRequest, make_loader
from fpl.data.images import Images
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split, split_folder, write_split
from fpl.data.synthetic import draw_city
from fpl.sweep.plan.calibrate import calibrate
from fpl.sweep.plan.capacity import processor_name
from fpl.sweep.plan.costs import Costs
from fpl.text import table

BASE = Path(__file__).parents[1] / "experiments" / "base"
METHODS: dict[str, list[str]] = {
    "supervised": [],
    "cps": ["method.cutmix=false"],
    "cps fpl": ["method.cutmix=false", "loss.kind=fpl"],
    "cps cutmix": [],
    "cps cutmix fpl": ["loss.kind=fpl"],
}
VARIANTS: dict[str, list[str]] = {
    "": [],
    "stride 1": ["loss.stride=1"],
    "crop 64": ["data.crop=[64,64]"],
    "batch 12": ["data.labeled_batch=12", "data.unlabeled_batch=12"],
}


def configurations() -> dict[str, RunConfig]:
    """Kinds of steps by a short name."""
    found = {}
    for depth in (1, 2):
        for method, chosen in METHODS.items():
            for variant, changes in VARIANTS.items():
                overrides = [f"model.tiny_depth={depth}", "model.pretrained=none", *chosen, *changes]
                name = " ".join(word for word in (method, f"depth {depth}", variant) if word)
                found[name] = load_config(_recipe(method.split()[0]), scale="mini", overrides=overrides)
    return found


def _recipe(method: str) -> Path:
    return BASE / f"synthetic_city_{method}.toml"


def per_image(folder: Path, steps: int) -> float:
    """Process seconds to read and augment one image of the drawn city, decoded images kept in memory."""
    spec = get_spec("synthetic_city")
    root = find_root(spec, folder)
    split = make_split(spec, root, "every-nth", "1/8")
    config = load_config(_recipe("cps"), scale="mini", overrides=[f"train.steps={10 * steps}"])
    images = Images(spec, root, "train", 1, True)
    count = 0
    for number, batch in enumerate(make_loader(config, split, images, BatchRequest(draws=2))):
        if number == 5 * steps:
            # The first half has decoded the files.
            began, count = time.process_time(), 0
        count += len(batch.image) + sum(len(draw.image) for draw in batch.unlabeled)
    return (time.process_time() - began) / count


def shared(folder: Path, steps: int) -> list[tuple[str, RunConfig, float]]:
    """Seconds of a step on two workers: name, configuration, seconds."""
    split = make_split(get_spec("synthetic_city"), folder / "synthetic_city", "every-nth", "1/8")
    write_split(split, split_folder(folder / "splits", "synthetic_city", "every-nth", "1/8"))
    found = []
    for method in ("supervised", "cps"):
        overrides = ["model.pretrained=none", f"train.steps={2 * steps}", "model.tiny_depth=1"]
        out = folder / method
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "fpl", "train"]
        command += [str(_recipe(method)), *overrides, "--scale", "mini", "--threads", "1", "--out", str(out)]
        command += ["--data-root", str(folder), "--splits", str(folder / "splits")]
        subprocess.run(command, check=True, capture_output=True)
        seconds = float(load_results(out).runs["train_seconds"][0]) / (2 * steps)
        found.append((method, load_config(_recipe(method), scale="mini", overrides=overrides), seconds))
    return found


def main() -> None:
    """Measure, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    rows, work, seconds = [], [], []
    for name, config in configurations().items():
        (measured,) = calibrate([config], steps, device="cpu", clock=time.process_time, say=lambda text: None)
        rows.append(name)
        work.append([measured.work.calls, measured.work.gflop, measured.work.gigabytes])
        seconds.append(measured.seconds_per_step)
    amounts, times = np.array(work), np.array(seconds)
    fit, *_ = np.linalg.lstsq(amounts / times[:, None], np.ones(len(times)), rcond=None)
    expected = amounts @ fit
    print(processor_name())
    lines = [
        {"step": name, "ms": f"{1e3 * time_:.1f}", "fitted": f"{1e3 * guess:.1f}", "ratio": f"{guess / time_:.2f}"}
        for name, time_, guess in zip(rows, times, expected, strict=True)
    ]
    print(table(lines))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draw_city(folder / "synthetic_city")
        image = per_image(folder, steps)
        more = []
        for name, config, found in shared(folder, steps):
            counted = Costs().of(config).step
            alone = fit[0] * counted.calls
            divided = fit[1] * counted.gflop + fit[2] * counted.gigabytes + image * counted.images
            more.append((found - alone - divided / 2) / counted.calls)
            print(f"two workers, {name}: {1e3 * found:.1f} ms a step")
    print(f"per_call={fit[0]:.3g} per_gflop={fit[1]:.3g} per_gigabyte={fit[2]:.3g}", end=" ")
    print(f"per_image={image:.3g} per_shared_call={np.mean(more):.3g}")


if __name__ == "__main__":
    main()
