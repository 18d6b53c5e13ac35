"""The examples are run on drawn pictures, where their frameworks are installed; a snippet is read."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
# Script, what it needs, steps, whether it writes.
SCRIPTS = [
    ("plain", "torch", 24, False),
    ("smp_unet", "segmentation_models_pytorch", 12, False),
    ("huggingface_segformer", "transformers", 20, True),
    ("lightning_mean_teacher", "lightning", 24, True),
]


@pytest.mark.parametrize(("script", "framework", "steps", "writes"), SCRIPTS)
def test_an_example_trains(
    script: str, framework: str, steps: int, writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework, reason=f"{framework} is not installed: pip install '.[examples]'")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    main = runpy.run_path(str(EXAMPLES / f"{script}.py"))["main"]
    history = torch.tensor(main(["--steps", str(steps), *(["--output", str(tmp_path)] if writes else [])]))
    first, *_, last = history.chunk(4)
    assert history.isfinite().all()
    assert last.mean() < first.mean()


def test_every_example_is_run_or_read() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - {"drawn"}
    assert names == {script for script, *_ in SCRIPTS} | {"mmsegmentation_snippet"}
    for path in EXAMPLES.glob("*.py"):
        ast.parse(path.read_text())


def test_drawn_pictures_show_what_their_labels_say() -> None:
    drawn = runpy.run_path(str(EXAMPLES / "drawn.py"))
    pictures, labels = drawn["draw"](3, 16)
    assert (pictures.shape, labels.shape) == ((3, 3, 16, 16), (3, 16, 16))
    assert set(labels.unique().tolist()) == {0, 1, 2, drawn["IGNORE"]}
    # Discs are mostly red, squares mostly blue.
    for label, channel in ((1, 0), (2, 2)):
        assert pictures.movedim(1, -1)[labels == label].mean(0).argmax() == channel
