"""The `[method]` table of UniMatch, and of FixMatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.gates import gate_warnings
from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# Word in run ids and label, by the number of strong views and whether there is a view of perturbed features.
NAMES = {
    (1, False): ("fixmatch", "FixMatch"),
    (2, False): ("fixmatch2", "FixMatch with two strong views"),
    (1, True): ("fixmatchfeatures", "FixMatch with perturbed features"),
    (2, True): ("unimatch", "UniMatch"),
}


class UniMatchOptions(MethodOptions):
    """Strong views of an image, and its perturbed features, learn what the same network predicts of the weak view.

    "Released" is the code of Yang et al. (CVPR 2023), github.com/LiheYoung/UniMatch, files `unimatch.py` and
    `fixmatch.py`; "paper" is theirs. FixMatch is `strong_views = 1` with `feature_share = 0`.
    """

    implementation: ClassVar[str] = "fpl.methods.unimatch.method:UniMatch"
    ignores_padding: ClassVar[bool] = True
    # Gates that part of the pixels of an untrained network pass; the second is FixMatch.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"confidence_gate": 0.08},
        {"confidence_gate": 0.0, "strong_views": 1, "feature_share": 0.0, "pair": "same", "ramp": 0.5},
    )

    name: Literal["unimatch"]
    # Of all that is learned from unlabeled images. Released: 1, and half of that whole sum, labels included: recipes
    # have half the rate and twice the decay instead, which is the same.
    weight: NotNegative = 1.0
    # Share of training over which the weight rises (sigmoid). Of this suite: for runs so short that the first
    # predictions are noise.
    ramp: Fraction = 0.0
    # Strong views of an image, each with colours and a box of its own, which share what features leave of the weight.
    strong_views: Literal[1, 2] = 2
    # Share of the weight that perturbed features have (released: 0.5, each strong view 0.25); 0: there are none.
    feature_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    # Share of the channels that are dropped from the backbone's low and high features for that.
    feature_dropout: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    # A pixel teaches where the highest probability is this or more (released: `conf_thresh`: 0.95 on VOC and COCO, 0 on
    # Cityscapes).
    confidence_gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    # Chance of a strong view to hold a box of the partner.
    cutmix_probability: Fraction = 0.5
    # Partner: "other": of another image; "same": another crop of the image itself, as the released loaders deliver
    # unawares (their two samplers have one seed). By the author (issues 34 and 51) both work equally well.
    pair: Literal["other", "same"] = "other"

    @model_validator(mode="after")
    def _normalise(self) -> UniMatchOptions:
        if not self.feature_share:
            self._forget("feature_dropout")
        return self

    @property
    def word(self) -> str:
        """What run ids call it."""
        return NAMES[self.strong_views, bool(self.feature_share)][0]

    @property
    def label(self) -> str:
        """What captions call it."""
        return NAMES[self.strong_views, bool(self.feature_share)][1]

    def warnings(self, config: RunConfig) -> list[str]:
        """Also a gate beside FPL."""
        return super().warnings(config) + gate_warnings("method.confidence_gate", self.confidence_gate, config.loss)
