"""The folders of a campaign. Imports neither torch nor Ray."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fpl.mirrors import attach
from fpl.storage import has_answered


@dataclass(frozen=True)
class Places:
    """Folders that a run reads and writes.

    Attributes:
        out: The store: Parquet tables, checkpoints, TensorBoard files.
        data_root: Folder that holds the data sets, or one data set itself.
        splits_root: Folder of the split lists.
        weights_dir: Folder of pretrained weights, or None for the default search.
        url: Where the store is on object storage, if it is; `out` is then its mirror on each node.
    """

    out: Path
    data_root: Path
    splits_root: Path
    weights_dir: Path | None = None
    url: str | None = None

    @property
    def resolved(self) -> Places:
        """The same folders as absolute paths without links; a mirror keeps the name under which it is known."""
        return replace(
            self,
            out=self.out if self.url else self.out.resolve(),
            data_root=self.data_root.resolve(),
            splits_root=self.splits_root.resolve(),
            weights_dir=self.weights_dir.resolve() if self.weights_dir else None,
        )

    def below(self, name: str) -> Places:
        """The same folders with a store of its own in a folder of `out`, on object storage as here."""
        url = self.url
        if url is not None:
            address, mark, options = url.partition("?")
            url = f"{address}/{name}{mark}{options}"
        return replace(self, out=self.out / name, url=url)

    def attach(self) -> None:
        """Let this process know that `out` is a mirror, if it is one: folders reach it as a message.

        Whoever sent them has seen that the server answers.
        """
        if self.url is not None:
            attach(self.url, self.out)
            has_answered(self.url)

    @property
    def events(self) -> Path:
        """TensorBoard files, a folder for each run."""
        return self.out / "tensorboard"

    def checkpoints(self, identity: str) -> Path:
        """Folder of one run's checkpoints."""
        return self.out / "checkpoints" / identity
