"""What of a published run is rehearsed."""

from __future__ import annotations

import pytest

from fpl.config.campaign import load_campaign
from fpl.config.shipped import experiments_folder
from fpl.sweep.rehearsal.shorten import Share, shares, shortened

# Of batch and groups of the recipes: 8 + 8 in 8 and in 4 groups, 16 + 8 in 8.
SHARES = {
    ("table1.cps.r101_1_8", 4): [Share(2, 2, 2)],
    ("table1.cps.r101_1_8", 2): [Share(4, 4, 4), Share(3, 3, 3), Share(2, 2, 2)],
    ("table2.cps.r101_1_8", 4): [Share(2, 2, 1)],
    ("table1.ael.r101_1_8", 4): [Share(4, 2, 2), Share(2, 2, 1)],
}


@pytest.mark.parametrize(("cell", "workers"), SHARES)
def test_share_of_a_worker_and_less(cell: str, workers: int) -> None:
    (found,) = load_campaign(experiments_folder(), "paper", [cell]).all_cells
    assert shares(found.configs[0], workers) == SHARES[cell, workers]


def test_two_processes_have_whole_groups_each() -> None:
    (found,) = load_campaign(experiments_folder(), "paper", ["table2.cps.r101_1_8"]).all_cells
    assert shares(found.configs[0], 4, processes=2) == [Share(4, 4, 2)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_shortened_run_differs_in_length_alone(whole: bool) -> None:
    cell = "table1.fpl_ael.r101_1_8"
    (found,) = load_campaign(experiments_folder(), "paper", [cell]).all_cells
    published = found.configs[0]
    changes = shortened(published, Share(4, 2, 2), whole=whole)
    (again,) = load_campaign(experiments_folder(), "paper", [cell], overrides=changes).all_cells
    short = again.configs[0]
    assert (short.train.steps, short.train.evaluate_every, short.eval.subsample) == (2, 2, 2)
    assert (short.data.labeled_batch, short.data.unlabeled_batch, short.data.groups) == (4, 2, 2)
    assert short.data.crop == ((769, 769) if whole else (385, 385))
    for section in ("model", "method", "loss", "optim"):
        assert getattr(short, section) == getattr(published, section)
