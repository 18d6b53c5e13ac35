"""Options that go together, in groups that commands take as one argument (`groups` spreads them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fpl.cli.data import DATA, SPLITS, DataRoot, Splits
from fpl.cli.groups import LAST
from fpl.cli.options import (
    CHECKPOINT,
    EXPERIMENTS,
    ROWS_HELP,
    Experiments,
    Names,
    Protocol,
    Sampler,
    Scale,
    Scratch,
    Seeds,
    Stop,
    folder_to_use,
)
from fpl.config.defaults import (
    MOST_DEVICES,
    MOST_GPUS,
    MOST_LOADER_WORKERS,
    MOST_SEED,
    MOST_THREADS,
    MOST_WORKERS,
    Rows,
)
from fpl.mirrors import mirror_of

if TYPE_CHECKING:
    from fpl.config.campaign import Campaign
    from fpl.config.scale import ScaleFile
    from fpl.config.schema import RunConfig
    from fpl.config.study import Study
    from fpl.report.tables.shown import Shown
    from fpl.store.read import Results
    from fpl.sweep.execution import Execution
    from fpl.sweep.places import Places


@dataclass(frozen=True)
class Asked:
    """Which cells a command is about.

    Attributes:
        names: Cells, none for all, and overrides of their runs.
        scale: Name of a scale, or its path.
        seeds: Runs per cell; None: what the scale says.
        rows: Which rows.
        experiments: `experiments/`.
    """

    names: Names = None
    scale: Scale = "mini"
    seeds: Seeds = None
    rows: Annotated[Rows, typer.Option(help=ROWS_HELP)] = "paper"
    experiments: Experiments = field(default=EXPERIMENTS, metadata=LAST)

    @property
    def cells(self) -> list[str]:
        """The names without the overrides."""
        return [name for name in self.names or [] if "=" not in name]

    @property
    def overrides(self) -> list[str]:
        """`section.key=value` of the runs."""
        return [name for name in self.names or [] if "=" in name]

    @property
    def whole(self) -> bool:
        """Whether these are all runs of the scale."""
        return self.rows == "all" and not (self.names or self.seeds)

    def campaign(self, cells: Sequence[str], seeds: int | None = None) -> Campaign:
        """Some cells with these rows and overrides; `seeds` instead of those that were asked for.

        Raises:
            FplError: A broken file, or a name that fits nothing.
        """
        from fpl.config.campaign import load_campaign

        return load_campaign(self.experiments, self.scale, cells, seeds or self.seeds, self.rows, self.overrides)

    def shown(self, results: Results, *, part: bool = False) -> Shown:
        """All tables filled from a store; with `part` those that were asked for, with the overrides."""
        from fpl.report.tables.shown import load_shown

        cells, overrides = (self.cells, self.overrides) if part else ([], [])
        # The paper's rows are there anyway, and so are others that have results.
        rows: Rows | None = "all" if self.rows == "all" else None
        return load_shown(self.experiments, self.scale, results, cells, self.seeds, rows, overrides)


@dataclass(frozen=True)
class Folders:
    """What runs read."""

    data_root: DataRoot = DATA
    splits: Splits = SPLITS
    weights: Annotated[
        Path | None,
        typer.Option(
            envvar="FPL_WEIGHTS",
            help="Folder of pretrained weights.",
            show_default="DATA_ROOT/weights, if it is there",
            callback=folder_to_use,
        ),
    ] = None

    scratch: Scratch = None

    def places(self, out: Path, configs: Sequence[RunConfig], *, whole: bool = False) -> Places:
        """The folders of some runs, whose store is `out`; `whole` as for `open_store`.

        Raises:
            FplError: The store is on object storage that cannot be written.
        """
        from fpl.config.weights import default_folder
        from fpl.store.remote import check_writable, open_store
        from fpl.sweep.places import Places

        mirror = mirror_of(out)
        check_writable(out)
        open_store(out, whole=whole)
        weights = self.weights or default_folder(self.data_root, configs)
        return Places(out, self.data_root, self.splits, weights, None if mirror is None else mirror.url)


@dataclass(frozen=True)
class Launch:
    """What is put over the scale's `[launch]`, under the names of `Execution`; None leaves it."""

    launcher: Annotated[
        Literal["inline", "gang", "train"] | None,
        typer.Option(help="One process a run; warm Ray Train workers; a Ray Train run each."),
    ] = None
    workers: Annotated[
        int | None, typer.Option(min=1, max=MOST_WORKERS, help="Processes per run of gang and train.")
    ] = None
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0.0, max=MOST_GPUS, help="GPUs that each process holds.")
    ] = None
    cpus_per_worker: Annotated[
        float | None, typer.Option(min=0.01, max=MOST_THREADS, help="CPUs that each process holds.")
    ] = None
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=MOST_DEVICES, help="Runs at once.", show_default="all that fit")
    ] = None
    threads: Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads of each process.")] = None

    def over(self, scale: ScaleFile, *, local: bool = False, **changes: Any) -> Execution:
        """How runs of a scale are carried out.

        Raises:
            FplError: `[launch]` or these options say what cannot be.
        """
        from fpl.sweep.execution import Execution

        return Execution.of_scale(scale.launch, str(scale.path), local=local or None, **asdict(self), **changes)


@dataclass(frozen=True)
class RunLaunch(Launch):
    """The same where runs are carried out and not only planned."""

    loader_workers: Annotated[
        int | None, typer.Option(min=0, max=MOST_LOADER_WORKERS, help="Processes that read images.")
    ] = None
    checkpoint_every: Annotated[int | None, CHECKPOINT] = None
    tensorboard: Annotated[
        bool | None, typer.Option("--tensorboard", help="Write TensorBoard files of all runs below OUT/tensorboard.")
    ] = None
    callbacks: Annotated[
        list[str] | None,
        typer.Option(
            "--callback", help="package.module:NAME of a callback of Ray Tune, such as Ray's for W&B and MLflow."
        ),
    ] = None

    def over(self, scale: ScaleFile, *, local: bool = False, **changes: Any) -> Execution:
        """The same; and what shows the runs can be used here.

        Raises:
            FplError: TensorBoard is not installed, or a callback cannot be made.
        """
        execution = super().over(scale, local=local, **changes)
        if execution.tensorboard:
            from fpl.sweep.event_log import summary_writer

            summary_writer()
        if execution.callbacks:
            from fpl.sweep.launch.callbacks import make_callbacks

            make_callbacks(execution.callbacks)
        return execution


@dataclass(frozen=True)
class Searching:
    """What a search is told beside its file; None leaves what the file says."""

    budget: Annotated[
        str | None,
        typer.Option(
            help="What all studies of the search may spend together: 40trials, 200gpuh, 50coreh, 6h, 90min.",
            show_default="trials of the search file",
        ),
    ] = None
    sampler: Sampler = None
    sampler_seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the sampler.")] = 0
    stop: Stop = None
    protocol: Protocol = None
    objectives: Annotated[
        list[str] | None,
        typer.Option(
            "--objective", help="miou; a second one, cost, is device-hours of training.", show_default="search file"
        ),
    ] = None

    def studies(
        self, experiments: Path, name: str, scale: str, overrides: Sequence[str], **counts: int | None
    ) -> list[Study]:
        """The studies of a search; `counts` are its `seeds` and `splits`.

        Raises:
            FplError: A broken file, or parameters that the runs do not have.
        """
        from fpl.config.study import load_studies

        return load_studies(
            experiments,
            name,
            scale,
            seed=self.sampler_seed,
            overrides=overrides,
            sampler=self.sampler,
            stop=self.stop,
            protocol=self.protocol,
            objectives=tuple(self.objectives) if self.objectives else None,
            **counts,
        )
