"""What the paper and the released recipes say every cell has to be, written down apart from the table files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

FRACTIONS = ("1/32", "1/16", "1/8", "1/4")
BACKBONES = {"r50": "resnet50", "r101": "resnet101"}
LOW_DATA = ("92", "183", "366", "732")

# Appendix, Tables A1 and A2: R50 then R101, in the order of the columns.
T_CITYSCAPES = {
    "fpl_cps": (0.95, 0.9, 0.9, 0.9, 0.95, 0.95, 0.95, 0.9),
    "fpl_cps_cutmix": (0.9, 0.85, 0.85, 0.85, 0.9, 0.85, 0.85, 0.85),
    "fpl_ael": (0.95, 0.95, 0.9, 0.9, 0.9, 0.9, 0.85, 0.85),
}
T_VOC = {
    "fpl_cps": (0.9, 0.9, 0.9, 0.95, 0.9, 0.9),
    "fpl_cps_cutmix": (0.95, 0.9, 0.9, 0.9, 0.9, 0.9),
    "fpl_ael": (0.95, 0.95, 0.95, 0.95, 0.9, 0.9),
}
# Table A3, by position.
T_LOW_DATA = {"fpl_cps_cutmix": (0.95, 0.85, 0.85, 0.85)}

# Epochs of the released CPS scripts (124: their rule of equal steps), and the length of the longer list there.
CITY_EPOCHS = {"1/32": (124, 2975 - 92), "1/16": (128, 2975 - 185), "1/8": (137, 2975 - 371), "1/4": (160, 2975 - 743)}
VOC_EPOCHS = {"1/16": (32, 10582 - 661), "1/8": (34, 10582 - 1322), "1/4": (40, 10582 - 2645)}
BATCH = 8
# AEL: the same number of epochs for every split, and steps of one as its code counts them.
AEL_EPOCHS = {"cityscapes": 200, "voc": 80}
AEL_STEPS_PER_EPOCH = {
    "cityscapes": {"1/32": 180, "1/16": 174, "1/8": 163, "1/4": 139},
    "voc": {"1/16": 620, "1/8": 579, "1/4": 496},
}
TRAINING_IMAGES = {"cityscapes": 2975, "voc": 10582}

# Weight of the unsupervised term in the released scripts, without and with CutMix.
WEIGHTS = {"cityscapes": (6.0, 5.0), "voc": (1.5, 1.0)}


@dataclass(frozen=True)
class Expected:
    """What a cell's configuration has to hold at the paper's scale; None: whatever."""

    dataset: str
    fraction: str
    backbone: str
    steps: int
    epochs: int
    family: str = "every-nth"
    method: str = "cps"
    cutmix: bool | None = False
    weight: float | None = 1.0
    kind: str = "ce"
    threshold: float | None = None
    fidelity: str = "paper"
    strategy: str = "n-1"
    fixed_k: int | None = None
    shape: str = "concave"
    gated: bool = True

    @property
    def is_city(self) -> bool:
        return self.dataset == "cityscapes"

    @property
    def is_ael(self) -> bool:
        return self.method == "ael"

    @property
    def crop(self) -> tuple[int, int]:
        if self.is_ael:
            return (769, 769) if self.is_city else (513, 513)
        return (800, 800) if self.is_city else (512, 512)

    @property
    def lr(self) -> float:
        # As written / GPUs: AEL 0.01 on 8; CPS 0.02 on 8, 0.01 on 4.
        if self.is_ael:
            return 0.01 / 8
        return 0.02 / 8 if self.is_city else 0.01 / 4

    @property
    def weight_decay(self) -> float:
        return 1e-4 * (8 if self.is_city or self.is_ael else 4)

    @property
    def validated_every(self) -> int:
        """Epochs between validations."""
        if self.is_ael:
            return 5 if self.is_city else 2
        return 4 if self.is_city else 1


def on(dataset: str, fraction: str, backbone: str, *, cutmix: bool) -> Expected:
    """CPS in one cell of Tables 1 and 2."""
    epochs, images = (CITY_EPOCHS if dataset == "cityscapes" else VOC_EPOCHS)[fraction]
    weight = WEIGHTS[dataset][cutmix]
    return Expected(dataset, fraction, backbone, epochs * (images // BATCH), epochs, cutmix=cutmix, weight=weight)


def fpl(cps: Expected, threshold: float | None, **changes: object) -> Expected:
    return replace(cps, kind="fpl", threshold=threshold, **changes)  # type: ignore[arg-type]


def ael_on(dataset: str, fraction: str, backbone: str) -> Expected:
    """AEL in one cell of Tables 1 and 2."""
    epochs = AEL_EPOCHS[dataset]
    steps = epochs * AEL_STEPS_PER_EPOCH[dataset][fraction]
    return Expected(dataset, fraction, backbone, steps, epochs, method="ael", cutmix=None)


def controls(cps: Expected, threshold: float) -> dict[str, Expected]:
    assert cps.weight is not None
    return {
        "supervised": replace(cps, method="supervised", cutmix=None, weight=None),
        "cps_half": replace(cps, weight=cps.weight / 2),
        "weight_only": fpl(cps, None, strategy="fixed", fixed_k=1),
        "fpl_cps_released": fpl(cps, threshold, fidelity="released"),
    }


def standard(table: str, dataset: str, fractions: tuple[str, ...], t: dict[str, tuple[float, ...]]) -> Iterator:
    columns = [(short, backbone, fraction) for short, backbone in BACKBONES.items() for fraction in fractions]
    for number, (short, backbone, fraction) in enumerate(columns):
        key = f"{short}_{fraction.replace('/', '_')}"
        plain, mixed = (on(dataset, fraction, backbone, cutmix=cutmix) for cutmix in (False, True))
        ael = ael_on(dataset, fraction, backbone)
        rows = {
            "cps": plain,
            "fpl_cps": fpl(plain, t["fpl_cps"][number]),
            "cps_cutmix": mixed,
            "fpl_cps_cutmix": fpl(mixed, t["fpl_cps_cutmix"][number]),
            "ael": ael,
            "fpl_ael": fpl(ael, t["fpl_ael"][number]),
            **controls(plain, t["fpl_cps"][number]),
        }
        if dataset == "voc":
            rows |= {"ael_ungated": replace(ael, gated=False), "fpl_ael_ungated": replace(rows["fpl_ael"], gated=False)}
        yield from ((f"{table}.{row}.{key}", expected) for row, expected in rows.items())


def low_data() -> Iterator:
    for labels, t in zip(LOW_DATA, T_LOW_DATA["fpl_cps_cutmix"], strict=True):
        cps = Expected("voc", labels, "resnet101", 30 * (10582 // BATCH), 30, "pseudoseg-1464", cutmix=True, weight=0.5)
        rows = {"cps_cutmix": cps, "fpl_cps_cutmix": fpl(cps, t), **controls(cps, t)}
        yield from ((f"table3.{row}.n{labels}", expected) for row, expected in rows.items())


def ablations() -> Iterator:
    city = on("cityscapes", "1/16", "resnet50", cutmix=False)
    for column, t in {"t050": 0.5, "t075": 0.75, "t085": 0.85, "t090": 0.9, "t095": 0.95, "t099": 0.99}.items():
        yield f"table4.fpl_cps.{column}", fpl(city, t)
    for fraction in ("1/32", "1/16", "1/8"):
        column = "c" + fraction.replace("/", "_")
        cps = on("cityscapes", fraction, "resnet50", cutmix=False)
        yield f"table5.cps.{column}", cps
        for row, t in {"t085": 0.85, "t090": 0.9, "t095": 0.95}.items():
            yield f"table5.{row}.{column}", fpl(cps, t)
    for fraction in ("1/16", "1/8", "1/4"):
        column = "c" + fraction.replace("/", "_")
        cps = on("cityscapes", fraction, "resnet101", cutmix=True)
        yield f"table_a4.cps_cutmix.{column}", cps
        yield f"table_a4.soft_cps_cutmix.{column}", replace(cps, kind="soft")
        yield f"table_a4.nega_cps_cutmix.{column}", replace(cps, kind="negative")
        yield f"table_a4.fpl_cps_cutmix.{column}", fpl(cps, 0.85)
    voc = on("voc", "1/16", "resnet50", cutmix=False)
    yield "table_a5.fpl_cps.k3", fpl(voc, None, strategy="fixed", fixed_k=3)
    yield "table_a5.fpl_cps.k2", fpl(voc, None, strategy="fixed", fixed_k=2)
    yield "table_a5.fpl_cps.step", fpl(voc, None, strategy="step")
    yield "table_a5.fpl_cps.n", fpl(voc, 0.9, strategy="n")
    yield "table_a5.fpl_cps.n_1", fpl(voc, 0.9)
    yield "table_a5.fpl_cps_soft.n_1", fpl(voc, 0.9, strategy="soft")
    for dataset, t in {"cityscapes": 0.85, "voc": 0.9}.items():
        cps = on(dataset, "1/8", "resnet101", cutmix=True)
        yield f"table_a6.cps_cutmix.{dataset}", cps
        yield f"table_a6.fpl_cps_cutmix.{dataset}", fpl(cps, t)
        ael = ael_on(dataset, "1/8", "resnet101")
        yield f"table_a6.ael.{dataset}", ael
        yield f"table_a6.fpl_ael.{dataset}", fpl(ael, t)
    voc = on("voc", "1/8", "resnet101", cutmix=True)
    yield "figure_a6.cps_cutmix.c1_8", voc
    for shape in ("none", "linear", "convex", "concave"):
        yield f"figure_a6.weight_{shape}.c1_8", fpl(voc, 0.9, shape=shape)


EXPECTED: dict[str, Expected] = {
    **dict(standard("table1", "cityscapes", FRACTIONS, T_CITYSCAPES)),
    **dict(standard("table2", "voc", FRACTIONS[1:], T_VOC)),
    **dict(low_data()),
    **dict(ablations()),
}

# Cells of each table that the paper prints a number in, and the sum of these numbers: a typo changes it.
PRINTED = {
    "table1": (69, 5062.39),
    "table2": (66, 4838.21),
    "table3": (44, 2757.81),
    "table4": (6, 413.42),
    "table5": (9, 597.35),
    "table_a1": (24, 21.5),
    "table_a2": (18, 16.5),
    "table_a3": (4, 3.5),
    "table_a4": (15, 1154.73),
    "table_a5": (5, 318.84),
    "table_a6": (4, 3370.0),
    "figure_a6": (0, 0.0),
}

# Printed improvements that its own numbers contradict: cell -> printed, what the numbers give.
WRONG_ARROWS = {
    "table2.fpl_cps.r50_1_8": (0.36, 0.24),
    "table5.t085.c1_32": (0.90, 0.82),
    "table5.t090.c1_32": (1.08, 1.00),
    "table5.t095.c1_32": (1.45, 1.37),
}
