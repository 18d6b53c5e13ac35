"""What `fpl predict` leaves in its folder, and how large its pictures are."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fpl.data.spec import get_spec
from fpl.train import predict


@pytest.mark.parametrize(
    ("size", "expected"), [((1, 3000), (1, 3000)), ((3, 1000), (12, 4000)), ((60, 80), (240, 320))]
)
def test_a_narrow_image_is_not_enlarged_without_end(size: tuple[int, int], expected: tuple[int, int]) -> None:
    made = predict.overlay(np.zeros((*size, 3), np.uint8), np.zeros(size, np.uint8), get_spec("camvid"))
    assert (made.height, made.width) == expected


def test_left_overs_are_swept_and_what_another_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, to = tmp_path / "images", tmp_path / "to"
    (images / "below").mkdir(parents=True)
    (to / "below").mkdir(parents=True)
    for name in ("a.png", "below/b.png"):
        Image.new("RGB", (40, 40)).save(images / name)
    old, new = [to / f".{'1' * 16}.tmp", to / "below" / f".{'2' * 16}.tmp"], to / f".{'3' * 16}.tmp"
    others = to / ".notes.tmp"
    for path in (*old, new, others):
        path.touch()
    for path in (*old, others):
        os.utime(path, (time.time() - 3600,) * 2)
    monkeypatch.setattr(predict, "_classes", lambda trained, image: np.zeros(image.shape[:2], np.uint8))
    trained: Any = SimpleNamespace(spec=get_spec("camvid"))
    assert predict.predict_folder(trained, images, to) == 2
    assert not any(path.exists() for path in old) and new.exists() and others.exists()
