"""A drawn data set as a folder: drawn whole or not at all, checked by its checksums, drawn anew by other code."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fpl.data.lists import read_record
from fpl.data.spec import DRAWING_CODE, DRAWING_RECORD
from fpl.errors import FplError
from fpl.files import file_sha256, visible, write_atomic
from fpl.source import source_digest

# Checksums of all files of a drawn set, as `sha256sum` writes and checks them.
CHECKSUMS = "SHA256SUMS"

Progress = Callable[[int, int], None]
Parameters = dict[str, object]


def draw_tree(
    root: Path, parameters: Parameters, draw: Callable[[Path], Iterator[None]], progress: Progress | None
) -> Path:
    """Draw a data set at `root`, unless this code has drawn it there with the same parameters.

    It is drawn beside `root` and renamed when it is complete. A set that other code drew is drawn again and, if a file
    has changed, replaced: runs on other images are other runs (`fpl.data.contents.data_version`).

    Args:
        root: Root folder of the data set.
        parameters: What it depends on; `train`, `validation` and `size` among them.
        draw: Draws into a folder, one image at each step.
        progress: Called with (images drawn, images in all).

    Returns:
        `root`.

    Raises:
        FplError: `root` holds a drawing with other parameters, or one with changed files, or something else.
    """
    train, validation, size = parameters["train"], parameters["validation"], parameters["size"]
    assert isinstance(train, int) and isinstance(validation, int) and isinstance(size, list)
    if min(train, validation) < 1 or min(size) < 1:
        raise FplError(f"nothing to draw: {parameters}", hint="at least one image per part and one pixel a side")
    if _is_drawn(root, parameters) and is_current(root):
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as temporary:
        tree = Path(temporary) / "tree"
        for done, _ in enumerate(draw(tree), start=1):
            if progress is not None:
                progress(done, train + validation)
        checksums = _checksums(tree)
        (tree / CHECKSUMS).write_text(checksums, encoding="utf-8")
        record = {**parameters, "files": hashlib.sha256(checksums.encode()).hexdigest(), DRAWING_CODE: _code()}
        (tree / DRAWING_RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        if root.exists() and read_record(root / DRAWING_RECORD).get("files") == record["files"]:
            write_atomic(root / DRAWING_RECORD, (tree / DRAWING_RECORD).read_bytes())
            return root
        if root.exists() and any(root.iterdir()):
            root.rename(Path(temporary) / "old")
        try:
            tree.rename(root)
        except OSError:
            # Another process was faster, which is fine if it drew the same.
            if not (_is_drawn(root, parameters) and is_current(root)):
                raise
    return root


def is_current(root: Path) -> bool:
    """Whether the present code drew the set at `root`, with every file as it was drawn.

    Raises:
        FplError: A file has been changed since.
    """
    record = read_record(root / DRAWING_RECORD)
    if "files" not in record:
        return False
    place = root / CHECKSUMS
    found = file_sha256(place) if place.is_file() else "no file"
    if found != record["files"]:
        raise _changed(place, found, str(record["files"]))
    for line in place.read_text(encoding="utf-8").splitlines():
        recorded, _, name = line.partition("  ")
        path = root / name
        found = file_sha256(path) if path.is_file() else "no file"
        if found != recorded:
            raise _changed(path, found, recorded)
    return record.get(DRAWING_CODE) == _code()


def _changed(path: Path, found: str, recorded: str) -> FplError:
    return FplError(
        f"SHA-256 is {found}, but {recorded} was recorded when the set was drawn",
        where=str(path),
        hint="the drawn set has been changed: delete its folder to draw it again",
    )


def _is_drawn(root: Path, parameters: Parameters) -> bool:
    """Whether `root` holds a drawing with these parameters; refuses anything else in its place."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    record = root / DRAWING_RECORD
    if not record.is_file():
        raise FplError("the folder holds something else than a drawn set", where=str(root), hint="use another folder")
    found = read_record(record)
    differing = [key for key in parameters if found.get(key) != parameters[key]]
    if differing:
        pairs = ", ".join(f"{key} = {found.get(key)} there, {parameters.get(key)} wanted" for key in differing)
        hint = "delete the folder to draw it again, or use another data root"
        raise FplError(f"a drawing with other parameters stands here: {pairs}", where=str(root), hint=hint)
    return True


def _checksums(tree: Path) -> str:
    return "".join(f"{file_sha256(path)}  {path.relative_to(tree)}\n" for path in visible(tree, "**/*"))


def _code() -> str:
    """What draws: the package that holds it, and the libraries that compute and encode pixels."""
    return source_digest("data", libraries=("numpy", "pillow"))
