"""The `[method]` table: one section per training method, chosen by its name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fpl.config.section import Fraction, Scale, Section


class SupervisedConfig(Section):
    """Labeled images alone: the control of every table."""

    name: Literal["supervised"]


class CpsConfig(Section):
    """Cross pseudo supervision: two networks, each taught by the other's prediction."""

    name: Literal["cps"]
    # Weight of the unsupervised term (the lambda of CPS).
    weight: Annotated[float, Field(ge=0.0)]
    cutmix: bool
    # "other": CutMix takes two different images; "same": two crops of one image, as the released loaders do.
    pair: Literal["other", "same"] = "other"
    # Whether labeled images join the unsupervised term. Unset: yes without CutMix, no with it, as in the release.
    on_labeled: bool | None = None
    cutmix_boxes: Annotated[int, Field(ge=1, le=1000)] = 3
    cutmix_area: tuple[Fraction, Fraction] = (0.25, 0.5)
    # Share of training over which the unsupervised weight rises linearly from 0; the paper has no ramp.
    ramp: Fraction = 0.0

    @model_validator(mode="after")
    def _normalise(self) -> CpsConfig:
        if self.on_labeled is None:
            self._set(on_labeled=not self.cutmix)
        if not self.cutmix:
            self._forget("pair", "cutmix_boxes", "cutmix_area")
        if self.cutmix and self.on_labeled:
            raise ValueError(
                "on_labeled = true with cutmix = true is no published recipe: "
                "with CutMix the unsupervised term covers the mixed unlabeled images only"
            )
        if self.cutmix_area[0] > self.cutmix_area[1]:
            raise ValueError(f"cutmix_area {list(self.cutmix_area)} is not ordered from small to large")
        return self


class AelConfig(Section):
    """Adaptive equalization learning: an EMA teacher, and more of what the student is unsure of.

    Defaults are those of AEL's configuration for Cityscapes unless said otherwise.
    """

    name: Literal["ael"]
    # Unset keys below follow it: "paper" as the paper describes FPL+AEL, "released" as the released data code has it.
    # It is a part of the run's identity, even where every key that follows it is set.
    fidelity: Literal["paper", "released"] = "paper"
    # Weight of both consistency terms, and the share of training over which it rises from 0; AEL has no ramp.
    weight: Annotated[float, Field(ge=0.0)] = 1.0
    ramp: Fraction = 0.0
    confidence_momentum: Fraction = 0.999
    # Targets of which the teacher is less sure teach nothing: 0.7 on VOC.
    confidence_gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    # Whether the gate stays when loss.kind = "fpl". Unset: with fidelity = "paper", in whose words only the loss is
    # replaced; FPL's code drops it. Nothing to decide, and so unset, where there is no gate or no FPL.
    gate_under_fpl: bool | None = None
    # Weight of a pixel: the teacher's confidence to this power.
    confidence_power: Annotated[float, Field(ge=0.0)] = 2.0
    # Adaptive equalization sampling: pixels of confident classes are left out at random.
    sampling: bool = True
    sampling_power: Annotated[float, Field(ge=0.0)] = 1.0
    # Adaptive copy-paste onto labeled images: `paste_classes` draws among all classes but the excluded ones.
    copy_paste: bool = True
    paste_probability: Fraction = 0.5
    paste_classes: Annotated[int, Field(ge=1, le=255)] = 3
    paste_excluded: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2, 8, 10)
    paste_scales: tuple[Scale, Scale] = (0.1, 2.0)
    # "same": an image is pasted onto itself. Unset: "other", but FPL's released VOC code does that.
    paste_partner: Literal["other", "same"] | None = None
    # Adaptive CutMix: shares of the crop that a component must exceed, and that a class needs to enter the image bank.
    component_area: Fraction = 0.005
    bank_area: Fraction = 0.01
    # Teacher: decay min(1 - 1/(step + 1), ema_decay); in "train" mode with statistics of its own, as released.
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    ema_buffers: bool = False
    teacher_mode: Literal["train", "eval"] = "train"

    @model_validator(mode="after")
    def _normalise(self) -> AelConfig:
        if not self.copy_paste:
            self._forget("paste_probability", "paste_classes", "paste_excluded", "paste_scales", "paste_partner")
        self._set(paste_excluded=tuple(sorted(set(self.paste_excluded))))
        if not self.sampling:
            self._forget("sampling_power")
        if self.paste_scales[0] > self.paste_scales[1]:
            raise ValueError(f"paste_scales {list(self.paste_scales)} is not ordered from small to large")
        if self.teacher_mode == "eval" and not self.ema_buffers:
            raise ValueError(
                'teacher_mode = "eval" with ema_buffers = false: the teacher would normalise with the statistics it '
                "began with; set ema_buffers = true"
            )
        return self

    def resolved(self, *, fpl: bool, dataset: str) -> AelConfig:
        """The same with every unset key decided."""
        gate, under_fpl, partner = self.confidence_gate, self.gate_under_fpl, self.paste_partner
        released = self.fidelity == "released"
        if under_fpl is None:
            under_fpl = not (fpl and released)
        if fpl and not under_fpl:
            gate = 0.0
        if not gate or not fpl:
            under_fpl = None  # nothing to decide
        if partner is None:
            partner = "same" if released and fpl and self.copy_paste and dataset.endswith("voc") else "other"
        return self.model_copy(update={"confidence_gate": gate, "gate_under_fpl": under_fpl, "paste_partner": partner})


MethodConfig = Annotated[SupervisedConfig | CpsConfig | AelConfig, Field(discriminator="name")]
