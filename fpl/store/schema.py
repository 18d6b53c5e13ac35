"""Columns of the Parquet files: one explicit schema per table, so that files of different runs always fit together."""

from __future__ import annotations

import pyarrow as pa

RUNS, HISTORY, CLASSES, FUZZINESS = "runs", "history", "classes", "fuzziness"
FAILURES, NOISE = "failures", "noise"
EXAMPLES = "examples"
STUDIES, TRIALS = "studies", "trials"

# Tables with a file per run, which is called after it. `runs` last: its row says that the others are there.
OF_ONE_RUN = (HISTORY, CLASSES, FUZZINESS, EXAMPLES, FAILURES, RUNS)

# mIoU in percent, named by protocol and by which weights were evaluated.
PROTOCOLS = ("sliding", "whole", "center")
CHOICES = ("last", "best")
METRICS = tuple(
    f"{metric}_{protocol}_{choice}"
    for metric in ("miou", "pixel_accuracy")
    for protocol in PROTOCOLS
    for choice in CHOICES
)

# Columns that no row may lack: by them it is found, counted and told apart. Any other may be missing from a file of an
# older version, and is null then.
KEYS: dict[str, tuple[str, ...]] = {
    RUNS: ("run_id", "digest", "config"),
    HISTORY: ("run_id", "step", "metric"),
    CLASSES: ("run_id", "choice", "class_index"),
    FUZZINESS: ("run_id", "step", "direction"),
    EXAMPLES: ("run_id", "step", "part", "image_id", "kind", "height", "width", "data"),
    FAILURES: ("run_id", "recipe"),
    NOISE: ("run_id", "recipe", "repeat"),
    STUDIES: (
        *("study", "search", "caption", "cell", "scale", "base", "space", "seeds", "splits", "steps", "metric"),
        *("objectives", "protocol", "sampler", "sampler_seed", "stop", "wall_seconds"),
    ),
    TRIALS: (
        *("study", "number", "state", "params", "origin", "run_ids", "run_scores", "step", "steps", "values"),
        *("device_hours", "cost"),
    ),
}

# Columns that hold a time: ISO 8601 in the files, UTC in frames.
TIMES = ("finished_at", "failed_at", "started_at", "updated_at")

# Columns that say when, where and by what something was made. All others are its results: two runs are equal when
# those are.
CIRCUMSTANCES: dict[str, tuple[str, ...]] = {
    RUNS: (
        "train_seconds",
        "finished_at",
        "device",
        "workers",
        "threads",
        "fpl_version",
        "commit",
        "python",
        "torch",
        "cuda",
        # Named by the code that made it; what it holds is `weights_sha256`.
        "weights_source",
        "instructions",
        "loss_implementation",
        "tf32",
    ),
    FAILURES: ("log", "failed_at"),
    NOISE: ("device", "threads", "finished_at"),
    STUDIES: ("device", "wall_seconds", "updated_at", "fpl_version"),
    TRIALS: ("device_hours", "cost", "started_at", "updated_at"),
}

SCHEMAS: dict[str, pa.Schema] = {
    # One row a run, which is done when this row is there and can be read. `config` is the canonical JSON and becomes
    # dotted columns.
    RUNS: pa.schema(
        [
            ("run_id", pa.string()),
            ("digest", pa.string()),
            ("config", pa.string()),
            *((name, pa.float64()) for name in METRICS),
            ("best_step", pa.int64()),
            ("constant_class", pa.string()),
            ("constant_miou", pa.float64()),
            ("labeled_images", pa.int64()),
            ("unlabeled_images", pa.int64()),
            ("validation_images", pa.int64()),
            ("pixels_counted", pa.int64()),
            ("train_seconds", pa.float64()),
            ("finished_at", pa.string()),
            ("device", pa.string()),
            # Vector instructions of the processor: they decide how sums are rounded.
            ("instructions", pa.string()),
            ("workers", pa.int64()),
            ("threads", pa.int64()),
            # Of the fuzzy positive loss: `cpu`, `triton` or `tensor`, several if the run was continued by another; null
            # for a run without that loss.
            ("loss_implementation", pa.string()),
            # "on" or "off", as PyTorch was set on a device that has it; null in files of older versions.
            ("tf32", pa.string()),
            ("weights_source", pa.string()),
            ("weights_sha256", pa.string()),
            ("fpl_version", pa.string()),
            ("commit", pa.string()),
            ("python", pa.string()),
            ("torch", pa.string()),
            ("cuda", pa.string()),
            ("warnings", pa.list_(pa.string())),
        ]
    ),
    # Long form: any method may log any term.
    HISTORY: pa.schema(
        [("run_id", pa.string()), ("step", pa.int64()), ("metric", pa.string()), ("value", pa.float64())]
    ),
    CLASSES: pa.schema(
        [
            ("run_id", pa.string()),
            ("choice", pa.string()),
            ("class_index", pa.int64()),
            ("class_name", pa.string()),
            ("iou", pa.float64()),
            ("label_pixels", pa.int64()),
            ("predicted_pixels", pa.int64()),
            ("right_pixels", pa.int64()),
        ]
    ),
    # One row per logged step and direction of the pixel loss. From `k_histogram_uncapped` on only at steps with
    # diagnostics (`fpl.losses.diagnostics` defines each quantity). Lists of three are by case: the true class is the
    # first choice of the teacher, another fuzzy positive, none. What needs it is null where no pixel has a known one.
    FUZZINESS: pa.schema(
        [
            ("run_id", pa.string()),
            ("step", pa.int64()),
            ("direction", pa.string()),
            ("pixels", pa.int64()),
            ("mean_k", pa.float64()),
            ("share_k1", pa.float64()),
            ("mean_weight", pa.float64()),
            ("mean_fuzzy_loss", pa.float64()),
            ("mean_weighted_loss", pa.float64()),
            ("mean_cross_entropy", pa.float64()),
            ("k_histogram", pa.list_(pa.int64())),
            # K by the paper's rule without the released bound of 3.
            ("k_histogram_uncapped", pa.list_(pa.int64())),
            ("fuzzy_to_cross_entropy", pa.float64()),
            ("labeled_pixels", pa.int64()),
            # Share of pixels whose true class is no fuzzy positive.
            ("impurity", pa.float64()),
            ("case_pixels", pa.list_(pa.int64())),
            ("case_1_k1_pixels", pa.int64()),
            # Positive gradient scores of cross-entropy (R^v) and of FPL (R^f): mean and standard deviation over pixels.
            ("vanilla_score", pa.list_(pa.float64())),
            ("vanilla_score_std", pa.list_(pa.float64())),
            ("fuzzy_score", pa.list_(pa.float64())),
            ("fuzzy_score_std", pa.list_(pa.float64())),
            # Case 2: mean cosine with the gradient of the true label; share of pixels where FPL's is positive.
            ("cosine_fuzzy", pa.float64()),
            ("cosine_vanilla", pa.float64()),
            ("cosine_fuzzy_positive", pa.float64()),
            ("norm_fuzzy", pa.float64()),
            ("norm_ideal", pa.float64()),
            # The same norms over all pixels of a known class.
            ("norm_fuzzy_all", pa.float64()),
            ("norm_ideal_all", pa.float64()),
            # Mean sum of the gradients of the negatives, with K = n - 1 and with K = n on the same logits.
            ("gradient_sum_n_minus_1", pa.float64()),
            ("gradient_sum_n", pa.float64()),
            # Entropy of the teacher's prediction in nats over the pixels of each K; null where K has none.
            ("entropy_by_k", pa.list_(pa.float64())),
            ("entropy_std_by_k", pa.list_(pa.float64())),
        ]
    ),
    # Pictures of a few fixed images, of runs that a figure shows. `kind`: at a few steps `k` (uint8 [h, w]); after the
    # last alone `image` (uint8 [h, w, 3]), `ground_truth` (uint8 [h, w]; 255: unknown), `vanilla_score`, `fuzzy_score`
    # (float16 [h, w]; NaN where the true class is unknown) and, of images for validation, `prediction` (uint8 [h, w],
    # of the network that is evaluated). `data` is row by row.
    EXAMPLES: pa.schema(
        [
            ("run_id", pa.string()),
            ("step", pa.int64()),
            # `unlabeled` or `val`.
            ("part", pa.string()),
            ("image_id", pa.string()),
            ("kind", pa.string()),
            ("height", pa.int64()),
            ("width", pa.int64()),
            ("data", pa.binary()),
        ]
    ),
    # One row a run that ended with an error; it goes when the run succeeds.
    FAILURES: pa.schema(
        [
            ("run_id", pa.string()),
            ("recipe", pa.string()),
            ("seed", pa.int64()),
            ("reason", pa.string()),
            ("log", pa.string()),
            ("failed_at", pa.string()),
        ]
    ),
    # One row a repetition of one run with the same seed: what chance alone does to the metrics.
    NOISE: pa.schema(
        [
            ("run_id", pa.string()),
            ("recipe", pa.string()),
            ("cell", pa.string()),
            ("repeat", pa.int64()),
            *((name, pa.float64()) for name in METRICS),
            ("device", pa.string()),
            ("threads", pa.int64()),
            ("finished_at", pa.string()),
        ]
    ),
    # One row a study of a search (`fpl.config.study`): what its trials share.
    STUDIES: pa.schema(
        [
            ("study", pa.string()),
            ("search", pa.string()),
            ("caption", pa.string()),
            ("cell", pa.string()),
            ("scale", pa.string()),
            # Canonical JSON of the varied run, and the space as a JSON list of parameters.
            ("base", pa.string()),
            ("space", pa.string()),
            ("labeled_images", pa.int64()),
            ("seeds", pa.int64()),
            ("splits", pa.int64()),
            ("steps", pa.int64()),
            ("metric", pa.string()),
            ("objectives", pa.list_(pa.string())),
            ("protocol", pa.string()),
            ("holdout", pa.int64()),
            ("sampler", pa.string()),
            ("sampler_seed", pa.int64()),
            ("stop", pa.string()),
            ("budget", pa.string()),
            # What `device_hours` of its trials are of: `gpu` or `core`.
            ("device_unit", pa.string()),
            ("device", pa.string()),
            # Wall time of all calls together.
            ("wall_seconds", pa.float64()),
            ("updated_at", pa.string()),
            ("fpl_version", pa.string()),
        ]
    ),
    # One row a trial, written when it is proposed and again at each of its reports.
    TRIALS: pa.schema(
        [
            ("study", pa.string()),
            ("number", pa.int64()),
            # `running` (or cut off by a kill or the end of the budget: it will be continued), `complete`, `pruned`
            # (stopped early as hopeless), `failed`, `final` (the best setting with all labels, after a holdout search).
            ("state", pa.string()),
            ("params", pa.string()),
            # The paper's cell whose setting it is, or the sampler that proposed it.
            ("origin", pa.string()),
            # Mean over its runs of the study's metric, in percent; of a pruned trial, the last mean it reported.
            ("score", pa.float64()),
            ("score_std", pa.float64()),
            ("runs_scored", pa.int64()),
            ("run_ids", pa.list_(pa.string())),
            ("run_scores", pa.list_(pa.float64())),
            # Training steps, all runs together: where it is, and validation mIoU at its reports.
            ("step", pa.int64()),
            ("steps", pa.list_(pa.int64())),
            ("values", pa.list_(pa.float64())),
            ("device_hours", pa.float64()),
            # Of the device-hours, those of training its finished runs: the objective `cost`.
            ("cost", pa.float64()),
            ("reason", pa.string()),
            ("started_at", pa.string()),
            ("updated_at", pa.string()),
        ]
    ),
}
