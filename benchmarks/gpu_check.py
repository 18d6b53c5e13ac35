"""Values and times of the GPU kernels of the loss; see `benchmarks/gpu_check.sh`.

    python benchmarks/gpu_check.py FOLDER [--rehearse]

Runs the kernel tests on the GPU, then compares one pass over memory with `torch.max` + `F.cross_entropy` ("vanilla"),
and the pass that enlarges low-resolution logits and chooses between two teachers with the same in eager PyTorch. All
candidates of a shape take turns in one process; times are medians of CUDA events over the rounds, ratios are medians
of the ratios of each round. `--rehearse` tries everything but the tests on tiny tensors under Triton's interpreter:
its times mean nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import fuzzy_positive_loss
from fpl.losses.assignment import sort_classes
from fpl.losses.fuzzy import fuzzy_positive_terms
from fpl.losses.kernels.contract import Pixels, make_settings
from fpl.losses.rules import Rules

THRESHOLD = 0.9
# Standard deviation of the logits: with this threshold K = 1 at 93 % and 44 % of the pixels.
REGIMES = {"late": 20.0, "early": 6.0}
SHAPES = ((8, 21, 512, 512), (8, 19, 800, 800))
STRIDE = 4
ROUNDS = 20
TESTS = tuple(f"tests/losses/kernels/test_{name}.py" for name in ("gpu", "gpu_upsampled", "soft"))
Row = dict[str, Any]


def run_tests() -> bool:
    """Run the kernel tests, one process for each file: most of the time is spent compiling."""
    # Neither the configuration nor the fixtures of the whole project: they need more packages.
    options = f"-q -c {os.devnull} --rootdir . --confcutdir tests/losses/kernels -p no:cacheprovider".split()
    processes = [subprocess.Popen([sys.executable, "-m", "pytest", *options, file]) for file in TESTS]
    return [process.wait() for process in processes] == [0] * len(processes)


class Clock:
    """Times calls: on a GPU by events."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def milliseconds(self, call: Callable[[], object]) -> float:
        """Time of one call."""
        if self.device.type == "cpu":
            began = time.perf_counter()
            call()
            return 1e3 * (time.perf_counter() - began)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def peak(self, call: Callable[[], object]) -> float:
        """MiB that one call needs beyond what is there already, its result included."""
        if self.device.type == "cpu":
            return float("nan")
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        kept = call()
        torch.cuda.synchronize()
        del kept
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    def interleave(self, calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
        """Times of all calls, taking turns, after two rounds to compile and to fill the allocator."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds + 2):
            for name, call in calls.items():
                spent = self.milliseconds(call)
                if number >= 2:
                    times[name].append(spent)
        return times


def enlarge(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Interpolate as segmentation networks do."""
    return F.interpolate(logits, size=size, mode="bilinear", align_corners=True)


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """Median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


class Bench:
    """All comparisons at one shape, dtype and regime."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, regime: str, device: torch.device) -> None:
        # Not before `main` has decided about the interpreter.
        from fpl.losses.kernels import gpu

        self.gpu = gpu
        self.clock = Clock(device)
        self.shape, self.dtype, self.regime, self.device = shape, dtype, regime, device
        self.settings = make_settings(shape[1], Rules(THRESHOLD))
        self.size = (shape[2], shape[3])
        low = (*shape[:2], shape[2] // STRIDE, shape[3] // STRIDE)
        size = REGIMES[regime]
        # Enlarged, so that neighboring pixels resemble each other.
        generator = torch.Generator(device).manual_seed(0)
        self.low = [(torch.randn(*low, generator=generator, device=device) * size).to(dtype) for _ in range(3)]
        self.student, self.teacher = (enlarge(logits, self.size) for logits in self.low[:2])
        self.inside = torch.zeros(shape[0], *self.size, dtype=torch.bool, device=device)
        self.inside[:, self.size[0] // 4 : -self.size[0] // 4, : self.size[1] // 2] = True

    def vanilla(self) -> Tensor:
        """`torch.max` and cross-entropy, forward and backward."""
        leaf = self.student.detach().requires_grad_()
        loss = F.cross_entropy(leaf, self.teacher.max(1).indices)
        return torch.autograd.grad(loss, leaf)[0]

    def tensors(self) -> Tensor:
        """The tensor implementation, forward and backward; `main` sees to it that no other one is taken."""
        leaf = self.student.detach().requires_grad_()
        return torch.autograd.grad(fuzzy_positive_loss(leaf, self.teacher), leaf)[0]

    def one_pass(self, cross_entropy: bool = False) -> Any:
        """Loss and gradient from one kernel."""
        pixels = Pixels(self.student, self.teacher)
        return self.gpu.summed(self.settings, pixels, scale=None, cross_entropy=cross_entropy, gradient=True)

    def rescaled(self) -> Any:
        """The same with the cross-entropy, to whose value the gradient is rescaled as in the released code."""
        found = self.one_pass(cross_entropy=True)
        return self.gpu.rescale(found.gradient, (found.sums[5] / found.sums[1]).float())

    def two_kernels(self) -> Tensor:
        """The general form: a loss for each pixel first, its gradient later."""
        found = self.gpu.mapped(self.settings, self.student, self.teacher)
        return self.gpu.mapped_gradient(self.settings, self.student, self.teacher, found.state, found.weight)

    def eager_mixed(self) -> Tensor:
        """Enlarge the logits of a student and two teachers, mix the teachers, then `vanilla`."""
        leaf = self.low[0].detach().requires_grad_()
        first, second = enlarge(self.low[1], self.size), enlarge(self.low[2], self.size)
        label = torch.where(self.inside.unsqueeze(1), second, first).max(1).indices
        return torch.autograd.grad(F.cross_entropy(enlarge(leaf, self.size), label), leaf)[0]

    def fused_mixed(self) -> Any:
        """All of it, with the fuzzy loss, from one kernel."""
        student, teacher, second = self.low
        pixels = Pixels(student, teacher, second=second, inside=self.inside, size=self.size)
        return self.gpu.summed(self.settings, pixels, scale=None, cross_entropy=True, gradient=True)

    def check(self) -> list[str]:
        """Compare values at full size with the tensor implementation in float64; say what is wrong."""
        wrong = []
        for enlarging in (False, True):
            student, teacher = self.low[:2] if enlarging else (self.student, self.teacher)
            # One image: float64 tensors of more do not fit every device.
            leaf = student[:1].double().requires_grad_()
            wide, wide_teacher = leaf, teacher[:1].double()
            if enlarging:
                wide, wide_teacher = enlarge(leaf, self.size), enlarge(wide_teacher, self.size)
            cumulative = sort_classes(wide_teacher).values.softmax(-1).cumsum(-1)
            # On the threshold, float32 may give another K.
            counted = ((cumulative - THRESHOLD).abs() > 1e-5).all(-1)
            terms = fuzzy_positive_terms(wide, wide_teacher, rules=Rules(threshold=THRESHOLD))
            value = (terms.loss * terms.weight)[counted].sum()
            (gradient,) = torch.autograd.grad(value, leaf)
            histogram = torch.bincount(terms.k[counted] - 1, minlength=self.shape[1])
            pixels = Pixels(student[:1], teacher[:1], counted=counted, size=self.size if enlarging else None)
            found = self.gpu.summed(self.settings, pixels, scale=None, cross_entropy=True, gradient=True)
            assert found.gradient is not None
            errors = {
                "value": (abs(found.sums[1].item() / value.item() - 1), 1e-5),
                "K": ((found.histogram - histogram).abs().sum().item(), 0),
                "gradient": (((found.gradient - gradient).norm() / gradient.norm()).item(), self.tolerance()),
            }
            wrong += [
                f"{self.name()} enlarging={enlarging}: {what} is off by {error:.2e}, allowed {most:.0e}"
                for what, (error, most) in errors.items()
                if not error <= most
            ]
        return wrong

    def tolerance(self) -> float:
        """Largest relative error of a gradient: half precision rounds it."""
        return 1e-5 if self.dtype == torch.float32 else 4e-3

    def name(self) -> str:
        """Shape, dtype and regime."""
        return f"{'x'.join(map(str, self.shape))} {str(self.dtype).removeprefix('torch.')} {self.regime}"

    def measure(self, rounds: int, bandwidth: float) -> list[Row]:
        """Times, ratios and peak memory of all candidates."""
        full: dict[str, Callable[[], object]] = {
            "vanilla": self.vanilla,
            "one pass": self.one_pass,
            "one pass, CE, rescaled": self.rescaled,
            "two kernels": self.two_kernels,
            "tensor implementation": self.tensors,
        }
        mixed: dict[str, Callable[[], object]] = {"eager, mixed": self.eager_mixed, "fused, mixed": self.fused_mixed}
        rows = []
        element = self.student.element_size()
        for base, calls in (("vanilla", full), ("eager, mixed", mixed)):
            times = self.clock.interleave(calls, rounds)
            peaks = {name: self.clock.peak(call) for name, call in calls.items()}
            for name in calls:
                spent = statistics.median(times[name])
                row = {
                    "shape": "x".join(map(str, self.shape)),
                    "dtype": str(self.dtype).removeprefix("torch."),
                    "teacher": self.regime,
                    "what": name,
                    "ms": f"{spent:.3f}",
                    "ratio": f"{ratio(times, name, base):.3f}",
                    "against": base,
                    "peak_mib": f"{peaks[name]:.1f}",
                    "peak_ratio": f"{peaks[name] / peaks[base]:.3f}",
                    "copy_share": "",
                }
                if name == "one pass":
                    row["copy_share"] = f"{3 * self.student.numel() * element / (spent * 1e6) / bandwidth:.3f}"
                rows.append(row)
        return rows


def copy_bandwidth(device: torch.device, bytes_copied: int) -> float:
    """GB/s of reading and writing in a copy of float32 numbers."""
    source = torch.ones(bytes_copied // 4, device=device)
    target = torch.empty_like(source)
    times = Clock(device).interleave({"copy": lambda: target.copy_(source)}, 20)["copy"]
    return 2 * bytes_copied / (statistics.median(times) * 1e6)


def write(rows: list[Row], folder: Path, device: str) -> None:
    """Print the table and write it as CSV."""
    import triton

    rows = [{"device": device, "torch": torch.__version__, "triton": triton.__version__, **row} for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gpu.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    shown = list(rows[0])[3:]
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in shown}
    for row in [dict(zip(shown, shown, strict=True)), *rows]:
        print("  ".join(str(row[name]).ljust(widths[name]) for name in shown).rstrip())
    print(f"{path}: {len(rows)} rows")


def main() -> int:
    """Run the check; the exit status is 0, 1 if a value is wrong, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="tiny tensors on the CPU, no tests")
    chosen = parser.parse_args()
    if chosen.rehearse:
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        print("no GPU: nothing was checked", file=sys.stderr)
        return 2
    began = time.monotonic()
    device = torch.device("cpu" if chosen.rehearse else "cuda")
    name = "interpreter" if chosen.rehearse else torch.cuda.get_device_name()
    sound = chosen.rehearse or run_tests()
    print(f"kernel tests: {'left out' if chosen.rehearse else 'right' if sound else 'WRONG'}", flush=True)
    os.environ["FPL_LOSS"] = "tensor"
    bandwidth = copy_bandwidth(device, 2**16 if chosen.rehearse else 2**30)
    print(f"{name}: a copy moves {bandwidth:.0f} GB/s", flush=True)
    rows: list[Row] = []
    wrong: list[str] = []
    for shape in ((1, 3, 8, 8),) if chosen.rehearse else SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            for regime in REGIMES:
                bench = Bench(shape, dtype, regime, device)
                wrong += bench.check()
                rows += bench.measure(1 if chosen.rehearse else ROUNDS, bandwidth)
                print(f"{bench.name()}: done after {time.monotonic() - began:.0f} s", flush=True)
    write(rows, chosen.folder, name)
    print("\n".join(wrong) or "values at full size: right")
    return 0 if sound and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
