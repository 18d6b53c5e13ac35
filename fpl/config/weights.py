"""Names of pretrained weights files: what a run looks for, without the torch that reads it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fpl.config.schema import ModelConfig, RunConfig

# Names the folder of weights files where no argument does.
WEIGHTS_VARIABLE = "FPL_WEIGHTS"

# In order of preference: the file of the released CPS code, the one of the AEL code, then Gluon's "50s" type by the
# names of timm's hub and release page. All of them have the 64-64-128 stem.
RESNET_FILES = {
    "resnet50": ("resnet50_v1c.pth", "resnet50-ebb6acbb.pth", "gluon_resnet50_v1s-1762acc0.pth"),
    "resnet101": ("resnet101_v1c.pth", "resnet101-2a57e44d.pth", "gluon_resnet101_v1s-60fe0cc1.pth"),
}


def weights_file_names(model: ModelConfig) -> tuple[str, ...]:
    """List the file names that are looked for in the weights folder, the preferred one first."""
    if model.backbone == "tiny":
        return (f"tiny_w{model.tiny_width}_d{model.tiny_depth}.pth",)
    if model.backbone == "efficientnet_lite0":
        return ("efficientnet_lite0.pth",)
    hub = tuple(f"{model.backbone}s.gluon_in1k.{suffix}" for suffix in ("safetensors", "pth", "bin"))
    return RESNET_FILES[model.backbone] + hub


def default_folder(data_root: Path, configs: Iterable[RunConfig]) -> Path | None:
    """Folder of weights files when none is named: `weights` in the data root, if it is there or runs will fill it."""
    folder = data_root / "weights"
    fills = any(config.model.backbone == "tiny" and config.model.pretrained == "imagenet" for config in configs)
    return folder if fills or folder.is_dir() else None
