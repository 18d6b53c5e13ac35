"""Files that are no weights, and tensors that no network takes: what they seem to be is said, and what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fpl.config.sections import ModelConfig
from fpl.config.weights import tiny_file_name
from fpl.errors import FplError, ShortageError
from fpl.models import build_network, load_pretrained, pretrained
from fpl.models.foreign import seems
from fpl.models.weights_file import backbone_names, read_state_dict
from fpl.train.checkpoint import load, save
from fpl.train.parts import part_problem, tensors_problem
from fpl.train.pretrain import pretrain_tiny

TINY = ModelConfig(backbone="tiny", pretrained="imagenet", head_channels=16, low_level_channels=8)
NAME = tiny_file_name(16, 1)


def saved(value: object, **named: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **named)
    return stream.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def tarred(content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("weights.pth")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def safetensors_file() -> bytes:
    """One float32 number, as the format's description has it."""
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return len(header).to_bytes(8, "little") + header + bytes(4)


WEIGHTS = saved({"a": torch.ones(3)})
OLD = saved({"a": torch.ones(3)}, _use_new_zipfile_serialization=False)
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"
FILES: dict[str, tuple[bytes, str, str]] = {
    "page": (b"\n<!DOCTYPE html>\n<html><body>404</body></html>", "a web page .*'<!DOCTYPE html>'", "fetch"),
    "page of Windows": ("<html>é</html>".encode("utf-16"), "a web page .*'<html>é</html>'", "fetch"),
    "page with a mark": (b"\xef\xbb\xbf<html>", "a web page .*'<html>'", "fetch"),
    "long page": (("<html>" + "é" * 5000).encode(), "a web page", "fetch"),
    "answer": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "answer of a server", "fetch"),
    "pointer": (LFS, "a pointer of git-LFS", "git lfs pull"),
    "gzip": (gzip.compress(WEIGHTS), "a gzip archive", "unpack it"),
    "bzip2": (bz2.compress(WEIGHTS), "a bzip2 archive", "unpack it"),
    "xz": (lzma.compress(WEIGHTS), "an xz archive", "unpack it"),
    "tar": (tarred(WEIGHTS), "a tar archive", "unpack it"),
    "zip": (zipped("weights.pth", WEIGHTS), r"a zip archive of other files \(weights\.pth\)", "unpack it"),
    "zip of nothing": (b"PK\x05\x06" + bytes(18), r"a zip archive of other files \(none\)", "unpack it"),
    "cut": (WEIGHTS[:-40], "has no end", "cut off"),
    "empty": (b"", "is empty", "cut off"),
    "text": (b"hello world\nnext line", "a text file, and begins with 'hello world'", "torch.save"),
    "JSON": (b'{"message": "Not Found"}', "a text file", "torch.save"),
    "pickle": (pickle.dumps({"a": [1.0]}), "a pickle of Python", "torch.save"),
    "NumPy": (array(), "an array of NumPy", "torch.save"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(600), "an HDF5 file", "torch.save"),
}


def refusals(path: Path) -> list[FplError]:
    """What all say that read such files."""
    said = []
    for read in (read_state_dict, load):
        with pytest.raises(FplError) as caught:
            read(path)
        said.append(caught.value)
    return said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["pth", "pt", "safetensors"])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind(tmp_path: Path, kind: str, ending: str) -> None:
    content, words, advice = FILES[kind]
    if ending == "safetensors":
        pytest.importorskip("safetensors.torch")
        if kind == "pickle":
            words, advice = "of torch.save under the name", r"\.pth"
    path = tmp_path / f"weights.{ending}"
    path.write_bytes(content)
    for error in refusals(path):
        assert "cannot be read" in error.what and str(path) == error.where
        with pytest.raises(FplError, match=words):
            raise error
        with pytest.raises(FplError, match=f"-> .*{advice}"):
            raise error
        assert "Weights only load failed" not in error.message and len(error.message) < 500


def test_a_folder(tmp_path: Path) -> None:
    for error in refusals(tmp_path):
        assert "it is a folder" in error.what and "name a file" in error.hint


def test_one_format_under_the_name_of_the_other(tmp_path: Path) -> None:
    pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.pth"
    path.write_bytes(safetensors_file())
    for error in refusals(path):
        assert "is a safetensors file under another name" in error.what and "load_file('a.pth')" in error.hint
    for content in (WEIGHTS, OLD):
        (tmp_path / "a.safetensors").write_bytes(content)
        with pytest.raises(FplError, match=r"is a file of torch\.save under the name of a safetensors file"):
            read_state_dict(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(safetensors_file())
    assert read_state_dict(tmp_path / "b.safetensors")["a"].tolist() == [0.0]


@pytest.mark.parametrize("turned", [False, True])
def test_two_tensors_that_are_called_the_same(tmp_path: Path, turned: bool) -> None:
    """Checkpoints that hold a bare copy and a wrapped one: which of the two is meant, nobody knows."""
    state = {"a": torch.zeros(1), "module.a": torch.ones(1), "b": torch.ones(2)}
    torch.save(dict(reversed(state.items())) if turned else state, tmp_path / "a.pth")
    with pytest.raises(FplError, match=r"holds (a and module\.a|module\.a and a), which are both a") as caught:
        read_state_dict(tmp_path / "a.pth")
    assert caught.value.where == str(tmp_path / "a.pth")
    both = {"trunk.conv_stem.weight": 1, "conv_stem.weight": 2}
    with pytest.raises(FplError, match="which are both trunk"):
        backbone_names(both, "efficientnet_lite0", tmp_path / "a.pth")


def test_what_may_be_weights_seems_nothing_else(tmp_path: Path) -> None:
    for name, content in {"a.pth": WEIGHTS, "b.pth": OLD, "c.safetensors": safetensors_file(), "d.pth": b"\1"}.items():
        (tmp_path / name).write_bytes(content)
        assert seems(tmp_path / name) == ("", "")
    assert seems(tmp_path / "absent") == ("", "")
    assert list(read_state_dict(tmp_path / "b.pth")) == ["a"]


@pytest.mark.parametrize("old", [False, True])
def test_objects_are_named_in_old_files_too(tmp_path: Path, old: bool) -> None:
    content = {"state_dict": {"a": torch.ones(3)}, "args": Path("x")}
    (tmp_path / "a.pth").write_bytes(saved(content, _use_new_zipfile_serialization=not old))
    with pytest.raises(FplError, match=r"objects \(pathlib.*its keys are state_dict, args") as caught:
        read_state_dict(tmp_path / "a.pth")
    assert "['state_dict']" in caught.value.hint
    with pytest.raises(FplError, match=r"objects \(pathlib.*which no run writes" if not old else "cannot be read"):
        load(tmp_path / "a.pth")


@pytest.mark.parametrize("read", [read_state_dict, load])
def test_a_name_in_an_archive_that_is_no_text(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """Not all that a damaged archive raises is said to be damage by who raises it."""
    content = zipped("archive/data.pk\u00e9", b"")
    (tmp_path / "a.pth").write_bytes(content.replace("\u00e9".encode(), b"\xff\xff"))
    with pytest.raises(FplError, match=r"cannot be read.*decode") as caught:
        read(tmp_path / "a.pth")
    assert caught.value.where == str(tmp_path / "a.pth")


@pytest.mark.parametrize("read", [read_state_dict, load])
def test_what_the_system_does_not_let_be_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    (tmp_path / "a.pth").write_bytes(WEIGHTS)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(ShortageError, match="permission denied"):
        read(tmp_path / "a.pth")


@pytest.mark.parametrize("kind", ["page", "folder"])
def test_a_checksum_that_does_not_fit_is_said_with_the_kind(tmp_path: Path, kind: str) -> None:
    resnet = ModelConfig(backbone="resnet50", pretrained="imagenet")
    for name, model in {
        "resnet50-ebb6acbb.pth": resnet,
        "resnet50_v1c.pth": resnet.model_copy(update={"pretrained_sha256": "0" * 8}),
        NAME: TINY,
    }.items():
        path = tmp_path / name.partition(".")[0] / name
        path.parent.mkdir()
        if kind == "folder":
            path.mkdir()
        else:
            path.write_bytes(FILES["page"][0])
        with pytest.raises(FplError, match=f"is a {'web page' if kind == 'page' else 'folder'}") as caught:
            pretrained.find_pretrained(model, path.parent)
        assert caught.value.where == str(path) and caught.value.hint
        assert ("SHA-256" in caught.value.what) == (kind == "page" and model is not TINY)


def test_a_file_in_the_way_of_pre_training(tmp_path: Path) -> None:
    (tmp_path / tiny_file_name(8, 1)).write_bytes(FILES["page"][0])
    with pytest.raises(FplError, match="is a web page") as caught:
        pretrain_tiny(tmp_path, width=8, steps=1)
    assert "remove it" in caught.value.hint


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


ODD: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "meta": (lambda value: value.to("meta"), "has no values"),
    "sparse": (lambda value: value.to_sparse(), r"is sparse \(sparse_coo\)"),
    "sparse rows": (lambda value: value.flatten(1).to_sparse_csr(), r"is sparse \(sparse_csr\)"),
    "quantized": (lambda value: torch.quantize_per_tensor(value, 0.1, 0, torch.qint8), r"is quantized \(qint8\)"),
    "complex": (lambda value: value.to(torch.complex64), r"is complex \(complex64\)"),
    "nested": (lambda value: nested(), "is a nested tensor"),
    "list": (lambda value: value.tolist(), "is a list, no tensor"),
    "table": (lambda value: {"data": value.tolist()}, "is a dict, no tensor"),
    "table of a tensor": (lambda value: {"data": value}, "is a dict, no tensor"),
    "number": (lambda value: 3.0, "is a float, no tensor"),
    "one byte": (lambda value: value.to(torch.float8_e5m2), "is torch.float8_e5m2 instead of torch.float32"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_a_tensor_that_no_network_takes(tmp_path: Path, kind: str) -> None:
    make, words = ODD[kind]
    network = build_network(TINY, 5)
    state = dict(network.backbone.state_dict())
    name = next(name for name, value in state.items() if value.ndim == 4)
    torch.save({**state, name: make(state[name])}, tmp_path / NAME)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    for refuse in (
        lambda: pretrained.find_pretrained(TINY, tmp_path),
        lambda: load_pretrained(network, TINY, tmp_path),
    ):
        with pytest.raises(FplError, match=f"{name} {words}") as caught:
            refuse()
        assert caught.value.where == str(tmp_path / NAME) and caught.value.hint
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["meta", "sparse"])
def test_so_is_one_without_numbers_with_a_point(tmp_path: Path, kind: str) -> None:
    state = dict(build_network(TINY, 5).backbone.state_dict())
    name = next(name for name in state if name.endswith("num_batches_tracked"))
    torch.save({**state, name: ODD[kind][0](state[name])}, tmp_path / NAME)
    with pytest.raises(FplError, match=f"{name} {ODD[kind][1]}"):
        pretrained.find_pretrained(TINY, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_nor_does_a_run_read_it_back(tmp_path: Path, kind: str) -> None:
    value = torch.ones(4, 3, 3, 3)
    save(tmp_path / "x.pt", {"method": {"w": ODD[kind][0](value)}})
    method = load(tmp_path / "x.pt")["method"]
    problem = part_problem("method", lambda: tensors_problem("method", {"w": value}, method))
    assert problem.startswith("w of the part 'method' ") and "Error" not in problem


def test_a_stem_of_no_convolution_is_named_as_any_other_tensor(tmp_path: Path) -> None:
    resnet = ModelConfig(backbone="resnet50", pretrained="imagenet")
    for name in ("conv1.weight", "conv1.0.weight"):
        torch.save({name: torch.tensor(1.0)}, tmp_path / "resnet50_v1c.pth")
        with pytest.raises(FplError, match=r"of the backbone's .* tensors"):
            pretrained.find_pretrained(resnet, tmp_path)


def test_weights_in_a_table_beside_other_tensors(tmp_path: Path) -> None:
    state = dict(build_network(TINY, 5).backbone.state_dict())
    for wrapped in (False, True):
        content: dict[str, Any] = {"mean": torch.ones(3), "network": state}
        torch.save({"model": content} if wrapped else content, tmp_path / NAME)
        with pytest.raises(
            FplError, match=f"holds 1 tensors .* and {len(state)} more in the table 'network'"
        ) as caught:
            pretrained.find_pretrained(TINY, tmp_path)
        assert ("['model']['network']" if wrapped else "False)['network']") in caught.value.hint
    torch.save({**state, "epoch": 3, "more": {"mean": torch.ones(3)}}, tmp_path / NAME)
    report = load_pretrained(build_network(TINY, 5), TINY, tmp_path)
    assert report is not None and report.unexpected == ()
