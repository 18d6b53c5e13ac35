"""The `[method]` table of guided collaborative training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.method import MethodOptions
from fpl.config.section import AboveZero, Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# Kinds of the pixel loss that are 0, value and gradient, where a network is its own teacher.
ZERO_AT_SELF = ("mse", "mse_logits", "soft")


class GctOptions(MethodOptions):
    """Guided collaborative training: two networks, the better one at a pixel teaches the other.

    Values are those of the authors' code (PixelSSL, scripts of `task/sseg`), and of TorchSemiSeg where it is not named.
    """

    implementation: ClassVar[str] = "fpl.methods.gct.method:Gct"
    native_kind: ClassVar[str] = "mse"
    # The second: what an untrained detector says counts already, so that networks teach, and are corrected.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"detector_channels": 4},
        {"detector_channels": 4, "flawless_below": 0.0, "flaw_threshold": 0.3, "own_target": False},
    )

    name: Literal["gct"]
    # Weight of dynamic consistency (`dc_ssl_scale`), and the share of training over which it rises along a sigmoid: the
    # 3 epochs of the 34 that TorchSemiSeg trains on VOC. PixelSSL: 3 of 20 with DeepLabv2, 5 of 45 with PSPNet.
    weight: NotNegative = 100.0
    ramp: Fraction = 0.088
    # Weight of flaw correction (`fc_ssl_scale`), which has no ramp. 0 is PixelSSL's mode `dc`.
    correction_weight: NotNegative = 1.0
    # xi (`dc_threshold`): a handled flaw above it counts as 1, and a pixel with two such flaws is bad in both networks.
    flaw_threshold: Fraction = 0.6
    # A flaw map without any larger value, once blurred, has no flaw at all (`clip_threshold`).
    flawless_below: Fraction = 0.1
    # Times that the detector's ground truth is dilated and blurred again. (mu, a factor of it, is lost in its min-max.)
    nu: Annotated[int, Field(ge=0, le=100)] = 1
    # "described": as both codes' comments say. "released": with two slips of theirs. A flawless map becomes
    # -min / (max - min) all over instead of 0, so that it passes for better than 0; and maps are cut off at 0 in place,
    # so that the detector's loss takes a negative flaw for 0, though it is differentiated as if there were no cut.
    fidelity: Literal["described", "released"] = "described"
    # Whether a network is its own teacher where it is no worse than the other, and where both are bad. The published
    # loss is 0 there, so this is for kinds that are not: false leaves these pixels out.
    own_target: bool = True
    # Weight of the flaw detector's loss (`fd_scale`), and its Adam: rate, and schedule. PixelSSL decays the rate by
    # poly; TorchSemiSeg computes the same and never sets it. Both multiply the rate by their number of GPUs.
    detector_weight: AboveZero = 10.0
    detector_lr: AboveZero = 1e-4
    detector_schedule: Literal["poly", "constant"] = "poly"
    # Channels of its first layer; those of the others are multiples. Tiny networks do with fewer.
    detector_channels: Annotated[int, Field(ge=2, le=1024)] = 64

    @model_validator(mode="after")
    def _normalise(self) -> GctOptions:
        if not self.weight:
            self._forget("ramp", "own_target")
        return self

    @property
    def label(self) -> str:
        """What captions call it."""
        return "GCT"

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """A network's own target, where it makes no difference, as it is by default."""
        if self.own_target or config.loss.kind not in ZERO_AT_SELF:
            return {}
        return {"method": self.model_copy(update={"own_target": True})}

    def warnings(self, config: RunConfig) -> list[str]:
        """Without dynamic consistency unlabeled images still have flaws to correct; networks that teach themselves."""
        found = [] if not self.weight and self.correction_weight else super().warnings(config)
        if self.weight and self.own_target and config.loss.kind not in ZERO_AT_SELF:
            found.append(
                f"method.own_target = true with loss.kind = {config.loss.kind}: where the other network does not "
                "teach, each learns from its own prediction, which the published loss does not; "
                "method.own_target = false leaves these pixels out"
            )
        if config.model.norm == "frozen":
            found.append(
                "model.norm = frozen: the flaw detector is trained from random weights, and half of its channels would "
                "go without any normalisation"
            )
        return found
