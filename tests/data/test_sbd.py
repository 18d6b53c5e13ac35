"""Annotations of SBD: what is read of them, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import io as matlab

from fpl.data.sbd import label_png, read_annotation
from fpl.data.spec import get_spec
from fpl.errors import FplError
from tests.data.delivered import SIZE, annotation, sbd_label

VOC = get_spec("voc")


def test_an_annotation_becomes_a_label_as_vocs_own() -> None:
    label = sbd_label("2008_000003")
    read = read_annotation(annotation(label), "x.mat")
    assert read.dtype == np.uint8 and np.array_equal(read, label)
    with Image.open(io.BytesIO(label_png(read, VOC))) as image:
        assert image.mode == "P"
        assert np.array_equal(np.array(image), label)
        colours = np.array(image.getpalette()).reshape(-1, 3).tolist()
    assert colours[:21] == [list(colour) for colour in VOC.palette]
    assert colours[255] == [224, 224, 192]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"GTinst": {"Segmentation": np.zeros(SIZE, np.uint8)}}, "cannot be read"),
        ({"GTcls": {"Boundaries": 1}}, "cannot be read"),
        ({"GTcls": {"Segmentation": np.full(SIZE, 21, np.uint8)}}, "no class of VOC: 21"),
        ({"GTcls": {"Segmentation": np.zeros((2, 2, 3), np.uint8)}}, r"uint8 \[2, 2, 3\], not a matrix"),
        ({"GTcls": {"Segmentation": np.zeros(SIZE)}}, r"float64 \[12, 16\], not a matrix"),
    ],
)
def test_other_mat_files_are_refused(content: dict[str, Any], text: str) -> None:
    file = io.BytesIO()
    matlab.savemat(file, content)
    with pytest.raises(FplError, match=text) as caught:
        read_annotation(file.getvalue(), "a.tgz, x.mat")
    assert caught.value.where == "a.tgz, x.mat"


def test_a_cut_annotation_is_refused() -> None:
    with pytest.raises(FplError, match="cannot be read as an SBD annotation"):
        read_annotation(annotation(sbd_label("2008_000001"))[:150], "x.mat")
