"""When a checkpoint is saved, what of older ones goes, and what a run that is asked to end still saves.

1. The weights can be gone on from only at a *border*: when all updates of one sampling are done. Within a generation a
   trainer that resumes would have to hold the sampled rollouts too. Every step is a border where one update is made of
   each sampling.
2. At a border a checkpoint is due after ``run.save_every`` steps or ``run.save_every_minutes``, whichever comes first,
   after an evaluation that was the best of the run, where a stage ends, and at the last step, so that the run can be
   extended.
3. A run that is asked to stop, or pauses, saves the last border if it trained since the last save. The weights stand
   there until the first update of the next sampling; the random states, and what is remembered of tasks, are kept as
   they were at the border.
4. Before a save: weights must be finite, and the disk must have room for it beside the reserve. A run that pauses
   because the disk is full may take half of the reserve for its last save: that is what it is there for.
5. After a save the checkpoints of this attempt and of those before it go that are neither among the newest
   ``run.keep_last`` nor the best.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from training.algorithms.card import card_of
from training.algorithms.checkpoints import (
    ADAPTER,
    outdated,
    remove,
)
from training.algorithms.contents import (
    following_reference,
    save_checkpoint,
    save_final,
)
from training.algorithms.job import Job
from training.algorithms.task_memory import Drawing, Memory
from training.errors import NotFinite, StorageFull, TiltyardError
from training.events import CheckpointSaved, CheckpointsRemoved, PhaseChanged
from training.machine import require_room
from training.model_check import stored_dtype

BYTES_PER_S = 100e6
"""Written, synced and hashed in a second; taken until a save has been timed."""
LAST_SAVE_SHARE = 0.5
"""Of the reserve, that stays free when a run saves for the last time before it pauses because the disk is full."""


class Saver:
    """Saves one trainer's state. ``updates`` is how many updates are made of one sampling, the first of which follows
    step ``origin``; ``held_out`` tells the success of a step's weights on held-out tasks, where they were played;
    ``drawing`` draws tasks by what it remembers of them."""

    def __init__(self, job: Job, updates: int = 1) -> None:
        self.job = job
        self.updates = updates
        self.origin = 0
        self._trainer: Any = None
        self._saved_at = time.monotonic()
        self._bytes = 0
        self._random: dict[str, Any] | None = None
        self._memory: Memory | None = None
        self._rewards: list[float] = []
        self._figures: dict[str, float] = {}
        self.held_out: Callable[[int], float | None] = lambda _step: None
        self.drawing: Drawing | None = None

    def attach(self, trainer: Any) -> None:
        """Take the trainer, and estimate from its parameters what a checkpoint needs."""
        self._trainer = trainer
        trained = [p for p in trainer.model.parameters() if p.requires_grad]
        kept = trained if _is_adapter(trainer) else list(trainer.model.parameters())
        # The weights, and two moments of AdamW for each that is trained.
        self._bytes = sum(p.numel() * p.element_size() for p in kept)
        self._bytes += sum(2 * p.numel() * p.element_size() for p in trained)
        if (reference := following_reference(trainer)) is not None:
            self._bytes += sum(p.numel() * p.element_size() for p in reference.parameters())
        self.job.save_seconds = self._bytes / BYTES_PER_S

    def begin(self) -> None:
        """Training begins now; only now does time count."""
        self._saved_at = time.monotonic()

    def at_border(self, step: int) -> bool:
        """Whether all updates of a sampling are done at ``step``."""
        return self.left_of_sampling(step) == 0

    def left_of_sampling(self, step: int) -> int:
        """Updates of the sampling that ``step`` belongs to which are not done."""
        return -(step - self.origin) % self.updates

    def updated(self, step: int) -> None:
        """An update has been made: at a border what changes before the next update is kept, for a save that comes
        later."""
        if self.at_border(step):
            self._random = random_states()
            self._memory = self.drawing.memory.copied() if self.drawing is not None else None

    def finished(self, step: int, values: dict[str, float], *, wanted: bool = False) -> bool:
        """The metrics of ``step`` are journalled: save if a checkpoint is due. True if it did. ``wanted``: it is due
        whatever the options say, for these are the best weights until now, or another stage goes on from them."""
        self._figures = values
        if "reward" in values:
            self._rewards.append(values["reward"])
        if not self.at_border(step) or not (wanted or self._due(step)):
            return False
        self.save(step)
        return True

    def _due(self, step: int) -> bool:
        run = self.job.config.run
        if step == run.max_steps:
            return bool(run.save_every or run.save_every_minutes)
        by_steps = run.save_every and step // run.save_every > self.job.saved_step // run.save_every
        minutes = (time.monotonic() - self._saved_at) / 60
        return bool(by_steps or (run.save_every_minutes and minutes >= run.save_every_minutes))

    def save(self, step: int, reserve_share: float = 1.0) -> None:
        """Save a checkpoint of ``step`` now. Raises ``NotFinite`` or ``StorageFull``, and then leaves nothing."""
        job = self.job
        require_room(job.run_dir, self._bytes, "a checkpoint", reserve_share)
        job.journal.write(PhaseChanged(phase="saving", step=step))
        self.require_finite()
        began = time.monotonic()
        reward, held_out = _mean(self._rewards), self.held_out(step)
        now = random_states()
        restore_random(self._random or now)
        try:
            folder, self._bytes = save_checkpoint(
                self._trainer,
                job.run_dir,
                step,
                reward,
                held_out,
                base=job.hub_base,
                stage=job.stage,
                memory=self._memory,
            )
        finally:
            restore_random(now)
        self._saved_at = time.monotonic()
        job.save_seconds = self._saved_at - began
        job.saved_step, job.saved, self._rewards = step, folder.name, []
        size, seconds = self._bytes, job.save_seconds
        said = {"seconds": seconds, "reward": reward, "held_out": held_out}
        job.journal.write(CheckpointSaved(step=step, path=folder.name, bytes=size, **said))
        self._retain()

    def _retain(self) -> None:
        job = self.job
        folders, best = outdated(job.run_dir, job.config.run.keep_last, job.earlier)
        if not folders:
            return
        paths = [job.named(folder) for folder in folders]
        # Journalled first: a page must not offer what is gone. What a crash leaves is found by the next save.
        job.journal.write(CheckpointsRemoved(paths=paths, why="old", best=job.named(best) if best is not None else ""))
        for folder, name in zip(folders, paths, strict=True):
            try:
                remove(folder)
            except OSError as exc:  # the folder of an earlier attempt may be another user's
                job.log(f"{name} could not be removed: {exc.strerror}.", "warning")

    def save_before_leaving(self, why: TiltyardError) -> None:
        """Save what was trained since the last checkpoint, as far as that can be gone on from."""
        job, full = self.job, isinstance(why, StorageFull)
        if job.step <= job.saved_step or isinstance(why, NotFinite) or (full and not self._fits_into_reserve()):
            return
        if not self.at_border(job.step):
            lost = f"steps {job.saved_step + 1} to {job.step} are trained again"
            job.log(f"Stopped between the updates of one sampling: {self._last_good()} stands, and {lost}.", "warning")
            return
        try:
            self.save(job.step, LAST_SAVE_SHARE if full else 1.0)
        except (NotFinite, StorageFull) as exc:
            job.log(f"The state of step {job.step} could not be saved: {exc.message}", "warning")

    def _fits_into_reserve(self) -> bool:
        """Whether the disk that is too full to go on has room for one more checkpoint: the reserve is there for it."""
        try:
            require_room(self.job.run_dir, self._bytes, "a checkpoint", LAST_SAVE_SHARE)
        except StorageFull:
            return False
        return True

    def save_model(self, step: int) -> None:
        """Save the final model. Raises ``NotFinite`` or ``StorageFull``."""
        job = self.job
        job.journal.write(PhaseChanged(phase="saving", step=step))
        self.require_finite()
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        needed = sum(p.numel() * p.element_size() for p in model.parameters())
        require_room(job.run_dir, needed, "the final model")
        began = time.monotonic()
        dtype = stored_dtype(job.base) if job.base is not None else ""
        card = partial(card_of, job, step, self._figures)
        folder, size = save_final(
            self._trainer, job.run_dir, step, dtype=dtype, base=job.hub_base, base_folder=job.base, card=card
        )
        adapter = ADAPTER if (job.run_dir / ADAPTER).is_dir() and _is_adapter(self._trainer) else ""
        seconds = time.monotonic() - began
        job.journal.write(
            CheckpointSaved(step=step, path=folder.name, bytes=size, final=True, seconds=seconds, adapter=adapter)
        )

    def require_finite(self) -> None:
        """Raise ``NotFinite`` when a weight is NaN or infinite: such a model is never saved and never sampled."""
        name = not_finite(self._trainer.model)
        if name is not None:
            raise NotFinite(
                f"The weights are not finite after step {self.job.step} ({name}). {self._last_good()} is the last good "
                "checkpoint.",
                hint="Lower the learning rate or the gradient limit, then resume the run from there.",
            )

    def _last_good(self) -> str:
        return self.job.saved or "The base model"


def not_finite(model: Any) -> str | None:
    """The name of a parameter that holds NaN or an infinity, if any."""
    import torch

    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter.detach()).all()):
            return str(name)
    return None


def random_states() -> dict[str, Any]:
    """The states of the random generators that a checkpoint holds."""
    import numpy as np
    import torch

    states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.random.get_rng_state()
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Set the random generators back to ``states``."""
    import numpy as np
    import torch

    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.random.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.random.set_rng_state(states["cuda"])


def _is_adapter(trainer: Any) -> bool:
    return hasattr(trainer.accelerator.unwrap_model(trainer.model), "merge_and_unload")


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
