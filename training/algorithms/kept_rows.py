"""TRL's GRPO trainer, in which rows without a token to learn from leave no trace, and padding costs no forward pass.

Excluded rollouts, and truncated ones where those are masked, reach TRL as rows whose mask is all zero. Their tokens add
nothing, but TRL 1.16 divides by them: ``grpo``, ``dr_grpo``, ``sapo`` and ``luspo`` by the rows of the micro batch,
``bnpo`` and the entropy bonus by the number of micro batches. So the gradient of a step with half of its rollouts
excluded was half as long.

1. After a sampling the empty rows are taken out, and where it makes several updates the kept ones are dealt evenly to
   them, in an order that follows from the run's seed and the step (``mini_batches``), as verl's are.
2. Within a mini batch rows are dealt to micro batches by length (``micro_batches``), which changes no sum over the
   update. Where a micro batch has a mean of its own (``bnpo``, the entropy bonus, the least decided tokens, an
   auxiliary loss of experts) they fill the micro batches in order instead: rows of equal length together would bias it.
3. A micro batch of ``b`` of the ``k`` rows that a mini batch has on average counts ``b / k``, in place of one part of
   the number of micro batches. TRL divides by ``current_gradient_accumulation_steps``, so that is set to ``k / b``
   while the loss is computed; with no row missing it is what it was.
4. ``dapo``, ``cispo`` and ``vespo`` divide by the tokens of the whole sampling, which is exact already; their
   normaliser is kept as it was.
5. A micro batch without rows costs no forward pass, gives a loss of 0 and no figures. An update without rows leaves
   the weights alone (``JournalCallback.rows``). With a limit of tokens there are as many micro batches as rows could
   need, and those left over are empty.
6. TRL averages the figures of micro batches; here they are weighed by what each is a mean of (``UpdateFigures``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from training.algorithms.base import JournalCallback
from training.algorithms.micro_batches import Packed, dealt_by_length, in_micro_batches, rows_by_update
from training.algorithms.saving import following_reference, load_reference
from training.algorithms.seam import GRPOTrainer
from training.algorithms.token_values import PLACE
from training.algorithms.updates import FiniteUpdates, UpdateFigures

Rows = dict[str, Any]
KEPT_SHARE = "kept_rows_a_mini_batch"
STEP_NORMALISED = ("dapo", "cispo", "vespo")
"""Losses that TRL divides by the tokens of the whole sampling."""


class KeptRowsTrainer(FiniteUpdates, GRPOTrainer):  # type: ignore[misc]
    """``callback`` gets the number of rows that each update learns from, and is asked for the weights' health.

    ``micro_tokens`` limits the token cells of a micro batch, in place of a number of rows; 0 is off. With
    ``join_rows`` the rows of a micro batch follow each other in a single one.
    """

    callback: JournalCallback
    micro_tokens: int = 0
    join_rows: bool = False
    _random_of: str | None = None
    _places: torch.Tensor | None = None
    _warned_long = False

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._figures = UpdateFigures(ratio_of_rows=self.importance_sampling_level == "sequence")

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
        with; the moments and the place in the schedule continue."""
        if checkpoint is None or self.callback.job.stage is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        optimizer: Any = self.optimizer
        own = [{name: group[name] for name in ("initial_lr", "weight_decay")} for group in optimizer.param_groups]
        super()._load_optimizer_and_scheduler(checkpoint)
        self._random_of = checkpoint
        schedule: Any = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # accelerate's wraps it
        schedule.base_lrs = [values["initial_lr"] for values in own]
        factors = [factor(schedule.last_epoch) for factor in schedule.lr_lambdas]
        schedule._last_lr = [rate * factor for rate, factor in zip(schedule.base_lrs, factors, strict=True)]
        for group, values, now in zip(optimizer.param_groups, own, schedule._last_lr, strict=True):
            group.update(values, lr=now)

    def get_batch_samples(self, *arguments: Any) -> Any:
        """The first prompts of a stage are fetched before the random states are set: a loader that begins draws a
        number, and one that continues, in a run without stages, draws it before they are set too."""
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
        by_length = not self._micro_means
        drawn = (self.args.seed, self.state.global_step + 1)
        limits: dict[str, Any] = {"tokens": self.micro_tokens, "by_length": by_length, "joined": self.join_rows}
        batches = dealt(self._buffered_inputs, mini_batches, drawn, **limits)
        self._buffered_inputs = batches
        self._tell_long_rows(max(_longest(batch) for batch in batches))
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    @property
    def _micro_means(self) -> bool:
        """Whether the loss has a mean over a micro batch, so that it matters which rows are in it together."""
        means = self._entropy_bonus_enabled or self.top_entropy_quantile < 1.0 or self.aux_loss_enabled
        return bool(self.loss_type == "bnpo" or means)

    def _tell_long_rows(self, longest: int) -> None:
        """Say once that there are rows which the limit cannot hold."""
        if 0 < self.micro_tokens < longest and not self._warned_long:
            self._warned_long = True
            self.callback.job.log(
                f"A rollout of {longest:,} tokens is longer than optim.max_tokens_per_micro_batch "
                f"({self.micro_tokens:,}): such rollouts are micro batches of their own and need more memory.",
                "warning",
            )

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **_pictures: None,
    ) -> Any:
        """TRL's, over packed rows: log-probabilities and entropies (rows, ``logits_to_keep``), and the auxiliary loss.

        The forward of the loss is the one that asks for entropies; its rows are a micro batch already.
        """
        extra = {"output_router_logits": True} if compute_aux_loss else {}
        aux = []

        def forward(packed: Packed) -> list[torch.Tensor]:
            with self.accelerator.autocast():
                found = model(**packed.inputs, labels=packed.labels, **extra, fused_lm_head=True)
            aux.append(found.aux_loss)
            wanted = [found.log_probs, found.entropy] if compute_entropy else [found.log_probs]
            return [packed.of_completions(values) for values in wanted]

        given = input_ids, attention_mask, logits_to_keep
        rows, tokens = batch_size or len(input_ids), self.micro_tokens if batch_size else 0
        logps, *entropies = in_micro_batches(forward, *given, rows=rows, tokens=tokens, joined=self.join_rows)
        if self._places is not None and self.callback.tokens is not None and entropies:
            self.callback.tokens.seen(self._places, logps, entropies[0])
        return logps, entropies[0] if entropies else None, torch.stack(aux).mean() if compute_aux_loss else None

    def _compute_loss(self, model: Any, inputs: Rows) -> torch.Tensor:
        inputs = dict(inputs)
        self._places = inputs.pop(PLACE, None)
        rows = int(inputs["advantages"].shape[0])
        self.callback.rows = (self.callback.rows or 0) + rows
        if rows == 0:
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        with self._figures.of_micro_batch(self._metrics, inputs):
            return self._weighed_loss(model, inputs, rows)

    def _weighed_loss(self, model: Any, inputs: Rows, rows: int) -> torch.Tensor:
        """TRL's loss, in which the micro batch counts by its rows."""
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


def dealt(
    batches: list[Rows],
    mini_batches: int,
    drawn: tuple[int, int],
    *,
    tokens: int = 0,
    by_length: bool = True,
    joined: bool = False,
) -> list[Rows]:
    """As many micro batches of a sampling, without the rows that have no token to learn from and cut to their longest.

    ``drawn`` are the run's seed and the step, by which rows are dealt to several mini batches; one has them in TRL's
    order. Each gets ``KEPT_SHARE``: how many kept rows a mini batch has on average. With ``tokens`` micro batches hold
    as many token cells in place of as many rows.
    """
    whole = {name: _joined([batch[name] for batch in batches]) for name in batches[0]}
    mask = whole["completion_mask"] * whole.get("tool_mask", 1)
    lengths = whole["prompt_mask"].sum(-1) + whole["completion_mask"].sum(-1)
    kept, slots = mask.sum(-1).nonzero().flatten(), len(batches) // mini_batches
    micro, share = len(mask) // len(batches), len(kept) / mini_batches
    owned = [kept]
    if mini_batches > 1:
        row_at = whole[PLACE].argsort()
        teaches = (mask.sum(-1) > 0)[row_at].tolist()
        owned = [row_at[places] for places in rows_by_update(teaches, mini_batches, *drawn)]
    found: list[Rows] = []
    for own in owned:
        if by_length or tokens:
            parts = dealt_by_length(lengths[own].tolist(), micro, tokens, joined=joined)
        else:
            parts = [list(range(begin, min(begin + micro, len(own)))) for begin in range(0, len(own), micro)]
        parts += [[]] * (slots - len(parts))
        found += [_cut(whole, own[part]) | {KEPT_SHARE: share} for part in parts]
    return found


def _cut(whole: Rows, rows: torch.Tensor) -> Rows:
    """These rows, without the columns that are padding in all of them."""
    prompt, completion = whole["prompt_mask"].shape[1], whole["completion_mask"].shape[1]
    found = {name: _rows_of(value, rows) for name, value in whole.items()}
    if not len(rows):
        return found
    before = prompt - int(found["prompt_mask"].sum(-1).max())
    until = int(found["completion_mask"].sum(-1).max())
    for name, value in found.items():
        if name.startswith("prompt_"):
            found[name] = value[:, before:]
        elif isinstance(value, torch.Tensor) and value.ndim == 2 and value.shape[1] == completion:
            found[name] = value[:, :until]
    return found


def _longest(batch: Rows) -> int:
    """Tokens of the longest row of a micro batch."""
    lengths = batch["prompt_mask"].sum(-1) + batch["completion_mask"].sum(-1)
    return int(lengths.max()) if len(lengths) else 0


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
