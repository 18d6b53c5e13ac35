"""What a method's `[method]` table is: its options, and the answers to all that others ask of a method without torch.

A method's own table derives from `MethodOptions` and overrides what is different there; `fpl.config.registry` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fpl.config.section import Section

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fpl.config.schema import RunConfig

# Kinds of the pixel loss whose values have the scale of a cross-entropy: one weight serves them all.
LIKE_CROSS_ENTROPY = ("ce", "fpl", "soft", "negative", "ce+negative")


class MethodOptions(Section):
    """The `[method]` table of one method.

    Class variables and properties are what others ask; the fields of a derived class are the options. `name` is a
    `Literal` there, and what the registry calls the method.
    """

    # `package.module:Class` of what trains; loaded only for that, since it needs torch.
    implementation: ClassVar[str]
    # Whether a step takes unlabeled images: without them the run has no pixel loss.
    unlabeled: ClassVar[bool] = True
    # Unlabeled images of one slot by which a step brings an epoch further, as the released code counts.
    epoch_images: ClassVar[int] = 1
    # Whether nothing of a crop outside its image (`Batch.valid`) has a part in any loss.
    ignores_padding: ClassVar[bool] = False
    # Tables, without the name, under which every check of all methods is made: each way to train, and values for
    # options without a default.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    # Kind of the pixel loss (or of those that share its scale) that the weight of the unsupervised term belongs to.
    native_kind: ClassVar[str] = "ce"

    name: str

    @property
    def word(self) -> str:
        """What run ids call it: letters and digits."""
        return self.name.replace("_", "")

    @property
    def label(self) -> str:
        """What captions call it."""
        return self.name

    @property
    def may_concatenate(self) -> bool:
        """Whether `train.concatenate` has a meaning."""
        return False

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """Sections of the run with every key decided that this method decides, by their names.

        Called while the run is validated, in place of knowledge of the method elsewhere. It may hold `method` itself.
        """
        return {}

    def problems(self, config: RunConfig) -> list[str]:
        """Contradictions with other sections, which the run is refused for; each names the key and the way out."""
        return []

    def warnings(self, config: RunConfig) -> list[str]:
        """What is allowed but rarely meant, one sentence each."""
        found = []
        # A method may be without such an option.
        weight: float | None = getattr(self, "weight", None)
        if weight == 0.0:
            found.append("method.weight = 0: the unlabeled images have no influence on this run")
        elif weight is not None and not same_scale(self.native_kind, config.loss.kind):
            found.append(
                f"method.weight = {weight:g} with loss.kind = {config.loss.kind}: the publication weighs "
                f"{self.native_kind}, whose values have another scale, so its weight does not carry over"
            )
        return found

    def data_warnings(self, histogram: NDArray[np.int64], class_names: Sequence[str], images: int) -> list[str]:
        """What the labels at hand make doubtful.

        Args:
            histogram: Label pixels by value, int64 [256], of `images` labeled images.
            class_names: Names of the classes by number.
            images: How many were counted.
        """
        return []


def same_scale(kind: str, other: str) -> bool:
    """Whether one weight fits two kinds of pixel loss."""
    return kind == other or {kind, other} <= set(LIKE_CROSS_ENTROPY)
