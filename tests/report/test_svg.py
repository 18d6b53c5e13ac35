"""Figures as inline SVG: coordinates are short, and nothing else is."""

from __future__ import annotations

import re

from matplotlib.figure import Figure

from fpl.report.svg import axes, draw

WORDS = 'd="1.23456" translate(1.23456)'


def paint(figure: Figure) -> None:
    chart = axes(figure, "x", WORDS)
    chart.plot([0.0, 1.0 / 3.0, 2.0 / 3.0], [0.0, 2.0 / 7.0, 1.0 / 7.0])
    chart.set_xticks([0.0, 0.123456], ["0", "0.123456"])


def test_coordinates_have_one_decimal_and_text_stays() -> None:
    drawn = draw("a", WORDS, paint)
    tags = re.findall(r"<[^>]+>", re.sub(r'aria-label="[^"]*"', "", drawn))
    numbers = [number for tag in tags for number in re.findall(r'(?<= )d="([^"]*)"', tag)]
    assert numbers and all(len(part) == 1 for text in numbers for part in re.findall(r"\.(\d+)", text))
    # Nothing collapses: the curve still has its three points, apart from each other.
    (curve,) = (text for text in numbers if text.count("L") == 2 and "z" not in text)
    points = re.findall(r"([\d.]+) ([\d.]+)", curve)
    assert len(set(points)) == 3
    assert "0.123456" in drawn and WORDS in re.sub(r"<[^>]+>", "", drawn)
