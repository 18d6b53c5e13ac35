"""How runs are carried out: what a scale's `[launch]` and the command line decide. Imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fpl.config.defaults import DIAGNOSE_EVERY, MOST_THREADS
from fpl.errors import FplError

Launcher = Literal["inline", "gang", "train"]


@dataclass(frozen=True)
class Execution:
    """How runs are carried out; none of it enters their identity.

    Attributes:
        local: Without Ray, one after the other in this process.
        address: Of a running Ray cluster; None starts Ray on this machine.
        launcher: How runs are launched; runs that the scale wants in a gang go there in any case.
        workers: Processes per run of the launchers `gang` and `train`.
        gang_workers: Processes per run that the scale wants in a gang.
        gang_cpus_per_worker: CPUs that each of these holds: None as many as others do; 0 none, and then the gang is at
            work beside the other runs, on the same cores, instead of after them.
        cpus_per_worker: CPUs that each process of the other runs holds.
        gpus_per_worker: GPUs that each process holds.
        concurrency: Runs at once; None: as many as fit.
        threads: CPU threads of each worker.
        loader_workers: Processes that read images, per worker.
        checkpoint_every: Steps between checkpoints.
        diagnose_every: Steps between diagnostics of the pixel loss.
        max_failures: How often a run whose process died is taken up again.
    """

    local: bool = False
    address: str | None = None
    launcher: Launcher = "inline"
    workers: int = 1
    gang_workers: int = 2
    gang_cpus_per_worker: float | None = None
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    concurrency: int | None = None
    threads: int = 1
    loader_workers: int = 0
    checkpoint_every: int = 500
    diagnose_every: int = DIAGNOSE_EVERY
    max_failures: int = 2

    @classmethod
    def of_scale(cls, launch: Mapping[str, Any], **changes: Any) -> Execution:
        """The scale's `[launch]`, with the changes that are not None.

        Raises:
            FplError: A key that is none of `Execution`'s, or workers where runs have one process.
        """
        wanted = {key: value for key, value in launch.items() if key != "gang"}
        if unknown := set(wanted) - set(cls.__dataclass_fields__):
            known = ", ".join(["gang", *cls.__dataclass_fields__])
            raise FplError(f"[launch] has no key {sorted(unknown)[0]}", where="scale file", hint=f"known: {known}")
        if (threads := wanted.get("threads", 1)) not in range(1, MOST_THREADS + 1):
            what = f"[launch] threads = {threads!r} is no whole number between 1 and {MOST_THREADS}"
            raise FplError(what, where="scale file")
        given = {key: value for key, value in changes.items() if value is not None}
        found = cls(**{**wanted, **given})
        if given.get("workers", 1) > 1 and (found.local or found.launcher == "inline"):
            how = "--local" if found.local else "the launcher inline"
            raise FplError(
                f"{given['workers']} workers per run, but {how} runs each in one process",
                where="--workers",
                hint="--launcher gang or train",
            )
        return found
