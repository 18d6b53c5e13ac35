"""A whole rehearsal: which runs, in which order, and what of them is there already."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import filelock

from fpl.config.campaign import Campaign, load_campaign
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.files import locked
from fpl.source import source_digest
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import Capacity
from fpl.sweep.plan.costs import Costs
from fpl.sweep.plan.memory import needed
from fpl.sweep.plan.speed import CPU_CORE, V100, CostModel
from fpl.sweep.rehearsal import rows as table
from fpl.sweep.rehearsal.carry_out import Piece, rehearse
from fpl.sweep.rehearsal.child import base_bytes
from fpl.sweep.rehearsal.inputs import get_inputs
from fpl.sweep.rehearsal.rows import DONE, NO_MEMORY, Row
from fpl.sweep.rehearsal.shorten import STEPS, VALIDATED, halved, shares
from fpl.text import duration, timestamp

# Key of a scale's `[scale]`: the cells that stand for all.
CHOICE = "rehearsal"
# Whose change makes a rehearsal worth nothing.
SOURCES = ("config", "data", "losses", "methods", "models", "store", "sweep", "train")
# Workers of the one run that is rehearsed on Ray Train.
PROCESSES = 2
# What their processes take to start, to read inputs and to write, in seconds of a plan, which are about twice the real.
START_SECONDS = 90.0

Say = Callable[[str], None]


class Rehearsed(NamedTuple):
    """What was found.

    Attributes:
        rows: All of the folder, those of earlier calls with the same code first.
        done: Whether each run that was asked for is done; a row of it that is kept may be of another precision.
    """

    rows: list[Row]
    done: bool


@dataclass(frozen=True)
class Rehearsal:
    """What is rehearsed, and where.

    Attributes:
        campaign: The cells at their scale, with the user's overrides.
        overrides: These.
        out: Folder of the rehearsal.
        user: The user's folders: real data, splits and weights.
        lists: Folders of public split lists.
        has: Cores and GPUs.
        threads: CPU threads.
        workers: That share a published run.
        full: Whether all crops keep their size.
        on_ray: Whether one run is tried on Ray Train too.
        say: Told what happens.
        experiments: `experiments/`.
    """

    campaign: Campaign
    overrides: Sequence[str]
    out: Path
    user: Places
    lists: Sequence[Path]
    has: Capacity
    threads: int
    workers: int
    full: bool
    on_ray: bool
    say: Say
    experiments: Path

    def carry_out(self) -> Rehearsed:
        """Rehearse what no row answers for yet.

        Raises:
            FplError: Inputs are missing, or another process rehearses in this folder.
        """
        try:
            with locked(self.out / ".lock"):
                return self._carry_out()
        except filelock.Timeout:
            hint = "wait for it, or give another --out"
            raise FplError("another process rehearses here", where=str(self.out), hint=hint) from None

    def _carry_out(self) -> Rehearsed:
        costs = Costs(self.out, self.say)
        configs = {cell.name: cell.configs[0] for cell in self.campaign.all_cells if cell.configs}
        costs.learn(configs.values())
        pieces = self._pieces(configs, costs)
        code = source_digest(*SOURCES, libraries=("torch",))
        found = [row for row in table.read(self.out) if row.code == code]
        known = {row.key for row in found if row.state == DONE}
        ahead = [piece for piece in pieces if piece.row.key not in known]
        done = True
        clock = _Clock(self.say, [piece.row for piece in ahead])
        for piece in ahead:
            clock.begin(piece.row)
            new = replace(rehearse(piece, clock.tell), measured_at=timestamp())
            clock.end(new)
            done &= new.state == DONE
            place = (new.cell, new.processes)
            # One that was done in a smaller precision is not lost to the larger one, which there is no memory for.
            if new.state != NO_MEMORY or all(row.state != DONE for row in found if (row.cell, row.processes) == place):
                found = [row for row in found if (row.cell, row.processes) != place] + [new]
                table.write(self.out, found)
        return Rehearsed(found, done)

    def _pieces(self, configs: dict[str, RunConfig], costs: Costs) -> list[Piece]:
        """All runs, the quickest first; the quickest of all once more, on workers."""
        costliest = _costliest(configs, costs)
        found = [self._piece(name, config, costs, name in costliest) for name, config in configs.items()]
        found.sort(key=lambda piece: _expected(piece.row))
        if self.on_ray and found and self.has.cores >= PROCESSES:
            name = found[0].row.cell
            found.append(self._piece(name, configs[name], costs, name in costliest, PROCESSES))
        return found

    def _piece(self, name: str, config: RunConfig, costs: Costs, costliest: bool, processes: int = 1) -> Piece:
        own = Places(self.out, self.out / "data", self.out / "splits", self.out / "weights")
        inputs = get_inputs(config, own, self.user, self.lists, self.say)
        tried, cost = shares(config, self.workers, processes), costs.of(config)
        # With one GPU, two workers are tried on cores.
        gpus = self.has.gpus >= processes
        whole = self.full or gpus or costliest
        data = config.data
        height, width = data.crop if whole else halved(data.crop)
        threads = max(1, self.threads // processes)
        share = tried[0].images / processes / (data.labeled_batch + data.unlabeled_batch)
        area = height * width / (data.crop[0] * data.crop[1])
        speed = V100 if gpus else CPU_CORE
        row = Row(
            cell=name,
            key="",
            code=source_digest(*SOURCES, libraries=("torch",)),
            dataset=data.dataset,
            data=inputs.data,
            weights=inputs.weights,
            backbone=config.model.backbone,
            crop_height=height,
            crop_width=width,
            whole=whole,
            precision=config.train.precision,
            processes=processes,
            device=self.has.gpu_name if gpus else self.has.cpu_name,
            threads=threads,
            base_bytes=0 if gpus else base_bytes(),
            model_bytes=int(needed(cost, config).held),
            planned_bytes=int(needed(cost, config, self.workers).total),
            planned_step_seconds=speed.seconds(cost.step * (share * area)) / (1 if gpus else threads),
            paper_labeled=data.labeled_batch,
            paper_unlabeled=data.unlabeled_batch,
            paper_steps=config.train.steps,
            paper_hours=CostModel(V100, costs=costs).run_seconds(config, self.workers) / 3600,
            paper_workers=self.workers,
            on_gpu=gpus,
        )
        scale = str(self.campaign.scale.path)
        piece = Piece(row, config, tried, self.overrides, inputs, gpus, scale, self.experiments, costs.path)
        return replace(piece, row=replace(row, key=_key(piece)))


def load_cells(experiments: Path, scale: str, cells: Sequence[str], overrides: Sequence[str]) -> Campaign:
    """The cells to be rehearsed: those named, else those that the scale has for it.

    Raises:
        FplError: A name that fits nothing, or a scale that has none.
    """
    campaign = load_campaign(experiments, scale, cells, 1, "paper", overrides)
    if cells:
        if not any(cell.configs for cell in campaign.all_cells):
            reasons = sorted({cell.why_not for cell in campaign.all_cells})
            hint = "`fpl plan` with the same names counts what is run, `fpl show TABLE.ROW.COLUMN` says why one is not"
            raise FplError(f"no run to rehearse: {', '.join(reasons)}", where=", ".join(cells), hint=hint)
        return campaign
    chosen = campaign.scale.shown.get(CHOICE, [])
    if not (isinstance(chosen, list) and chosen and all(isinstance(name, str) for name in chosen)):
        raise FplError(
            f"scale {campaign.scale_name} does not say what stands for all of it",
            where=str(campaign.scale.path),
            hint=f'name cells (TABLE.ROW.COLUMN), or set [scale] {CHOICE} = ["TABLE.ROW.COLUMN", ...]',
        )
    return load_campaign(experiments, scale, chosen, 1, "paper", overrides)


def _costliest(configs: dict[str, RunConfig], costs: Costs) -> set[str]:
    """Of each row of a table the cell whose step costs most: its crops keep their size, those of others do not."""
    found: dict[str, str] = {}
    for name, config in configs.items():
        row = name.rpartition(".")[0]
        if row not in found or costs.of(config).step.gflop > costs.of(configs[found[row]]).step.gflop:
            found[row] = name
    return set(found.values())


def _expected(row: Row) -> float:
    """Seconds of a piece, roughly: its processes, its steps, one begun twice, and the networks' looks at a few images.

    Without what is the same for all, the first pieces, which are quick, would make the rest look twice as long.
    """
    return START_SECONDS + row.planned_step_seconds * (STEPS + 1 + VALIDATED)


def _key(piece: Piece) -> str:
    row = piece.row
    told = [
        *(row.cell, row.code, row.data, row.weights, row.device, row.processes, row.threads, row.whole),
        piece.config.model_dump(mode="json"),
        list(piece.given),
        [share.words() for share in piece.shares],
    ]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]


@dataclass
class _Clock:
    """Says how far the rehearsal is and when it will end: expected seconds, corrected by what pieces really took."""

    say: Say
    ahead: list[Row]
    done: int = 0
    expected: float = 0.0
    took: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def begin(self, row: Row) -> None:
        """A piece begins."""
        self.began = time.monotonic()
        crop = f"{row.crop_width}x{row.crop_height}"
        self.tell(f"{row.backbone}, crops of {crop}" + (f", {row.processes} workers" if row.processes > 1 else ""))

    def tell(self, text: str) -> None:
        """What happens to the present piece."""
        row = self.ahead[self.done]
        self.say(f"[{self.done + 1}/{len(self.ahead)}] {row.cell}: {text}{self._left()}")

    def end(self, row: Row) -> None:
        """It is over."""
        self.say(f"[{self.done + 1}/{len(self.ahead)}] {row.cell}: {row.reason or row.checked}")
        self.expected += _expected(self.ahead[self.done])
        self.took += row.wall_seconds
        self.done += 1

    def _left(self) -> str:
        if not self.took:
            return ""
        rest = self.took / self.expected * sum(map(_expected, self.ahead[self.done :]))
        return f"; about {duration(max(0.0, rest - (time.monotonic() - self.began)))} left"
