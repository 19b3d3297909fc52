"""The loss on demonstrations that are held out: when it rises while the loss of training falls, rows are learned by
heart.

It is the mean over all of their assistants' tokens, whatever the batches. Measuring leaves no trace in the run: weights
and random states stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from training.algorithms.job import Job
from training.algorithms.saving import random_states, restore_random
from training.events import Metrics, PhaseChanged
from training.journal import JOURNAL_NAME, read_events

Example = dict[str, list[int]]
Collator = Callable[[Sequence[Example]], dict[str, Any]]
LOSS, ACCURACY = "heldout/loss", "heldout/token_accuracy"
WHOLE_FILE = 1 << 50


class HeldOutLoss:
    """Measures the loss of a run's weights on ``examples`` when that is due, in batches of ``size``."""

    def __init__(self, job: Job, trainer: Any, examples: Sequence[Example], collator: Collator, size: int) -> None:
        self._job = job
        self._trainer = trainer
        # Rows of one length share a batch: its width is computed for all of them, and sums do not hang on their order.
        self._examples = sorted(examples, key=lambda example: len(example["input_ids"]), reverse=True)
        self._collator = collator
        self._size = size
        self._last = _measured(job)

    def due(self, step: int) -> bool:
        """Whether the weights after ``step`` are measured: every few steps, before the first, after the last."""
        run, every = self._job.config.run, self._job.config.sft.held_out_every
        return step > self._last and (step // every > self._last // every or step == run.max_steps)

    def evaluate(self, step: int) -> bool:
        """Journal the loss and the share of tokens that are the model's top choice. Nothing is saved because of it."""
        job = self._job
        job.journal.write(PhaseChanged(phase="evaluating", step=step))
        states, began = random_states(), time.monotonic()
        try:
            loss, hits, tokens = self._sums()
        finally:
            restore_random(states)
        self._last = step
        values = {LOSS: loss / tokens, ACCURACY: hits / tokens, "timing/evaluating": time.monotonic() - began}
        job.journal.write(Metrics(step=step, values=values))
        if 0 < step < job.config.run.max_steps:
            job.journal.write(PhaseChanged(phase="training", step=step + 1))
        return False

    def _sums(self) -> tuple[float, float, float]:
        """The loss of all tokens, how many are the top choice, and how many there are."""
        import torch

        trainer, sums = self._trainer, [0.0, 0.0, 0.0]
        model = trainer.model
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), trainer.compute_loss_context_manager():
                for begin in range(0, len(self._examples), self._size):
                    self._job.check_stop()
                    batch = self._collator(self._examples[begin : begin + self._size])
                    given = {name: value.to(trainer.accelerator.device) for name, value in batch.items()}
                    found = model(**given, use_cache=False, fused_lm_head=True)
                    for place, value in enumerate((-found.log_probs, found.is_top1, found.label_mask)):
                        sums[place] += float(value.sum())
        finally:
            model.train(training)
        return sums[0], sums[1], sums[2]


def _measured(job: Job) -> int:
    """The last step up to where the attempt goes on that was measured; -1 where none was."""
    last = -1
    for folder in (*job.earlier, job.run_dir):
        for _line, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE):
            if isinstance(event, Metrics) and LOSS in event.values and event.step <= job.step:
                last = max(last, event.step)
    return last
