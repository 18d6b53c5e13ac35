"""One run rehearsed: trained, killed behind its first checkpoint, continued, validated, and asked to predict."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fpl.config.schema import RunConfig
from fpl.data.read import read_size
from fpl.data.spec import find_root, get_spec
from fpl.errors import FplError
from fpl.store.done import run_row
from fpl.store.schema import RUNS
from fpl.sweep.rehearsal.child import Ended, fpl_command, free_memory, run
from fpl.sweep.rehearsal.inputs import Inputs
from fpl.sweep.rehearsal.rows import DONE, FAILED, NO_MEMORY, Row
from fpl.sweep.rehearsal.shorten import STEPS, Share, shortened
from fpl.text import duration

CHECKPOINT = "step_00000001.pt"
# What runs say of themselves in their logs (`fpl.sweep.local`, `fpl.train.loop`).
_PEAK = re.compile(r"peak memory of this process: ([\d.]+) GB")
_VALIDATED = re.compile(r"on (\d+) validation images \(best .*\), (\d+) s$", re.MULTILINE)


@dataclass(frozen=True)
class Piece:
    """One run to be rehearsed.

    Attributes:
        row: What is known of it beforehand.
        config: The run as published, with the user's overrides.
        shares: Batches to try, the largest first.
        given: The user's overrides.
        inputs: What it reads.
        gpus: Whether it is trained on GPUs.
        scale: Name or path of the scale.
        experiments: Folder of tables, recipes and scales.
        costs: File of counted costs, for its store to begin with.
    """

    row: Row
    config: RunConfig
    shares: list[Share]
    given: Sequence[str]
    inputs: Inputs
    gpus: bool
    scale: str
    experiments: Path
    costs: Path | None = None

    @property
    def store(self) -> Path:
        """Its own store: nothing of another run is in it."""
        return self.inputs.places.out / "pieces" / f"{self.row.cell}-{self.row.key}"

    def command(self, share: Share) -> list[str]:
        """The command that trains it: the one that trains the published run, with more overrides."""
        places, row = self.inputs.places, self.row
        options: dict[str, object] = {
            "scale": self.scale,
            "experiments": self.experiments,
            "out": self.store,
            "data-root": places.data_root,
            "splits": places.splits_root,
            "checkpoint-every": 1,
            "threads": row.threads,
            "gpus-per-worker": int(self.gpus),
        }
        if places.weights_dir is not None:
            options["weights"] = places.weights_dir
        if row.processes > 1:
            options |= {"launcher": "train", "workers": row.processes, "cpus-per-worker": row.threads}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        local = ["--local"] if row.processes == 1 else []
        overrides = [*self.given, *self.inputs.overrides, *shortened(self.config, share, whole=row.whole)]
        return fpl_command("reproduce", row.cell, *overrides, *words, *local)


@dataclass
class _Watch:
    """Sees when the first checkpoint is there, how large it is, and whether it stays the same file."""

    folder: Path
    size: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)

    def look(self) -> bool:
        """Whether there is one; of the file that there is it keeps the identity."""
        for path in self.folder.glob(f"*/{CHECKPOINT}"):
            try:
                status = path.stat()
            except FileNotFoundError:
                return False  # the run is done
            self.size = status.st_size
            self.seen.add((status.st_ino, status.st_mtime_ns))
            return True
        return False


Tell = Callable[[str], None]


def rehearse(piece: Piece, tell: Tell) -> Row:
    """Rehearse a run with the largest batch that memory allows; what it finds, failures too.

    Args:
        piece: The run.
        tell: Told now and then what happens.
    """
    began = time.monotonic()
    for number, share in enumerate(piece.shares, start=1):
        # What an earlier call left of it is of no use: a kill in it was nobody's plan.
        shutil.rmtree(piece.store, ignore_errors=True)
        piece.store.mkdir(parents=True)
        if piece.costs is not None and piece.costs.is_file():
            shutil.copy(piece.costs, piece.store)
        found = _Attempt(piece, share, tell).carry_out()
        if found.state != NO_MEMORY or number == len(piece.shares):
            break
        tell(f"{share.words()} images do not fit into memory: fewer are tried")
    if found.state == DONE:
        shutil.rmtree(piece.store / "checkpoints", ignore_errors=True)
        shutil.rmtree(piece.store / "predicted", ignore_errors=True)
    return replace(found, wall_seconds=time.monotonic() - began)


@dataclass(frozen=True)
class _Attempt:
    """A piece with one batch."""

    piece: Piece
    share: Share
    tell: Tell

    @property
    def row(self) -> Row:
        """What is known beforehand, with the present batch."""
        row, share = self.piece.row, self.share
        planned = row.planned_step_seconds * share.images / self.piece.shares[0].images
        sizes: dict[str, Any] = {"labeled": share.labeled, "unlabeled": share.unlabeled, "groups": share.groups}
        return replace(row, **sizes, planned_step_seconds=planned)

    def carry_out(self) -> Row:
        """Train on workers of Ray Train; or here, with a kill, and predict."""
        return self._on_workers() if self.row.processes > 1 else self._killed()

    def _on_workers(self) -> Row:
        ended = self._train(f"two steps on {self.row.processes} workers", lambda: False)
        return self._done(ended, ["trained and validated on Ray Train"])

    def _killed(self) -> Row:
        watch = _Watch(self.piece.store / "checkpoints")
        first = self._train("step 1", watch.look)
        if not watch.seen or not first.stopped:
            done = "it was done before it could be killed"
            return self._failed(first, done if watch.seen or not first.code else "no checkpoint was written")
        last = self._train("step 2 and validation", lambda: watch.look() and False)
        row = self._done(last, ["killed at step 1", "continued", "validated"])
        if row.state != DONE:
            return row
        if len(watch.seen) != 1:
            return replace(row, state=FAILED, reason="it was not continued from its checkpoint, but begun anew")
        (weights,) = watch.folder.glob("*/last.pt")
        return self._predict(replace(row, checkpoint_bytes=watch.size, weights_bytes=weights.stat().st_size), weights)

    def _train(self, what: str, look: Callable[[], bool]) -> Ended:
        # On a GPU its own memory counts, and drivers map far more than they take; workers are no children of ours.
        limit = free_memory() if not self.piece.gpus and self.row.processes == 1 else None
        return self._run(self.piece.command(self.share), what, look, limit)

    def _run(
        self, command: Sequence[str], what: str, look: Callable[[], bool] = lambda: False, limit: int | None = None
    ) -> Ended:
        def tell(seconds: float) -> None:
            self.tell(f"{what}, {duration(seconds)}")

        log = self.piece.store / "commands.log"
        return run(command, log, threads=self.row.threads, tell=tell, limit=limit, look=look)

    def _done(self, ended: Ended, checked: list[str]) -> Row:
        """The row of a run whose command has ended, with what the store and the run's log say."""
        found = sorted((self.piece.store / RUNS).glob("*.parquet"))
        if ended.code or len(found) != 1:
            return self._failed(ended, "its row is not in the store")
        trained = run_row(found[0])
        log = (self.piece.store / "logs" / f"{trained['run_id']}.log").read_text(encoding="utf-8")
        return replace(self.row, state=DONE, checked=", ".join(checked), **_measured(trained, log))

    def _failed(self, ended: Ended, what: str) -> Row:
        state = NO_MEMORY if ended.lacked_memory else FAILED
        return replace(self.row, state=state, reason=f"{what}: {ended.reason}")

    def _predict(self, row: Row, weights: Path) -> Row:
        """Let the network predict a validation image of the set, and look at what comes."""
        spec = get_spec(row.dataset)
        root = find_root(spec, self.piece.inputs.places.data_root)
        image = spec.image_path(root, "val", spec.list_ids(root, "val")[0])
        to = self.piece.store / "predicted"
        ended = self._run(fpl_command("predict", str(weights), str(image), str(to)), "predict")
        maps = [path for path in to.rglob("*.png") if path.stem == image.stem] if to.is_dir() else []
        if ended.code or not maps or read_size(maps[0]) != read_size(image):
            return self._failed(ended, f"no class map of {image.name} in {to}")
        return replace(row, predict_seconds=ended.seconds, checked=f"{row.checked}, predicted")


def _measured(trained: dict[str, Any], log: str) -> dict[str, Any]:
    """What a finished run and its log tell."""
    peaks = [float(found) for found in _PEAK.findall(log)]
    validated = _VALIDATED.findall(log)
    if not peaks or not validated:
        raise FplError("the run's log says neither its memory nor its validation", where=str(trained["run_id"]))
    return {
        "steps": STEPS,
        "step_seconds": trained["train_seconds"] / STEPS,
        "validation_images": int(validated[-1][0]),
        "validation_seconds": float(validated[-1][1]),
        "peak_bytes": int(max(peaks) * 1e9),
        "device": trained["device"],
        "commit": trained["commit"] or "unknown",
    }
