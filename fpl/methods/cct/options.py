"""The `[method]` table of cross-consistency training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.method import MethodOptions
from fpl.config.section import AboveZero, Fraction, NotNegative
from fpl.data.spec import SPECS, has_background

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# Kinds of perturbations, in the order of the paper, and how many decoders each has. "torchsemiseg":
# `unsup.json` of TorchSemiSeg, whose network makes no decoder of I-VAT; "original": `configs/config.json` of CCT.
COUNTS: Mapping[str, Mapping[str, int]] = {
    "torchsemiseg": {"noise": 2, "drop": 2, "context": 2, "object": 2, "cutout": 2, "adversarial": 0, "dropout": 2},
    "original": {"noise": 6, "drop": 6, "context": 2, "object": 2, "cutout": 6, "adversarial": 2, "dropout": 6},
}
KINDS = tuple(COUNTS["original"])
# Those that ask where the foreground is.
GUIDED = ("context", "object", "cutout")
# What only the decoders of a kind read.
OWN_KEYS = {
    "noise": ("noise",),
    "drop": ("drop_thresholds",),
    "cutout": ("cutout_side", "cutout_points"),
    "adversarial": ("adversarial_step", "adversarial_radius"),
    "dropout": ("dropout",),
}
# What one example of the tests has of each kind; the last are of a size that a small crop has regions of.
_ONE_OF_EACH: Mapping[str, Any] = dict.fromkeys([f"{kind}_decoders" for kind in KINDS], 1) | {
    "weight": 1.0,
    "cutout_points": 4,
}

Count = Annotated[int, Field(ge=0, le=100)]


class CctOptions(MethodOptions):
    """Cross-consistency training: decoders of perturbed features that have to agree with the main one.

    TorchSemiSeg is the code of CPS's authors, whose runs of CCT are the numbers that later papers compare with;
    "original" is the code of CCT's. Where the two differ, keys that are unset follow `decoders`.
    """

    implementation: ClassVar[str] = "fpl.methods.cct.method:Cct"
    native_kind: ClassVar[str] = "mse"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {**_ONE_OF_EACH, "adversarial_decoders": 0},
        {**_ONE_OF_EACH, "decoders": "original", "foreground": "classes"},
    )

    name: Literal["cct"]
    # "torchsemiseg": 12 auxiliary decoders, each a 1x1 convolution as the main one. "original": 30, each a 1x1
    # convolution and enlargements by pixel shuffle.
    decoders: Literal["torchsemiseg", "original"] = "torchsemiseg"
    # Weight of the consistency, which is a mean over decoders: 30 in both codes, for the mean squared difference.
    weight: NotNegative = 30.0
    # Share of training over which it rises from 0.0067 of itself (sigmoid). Unset: 0.1 as in the original; 0 in
    # TorchSemiSeg, which has the key in its file but does not read it.
    ramp: Fraction | None = None
    # Numbers of decoders by their perturbation; unset ones are those of `COUNTS`.
    noise_decoders: Count | None = None
    drop_decoders: Count | None = None
    context_decoders: Count | None = None
    object_decoders: Count | None = None
    cutout_decoders: Count | None = None
    adversarial_decoders: Count | None = None
    dropout_decoders: Count | None = None
    # Feature noise is uniform in -this .. this, relative to the feature (both codes: `uniform_range`).
    noise: NotNegative = 0.3
    # Share of the highest attention from which on features are dropped, uniform between the two (both codes).
    drop_thresholds: tuple[Fraction, Fraction] = (0.7, 0.9)
    # What guided masks and cut-out take for objects. "classes": all but class 0, as published. "random_subset": each
    # class with a chance of one half, drawn for each image and decoder; of this suite, for data without a background.
    # Unset: the first where class 0 is called background.
    foreground: Literal["classes", "random_subset"] | None = None
    # Sides of the hole in those of a region's box, and corners that the outline of a region has to exceed (both codes:
    # `erase`, `guided_cutout`). Regions are looked for where the losses are: one pixel in `loss.stride` of each axis.
    cutout_side: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.4
    cutout_points: Annotated[int, Field(ge=0, le=10**6)] = 50
    # I-VAT: length of the step that asks for the direction, and of the perturbation (both codes: `xi`, `eps`; no length
    # of a feature enters).
    adversarial_step: AboveZero = 1e-6
    adversarial_radius: NotNegative = 2.0
    # Share of channels that spatial dropout drops (both codes: `drop_rate`, `spatial`).
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    # Annealed bootstrapped cross-entropy on labels: pixels whose class is less probable than a threshold, which rises
    # from 1 / C to `bootstrap_threshold` over a share of training, fast at first (log). Unset: true, 0.99
    # (TorchSemiSeg); false, 0.9 (original: `abCE_loss` is there, but the file says "CE"). 0.4 in both.
    bootstrapped: bool | None = None
    bootstrap_threshold: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    bootstrap_ramp: Fraction = 0.4

    @model_validator(mode="after")
    def _normalise(self) -> CctOptions:
        original = self.decoders == "original"
        unset: dict[str, Any] = {f"{kind}_decoders": count for kind, count in COUNTS[self.decoders].items()}
        unset |= {"ramp": 0.1 if original else 0.0, "bootstrapped": not original}
        unset |= {"bootstrap_threshold": 0.9 if original else 0.99}
        self._set(**{key: value for key, value in unset.items() if getattr(self, key) is None})
        for kind, keys in OWN_KEYS.items():
            if not self.counts[kind]:
                self._forget(*keys)
        if not self.bootstrapped:
            self._forget("bootstrap_threshold", "bootstrap_ramp")
        if not any(self.counts.values()):
            raise ValueError("all of noise_decoders ... dropout_decoders are 0: nothing has to agree with the main one")
        if self.drop_thresholds[0] > self.drop_thresholds[1]:
            raise ValueError(f"drop_thresholds {list(self.drop_thresholds)} is not ordered from small to large")
        return self

    @property
    def counts(self) -> dict[str, int]:
        """How many decoders each kind of perturbation has, in the paper's order."""
        return {kind: getattr(self, f"{kind}_decoders") or 0 for kind in KINDS}

    @property
    def label(self) -> str:
        """What captions call it."""
        return "CCT"

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """What the foreground is, where it is unset; nothing to decide, and so unset, where no decoder asks."""
        foreground = self.foreground
        if not any(self.counts[kind] for kind in GUIDED):
            foreground = None
        elif foreground is None:
            foreground = "classes" if has_background(config.data.dataset) else "random_subset"
        return {"method": self.model_copy(update={"foreground": foreground})}

    def problems(self, config: RunConfig) -> list[str]:
        """Two rules for which labeled pixels count."""
        if not self.bootstrapped or config.loss.supervised == "ce":
            return []
        return [
            f'loss.supervised = "{config.loss.supervised}" beside method.bootstrapped = true: both choose among the '
            'labeled pixels. Ways out: method.bootstrapped = false, or loss.supervised = "ce"'
        ]

    def warnings(self, config: RunConfig) -> list[str]:
        """Also a foreground that is none."""
        found = super().warnings(config)
        dataset = config.data.dataset
        if self.foreground == "classes" and not has_background(dataset):
            first = SPECS[dataset].class_names[0] if dataset in SPECS else "no background"
            found.append(
                f'method.foreground = "classes" on {dataset}: class 0 is {first}, so objects are all pixels but its '
                'own; method.foreground = "random_subset" draws them'
            )
        return found
