"""What a cache of decoded images stands for: its place, its index, and whether its source files are still the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fpl.data.spec import DatasetSpec
from fpl.errors import FplError
from fpl.source import source_digest

INDEX = "index.json"
LARGEST_DOWNSCALE = 9999
# Raised when the files, or what `Images` decodes from the same source, change.
FORMAT = 2


def cache_folder(spec: DatasetSpec, root: Path, part: str, downscale: int, place: Path | None = None) -> Path:
    """Folder of the cache of one part.

    Args:
        spec: The data set.
        root: Its root folder.
        part: "train" or "val".
        downscale: See `Images`.
        place: Folder of all caches; None takes the environment variable FPL_CACHE, else `.cache/fpl` below `root`.
    """
    if not 1 <= downscale <= LARGEST_DOWNSCALE:
        raise FplError("downscale is out of range", hint=f"1 to {LARGEST_DOWNSCALE} is allowed")
    if place is None:
        place = Path(os.environ["FPL_CACHE"]) if os.environ.get("FPL_CACHE") else root / ".cache" / "fpl"
    # Several copies of one data set may share a place.
    copy = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    return place / f"{spec.name}-{copy}" / f"x{downscale}" / part


def rebuild_command(spec: DatasetSpec, downscale: int) -> str:
    """The command that builds or repairs a cache."""
    reduced = f" --downscale {downscale}" if downscale > 1 else ""
    return f"fpl data cache {spec.name}{reduced} --data-root DIR"


def rebuild_hint(spec: DatasetSpec, downscale: int, folder: Path) -> str:
    """What to do about a stale cache."""
    return f"build it again: {rebuild_command(spec, downscale)}; or delete {folder} to read the files themselves"


def settings_of(spec: DatasetSpec, part: str, downscale: int) -> dict[str, Any]:
    """What a cache depends on besides the source files."""
    labels = json.dumps([(kind.ending, sorted(kind.values.items())) for each in spec.layouts for kind in each.labels])
    return {
        "format": FORMAT,
        # What decodes: another version of it may decode other pixels.
        "code": source_digest(
            "data/read.py", "data/images.py", "data/formats.py", "data/build_cache.py", libraries=("pillow",)
        ),
        "dataset": spec.name,
        "part": part,
        "downscale": downscale,
        "label_values": hashlib.sha256(labels.encode()).hexdigest()[:16],
    }


def source_files(spec: DatasetSpec, root: Path, part: str, image_id: str) -> dict[str, list[int] | None]:
    """Files of one image, below the root, with size and time of change in ns; None for a label that does not exist.

    Raises:
        FplError: The image is not on disk.
    """
    image, label = spec.image_path(root, part, image_id), spec.label_path(root, part, image_id)
    found: dict[str, list[int] | None] = {}
    for path in (image, label):
        try:
            status = path.stat()
        except FileNotFoundError:
            found[os.path.relpath(path, root)] = None
        else:
            found[os.path.relpath(path, root)] = [status.st_size, status.st_mtime_ns]
    return found


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a cache.

    Raises:
        FplError: It is damaged.
    """
    try:
        index = json.loads((folder / INDEX).read_bytes())
        if index["digest"] != index_digest(index):
            raise ValueError("wrong digest")
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(folder / INDEX, str(error)) from error
    return dict(index)


def index_digest(index: dict[str, Any]) -> str:
    """32 hex digits over an index without its own digest."""
    content = {key: value for key, value in index.items() if key != "digest"}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def changes(
    index: dict[str, Any], spec: DatasetSpec, root: Path, part: str, downscale: int
) -> Iterator[tuple[str, str]]:
    """Why a cache no longer stands for its source: file or folder, and what is different."""
    for key, value in settings_of(spec, part, downscale).items():
        if index["settings"].get(key) != value:
            yield str(root), f"made with {key} = {index['settings'].get(key)}, now {value}"
    ids, cached = spec.list_ids(root, part), index["sources"]
    for image_id in ids:
        found = source_files(spec, root, part, image_id)
        if image_id not in cached:
            yield str(root / next(iter(found))), "this image is not in it"
            continue
        for name, status in found.items():
            before = cached[image_id].get(name)
            if status != before:
                what = "is new" if before is None else "is gone" if status is None else "was changed"
                yield str(root / name), f"this file {what} since it was made"
    if gone := cached.keys() - set(ids):
        yield str(root), f"{min(gone)} is no longer in the list of {part} images"


def damaged(path: Path, reason: str) -> FplError:
    """The error for a file of a cache that is not what was written."""
    hint = f"run the same `fpl data cache` again, it repairs the cache; or delete {path.parent}"
    return FplError(f"the cache is damaged ({reason})", where=str(path), hint=hint)


def digest_of(path: Path) -> str:
    """32 hex digits over the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
