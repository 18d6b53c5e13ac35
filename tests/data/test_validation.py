from __future__ import annotations

import random
from pathlib import Path

import pytest

from fpl.data.spec import get_spec
from fpl.data.validation import ValidationSet, validation_ids
from tests.data.conftest import write_camvid

CAMVID = get_spec("camvid")
IDS = list("abcdefghijkl")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_camvid(tmp_path_factory.mktemp("camvid"), ["t"], IDS, size=(6, 8))


def test_subsample_is_what_random_sample_draws_after_seed_0(root: Path) -> None:
    state = random.getstate()
    random.seed(0)
    expected = random.sample(IDS, 5)
    random.setstate(state)
    assert validation_ids(CAMVID, root, 5) == expected == ["g", "l", "a", "e", "h"]
    assert random.getstate() == state


@pytest.mark.parametrize("subsample", [None, 12, 13, 662])
def test_all_where_there_are_no_more(root: Path, subsample: int | None) -> None:
    assert validation_ids(CAMVID, root, subsample) == IDS
    assert ValidationSet(CAMVID, root).ids == tuple(IDS)


@pytest.mark.parametrize("world_size", [2, 3])
def test_workers_share_the_subsample(root: Path, world_size: int) -> None:
    ids = validation_ids(CAMVID, root, 7)
    whole = ValidationSet(CAMVID, root, ids=ids)
    ranks = [ValidationSet(CAMVID, root, ids=ids, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert [rank.total for rank in ranks] == [7] * world_size == [whole.total] * world_size
    assert sorted(image_id for rank in ranks for image_id in rank.ids) == sorted(whole.ids)
    assert sum(len(rank) for rank in ranks) == len(set(whole.ids)) == 7
    assert [image_id for image_id, _, _ in ranks[1]] == list(whole.ids[1::world_size])
