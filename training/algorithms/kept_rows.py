"""TRL's GRPO trainer, in which rows without a token to learn from leave no trace.

Excluded rollouts, and truncated ones where those are masked, reach TRL as rows whose mask is all zero. Their tokens add
nothing, but TRL 1.16 divides by them: ``grpo``, ``dr_grpo``, ``sapo`` and ``luspo`` by the rows of the micro batch,
``bnpo`` and the entropy bonus by the number of micro batches. So the gradient of a step with half of its rollouts
excluded was half as long.

1. After a sampling the empty rows are taken out, and the kept ones are dealt evenly to the mini batches, so that each
   update has its share; within a mini batch they fill the micro batches in order. Without empty rows TRL's own split
   stays as it is.
2. A micro batch of ``b`` of the ``k`` rows that a mini batch has on average counts ``b / k``, in place of one part of
   the number of micro batches. TRL divides by ``current_gradient_accumulation_steps``, so that is set to ``k / b``
   while the loss is computed; with no row missing it is what it was.
3. ``dapo``, ``cispo`` and ``vespo`` divide by the tokens of the whole sampling, which is exact already; their
   normaliser is kept as it was.
4. A micro batch without rows costs no forward pass, gives a loss of 0 and no figures. An update without rows leaves
   the weights alone (``JournalCallback.rows``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from training.algorithms.base import JournalCallback
from training.algorithms.contents import (
    following_reference,
    load_reference,
)
from training.algorithms.finite import FiniteUpdates
from training.algorithms.token_values import PLACE

Rows = dict[str, Any]
KEPT_SHARE = "kept_rows_a_mini_batch"
STEP_NORMALISED = ("dapo", "cispo", "vespo")
"""Losses that TRL divides by the tokens of the whole sampling."""


class KeptRowsTrainer(FiniteUpdates, GRPOTrainer):  # type: ignore[misc]
    """``callback`` is told how many rows each update learns from, and asked for the weights' health."""

    callback: JournalCallback
    _random_of: str | None = None
    _places: torch.Tensor | None = None

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        if self.model is not None and self.model.training:
            self.callback.saver.require_finite()  # a sampler of NaN fails in ways that do not say so
        output: Rows = super()._generate_and_score_completions(inputs)
        output[PLACE] = torch.arange(len(output["completion_ids"]))
        return output

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if (reference := following_reference(self)) is not None:
            load_reference(reference, Path(resume_from_checkpoint))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """In a run with stages the step size and the decay are those of the stage, whatever the checkpoint was saved
        with; the moments and the place in the schedule go on."""
        if checkpoint is None or self.callback.job.stage is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        optimizer: Any = self.optimizer
        own = [{name: group[name] for name in ("initial_lr", "weight_decay")} for group in optimizer.param_groups]
        super()._load_optimizer_and_scheduler(checkpoint)
        self._random_of = checkpoint
        schedule: Any = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # accelerate's stands around it
        schedule.base_lrs = [values["initial_lr"] for values in own]
        factors = [factor(schedule.last_epoch) for factor in schedule.lr_lambdas]
        schedule._last_lr = [rate * factor for rate, factor in zip(schedule.base_lrs, factors, strict=True)]
        for group, values, now in zip(optimizer.param_groups, own, schedule._last_lr, strict=True):
            group.update(values, lr=now)

    def get_batch_samples(self, *arguments: Any) -> Any:
        """The first prompts of a stage are fetched before the random states are set: a loader that begins draws a
        number, and one that goes on, in a run without stages, draws it before they are set too."""
        found = super().get_batch_samples(*arguments)
        if self._random_of is not None:
            self._load_rng_state(self._random_of)
            self._random_of = None
        return found

    def _prepare_inputs(self, generation_batch: Any) -> Rows:
        before = self._buffered_inputs
        inputs: Rows = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs
        if self.callback.tokens is not None:
            for batch in self._buffered_inputs:
                self.callback.tokens.dealt(batch)
        mini_batches = self.args.steps_per_generation // self.args.gradient_accumulation_steps
        self._buffered_inputs = without_empty_rows(self._buffered_inputs, mini_batches)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _get_per_token_logps_and_entropies(self, *args: Any, **named: Any) -> Any:
        """The forward of the loss is the one that asks for entropies."""
        found = super()._get_per_token_logps_and_entropies(*args, **named)
        if self._places is not None and self.callback.tokens is not None and found[1] is not None:
            self.callback.tokens.seen(self._places, found[0], found[1])
        return found

    def _compute_loss(self, model: Any, inputs: Rows) -> torch.Tensor:
        inputs = dict(inputs)
        self._places = inputs.pop(PLACE, None)
        rows = int(inputs["advantages"].shape[0])
        self.callback.rows = (self.callback.rows or 0) + rows
        if rows == 0:
            return sum(p.sum() for p in model.parameters() if p.requires_grad) * 0.0  # type: ignore[no-any-return]
        if KEPT_SHARE not in inputs:
            return super()._compute_loss(model, inputs)  # type: ignore[no-any-return]
        steps, parts = self.current_gradient_accumulation_steps, inputs.pop(KEPT_SHARE) / rows
        if self.loss_type in STEP_NORMALISED:
            inputs["num_items_in_batch"] = inputs["num_items_in_batch"].clamp(min=1).double() * (steps / parts)
        self.current_gradient_accumulation_steps = parts
        try:
            return super()._compute_loss(model, inputs)  # type: ignore[no-any-return]
        finally:
            self.current_gradient_accumulation_steps = steps


def without_empty_rows(batches: list[Rows], mini_batches: int) -> list[Rows]:
    """The micro batches of a sampling without rows that have no token to learn from; unchanged if there is none.

    Each gets ``KEPT_SHARE``: how many kept rows a mini batch has on average.
    """
    sizes = [int(batch["advantages"].shape[0]) for batch in batches]
    whole = {name: _joined([batch[name] for batch in batches]) for name in batches[0]}
    mask = whole["completion_mask"] * whole.get("tool_mask", 1)
    kept = mask.sum(-1).nonzero().flatten()
    if len(kept) == sum(sizes):
        return batches
    found: list[Rows] = []
    micro, share = sizes[0], len(kept) / mini_batches
    for number in range(mini_batches):
        own = kept[number::mini_batches]
        for begin in range(0, sum(sizes) // mini_batches, micro):
            rows = own[begin : begin + micro]
            found.append({name: _rows_of(value, rows) for name, value in whole.items()} | {KEPT_SHARE: share})
    return found


def _joined(parts: list[Any]) -> Any:
    """One value of the whole sampling from those of its micro batches; a single figure is the same in all of them."""
    first = parts[0]
    if isinstance(first, torch.Tensor) and first.ndim:
        return torch.cat(parts)
    return [item for part in parts for item in part] if isinstance(first, list) else first


def _rows_of(value: Any, rows: torch.Tensor) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim:
        return value[rows.to(value.device)]
    return [value[row] for row in rows.tolist()] if isinstance(value, list) else value
