"""The parts that both training methods share: the trainer's arguments and the callback that speaks to the journal."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.algorithms.held_out import HeldOut, HeldOutLoss
from training.algorithms.job import Job
from training.algorithms.loading import autocast_dtype, disable_router_logits
from training.algorithms.saving import Saver
from training.algorithms.stages import StageEnd
from training.algorithms.token_values import TokenRecord
from training.algorithms.updates import (
    NO_CHOICE,
    SKIPS_IN_A_ROW,
    STILL_IS_SAID,
    Finite,
    Still,
    optimizer_arguments,
    use_optimizer,
)
from training.config import JobConfig
from training.devices import CPU, Meter, own_device
from training.errors import NoGradient, NotFinite, StopRequested, TiltyardError
from training.garbage import few_collections
from training.journal import DeviceStep, Metrics, UpdateSkipped
from training.memory.running import dry_step, named_shortage

Arguments = TypeVar("Arguments", bound=TrainingArguments)
_NOT_METRICS = {"epoch", "total_flos"}


def common_arguments(config: JobConfig, run_dir: Path, device: str) -> dict[str, Any]:
    """Arguments of ``transformers.TrainingArguments`` that do not depend on the method."""
    return {
        "output_dir": str(run_dir / "trainer"),
        "max_steps": config.run.max_steps,
        "seed": config.run.seed,
        "data_seed": config.run.seed,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": config.optim.schedule,
        "warmup_steps": config.optim.warmup_steps or round(config.optim.warmup_share * config.run.max_steps),
        "weight_decay": config.optim.weight_decay,
        "max_grad_norm": config.optim.max_grad_norm,
        **optimizer_arguments(config, device),
        "gradient_checkpointing": config.model.gradient_checkpointing,
        "use_cpu": device == "cpu",
        "bf16": autocast_dtype(device) is not None,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": device == "cuda",
    }


def one_device(arguments: Arguments) -> Arguments:
    """The arguments for one GPU however many are visible: the trainer would split batches over them by itself."""
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1
    return arguments


class JournalCallback(TrainerCallback):
    """Turns the trainer's steps into journal events, saves checkpoints, and ends the run when asked.

    ``held_out`` plays held-out tasks, or measures the loss on held-out rows, where the job asks for that. ``extra``
    holds our own figures of the step being trained; they are merged into the step's metrics and then forgotten.
    ``rows`` counts the rows that the update being made learns from, where the trainer counts them. ``updates`` are made
    of one sampling. ``stage_end`` knows when a stage of the run has ended, which ends its trainer. ``tokens`` keeps
    what the trainer knows of each token of a sampling. ``before_update`` is called when the gradients of an update are
    there and the weights have not moved. ``meter`` measures the training device.
    """

    def __init__(self, job: Job, updates: int = 1) -> None:
        self.job = job
        self.trainer: Any = None
        self.saver = Saver(job, updates)
        self.finite = Finite()
        self.still = Still()
        self.extra: dict[str, float] = {}
        self.rows: int | None = None
        self.held_out: HeldOut | HeldOutLoss | None = None
        self.stage_end: StageEnd | None = None
        self.tokens: TokenRecord | None = None
        self.before_update: Callable[[], None] = lambda: None
        self.meter = Meter(CPU)
        self._skipped: Literal["loss", "gradient"] | None = None
        self._mark = time.monotonic()
        self._stopping_since: float | None = None

    def attach(self, trainer: Any) -> None:
        """Take the trainer, which exists only after its callback."""
        self.trainer = trainer
        trainer.finite = self.finite
        use_optimizer(trainer, self.job.config)
        self.saver.attach(trainer)
        if not self.job.config.optim.learning_rate:
            self.job.resolved["optim.learning_rate"] = f"{self.job.config.learning_rate:g}"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._evaluate(state.global_step)
        self._mark = time.monotonic()
        self.job.lane.begin()
        self.saver.begin()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.job.keep_room()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._leave_if_asked(state)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave while the weights are still those of the last step, if asked to. Drop the gradients of an update that
        must not move the weights; Adam's momentum alone would."""
        self._leave_if_asked(state)
        self.before_update()
        self._skipped = self.finite.verdict()
        if self._skipped or self.rows == 0:
            for parameter in self.trainer.model.parameters():
                parameter.grad = None
        self.rows = None if self.rows is None else 0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.job.step = state.global_step
        self.saver.updated(state.global_step)
        if self.job.stop.is_set() and not self._continues(state.global_step):
            control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Journal the step's metrics, then save: a checkpoint is never written before the metrics of its step."""
        if not logs or "loss" not in logs:
            return  # the summary at the end of training
        values = numbers_only(logs) | self._figures()
        if self._skipped:
            self._note_skip(state.global_step, values)
        self.job.journal.write(Metrics(step=state.global_step, values=values))
        if self.finite.in_a_row >= SKIPS_IN_A_ROW:
            raise self._never_finite(state.global_step)
        if self.job.config.method.learns_from == "rollouts" and not self._skipped:
            self._require_gradient(state.global_step, values)
        border = self.saver.at_border(state.global_step)
        if border and self.tokens is not None:
            self.tokens.write()
        best = border and self._evaluate(state.global_step)
        ends = border and (self.job.time_is_over(values) or self._stage_ends(state.global_step))
        if self.saver.finished(state.global_step, values, wanted=best or ends):
            if state.global_step < self.job.config.run.max_steps:
                self.job.enter("training", state.global_step + 1)
            self._mark = time.monotonic()
        spans, meter = self.job.lane.finish(), self.meter
        self.job.journal.write(
            DeviceStep.of(state.global_step, spans, socket.gethostname(), meter.device, meter.take())
        )
        if ends or (self.job.stop.is_set() and not self._continues(state.global_step)):
            control.should_training_stop = True

    def _stage_ends(self, step: int) -> bool:
        """Whether the stage ends at a border. One that ends because the time is over has not: a run that continues from
        there continues the stage."""
        return self.stage_end is not None and self.stage_end.reached(step)

    def _evaluate(self, step: int) -> bool:
        """Play the held-out tasks if that is due; whether no weights that were trained were as good."""
        if self.held_out is None or not self.held_out.due(step):
            return False
        best = self.held_out.evaluate(step)
        self._mark = time.monotonic()
        return best and step > 0  # before the first step there is nothing to save

    def _figures(self) -> dict[str, float]:
        """Our own figures of the step, with where its time went."""
        now = time.monotonic()
        spent, self._mark = now - self._mark, now
        played = sum(self.extra.get(f"timing/{part}", 0.0) for part in ("generation", "environment", "scoring"))
        waited = self.extra.get("timing/waiting", played)
        self.job.update_seconds = max(0.0, spent - waited - self.extra.get("timing/handover", 0.0))
        figures = self.extra | {"timing/step": spent, "timing/training": self.job.update_seconds}
        figures |= self.job.time_figures()
        self.extra = {}
        return figures

    def _note_skip(self, step: int, values: dict[str, float]) -> None:
        assert self._skipped is not None  # noqa: S101 - asked by the caller
        values["updates/skipped"] = 1.0
        if self._skipped == "loss":
            values["loss"] = math.nan  # the trainer was handed 0 for it
        self.job.journal.write(UpdateSkipped(step=step, what=self._skipped, in_a_row=self.finite.in_a_row))
        self.job.log(f"Step {step}: the {self._skipped} is not finite, so the weights stay as they are.", "warning")

    def _never_finite(self, step: int) -> NotFinite:
        first, good = step - self.finite.in_a_row + 1, self.job.saved or "the base model"
        return NotFinite(
            f"The {self._skipped} was not finite in {self.finite.in_a_row} updates in a row (steps {first} to {step}); "
            f"none of them moved the weights. The last good checkpoint is {good}.",
            hint="Lower the learning rate or the gradient limit, or look at the data of these steps; then resume.",
        )

    def _require_gradient(self, step: int, values: dict[str, float]) -> None:
        """Raise ``NoGradient`` once loss and gradient have been exactly 0 for as long as the job allows."""
        count, most = self.still.saw(values), self.job.config.run.no_gradient_updates
        if count != STILL_IS_SAID and not 0 < most <= count:
            return
        first = step - count + 1
        why = self._why_still(first, values)
        text = f"Loss and gradient were exactly 0 in {count} updates in a row (steps {first} to {step})"
        if 0 < most <= count:
            raise NoGradient(
                f"{text}, so nothing is learned. {why}",
                hint="Resume allows as many updates again; run.no_gradient_updates: 0 lets the run continue anyway.",
            )
        self.job.log(f"{text}. {why}", "warning")

    def _why_still(self, first: int, values: dict[str, float]) -> str:
        if values.get("entropy", 1.0) < NO_CHOICE:
            return (
                f"The policy's entropy is {values['entropy']:.2g} nats: an update before step {first} has left it no "
                "choice. Go on from a checkpoint before that step with a lower learning rate "
                f"(it is {self.job.config.learning_rate:g})."
            )
        if values.get("groups/zero_variance_share") == 1.0:
            return (
                "The rewards of every group are equal. Take tasks that are solved sometimes, more rollouts of each, or "
                "a reward that distinguishes them."
            )
        return "No rollout is learned from: look at those that are excluded, cut off and masked, or left out."

    def _continues(self, step: int) -> bool:
        """Whether a run that is asked to stop continues after ``step``: a sampling's updates are finished first."""
        return not self.saver.at_border(step) and self._finishes(step)

    def _leave_if_asked(self, state: TrainerState) -> None:
        """Raise ``StopRequested`` where the update at hand would outlast the grace of a stop."""
        if self.job.stop.is_set() and not self._finishes(state.global_step):
            self.job.check_stop()

    def _finishes(self, step: int) -> bool:
        """Whether the updates left of this sampling, and the save after them, fit into the grace of a stop."""
        now = time.monotonic()
        self._stopping_since = since = now if self._stopping_since is None else self._stopping_since
        if self.job.update_seconds is None:
            return False
        left = self.saver.left_of_sampling(step) or self.saver.updates
        needed = left * self.job.update_seconds + (self.job.save_seconds or 0.0)
        return now - since + needed < self.job.stop_grace()


def numbers_only(logs: dict[str, Any]) -> dict[str, float]:
    """The figures among a trainer's logs; NaN stays, what is missing (``None``) is left out."""
    return {
        name: float(value)
        for name, value in logs.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _NOT_METRICS
    }


def train(job: Job, trainer: Any, callback: JournalCallback, checkpoint: Path | None) -> None:
    """Run the trainer to its end and save the model. Raises ``StopRequested`` when the run was asked to stop.

    Where a stage ends, another trainer continues from its checkpoint, and the model is not saved yet. A run that stops
    or pauses saves what it trained since the last checkpoint.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)  # the journal speaks
    disable_router_logits(trainer.model)  # TRL has set it, and the model is saved with it
    dry_step(job, trainer)
    try:
        own = own_device(trainer.args.device.type)
        with named_shortage(job.config, trainer.model), few_collections(), Meter(own) as callback.meter:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        if job.step < job.config.run.max_steps and not job.out_of_time:
            job.check_stop()
    except TiltyardError as error:
        if error.pauses or isinstance(error, StopRequested):
            callback.saver.save_before_leaving(error)
        raise
    if job.stage is None or not job.stage.ended:
        callback.saver.save_model(job.step)
