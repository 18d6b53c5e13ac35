"""Whether the nodes of a cluster see the same folders and software. Light: every node imports it to answer."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fpl
from fpl.errors import FplError, file_error
from fpl.files import remove, write_atomic
from fpl.mirrors import mirror_of, name_of
from fpl.source import source_digest
from fpl.sweep.places import Places
from fpl.text import first_line

# Names of files that are written to see whether they can be, and removed at once.
CHECK = ".fpl-check-"
# So many bytes of them: a disk that is full may still take a few.
PROBE = 2**20


@dataclass(frozen=True)
class NodeView:
    """What one node, or the driver, sees.

    Attributes:
        node: Its address.
        marker: Content of the file that the driver wrote into the folder of results; empty if it is not there.
        refused: What a file meets that it writes there, or into its mirror of that folder; empty: nothing.
        data: Digest of the names in the folder of data; empty if there is no such folder.
        splits: The same of the folder of split lists.
        weights: Digest of names and sizes in the folder of pretrained weights; empty if there is none.
        versions: Of this package and of torch.
    """

    node: str
    marker: str
    refused: str
    data: str
    splits: str
    weights: str
    versions: str


@dataclass(frozen=True)
class Sight:
    """What the driver sees, sent to processes on any node: also on those that came later, which nobody has asked.

    Attributes:
        expected: What the driver saw at first.
        places: Places of the runs.
        marker: Name of a file in the folder of results, as long as the driver is there.
    """

    expected: NodeView
    places: Places
    marker: str

    def problems(self) -> list[str]:
        """What keeps the node of this process from carrying runs out.

        What lies in the folders of data, splits and weights may have become more since: whether it is what a run needs
        is seen when it begins.
        """
        try:
            found = look_around("here", self.places, self.marker)
        except (OSError, FplError) as error:
            return [first_line(error)]
        return _problems(self.expected, found, self.places, same_names=False)


@contextlib.contextmanager
def shown(places: Places) -> Iterator[Sight]:
    """What this process sees; its marker lies there as long as this lasts."""
    marker = f"{CHECK}{secrets.token_hex(8)}"
    write_atomic(places.out / marker, secrets.token_hex(16).encode())
    try:
        yield Sight(look_around("this process", places, marker), places, marker)
    finally:
        remove(places.out / marker)


def look_around(node: str, places: Places, marker: str) -> NodeView:
    """What the node that runs this sees.

    Args:
        node: Its address, for messages.
        places: Places of the runs.
        marker: Name of a file in the folder of results.
    """
    places.attach()
    mirror = mirror_of(places.out)
    try:
        there = (places.out / marker).read_bytes() if mirror is None else mirror.read(places.out / marker)
        content = (there or b"").decode()
    except (OSError, FplError):
        content = ""
    return NodeView(
        node=node,
        marker=content,
        # Where the folder is another one, nothing is to be written, and nothing made.
        refused=_refusal(places.out) if content or mirror is not None else "",
        data=_names_digest(places.data_root),
        splits=_names_digest(places.splits_root),
        weights=_names_digest(places.weights_dir, sizes=True) if places.weights_dir else "",
        versions=f"fpl {fpl.__version__} (source {source_digest()}), torch {importlib.metadata.version('torch')}",
    )


def differences(expected: NodeView, found: NodeView, places: Places) -> list[str]:
    """What keeps a node from carrying runs out, one line each.

    Args:
        expected: What the driver sees.
        found: What the node sees.
        places: The folders, for the message.
    """
    return [f"node {found.node}: {problem}" for problem in _problems(expected, found, places, same_names=True)]


def _problems(expected: NodeView, found: NodeView, places: Places, *, same_names: bool) -> list[str]:
    problems = []
    if found.marker != expected.marker:
        problems.append(
            f"the folder of results {name_of(places.out)} is another one there: a file written here is not seen"
        )
    elif found.refused:
        what = "the scratch folder" if places.url else "the folder of results"
        problems.append(f"cannot write to {what} {places.out}: {found.refused}")
    for what, folder, ours, theirs in (
        ("data", places.data_root, expected.data, found.data),
        ("splits", places.splits_root, expected.splits, found.splits),
        ("pretrained weights", places.weights_dir, expected.weights, found.weights),
    ):
        if ours != theirs if same_names else ours and not theirs:
            state = "holds other files there" if theirs else "does not exist there"
            problems.append(f"the folder of {what} {folder} {state}")
    if found.versions != expected.versions:
        problems.append(f"has {found.versions} instead of {expected.versions}")
    return problems


def _refusal(folder: Path) -> str:
    """What a file meets that is written where runs will write theirs; empty if it gets there."""
    probe = folder / f"{CHECK}{secrets.token_hex(8)}"
    try:
        # A mirror is made by who needs it.
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(PROBE))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return file_error(error).what
    return ""


def _names_digest(folder: Path, *, sizes: bool = False) -> str:
    """Digest of what lies directly in a folder, hidden files aside; empty if there is no such folder."""
    if not folder.is_dir():
        return ""
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    lines = [f"{path.name} {path.stat().st_size}" if sizes and path.is_file() else path.name for path in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
