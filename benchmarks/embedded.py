"""What the drawn data sets can show: a few short runs of a tiny network, and three tables.

    python benchmarks/embedded.py [--work results/embedded] [--seeds 2] [--only labels|fuzzy]

Labels: supervised runs on 1/16 and on all labels of both sets. Fuzzy: FPL+CPS without CutMix on 1/16 of the city with
T in 0.5, 0.9 and 0.99: mean K and the share of pixels with K = 1 during training, and at the end the impurity (share of
pixels whose fuzzy positives do not hold the true class) of the trained network on the unlabeled training images.
A run that is done is not trained again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch

from fpl.config.compose import load_config
from fpl.data.augment import normalise
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split, split_folder, write_split
from fpl.data.synthetic import draw_city, draw_voc
from fpl.losses import assign
from fpl.losses.assignment import class_rank
from fpl.store.read import load_results
from fpl.sweep.local import run_local
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from fpl.train.options import LoopOptions
from fpl.train.pretrain import pretrain_tiny
from fpl.train.trained import find_weights, load_trained

EXPERIMENTS = Path(__file__).parents[1] / "experiments" / "base"
THRESHOLDS = (0.5, 0.9, 0.99)
FRACTIONS = ("1/16", "1/1")
LABEL_RUN = (
    "data.labeled_batch=8",
    "data.scales=[0.9,1.2]",
    "optim.lr=0.2",
    "train.steps=500",
    "train.evaluate_every=500",
)
FUZZY_RUN = ("method.cutmix=false", "train.steps=200", "train.evaluate_every=200")


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("results/embedded"), help="folder for data and results")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of the supervised runs")
    parser.add_argument("--only", choices=("labels", "fuzzy"), help="one half of the tables")
    arguments = parser.parse_args()
    places = _set_up(arguments.work)
    if arguments.only != "fuzzy":
        _show_labels(places, arguments.seeds)
    if arguments.only != "labels":
        _show_fuzzy(places)


def _set_up(work: Path) -> Places:
    """Draw, split and pre-train what is not there yet, and say how long it took."""
    data, splits, weights = work / "data", work / "splits", work / "weights"
    for name, draw in (("synthetic_city", draw_city), ("synthetic_voc", draw_voc)):
        began, wall = time.process_time(), time.monotonic()
        draw(data / name)
        print(f"{name}: {time.process_time() - began:.1f} CPU s, {time.monotonic() - wall:.1f} s")
        for fraction in FRACTIONS:
            spec = get_spec(name)
            split = make_split(spec, find_root(spec, data), "every-nth", fraction)
            write_split(split, split_folder(splits, name, "every-nth", fraction))
    began = time.process_time()
    path = pretrain_tiny(weights)
    print(f"{path.name}: {time.process_time() - began:.1f} CPU s, {path.stat().st_size / 2**20:.2f} MiB\n")
    return Places(work, data, splits, weights)


def _train(places: Places, experiment: str, overrides: Iterable[str]) -> pd.Series:
    """Train a run with the pre-trained encoder, or find it done; its row."""
    config = load_config(EXPERIMENTS / experiment, overrides=["model.pretrained=imagenet", *overrides])
    options = LoopOptions(checkpoint_every=10**6)
    identity = run_local(config, places, device="cpu", options=options).stem
    runs = load_results(places.out).runs
    return runs[runs.run_id == identity].iloc[0]


def _show_labels(places: Places, seeds: int) -> None:
    rows = []
    for dataset in ("synthetic_city", "synthetic_voc"):
        found: dict[str, list[float]] = {}
        for fraction in FRACTIONS:
            for seed in range(seeds):
                overrides = [*LABEL_RUN, f"data.split.fraction={fraction}", f"seed={seed}"]
                row = _train(places, f"{dataset}_supervised.toml", overrides)
                found.setdefault(fraction, []).append(float(row.miou_whole_last))
        gap = statistics.mean(found["1/1"]) - statistics.mean(found["1/16"])
        rows.append(
            [dataset, *(" ".join(f"{value:.2f}" for value in found[each]) for each in FRACTIONS), f"{gap:+.2f}"]
        )
    _print_table(["mIoU last, by seed", "1/16", "all labels", "gain"], rows)


def _show_fuzzy(places: Places) -> None:
    rows = []
    for threshold in THRESHOLDS:
        overrides = [*FUZZY_RUN, "data.split.fraction=1/16", f"loss.threshold={threshold}"]
        row = _train(places, "synthetic_city_fpl.toml", overrides)
        fuzziness = load_results(places.out).fuzziness
        own = fuzziness[fuzziness.run_id == row.run_id].groupby("step")[["mean_k", "share_k1"]].mean()
        parts = [own[own.index <= 50], own[(own.index > 50) & (own.index <= 150)], own[own.index > 150]]
        k = " -> ".join(f"{part.mean_k.mean():.2f}" for part in parts)
        share = " -> ".join(f"{part.share_k1.mean():.3f}" for part in parts)
        impurity, k_end = _measure_impurity(places, str(row.run_id), threshold)
        cells = [f"{threshold}", k, share, f"{k_end:.2f}", f"{impurity:.3f}", f"{row.miou_whole_last:.2f}"]
        rows.append(cells)
    steps = "steps 1-50, 51-150, 151-200"
    _print_table(["T", f"mean K, {steps}", "share of K = 1", "K at the end", "impurity", "mIoU"], rows)


@torch.inference_mode()
def _measure_impurity(places: Places, run_id: str, threshold: float) -> tuple[float, float]:
    """Share of the unlabeled images' pixels whose fuzzy positives miss the true class, and mean K, last weights."""
    trained = load_trained(find_weights(places.out, run_id, "last"), torch.device("cpu"))
    prepared = prepare(trained.config, places)
    missed = pixels = fuzzy = 0
    for image_id in prepared.split.unlabeled:
        image = torch.from_numpy(prepared.images.image(image_id).copy()).permute(2, 0, 1)
        label = torch.from_numpy(prepared.images.label(image_id).copy()).long()
        valid = label != 255
        logits = trained.method.predict(_normalised(image))
        k = assign(logits.softmax(1), threshold=threshold)[0]
        rank = class_rank(logits)[0].gather(0, label.where(valid, torch.tensor(0))[None])[0]
        missed += int(((rank >= k) & valid).sum())
        fuzzy += int(k[valid].sum())
        pixels += int(valid.sum())
    return missed / pixels, fuzzy / pixels


def _normalised(image: torch.Tensor) -> torch.Tensor:
    return normalise(image, torch.ones(image.shape[1:], dtype=torch.bool))[None]


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    print("\n" + "| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


if __name__ == "__main__":
    main()
