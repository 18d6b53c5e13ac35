"""What makes two runs the same run: the canonical form of a configuration, its digests, its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from fpl.config.layers import flatten
from fpl.config.schema import RunConfig
from fpl.errors import FplError

# Raised when the arithmetic of training or evaluation changes, or the meaning of a key: results of the old one must not
# answer for the new one. `tests/train/test_arithmetic.py` fails when that was forgotten.
ARITHMETIC = 2

_ID_DIGITS = 8

# Filled in from the data at hand: they pin a run to its inputs and are no part of its recipe.
PINS = ("data.version", "data.contents", "data.split.labeled", "data.split.unlabeled", "model.pretrained_sha256")


def canonical(config: RunConfig) -> str:
    """The configuration as JSON with sorted keys: equal text means equal run."""
    return _canonical_text(config.model_dump(mode="json"), ARITHMETIC)


def _canonical_text(tree: Mapping[str, Any], arithmetic: int) -> str:
    return json.dumps({"arithmetic": arithmetic, **tree}, sort_keys=True, separators=(",", ":"))


def digest(config: RunConfig) -> str:
    """What tells runs apart: `digest_of` the canonical form."""
    return digest_of(canonical(config))


def digest_of(text: str) -> str:
    """First 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_of(run: str, tree: Mapping[str, Any]) -> bool:
    """Whether a run's id is that of a configuration as a file of the run has it, of this version or an earlier one."""
    versions = range(1, ARITHMETIC + 1)
    return run.rpartition("-")[2] in {digest_of(_canonical_text(tree, each))[:_ID_DIGITS] for each in versions}


def recipe_digest(tree: Mapping[str, Any]) -> str:
    """Digest of a configuration without its pins (`PINS`): what two runs of one recipe on different data share.

    Args:
        tree: `RunConfig.model_dump(mode="json")`, or the JSON of `canonical` as nested tables.
    """
    return digest_of(_recipe_text(tree))


def recipes_by_seed(tree: Mapping[str, Any]) -> Callable[[int], str]:
    """Recipe digests of configurations that differ from one in their seed alone, each in a microsecond or two.

    Args:
        tree: As for `recipe_digest`; its own seed does not matter.

    Returns:
        Seed -> what `recipe_digest` gives for the configuration with it.
    """
    head, found, tail = _recipe_text({**tree, "seed": 0}).partition(_SEED)
    if not found or _SEED[:-1] in tail:
        # Another key of that name lies within a list: which is the run's is not seen by the text.
        return lambda seed: recipe_digest({**tree, "seed": seed})
    return lambda seed: digest_of(f"{head}{_SEED[:-1]}{seed}{tail}")


# How the text of a recipe has the seed 0. Within a string its quotes would be escaped.
_SEED = '"seed": 0'


def _recipe_text(tree: Mapping[str, Any]) -> str:
    flat = {"arithmetic": ARITHMETIC, **flatten(tree)}
    for key in PINS:
        flat.pop(key, None)
    return json.dumps(flat, sort_keys=True)


def run_id(config: RunConfig) -> str:
    """The run's identity: readable words, then 8 digits of the digest (`camvid-cps-fpl-lite0-1_8-s0-3fa91c02`).

    Raises:
        FplError: The split's digests are not filled in: lists of equal length could be confused.
    """
    split = config.data.split
    if split.labeled is None or split.unlabeled is None:
        raise FplError(
            "the run has no identity before its split is read",
            where="data.split",
            hint="call fpl.data.splits.resolve_split(config, splits_root) first",
        )
    backbone = {"resnet50": "r50", "resnet101": "r101", "efficientnet_lite0": "lite0"}.get(
        config.model.backbone, config.model.backbone
    )
    kind = [config.loss.kind.replace("+", "_")] if config.method.unlabeled else []
    words = [
        config.data.dataset,
        config.method.word,
        *kind,
        backbone,
        split.fraction.replace("/", "_")[:8],
        *([f"h{split.holdout}"[:6]] if split.holdout is not None else []),
        f"s{config.seed}",
    ]
    # A folder and files are named after it: numbers are cut, for the digest tells them apart.
    return "-".join([*words, digest(config)[:_ID_DIGITS]])
