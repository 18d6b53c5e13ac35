"""The `[method]` table of PseudoSeg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from fpl.config.gates import gate_warnings
from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative
from fpl.data.spec import has_background

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# What nothing reads without class activation maps.
OF_ACTIVATION = ("attention_channels", "activation_mode", "decoder_share", "normalised")


class PseudoSegOptions(MethodOptions):
    """PseudoSeg (Zou et al., ICLR 2021): consistency of a strong view with a label that is fused from two sources.

    "Released" is the authors' code, googleinterns/wss, `train_wss.py` with the options that its README gives.
    """

    implementation: ClassVar[str] = "fpl.methods.pseudoseg.method:PseudoSeg"
    # Cross-entropy with a soft label: its gradient is that of the KL divergence.
    native_kind: ClassVar[str] = "soft"
    # The second without maps, and with a gate that part of the pixels of an untrained network pass.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"class_activation": True, "attention_channels": 8},
        {"class_activation": False, "confidence_gate": 0.08, "ramp": 0.5},
    )

    name: Literal["pseudoseg"]
    # Of the consistency (released: --unlabeled_weight). The losses of labeled images weigh 1 each, as released.
    weight: NotNegative = 1.0
    # Share of training over which it rises (sigmoid). Of this suite: for runs so short that the first labels are noise.
    ramp: Fraction = 0.0
    # Whether there is a branch of class activation maps (released: --use_attention). Without it the label is the
    # sharpened prediction of the decoder. Unset: where class 0 is called background; on street scenes next to every
    # tag is in every image and says nothing.
    class_activation: bool | None = None
    # Of the key and the query by which activations are refined (released: --attention_dim).
    attention_channels: Annotated[int, Field(ge=1, le=1024)] = 128
    # Batch norms of the backbone where it gives maps of unlabeled images. "eval": by running statistics, in a pass of
    # its own (released: `is_training=False`); "train": the features that the decoder sees, at no cost; of this suite.
    activation_mode: Literal["eval", "train"] = "eval"
    # Share of the decoder's prediction in the label, the rest is that of the maps (released: their mean).
    decoder_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    # Whether the logits of both are divided by their joint root mean square before (released: --logit_norm).
    normalised: bool = True
    # Temperature of sharpening: probabilities to the power 1 / this, normalised (released: --temperature).
    temperature: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    # A label counts where its highest probability is this or more (released: --pseudo_label_threshold, 0: no gate).
    confidence_gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    # Sides of the box that is cut out of the strong view, in those of the crop (released: 100 pixels of 513).
    cutout_side: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.195

    @property
    def label(self) -> str:
        """What captions call it."""
        return "PseudoSeg"

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """Whether there are activation maps, where it is unset; keys that nothing reads then set back."""
        decided = self.class_activation
        if decided is None:
            decided = has_background(config.data.dataset)
        update: dict[str, Any] = {"class_activation": decided}
        unread = set() if decided else set(OF_ACTIVATION)
        if config.model.norm == "frozen":
            # These statistics are the running ones.
            unread.add("activation_mode")
        update |= {key: type(self).model_fields[key].default for key in unread}
        return {"method": self.model_copy(update=update)}

    def warnings(self, config: RunConfig) -> list[str]:
        """Also a gate beside FPL, tags that say nothing, and maps that nothing normalises."""
        found = super().warnings(config)
        found += gate_warnings("method.confidence_gate", self.confidence_gate, config.loss)
        if self.class_activation and not has_background(config.data.dataset):
            found.append(
                f"method.class_activation = true on {config.data.dataset}: it has no background, so most classes are "
                "in every image, and which ones are there tells the maps little; method.class_activation = false "
                "leaves the label to the decoder"
            )
        if self.class_activation and config.model.norm == "frozen":
            found.append(
                "model.norm = frozen: the layer behind the refined maps, which is trained from random weights, would "
                'go without its normalisation; model.norm = "batch", or method.class_activation = false'
            )
        return found
