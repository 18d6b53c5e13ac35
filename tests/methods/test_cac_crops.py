"""CAC's two crops of an image: which places they share, and how they are drawn."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.data.batches import Draw
from fpl.methods.cac.crops import (
    Overlap,
    Views,
    cut,
    extents,
    intersection_over_union,
    middle_pixels,
    overlap,
    place_views,
    positions_of,
    transferred,
    upright,
    whole_cells,
)


def placed(rows: tuple[int, int], columns: tuple[int, int], number: int = 0, **more: float) -> Views:
    generator = np.random.default_rng(number)
    keys = {"least_overlap": 0.1, "flip": True, **more}
    return place_views(rows, columns, (60, 72), (40, 48), generator=generator, **keys)  # type: ignore[arg-type]


def numbered(views: list[Views]) -> Draw:
    """Images whose every pixel has a number of its own, as a draw; its valid mask says which numbers are even."""
    numbers = torch.arange(len(views) * 60 * 72).view(-1, 1, 60, 72)
    return Draw(numbers.expand(-1, 3, -1, -1), numbers[:, 0] % 2 == 0, torch.zeros(1), torch.zeros(1))


def blocks(maps: Tensor) -> dict[tuple[int, ...], tuple[int, int]]:
    """Places of 8 x 8 pixels [40, 48] by what they show."""
    found = {}
    for row in range(5):
        for column in range(6):
            shown = maps[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            found[tuple(shown.flatten().tolist())] = (row, column)
    return found


def test_shared_places_show_the_same_pixels() -> None:
    """Found a second time by comparing all places of both crops, mirrored and not, with what they show."""
    views = [placed((0, 60), (0, 72), number) for number in range(40)]
    assert len({view.flips for view in views}) == 4
    draw = numbered(views)
    crops = [upright(cut(draw, views, number, (40, 48)).image[:, 0], views, number) for number in range(2)]
    partial = 0
    for first, second, view in zip(*crops, views, strict=True):
        shared = overlap(view, (5, 6))
        one, other = blocks(first), blocks(second)
        expected = {(one[shown], other[shown]) for shown in one.keys() & other.keys()}
        grids = [torch.cartesian_prod(torch.arange(5)[rows], torch.arange(6)[columns]) for rows, columns in shared]
        found = [(tuple(a.tolist()), tuple(b.tolist())) for a, b in zip(*grids, strict=True)]
        assert len(found) == len(set(found)) and set(found) == expected
        partial += len(found) < 30
    assert partial > 20


def test_cutting_mirrors_image_mask_and_truth_alike() -> None:
    views = [Views((0, 16), (3, 19), (False, True)), Views((20, 4), (24, 0), (True, False))]
    draw = numbered(views)
    draw.truth = draw.image[:, 0] % 251
    for number in range(2):
        view = cut(draw, views, number, (40, 48))
        assert view.image.shape == (2, 3, 40, 48) and view.truth is not None
        assert torch.equal(view.valid, view.image[:, 1] % 2 == 0)
        assert torch.equal(view.truth, view.image[:, 2] % 251)
        for one, place in zip(view.image[:, 0], views, strict=True):
            steps = (one[:, 1:] - one[:, :-1]).unique().tolist()
            assert steps == ([-1] if place.flips[number] else [1])
            assert int(one.min()) % (60 * 72) == place.tops[number] * 72 + place.lefts[number]
    assert cut(draw, views, 0, (40, 48)).index is draw.index


# At most 8 rows and 16 columns apart: 32 x 32 pixels of 40 x 48 are shared; 40 x 32, half of all; 32 x 48.
@pytest.mark.parametrize(("least", "lowest"), [(0.1, 1024 / 2816), (0.45, 0.5), (0.51, 1536 / 2304)])
def test_views_are_inside_and_overlap_enough(least: float, lowest: float) -> None:
    starts, shares = [], []
    for number in range(600):
        view = placed((4, 57), (6, 71), number, least_overlap=least)
        for tops, lefts in zip(view.tops, view.lefts, strict=True):
            assert 4 <= tops <= 17 and 6 <= lefts <= 23
        assert (view.tops[1] - view.tops[0]) % 8 == (view.lefts[1] - view.lefts[0]) % 8 == 0
        first, second = zip(view.tops, view.lefts, strict=True)
        shares.append(intersection_over_union(first, second, (40, 48)))
        starts.append(first)
    assert min(shares) == pytest.approx(lowest) and max(shares) == 1.0
    # The first is uniform: 14 rows and 18 columns to begin at.
    for axis, places in ((0, range(4, 18)), (1, range(6, 24))):
        counts = Counter(start[axis] for start in starts)
        assert set(counts) == set(places)
        assert abs(np.mean([start[axis] for start in starts]) - np.mean(places)) < 0.6


def released(width: int, height: int, crop: int, least: float, chance: random.Random) -> tuple[int, int, int, int]:
    """x1, y1, x2, y2 as the released loader draws them, in its order, with Python's own generator."""
    x1, y1 = chance.randint(0, width - crop), chance.randint(0, height - crop)
    for _ in range(50):
        x2, y2 = chance.randint(0, width - crop), chance.randint(0, height - crop)
        x2, y2 = x1 + 8 * ((x2 - x1) // 8), y1 + 8 * ((y2 - y1) // 8)
        x2, y2 = x2 + 8 * (x2 < 0), y2 + 8 * (y2 < 0)
        if abs(x2 - x1) > crop or abs(y2 - y1) > crop:
            continue
        both = (crop - abs(x2 - x1)) * (crop - abs(y2 - y1))
        if least <= both / (2 * crop * crop - both) <= 1.0:
            return x1, y1, x2, y2
    return x1, y1, x1, y1


def test_offsets_are_distributed_as_in_the_released_loader() -> None:
    """An image twice as wide as a crop, so that pairs are rejected."""
    chance, draws = random.Random(0), 4000
    theirs, ours = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for number in range(draws):
        x1, y1, x2, y2 = released(96, 64, 40, 0.1, chance)
        theirs[x2 - x1, y2 - y1] += 1
        view = place_views(
            *((0, 64), (0, 96), (64, 96), (40, 40)),
            least_overlap=0.1,
            flip=True,
            generator=np.random.default_rng(number),
        )
        ours[view.lefts[1] - view.lefts[0], view.tops[1] - view.tops[0]] += 1
    assert len(ours) > 30
    for offset in theirs.keys() | ours.keys():
        share = (theirs[offset] + ours[offset]) / (2 * draws)
        tolerance = 5 * (2 * share * (1 - share) / draws) ** 0.5 + 2 / draws
        assert abs(theirs[offset] - ours[offset]) / draws < tolerance, offset


def test_a_pair_that_cannot_overlap_enough_is_one_crop_twice() -> None:
    apart = 0
    for number in range(50):
        view = placed((0, 60), (0, 72), number, least_overlap=1.0)
        assert view.tops[0] == view.tops[1] and view.lefts[0] == view.lefts[1]
        apart += view.tops != placed((0, 60), (0, 72), number).tops
    assert apart > 10


def test_an_image_smaller_than_a_view_is_wholly_in_both() -> None:
    for number in range(20):
        view = placed((15, 45), (0, 72), number)
        # 30 rows, with 5 rows of padding above and below them in either view.
        assert view.tops == (10, 10) and view.lefts[0] <= 24
        assert placed((0, 12), (60, 72), number)[:2] == ((0, 0), (24, 24))


def test_mirroring_is_a_matter_of_the_data() -> None:
    flips = [placed((0, 60), (0, 72), number).flips for number in range(400)]
    for each in zip(*flips, strict=True):
        assert abs(np.mean(each) - 0.5) < 0.1
    assert abs(np.corrcoef(np.array(flips).T)[0, 1]) < 0.2
    assert placed((0, 60), (0, 72), 3, flip=False).flips == (False, False)


def test_the_image_is_found_in_its_padding() -> None:
    valid = torch.zeros(3, 20, 30, dtype=torch.bool)
    valid[0, 4:17, 2:30] = True
    valid[1] = True
    assert extents(valid) == [((4, 17), (2, 30)), ((0, 20), (0, 30)), ((0, 20), (0, 30))]


def test_places_with_any_padding_do_not_count() -> None:
    valid = torch.rand(3, 32, 24, generator=torch.Generator().manual_seed(0)) < 0.99
    found = whole_cells(valid)
    assert found.shape == (3, 4, 3) and found.dtype == torch.bool and 0 < int(found.sum()) < 36
    for image, row, column in np.ndindex(3, 4, 3):
        expected = valid[image, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8].all()
        assert found[image, row, column] == expected


def test_truth_is_that_of_the_middle_of_a_place() -> None:
    label = torch.arange(2 * 16 * 24).view(2, 16, 24)
    found = middle_pixels(label)
    assert found.tolist() == [
        [[label[i, 8 * r + 4, 8 * c + 4].item() for c in range(3)] for r in range(2)] for i in (0, 1)
    ]


def test_maps_are_carried_from_one_grid_to_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 3, 5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    overlaps = [
        overlap(Views((0, 16), (24, 0), (False, False)), (5, 6)),
        overlap(Views((8, 0), (0, 8), (False, False)), (5, 6)),
    ]
    assert overlaps[0] == Overlap((slice(2, 5), slice(0, 3)), (slice(0, 3), slice(3, 6)))
    for back in (False, True):
        moved = transferred(maps, overlaps, back=back)
        cells = [(shared.second if back else shared.first) for shared in overlaps]
        their = [(shared.first if back else shared.second) for shared in overlaps]
        assert torch.equal(positions_of(moved, cells), positions_of(maps, their))
        outside = torch.ones(2, 5, 6, dtype=torch.bool)
        for image, (rows, columns) in enumerate(cells):
            outside[image, rows, columns] = False
        assert outside.any() and not moved.movedim(1, -1)[outside].any()
    rows = positions_of(maps, [shared.first for shared in overlaps])
    assert rows.shape == (9 + 20, 3)
    assert torch.equal(rows[4], maps[0, :, 3, 1]) and torch.equal(rows[9], maps[1, :, 0, 1])
