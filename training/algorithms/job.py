"""What every job has: its surroundings and the order of its rows. Importing it loads no training library."""

from __future__ import annotations

import os
import platform
import random
import threading
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from training.algorithms.checkpoints import find_resume
from training.config import JobConfig
from training.errors import StopRequested
from training.journal import Journal, LogLine, RunStarted
from training.rewards.judge.cache import REPLIES_NAME, replies

PACKAGES = ("torch", "transformers", "trl", "peft", "openenv")


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

    def keep_replies(self) -> None:
        """Keep what judges answer in the run's folder, and use what earlier attempts were told: it was paid for."""
        beside = self.run_dir.parent if self.run_dir.name == str(self.attempt) else None
        earlier = [beside / str(number) / REPLIES_NAME for number in range(1, self.attempt)] if beside else []
        replies.keep_in(self.run_dir / REPLIES_NAME, earlier)

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
