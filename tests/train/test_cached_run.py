"""A run that reads the cache of decoded images ends with the same bits as one that reads the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl.config.schema import RunConfig
from fpl.data.build_cache import build_cache, plan_cache
from fpl.data.cache import open_cache
from fpl.data.spec import find_root, get_spec
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from tests.train.runs import assert_equal_results, elsewhere, run


def test_cached_runs_end_with_the_same_bits(
    config: RunConfig, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FPL_CACHE", str(tmp_path / "caches"))
    run(config, places)
    spec = get_spec("synthetic_city")
    root = find_root(spec, places.data_root)
    for part in ("train", "val"):
        build_cache(plan_cache(spec, root, part))
    prepared = prepare(config, places)
    assert prepared.images.cache is not None
    assert not prepared.images.label_reads.keys() & set(prepared.split.unlabeled)
    said: list[str] = []
    run(config, elsewhere(places, "cached"), say=said.append)
    assert any("decoded images from" in line for line in said)
    assert_equal_results(places, elsewhere(places, "cached"))

    cache = open_cache(spec, root, "train")
    assert cache is not None
    cache.shards[0].path.write_bytes(b"")
    with pytest.raises(FplError, match="the cache is damaged"):
        run(config, elsewhere(places, "damaged"))
