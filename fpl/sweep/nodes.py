"""Whether the nodes of a cluster see the same folders and software. Light: every node imports it to answer."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path

import fpl
from fpl.errors import FplError
from fpl.mirror import mirror_of
from fpl.source import source_digest
from fpl.sweep.places import Places


@dataclass(frozen=True)
class NodeView:
    """What one node, or the driver, sees.

    Attributes:
        node: Its address.
        marker: Content of the file that the driver wrote into the folder of results; empty if it is not there.
        writable: Whether it can write there.
        data: Digest of the names in the folder of data; empty if there is no such folder.
        splits: The same of the folder of split lists.
        weights: Digest of names and sizes in the folder of pretrained weights; empty if there is none.
        versions: Of this package and of torch.
    """

    node: str
    marker: str
    writable: bool
    data: str
    splits: str
    weights: str
    versions: str


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
        writable=mirror is not None or os.access(places.out, os.W_OK),
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
    problems = []
    if found.marker != expected.marker:
        problems.append(f"the folder of results {places.out} is another one there: a file written here is not seen")
    elif not found.writable:
        problems.append(f"cannot write to the folder of results {places.out}")
    for what, folder, ours, theirs in (
        ("data", places.data_root, expected.data, found.data),
        ("splits", places.splits_root, expected.splits, found.splits),
        ("pretrained weights", places.weights_dir, expected.weights, found.weights),
    ):
        if ours != theirs:
            state = "holds other files there" if theirs else "does not exist there"
            problems.append(f"the folder of {what} {folder} {state}")
    if found.versions != expected.versions:
        problems.append(f"has {found.versions} instead of {expected.versions}")
    return [f"node {found.node}: {problem}" for problem in problems]


def _names_digest(folder: Path, *, sizes: bool = False) -> str:
    """Digest of what lies directly in a folder, hidden files aside; empty if there is no such folder."""
    if not folder.is_dir():
        return ""
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    lines = [f"{path.name} {path.stat().st_size}" if sizes and path.is_file() else path.name for path in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
