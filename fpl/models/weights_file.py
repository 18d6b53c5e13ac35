"""Reading a weights file: plain tensors under the backbone's own names, whatever tool wrote it.

A file is only ever read as data (`weights_only=True` or safetensors): it cannot run code.
"""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fpl.errors import FplError, shortage
from fpl.files import check_regular, damaged_member
from fpl.models.efficientnet import INSTALL_HINT, timm_name
from fpl.models.foreign import seems
from fpl.models.pickled import inside
from fpl.text import first_line

STEM_NEEDED = "a deep stem of three 3x3 convolutions with 64, 64 and 128 channels"
_WRAPPERS = ("state_dict", "model")
# Keys that a message lists.
_SHOWN = 8
_PARALLEL_PREFIX = "module."
# Layers behind the backbone: classifiers of the ImageNet model.
_CLASSIFIER = ("fc.", "classifier.", "head.")
_CLASSIFIER_LITE = ("conv_head.", "bn2.", "_conv_head.", "_bn1.", "_fc.", *_CLASSIFIER)
# The deep stem as three named convolutions, the third norm being the one that follows the stem.
_THREE_CONVOLUTIONS = {
    "conv1": "conv1.0",
    "bn1": "conv1.1",
    "conv2": "conv1.3",
    "bn2": "conv1.4",
    "conv3": "conv1.6",
    "bn3": "bn1",
}


def read_state_dict(path: Path) -> dict[str, Any]:
    """Read a .safetensors file or a file of `torch.save` and strip what training tools wrap around the tensors.

    `{"state_dict": ...}` and `{"model": ...}` are opened, the prefix `module.` is dropped.

    Returns:
        Name -> value, tensors and what else stands among them.

    Raises:
        FplError: If the file is damaged, is of another kind, holds anything but plain data, or holds no tensors, or
            more of them under a name than beside it.
        ShortageError: The system does not let it be read.
    """
    check_regular(path)
    content = top = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    opened = ""
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content, opened = content[wrapper], f"{opened}[{wrapper!r}]"
    count = _tensors_in(content) if isinstance(content, Mapping) else 0
    if not count:
        raise _no_tensors(path, top)
    for name, value in content.items():
        if isinstance(value, Mapping) and _tensors_in(value) > count:
            what = f"holds {count} tensors under parameter names, and {_tensors_in(value)} more in the table {name!r}"
            raise FplError(what, where=str(path), hint=_save_again(path, f"{opened}[{name!r}]"))
    return renamed(content, lambda name: name.removeprefix(_PARALLEL_PREFIX), path)


def renamed(state: Mapping[Any, Any], rename: Callable[[str], str], path: Path) -> dict[str, Any]:
    """What a file has, under other names.

    Raises:
        FplError: Two of its names become the same: which of the two is meant, nobody knows.
    """
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in state.items():
        new = rename(str(name))
        if new in found:
            what = f"holds {names[new]} and {name}, which are both {new}"
            raise FplError(what, where=str(path), hint="save it again without one of the two")
        found[new], names[new] = value, str(name)
    return found


def _no_tensors(path: Path, content: Any) -> FplError:
    """Says what a file has instead of tensors under parameter names, and how to save it so that it is read."""
    if not isinstance(content, Mapping):
        what = f"holds a {type(content).__name__}, no tensors under parameter names"
        return FplError(what, where=str(path), hint=_save_again(path, ""))
    keys = {str(key): value for key, value in content.items()}
    full = [key for key, value in keys.items() if isinstance(value, Mapping) and _tensors_in(value)]
    listed = ", ".join(
        f"{key} ({_tensors_in(value)} tensors)" if key in full else f"{key} ({type(value).__name__})"
        for key, value in list(keys.items())[:_SHOWN]
    )
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    what = f"holds no tensors under parameter names, but the keys {listed}{more}" if keys else "is empty"
    return FplError(what, where=str(path), hint=_save_again(path, f"[{full[0]!r}]" if full else "[KEY]"))


def _tensors_in(value: Mapping[Any, Any]) -> int:
    return sum(isinstance(each, Tensor) for each in value.values())


def _save_again(path: Path, part: str) -> str:
    """How to make a file that is read of one that is not: in a way that may run code, so for files one trusts."""
    return (
        'save the state dict alone, where the file is trusted: python -c "import torch; '
        f"torch.save(torch.load({path.name!r}, map_location='cpu', weights_only=False){part}, 'weights.pth')\""
    )


def backbone_names(state: Mapping[str, Any], backbone: str, path: Path) -> dict[str, Any]:
    """Rename tensors to the backbone's own state-dict names and drop the classifier of the ImageNet model.

    Args:
        state: What the file has, under its names.
        backbone: Value of `model.backbone`.
        path: The file, for messages.

    Raises:
        FplError: Two of its names are of one tensor.
    """
    if backbone == "efficientnet_lite0":
        kept = {name: value for name, value in state.items() if not name.startswith(_CLASSIFIER_LITE)}
        return renamed(kept, lambda name: f"trunk.{timm_name(name.removeprefix('trunk.'))}", path)
    kept = {name: value for name, value in state.items() if not name.startswith(_CLASSIFIER)}
    if backbone.startswith("resnet") and "conv3.weight" in kept:
        return renamed(kept, _stem_name, path)
    return kept


def stem_problem(state: Mapping[str, Tensor]) -> str | None:
    """Say which other stem a ResNet file holds, or None if it is the right one or no stem can be told.

    Args:
        state: Tensors under the backbone's names.
    """
    state = {name: value for name, value in state.items() if value.ndim == 4}
    if "conv1.weight" in state:
        size = state["conv1.weight"].shape
        return f"holds a ResNet with a single {size[-2]}x{size[-1]} convolution of {size[0]} channels as stem"
    convolutions = ("conv1.0.weight", "conv1.3.weight", "conv1.6.weight")
    if not all(name in state for name in convolutions):
        return None
    widths = tuple(state[name].shape[0] for name in convolutions)
    if widths == (64, 64, 128):
        return None
    listed = "-".join(map(str, widths))
    return f"holds a ResNet with a {listed} deep stem" + (' (the Gluon "v1c" type)' if widths == (32, 32, 64) else "")


def _stem_name(name: str) -> str:
    layer, _, tensor = name.partition(".")
    return f"{_THREE_CONVOLUTIONS.get(layer, layer)}.{tensor}"


def _read_torch(path: Path) -> Any:
    try:
        # torch does not look at the checksums, and trains on what a damaged disk made of the values.
        if zipfile.is_zipfile(path) and (damaged := damaged_member(path)) is not None:
            raise FplError(f"is damaged: {damaged} has another checksum", where=str(path), hint="copy it again")
        return torch.load(path, map_location="cpu", weights_only=True)
    except FplError:
        raise
    except Exception as error:  # a damaged file can raise anything: zip, pickle, end-of-file and runtime errors
        keys, classes = inside(path)
        if not classes:
            raise _unreadable(path, error) from error
        what = f"cannot be read as plain tensors: it holds objects ({', '.join(classes[:_SHOWN])}) that could run code"
        if not keys:
            raise FplError(what, where=str(path), hint=_save_again(path, ".state_dict()")) from error
        wrapper = next((key for key in keys if "state_dict" in key or key in _WRAPPERS), "KEY")
        hint = _save_again(path, f"[{wrapper!r}]")
        raise FplError(f"{what}; its keys are {', '.join(keys[:_SHOWN])}", where=str(path), hint=hint) from error


def _read_safetensors(path: Path) -> Any:
    try:
        reader = importlib.import_module("safetensors.torch")
    except ImportError as error:
        raise FplError("needs the package safetensors", where=str(path), hint=INSTALL_HINT) from error
    try:
        return reader.load_file(path, device="cpu")
    except Exception as error:  # as above
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> FplError:
    if (lack := shortage(error, path)) is not None:
        return lack
    kind, hint = seems(path)
    reason = f": it {kind}" if kind else f" ({type(error).__name__}: {first_line(error)})"
    return FplError(
        f"cannot be read as plain tensors{reason}",
        where=str(path),
        hint=hint or "the file is damaged or incomplete, or holds code: fetch it again",
    )
