"""Labeled images to paste from, and unlabeled images that a method chooses by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.data.augment import FOR_SAMPLE, Augmentation, seeded
from fpl.data.batches import PASTE, Batch, Labeled, PasteRequest, UnlabeledImages
from fpl.data.images import Images
from fpl.data.spec import get_spec
from fpl.data.unlabeled import CHOSEN
from tests.data.conftest import make_config, make_split_of, save, write_camvid
from tests.data.test_batches import LABELED, UNLABELED, assert_equal, load, tensors

CAMVID = get_spec("camvid")
SIZE = (40, 50)
ALWAYS = PasteRequest(1.0, (0.1, 2.0))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of noise; the unlabeled ones have no label file."""
    return write_camvid(tmp_path_factory.mktemp("noise"), LABELED + UNLABELED, size=SIZE)


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labeled image number i is all 10 * (i + 1), its label all i: whatever is cut out of it tells its number."""
    folder = write_camvid(tmp_path_factory.mktemp("flat"), LABELED + UNLABELED, size=SIZE)
    for number, image_id in enumerate(LABELED):
        save(folder / "train" / f"{image_id}.png", np.full((*SIZE, 3), 10 * (number + 1)))
        save(CAMVID.label_path(folder, "train", image_id), np.full(SIZE, number))
    return folder


def slots(batches: list[Batch]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Per slot: image, label and valid of its partner, and the slot's own label."""
    for batch in batches:
        assert batch.partner is not None
        partner = batch.partner
        yield from zip(partner.image, partner.label, partner.valid, batch.label, strict=True)


def number_of(image: Tensor, label: Tensor, valid: Tensor) -> int:
    """Which flat image a crop shows; all it shows must be of that one."""
    (grey,) = image[:, valid].unique().tolist()
    (number,) = label[valid].unique().tolist()
    assert grey == 10 * (number + 1)
    assert (label[~valid] == 255).all() and (image[:, ~valid] == 0).all()
    return int(number)


def test_shapes_and_types(root: Path) -> None:
    batch = load(root, steps=1, paste=ALWAYS)[0]
    partner = batch.partner
    assert partner is not None
    assert (partner.image.shape, partner.image.dtype) == ((4, 3, 40, 48), torch.uint8)
    assert (partner.label.shape, partner.label.dtype) == ((4, 40, 48), torch.uint8)
    assert (partner.valid.shape, partner.valid.dtype) == ((4, 40, 48), torch.bool)
    moved = batch.to("cpu").partner
    assert moved is not None
    assert (moved.image.dtype, moved.label.dtype) == (torch.float32, torch.int64)
    assert (moved.image.permute(0, 2, 3, 1)[~partner.valid] == 0).all()
    assert torch.equal(moved.to("cpu").image, moved.image)
    assert load(root, steps=1)[0].partner is None


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_share_of_slots_with_a_partner(flat: Path, probability: float) -> None:
    found = list(slots(load(flat, steps=150, draws=0, paste=PasteRequest(probability, (0.5, 2.0)))))
    empty = [(image, label) for image, label, valid, _ in found if not valid.any()]
    assert all((image == 0).all() and (label == 255).all() for image, label in empty)
    share = 1 - len(empty) / len(found)
    assert share == pytest.approx(probability, abs=4 * (probability * (1 - probability) / 600) ** 0.5)


def test_partner_other_is_any_labeled_image(flat: Path) -> None:
    """Each of three with the same chance, whichever image the slot itself has."""
    found = list(slots(load(flat, steps=150, draws=0, crop=(100, 100), paste=ALWAYS)))
    table = np.zeros((3, 3))
    for image, label, valid, own in found:
        table[int(own[own != 255][0]), number_of(image, label, valid)] += 1
    assert table.sum() == 600
    expected = table.sum(1, keepdims=True) / 3
    assert ((table - expected) ** 2 / expected).sum() < 22.5  # chi-squared with 6 degrees of freedom, 0.1 %


def test_partner_same_is_the_slots_own_image_under_another_augmentation(flat: Path, root: Path) -> None:
    same = PasteRequest(1.0, (0.1, 2.0), "same")
    for image, label, valid, own in slots(load(flat, steps=30, draws=0, paste=same)):
        assert number_of(image, label, valid) == own[own != 255][0]
    for batch in load(root, draws=0, paste=same):
        assert batch.partner is not None
        assert not (batch.image == batch.partner.image).flatten(1).all(1).any()


def test_scales_of_partners_shrink_one_half_to_a_tenth(flat: Path) -> None:
    """In a crop that holds everything, the rows shown are floor(40 * scale)."""
    found = slots(load(flat, steps=150, draws=0, crop=(100, 100), scales=(1.0,), paste=ALWAYS))
    rows = np.array([int(valid.any(1).sum()) for _, _, valid, _ in found])
    assert rows.min() == 4 and rows.max() >= 78
    assert abs((rows < 40).mean() - 0.5) < 4 * 0.5 / 600**0.5
    assert rows[rows < 40].mean() == pytest.approx(40 * 0.55 - 0.5, abs=1.8)
    assert rows[rows >= 40].mean() == pytest.approx(40 * 1.5 - 0.5, abs=2.8)


@pytest.mark.parametrize("padding_label", [0, 255])
def test_padding_of_a_partner_is_never_a_class(flat: Path, padding_label: int) -> None:
    batches = load(flat, steps=20, draws=0, crop=(64, 64), scales=(0.5,), padding_label=padding_label, paste=ALWAYS)
    for batch in batches:
        assert (batch.label[~batch.valid] == padding_label).all() and not batch.valid.all()
    padded = 0
    for _, label, valid, _ in slots(batches):
        assert (label[~valid] == 255).all()
        padded += int((~valid).sum())
    assert padded > 0


def test_partner_is_a_function_of_seed_and_position(root: Path) -> None:
    """What the position alone gives, computed by the path that resizes the whole image."""
    paste = PasteRequest(0.6, (0.5, 2.0), "same")
    batches = load(root, steps=6, seed=3, draws=0, paste=paste)
    config = make_config(seed=3, scales=(0.5, 2.0), scale_sampling="balanced")
    augmentation, images = Augmentation(config.data), Images(CAMVID, root, "train")
    own = load(root, steps=6, seed=3, draws=0, scales=(1.0,), flip=False, crop=(40, 50))
    present = 0
    for position, (_, label, valid, _) in enumerate(slots(batches)):
        if not valid.any():
            continue
        present += 1
        pixels = own[position // 4].image[position % 4].permute(1, 2, 0).numpy()
        (image_id,) = [name for name in LABELED if np.array_equal(images.image(name), pixels)]
        parameters = augmentation.draw(seeded(3, FOR_SAMPLE, PASTE, position))
        _, expected, inside = augmentation.apply_whole(images.image(image_id), images.label(image_id), parameters)
        assert expected is not None
        assert torch.equal(label, expected) and torch.equal(valid, inside)
    assert 8 < present < 22


def test_nothing_else_depends_on_partners(root: Path) -> None:
    plain = load(root)
    for paste in (ALWAYS, PasteRequest(0.5, (0.5, 1.5), "same")):
        for one, other in zip(plain, load(root, paste=paste), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=False))


@pytest.mark.parametrize("partner", ["other", "same"])
def test_ranks_share_the_partners_of_one(root: Path, partner: str) -> None:
    paste = PasteRequest(0.5, (0.1, 2.0), partner)
    whole = load(root, paste=paste)
    ranks = [load(root, paste=paste, rank=rank, world_size=2) for rank in range(2)]
    for step, batch in enumerate(whole):
        parts = [tensors(rank[step]) for rank in ranks]
        assert len(parts[0]) == len(tensors(batch)) == 14
        for number, tensor in enumerate(tensors(batch)):
            assert torch.equal(tensor, torch.cat([part[number] for part in parts]))


def test_resuming_and_loader_processes_change_no_partner(root: Path) -> None:
    paste = PasteRequest(0.5, (0.1, 2.0))
    whole = load(root, paste=paste)
    for start in (1, 6, 9):
        assert_equal(whole[start:], load(root, paste=paste, start_step=start))
    assert_equal(whole, load(root, paste=paste, loader_workers=2))
    other = load(root, paste=paste, seed=1)
    assert not all(torch.equal(a.partner.label, b.partner.label) for a, b in zip(whole, other, strict=True))  # type: ignore[union-attr]


def test_to_keeps_empty_slots_empty() -> None:
    image, label, valid = torch.zeros(1, 3, 2, 2), torch.full((1, 2, 2), 255), torch.zeros(1, 2, 2, dtype=torch.bool)
    moved = Labeled(image.to(torch.uint8), label.to(torch.uint8), valid).to("cpu")
    assert (moved.image == 0).all() and (moved.label == 255).all() and not moved.valid.any()


def test_chosen_images_are_cut_as_drawn_for_their_position(root: Path) -> None:
    """Without resizing, a crop is a window of the image or of its mirror, at the drawn place."""
    config = make_config(seed=2, scales=(1.0,), crop=(33, 35))
    images = Images(CAMVID, root, "train")
    source = UnlabeledImages(config, make_split_of(LABELED, UNLABELED), images)
    assert source.count == 5
    flips, first = set(), {}
    for position in range(12):
        parameters = Augmentation(config.data).draw(seeded(2, FOR_SAMPLE, CHOSEN, position))
        index = position % 5
        whole = Images(CAMVID, root, "train").image(UNLABELED[index])
        whole = whole[:, ::-1] if parameters.flip else whole
        top, left = int(parameters.top * 8), int(parameters.left * 16)
        image, valid = source.read(index, position)
        assert np.array_equal(image.permute(1, 2, 0).numpy(), whole[top : top + 33, left : left + 35])
        assert valid.all() and (image.dtype, valid.dtype) == (torch.uint8, torch.bool)
        flips.add(parameters.flip)
        first[position] = image
    assert flips == {True, False}
    assert torch.equal(source.read(3, 8)[0], first[8])  # the order of reading does not matter
    assert not images.label_reads


def test_chosen_images_have_an_augmentation_apart_from_the_loaders(root: Path) -> None:
    split = make_split_of(LABELED, UNLABELED[:1])
    source = UnlabeledImages(make_config(), split, Images(CAMVID, root, "train"))
    for batch in load(root, unlabeled=UNLABELED[:1], steps=3):
        for draw in batch.unlabeled:
            for image, position in zip(draw.image, draw.position.tolist(), strict=True):
                assert not torch.equal(image, source.read(0, position)[0])


def test_chosen_images_show_padding_as_invalid(root: Path) -> None:
    config = make_config(scales=(0.5,), crop=(40, 48), padding_label=0)
    image, valid = UnlabeledImages(config, make_split_of([], UNLABELED), Images(CAMVID, root, "train")).read(0, 0)
    assert valid.sum() == 20 * 25 and (image[:, ~valid] == 0).all()
