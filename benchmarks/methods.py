"""What a step of every method costs beside one of CPS: seconds, and memory.

    python benchmarks/methods.py [--rounds 3] [--crop 129] [--batch 2] [--device cpu]
                                 [--csv results/benchmarks/methods.csv]

Every recipe for VOC (`experiments/base/voc_*.toml`) with ResNet-50, a smaller crop and a smaller batch, on drawn
tensors; CPS without CutMix besides, which the others are held against, and labeled images alone. A step is the training
loop's, near the end of a run, so that nothing waits for its start. Seconds: all take turns in this one process, and a
ratio is the median of the ratios of the rounds; on a CPU they are seconds of one thread's process, so that other
programs do not count. Memory: the most that a step holds of what it allocates itself, gradients and activations;
weights and the optimizer's state are not among it. Six minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from itertools import accumulate
from pathlib import Path

import torch
from rounds import Step, machine_of, measure, write_rows
from torch.profiler import ProfilerActivity, profile

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.methods.base import Clock
from fpl.sweep.plan.drawn import DrawnImages, bare_method, drawn_batch
from fpl.text import table
from fpl.train.runtime import prepare_torch, select_device
from fpl.train.step import take_step

BASE = Path(__file__).parents[1] / "experiments" / "base"
CPS = "CPS without CutMix"
STEPS = 100


def configurations(crop: int, batch: int) -> dict[str, RunConfig]:
    """Runs by what the rows are called."""
    sizes = [f"data.crop=[{crop},{crop}]", f"data.labeled_batch={batch}", f"data.unlabeled_batch={batch}"]
    sizes += ["data.groups=1", "model.backbone=resnet50", "model.pretrained=none", f"train.steps={STEPS}"]
    sizes += [f"train.evaluate_every={STEPS}"]
    plain = BASE / "voc_cps.toml"
    found = {
        CPS: load_config(plain, overrides=[*sizes, "method.cutmix=false", "method.weight=1.5"]),
        "labeled images alone": load_config(plain, overrides=[*sizes, "method.name=supervised"]),
    }
    for path in sorted(BASE.glob("voc_*.toml")):
        config = load_config(path, overrides=sizes)
        found[config.method.label] = config
    return found


def make_step(config: RunConfig, device: torch.device) -> Step:
    """A step of a run near its end, on the same batch at every call."""
    prepare_torch(config.train, 1)
    torch.manual_seed(0)
    method = bare_method(config, device)
    method.attach(DrawnImages(config))
    optimizers = method.optimizers()
    batch, clock = drawn_batch(config, method, STEPS - 10), Clock(STEPS - 10, STEPS)

    def step() -> None:
        take_step(method, optimizers, batch, clock, config.train, device)

    return step


def extra_bytes(step: Step, device: torch.device) -> int:
    """The most memory that a step holds of what it allocates itself: activations and gradients, mainly."""
    step()  # the optimizer's state is there from here on
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        level = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - level
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    changes = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    highest: int = max(accumulate(event.nbytes() for event in changes))
    return highest


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crop", type=int, default=129)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    device, configs = select_device(options.device), configurations(options.crop, options.batch)
    memory, steps = {}, {}
    for name, config in configs.items():
        steps[name] = make_step(config, device)
        memory[name] = extra_bytes(steps[name], device)
        print(f"memory {len(memory)}/{len(configs)}  {name}: {memory[name] / 2**20:.0f} MiB", file=sys.stderr)
    times = measure(steps, device, options.rounds)
    rows = []
    for name, took in times.items():
        ratios = [own / cps for own, cps in zip(took, times[CPS], strict=True)]
        rows.append(
            {
                "method": name,
                "seconds": f"{statistics.median(took):.3f}",
                "to_cps": f"{statistics.median(ratios):.2f}",
                "lowest": f"{min(ratios):.2f}",
                "highest": f"{max(ratios):.2f}",
                "mib": f"{memory[name] / 2**20:.0f}",
                "memory_to_cps": f"{memory[name] / memory[CPS]:.2f}",
                **{key: str(getattr(options, key)) for key in ("crop", "batch", "rounds")},
                "machine": machine_of(device),
            }
        )
    print(table([{key: value for key, value in row.items() if key != "machine"} for row in rows]))
    if options.csv:
        write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
