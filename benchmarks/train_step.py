"""A whole CPS + CutMix step on two DeepLabV3+ ResNet-50: FPL and the options of the step beside plain cross-entropy.

    python benchmarks/train_step.py [--rounds 4] [--crop 192] [--batch 2] [--device cpu]
                                    [--csv results/benchmarks/train_step.csv]

`plain` is the float32 step as one writes it first: logits enlarged and mixed (`interpolate`, `where`), `torch.max` +
`F.cross_entropy`, SGD one parameter after the other. Then the suite's step with FPL, with each option of `train` by
itself, and with all of them. All take turns in this one process; a ratio is the median of the ratios to `plain` of the
rounds. On a CPU: one thread, seconds of the process, so that other programs do not count. Minutes.
`train.compile` is left out: it takes longer to compile than to measure.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rounds import Step, machine_of, measure, write_rows

from fpl.config.registry import method_class
from fpl.config.schema import RunConfig
from fpl.data.augment import cutmix_masks
from fpl.data.batches import Batch, Draw
from fpl.losses.kernels import implementation
from fpl.methods.base import Clock, Method
from fpl.models import SegmentationNetwork, build_network
from fpl.text import table
from fpl.train.runtime import Workers, autocast, prepare_torch, select_device

OPTIONS: dict[str, dict[str, Any]] = {
    "fpl": {},
    "fpl + concatenate": {"concatenate": True},
    "fpl + channels_last": {"channels_last": True},
    "fpl + bf16": {"precision": "bf16"},
    "fpl + all": {"concatenate": True, "channels_last": True, "precision": "bf16"},
}
TARGETS = {"fpl": 1.0, "fpl + all": 0.52}
CLASSES, WEIGHT, RATE = 21, 1.5, 1e-4
CLOCK = Clock(0, 1)
# What of a CPU's flags makes bf16 faster than float32; without, it is emulated.
BF16_FLAGS = {"avx512_bf16", "amx_bf16"}


def make_config(crop: int, batch: int, train: dict[str, Any]) -> RunConfig:
    """The run whose step is timed."""
    return RunConfig.model_validate(
        {
            "data": {
                "dataset": "voc",
                "num_classes": CLASSES,
                "split": {"fraction": "1/8"},
                "crop": (crop, crop),
                "labeled_batch": batch,
                "unlabeled_batch": batch,
            },
            "model": {"backbone": "resnet50", "pretrained": "none"},
            "method": {"name": "cps", "cutmix": True, "weight": WEIGHT},
            "loss": {"kind": "fpl"},
            "optim": {"lr": RATE},
            "train": {"steps": 100, "evaluate_every": 100, **train},
            "eval": {"protocol": "sliding"},
        }
    )


def draw_batch(crop: int, batch: int) -> Batch:
    """Smooth random images, so that neighbouring pixels are alike, and labels in blocks."""
    generator = torch.Generator().manual_seed(0)

    def image() -> torch.Tensor:
        small = torch.rand(batch, 3, crop // 16, crop // 16, generator=generator)
        return (F.interpolate(small, size=(crop, crop), mode="bilinear") * 255).byte()

    valid = torch.ones(batch, crop, crop, dtype=torch.bool)
    label = torch.randint(0, CLASSES, (batch, 1, crop // 32, crop // 32), generator=generator).float()
    label = F.interpolate(label, size=(crop, crop)).byte()[:, 0]
    numbers = torch.arange(batch)
    return Batch(image(), label, valid, [Draw(image(), valid, numbers, numbers) for _ in range(2)], 0)


def build(config: RunConfig, device: torch.device) -> Method:
    """The method with random weights, the same for every contestant."""
    torch.manual_seed(0)

    def network() -> SegmentationNetwork:
        return build_network(config.model, CLASSES, device_type=device.type)

    method: Method = method_class(config.method)(config, network, Workers()).to(device).train()
    return method.to(memory_format=torch.channels_last) if config.train.channels_last else method


def plain_step(config: RunConfig, drawn: Batch, device: torch.device) -> Step:
    """A step without anything of the suite but the networks."""
    networks = build(config, device).networks()
    decayed = [
        [p for net in networks for p in net.parameters() if (p.ndim > 1) is weights] for weights in (True, False)
    ]
    groups = [{"params": decayed[0], "weight_decay": 1e-4}, {"params": decayed[1], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=RATE, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        batch = drawn.to(device)
        first, second = (draw.image for draw in batch.unlabeled)
        inside = cutmix_masks(0, batch.unlabeled[0].position, config.data.crop).to(device)[:, None]
        with torch.no_grad():
            pairs = [(network(first), network(second)) for network in networks]
            teachers = [torch.where(inside, other, one).max(1).indices for one, other in pairs]
        mixed = torch.where(inside, second, first)
        students = [network(mixed) for network in networks]
        supervised = [F.cross_entropy(network(batch.image), batch.label, ignore_index=255) for network in networks]
        cross = F.cross_entropy(students[0], teachers[1]) + F.cross_entropy(students[1], teachers[0])
        (supervised[0] + supervised[1] + WEIGHT * cross).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def suite_step(config: RunConfig, drawn: Batch, device: torch.device) -> Step:
    """A step as the training loop takes it between two logged ones."""
    method = build(config, device)
    optimizer = method.optimizers()["main"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(config.train, device):
            losses = method.losses(drawn.to(device), CLOCK)
        losses.objectives["main"].backward(inputs=parameters)  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 by itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    path = Path("/proc/cpuinfo")
    flags = next((line.split() for line in path.read_text().splitlines() if line.startswith("flags")), [])
    return bool(BF16_FLAGS & set(flags))


def mean_k(config: RunConfig, batch: Batch, device: torch.device) -> float:
    """Mean number of fuzzy positives in the first step."""
    method = build(config, device)
    method.pixel_loss.collect = True
    with torch.no_grad():
        terms = method.losses(batch.to(device), CLOCK).pixel_terms.values()
    histogram = torch.stack([term.statistics["k_histogram"].cpu() for term in terms]).sum(0).double()
    return float((histogram * torch.arange(1, len(histogram) + 1)).sum() / histogram.sum())


def make_rows(
    times: dict[str, list[float]], configs: dict[str, RunConfig], hardware: bool, common: dict[str, str]
) -> list[dict[str, str]]:
    """One row per contestant; a ratio that the hardware cannot reach has no target, but a note."""
    rows = []
    for name, took in times.items():
        ratio = statistics.median(own / plain for own, plain in zip(took, times["plain"], strict=True))
        emulated = name in configs and configs[name].train.precision == "bf16" and not hardware
        target = None if emulated else TARGETS.get(name)
        row = {"step": name, "seconds": f"{statistics.median(took):.3f}", "to_plain": f"{ratio:.3f}"}
        row["target"] = "" if target is None else f"{target:.2f}"
        row["met"] = "" if target is None else "yes" if ratio <= target else "no"
        row["note"] = "bf16 is emulated: no AVX512_BF16 or AMX here" if emulated else ""
        rows.append(row | common)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--crop", type=int, default=192)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    device = select_device(options.device)
    configs = {name: make_config(options.crop, options.batch, train) for name, train in OPTIONS.items()}
    prepare_torch(configs["fpl"].train, 1)
    batch, hardware = draw_batch(options.crop, options.batch), has_bf16(device)
    kernel = implementation(torch.empty(1, 2, 1, device=device))
    print(f"{machine_of(device)}; bf16 in hardware: {'yes' if hardware else 'no'}", file=sys.stderr)
    steps = {"plain": plain_step(configs["fpl"], batch, device)}
    steps |= {name: suite_step(config, batch, device) for name, config in configs.items()}
    times = measure(steps, device, options.rounds)
    common = {
        "kernel": kernel.__name__.rpartition(".")[2] if kernel else "tensor",  # type: ignore[attr-defined]
        "mean_k": f"{mean_k(configs['fpl'], batch, device):.2f}",
        **{key: str(getattr(options, key)) for key in ("crop", "batch", "rounds")},
        "machine": machine_of(device),
    }
    rows = make_rows(times, configs, hardware, common)
    print(table([{key: value for key, value in row.items() if key != "machine"} for row in rows]))
    if options.csv:
        write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
