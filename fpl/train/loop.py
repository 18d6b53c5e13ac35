"""The training loop: one run from its configuration to its metrics, wherever it was launched."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from fpl.config.identity import run_id
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, make_loader
from fpl.data.images import Images
from fpl.data.splits import Split
from fpl.data.validation import ValidationSet
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.methods.base import Clock, Losses
from fpl.train.build import build_method
from fpl.train.checkpoint import CheckpointFolder, save
from fpl.train.evaluate import check_counted, evaluate, scores
from fpl.train.examples import Examples, example_steps
from fpl.train.fuzziness import diagnosed_steps, fuzziness_row
from fpl.train.logits import WatchedLogits
from fpl.train.options import LoopOptions
from fpl.train.owner import OWNER, check_own
from fpl.train.progress import Progress
from fpl.train.resume import check_state, restore, state_of
from fpl.train.runtime import Context, Gradients, State, TrainingError, Verdict, Workers, autocast, prepare_torch
from fpl.train.state import Memory, Outcome, outcome_of
from fpl.train.step import take_step
from fpl.train.term_log import SILENT_STEPS, TermLog

OnMetrics = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class RunData:
    """What a run reads.

    Attributes:
        split: Lists of labeled and unlabeled images.
        images: Reader of the training images.
        validation: The validation samples.
        weights_dir: Where pretrained files are looked for first.
    """

    split: Split
    images: Images
    validation: ValidationSet
    weights_dir: Path | None = None


class Run:
    """One run in progress.

    Args:
        config: The run, its split digests filled in.
        data: What it reads.
        context: The launcher's context.
        options: How it is carried out.
        folder: Where the weights go.
        progress: The user's line.
        on_metrics: Called by rank 0 with (step, metrics), for live displays such as TensorBoard; first of all with the
            step at which training begins or continues, and no metrics.
    """

    def __init__(
        self,
        config: RunConfig,
        data: RunData,
        context: Context,
        options: LoopOptions,
        folder: CheckpointFolder,
        progress: Progress,
        on_metrics: OnMetrics,
    ) -> None:
        self.config, self.data, self.context = config, data, context
        self.options, self.folder, self.progress, self.on_metrics = options, folder, progress, on_metrics
        self.workers = Workers(context.rank, context.world_size)
        prepare_torch(config.train, options.threads)
        self.method, self.weights = build_method(
            config, data.split, data.images, context, self.workers, data.weights_dir, progress.note
        )
        self.optimizers = self.method.optimizers()
        trained = [parameter for parameter in self.method.parameters() if parameter.requires_grad]
        self.gradients = Gradients(trained, self.workers)
        self.memory = Memory()
        self.terms = TermLog(self.workers)
        total = config.train.steps
        self.diagnosed = diagnosed_steps(options.diagnose_every, total) if self.method.request.draws else set()
        self.pictured = example_steps(total) if options.examples else set()

    @cached_property
    def examples(self) -> Examples:
        """Takes pictures, on rank 0 alone: networks in evaluation mode exchange nothing."""
        data, options = self.data, self.options
        read = (data.split, data.images, data.validation)
        read_truth = options.diagnose_every > 0
        return Examples(self.method, *read, self.context.device, options.examples, read_truth=read_truth)

    def train(self) -> Outcome:
        """Train from the newest checkpoint, or the start, to the end or until the context says stop."""
        self._continue()
        begins = self.workers.gather(self.memory.step)
        if len(set(begins)) > 1:
            raise FplError(
                f"the workers would begin at different steps {begins}: they do not see the same checkpoints",
                where=str(self.folder.folder),
                hint="give --out a folder that all workers share",
            )
        if self.context.rank == 0:
            self.folder.forget_after(self.memory.step)
            self._publish({"step": self.memory.step})
        self._note_implementation()
        self.progress.begin(self.memory.step)
        loader = make_loader(
            self.config,
            self.data.split,
            self.data.images,
            self.method.request,
            start_step=self.memory.step,
            rank=self.context.rank,
            world_size=self.context.world_size,
            loader_workers=self.options.loader_workers,
            truth_steps={step - 1 for step in self.diagnosed},
        )
        self.method.train()
        began = time.monotonic()
        for batch in loader:
            self._step(batch)
            self.memory.seconds += time.monotonic() - began
            verdict = self._validate_and_save()
            began = time.monotonic()
            if verdict is Verdict.STOP:
                break
        return outcome_of(self.config, self.memory, self.weights)

    def _continue(self) -> None:
        """Take up the newest checkpoint; when this returns, its memory is free again."""
        if (state := self.context.latest(partial(check_state, self))) is not None:
            restore(self, state)
        finished = [self.folder.folder / f"{choice}.pt" for choice in ("best", "last")]
        check_own(finished, run_id(self.config), "be written over")

    def _note_implementation(self) -> None:
        """Remember which implementation of the loss trains, and say so where another one began."""
        if not self.config.method.unlabeled or self.config.loss.kind != "fpl":
            return
        known, now = self.memory.loss_implementations, kernels.used(self.context.device.type)
        if known and known[-1] != now:
            self.progress.note(
                f"warning: the loss is computed by its {now} implementation from here on, before by {known[-1]}: the "
                "same values, rounded differently"
            )
        if known[-1:] != [now]:
            known.append(now)

    def _step(self, batch: Batch) -> None:
        clock = Clock(self.memory.step, self.config.train.steps)
        step = clock.step + 1
        diagnose = step in self.diagnosed
        log = diagnose or step % self.options.log_every == 0 or step in (1, clock.total)
        self.method.pixel_loss.collect = log
        self.method.pixel_loss.diagnose = diagnose
        share: dict[str, float] = {}
        losses = take_step(
            self.method,
            self.optimizers,
            batch,
            clock,
            self.config.train,
            self.context.device,
            gradients=self.gradients,
            before_backward=lambda losses: share.update(self._unsupervised_share(losses) if log else {}),
        )
        self.memory.step = step
        self.terms.add(step, _all_terms(losses))
        if log:
            self._log(losses, {"lr": self._rate(clock), **share})

    def _rate(self, clock: Clock) -> float:
        """Learning rate of the first optimizer, which is the segmentation networks'."""
        return next(iter(self.optimizers.values())).spec.rate(clock.step, clock.total)

    def _unsupervised_share(self, losses: Losses) -> dict[str, float]:
        """Share of the unlabeled images in the gradient at the classifiers: |g_u| / (|g_u| + |g_s|)."""
        if losses.unsupervised is None:
            return {}
        norms = []
        for part in (losses.supervised, losses.unsupervised):
            gradients = torch.autograd.grad(part, self.method.probe_parameters(), retain_graph=True)
            flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
            norms.append(float(self.workers.average(flat).norm()))
        return {"unsupervised_gradient_share": norms[1] / sum(norms) if sum(norms) else 0.0}

    def _log(self, losses: Losses, values: dict[str, float]) -> None:
        memory = self.memory
        row: dict[str, Any] = {"step": memory.step, **self.terms.flush(), **values}
        fuzzy = [fuzziness_row(memory.step, name, term, self.workers) for name, term in losses.pixel_terms.items()]
        kept = [entry for entry in fuzzy if entry is not None]
        if kept:
            row["mean_k"] = sum(entry["mean_k"] for entry in kept) / len(kept)
        memory.fuzziness += kept
        memory.history.append(row)
        self._publish(row)
        best = {"best mIoU": f"{memory.best_miou:.2f}"} if memory.best_step else {}
        shown = {"loss": "loss", "unsupervised": "unsupervised", "mean_k": "K", "lr": "lr"}
        values_shown = {label: f"{row[key]:.3g}" for key, label in shown.items() if key in row}
        self.progress.show(memory.step, values_shown | best)
        if SILENT_STEPS <= self.terms.silent < SILENT_STEPS + self.options.log_every:
            self.progress.note(
                f"warning: the unsupervised loss has been exactly 0 for {self.terms.silent} steps: "
                "the unlabeled images teach nothing (see method.weight, a confidence gate or start of the method, "
                "loss.strategy and loss.weight)"
            )

    def _publish(self, row: dict[str, Any]) -> None:
        if self.context.rank == 0:
            self.on_metrics(row["step"], {key: value for key, value in row.items() if key != "step"})

    def _validate_and_save(self) -> Verdict:
        """Validate, take pictures, write a checkpoint and report, where the step calls for it."""
        step, total = self.memory.step, self.config.train.steps
        if step in self.pictured and self.context.rank == 0:
            self.memory.examples += self.examples.take(step, step == total)
        metrics: dict[str, float] = {}
        if step % self.config.train.evaluate_every == 0 or step == total:
            metrics = self._validate()
        save = step % self.options.checkpoint_every == 0 or step == total
        if not metrics and not save:
            return Verdict.GO
        return self.context.report(step, metrics, self._state() if save else None)

    def _validate(self) -> dict[str, float]:
        began, config, memory = time.monotonic(), self.config, self.memory
        validation, context = self.data.validation, self.context
        if self.terms.rows:
            self.terms.check()  # a diverged network is not worth validating, let alone keeping
        self.method.eval()
        predict = WatchedLogits(self.method.predict)
        with autocast(config.train, context.device):
            confusion = evaluate(
                predict,
                validation,
                config.eval,
                config.data,
                context.device,
                self.workers,
                on_image=lambda done: self.progress.validating(memory.step, done, len(validation)),
            )
        self.method.train()
        if problem := predict.problem(self.workers):
            raise TrainingError(
                f"at the validation of step {memory.step} {problem}",
                where="training diverged",
                hint="try a smaller optim.lr, and look at the pretrained weights",
            )
        check_counted(confusion, config.eval, config.data.dataset, TrainingError)
        found = scores(confusion, config.eval.absent)
        memory.last_confusion = confusion.tolist()
        if found.miou > memory.best_miou or not memory.best_step:
            memory.best_miou, memory.best_step, memory.best_confusion = found.miou, memory.step, confusion.tolist()
            self._save_weights(self.folder.best(memory.step))
        if memory.step == config.train.steps:
            self._save_weights(self.folder.weights("last"))
        metrics = {"miou": found.miou, "pixel_accuracy": found.pixel_accuracy}
        memory.history.append({"step": memory.step, **metrics})
        self._publish(memory.history[-1])
        seconds = time.monotonic() - began
        self.progress.validated(
            seconds,
            f"step {memory.step}/{config.train.steps}  mIoU {found.miou:.2f} % on {validation.total} validation images "
            f"(best {memory.best_miou:.2f} at step {memory.best_step}), {seconds:.0f} s",
        )
        return metrics

    def _save_weights(self, path: Path) -> None:
        if self.context.rank == 0:
            about = {OWNER: run_id(self.config), "config": self.config.model_dump_json(), "step": self.memory.step}
            save(path, {**about, "method": self.method.kept_state()})

    def _state(self) -> State:
        if self.terms.rows:
            self.terms.check()  # no checkpoint may hold weights that a non-finite loss has touched
        return state_of(self)


def _all_terms(losses: Losses) -> dict[str, torch.Tensor]:
    """The method's terms, the weighted unsupervised part and the total, for the history and the divergence check."""
    terms = dict(losses.terms)
    if losses.unsupervised is not None:
        terms["unsupervised"] = losses.unsupervised
    terms["loss"] = torch.stack([value.detach() for value in losses.objectives.values()]).sum()
    return terms
