"""Learning with a value head."""

from __future__ import annotations

from typing import ClassVar

from training.config.gradient import (
    ENTROPY,
    EPSILON,
    ITERATIONS,
    MASK_TRUNCATED,
    PAID_AT,
    SAMPLER_CORRECTION,
    SAMPLER_RATIO_MAX,
    Credit,
    SamplerCorrection,
)
from training.config.learning import AdvantageScale
from training.config.option import Group, option
from training.words import _

HEAD_REACH = 0.15
"""How far one update may move a value where no learning rate of the head is set."""


class PpoConfig(Group):
    """Clipped policy gradient with a value head that predicts the return at each token, used by jobs of kind `ppo`."""

    least_generations: ClassVar[int] = 1
    scale_rewards: ClassVar[AdvantageScale] = "values"
    gamma: float = option(
        1.0,
        title=_("Discount γ"),
        help=_(
            "The share of a reward that counts one token earlier. The usual 1 lets the end count in full for every "
            "token."
        ),
        gt=0,
        le=1,
    )
    lam: float = option(
        1.0,
        title=_("GAE λ"),
        help=_(
            "How far advantages look ahead: 1 compares the final result with the value; smaller trusts the values of "
            "later tokens more, with less noise and more bias. 0.95 is usual once values are good."
        ),
        ge=0,
        le=1,
    )
    beta: float = option(
        0.0,
        title=_("KL weight β"),
        help=_(
            "Pull towards the base model, taken from the reward at each token; 0 keeps no reference model in memory."
        ),
        ge=0,
        le=10,
    )
    epsilon: float = EPSILON
    cliprange_value: float = option(
        0.5,
        title=_("Value clip"),
        help=_("How far a value may move from the one at sampling; moving further gains nothing. 0 does not clip."),
        ge=0,
        le=1000,
    )
    value_coef: float = option(
        0.1,
        title=_("Value weight"),
        help=_(
            "Weight of the value loss next to the policy's, in the weights that both share. 0 trains the head alone, "
            "on what the model knows already."
        ),
        ge=0,
        le=10,
    )
    critic_learning_rate: float = option(
        0.0,
        title=_("Learning rate of the head"),
        help=_(
            "Step size of the value head. 0 uses 0.15 divided by the width of its hidden states, so that an update "
            "moves a value by about 0.15 at most: 3.7e-5 at a width of 4,096."
        ),
        ge=0,
        le=1,
    )
    critic_warmup: int = option(
        0,
        title=_("Warm-up of the head"),
        help=_(
            "Updates of the value head alone after the first sampling, before the policy has its first: each is over "
            "all tokens of that sampling, at the head's own rate. They do not count as steps of the run. The head "
            "starts at the mean of the first returns, whatever is set here."
        ),
        unit=_("updates"),
        ge=0,
        le=1000,
    )
    whiten_advantages: bool = option(
        True,
        title=_("Whiten advantages"),
        help=_("Advantages of a step are shifted and scaled to mean 0 and standard deviation 1 over its tokens."),
    )
    credit: Credit = PAID_AT
    num_iterations: int = ITERATIONS
    entropy_coef: float = ENTROPY
    mask_truncated: bool = MASK_TRUNCATED
    sampler_correction: SamplerCorrection = SAMPLER_CORRECTION
    sampler_ratio_max: float = SAMPLER_RATIO_MAX
