"""What credit to turns cannot be had with; each is refused by name before a run."""

from __future__ import annotations

from training.config.learning import GrpoConfig, RlooConfig
from training.config.ppo import PpoConfig
from training.config.rewards import RewardsConfig
from training.words import OptionError, _, sentence

PAID = "task_success"
"""The function of the components that the environment's own reward comes in by: what turns are paid in."""


def check_credit(group: str, chosen: GrpoConfig | RlooConfig | PpoConfig, rewards: RewardsConfig) -> None:
    """Raise ``OptionError`` where the credit to turns of a gradient, named by its ``group``, would be lost without a
    word."""
    if chosen.credit == "rollout":
        return
    if isinstance(chosen, GrpoConfig):
        _check_loss(chosen)
    if rewards.aggregation != "sum_then_normalize":
        text = _("credit to turns divides the sum of the components: choose the sum")
        raise OptionError("rewards.aggregation", sentence(text))
    named = rewards.components
    if (named or not rewards.spec) and not any(item.registered == PAID and item.weight for item in named):
        text = _("turns are paid in the environment's own reward: add the component {name}, or credit whole rollouts")
        raise OptionError(f"{group}.credit", sentence(text, name=PAID))


def _check_loss(chosen: GrpoConfig) -> None:
    """A loss with one ratio, or one verdict, for the whole rollout gives all of its tokens one credit."""
    if chosen.loss_type in ("luspo", "vespo"):
        text = _("the loss {loss} weighs whole rollouts, and credit to turns is per token: choose another loss")
        raise OptionError("grpo.loss_type", sentence(text, loss=chosen.loss_type))
    if chosen.importance_sampling == "sequence":
        text = _("a ratio of the whole rollout spreads all credit over its tokens: choose the ratio of each token")
        raise OptionError("grpo.importance_sampling", sentence(text))
    if chosen.off_policy_limit:
        text = _(
            "this leaves out whole rollouts below the baseline, and with credit to turns a rollout has no single "
            "sign: set 0"
        )
        raise OptionError("grpo.off_policy_limit", sentence(text))
