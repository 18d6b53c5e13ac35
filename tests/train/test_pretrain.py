from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import fpl.source
from fpl.config.sections import ModelConfig
from fpl.config.weights import tiny_file_name
from fpl.data.textures import TEXTURE_CLASSES, TextureSource
from fpl.errors import FplError
from fpl.models import build_network, load_pretrained
from fpl.train.pretrain import pretrain_tiny

TINY = ModelConfig(backbone="tiny", pretrained="imagenet", tiny_width=8, head_channels=8, low_level_channels=4)


def test_the_file_is_found_and_fills_the_whole_backbone(tmp_path: Path) -> None:
    with pytest.raises(FplError, match="fpl pretrain tiny --width 8 --depth 1 --weights"):
        load_pretrained(build_network(TINY, 5), TINY, tmp_path)
    path = pretrain_tiny(tmp_path / "weights", width=8, steps=2)
    network = build_network(TINY, 5)
    report = load_pretrained(network, TINY, tmp_path / "weights")
    assert report is not None
    assert report.source == str(path)
    assert not report.missing and not report.unexpected
    assert report.loaded == len(network.backbone.state_dict())


def test_equal_arguments_give_equal_bytes_and_leave_the_global_generator_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = pretrain_tiny(tmp_path / "a", width=8, steps=2)
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(9)
    second = pretrain_tiny(tmp_path / "b", width=8, steps=2)
    assert first.read_bytes() == second.read_bytes()
    other = pretrain_tiny(tmp_path / "c", width=8, steps=2, seed=1)
    assert other.read_bytes() != first.read_bytes()


def test_an_existing_file_is_left_alone_and_another_one_is_refused(tmp_path: Path) -> None:
    calls: list[int] = []
    path = pretrain_tiny(tmp_path, width=8, steps=2, progress=lambda step, accuracy: calls.append(step))
    assert calls == [1, 2]
    before = path.stat().st_mtime_ns
    assert pretrain_tiny(tmp_path, width=8, steps=2, progress=lambda step, accuracy: calls.append(step)) == path
    assert calls == [1, 2]
    with pytest.raises(FplError, match="steps = 2 there, 3 wanted"):
        pretrain_tiny(tmp_path, width=8, steps=3)
    assert path.stat().st_mtime_ns == before
    torch.save({"stem.0.weight": torch.zeros(1)}, path)
    with pytest.raises(FplError, match="not made by this command"):
        pretrain_tiny(tmp_path, width=8, steps=2)
    path.write_bytes(b"half a file")
    with pytest.raises(FplError, match="cannot be read"):
        pretrain_tiny(tmp_path, width=8, steps=2)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, f"{path.name}.sha256"])


def test_textures_are_learned(tmp_path: Path) -> None:
    accuracies: list[float] = []
    pretrain_tiny(tmp_path, width=8, steps=12, progress=lambda step, accuracy: accuracies.append(accuracy))
    assert sum(accuracies[-4:]) / 4 > 1.5 / TEXTURE_CLASSES


def test_texture_pictures_are_a_function_of_the_seed_and_hold_every_class() -> None:
    first, second, other = TextureSource(0), TextureSource(0), TextureSource(1)
    image, label = first.batch(16)
    assert image.shape == (16, 3, 64, 64) and image.dtype == torch.uint8
    again, label_again = second.batch(16)
    assert torch.equal(image, again) and torch.equal(label, label_again)
    assert not torch.equal(image, first.batch(16)[0])
    assert not torch.equal(image, other.batch(16)[0])
    assert label.min() >= 0 and label.max() < TEXTURE_CLASSES
    assert len(label.unique()) == TEXTURE_CLASSES


def test_a_changed_file_is_named_with_both_checksums(tmp_path: Path) -> None:
    path = pretrain_tiny(tmp_path, width=8, steps=2)
    recorded = path.with_name(f"{path.name}.sha256").read_text().split()[0]
    torch.save({**torch.load(path), "more": 1}, path)
    tiny = TINY.model_copy(update={"tiny_width": 8})
    with pytest.raises(FplError) as caught:
        load_pretrained(build_network(tiny, 5), tiny, tmp_path)
    assert recorded in caught.value.what and path.name in str(caught.value.where)


def test_the_name_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that other code made has another name, so that it cannot answer."""
    before = tiny_file_name(8, 1)
    source = tmp_path / "fpl"
    shutil.copytree(fpl.source.PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fpl.source, "PACKAGE", source)
    fpl.source.source_digest.cache_clear()
    assert tiny_file_name(8, 1) == before
    for part in ("losses/supervised.py", "models/tiny.py", "methods/optimizers.py", "config/schema.py"):
        (source / part).write_text((source / part).read_text() + "\n")
        fpl.source.source_digest.cache_clear()
        assert tiny_file_name(8, 1) != before
        before = tiny_file_name(8, 1)
    # Methods have no part in it: whoever works on one need not wait for the same bytes again.
    (source / "methods" / "base.py").write_text("")
    fpl.source.source_digest.cache_clear()
    assert tiny_file_name(8, 1) == before
    monkeypatch.undo()
    fpl.source.source_digest.cache_clear()
