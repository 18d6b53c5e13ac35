"""Names of pretrained weights files: what a run looks for, without the torch that reads it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.source import source_digest

# Names the folder of weights files where no argument does.
WEIGHTS_VARIABLE = "FPL_WEIGHTS"
# Behind the name of a file that the suite made: its checksum, in the form of `sha256sum`.
CHECKSUM_SUFFIX = ".sha256"

# In order of preference: the file of the released CPS code, the one of the AEL code, then Gluon's "50s" type by the
# names of timm's hub and release page. All of them have the 64-64-128 stem.
RESNET_FILES = {
    "resnet50": ("resnet50_v1c.pth", "resnet50-ebb6acbb.pth", "gluon_resnet50_v1s-1762acc0.pth"),
    "resnet101": ("resnet101_v1c.pth", "resnet101-2a57e44d.pth", "gluon_resnet101_v1s-60fe0cc1.pth"),
}

# What has a part in pre-training the tiny encoder (`fpl.train.pretrain`). Whole packages, so that none is forgotten;
# methods have no part in it, and whoever works on one keeps the file.
MAKERS_OF_TINY = ("config", "data", "losses", "methods/optimizers.py", "models", "train")


def weights_file_names(model: ModelConfig) -> tuple[str, ...]:
    """List the file names that are looked for in the weights folder, the preferred one first."""
    if model.backbone == "tiny":
        return (tiny_file_name(model.tiny_width, model.tiny_depth),)
    if model.backbone == "efficientnet_lite0":
        return ("efficientnet_lite0.pth",)
    hub = tuple(f"{model.backbone}s.gluon_in1k.{suffix}" for suffix in ("safetensors", "pth", "bin"))
    return RESNET_FILES[model.backbone] + hub


def tiny_file_name(width: int, depth: int) -> str:
    """File of a pre-trained tiny encoder: `tiny_w12_d1_code3fa91c02.pth`, named by the code that makes it.

    A file of other code is another file: it never answers for this one. Where the code makes the same bytes, runs are
    the same too, for they are named by the bytes.
    """
    code = source_digest(*MAKERS_OF_TINY, libraries=("torch", "numpy"))
    return f"tiny_w{width}_d{depth}_code{code}.pth"


def default_folder(data_root: Path, configs: Iterable[RunConfig]) -> Path | None:
    """Folder of weights files when none is named: `weights` in the data root, if it is there or runs will fill it."""
    folder = data_root / "weights"
    fills = any(config.model.backbone == "tiny" and config.model.pretrained == "imagenet" for config in configs)
    return folder if fills or folder.is_dir() else None
