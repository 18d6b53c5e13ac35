"""Figures made of pictures: what is painted where, and the numbers behind it, from arrays made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fpl.config.classes import VOC_CLASSES
from fpl.losses.diagnostics import diagnose_maps
from fpl.losses.rules import Rules
from fpl.report.figures.kept_pictures import (
    UNKNOWN,
    Pictures,
    found_classes,
    k_map_table,
    score_table,
    segmentation_table,
)
from fpl.report.figures.picture_plots import (
    CLASS_COLORS,
    ERROR_COLORS,
    GREY,
    K_COLORS,
    K_LABELS,
    WIDTH,
    class_colors,
    paint_k_maps,
    paint_score_maps,
    paint_segmentations,
)

NAN = float("nan")
IMAGE = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
EARLY = np.array([[1, 2, 3, 4], [9, 2, 1, 1]], np.uint8)
LATE = np.array([[1, 1, 1, 1], [1, 1, 1, 2]], np.uint8)


def entry(step: int, kind: str, array: np.ndarray, image: str = "a", part: str = "unlabeled") -> dict[str, Any]:
    return {"run_id": "r", "step": step, "part": part, "image_id": image, "kind": kind, "array": array}


def pictures(rows: list[dict[str, Any]], label: str = "FPL+CPS") -> Pictures:
    return Pictures(label, pd.DataFrame(rows), steps=200, classes=("road", "wall"))


def k_run() -> Pictures:
    rows = [entry(20, "image", IMAGE), entry(20, "k", EARLY), entry(200, "k", LATE), entry(200, "image", IMAGE)]
    # An image without maps of K, and one of another height of which a stage is missing.
    tall = np.zeros((8, 4, 3), np.uint8)
    rows += [entry(20, "image", IMAGE, "b"), entry(20, "image", tall, "c"), entry(200, "k", LATE, "c")]
    return pictures(rows)


def painted(paint: Callable[..., None], *arguments: Any, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure, and its pixels [h, w, 3] as 0 to 1."""
    figure = Figure(figsize=(3, 3), layout="constrained", dpi=100)
    canvas: Any = FigureCanvasAgg(figure)
    paint(figure, *arguments, **options)
    canvas.draw()
    return figure, np.asarray(canvas.buffer_rgba())[..., :3] / 255


def color_at(figure: Figure, pixels: np.ndarray, chart: int, row: int, column: int) -> np.ndarray:
    """Color in the middle of one picture's pixel, as it was rendered."""
    axes = figure.axes[chart]
    x, y = axes.transData.transform((column, row))
    return np.asarray(pixels[pixels.shape[0] - 1 - int(y), int(x)])


def legend_of(figure: Figure) -> list[str]:
    legends = [legend for axes in figure.axes if (legend := axes.get_legend()) is not None]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def test_k_table() -> None:
    frame = k_map_table(k_run())
    assert list(frame[["image_id", "step"]].itertuples(index=False, name=None)) == [("a", 20), ("a", 200), ("c", 200)]
    first = frame.iloc[0]
    # K = 1, 2, 3, 4, 9, 2, 1, 1.
    assert first["pixels"] == 8 and first["training"] == 0.1
    assert first["mean_k"] == pytest.approx(23 / 8)
    shares = first[["share_k1", "share_k2", "share_k3", "share_k4_or_more"]].to_list()
    assert shares == pytest.approx([3 / 8, 2 / 8, 1 / 8, 2 / 8])
    assert frame.iloc[1]["share_k1"] == 7 / 8


def test_k_maps() -> None:
    figure, pixels = painted(paint_k_maps, k_run())
    assert figure.get_figwidth() == WIDTH == 7.0
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == ["image", "step 20\n10 % of training", "step 200\n100 % of training"]
    assert [axes.get_ylabel() for axes in figure.axes[::3][:2]] == ["a", "c"]
    assert legend_of(figure) == list(K_LABELS)
    for column, index in ((0, 0), (1, 1), (2, 2), (3, 3)):
        assert color_at(figure, pixels, 1, 0, column) == pytest.approx(to_rgb(K_COLORS[index]), abs=0.01)
    # K = 9 is one of many.
    assert color_at(figure, pixels, 1, 1, 0) == pytest.approx(to_rgb(K_COLORS[3]), abs=0.01)
    assert color_at(figure, pixels, 0, 1, 3) == pytest.approx(IMAGE[1, 3] / 255, abs=0.01)
    # Square pixels: the second image is as wide and four times as high; its first stage is missing.
    boxes = [figure.axes[place].get_window_extent() for place in (0, 3)]
    assert boxes[0].width / boxes[0].height == pytest.approx(2.0)
    assert boxes[1].height / boxes[0].height == pytest.approx(4.0)
    assert not figure.axes[4].images and figure.axes[5].images
    # Sharp: nothing between the colors of two neighbors.
    maps = [axes.images[0] for axes in (*figure.axes[1:3], figure.axes[5])]
    assert {image.get_interpolation() for image in maps} == {"nearest"}


def test_k_maps_of_some_images() -> None:
    figure, _ = painted(paint_k_maps, k_run().only(["c"]))
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == ["c"]
    with pytest.raises(ValueError, match="no image"):
        painted(paint_k_maps, pictures([entry(1, "image", IMAGE)]))


def score_run() -> Pictures:
    vanilla = np.array([[1, 1, -0.5, NAN], [-0.25, -0.75, -0.0, -0.5]], np.float16)
    fuzzy = np.array([[1, 0.5, 0.25, NAN], [0.75, -0.5, 0.0, -0.25]], np.float16)
    return pictures(
        [
            entry(20, "image", IMAGE),
            entry(20, "vanilla_score", -np.abs(vanilla)),
            entry(20, "fuzzy_score", fuzzy),
            entry(200, "vanilla_score", vanilla),
            entry(200, "fuzzy_score", fuzzy),
        ]
    )


def test_score_table() -> None:
    frame = score_table(score_run())
    # Of the last step alone, as the map is.
    assert set(frame["step"]) == {200} and list(frame["case"]) == [1, 2, 3]
    assert list(frame["pixels"]) == [2, 3, 2]
    # Case 2: pixels (0, 2), (1, 0) and (1, 2), whose scores are zeros with the signs that they come from.
    assert list(frame["vanilla_score"]) == pytest.approx([1.0, -0.25, -0.625])
    assert list(frame["fuzzy_score"]) == pytest.approx([0.75, 1 / 3, -0.375])
    up = pictures([entry(200, kind, np.ones((1, 2), np.float16)) for kind in ("vanilla_score", "fuzzy_score")])
    assert list(score_table(up)["pixels"]) == [2, 0, 0] and np.isnan(score_table(up)["fuzzy_score"].iloc[2])


def test_cases_of_the_score_table_are_those_of_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (3 * torch.randn(1, 6, 16, 16, generator=generator) for _ in range(2))
    truth = torch.randint(0, 7, (1, 16, 16), generator=generator)
    maps = diagnose_maps(student, teacher, ground_truth=truth, rules=Rules(0.95))
    kinds = ("vanilla_score", "fuzzy_score")
    rows = [entry(5, kind, maps[kind][0].to(torch.float16).numpy()) for kind in kinds]
    counts = [int((maps["case"] == case).sum()) for case in (1, 2, 3)]
    assert list(score_table(pictures(rows))["pixels"]) == counts and min(counts) > 20


def test_score_maps() -> None:
    figure, pixels = painted(paint_score_maps, score_run())
    assert [axes.get_title() for axes in figure.axes[:3]] == [
        "image",
        "$R^v$ (cross-entropy)\nstep 200, 100 % of training",
        "$R^f$ (FPL)\nstep 200, 100 % of training",
    ]
    for chart in (1, 2):
        assert figure.axes[chart].images[0].get_clim() == (-1, 1)
    # Half down in the one map, a quarter up in the other; zero is white, unknown grey.
    red, _, blue = color_at(figure, pixels, 1, 0, 2)
    assert blue > red + 0.3
    red, _, blue = color_at(figure, pixels, 2, 0, 2)
    assert red > blue + 0.1
    assert color_at(figure, pixels, 2, 1, 2) == pytest.approx([1, 1, 1], abs=0.04)
    assert color_at(figure, pixels, 2, 0, 3) == pytest.approx(to_rgb(GREY), abs=0.01)
    assert "up (> 0)" in figure.axes[-1].get_xlabel()
    assert legend_of(figure) == ["no true class"]
    known = score_run().frame.copy()
    known["array"] = [np.nan_to_num(array) if array.dtype == np.float16 else array for array in known["array"]]
    assert legend_of(painted(paint_score_maps, Pictures("FPL+CPS", known, 200))[0]) == []
    with pytest.raises(ValueError, match="no image"):
        painted(paint_score_maps, k_run())


TRUTH = np.array([[0, 0, 1, 255], [0, 0, 1, 1]], np.uint8)
BASELINE = np.array([[0, 1, 1, 1], [0, 1, 1, 1]], np.uint8)
OURS = np.array([[0, 1, 1, 0], [0, 0, 0, 1]], np.uint8)


def segmented_runs() -> list[Pictures]:
    def run(label: str, prediction: np.ndarray) -> Pictures:
        rows = [
            entry(200, "image", IMAGE, part="val"),
            entry(200, "ground_truth", TRUTH, part="val"),
            entry(200, "prediction", prediction, part="val"),
            # Unlabeled images are not segmented.
            entry(200, "image", IMAGE, "u"),
            entry(200, "ground_truth", TRUTH, "u"),
        ]
        return pictures(rows, label)

    return [run("CPS", BASELINE), run("FPL+CPS", OURS)]


def test_segmentation_table() -> None:
    frame = segmentation_table(segmented_runs()).set_index("run")
    assert list(frame["pixels"]) == [7, 7] and list(frame["step"]) == [200, 200]
    # Two of seven wrong each. CPS: IoU 2/4 and 3/5; FPL+CPS: 3/5 and 2/4.
    assert list(frame["pixel_accuracy"]) == pytest.approx([500 / 7, 500 / 7])
    assert list(frame["miou"]) == pytest.approx([55.0, 55.0])
    assert segmentation_table([]).empty


def test_segmentations() -> None:
    figure, pixels = painted(paint_segmentations, segmented_runs())
    # Each gives at least one pixel of both classes what it has.
    titles = ["image", "ground truth", *(f"{label}\n2 of 2 classes found" for label in ("CPS", "FPL+CPS")), "errors"]
    assert [axes.get_title() for axes in figure.axes[:5]] == titles
    legend = ["road", "wall", "no label", "both right", "only CPS wrong", "only FPL+CPS wrong", "both wrong"]
    assert legend_of(figure) == legend
    # Class 1 is the more frequent: 3 + 6 + 3 pixels of 1 against 4 + 2 + 5 of 0.
    wall, road = CLASS_COLORS[:2]
    for chart, place, color in (
        (1, (0, 0), road),
        (1, (0, 2), wall),
        (1, (0, 3), GREY),
        (2, (0, 1), wall),
        (3, (0, 3), road),
        (4, (0, 0), ERROR_COLORS[0]),
        (4, (1, 1), ERROR_COLORS[1]),
        (4, (1, 2), ERROR_COLORS[2]),
        (4, (0, 1), ERROR_COLORS[3]),
        # Nobody errs where there is no label.
        (4, (0, 3), GREY),
    ):
        assert color_at(figure, pixels, chart, *place) == pytest.approx(to_rgb(color), abs=0.01), (chart, place)


def test_segmentations_of_one_run_have_no_column_of_errors() -> None:
    figure, _ = painted(paint_segmentations, segmented_runs()[1:])
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        "image",
        "ground truth",
        "FPL+CPS\n2 of 2 classes found",
        "",
    ]
    assert legend_of(figure) == ["road", "wall", "no label"]
    with pytest.raises(ValueError, match="no image"):
        painted(paint_segmentations, [])


def test_class_colors_are_by_index_and_differ() -> None:
    array = np.repeat(np.arange(21, dtype=np.uint8), np.arange(21, 0, -1))
    colors = class_colors([array, np.full(1000, 255, np.uint8)])
    assert list(colors) == list(range(21)) and len(set(colors.values())) == 21
    assert colors[0] == CLASS_COLORS[0] and GREY not in colors.values()


def voc_color(index: int) -> tuple[int, ...]:
    """VOC's own rule: bits 0, 3, 6 of the index make red's highest bits, 1, 4, 7 green's and 2, 5, 8 blue's."""
    return tuple(sum((index >> (3 * place + channel) & 1) << (7 - place) for place in range(3)) for channel in range(3))


def test_classes_of_a_known_data_set_have_its_colors() -> None:
    array = np.array([[0, 7, 20], [0, 15, UNKNOWN]], np.uint8)
    colors = class_colors([array], tuple(VOC_CLASSES))
    assert list(colors) == [0, 7, 15, 20]
    for index, color in colors.items():
        assert tuple(round(255 * part) for part in to_rgb(color)) == voc_color(index)
    # Other classes, or labels beyond the known ones: those that can be told apart by everybody.
    for arrays, names in (([array], ("road", "wall")), ([np.array([[0, 21]], np.uint8)], tuple(VOC_CLASSES))):
        assert set(class_colors(arrays, names).values()) <= set(CLASS_COLORS)


def test_classes_that_are_found() -> None:
    first, second = (run.frame for run in segmented_runs())
    nothing = first.assign(
        array=[np.zeros_like(a) if k == "prediction" else a for k, a in zip(first.kind, first.array, strict=True)]
    )
    runs = [Pictures("CPS", nothing, 200), Pictures("FPL+CPS", second, 200)]
    assert found_classes(runs) == [("CPS", 1, 2), ("FPL+CPS", 2, 2)]
    assert found_classes([]) == []


def test_colors_of_k_differ_in_lightness() -> None:
    lightness = [float(np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722))) for color in K_COLORS]
    assert lightness == sorted(lightness, reverse=True) and min(-np.diff(lightness)) > 0.15
