"""A trained run as a module for other people's code: images in, scores of the classes out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fpl.errors import FplError
from fpl.models.network import resize
from fpl.train.evaluate import class_map, predict_logits
from fpl.train.runtime import autocast, select_device
from fpl.train.trained import DIVERGED, Trained, find_weights, is_weights_file, load_trained, reduced


class SegmentationModel(nn.Module):
    """The network of a run with all that prepares its images: what `fpl predict` does, as a module.

    It is in evaluation mode, and its parameters can be trained further. No gradient reaches the images: they are
    rounded to 8 bits, as files are.

    Args:
        trained: The run.

    Attributes:
        config: The run's configuration.
        class_names: Name of each class, in the order of the scores.
        palette: Its colour (red, green, blue; 0 to 255).
        step: Training step that the weights are of.
        method: What was trained; `method.predict` gives logits of normalised images.
    """

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self._path = trained.path
        self.config, self.step = trained.config, trained.step
        self.class_names, self.palette = trained.spec.class_names, trained.spec.palette
        self.method = trained.method
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes, float32 `[B, C, H, W]`: their largest is the class that `fpl predict` writes.

        They are logits, except where the run is evaluated in windows (`eval.protocol`): then their sum over the windows
        that see a pixel, or that of probabilities (`eval.combine`). Several images at once give what each gives alone
        up to the rounding of sums.

        Args:
            images: RGB `[B, 3, H, W]` of any size, on the device of the parameters: uint8, or float from 0 to 1 as
                torchvision's `ToTensor` and `v2.ToDtype(torch.float32, scale=True)` give it. Not normalised, not
                resized: that is done here (`data.downscale` included).

        Raises:
            FplError: Another shape, type or range.
        """
        # How they lie in memory decides the last bits: as `fpl predict` has them.
        pixels = _pixels(images).contiguous()
        size, device = (images.shape[-2], images.shape[-1]), images.device
        if self.config.data.downscale > 1:
            small = [reduced(image.permute(1, 2, 0).cpu().numpy(), self.config.data.downscale) for image in pixels]
            pixels = torch.stack(small).to(device)
        crop = self.config.eval.crop or self.config.data.crop
        with autocast(self.config.train, device):
            scores = predict_logits(self.method.predict, pixels, self.config.eval, crop)
        return resize(scores.float(), size)

    @torch.inference_mode()
    def predict(self, images: Tensor) -> Tensor:
        """Class of each pixel, int64 `[B, H, W]`, of images as `forward` takes them.

        Raises:
            FplError: As `forward`, or the scores are no finite numbers. That they are the same everywhere is `fpl
                predict`'s to say, which sees all images.
        """
        scores = self(images)
        if not bool(scores.isfinite().all()):
            raise FplError("the scores are not finite", where=str(self._path), hint=DIVERGED)
        return class_map(scores, (images.shape[-2], images.shape[-1]))


def load_model(
    run: str | Path, *, out: str | Path | None = None, choice: str = "best", device: str | torch.device = "cpu"
) -> SegmentationModel:
    """Load a trained run.

    Args:
        run: A run's id (`results.runs["run_id"]`), a unique beginning of one, or a file `best.pt` or `last.pt`.
        out: Store that holds it; None: `results/local` and the folders of `runs`, where commands put it.
        choice: `best` (on validation) or `last`.
        device: `cpu`, `cuda` or `cuda:N`; `auto`: a GPU where there is one.

    Returns:
        The model in evaluation mode. torch's threads and switches stay as they are.

    Raises:
        FplError: No such run or choice, or a file that is damaged or of something else.
    """
    if choice not in ("best", "last"):
        raise FplError(f"choice = {choice!r}", hint="best or last")
    chosen = None if is_weights_file(str(run)) else choice
    path = find_weights(None if out is None else Path(out), str(run), chosen)
    return SegmentationModel(load_trained(path, select_device(str(device)), threads=None))


def _pixels(images: Tensor) -> Tensor:
    """The images as uint8."""
    given = f"images of {images.dtype} {list(images.shape)}"
    hint = "RGB [B, 3, H, W], uint8 or float from 0 to 1, not normalised; one image: image.unsqueeze(0)"
    if images.ndim != 4 or images.shape[1] != 3 or not images.numel():
        raise FplError(given, hint=hint)
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise FplError(given, hint=hint)
    low, high = (float(value) for value in images.aminmax())
    if not 0.0 <= low <= high <= 1.0:
        raise FplError(f"{given} from {low:g} to {high:g}", hint=hint)
    return images.float().mul(255.0).round().to(torch.uint8)
