"""The data dictionary: every column of every Parquet table, its type, its unit and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from fpl.store.schema import (
    CHOICES,
    CLASSES,
    EXAMPLES,
    FAILURES,
    FUZZINESS,
    HISTORY,
    NOISE,
    PROTOCOLS,
    RUNS,
    STUDIES,
    TRIALS,
)


class Meaning(NamedTuple):
    """What a column is, and its unit; the unit is empty where there is none."""

    unit: str
    what: str


Table = Mapping[str, tuple[pa.DataType, str, str]]

TEXT, INTEGER, REAL, BYTES = pa.string(), pa.int64(), pa.float64(), pa.binary()
TEXTS, INTEGERS, REALS = pa.list_(TEXT), pa.list_(INTEGER), pa.list_(REAL)

TABLES: Mapping[str, str] = {
    RUNS: "One row a finished run. Its settings are dotted columns beside these (`loss.threshold`).",
    HISTORY: "One row a logged number: losses, learning rate, validation mIoU.",
    CLASSES: "One row a class of a run and a choice of weights.",
    FUZZINESS: "One row a logged step and direction of the pixel loss: what fuzzy positives were given.",
    EXAMPLES: "Pictures of a few fixed images, of the runs that a figure shows.",
    FAILURES: "One row a run that ended with an error; it goes when the run succeeds.",
    NOISE: "One row a repetition of one run with the same seed.",
    STUDIES: "One row a study of a search: what its trials share.",
    TRIALS: "One row a trial, written when it is proposed and again at each of its reports.",
}
_PROTOCOL_WORDS = {"sliding": "sliding windows", "whole": "whole images", "center": "center crops"}
_CHOICE_WORDS = {"last": "after the last step", "best": "at the best validation, chosen on the same images"}
_METRIC_WORDS = {"miou": "mean intersection over union of the classes", "pixel_accuracy": "share of right pixels"}
_METRICS: Table = {
    f"{metric}_{protocol}_{choice}": (REAL, "%", f"{words}, {_PROTOCOL_WORDS[protocol]}, {_CHOICE_WORDS[choice]}")
    for metric, words in _METRIC_WORDS.items()
    for protocol in PROTOCOLS
    for choice in CHOICES
}
_RUN_ID = (TEXT, "", "run that it belongs to: the key into `runs`")
_RECIPE = (TEXT, "", "what runs share that differ only in the hashes of their data")
_STEP = (INTEGER, "steps", "training steps taken")
_DEVICE = (TEXT, "", "CPU or GPU model that it ran on")
_THREADS = (INTEGER, "threads", "CPU threads of torch")
_VERSION = (TEXT, "", "version of this package")
_CASES = "by case: the true class is the teacher's first choice, another fuzzy positive, none"

_TABLES: Mapping[str, Table] = {
    # A run is done when its row is there and can be read.
    RUNS: {
        "run_id": (
            TEXT,
            "",
            "name of the run: data, method, loss, backbone, split, seed and eight digits of its digest",
        ),
        "digest": (TEXT, "", "SHA-256 of the canonical configuration"),
        "config": (TEXT, "", "the canonical configuration as JSON"),
        **_METRICS,
        "best_step": (INTEGER, "steps", "when the best validation was"),
        "constant_class": (TEXT, "", "the class that a network would best predict everywhere"),
        "constant_miou": (REAL, "%", "mIoU of predicting that class everywhere"),
        "labeled_images": (INTEGER, "images", "in the labeled list"),
        "unlabeled_images": (INTEGER, "images", "in the unlabeled list"),
        "validation_images": (INTEGER, "images", "that were validated on"),
        "pixels_counted": (INTEGER, "pixels", "with a label in the validation images"),
        "train_seconds": (REAL, "s", "wall time of training, validation apart, all sessions together"),
        "finished_at": (TEXT, "UTC", "when the run was done"),
        "device": _DEVICE,
        "instructions": (TEXT, "", "vector instructions of the processor, which decide how sums are rounded"),
        "workers": (INTEGER, "processes", "that shared each batch"),
        "threads": _THREADS,
        # Several if the run was continued by another; null for a run without that loss.
        "loss_implementation": (TEXT, "", "of the fuzzy positive loss: cpu, triton or tensor"),
        # As PyTorch was set on a device that has it; null in files of older versions.
        "tf32": (TEXT, "", "on or off: whether convolutions and products of float32 were computed in TF32"),
        "weights_source": (TEXT, "", "file of the pretrained weights"),
        "weights_sha256": (TEXT, "", "SHA-256 of that file"),
        "fpl_version": _VERSION,
        "commit": (TEXT, "", "commit of the code; + if it was changed"),
        "python": (TEXT, "", "version of Python"),
        "torch": (TEXT, "", "version of torch"),
        "cuda": (TEXT, "", "version of CUDA"),
        "warnings": (TEXTS, "", "what was doubtful, in words"),
    },
    # Long form: any method may log any term.
    HISTORY: {
        "run_id": _RUN_ID,
        "step": _STEP,
        "metric": (TEXT, "", "name of the number"),
        "value": (REAL, "that of the metric; mIoU in %", "the number"),
    },
    CLASSES: {
        "run_id": _RUN_ID,
        "choice": (TEXT, "", "weights: best or last"),
        "class_index": (INTEGER, "", "number of the class in labels"),
        "class_name": (TEXT, "", "its name"),
        "iou": (REAL, "%", "intersection over union; null if the class is nowhere"),
        "label_pixels": (INTEGER, "pixels", "of that class by the label"),
        "predicted_pixels": (INTEGER, "pixels", "of that class by the network"),
        "right_pixels": (INTEGER, "pixels", "of that class by both"),
    },
    # One row per logged step and direction of the pixel loss. From `k_histogram_uncapped` on only at steps with
    # diagnostics (`fpl.losses.diagnostics` defines each quantity). Lists of three are by case: the true class is the
    # first choice of the teacher, another fuzzy positive, none. What needs it is null where no pixel has a known one.
    FUZZINESS: {
        "run_id": _RUN_ID,
        "step": _STEP,
        "direction": (TEXT, "", "which network taught which"),
        "pixels": (INTEGER, "pixels", "that the loss saw"),
        "mean_k": (REAL, "classes", "mean number K of fuzzy positives"),
        "share_k1": (REAL, "0 to 1", "share of pixels with K = 1"),
        "mean_weight": (REAL, "0 to 1", "mean adaptive weight"),
        "mean_fuzzy_loss": (REAL, "nats", "mean loss before weighing"),
        "mean_weighted_loss": (REAL, "nats", "mean loss after weighing"),
        "mean_cross_entropy": (REAL, "nats", "mean cross-entropy to the teacher's first choice"),
        "k_histogram": (INTEGERS, "pixels", "with K = 1, 2, ...; of strategy soft the nearest"),
        "k_histogram_uncapped": (INTEGERS, "pixels", "the same by the paper's rule, without the released bound of 3"),
        "fuzzy_to_cross_entropy": (REAL, "ratio", "mean weighted loss over mean cross-entropy"),
        "labeled_pixels": (INTEGER, "pixels", "whose true class is known"),
        "impurity": (REAL, "0 to 1", "share of pixels whose true class is no fuzzy positive"),
        "case_pixels": (INTEGERS, "pixels", _CASES),
        "case_1_k1_pixels": (INTEGER, "pixels", "of case 1 with K = 1"),
        "vanilla_score": (REALS, "-1 to 1", f"mean positive gradient score of cross-entropy, R^v, {_CASES}"),
        "vanilla_score_std": (REALS, "-1 to 1", "its standard deviation over pixels"),
        "fuzzy_score": (REALS, "-1 to 1", f"mean positive gradient score of FPL, R^f, {_CASES}"),
        "fuzzy_score_std": (REALS, "-1 to 1", "its standard deviation over pixels"),
        "cosine_fuzzy": (REAL, "-1 to 1", "case 2: mean cosine of FPL's gradient and that of the true label"),
        "cosine_vanilla": (REAL, "-1 to 1", "case 2: the same of cross-entropy"),
        "cosine_fuzzy_positive": (REAL, "0 to 1", "share of the pixels of case 2 whose cosine for FPL is positive"),
        "norm_fuzzy": (REAL, "1", "case 2: mean norm of FPL's gradient at a pixel's logits"),
        "norm_ideal": (REAL, "1", "case 2: the same of the true label's cross-entropy"),
        "norm_fuzzy_all": (REAL, "1", "mean norm of FPL's gradient over all pixels of a known class"),
        "norm_ideal_all": (REAL, "1", "the same of the true label's cross-entropy"),
        "gradient_sum_n_minus_1": (REAL, "1", "mean sum of the negatives' gradients with K = n - 1"),
        "gradient_sum_n": (REAL, "1", "the same with K = n on the same logits"),
        # Null where K has no pixel.
        "entropy_by_k": (REALS, "nats", "mean entropy of the teacher's prediction over the pixels of each K"),
        "entropy_std_by_k": (REALS, "nats", "its standard deviation over pixels"),
    },
    # `kind`: at a few steps `k` (uint8 [h, w]); after the last alone `image` (uint8 [h, w, 3]), `ground_truth` (uint8
    # [h, w]; 255: unknown), `vanilla_score`, `fuzzy_score` (float16 [h, w]; NaN where the true class is unknown) and,
    # of images for validation, `prediction` (uint8 [h, w], of the network that is evaluated). `data` is row by row.
    EXAMPLES: {
        "run_id": _RUN_ID,
        "step": _STEP,
        "part": (TEXT, "", "unlabeled or val"),
        "image_id": (TEXT, "", "the image"),
        "kind": (TEXT, "", "image, ground_truth, k, vanilla_score, fuzzy_score or prediction"),
        "height": (INTEGER, "pixels", "of the picture"),
        "width": (INTEGER, "pixels", "of the picture"),
        "data": (BYTES, "bytes", "the picture row by row; `Results.examples` has it as an array in `array`"),
    },
    FAILURES: {
        "run_id": _RUN_ID,
        "recipe": _RECIPE,
        "seed": (INTEGER, "", "of the run"),
        "reason": (TEXT, "", "in words"),
        "log": (TEXT, "", "file with more"),
        "failed_at": (TEXT, "UTC", "when"),
    },
    NOISE: {
        "run_id": _RUN_ID,
        "recipe": _RECIPE,
        "cell": (TEXT, "", "cell whose run is repeated"),
        "repeat": (INTEGER, "", "number of the repetition"),
        **_METRICS,
        "device": _DEVICE,
        "threads": _THREADS,
        "finished_at": (TEXT, "UTC", "when the repetition was done"),
    },
    STUDIES: {
        "study": (TEXT, "", "name of the study: search and cell"),
        "search": (TEXT, "", "name of the search"),
        "caption": (TEXT, "", "what it asks"),
        "cell": (TEXT, "", "cell whose run is varied"),
        "scale": (TEXT, "", "scale of its runs"),
        "base": (TEXT, "", "canonical JSON of the varied run"),
        "space": (TEXT, "", "what is varied, as a JSON list of parameters"),
        "labeled_images": (INTEGER, "images", "in the labeled list"),
        "seeds": (INTEGER, "runs", "of a trial, by seed"),
        "splits": (INTEGER, "runs", "of a trial, by split"),
        "steps": (INTEGER, "steps", "of a run"),
        "metric": (TEXT, "", "column of `runs` that trials are compared by"),
        "objectives": (TEXTS, "", "what is optimised"),
        "protocol": (TEXT, "", "val or holdout"),
        "holdout": (INTEGER, "", "every so-manieth labeled image is held out"),
        "sampler": (TEXT, "", "tpe, random, gp or grid"),
        "sampler_seed": (INTEGER, "", "its seed"),
        "stop": (TEXT, "", "rule of early stopping"),
        "budget": (TEXT, "", "of all studies together, as it was given"),
        "device_unit": (TEXT, "", "what device-hours are of: gpu or core"),
        "device": _DEVICE,
        "wall_seconds": (REAL, "s", "wall time of all calls together"),
        "updated_at": (TEXT, "UTC", "when the row was written"),
        "fpl_version": _VERSION,
    },
    TRIALS: {
        "study": (TEXT, "", "study that it belongs to: the key into `studies`"),
        "number": (INTEGER, "", "number within the study"),
        # `running` is also what was cut off by a kill or the end of the budget: it will be continued. `final`: the best
        # setting with all labels, after a holdout search.
        "state": (TEXT, "", "running, complete, pruned (stopped early), failed or final"),
        "params": (TEXT, "", "its settings as JSON"),
        "origin": (TEXT, "", "the paper's cell whose setting it is, or the sampler that proposed it"),
        "score": (REAL, "%", "mean of the study's metric over its runs; of a pruned trial the last that it reported"),
        "score_std": (REAL, "points", "standard deviation over its runs"),
        "runs_scored": (INTEGER, "runs", "behind the score"),
        "run_ids": (TEXTS, "", "its runs"),
        "run_scores": (REALS, "%", "of each of them"),
        "step": (INTEGER, "steps", "taken, all runs together"),
        "steps": (INTEGERS, "steps", "at its reports"),
        "values": (REALS, "%", "validation mIoU at its reports"),
        "device_hours": (REAL, "h", "of `device_unit`, all sessions together"),
        "cost": (REAL, "h", "of these, those of training its finished runs: the objective `cost`"),
        "reason": (TEXT, "", "why it failed or was stopped"),
        "started_at": (TEXT, "UTC", "when it was proposed"),
        "updated_at": (TEXT, "UTC", "when the row was written"),
    },
}
# One explicit schema per table, so that files of different runs always fit together.
SCHEMAS: dict[str, pa.Schema] = {
    table: pa.schema([(name, kind) for name, (kind, _, _) in columns.items()]) for table, columns in _TABLES.items()
}
COLUMNS: Mapping[str, Mapping[str, Meaning]] = {
    table: {name: Meaning(unit, what) for name, (_, unit, what) in columns.items()}
    for table, columns in _TABLES.items()
}
# Of `Results.cells`, which is made of `runs` and the tables of `experiments/`.
CELLS: Mapping[str, Meaning] = {
    name: Meaning(*meaning)
    for name, meaning in {
        "scale": ("", "of its runs"),
        "table": ("", "of the paper"),
        "row": ("", "its key in the table"),
        "column": ("", "its key in the table"),
        "seed": ("", "of the run; null for a cell that is not run"),
        "role": ("", "of the row: cited, baseline, proposed, ablation or control (this suite's)"),
        "label": ("", "head of the row, as printed"),
        "header": ("", "head of the column, as printed"),
        "metric": ("", "what is printed: miou (%), seconds_per_epoch (s) or threshold (T)"),
        "printed": ("that of the metric", "the paper's number; null for a dash or a row of this suite"),
        "arrow_printed": ("that of the metric", "the paper's printed improvement"),
        "ours": ("that of the metric", "that of the run, by the table's choice of weights"),
        "run_id": _RUN_ID[1:],
        "recipe": _RECIPE[1:],
        "reason": ("", "why there is no run"),
    }.items()
}
# What frames have beside the columns of their table.
DERIVED: Mapping[str, Meaning] = {
    name: Meaning(*meaning)
    for name, meaning in {
        "recipe": _RECIPE[1:],
        "arithmetic": ("", "version of the arithmetic that made the run"),
        "seed": ("", "of the run"),
        "data.split.fraction": ("", "labeled share or number of images; sorted by size"),
        "array": ("", "the picture as an array"),
        "share": ("0 to 1", "steps taken of those of a whole trial"),
        "miou": ("%", "validation mIoU, by the run's own protocol"),
        "pixel_accuracy": ("%", "share of right validation pixels"),
        "lr": ("", "learning rate"),
        "loss": ("", "what is minimised"),
        "mean_k": ("classes", "mean number K of fuzzy positives"),
        "threshold": ("0 to 1", "T of the step, where it follows from labeled images"),
    }.items()
}
