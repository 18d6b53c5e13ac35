"""Decoded images and labels in memory-mapped Arrow files: a PNG is decoded once per machine, not once per step.

A cache is one folder per part of a data set, `<place>/<data set>-<root>/x<downscale>/<part>`: Arrow IPC files of one
row per image, and `index.json` with the source files they were made from. It holds exactly what `Images` decodes.
Every row has a checksum, which is compared when a process reads the row for the first time.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fpl.data.spec import DatasetSpec
from fpl.errors import FplError
from fpl.source import source_digest

Bytes = NDArray[np.uint8]

INDEX = "index.json"
LARGEST_DOWNSCALE = 9999
# Raised when the files, or what `Images` decodes from the same source, change.
FORMAT = 2
# Kinds of arrays in a row. A full label is stored only where it differs from the reduced one and is validated on.
KINDS = ("image", "label", "full_label")


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


@dataclass
class Shard:
    """One Arrow file of a cache and its rows."""

    path: Path
    bytes: int
    digest: str
    ids: list[str]
    _reader: pa.ipc.RecordBatchFileReader | None = field(default=None, repr=False)

    def row(self, number: int) -> pa.RecordBatch:
        """One row, not copied from the mapped file.

        Raises:
            FplError: The file is not what was written.
        """
        try:
            if self._reader is None:
                # No threads of Arrow: a loader process forked meanwhile would wait for them for ever.
                options = pa.ipc.IpcReadOptions(use_threads=False)
                self._reader = pa.ipc.open_file(pa.memory_map(str(self.path)), options=options)
            return self._reader.get_batch(number)
        except (pa.ArrowException, OSError) as error:
            raise damaged(self.path, str(error).splitlines()[0]) from error

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_reader": None}


class Cache:
    """The decoded images of one part; see `open_cache`.

    Attributes:
        folder: Where it lies.
        shards: Its files.
        ids: All ids, in the order of the data set's list.
    """

    def __init__(self, folder: Path, shards: list[Shard]) -> None:
        self.folder = folder
        self.shards = shards
        self._places = {image_id: (shard, row) for shard in shards for row, image_id in enumerate(shard.ids)}
        self.ids = tuple(self._places)
        self._views: dict[tuple[str, str], Bytes | None] = {}

    def get(self, kind: str, image_id: str) -> Bytes | None:
        """An array of an image, or None if the cache has none, read-only and not copied from the mapped file.

        Args:
            kind: "image" (uint8 [h, w, 3]), "label" (uint8 [h, w]), both reduced, or "full_label" (uint8 [H, W]).
            image_id: Id of the image.

        Raises:
            FplError: The file is damaged; the message has its name.
        """
        if (kind, image_id) not in self._views:
            self._views[kind, image_id] = self._read(kind, image_id)
        return self._views[kind, image_id]

    def _read(self, kind: str, image_id: str) -> Bytes | None:
        if image_id not in self._places:
            return None
        shard, number = self._places[image_id]
        row = shard.row(number)
        if row.column("id")[0].as_py() != image_id:
            raise damaged(shard.path, f"it does not hold {image_id} where the index says: it was built again meanwhile")
        column = row.column(kind)
        if column.null_count:
            return None
        height, width, checksum = (row.column(f"{kind}_{name}")[0].as_py() for name in ("height", "width", "crc"))
        shape = (height, width, 3) if kind == "image" else (height, width)
        # The buffer itself: the value as a scalar would be a copy.
        pixels = np.frombuffer(column.buffers()[2], dtype=np.uint8)[: math.prod(shape)]
        if zlib.crc32(pixels.data) != checksum or pixels.size != math.prod(shape):
            raise damaged(shard.path, f"the {kind} of {image_id} has a wrong checksum")
        return pixels.reshape(shape)

    def __getstate__(self) -> dict[str, object]:
        # Where loader processes are spawned, each maps the files itself.
        return {**self.__dict__, "_views": {}}


def open_cache(spec: DatasetSpec, root: Path, part: str, downscale: int = 1, place: Path | None = None) -> Cache | None:
    """The cache of a part if there is one; looks at all source files, but reads none.

    Args:
        spec: The data set.
        root: Its root folder.
        part: "train" or "val".
        downscale: See `Images`.
        place: See `cache_folder`.

    Raises:
        FplError: The cache is damaged, or was made from other files or another version of the suite.
    """
    folder = cache_folder(spec, root, part, downscale, place)
    if not (folder / INDEX).is_file():
        return None
    check_trusted(folder, root)
    index = read_index(folder)
    if problem := next(changes(index, spec, root, part, downscale), None):
        where, what = problem
        raise FplError(f"the cache {folder} is stale: {what}", where=where, hint=rebuild_hint(spec, downscale, folder))
    shards = [Shard(folder / each["file"], each["bytes"], each["digest"], each["ids"]) for each in index["shards"]]
    for shard in shards:
        if not shard.path.is_file():
            raise damaged(shard.path, "the file is gone")
        if (found := shard.path.stat().st_size) != shard.bytes:
            raise damaged(shard.path, f"{found} bytes instead of {shard.bytes}")
    return Cache(folder, shards)


def check_trusted(folder: Path, root: Path) -> None:
    """Refuse a cache that others than this user, root and whoever owns the data could have put there or changed.

    A cache holds pixels and no code: a group that shares the data may share the folders above a cache as well, and
    folders that hold the data too are not looked at.

    Raises:
        FplError: Names the file or folder, and who else could have written it.
    """
    # In some containers root has another number, and owns "/" under it.
    trusted = {os.getuid(), 0, Path("/").stat().st_uid, root.stat().st_uid}
    inside, own = [folder, *folder.iterdir()], {root.absolute(), root.resolve()}
    shared = own | {parent for each in own for parent in each.parents}
    above = {*folder.absolute().parents, *folder.resolve().parents} - shared
    for path in [*inside, *sorted(above, reverse=True)]:
        status = path.lstat() if path in inside else path.stat()
        what = ""
        if status.st_uid not in trusted:
            what = f"belongs to another user ({status.st_uid})"
        elif path in inside and (stat.S_ISLNK(status.st_mode) or status.st_mode & 0o022):
            what = "is a link" if stat.S_ISLNK(status.st_mode) else "can be written by others"
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            what = "can be written by everybody"
        if what:
            raise FplError(
                f"the cache {folder} is not used: this {what}, who could have put other images there",
                where=str(path),
                hint="chmod go-w, chown, or another place for it (FPL_CACHE); without the folder the images are read",
            )


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


def rebuild_hint(spec: DatasetSpec, downscale: int, folder: Path) -> str:
    """What to do about a stale cache."""
    return f"build it again: {rebuild_command(spec, downscale)}; or delete {folder} to read the files themselves"


def damaged(path: Path, reason: str) -> FplError:
    """The error for a file of a cache that is not what was written."""
    hint = f"run the same `fpl data cache` again, it repairs the cache; or delete {path.parent}"
    return FplError(f"the cache is damaged ({reason})", where=str(path), hint=hint)


def verify(cache: Cache, *, cores: int = 1, progress: Callable[[int, int], None] | None = None) -> None:
    """Read all files of a cache and compare their digests.

    Args:
        cache: The cache.
        cores: Threads.
        progress: Called with (images compared, images in all).

    Raises:
        FplError: A file is damaged; the message has its name.
    """
    done = 0
    with ThreadPoolExecutor(cores) as pool:
        for shard, digest in zip(
            cache.shards, pool.map(digest_of, (shard.path for shard in cache.shards)), strict=True
        ):
            if digest != shard.digest:
                raise damaged(shard.path, "its content is not what was written")
            done += len(shard.ids)
            if progress is not None:
                progress(done, len(cache.ids))


def digest_of(path: Path) -> str:
    """32 hex digits over the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
