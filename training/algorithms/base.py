"""What both training methods share: the trainer's arguments and the callback that speaks to the journal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.algorithms.checkpoints import save_checkpoint, save_final
from training.algorithms.job import Job
from training.config import JobConfig
from training.errors import StopRequested
from training.journal import CheckpointSaved, Metrics, PhaseChanged

_NOT_METRICS = {"epoch", "total_flos"}


def common_arguments(config: JobConfig, run_dir: Path, device: str) -> dict[str, Any]:
    """Arguments of ``transformers.TrainingArguments`` that do not depend on the method."""
    return {
        "output_dir": str(run_dir / "trainer"),
        "max_steps": config.run.max_steps,
        "seed": config.run.seed,
        "data_seed": config.run.seed,
        "learning_rate": config.optim.learning_rate,
        "lr_scheduler_type": config.optim.schedule,
        "warmup_steps": config.optim.warmup_steps or round(config.optim.warmup_share * config.run.max_steps),
        "weight_decay": config.optim.weight_decay,
        "max_grad_norm": config.optim.max_grad_norm,
        "gradient_checkpointing": config.model.gradient_checkpointing,
        "use_cpu": device == "cpu",
        "bf16": device == "cuda",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": device == "cuda",
    }


class JournalCallback(TrainerCallback):
    """Turns the trainer's steps into journal events, saves checkpoints, and ends the run when asked.

    ``extra`` holds our own figures of the step being trained; they are merged into the step's metrics and then
    forgotten.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.trainer: Any = None
        self.extra: dict[str, float] = {}
        self.skip_update = False
        self._mark = time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._mark = time.monotonic()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.job.check_stop()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A step with nothing to learn from must not move the weights; Adam's momentum alone would."""
        if self.skip_update:
            for parameter in self.trainer.model.parameters():
                parameter.grad = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.job.step = state.global_step
        if self.job.stop.is_set():
            control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Journal the step's metrics, then save: a checkpoint never stands before the metrics of its step."""
        if not logs or "loss" not in logs:
            return  # the summary at the end of training
        now = time.monotonic()
        spent, self._mark = now - self._mark, now
        values = numbers_only(logs) | self.extra
        values["timing/step"] = spent
        waited = sum(self.extra.get(f"timing/{part}", 0.0) for part in ("generation", "environment", "scoring"))
        values["timing/training"] = max(0.0, spent - waited)
        self.extra = {}
        self.job.journal.write(Metrics(step=state.global_step, values=values))
        every = self.job.config.run.save_every
        if every and state.global_step % every == 0 and state.global_step < self.job.config.run.max_steps:
            self.save(state.global_step)
            self._mark = time.monotonic()
        if self.job.stop.is_set():
            control.should_training_stop = True

    def save(self, step: int) -> None:
        """Save a checkpoint now."""
        self.job.journal.write(PhaseChanged(phase="saving", step=step))
        folder, size = save_checkpoint(self.trainer, self.job.run_dir, step)
        self.job.journal.write(CheckpointSaved(step=step, path=folder.name, bytes=size))


def numbers_only(logs: dict[str, Any]) -> dict[str, float]:
    """The figures among a trainer's logs; NaN stays, what is missing (``None``) is left out."""
    return {
        name: float(value)
        for name, value in logs.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _NOT_METRICS
    }


def train(job: Job, trainer: Any, callback: JournalCallback, checkpoint: Path | None) -> None:
    """Run the trainer to its end and save the model. Raises ``StopRequested`` when the run was asked to stop."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)  # the journal speaks
    callback.trainer = trainer
    before = job.step
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        if job.step < job.config.run.max_steps:
            job.check_stop()
    except StopRequested:
        every = job.config.run.save_every
        if every and job.step > before and job.step % every:
            callback.save(job.step)
        raise
    job.journal.write(PhaseChanged(phase="saving", step=job.step))
    folder, size = save_final(trainer, job.run_dir, job.step)
    job.journal.write(CheckpointSaved(step=job.step, path=folder.name, bytes=size, final=True))
