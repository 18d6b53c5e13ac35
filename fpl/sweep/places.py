"""The folders of a campaign. Imports neither torch nor Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Folders that a run reads and writes.

    Attributes:
        out: The store: Parquet tables, checkpoints, TensorBoard files.
        data_root: Folder that holds the data sets, or one data set itself.
        splits_root: Folder of the split lists.
        weights_dir: Folder of pretrained weights, or None for the default search.
    """

    out: Path
    data_root: Path
    splits_root: Path
    weights_dir: Path | None = None

    @property
    def resolved(self) -> Places:
        """The same folders as absolute paths without links."""
        weights = self.weights_dir.resolve() if self.weights_dir else None
        return Places(self.out.resolve(), self.data_root.resolve(), self.splits_root.resolve(), weights)

    @property
    def events(self) -> Path:
        """TensorBoard files, a folder for each run."""
        return self.out / "tensorboard"

    def checkpoints(self, identity: str) -> Path:
        """Folder of one run's checkpoints."""
        return self.out / "checkpoints" / identity
