"""A cache that others could have filled is not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fpl.data.build_cache import build_cache, plan_cache
from fpl.data.cache import Cache, open_cache
from fpl.data.cache_index import cache_folder
from fpl.data.spec import find_root, get_spec
from fpl.data.synthetic import draw_city
from fpl.errors import FplError


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path]:
    """A data set, and a cache of its validation part in another place."""
    draw_city(tmp_path / "data" / "synthetic_city", train=2, validation=2, size=(33, 40))
    spec = get_spec("synthetic_city")
    root, place = find_root(spec, tmp_path / "data"), tmp_path / "place"
    mask = os.umask(0o002)
    try:
        build_cache(plan_cache(spec, root, "val", place=place))
    finally:
        os.umask(mask)
    return root, place


def opened(world: tuple[Path, Path]) -> Cache | None:
    return open_cache(get_spec("synthetic_city"), world[0], "val", place=world[1])


def test_whatever_the_umask_nobody_else_can_write_to_it(world: tuple[Path, Path]) -> None:
    cache = opened(world)
    assert cache is not None
    for path in (cache.folder, *cache.folder.iterdir()):
        assert not path.stat().st_mode & 0o022 and path.stat().st_mode & 0o044


@pytest.mark.parametrize("what", ["folder", "index", "shard", "place", "link", "owner"])
def test_others_could_have_written(world: tuple[Path, Path], what: str) -> None:
    folder = cache_folder(get_spec("synthetic_city"), world[0], "val", 1, world[1])
    shard = next(folder.glob("*.arrow"))
    if what == "link":
        shard.rename(folder.with_name("elsewhere"))
        shard.symlink_to(folder.with_name("elsewhere"))
    elif what == "owner":
        if os.getuid() == 0:
            os.chown(shard, 12345, -1)
        else:
            pytest.skip("only root can give a file away")
    else:
        {"folder": folder, "index": folder / "index.json", "shard": shard, "place": world[1]}[what].chmod(0o777)
    with pytest.raises(FplError, match="is not used") as caught:
        opened(world)
    named = {"folder": folder, "index": folder / "index.json", "place": world[1]}.get(what, shard)
    assert caught.value.where == str(named) and "FPL_CACHE" in caught.value.hint


def test_folders_that_hold_the_data_as_well_and_sticky_ones_are_in_order(world: tuple[Path, Path]) -> None:
    world[1].parent.chmod(0o777)
    world[1].chmod(0o1777)
    assert opened(world) is not None
