"""The parts of every job: its surroundings and the order of its rows. Importing it loads no training library."""

from __future__ import annotations

import os
import platform
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from training.algorithms.checkpoints import HubModel, StageMark, find_resume, remove_leftovers
from training.config import JobConfig
from training.errors import StopRequested
from training.journal import (
    JOURNAL_NAME,
    CheckpointsRemoved,
    Journal,
    LogLine,
    Phase,
    PhaseChanged,
    Resumed,
    RunStarted,
    last_figure,
    last_step,
    parse_event,
)
from training.lanes import DevicePhase, Lane
from training.machine import disk_fault, require_room
from training.rewards.judge import REPLIES_NAME, replies
from training.sessions import stop_grace

FIRST_LINES = 2_000
HOURS = "timing/hours"
"""The metric that says how much of its time budget a run has used, over all attempts."""
LANES: dict[Phase, DevicePhase] = {
    "generating": "waiting",
    "training": "training",
    "saving": "saving",
    "evaluating": "evaluating",
}
"""What the training device does in a phase of the run; while rollouts are played, ``Lane.fill`` says more."""
PACKAGES = ("torch", "transformers", "trl", "peft", "openenv", "verl", "ray")


@dataclass
class Job:
    """One run of one method: what it is given, and how far it is.

    ``step`` counts finished optimiser steps, ``saved_step`` is the last one that a whole checkpoint (``saved``) holds.
    ``save_seconds`` and ``update_seconds`` are what the last save and the last update took. ``earlier`` are the folders
    of the attempts before this one, oldest first. ``base`` is the folder of the model that it began with, ``begun``
    what it said of itself when it began. Where the run has stages, ``stage`` is the one that is trained now, and
    ``config`` its own (``training/algorithms/stages.py``). ``lane`` is what the training device does. ``clock`` gives
    seconds; the attempt began when the job was made. ``out_of_time``: it ends because its time budget is over.
    """

    config: JobConfig
    run_dir: Path
    journal: Journal
    stop: threading.Event
    attempt: int = 1
    resume_from: tuple[Path, ...] = ()
    earlier: tuple[Path, ...] = ()
    step: int = 0
    saved_step: int = 0
    saved: str = ""
    save_seconds: float | None = None
    update_seconds: float | None = None
    resolved: dict[str, str] = field(default_factory=dict)
    base: Path | None = None
    begun: RunStarted | None = None
    stage: StageMark | None = None
    lane: Lane = field(default_factory=Lane)
    clock: Callable[[], float] = time.monotonic
    out_of_time: bool = False

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._hours_before: float | None = None

    def check_stop(self) -> None:
        """Raise ``StopRequested`` once someone asked for it."""
        if self.stop.is_set():
            raise StopRequested("The run was asked to stop.")

    def stop_grace(self) -> float:
        """Seconds that a stop may take (``training/sessions.py``)."""
        return stop_grace(self.save_seconds, self.update_seconds)

    @property
    def unsaved(self) -> range:
        """The steps that were trained and that no whole checkpoint holds."""
        return range(self.saved_step + 1, self.step + 1) if self.config.method.trains else range(0)

    def time_figures(self) -> dict[str, float]:
        """The hours that a run with a time budget has used after a step. Those of earlier attempts are in their
        journals, so an attempt that died counts up to its last finished step."""
        if not self.config.run.max_hours:
            return {}
        if self._hours_before is None:
            places = (self.run_dir, *reversed(self.earlier))
            known = (last_figure(folder / JOURNAL_NAME, HOURS) for folder in places)
            self._hours_before = next((hours for hours in known if hours is not None), 0.0)
        return {HOURS: self._hours_before + (self.clock() - self._began) / 3600}

    def time_is_over(self, figures: dict[str, float]) -> bool:
        """Whether the run ends after the step with these figures though it has steps left; then it is noted and said
        once."""
        most = self.config.run.max_hours
        if not most or figures.get(HOURS, 0.0) < most or self.step >= self.config.run.max_steps:
            return False
        if not self.out_of_time:
            self.out_of_time = True
            self.log(
                f"The time budget of {most:g} hours is over after {figures[HOURS]:.2f}: the run ends after step "
                f"{self.step} of {self.config.run.max_steps}."
            )
        return True

    def keep_room(self) -> None:
        """Raise ``StorageFull`` before the disk is full, while there is still room for the last lines."""
        require_room(self.run_dir, 0, "the run")
        try:
            self.journal.keep_reserve()
        except OSError as exc:
            if (fault := disk_fault(exc, self.run_dir)) is None:
                raise
            raise fault from exc

    def enter(self, phase: Phase, step: int) -> None:
        """The run is in this phase from now on, at this step."""
        self.journal.write(PhaseChanged(phase=phase, step=step))
        if phase in LANES:
            self.lane.turn(LANES[phase])

    def log(self, message: str, level: str = "info") -> None:
        """One line for the run's log."""
        self.journal.write(LogLine(message=message, level=level))  # type: ignore[arg-type]

    def started(self, rows: int, device: str, from_step: int, total_steps: int | None = None) -> None:
        """Announce the run with the versions that shape its numbers."""
        versions = {"python": platform.python_version()}
        for package in PACKAGES:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
        self.step = self.saved_step = from_step
        self.begun = RunStarted(
            kind=self.config.kind,
            total_steps=total_steps or self.config.run.max_steps,
            from_step=from_step,
            rows=rows,
            device=device,
            versions=versions,
            pid=os.getpid(),
            attempt=self.attempt,
            resolved=self.resolved,
            save_seconds=self.save_seconds,
        )
        self.journal.write(self.begun)

    @property
    def hub_base(self) -> HubModel | None:
        """The base model, where that came from Hugging Face under the name that the config has."""
        commit = self.resolved.get("model.revision", "")
        return HubModel(self.config.model.source, commit) if commit and self.config.model.from_hub else None

    def first_revision(self) -> str:
        """The commit of the base model that this run began with, as its first attempt's journal says; else nothing.

        A run that continues must not meet a newer base below its adapter.
        """
        parents = [place for folder in self.resume_from for place in (folder, folder.parent)]
        for folder in (*self.earlier, self.run_dir, *parents):
            for line in _lines(folder / JOURNAL_NAME):
                if b'"type":"run_started"' in line and isinstance(event := parse_event(line), RunStarted):
                    return event.resolved.get("model.revision", "")
        return ""

    def steps_done(self) -> int:
        """The last step that an earlier attempt of this run finished, as its journal says."""
        return next((step for folder in reversed(self.earlier) if (step := last_step(folder / JOURNAL_NAME))), 0)

    def keep_replies(self) -> None:
        """Keep what judges answer in the run's folder, and use what earlier attempts got: it was paid for."""
        replies.keep_in(self.run_dir / REPLIES_NAME, [folder / REPLIES_NAME for folder in self.earlier])

    def find_checkpoint(self) -> Path | None:
        """The checkpoint to continue from: in ``resume_from``, else in the run's folder. Journals what was found."""
        for folder in (self.run_dir, *self.earlier):
            remove_leftovers(folder)
        found = find_resume(*(self.resume_from or (self.run_dir,)))
        torn, source = [self.named(folder) for folder in found.torn], ""
        for name in torn:
            self.log(f"{name} is not whole and was set aside.", "warning")
        if torn:
            self.journal.write(CheckpointsRemoved(paths=torn, why="torn"))
        if found.folder is not None:
            self.saved = source = self._source(found.folder)
        elif self.resume_from:
            self.log("There is no whole checkpoint to resume from; the run starts from step 0.", "warning")
        if found.folder is not None or torn or found.trained:
            lost = max(0, found.trained - found.step)
            report = {"lost_steps": lost, "set_aside": torn, "verified": found.verified}
            self.journal.write(Resumed(source=source, step=found.step, **report))
        return found.folder

    def named(self, folder: Path) -> str:
        """``<folder>`` for a checkpoint of this attempt, else ``<attempt>/<folder>``."""
        return folder.name if folder.parent == self.run_dir else f"{folder.parent.name}/{folder.name}"

    def _source(self, folder: Path) -> str:
        if folder.parent.name.isdigit():
            return f"{folder.parent.name}/{folder.name}"
        return folder.name if folder.parent == self.run_dir else str(folder)


def _lines(path: Path) -> Iterator[bytes]:
    """The first whole lines of a journal, among which its start is; none where there is no journal."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        yield from (line for line in islice(file, FIRST_LINES) if line.endswith(b"\n"))


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
