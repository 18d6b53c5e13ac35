"""Pictures of a few images, as numpy arrays to disk and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpl.store.pictures import KINDS, decode, encode
from fpl.store.publish import publish_runs
from fpl.store.read import Results
from fpl.store.schema import EXAMPLES, RUNS
from fpl.store.write import write_run

IMAGE = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
SCORE = np.array([[-1.0, 0.5, np.nan], [0.0, 0.25, 1.0]], np.float16)
K = np.array([[1, 2, 255], [1, 1, 3]], np.uint8)


def rows() -> list[dict[str, Any]]:
    where = {"part": "unlabeled", "image_id": "a"}
    return [
        {**where, "step": 0, "kind": "image", "array": IMAGE},
        {**where, "step": 10, "kind": "k", "array": K},
        # A view that is not laid out row by row.
        {**where, "step": 10, "kind": "vanilla_score", "array": SCORE.T},
    ]


def test_to_disk_and_back(tmp_path: Path) -> None:
    write_run(tmp_path, {"run_id": "r", "config": "{}"}, [], [], [], rows())
    frame = Results(tmp_path).examples
    assert list(frame.columns) == ["run_id", "step", "part", "image_id", "kind", "array"]
    assert [list(frame[name]) for name in ("run_id", "step", "kind")] == [
        ["r"] * 3,
        [0, 10, 10],
        ["image", "k", "vanilla_score"],
    ]
    truths: list[np.ndarray] = [IMAGE, K, SCORE.T]
    for array, truth in zip(frame["array"], truths, strict=True):
        assert array.dtype == truth.dtype
        np.testing.assert_array_equal(array, truth)


def test_the_row_of_a_run_is_written_after_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr("fpl.store.write.write_table", lambda path, table, rows: order.append(table))
    write_run(tmp_path, {"run_id": "r", "config": "{}"}, [], [], [], rows())
    assert order[-2:] == [EXAMPLES, RUNS]


def test_a_store_without_pictures(tmp_path: Path) -> None:
    write_run(tmp_path, {"run_id": "r", "config": "{}"}, [], [], [])
    assert not (tmp_path / EXAMPLES).exists()
    assert len(Results(tmp_path).examples) == 0


def test_a_run_that_is_written_again_has_its_own_pictures(tmp_path: Path) -> None:
    write_run(tmp_path, {"run_id": "r", "config": "{}"}, [], [], [], rows())
    write_run(tmp_path, {"run_id": "r", "config": "{}"}, [], [], [])
    assert len(Results(tmp_path).examples) == 0


def test_compacted_pictures_are_the_same(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("b", "a"):
        write_run(source, {"run_id": name, "config": "{}"}, [], [], [], rows())
    publish_runs(source, target, {"a", "b"})
    ours, theirs = Results(source).examples, Results(target).examples
    assert list(theirs["run_id"]) == ["a"] * 3 + ["b"] * 3
    assert len(ours) == len(theirs) == 6
    for one, other in zip(ours["array"], theirs["array"], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("image", K),
        ("image", IMAGE[..., :2]),
        ("k", IMAGE),
        ("k", SCORE),
        ("k", K.astype(np.int64)),
        ("fuzzy_score", SCORE.astype(np.float32)),
        ("prediction", K[0]),
        ("heat", K),
    ],
)
def test_arrays_of_another_type_or_shape_are_refused(kind: str, array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="picture"):
        encode({"kind": kind, "array": array})


def test_every_kind_can_be_kept() -> None:
    for kind in KINDS:
        array = IMAGE if kind == "image" else SCORE if kind.endswith("_score") else K
        held = encode({"kind": kind, "array": array})
        np.testing.assert_array_equal(decode(kind, held["height"], held["width"], held["data"]), array)
    with pytest.raises(ValueError, match="reshape"):
        decode("k", 2, 2, K.tobytes())
