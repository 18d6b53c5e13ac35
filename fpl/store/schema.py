"""The Parquet tables by name, and which of their columns are keys, times and circumstances; `columns` has them all."""

from __future__ import annotations

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
