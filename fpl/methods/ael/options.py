"""The `[method]` table of adaptive equalization learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.contrast import ContrastOptions
from fpl.config.gates import gate_warnings
from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative, Scale, is_unset
from fpl.config.teachers import check_teacher
from fpl.text import enumerate_briefly

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fpl.config.schema import RunConfig


class AelOptions(MethodOptions):
    """Adaptive equalization learning: an EMA teacher, and more of what the student is unsure of.

    Defaults are those of AEL's configuration for Cityscapes unless said otherwise.
    """

    implementation: ClassVar[str] = "fpl.methods.ael.method:Ael"
    # AEL's loader walks through its list two images at a time for every mixed one; CPS's reads each as the first of a
    # pair.
    epoch_images: ClassVar[int] = 2
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        {"contrast.anchors": 8, "contrast.negatives": 4, "contrast.queue": 50, "contrast.channels": 8},
    )

    name: Literal["ael"]
    # Unset keys below follow it: "paper" as the paper describes FPL+AEL, "released" as the released data code has it.
    # It is a part of the run's identity, even where every key that follows it is set.
    fidelity: Literal["paper", "released"] = "paper"
    # Weight of both consistency terms, and the share of training over which it rises from 0; AEL has no ramp.
    weight: NotNegative = 1.0
    ramp: Fraction = 0.0
    confidence_momentum: Fraction = 0.999
    # Targets of which the teacher is less sure teach nothing: 0.7 on VOC.
    confidence_gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    # Whether the gate stays when loss.kind = "fpl". Unset: with fidelity = "paper", in whose words only the loss is
    # replaced; FPL's code drops it. Nothing to decide, and so unset, where there is no gate or no FPL.
    gate_under_fpl: bool | None = None
    # Weight of a pixel: the teacher's confidence to this power.
    confidence_power: NotNegative = 2.0
    # Adaptive equalization sampling: pixels of confident classes are left out at random.
    sampling: bool = True
    sampling_power: NotNegative = 1.0
    # Adaptive copy-paste onto labeled images: `paste_classes` draws among all classes but the excluded ones.
    copy_paste: bool = True
    paste_probability: Fraction = 0.5
    paste_classes: Annotated[int, Field(ge=1, le=255)] = 3
    paste_excluded: tuple[Annotated[int, Field(ge=0, le=255)], ...] = (0, 1, 2, 8, 10)
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
    # A contrast of unreliable pixels beside it, as in U2PL on AEL (branch with_AEL of U2PL's code: weight 0.1,
    # divisor 8, start 0.1, falling = false). Unset, or with weight 0: none, as published, and no part of the identity.
    contrast: Annotated[ContrastOptions | None, Field(exclude_if=is_unset)] = None

    @model_validator(mode="after")
    def _normalise(self) -> AelOptions:
        if not self.copy_paste:
            self._forget("paste_probability", "paste_classes", "paste_excluded", "paste_scales", "paste_partner")
        self._set(paste_excluded=tuple(sorted(set(self.paste_excluded))))
        if not self.sampling:
            self._forget("sampling_power")
        if self.paste_scales[0] > self.paste_scales[1]:
            raise ValueError(f"paste_scales {list(self.paste_scales)} is not ordered from small to large")
        check_teacher(self.teacher_mode, self.ema_buffers)
        if self.contrast is not None and not self.contrast.weight:
            self._forget("contrast")
        return self

    def resolved(self, *, fpl: bool, dataset: str) -> AelOptions:
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

    @property
    def label(self) -> str:
        """What captions call it."""
        return "AEL" if self.contrast is None else "AEL with a contrast of unreliable pixels"

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """Unset keys decided: this table's, the label of padding, and the convex weight's coefficient."""
        data, loss, fpl = config.data, config.loss, config.loss.kind == "fpl"
        if data.padding_label is None:
            data = data.model_copy(update={"padding_label": 0 if self.fidelity == "released" else 255})
        given = "convex_coefficient" in loss.model_fields_set and loss.convex_coefficient is not None
        if fpl and loss.weight == "convex" and loss.fidelity == "released" and not given:
            # The released files differ: 1 for CPS, 4 for AEL.
            loss = loss.model_copy(update={"convex_coefficient": 4.0})
        return {"data": data, "loss": loss, "method": self.resolved(fpl=fpl, dataset=data.dataset)}

    def problems(self, config: RunConfig) -> list[str]:
        """Classes and scales of copy-paste, and ranks of the contrast, that do not fit the data."""
        classes = config.data.num_classes
        found = [] if self.contrast is None else self.contrast.problems("method.contrast", config)
        if not self.copy_paste:
            return found
        outside = [number for number in self.paste_excluded if number >= classes]
        if outside:
            found.append(f"method.paste_excluded has {outside[0]}, but classes are 0 to {classes - 1}")
        elif len(self.paste_excluded) == classes:
            found.append("method.paste_excluded leaves no class to paste; for none set method.copy_paste = false")
        if not self.paste_scales[0] <= 1 <= self.paste_scales[1]:
            found.append(f"method.paste_scales = {list(self.paste_scales)} must enclose 1: half of the draws shrink")
        return found

    def warnings(self, config: RunConfig) -> list[str]:
        """Also a gate that leaves FPL nothing to choose, and those of the contrast."""
        found = super().warnings(config) + gate_warnings("method.confidence_gate", self.confidence_gate, config.loss)
        return found if self.contrast is None else found + self.contrast.warnings("method.contrast")

    def data_warnings(self, histogram: NDArray[np.int64], class_names: Sequence[str], images: int) -> list[str]:
        """Labels without any class that may be pasted."""
        targets = [number for number in range(len(class_names)) if number not in self.paste_excluded]
        if not self.copy_paste or any(histogram[number] for number in targets):
            return []
        names = enumerate_briefly([class_names[number] for number in targets])
        return [
            f"none of {images} labeled images holds a class that may be pasted ({names}): method.copy_paste does "
            "nothing"
        ]
