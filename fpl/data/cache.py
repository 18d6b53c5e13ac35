"""Decoded images and labels in memory-mapped Arrow files: a PNG is decoded once per machine, not once per step.

A cache is one folder per part of a data set, `<place>/<data set>-<root>/x<downscale>/<part>`: Arrow IPC files of one
row per image, and `index.json` with the source files they were made from. It holds exactly what `Images` decodes.
Every row has a checksum, which is compared when a process reads the row for the first time.
"""

from __future__ import annotations

import math
import os
import stat
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fpl.data.cache_index import INDEX, cache_folder, changes, damaged, digest_of, read_index, rebuild_hint
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError

Bytes = NDArray[np.uint8]

# Kinds of arrays in a row. A full label is stored only where it differs from the reduced one and is validated on.
KINDS = ("image", "label", "full_label")


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
