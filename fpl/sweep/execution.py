"""How runs are carried out: what a scale's `[launch]` and the command line decide. Imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fpl.config.launch import Launcher, check_launch
from fpl.errors import FplError
from fpl.text import plural
from fpl.train.options import LoopOptions


@dataclass(frozen=True, kw_only=True)
class Execution(LoopOptions):
    """How runs are carried out, from the machines down to the loop; none of it enters their identity.

    Plans, launchers and jobs all take this one value.

    Attributes:
        local: Without Ray, one after the other in this process.
        address: Of a running Ray cluster; None starts Ray on this machine.
        launcher: How runs are launched. `inline`: one process, reused; `gang`: a warm group of workers that takes run
            after run; `train`: a fresh group of workers for every run.
        workers: Processes that share a run; 1 with `inline`.
        cpus_per_worker: CPUs that each process holds; 0, which `inline` does not allow, shares those of others.
        gpus_per_worker: GPUs that each process holds.
        gang_workers: Processes per run that the scale wants in a gang.
        gang_cpus_per_worker: CPUs that each of these holds: None as many as others do; 0 none, and then the gang is at
            work beside the other runs, on the same cores, instead of after them.
        concurrency: Runs at once; None: as many as fit.
        max_failures: How often a run whose process died is taken up again.
        callbacks: `package.module:NAME` of what Ray Tune tells the driver's news too.
        left_out: Ids of the nodes of the cluster that do not see what runs need: no process is placed there.

    Raises:
        FplError: Workers, CPUs or GPUs with which no run could be launched, or callbacks without Ray.
    """

    local: bool = False
    address: str | None = None
    launcher: Launcher = "inline"
    workers: int = 1
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    gang_workers: int = 2
    gang_cpus_per_worker: float | None = None
    concurrency: int | None = None
    max_failures: int = 2
    callbacks: Sequence[str] = ()
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus_per_worker > 1 and self.gpus_per_worker % 1:
            raise FplError(
                f"{self.gpus_per_worker:g} GPUs for a worker",
                where="--gpus-per-worker",
                hint="whole GPUs, or a part of one (0.5): Ray gives no worker a part beside whole ones",
            )
        some = self.cpus_per_worker > 0 or (self.cpus_per_worker == 0 and (self.local or self.launcher != "inline"))
        if self.workers < 1 or not some or not self.gpus_per_worker >= 0:
            raise FplError(f"a run needs workers and CPUs, asked for {self.words()}", where="--workers")
        if self.launcher == "inline" and self.workers > 1:
            raise FplError(
                f"{self.workers} workers cannot share a run in one process",
                where="--launcher inline",
                hint="use the launcher gang or train",
            )
        if self.local and self.callbacks:
            raise FplError("it is Ray Tune that calls callbacks", where="--callback", hint="leave out --local")
        if self.workers > 1 and self.gpus_per_worker % 1:
            raise FplError(
                f"{self.gpus_per_worker:g} GPUs for each of {self.workers} workers",
                where="--gpus-per-worker",
                hint="workers that share a run need whole GPUs; a single one may do with a part",
            )

    @classmethod
    def of_scale(cls, launch: Mapping[str, Any], where: str = "scale file", **changes: Any) -> Execution:
        """The scale's `[launch]`, with the changes that are not None.

        Args:
            launch: The table.
            where: The scale's file, for messages.
            changes: What is put over it.

        Raises:
            FplError: A key or a value that `[launch]` may not have, workers where runs have one process, or what is
                Ray's without Ray.
        """
        check_launch(launch, where)
        wanted = {key: value for key, value in launch.items() if key != "gang"}
        given = {key: value for key, value in changes.items() if value is not None}
        if given.get("local"):
            _check_local(given)
        values = {**wanted, **given}
        if (local := values.get("local")) or values.get("launcher", cls.launcher) == "inline":
            if given.get("workers", 1) > 1:
                raise FplError(
                    f"{given['workers']} workers per run, but {'--local' if local else 'the launcher inline'} runs "
                    "each in one process",
                    where="--workers",
                    hint="--launcher gang or train",
                )
            # Those that the scale has for its own launcher.
            values |= {"launcher": "inline", "workers": 1}
        return cls(**values)

    def of_run(self, gang: bool) -> Execution:
        """How a run is carried out; with `gang`, one that the scale wants in a gang."""
        if not gang or self.local:
            return self
        own = self.gang_cpus_per_worker
        cpus = self.cpus_per_worker if own is None else own
        return replace(self, launcher="gang", workers=self.gang_workers, cpus_per_worker=cpus)

    @property
    def on_gpu(self) -> bool:
        """Whether a run uses GPUs."""
        return self.gpus_per_worker > 0

    @property
    def devices(self) -> float:
        """GPUs, or else CPUs, whose hours a run uses up; a worker that holds nothing is at work on a core as well."""
        return self.workers * (self.gpus_per_worker or self.cpus_per_worker or 1.0)

    @property
    def gpu_share(self) -> float:
        """How much of a GPU a process may fill: it computes on one, whatever it holds."""
        return min(1.0, self.gpus_per_worker)

    @property
    def beside(self) -> bool:
        """Whether a run holds nothing, and so is at work beside the others."""
        return not self.cpus_per_worker and not self.gpus_per_worker

    @property
    def attempts(self) -> int:
        """How often a run may be begun."""
        return self.max_failures + 1

    @property
    def held(self) -> dict[str, float]:
        """What Ray sets aside for a worker, by its names. It has to be something: a byte of memory then."""
        named = {"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker}
        return {name: number for name, number in named.items() if number} or {"memory": 1}

    @property
    def nodes(self) -> dict[str, str]:
        """Where processes may be placed, as a selector of the labels that Ray gives its nodes; empty: anywhere."""
        return {"ray.io/node-id": f"!in({','.join(self.left_out)})"} if self.left_out else {}

    def room(self, machines: Iterable[tuple[float, float]]) -> int:
        """Workers that fit at once onto machines of so many CPUs and GPUs each: those of a run may lie on several."""
        return sum(self._room_on(cpus, gpus) for cpus, gpus in machines)

    def _room_on(self, cpus: float, gpus: float) -> int:
        # Shares such as 0.1 are not exact.
        held = [int(cpus / self.cpus_per_worker + 1e-6)] if self.cpus_per_worker else []
        if 0 < self.gpus_per_worker < 1:
            # A part is of one GPU: what is left of two makes none.
            held.append(int(gpus) * int(1 / self.gpus_per_worker + 1e-6))
        elif self.gpus_per_worker:
            held.append(int(gpus / self.gpus_per_worker + 1e-6))
        # Workers that hold nothing share the cores of others: one run a machine.
        return min(held, default=self.workers)

    def words(self) -> str:
        """For messages: `2 workers with 1 CPU and 0 GPUs each`."""
        shares = f"{plural(self.cpus_per_worker, 'CPU', spec='g')} and {plural(self.gpus_per_worker, 'GPU', spec='g')}"
        return f"1 worker with {shares}" if self.workers == 1 else f"{self.workers} workers with {shares} each"


def _check_local(given: Mapping[str, Any]) -> None:
    """Refuse beside `--local` what it would not heed."""
    rays = {
        "address": given.get("address"),
        "launcher": given.get("launcher") if given.get("launcher") != "inline" else None,
        "concurrency": given.get("concurrency") if given.get("concurrency") != 1 else None,
    }
    for name, value in rays.items():
        if value is not None:
            what = "runs without Ray, one after the other in this process"
            raise FplError(what, where=f"--local with --{name} {value}", hint="leave out one of them")
