"""The data dictionary: what every column of every Parquet table is, and its unit. `fpl.store.schema` has the types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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


Table = Mapping[str, tuple[str, str]]

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
    f"{metric}_{protocol}_{choice}": ("%", f"{words}, {_PROTOCOL_WORDS[protocol]}, {_CHOICE_WORDS[choice]}")
    for metric, words in _METRIC_WORDS.items()
    for protocol in PROTOCOLS
    for choice in CHOICES
}
_RUN_ID = ("", "run that it belongs to: the key into `runs`")
_RECIPE = ("", "what runs share that differ only in the hashes of their data")
_STEP = ("steps", "training steps taken")
_DEVICE = ("", "CPU or GPU model that it ran on")
_THREADS = ("threads", "CPU threads of torch")
_VERSION = ("", "version of this package")
_CASES = "by case: the true class is the teacher's first choice, another fuzzy positive, none"

_TABLES: Mapping[str, Table] = {
    RUNS: {
        "run_id": ("", "name of the run: data, method, loss, backbone, split, seed and eight digits of its digest"),
        "digest": ("", "SHA-256 of the canonical configuration"),
        "config": ("", "the canonical configuration as JSON"),
        **_METRICS,
        "best_step": ("steps", "when the best validation was"),
        "constant_class": ("", "the class that a network would best predict everywhere"),
        "constant_miou": ("%", "mIoU of predicting that class everywhere"),
        "labeled_images": ("images", "in the labeled list"),
        "unlabeled_images": ("images", "in the unlabeled list"),
        "validation_images": ("images", "that were validated on"),
        "pixels_counted": ("pixels", "with a label in the validation images"),
        "train_seconds": ("s", "wall time of training, validation apart, all sessions together"),
        "finished_at": ("UTC", "when the run was done"),
        "device": _DEVICE,
        "instructions": ("", "vector instructions of the processor, which decide how sums are rounded"),
        "workers": ("processes", "that shared each batch"),
        "threads": _THREADS,
        "loss_implementation": ("", "of the fuzzy positive loss: cpu, triton or tensor"),
        "tf32": ("", "on or off: whether convolutions and products of float32 were computed in TF32"),
        "weights_source": ("", "file of the pretrained weights"),
        "weights_sha256": ("", "SHA-256 of that file"),
        "fpl_version": _VERSION,
        "commit": ("", "commit of the code; + if it was changed"),
        "python": ("", "version of Python"),
        "torch": ("", "version of torch"),
        "cuda": ("", "version of CUDA"),
        "warnings": ("", "what was doubtful, in words"),
    },
    HISTORY: {
        "run_id": _RUN_ID,
        "step": _STEP,
        "metric": ("", "name of the number"),
        "value": ("that of the metric; mIoU in %", "the number"),
    },
    CLASSES: {
        "run_id": _RUN_ID,
        "choice": ("", "weights: best or last"),
        "class_index": ("", "number of the class in labels"),
        "class_name": ("", "its name"),
        "iou": ("%", "intersection over union; null if the class is nowhere"),
        "label_pixels": ("pixels", "of that class by the label"),
        "predicted_pixels": ("pixels", "of that class by the network"),
        "right_pixels": ("pixels", "of that class by both"),
    },
    FUZZINESS: {
        "run_id": _RUN_ID,
        "step": _STEP,
        "direction": ("", "which network taught which"),
        "pixels": ("pixels", "that the loss saw"),
        "mean_k": ("classes", "mean number K of fuzzy positives"),
        "share_k1": ("0 to 1", "share of pixels with K = 1"),
        "mean_weight": ("0 to 1", "mean adaptive weight"),
        "mean_fuzzy_loss": ("nats", "mean loss before weighing"),
        "mean_weighted_loss": ("nats", "mean loss after weighing"),
        "mean_cross_entropy": ("nats", "mean cross-entropy to the teacher's first choice"),
        "k_histogram": ("pixels", "with K = 1, 2, ...; of strategy soft the nearest"),
        "k_histogram_uncapped": ("pixels", "the same by the paper's rule, without the released bound of 3"),
        "fuzzy_to_cross_entropy": ("ratio", "mean weighted loss over mean cross-entropy"),
        "labeled_pixels": ("pixels", "whose true class is known"),
        "impurity": ("0 to 1", "share of pixels whose true class is no fuzzy positive"),
        "case_pixels": ("pixels", _CASES),
        "case_1_k1_pixels": ("pixels", "of case 1 with K = 1"),
        "vanilla_score": ("-1 to 1", f"mean positive gradient score of cross-entropy, R^v, {_CASES}"),
        "vanilla_score_std": ("-1 to 1", "its standard deviation over pixels"),
        "fuzzy_score": ("-1 to 1", f"mean positive gradient score of FPL, R^f, {_CASES}"),
        "fuzzy_score_std": ("-1 to 1", "its standard deviation over pixels"),
        "cosine_fuzzy": ("-1 to 1", "case 2: mean cosine of FPL's gradient and that of the true label"),
        "cosine_vanilla": ("-1 to 1", "case 2: the same of cross-entropy"),
        "cosine_fuzzy_positive": ("0 to 1", "share of the pixels of case 2 whose cosine for FPL is positive"),
        "norm_fuzzy": ("1", "case 2: mean norm of FPL's gradient at a pixel's logits"),
        "norm_ideal": ("1", "case 2: the same of the true label's cross-entropy"),
        "norm_fuzzy_all": ("1", "mean norm of FPL's gradient over all pixels of a known class"),
        "norm_ideal_all": ("1", "the same of the true label's cross-entropy"),
        "gradient_sum_n_minus_1": ("1", "mean sum of the negatives' gradients with K = n - 1"),
        "gradient_sum_n": ("1", "the same with K = n on the same logits"),
        "entropy_by_k": ("nats", "mean entropy of the teacher's prediction over the pixels of each K"),
        "entropy_std_by_k": ("nats", "its standard deviation over pixels"),
    },
    EXAMPLES: {
        "run_id": _RUN_ID,
        "step": _STEP,
        "part": ("", "unlabeled or val"),
        "image_id": ("", "the image"),
        "kind": ("", "image, ground_truth, k, vanilla_score, fuzzy_score or prediction"),
        "height": ("pixels", "of the picture"),
        "width": ("pixels", "of the picture"),
        "data": ("bytes", "the picture row by row; `Results.examples` has it as an array in `array`"),
    },
    FAILURES: {
        "run_id": _RUN_ID,
        "recipe": _RECIPE,
        "seed": ("", "of the run"),
        "reason": ("", "in words"),
        "log": ("", "file with more"),
        "failed_at": ("UTC", "when"),
    },
    NOISE: {
        "run_id": _RUN_ID,
        "recipe": _RECIPE,
        "cell": ("", "cell whose run is repeated"),
        "repeat": ("", "number of the repetition"),
        **_METRICS,
        "device": _DEVICE,
        "threads": _THREADS,
        "finished_at": ("UTC", "when the repetition was done"),
    },
    STUDIES: {
        "study": ("", "name of the study: search and cell"),
        "search": ("", "name of the search"),
        "caption": ("", "what it asks"),
        "cell": ("", "cell whose run is varied"),
        "scale": ("", "scale of its runs"),
        "base": ("", "canonical JSON of the varied run"),
        "space": ("", "what is varied, as a JSON list of parameters"),
        "labeled_images": ("images", "in the labeled list"),
        "seeds": ("runs", "of a trial, by seed"),
        "splits": ("runs", "of a trial, by split"),
        "steps": ("steps", "of a run"),
        "metric": ("", "column of `runs` that trials are compared by"),
        "objectives": ("", "what is optimised"),
        "protocol": ("", "val or holdout"),
        "holdout": ("", "every so-manieth labeled image is held out"),
        "sampler": ("", "tpe, random, gp or grid"),
        "sampler_seed": ("", "its seed"),
        "stop": ("", "rule of early stopping"),
        "budget": ("", "of all studies together, as it was given"),
        "device_unit": ("", "what device-hours are of: gpu or core"),
        "device": _DEVICE,
        "wall_seconds": ("s", "wall time of all calls together"),
        "updated_at": ("UTC", "when the row was written"),
        "fpl_version": _VERSION,
    },
    TRIALS: {
        "study": ("", "study that it belongs to: the key into `studies`"),
        "number": ("", "number within the study"),
        "state": ("", "running, complete, pruned (stopped early), failed or final"),
        "params": ("", "its settings as JSON"),
        "origin": ("", "the paper's cell whose setting it is, or the sampler that proposed it"),
        "score": ("%", "mean of the study's metric over its runs; of a pruned trial the last that it reported"),
        "score_std": ("points", "standard deviation over its runs"),
        "runs_scored": ("runs", "behind the score"),
        "run_ids": ("", "its runs"),
        "run_scores": ("%", "of each of them"),
        "step": ("steps", "taken, all runs together"),
        "steps": ("steps", "at its reports"),
        "values": ("%", "validation mIoU at its reports"),
        "device_hours": ("h", "of `device_unit`, all sessions together"),
        "cost": ("h", "of these, those of training its finished runs: the objective `cost`"),
        "reason": ("", "why it failed or was stopped"),
        "started_at": ("UTC", "when it was proposed"),
        "updated_at": ("UTC", "when the row was written"),
    },
}
COLUMNS: Mapping[str, Mapping[str, Meaning]] = {
    table: {name: Meaning(*meaning) for name, meaning in columns.items()} for table, columns in _TABLES.items()
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
        "run_id": _RUN_ID,
        "recipe": _RECIPE,
        "reason": ("", "why there is no run"),
    }.items()
}
# What frames have beside the columns of their table.
DERIVED: Mapping[str, Meaning] = {
    name: Meaning(*meaning)
    for name, meaning in {
        "recipe": _RECIPE,
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
