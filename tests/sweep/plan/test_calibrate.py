from __future__ import annotations

import time

import pytest
import torch

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.plan.calibrate import _shares, calibrate, representatives
from fpl.sweep.plan.capacity import processor_name
from fpl.sweep.plan.costs import Costs, step_key
from fpl.sweep.plan.drawn import bare_method, drawn_batch

AEL = {"name": "ael", "paste_excluded": [0, 1]}


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


def test_two_steps_are_timed_without_any_data(config: RunConfig) -> None:
    supervised = changed(config, method={"name": "supervised"})
    lines: list[str] = []
    began = time.perf_counter()
    found = calibrate([config, supervised], 2, device="cpu", say=lines.append)
    wall = time.perf_counter() - began
    assert [entry.key for entry in found] == [step_key(config), step_key(supervised)]
    assert all(0 < entry.seconds_per_step < wall for entry in found)
    # Two networks and an unlabeled batch beside one and none: more work, whatever the machine does beside.
    assert found[0].work.gflop > found[1].work.gflop
    assert found[0].device == processor_name() and not found[0].on_gpu and found[0].steps == 2
    assert found[0].work.gflop == Costs().of(config).step.gflop and found[0].work.images == 0
    assert len(lines) == 2 and "a step of 4 + 4 images" in lines[0] and "a step of 4 + 0 images" in lines[1]


def test_a_method_that_chooses_images_and_pastes_is_timed(config: RunConfig) -> None:
    ael = changed(config, method=AEL, model={"network": "ael"})
    assert ael.method.copy_paste
    # Two images of each kind, which four groups could not share.
    (entry,) = calibrate([ael], 1, device="cpu", workers=2, say=lambda text: None)
    assert entry.key == step_key(ael) and entry.seconds_per_step > 0
    assert (entry.labeled_batch, entry.unlabeled_batch) == (2, 2)


def test_the_clock_decides(config: RunConfig) -> None:
    ticks = iter(range(100))
    # Two readings a step: a clock that advances by one each time measures one second.
    (entry,) = calibrate([config], 3, device="cpu", clock=lambda: float(next(ticks)), say=lambda text: None)
    assert entry.seconds_per_step == 1.0
    # Two steps of warming up and three that count.
    assert next(ticks) == 10


def test_threads_are_those_asked_for_and_given_back(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("fpl.sweep.plan.calibrate._time", lambda *arguments: float(torch.get_num_threads()))
    (entry,) = calibrate([config], 1, device="cpu", threads=2, say=lambda text: None)
    assert entry.threads == entry.seconds_per_step == 2 and torch.get_num_threads() == before


def test_a_worker_gets_its_share_and_half_of_it_where_memory_ends(config: RunConfig) -> None:
    config = changed(config, data={"labeled_batch": 16, "unlabeled_batch": 8})
    sizes = [(each.data.labeled_batch, each.data.unlabeled_batch) for each in _shares(config, 2)]
    assert sizes == [(8, 4), (4, 2), (2, 2)]
    alone = changed(config, method={"name": "supervised"})
    assert [each.data.unlabeled_batch for each in _shares(alone, 8)] == [0]
    grouped = changed(config, method=AEL)
    assert {each.data.groups for each in _shares(grouped, 4)} == {1}
    # The batches still make valid configurations.
    assert all(validate(each.model_dump(mode="json")) == each for each in _shares(grouped, 4))


def test_what_does_not_fit_is_tried_smaller(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def full(used: RunConfig, steps: int, device: torch.device, clock: object) -> float:
        tried.append(used.data.labeled_batch)
        if used.data.labeled_batch > 2:
            raise torch.OutOfMemoryError("full")
        return 1.0

    monkeypatch.setattr("fpl.sweep.plan.calibrate._time", full)
    (entry,) = calibrate([config], 1, device="cpu", say=lambda text: None)
    assert tried == [4, 2] and entry.labeled_batch == 2


def test_random_batch_has_the_shapes_of_a_real_one(config: RunConfig) -> None:
    batch = drawn_batch(config, bare_method(config, torch.device("meta")), 3)
    assert batch.image.shape == (4, 3, 40, 40) and batch.image.dtype == torch.uint8
    assert batch.label.shape == (4, 40, 40) and int(batch.label.max()) < 19
    assert [draw.image.shape for draw in batch.unlabeled] == [(4, 3, 40, 40)] * 2
    assert batch.unlabeled[0].position.tolist() == [12, 13, 14, 15]
    assert batch.partner is None
    ael = changed(config, method=AEL)
    partner = drawn_batch(ael, bare_method(ael, torch.device("meta")), 0).partner
    assert partner is not None and partner.image.shape == (4, 3, 40, 40) and partner.label.shape == (4, 40, 40)
    assert not torch.equal(partner.image, batch.image) and partner.valid.all()


def test_the_costliest_kinds_are_measured_once_each(config: RunConfig) -> None:
    ce = changed(config, loss={"kind": "ce"})
    supervised = changed(config, method={"name": "supervised"})
    seeded = config.model_copy(update={"seed": 7})
    runs = [(supervised, 5.0), (config, 3.0), (ce, 4.0), (seeded, 3.0)]
    assert representatives(runs, kinds=2) == [config, supervised]
    assert representatives(runs) == [config, supervised, ce]


def test_no_steps_are_refused(config: RunConfig) -> None:
    with pytest.raises(FplError, match="0 steps"):
        calibrate([config], 0, device="cpu")
