from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from fpl.data.batches import Batch, BatchRequest, Order, PasteRequest, make_loader
from fpl.data.images import Images
from fpl.data.spec import get_spec
from fpl.errors import FplError
from tests.data.conftest import make_config, make_split_of, save, write_camvid

LABELED = ["a", "b", "c"]
UNLABELED = ["u0", "u1", "u2", "u3", "u4"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three labeled images and five without any label file."""
    return write_camvid(tmp_path_factory.mktemp("camvid"), LABELED + UNLABELED)


def load(
    root: Path, draws: int = 2, pair: str = "other", labeled=LABELED, unlabeled=UNLABELED, **options
) -> list[Batch]:
    """Batches of `make_config(**options)`; loader arguments may stand among the options."""
    asked = {key: options.pop(key) for key in ("paste", "crop_scale", "labeled_streams") if key in options}
    arguments = ("start_step", "rank", "world_size", "loader_workers")
    loader = {key: options.pop(key) for key in arguments if key in options}
    images = options.pop("images", None) or Images(get_spec("camvid"), root, "train")
    config = make_config(**options)
    request = BatchRequest(draws, pair, **asked)
    return list(make_loader(config, make_split_of(labeled, unlabeled), images, request, **loader))


def tensors(batch: Batch) -> list[torch.Tensor]:
    drawn = [tensor for draw in batch.unlabeled for tensor in (draw.image, draw.valid, draw.index, draw.position)]
    pasted = [] if (partner := batch.partner) is None else [partner.image, partner.label, partner.valid]
    return [batch.image, batch.label, batch.valid, *drawn, *pasted]


def assert_equal(one: list[Batch], other: list[Batch]) -> None:
    assert [batch.step for batch in one] == [batch.step for batch in other]
    for a, b in zip(one, other, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))


def test_shapes_and_types(root: Path) -> None:
    batches = load(root, labeled_batch=2, unlabeled_batch=4)
    assert [batch.step for batch in batches] == list(range(10))
    batch = batches[3]
    assert batch.image.shape == (2, 3, 40, 48)
    assert batch.image.dtype == torch.uint8
    assert batch.label.shape == batch.valid.shape == (2, 40, 48)
    assert batch.label.dtype == torch.uint8 and batch.to("cpu").label.dtype == torch.int64
    assert len(batch.unlabeled) == 2
    draw = batch.unlabeled[0]
    assert draw.image.shape == (4, 3, 40, 48)
    assert draw.position.tolist() == [12, 13, 14, 15]
    assert draw.index.dtype == draw.position.dtype == torch.int64
    assert [len(load(root, draws=draws, steps=1)[0].unlabeled) for draws in (0, 1)] == [0, 1]


def test_to_moves_and_normalises(root: Path) -> None:
    batch = load(root, steps=1)[0]
    moved = batch.to("cpu")
    for source, target in ((batch, moved), *zip(batch.unlabeled, moved.unlabeled, strict=True)):
        assert target.image.dtype == torch.float32
        assert (target.image.permute(0, 2, 3, 1)[~source.valid] == 0).all()
    assert not moved.valid.all()
    assert torch.equal(moved.to("cpu").image, moved.image)


def test_r12_both_streams_cycle(root: Path) -> None:
    """3 labeled images in batches of 8 and 5 unlabeled ones for 10 steps."""
    batches = load(root, labeled_batch=8, unlabeled_batch=4)
    assert len(batches) == 10
    indices = torch.cat([batch.unlabeled[0].index for batch in batches]).tolist()
    for epoch in range(8):
        assert sorted(indices[5 * epoch : 5 * epoch + 5]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("pair", ["other", "same"])
def test_ranks_share_the_batch_of_one(root: Path, world_size: int, pair: str) -> None:
    whole = load(root, pair=pair)
    ranks = [load(root, pair=pair, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step, batch in enumerate(whole):
        parts = [tensors(rank[step]) for rank in ranks]
        for number, tensor in enumerate(tensors(batch)):
            assert torch.equal(tensor, torch.cat([part[number] for part in parts]))


def test_loader_workers_change_nothing(root: Path) -> None:
    assert_equal(load(root), load(root, loader_workers=2))


def test_resuming_continues_exactly(root: Path) -> None:
    assert_equal(load(root)[6:], load(root, start_step=6))
    assert load(root, start_step=10) == []


def test_seed_changes_order_and_augmentation(root: Path) -> None:
    one, other = load(root, steps=3), load(root, steps=3, seed=1)
    assert not all(torch.equal(a.image, b.image) for a, b in zip(one, other, strict=True))
    indices = [[batch.unlabeled[0].index.tolist() for batch in run] for run in (one, other)]
    assert indices[0] != indices[1]


def test_pair_other_never_meets_its_own_image(root: Path) -> None:
    for count in (2, 3, 5):
        pairs = set()
        for batch in load(root, unlabeled=UNLABELED[:count], steps=30):
            first, second = (draw.index for draw in batch.unlabeled)
            assert (first != second).all()
            pairs |= set(zip(first.tolist(), second.tolist(), strict=True))
        assert len(pairs) == count * (count - 1)
    batch = load(root, unlabeled=UNLABELED[:1], steps=1)[0]
    assert batch.unlabeled[1].index.tolist() == [0, 0, 0, 0]


def test_pair_same_is_another_augmentation_of_the_same_image(root: Path) -> None:
    batches = load(root, pair="same")
    for batch in batches:
        assert torch.equal(batch.unlabeled[0].index, batch.unlabeled[1].index)
        assert not torch.equal(batch.unlabeled[0].image, batch.unlabeled[1].image)


def test_first_draw_does_not_depend_on_the_second(root: Path) -> None:
    runs = [load(root, draws=1), load(root, draws=2), load(root, draws=2, pair="same")]
    for batches in zip(*runs, strict=True):
        assert all(torch.equal(batch.unlabeled[0].image, batches[0].unlabeled[0].image) for batch in batches)
        assert all(torch.equal(batch.image, batches[0].image) for batch in batches)


def test_order_holds_one_permutation_and_is_uniform() -> None:
    order = Order(0, 1, 6)
    assert sorted(order.index(position) for position in range(6, 12)) == list(range(6))
    first = [Order(seed, 1, 6).index(0) for seed in range(600)]
    assert np.bincount(first, minlength=6).min() > 60
    apart = [Order(seed, 2, 4, apart_from=Order(seed, 1, 4)).index(0) for seed in range(400)]
    assert np.bincount(apart, minlength=4).min() > 60


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_r10_labels_of_unlabeled_images_are_never_opened(root: Path, loader_workers: int) -> None:
    spec = get_spec("camvid")
    assert not any(spec.label_path(root, "train", image_id).exists() for image_id in UNLABELED)
    images = Images(spec, root, "train")
    load(root, images=images, loader_workers=loader_workers)
    assert set(images.label_reads) == (set(LABELED) if loader_workers == 0 else set())


@pytest.mark.parametrize("loader_workers", [0, 1])
def test_errors_of_loader_processes_arrive_whole(tmp_path: Path, loader_workers: int) -> None:
    root = write_camvid(tmp_path, LABELED + UNLABELED)
    path = save(root / "trainannot" / "b.png", np.full((40, 50), 77))
    with pytest.raises(FplError) as caught:
        load(root, labeled_batch=8, steps=1, loader_workers=loader_workers)
    assert caught.value.where == str(path)
    assert caught.value.what == "label values that are no class of camvid: 77"


class FaultyImages(Images):
    """What befalls a loader process."""

    fault = "dies"

    def image(self, image_id: str):
        if self.fault == "dies":  # as the system ends it when memory is short
            os._exit(1)
        if self.fault == "hangs":
            threading.Event().wait()
        if self.fault == "memory":
            raise MemoryError("no 3 GiB")
        # Shared memory is a file to the kernel.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        return super().image(image_id)


@pytest.mark.parametrize(
    ("fault", "workers", "message"),
    [
        ("dies", 1, r"a loader process died(.|\n)*fewer loader workers"),
        ("hangs", 1, r"no batch for 2 s\n.*storage"),
        ("memory", 0, r"memory ran out while a batch was read: no 3 GiB\n.*fewer loader workers"),
        ("memory", 1, r"memory ran out while a batch was read: no 3 GiB\n.*fewer loader workers"),
        ("shared memory", 1, r"no shared memory for a batch(.|\n)*/dev/shm"),
    ],
)
def test_faults_of_loader_processes_end_with_a_remedy(
    root: Path, monkeypatch: pytest.MonkeyPatch, fault: str, workers: int, message: str
) -> None:
    # The others come at once: they are found although nothing is waited for in vain.
    monkeypatch.setattr("fpl.data.batches.LOADER_SECONDS", 2.0 if fault == "hangs" else 1e6)
    images = FaultyImages(get_spec("camvid"), root, "train")
    images.fault = fault
    with pytest.raises(FplError, match=message):
        load(root, images=images, loader_workers=workers)


@pytest.mark.parametrize("size", [(37, 53), (1, 1)])
def test_r21_odd_sizes_train(tmp_path: Path, size: tuple[int, int]) -> None:
    root = write_camvid(tmp_path, ["a", "u0"], size=size)
    batch = load(root, labeled=["a"], unlabeled=["u0"], crop=(64, 64), steps=1)[0]
    assert batch.valid.any((1, 2)).all()
    assert (batch.label[~batch.valid] == 255).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": "none"}, "pair = 'none'\n.*allowed: other, same"),
        ({"draws": 5}, "draws = 5"),
        ({"labeled_streams": 3}, "labeled_streams = 3"),
        ({"crop_scale": 0.0}, "crop_scale = 0.0"),
        ({"paste": PasteRequest(0.5, (0.1, 2.0), "both")}, "partner = 'both'\n.*allowed: other, same"),
        ({"labeled": []}, "no labeled image"),
        ({"unlabeled": []}, "no unlabeled image"),
        ({"world_size": 3}, "data.labeled_batch = 4 cannot be shared equally by 3 workers\n.*1, 2, 4"),
        ({"unlabeled_batch": 2, "world_size": 4}, "data.unlabeled_batch = 2 cannot be shared equally by 4"),
    ],
)
def test_arguments_that_do_not_fit(root: Path, options, message: str) -> None:
    with pytest.raises(FplError, match=message):
        load(root, **options)


def test_kept_images_are_not_sent_to_spawned_processes(root: Path) -> None:
    images = Images(get_spec("camvid"), root, "train")
    images.image("a")
    assert images.kept_bytes > 0
    assert images.__getstate__()["_kept"] == {}


def test_more_draws_and_streams_change_no_other(root: Path) -> None:
    """What a method asks for besides leaves the images of the first streams as they are, and is drawn apart."""
    plain = load(root, draws=1, steps=12)
    wide = load(root, draws=4, labeled_streams=2, steps=12)
    positions = set()
    for batch, more in zip(plain, wide, strict=True):
        assert torch.equal(batch.image, more.image) and torch.equal(batch.label, more.label)
        assert torch.equal(batch.unlabeled[0].image, more.unlabeled[0].image)
        assert len(more.unlabeled) == 4 and len(more.more_labeled) == 1 and not batch.more_labeled
        # Never the first draw's image in the same slot; and no two draws are one stream.
        for draw in more.unlabeled[1:]:
            assert not (draw.index == more.unlabeled[0].index).any()
        positions.add(tuple(tuple(draw.index.tolist()) for draw in more.unlabeled))
        again = more.more_labeled[0]
        assert again.image.shape == more.image.shape and not torch.equal(again.image, more.image)
    assert all(len({order[number] for order in positions}) > 1 for number in range(4))
    # A pass through the list shows every image once, in an order of its own.
    batches = load(
        root, 0, labeled=LABELED[:2], labeled_streams=2, labeled_batch=2, flip=False, scales=(1.0,), crop=(40, 50)
    )
    for batch in batches:
        sums = [sorted(image.sum((1, 2, 3)).tolist()) for image in (batch.image, batch.more_labeled[0].image)]
        assert sums[0] == sums[1]
    assert any(not torch.equal(batch.image, batch.more_labeled[0].image) for batch in batches)


def test_unlabeled_crops_may_be_larger(root: Path) -> None:
    batch = load(root, draws=2, steps=1, crop=(40, 50), crop_scale=1.5)[0]
    assert batch.image.shape[-2:] == (40, 50)
    assert all(draw.image.shape[-2:] == draw.valid.shape[-2:] == (60, 75) for draw in batch.unlabeled)


@pytest.mark.parametrize(
    "request_of", [{"draws": 3}, {"draws": 1, "labeled_streams": 2}, {"draws": 2, "crop_scale": 1.25}]
)
def test_two_workers_see_what_one_sees_of_every_stream(root: Path, request_of) -> None:
    whole = load(root, steps=2, **request_of)
    shares = [load(root, steps=2, rank=rank, world_size=2, **request_of) for rank in range(2)]
    for step, batch in enumerate(whole):
        for number, draw in enumerate(batch.unlabeled):
            assert torch.equal(draw.image, torch.cat([share[step].unlabeled[number].image for share in shares]))
        for number, more in enumerate(batch.more_labeled):
            assert torch.equal(more.label, torch.cat([share[step].more_labeled[number].label for share in shares]))
