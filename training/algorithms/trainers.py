"""Our trainers on TRL's GRPO trainer: RLOO's advantages, a value head, and the pull of the reference in the reward."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from training.algorithms.micro_batches import Joined, Packed, dealt_by_length, in_micro_batches
from training.algorithms.rollouts import PARTS_FIELD
from training.algorithms.saving import load_value_head
from training.algorithms.seam import disable_gradient_checkpointing
from training.algorithms.values import (
    CorrectedTrainer,
    Rows,
    at_last_token,
    constant_value,
    estimate,
    explained_variance,
    over_turns,
    paid_at_turns,
    value_loss,
    whitened,
)
from training.config import JobConfig
from training.config.learning import HEAD_REACH
from training.errors import NotFinite
from training.policy.attached import causal_of, without_value_head
from training.policy.value_head import ValueHead, attach_value_head, hidden_read, values_read

# Trainers that pay the distance from the reference out of the rewards, in place of a term of the loss.


class PullInRewardTrainer(CorrectedTrainer):
    """TRL's GRPO trainer without a KL term: ``self.beta`` keeps the reference, and is part of the rewards."""

    def take_pull(self, output: Rows) -> torch.Tensor | None:
        """β (log π − log π_ref) of each own token, shape (rows, tokens), taken out of a sampling; ``None`` with β 0.

        π is the policy that sampled, as the trainer computes it: the sampler's own figures depend on what was batched
        with a turn, and so on timing.
        """
        if "ref_per_token_logps" not in output:
            return None
        policy = output["old_per_token_logps"] if "old_per_token_logps" in output else self._logprobs(output)
        gap = (policy - output.pop("ref_per_token_logps")) * own_tokens(output)
        self._metrics["train"]["kl"].append(float(gap.sum()) / max(1, int(output["num_items_in_batch"])))
        return self.beta * gap

    def _logprobs(self, output: Rows) -> torch.Tensor:
        """The trainer's log-probabilities of a sampling's completions, (rows, tokens), without dropout."""
        ids, mask, keep = forward_inputs(output)
        arguments: Any = self.args
        model: Any = self.model
        plainly = disable_gradient_checkpointing(model, arguments.gradient_checkpointing_kwargs)
        model.eval()
        try:
            with torch.no_grad(), plainly:
                found: torch.Tensor = self._get_per_token_logps_and_entropies(
                    model, ids, mask, keep, batch_size=arguments.per_device_train_batch_size
                )[0]
        finally:
            model.train()
        return found

    def _compute_loss(self, model: Any, inputs: Rows) -> torch.Tensor:
        beta, self.beta = self.beta, 0.0
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = beta


def forward_inputs(rows: Rows) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and mask (rows, tokens) of prompts and completions, and how many columns the completions have."""
    ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
    mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
    return ids, mask, rows["completion_ids"].size(1)


def own_tokens(output: Rows) -> torch.Tensor:
    """1 for the tokens that the model sampled and that are learned from, shape (rows, tokens)."""
    mask: torch.Tensor = output["completion_mask"] * output["tool_mask"]
    return mask


# RLOO: REINFORCE with the mean reward of a group's other rollouts as the baseline of each.
#
# Ahmadian et al. 2024, *Back to Basics*. The rollouts, rewards and journal are GRPO's, and so is TRL's trainer: its
# ``RLOOTrainer`` 1.16 takes neither our rollouts nor a mask of the environment's tokens. What differs from GRPO:
#
# 1. The advantage is the reward less the mean of the others', without a division; with one rollout left it is 0.
# 2. The pull of the reference is part of the reward: ``r - β Σ (log π - log π_ref)`` over the rollout's own tokens,
#    with the log-probabilities that it was sampled with. The loss has no KL term.
# 3. A rollout is one action: its loss is ``-A Σ log π`` over its own tokens, averaged over rollouts. TRL's ``luspo``
#    with one update of each sampling is just that: the ratio is 1, and its derivative the mean of the tokens', which
#    ``luspo`` takes times the length. With credit to turns each turn is an action, and its advantage that of its
#    tokens.


class RlooTrainer(PullInRewardTrainer):
    """TRL's GRPO trainer with the advantages of RLOO."""

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        output = super()._generate_and_score_completions(inputs)
        gains = output["advantages"]  # rewards less the group's mean, which the other baseline does not depend on
        if (pull := self.take_pull(output)) is not None:
            gains = gains - pull.sum(-1)
        kept = torch.tensor([row[PARTS_FIELD] is not None for row in inputs], device=gains.device)
        found = leave_one_out(gains, kept, self.num_generations or len(gains))
        output["advantages"] = over_turns(found, inputs, output["completion_ids"].shape[1])
        return output


def leave_one_out(rewards: torch.Tensor, kept: torch.Tensor, size: int) -> torch.Tensor:
    """Each reward less the mean of the other kept ones of its group, shape (rows,); 0 where there is no other, and for
    rows that are not kept. ``size`` consecutive rows are a group."""
    groups, mask = rewards.view(-1, size), kept.view(-1, size)
    held = torch.where(mask, groups, torch.zeros_like(groups))
    others = mask.sum(1, keepdim=True) - 1
    baseline = (held.sum(1, keepdim=True) - held) / others.clamp(min=1)
    return torch.where(mask & (others > 0), groups - baseline, torch.zeros_like(groups)).flatten()


# TRL's GRPO trainer with a value head: the advantages of each token come from values, and values are learned.
#
# 1. After a sampling the rewards of rollouts are at their last own tokens, less the reference's pull at each token.
#    With credit to turns, what the environment paid with a turn's answer is at that turn's last token.
# 2. One forward without a gradient gives the values of all own tokens; ``values.estimate`` makes advantages and returns
#    of them, which stay as they are for all updates of the sampling.
# 3. Each update minimises TRL's clipped loss of the policy, averaged over the tokens of the step (``dapo``), and the
#    value loss, averaged in the same way. The head's values come from the same forward as the log-probabilities.
# 4. The head has a learning rate and a gradient limit of its own, and no weight decay.

# --- Head start -----------------------------------------------------------------------------------------------------
# Where a value head starts: at the mean of the first returns, and with updates of its own before the policy has any.
#
# A head that begins at 0 spends tens of updates on its way to the mean return. All its weights take part in that way,
# so what it says of single tokens is noise meanwhile, and grows with it. So its bias starts at the mean
# (``constant_value``), and ``ppo.critic_warmup`` updates of the head alone follow, each over every own token of the
# first sampling.
#
# The policy does not move meanwhile, nor do its hidden states. The gradient of ½ mean (w·h + b − R)² depends on them
# through sums over the tokens alone, so one forward pass is enough for any number of updates.


class Sums:
    """The sums over tokens that the gradient of a squared error is made of, in float64 on the processor.

    With x = (h, 1): ``square`` is the sum of x xᵀ, of shape (width + 1, width + 1), ``goal`` that of x R, (width + 1,).
    """

    def __init__(self, width: int) -> None:
        self.tokens = 0
        self.square = torch.zeros(width + 1, width + 1, dtype=torch.float64)
        self.goal = torch.zeros(width + 1, dtype=torch.float64)

    def add(self, hidden: Tensor, returns: Tensor) -> None:
        """Hidden states (tokens, width) and the returns (tokens,) from there on."""
        given = torch.cat([hidden.float(), torch.ones_like(hidden[:, :1], dtype=torch.float32)], dim=1)
        self.tokens += len(given)
        self.square += (given.T @ given).to("cpu", torch.float64)
        self.goal += (given.T @ returns.to(given.device, torch.float32)).to("cpu", torch.float64)


def warm_up(head: ValueHead, sums: Sums, updates: int, rate: float) -> None:
    """So many updates of the head by AdamW, at its own rate from the first on and without decay, over all the tokens.

    The optimiser is gone afterwards: the moments of the one that trains the policy begin with the policy's first
    update.
    """
    weights = torch.cat([head.weight.detach()[0], head.bias.detach()]).to("cpu", torch.float64).requires_grad_(True)
    optimizer = torch.optim.AdamW([weights], lr=rate, weight_decay=0.0)
    for _update in range(updates):
        weights.grad = (sums.square @ weights.detach() - sums.goal) / sums.tokens
        optimizer.step()
    with torch.no_grad():
        head.weight.copy_(weights[None, :-1])
        head.bias.copy_(weights[-1:])


FLAT_GROUPS = "groups/zero_variance_share"
LEAST_EXPLAINED = -1.0
"""Explained variance below which the head is worse than no head at all: its error varies twice as much as returns."""
PATIENCE = 10
"""Samplings after which it is said that the head is worse than none (each of them), or explains nothing (half)."""


class ActorCriticTrainer(PullInRewardTrainer):
    """``config`` is the job's; TRL asks for groups of two, so it gets the generations of a prompt afterwards."""

    def __init__(self, *args: Any, config: JobConfig, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_generations = config.rollout.num_generations
        self.options = config.ppo
        self.head = attach_value_head(self.model, self.accelerator.device)
        # AdamW moves each weight by the rate, and hidden states are about 1 in size once they are normalised.
        self.head_rate = self.options.critic_learning_rate or HEAD_REACH / self.head.weight.shape[1]
        self._explained: deque[float] = deque(maxlen=PATIENCE)
        self._warned: set[str] = set()
        self._rewards: torch.Tensor = torch.empty(0)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with a group more, for the head."""
        if self.optimizer is not None:
            return self.optimizer
        self.head.requires_grad_(False)  # the others are trained at the policy's rate
        made: torch.optim.Optimizer = super().create_optimizer(model)
        self.head.requires_grad_(True)
        made.add_param_group({"params": list(self.head.parameters()), "lr": self.head_rate, "weight_decay": 0.0})
        return made

    def _clip_grad_norm(self, model: Any) -> Any:
        """The norm of the policy's gradients, or of the head's where that is not finite. Both are clipped, each for
        itself: errors of values, which begin large, would leave the policy hardly a gradient."""
        head, limit = list(self.head.parameters()), self.args.max_grad_norm
        critic = torch.nn.utils.clip_grad_norm_(head, limit)
        aside = [parameter.grad for parameter in head]
        for parameter in head:
            parameter.grad = None
        norm = super()._clip_grad_norm(model)
        for parameter, grad in zip(head, aside, strict=True):
            parameter.grad = grad
        return norm if math.isfinite(float(critic)) else critic

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with without_value_head(self.model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        load_value_head(self.model, Path(resume_from_checkpoint))

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        found: torch.Tensor = super()._calculate_rewards(*args)
        self._rewards = (found * self.reward_weights.to(found.device)).nansum(dim=1)
        return found

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        output = super()._generate_and_score_completions(inputs)
        # Rewards that are equal within a group teach all the same: they are compared with values.
        self.callback.extra.pop(FLAT_GROUPS, None)
        mask, options = own_tokens(output), self.options
        values = self._values(output) * mask
        self._require_finite(values)
        paid = paid_at_turns(inputs, mask)
        rewards = at_last_token(self._rewards - paid.sum(-1), mask) + paid
        if (pull := self.take_pull(output)) is not None:
            rewards = rewards - pull
        begins = None if self.head.begun else constant_value(rewards, mask, gamma=options.gamma, lam=options.lam)
        if begins is not None:
            self.head.bias.data.fill_(begins)
            values = begins * mask
        advantages, returns = estimate(rewards, values, mask, gamma=options.gamma, lam=options.lam)
        output["advantages"] = whitened(advantages, mask) if options.whiten_advantages else advantages
        self._report_values(values, returns, mask)
        if begins is not None:
            values = self._warmed_up(output, values, returns, mask)
        output["values"], output["returns"] = values, returns
        return output

    def _values(self, output: Rows) -> torch.Tensor:
        """The values (rows, tokens) of a sampling's tokens, by the weights that it was sampled with."""

        def forward(packed: Packed) -> list[torch.Tensor]:
            with values_read(self._bare, packed.of_completions, reaches_base=False) as found:
                self._forward_body(packed)
                return found

        ids, marks, keep = forward_inputs(output)
        with self._plainly():
            return in_micro_batches(forward, ids, marks, keep, **self._sizes)[0]

    def _warmed_up(self, output: Rows, values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The values once the head has had its updates before the first of the policy. What the sampling's advantages
        are made of they come too late for: they know its returns."""
        updates, begins = self.options.critic_warmup, float(self.head.bias.detach())
        text = f"The value head starts at {begins:.4g}, the mean of the first returns"
        if not updates:
            self.callback.job.log(f"{text}.")
            return values
        sums = self._sums(output, returns, mask)
        warm_up(self.head, sums, updates, self.head_rate)
        values = self._values(output) * mask
        self._require_finite(values)
        explained = explained_variance(values, returns, mask)
        self.callback.job.log(
            f"{text}, and has had {updates} updates of its own over the {sums.tokens:,} tokens of the first sampling"
            + (f"; it explains {explained:.2f} of their variance now." if explained is not None else ".")
        )
        return values

    def _sums(self, output: Rows, returns: torch.Tensor, mask: torch.Tensor) -> Sums:
        """The sums that the head's updates over a sampling depend on."""
        sums, own = Sums(self.head.weight.shape[1]), mask.bool()
        lay_out = Joined if self.join_rows else Packed
        ids, marks, keep = forward_inputs(output)
        with self._plainly():
            for places in dealt_by_length(marks.sum(1).tolist(), **self._sizes):
                packed, found = lay_out(ids[places], marks[places], keep), list[torch.Tensor]()
                with hidden_read(self._bare, found.append):
                    self._forward_body(packed)
                sums.add(packed.states_of(found[0], own[places]), returns[places][own[places]])
        return sums

    def _forward_body(self, packed: Packed) -> None:
        """A forward of the model without its output layer."""
        with self.accelerator.autocast():
            causal_of(self._bare).base_model(**packed.inputs, use_cache=False)

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """Within the block a forward keeps nothing and drops nothing out."""
        arguments: Any = self.args
        model: Any = self.model
        model.eval()
        try:
            with torch.no_grad(), disable_gradient_checkpointing(self._bare, arguments.gradient_checkpointing_kwargs):
                yield
        finally:
            model.train()

    @property
    def _sizes(self) -> dict[str, Any]:
        """How rows are dealt to micro batches."""
        return {"rows": self.args.per_device_train_batch_size, "tokens": self.micro_tokens, "joined": self.join_rows}

    def _compute_loss(self, model: Any, inputs: Rows) -> torch.Tensor:
        if not len(inputs["advantages"]):
            return super()._compute_loss(model, inputs)
        lay_out = Joined if self.join_rows else Packed
        weight, packed = self.options.value_coef, lay_out(*forward_inputs(inputs))
        with values_read(self._bare, packed.of_completions, reaches_base=weight > 0) as found:
            loss = super()._compute_loss(model, inputs)
        mask = own_tokens(inputs)
        part = value_loss(found[0], inputs["values"], inputs["returns"], mask, self.options.cliprange_value)
        tokens = mask.sum().clamp(min=1)
        for name, figure in (("value/loss", part.loss.detach()), ("value/clip_share", part.clipped)):
            self._figures.add(self._metrics["train"], name, float(figure / tokens), float(tokens))
        # As TRL averages dapo's: over the tokens of the sampling, as if each update had an equal part of them.
        arguments: Any = self.args
        of_update = self.current_gradient_accumulation_steps / arguments.steps_per_generation
        return loss + (weight or 1.0) * part.loss / (inputs["num_items_in_batch"].clamp(min=1) * of_update)

    @property
    def _bare(self) -> Any:
        return self.accelerator.unwrap_model(self.model)

    def _require_finite(self, values: torch.Tensor) -> None:
        if not bool(torch.isfinite(values).all()):
            raise NotFinite(
                f"The value head gives values that are not finite after step {self.state.global_step}; nothing is "
                "learned from them.",
                hint="Lower ppo.critic_learning_rate or the gradient limit, then resume the run.",
            )

    def _report_values(self, values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> None:
        """The sampling's figures of the head, and a word where it has been of no use for long."""
        own = mask.bool()
        if not bool(own.any()):
            return
        self.callback.extra["value/mean"] = float(values[own].mean())
        explained = explained_variance(values, returns, mask)
        if explained is None:
            return
        self.callback.extra["value/explained_variance"] = explained
        self._explained.append(explained)
        if len(self._explained) == PATIENCE:
            self._judge(max(self._explained), median(self._explained))

    def _judge(self, best: float, usual: float) -> None:
        """Say once each what the last samplings show of the head."""
        if best < LEAST_EXPLAINED:
            self._warn_once(
                f"The value head has been worse than none for {PATIENCE} samplings in a row: its error varies more "
                "than twice as much as the returns. Advantages are mostly noise. Lower ppo.critic_learning_rate; if it "
                "has ended near one value, look whether the rewards still differ."
            )
        elif usual <= 0:
            self._warn_once(
                f"The values explain nothing of the returns: {usual:.2g} of their variance in the middle one of the "
                f"last {PATIENCE} samplings, where a constant explains 0. Raise ppo.critic_warmup or "
                "ppo.critic_learning_rate, play more rollouts a step, or take a method without values (grpo, rloo)."
            )

    def _warn_once(self, text: str) -> None:
        if (first := text.split(":")[0]) not in self._warned:
            self._warned.add(first)
            self.callback.job.log(text, "warning")
