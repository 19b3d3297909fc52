"""What both methods share: a job's surroundings, the order of the rows, and the callback that speaks to the journal."""

from __future__ import annotations

import os
import platform
import random
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.algorithms.checkpoints import find_resume, save_checkpoint, save_final
from training.config import JobConfig
from training.errors import StopRequested
from training.journal import CheckpointSaved, Journal, LogLine, Metrics, PhaseChanged, RunStarted

PACKAGES = ("torch", "transformers", "trl", "peft", "openenv")
_NOT_METRICS = {"epoch", "total_flos"}


@dataclass
class Job:
    """One run of one method: what it is given, and where it stands (``step`` counts finished optimiser steps)."""

    config: JobConfig
    run_dir: Path
    journal: Journal
    stop: threading.Event
    attempt: int = 1
    resume_from: Path | None = None
    step: int = 0

    def check_stop(self) -> None:
        """Raise ``StopRequested`` once someone asked for it."""
        if self.stop.is_set():
            raise StopRequested("The run was asked to stop.")

    def log(self, message: str, level: str = "info") -> None:
        """One line for the run's log."""
        self.journal.write(LogLine(message=message, level=level))  # type: ignore[arg-type]

    def started(self, rows: int, device: str, from_step: int) -> None:
        """Announce the run with the versions that shape its numbers."""
        versions = {"python": platform.python_version()}
        for package in PACKAGES:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
        self.step = from_step
        self.journal.write(
            RunStarted(
                kind=self.config.kind,
                total_steps=self.config.run.max_steps,
                from_step=from_step,
                rows=rows,
                device=device,
                versions=versions,
                pid=os.getpid(),
            )
        )

    def find_checkpoint(self) -> Path | None:
        """The checkpoint to go on from: in ``resume_from``, else in the run's own folder when it saves any."""
        place = self.resume_from or (self.run_dir if self.config.run.save_every else None)
        if place is None:
            return None
        found, torn = find_resume(place)
        for folder in torn:
            self.log(f"{folder.name} is not whole and was set aside.", "warning")
        if found is None and self.resume_from is not None:
            self.log(f"No whole checkpoint in {place}; the run starts from step 0.", "warning")
        return found


def checkpoint_step(checkpoint: Path | None) -> int:
    """The step at which a checkpoint was saved."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0


def row_order(count: int, needed: int, *, seed: int, shuffle: bool) -> list[int]:
    """``needed`` row indices, each epoch a permutation of its own.

    The whole run is laid out as one epoch: a trainer that resumes in a later epoch would otherwise repeat the first
    one's order.
    """
    order: list[int] = []
    epoch = 0
    while len(order) < needed:
        indices = list(range(count))
        if shuffle:
            random.Random(seed * 1_000_003 + epoch).shuffle(indices)  # noqa: S311 - an order, not a secret
        order += indices
        epoch += 1
    return order[:needed]


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
