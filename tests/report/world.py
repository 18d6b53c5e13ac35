"""A small paper of three tables, and a store with made-up runs of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpl.config.campaign import Campaign, load_campaign
from fpl.config.cells import Cell
from fpl.config.identity import canonical, digest
from fpl.config.schema import RunConfig
from fpl.store.read import Results
from fpl.store.write import write_failure, write_run, write_table

BASE = """
[data]
dataset = "synthetic_city"
num_classes = 19
split = { family = "every-nth", fraction = "1/8" }
crop = [64, 64]
labeled_batch = 4
unlabeled_batch = 4
[model]
backbone = "tiny"
pretrained = "none"
[method]
name = "cps"
cutmix = false
weight = 1.5
[optim]
lr = 0.1
[train]
steps = 200
evaluate_every = 50
[eval]
protocol = "whole"
"""

MAIN = r"""
[about]
order = 1
[table]
recipe = "cps"
name = "main"
number = "1"
caption = "Street scenes & 100 % of_them | made up"
dataset = "city"
footnotes = ["Printed by <nobody>."]
[[columns]]
key = "small_16"
header = "1/16"
group = "Small"
labeled = 20
set = { data = { split = { fraction = "1/16" } } }
[[columns]]
key = "small_8"
header = "1/8"
group = "Small"
labeled = 40
set = { data = { split = { fraction = "1/8" } } }
[[columns]]
key = "large_8"
header = "1/8"
group = "Large"
labeled = 40
set = { data = { split = { fraction = "1/8" } }, model = { tiny_depth = 2 } }
[[rows]]
key = "teacher"
label = "Mean_Teacher"
role = "cited"
values = [66.14, 72.03, "-"]
source = "tarvainen2017"
[[rows]]
key = "cps"
label = "CPS"
role = "baseline"
values = [60.00, 65.00, 66.00]
[[rows]]
key = "fpl_cps"
label = "FPL+CPS"
role = "proposed"
set = { loss = { kind = "fpl" } }
threshold = [0.95, 0.9, 0.85]
values = [61.00, 65.50, 66.25]
arrows = [1.00, 0.50, 0.25]
over = "cps"
bold = ["small_16"]
note = "The method of the paper."
[[rows]]
key = "fpl_ael"
label = "FPL+AEL"
role = "proposed"
pending = "AEL is not there yet"
values = [62.00, "-", 67.00]
arrows = [0.10, "-", 0.20]
over = "cps"
[[rows]]
key = "supervised"
label = "supervised only"
role = "control"
set = { method = { name = "supervised" } }
over = "cps"
"""

# Its second row is the same runs as main.fpl_cps.small_8 against main.cps.small_8.
AGAIN = """
[about]
order = 2
[table]
recipe = "cps"
name = "again"
number = "A4"
caption = "The same runs in another table"
dataset = "city"
selection = "last"
[[columns]]
key = "small_8"
header = "1/8"
[[rows]]
key = "cps"
label = "CPS"
role = "baseline"
values = [65.00]
[[rows]]
key = "fpl_cps"
label = "FPL"
role = "proposed"
set = { loss = { kind = "fpl", threshold = 0.9 } }
values = [65.50]
over = "cps"
"""

SETTINGS = """
[about]
order = 3
[table]
recipe = "cps"
name = "settings"
number = "A1"
caption = "T"
metric = "threshold"
[[columns]]
key = "x"
header = "1/16"
[[columns]]
key = "y"
header = "1/8"
[[columns]]
key = "z"
header = "1/8"
[[rows]]
key = "t"
label = "FPL+CPS"
role = "proposed"
values = [0.95, 0.9, 0.8]
of = "main.fpl_cps"
"""

SPEED = """
[about]
order = 4
[table]
recipe = "cps"
name = "speed"
number = "A6"
caption = "Seconds per epoch"
metric = "seconds_per_epoch"
dataset = "city"
[[columns]]
key = "city"
header = "City"
[[rows]]
key = "cps"
label = "CPS"
role = "baseline"
values = [730]
[[rows]]
key = "fpl_cps"
label = "FPL+CPS"
role = "proposed"
set = { loss = { kind = "fpl", threshold = 0.9 } }
values = [820]
arrows = [90]
over = "cps"
"""

SCALES = {
    "little": """
[scale]
name = "little"
comparable = false
proves = "that all is whole"
proves_not = "gains in mIoU"
seeds = 1
""",
    "full": """
[scale]
name = "full"
comparable = true
seeds = 3
""",
}


def write_paper(folder: Path, edits: Mapping[str, tuple[str, str]] | None = None) -> Path:
    """The `experiments/` folder of the small paper; `edits` are file -> (old text, new text)."""
    files = {
        "base/city_cps.toml": BASE,
        "tables/main.toml": MAIN,
        "tables/again.toml": AGAIN,
        "tables/settings.toml": SETTINGS,
        "tables/speed.toml": SPEED,
        **{f"scale/{name}.toml": text for name, text in SCALES.items()},
    }
    for name, text in files.items():
        path = folder / "experiments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        old, new = (edits or {}).get(name, ("", ""))
        assert old in text
        path.write_text(text.replace(old, new) if old else text)
    return folder / "experiments"


class World:
    """The small paper at one scale, and its store."""

    def __init__(
        self, folder: Path, scale: str, edits: Mapping[str, tuple[str, str]] | None = None, **options: Any
    ) -> None:
        self.experiments = write_paper(folder, edits)
        options.setdefault("rows", "all" if scale == "little" else "paper")
        self.out = folder / "results"
        self.campaign: Campaign = load_campaign(self.experiments, scale, **options)

    @property
    def results(self) -> Results:
        return Results(self.out)

    def cell(self, name: str) -> Cell:
        return next(cell for cells in self.campaign.tables.values() for cell in cells if cell.name == name)

    def run(self, name: str, miou: float, seed: int = 0, **columns: Any) -> str:
        """Store a run of a cell; `miou` is its best and, less one point, its last."""
        config = next(config for config in self.cell(name).configs if config.seed == seed)
        return self.store(config, miou, **columns)

    def store(self, config: RunConfig, miou: float, **columns: Any) -> str:
        pins = columns.pop("pins", {})
        split = config.data.split.model_copy(
            update={"labeled": "0123456789abcdef", "unlabeled": "fedcba9876543210", **pins}
        )
        pinned = config.model_copy(update={"data": config.data.model_copy(update={"split": split})})
        name = f"run-{digest(pinned)[:8]}"
        row = {
            "run_id": name,
            "digest": digest(pinned),
            "config": canonical(pinned),
            "miou_whole_best": miou,
            "miou_whole_last": miou - 1,
            "unlabeled_images": 400,
            "train_seconds": 50.0,
            "finished_at": "2026-01-01T00:00:00+00:00",
            "device": "cpu",
            "workers": 1,
            "threads": 2,
            "torch": "2.9.0",
            "commit": "abc",
        }
        write_run(self.out, {**row, **columns}, [], [], [])
        return name

    def fail(self, name: str, reason: str, seed: int = 0) -> None:
        cell = self.cell(name)
        number = [config.seed for config in cell.configs].index(seed)
        run_id = f"failed-{name}-{seed}".replace(".", "-")
        row = {"run_id": run_id, "recipe": cell.recipes[number], "seed": seed, "reason": reason}
        write_failure(self.out, {**row, "log": f"logs/{name}.txt", "failed_at": "2026-01-01T00:00:00+00:00"})

    def repeat(self, recipe: str, values: Mapping[int, float]) -> None:
        """Rows of `noise`: repeat -> mIoU."""
        for number, miou in values.items():
            row = {"run_id": recipe, "recipe": recipe, "cell": "main.cps.small_8", "repeat": number}
            write_table(
                self.out / "noise" / f"{recipe}-{number}.parquet",
                "noise",
                [{**row, "miou_whole_best": miou, "device": "cpu", "threads": 2, "finished_at": "2026"}],
            )
