"""Building the cache of `cache`: on all cores, by one process at a time, visible only when it is complete."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pyarrow as pa

from fpl.data.cache import KINDS, Bytes, open_cache, verify
from fpl.data.cache_index import INDEX, cache_folder, digest_of, index_digest, settings_of, source_files
from fpl.data.images import Images
from fpl.data.read import read_size
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError
from fpl.files import check_room, locked, sync_folder, write_atomic

SHARD_BYTES = 256 * 2**20
# Besides the pixels, a row takes a few hundred bytes; file systems want some room too.
ROW_BYTES, SPARE_BYTES = 4096, 16 * 2**20

_COLUMNS = {f"{kind}_{name}": type_ for kind in KINDS for name, type_ in
            (("height", pa.int32()), ("width", pa.int32()), ("crc", pa.uint32()))}  # fmt: skip
SCHEMA = pa.schema(
    [("id", pa.string()), *_COLUMNS.items(), *((kind, pa.large_binary()) for kind in KINDS)],
)

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """What building a cache would write.

    Attributes:
        folder: Where.
        ids: Its images, in the order of the data set's list.
        bytes: Need of disk, a close upper bound.
    """

    spec: DatasetSpec
    root: Path
    part: str
    downscale: int
    folder: Path
    ids: tuple[str, ...]
    bytes: int


def plan_cache(
    spec: DatasetSpec, root: Path, part: str, downscale: int = 1, place: Path | None = None, cores: int = 1
) -> Plan:
    """Look at the headers of all images and say how much the cache of a part needs.

    Args:
        spec: The data set.
        root: Its root folder.
        part: "train" or "val".
        downscale: See `Images`.
        place: See `cache_folder`.
        cores: Threads.

    Raises:
        FplError: An image is missing or broken, or the place cannot be written.
    """
    folder = cache_folder(spec, root, part, downscale, place)
    ids = tuple(spec.list_ids(root, part))

    def need(image_id: str) -> int:
        height, width = read_size(spec.image_path(root, part, image_id))
        reduced = max(1, height // downscale) * max(1, width // downscale)
        full = height * width if _needs_full_label(part, downscale) else 0
        return 4 * reduced + full + ROW_BYTES

    with ThreadPoolExecutor(cores) as pool:
        total = sum(pool.map(need, ids)) + SPARE_BYTES
    _make_folder(folder.parent)
    return Plan(spec, root, part, downscale, folder, ids, total)


def build_cache(
    plan: Plan, *, cores: int = 1, progress: Report | None = None, say: Callable[[str], None] | None = None
) -> bool:
    """Build the cache of a plan, or find it complete and undamaged.

    Only one process builds at a time; the others wait and find it done.

    Args:
        plan: See `plan_cache`.
        cores: Threads that decode.
        progress: Called with (images decoded, or compared with their digests, and images in all).
        say: Takes lines for the user.

    Returns:
        Whether it was built; False if it was there.

    Raises:
        FplError: A file is broken, or the disk is too small.
    """
    say = say or (lambda text: None)
    lock, held = plan.folder.with_name(f".{plan.folder.name}.lock"), contextlib.ExitStack()
    try:
        try:
            held.enter_context(locked(lock))
        except filelock.Timeout:
            say(f"another process builds {plan.folder}: waiting for it")
            held.enter_context(locked(lock, patience=BUILD_SECONDS))
    except filelock.Timeout:
        raise FplError(
            f"another process builds this cache, for longer than {BUILD_SECONDS / 3600:.0f} hours",
            where=str(plan.folder),
            hint="does it still work? end it, or give another --cache (FPL_CACHE)",
        ) from None
    with held:
        if _is_complete(plan, cores, progress, say):
            return False
        check_room(plan.folder, plan.bytes, "choose another place with --cache or FPL_CACHE, or a larger --downscale")
        _build(plan, cores, progress, say)
        return True


def _is_complete(plan: Plan, cores: int, progress: Report | None, say: Callable[[str], None]) -> bool:
    place = plan.folder.parents[2]
    try:
        cache = open_cache(plan.spec, plan.root, plan.part, plan.downscale, place)
        if cache is not None:
            verify(cache, cores=cores, progress=progress)
    except FplError as error:
        say(f"building it again: {error.where}: {error.what}")
        return False
    return cache is not None


def _build(plan: Plan, cores: int, progress: Report | None, say: Callable[[str], None]) -> None:
    parent, name = plan.folder.parent, plan.folder.name
    for left_over in parent.glob(f".{name}-*"):
        # The lock is ours, so whoever made it is gone.
        shutil.rmtree(left_over, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        images = Images(plan.spec, plan.root, plan.part, plan.downscale, keep=False)
        # Before decoding: a file that changes meanwhile makes the cache stale, not wrong.
        sources = {each: source_files(plan.spec, plan.root, plan.part, each) for each in plan.ids}
        shards = _write_shards(plan, images, temporary, cores, progress, say)
        index: dict[str, Any] = {
            "settings": settings_of(plan.spec, plan.part, plan.downscale), "sources": sources, "shards": shards,
        }  # fmt: skip
        index["digest"] = index_digest(index)
        write_atomic(temporary / INDEX, json.dumps(index).encode())
        # mkdtemp keeps others out; a node's cache is for all its users to read, and for nobody else to write.
        for path in (temporary, *temporary.iterdir()):
            path.chmod((0o755 if path.is_dir() else 0o644) & ~_umask())
        if plan.folder.exists():
            plan.folder.rename(temporary.with_name(f"{temporary.name}-old"))
        temporary.rename(plan.folder)
        sync_folder(parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FplError(f"the cache cannot be written ({reason})", where=str(plan.folder), hint=_WAY_OUT) from error
    finally:
        for left_over in parent.glob(f".{name}-*"):
            shutil.rmtree(left_over, ignore_errors=True)


def _write_shards(
    plan: Plan, images: Images, folder: Path, cores: int, progress: Report | None, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    per_image = max(1, plan.bytes // len(plan.ids))
    size = max(1, min(SHARD_BYTES // per_image, -(-len(plan.ids) // cores)))
    groups = [plan.ids[start : start + size] for start in range(0, len(plan.ids), size)]
    guard, stop = threading.Lock(), threading.Event()
    done = 0

    def count() -> None:
        nonlocal done
        if stop.is_set():
            raise FplError("stopped")
        with guard:
            done += 1
            if progress is not None:
                progress(done, len(plan.ids))

    def write(number: int) -> dict[str, Any]:
        return _write_shard(folder / f"{number:05d}.arrow", plan, images, groups[number], count, say)

    # Decoding, checksums and writing all release Python's lock, so threads do.
    with ThreadPoolExecutor(cores) as pool:
        tasks = [pool.submit(write, number) for number in range(len(groups))]
        try:
            for task in as_completed(tasks):
                task.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [task.result() for task in tasks]


def _write_shard(
    path: Path,
    plan: Plan,
    images: Images,
    ids: Sequence[str],
    count: Callable[[], None],
    say: Callable[[str], None],
) -> dict[str, Any]:
    with path.open("wb") as file:
        with pa.ipc.new_file(file, SCHEMA) as writer:
            for image_id in ids:
                writer.write_batch(_row(plan, images, image_id, say))
                count()
        file.flush()
        os.fsync(file.fileno())
    return {"file": path.name, "bytes": path.stat().st_size, "digest": digest_of(path), "ids": list(ids)}


def _row(plan: Plan, images: Images, image_id: str, say: Callable[[str], None]) -> pa.RecordBatch:
    arrays: dict[str, Bytes | None] = {"image": images.image(image_id), "label": None, "full_label": None}
    if plan.spec.has_label(plan.root, plan.part, image_id):
        # A bad label of an image that no run labels must not stop the others: it is left out, and a run that does
        # label the image reads the file itself and meets the error.
        try:
            arrays["label"] = images.label(image_id)
            if _needs_full_label(plan.part, plan.downscale):
                arrays["full_label"] = images.full_label(image_id)
        except FplError as error:
            say(f"left out, as it cannot be used: {error.where}: {error.what}")
    values: dict[str, Any] = {"id": image_id}
    for kind, array in arrays.items():
        values[f"{kind}_height"], values[f"{kind}_width"] = (None, None) if array is None else array.shape[:2]
        values[f"{kind}_crc"] = None if array is None else zlib.crc32(array.data)
        values[kind] = None if array is None else pa.py_buffer(array)
    columns = [_column(values[field.name], field.type) for field in SCHEMA]
    return pa.record_batch(columns, schema=SCHEMA)


def _column(value: Any, kind: pa.DataType) -> pa.Array:
    if not isinstance(value, pa.Buffer):
        return pa.array([value], type=kind)
    # Built from its buffers: the pixels are not copied.
    offsets = pa.array([0, value.size], type=pa.int64()).buffers()[1]
    return pa.Array.from_buffers(kind, 1, [None, offsets, value])


def _needs_full_label(part: str, downscale: int) -> bool:
    return part == "val" and downscale > 1


BUILD_SECONDS = 7200.0
"""So long is a cache waited for that another process builds."""

_WAY_OUT = "choose a place that can be written with --cache DIR or FPL_CACHE, for example a local disk of the machine"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise FplError(f"the cache cannot be written ({reason})", where=str(folder), hint=_WAY_OUT) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
