"""A few golden steps of every method: what `fpl.config.identity.ARITHMETIC` stands for.

`python -m tests.train.arithmetic` writes them anew, once ARITHMETIC has been raised.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import torch

import fpl
from fpl.config.compose import load_config
from fpl.config.identity import ARITHMETIC
from fpl.config.schema import RunConfig
from fpl.config.sections import EvalConfig
from fpl.sweep.places import Places
from fpl.train.evaluate import evaluate
from fpl.train.pretrain import pretrain_tiny
from fpl.train.runtime import Workers
from tests.train.runs import AEL, OPTIONS, run, weights

GOLDEN = Path(__file__).with_name("arithmetic.json")
# Rounding moves these numbers by 1e-5 and less at so small a rate (measured between the tensor and the compiled loss);
# the smallest change of meaning that was ever made here moved a loss by 4e-2.
TOLERANCE = 1e-3
BASE = ["train.steps=4", "train.evaluate_every=4", "optim.lr=0.001"]
CASES = {
    "supervised": ["method.name=supervised"],
    "supervised, hard pixels": ["method.name=supervised", "loss.supervised=ohem", "loss.ohem_min_kept=300"],
    "cps": ["method.cutmix=false", "loss.kind=ce"],
    "cps cutmix": ["loss.kind=ce"],
    "fpl cps": ["method.cutmix=false"],
    "fpl cps cutmix": [],
    "fpl cps cutmix released": ["loss.fidelity=released"],
    "fpl K = n, linear": ["loss.strategy=n", "loss.weight=linear"],
    "fpl step, convex": ["loss.strategy=step", "loss.weight=convex"],
    "ael": [*AEL, "loss.kind=ce"],
    "fpl ael": AEL,
    "fpl ael released": [*AEL, "method.fidelity=released", "loss.fidelity=released"],
}
PROTOCOLS = {
    "whole": {"protocol": "whole"},
    "sliding": {"protocol": "sliding", "crop": [40, 80], "stride_rate": 0.67},
    "center": {"protocol": "center"},
}


def steps(config: RunConfig, places: Places) -> dict[str, float]:
    """Loss terms of the steps and how far the weights went, of one run into an empty store."""
    run(config, places, dataclasses.replace(OPTIONS, diagnose_every=2))
    results = fpl.load_results(places.out)
    found = {}
    for frame, names in ((results.history, ("loss", "supervised", "unsupervised")), (results.fuzziness, ("mean_k",))):
        for name in (name for name in names if name in frame and len(frame)):
            for step, value in frame.dropna(subset=[name]).groupby("step")[name].mean().items():
                found[f"{name} {step}"] = float(value)
    start = weights(dataclasses.replace(places, out=places.out / "start"))
    end = weights(places)
    # Weights alone: a norm layer's statistics have sums of their own in the losses that follow.
    moved = sum(float((end[name] - start[name]).double().square().sum()) for name in end if name.endswith("weight"))
    return {**found, "moved": moved**0.5}


def trained(run_file: Path, places: Places, overrides: list[str]) -> dict[str, float]:
    """The golden numbers of one case."""
    still = load_config(
        run_file, overrides=[*BASE, *overrides, "train.steps=1", "train.evaluate_every=1", "optim.lr=1e-12"]
    )
    run(still, dataclasses.replace(places, out=places.out / "start"))
    return steps(load_config(run_file, overrides=[*BASE, *overrides]), places)


def evaluated(config: RunConfig) -> dict[str, list[int]]:
    """Confusion matrices of a known function of the pixels, in float64, under every protocol."""
    generator = torch.Generator().manual_seed(3)
    mix = torch.randn(4, 3, generator=generator, dtype=torch.float64)

    def predict(image: torch.Tensor) -> torch.Tensor:
        blurred = torch.nn.functional.avg_pool2d(image.double(), 5, 1, 2)
        return torch.einsum("kc,bchw->bkhw", mix, blurred)

    samples = []
    for number, (height, width) in enumerate(((45, 60), (45, 60), (33, 90))):
        image = torch.randint(0, 256, (3, height, width), generator=generator, dtype=torch.uint8)
        label = torch.randint(0, 5, (height, width), generator=generator, dtype=torch.uint8)
        samples.append((str(number), image, torch.where(label == 4, 255, label)))
    data = config.data.model_copy(update={"num_classes": 4})
    cpu = torch.device("cpu")
    return {
        name: evaluate(predict, samples, EvalConfig.model_validate(options), data, cpu, Workers()).ravel().tolist()
        for name, options in PROTOCOLS.items()
    }


def pretrained(folder: Path) -> float:
    """Sum of squares of the tiny encoder's weights after three steps of pre-training."""
    state = torch.load(pretrain_tiny(folder, width=8, steps=3), weights_only=True)["state_dict"]
    return sum(float(value.double().square().sum()) for name, value in state.items() if name.endswith("weight"))


def measure(run_file: Path, places: Places) -> dict[str, object]:
    """All golden numbers."""
    cases = {}
    for number, (name, overrides) in enumerate(CASES.items()):
        cases[name] = trained(run_file, dataclasses.replace(places, out=places.out / str(number)), overrides)
    return {
        "arithmetic": ARITHMETIC,
        "steps": cases,
        "evaluation": evaluated(load_config(run_file)),
        "pretrained": pretrained(places.out / "weights"),
    }


def main() -> None:
    from fpl.data.spec import find_root, get_spec
    from fpl.data.splits import make_split, split_folder, write_split
    from fpl.data.synthetic import draw_city
    from tests.conftest import RUN

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw_city(folder / "synthetic_city", train=12, validation=3, size=(45, 60))
        spec = get_spec("synthetic_city")
        split = make_split(spec, find_root(spec, folder), "every-nth", "1/4")
        write_split(split, split_folder(folder / "splits", "synthetic_city", "every-nth", "1/4"))
        (folder / "run.toml").write_text(RUN)
        found = measure(folder / "run.toml", Places(folder / "out", folder, folder / "splits"))
    if GOLDEN.exists() and json.loads(GOLDEN.read_text())["arithmetic"] == ARITHMETIC:
        print(f"{GOLDEN.name} is of arithmetic {ARITHMETIC} already; delete it to add a case that changes no number")
        return
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {GOLDEN}")


if __name__ == "__main__":
    main()
