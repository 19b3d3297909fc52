"""How the model learns from what was played or shown."""

from __future__ import annotations

from typing import ClassVar, Literal

from training.config.gradient import (
    CREDIT,
    CREDIT_DISCOUNT,
    CREDIT_WEIGHT,
    ENTROPY,
    EPSILON,
    ITERATIONS,
    MASK_TRUNCATED,
    SAMPLER_CORRECTION,
    SAMPLER_RATIO_MAX,
    Credit,
    SamplerCorrection,
)
from training.config.option import Group, option
from training.words import _

AdvantageScale = Literal["group", "batch", "none", "leave_one_out", "values"]
"""What makes an advantage of rewards; the last two are RLOO's and PPO's, which no option of GRPO chooses."""
LossType = Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"]
UNCLIPPED_LOSSES = ("cispo", "sapo", "vespo")
CISPO_CEILING = 5.0
"""The largest ratio of cispo where none is set: Khatri et al. 2025, *The Art of Scaling RL Compute*."""


class GrpoConfig(Group):
    """The loss. TRL's GRPOTrainer computes it."""

    least_generations: ClassVar[int] = 2
    beta: float = option(
        0.0,
        title=_("KL weight β"),
        help=_("Pull towards the base model; 0 keeps no reference model in memory. The tool-calling preset uses 0.04."),
        ge=0,
        le=10,
    )
    epsilon: float = EPSILON
    epsilon_high: float = option(
        0.0,
        title=_("Clip ε above"),
        help=_(
            "Clipping range above 1, where it differs from the range below (clip higher); 0 uses ε for both. With "
            "the loss cispo it is the largest ratio itself, at least 1, and 0 means 5."
        ),
        ge=0,
        lt=10,
    )
    delta: float = option(
        0.0,
        title=_("Ratio limit δ"),
        help=_("The policy ratio counts at most this much, also for bad rollouts (dual clip); 0 is off."),
        ge=0,
        le=1000,
    )
    entropy_coef: float = ENTROPY
    importance_sampling: Literal["token", "sequence"] = option(
        "token",
        title=_("Ratio of"),
        help=_("Unit over which the policy ratio is computed."),
        choices={"token": _("each token (GRPO)"), "sequence": _("the whole rollout (GSPO)")},
    )
    sampler_correction: SamplerCorrection = SAMPLER_CORRECTION
    sampler_ratio_max: float = SAMPLER_RATIO_MAX
    num_iterations: int = ITERATIONS
    loss_type: LossType = option(
        "dapo",
        title=_("Loss"),
        help=_(
            "The objective. The first four clip the ratio and differ in how token losses are averaged. The others "
            "treat stale tokens in another way, so they differ from the first four only where a step makes several "
            "updates."
        ),
        choices={
            "dapo": _("over all tokens of the step (TRL's default)"),
            "grpo": _("per rollout, then over rollouts"),
            "bnpo": _("over the tokens of the local batch"),
            "dr_grpo": _("over a constant length: no length bias"),
            "cispo": _("the ratio is a bounded weight: clipped tokens still teach; over all tokens of the step"),
            "sapo": _("a soft gate instead of clipping; per rollout, then over rollouts"),
            "luspo": _("the ratio of the whole rollout, weighed by its length: GSPO without length bias"),
            "vespo": _("a smooth weight from the whole rollout's ratio, for stale ones; over all tokens of the step"),
        },
    )
    sapo_temperature_pos: float = option(
        1.0,
        title=_("SAPO temperature, good"),
        help=_("Loss sapo: how fast the gate closes for tokens of rollouts above the baseline."),
        gt=0,
        le=100,
    )
    sapo_temperature_neg: float = option(
        1.05,
        title=_("SAPO temperature, bad"),
        help=_("Loss sapo: the same below the baseline; higher than for good ones is more stable."),
        gt=0,
        le=100,
    )
    vespo_k_pos: float = option(
        2.0,
        title=_("VESPO k, good"),
        help=_("Loss vespo: how fast rollouts above the baseline lose weight as their ratio falls below 1."),
        ge=0,
        le=100,
    )
    vespo_lambda_pos: float = option(
        3.0,
        title=_("VESPO λ, good"),
        help=_("Loss vespo: how fast they lose weight as their ratio rises above 1."),
        gt=0,
        le=100,
    )
    vespo_k_neg: float = option(
        3.0,
        title=_("VESPO k, bad"),
        help=_("Loss vespo: as k above, for rollouts below the baseline."),
        ge=0,
        le=100,
    )
    vespo_lambda_neg: float = option(
        2.0,
        title=_("VESPO λ, bad"),
        help=_("Loss vespo: as λ above, for rollouts below the baseline."),
        gt=0,
        le=100,
    )
    scale_rewards: Literal["group", "batch", "none"] = option(
        "group",
        title=_("Advantage scale"),
        help=_("What the advantage is divided by."),
        choices={
            "group": _("the group's standard deviation"),
            "batch": _("the batch's standard deviation"),
            "none": _("nothing"),
        },
    )
    credit: Credit = CREDIT
    credit_weight: float = CREDIT_WEIGHT
    credit_discount: float = CREDIT_DISCOUNT
    mask_truncated: bool = MASK_TRUNCATED
    top_entropy_share: float = option(
        1.0,
        title=_("Undecided tokens"),
        help=_(
            "Only this share of a micro batch's tokens is learned from: those at which the policy was least decided. "
            "1 learns from all; 0.2 is usual."
        ),
        unit=_("share"),
        gt=0,
        le=1,
    )
    off_policy_limit: float = option(
        0.0,
        title=_("Off-policy limit"),
        help=_(
            "Rollouts below the baseline are left out of an update once the policy has moved this far from the one "
            "that sampled them, on average over tokens; 0 is off."
        ),
        unit=_("nats"),
        ge=0,
        le=100,
    )
    ref_sync_steps: int = option(
        0,
        title=_("Reference follows every"),
        help=_("Steps after which the reference model moves towards the policy; 0 keeps the base model. Needs β."),
        unit=_("steps"),
        ge=0,
        le=1_000_000,
    )
    ref_sync_share: float = option(
        0.6,
        title=_("Reference follows by"),
        help=_("Share of the policy in the new reference model; the rest stays what it was."),
        unit=_("share"),
        gt=0,
        le=1,
    )

    @property
    def ratio_ceiling(self) -> float:
        """With cispo: the largest ratio that counts, absolute and not a distance from 1."""
        return self.epsilon_high or CISPO_CEILING


class RlooConfig(Group):
    """REINFORCE with the mean of a group's other rollouts as the baseline, used by jobs of kind `rloo`."""

    least_generations: ClassVar[int] = 2
    num_iterations: ClassVar[int] = 1
    scale_rewards: ClassVar[AdvantageScale] = "leave_one_out"
    sampler_correction: ClassVar[SamplerCorrection] = "token_truncate"
    sampler_ratio_max: ClassVar[float] = 3.0
    beta: float = option(
        0.0,
        title=_("KL weight β"),
        help=_(
            "Pull towards the base model, taken from the reward of each rollout; 0 keeps no reference model in memory."
        ),
        ge=0,
        le=10,
    )
    credit: Credit = CREDIT
    credit_weight: float = CREDIT_WEIGHT
    credit_discount: float = CREDIT_DISCOUNT
    mask_truncated: bool = MASK_TRUNCATED


class DpoConfig(Group):
    """Learning from preference pairs, used by jobs of kind `dpo`."""

    beta: float = option(
        0.1,
        title=_("Pull β"),
        help=_("How strongly the model is held to the base model; smaller lets the pairs move it further."),
        gt=0,
        le=10,
    )
    loss_type: Literal["sigmoid", "ipo", "hinge", "robust"] = option(
        "sigmoid",
        title=_("Loss"),
        help=_("The condition on the margin between the two answers of a pair."),
        choices={
            "sigmoid": _("DPO: the wider the better, with less and less weight"),
            "ipo": _("IPO: a set width per token, against overfitting to clear pairs"),
            "hinge": _("SLiC: wide enough, and no further"),
            "robust": _("robust DPO: for pairs, some of which are the wrong way round"),
        },
    )
    label_smoothing: float = option(
        0.0,
        title=_("Wrong pairs"),
        help=_("Loss robust: the share of pairs that may be the wrong way round; 0.1 is usual."),
        unit=_("share"),
        ge=0,
        lt=0.5,
    )
    imitation_weight: float = option(
        0.0,
        title=_("Imitation weight"),
        help=_("Weight of imitating the chosen answers as well, so that they do not become less likely; 0 is off."),
        ge=0,
        le=100,
    )
    batch_size: int = option(32, title=_("Batch size"), help=_("Pairs in one step."), unit=_("pairs"), ge=1, le=4096)
    max_length: int = option(
        1024,
        title=_("Tokens at most"),
        help=_("Pairs with an answer that is longer, prompt included, are left out and counted."),
        unit=_("tokens"),
        ge=16,
        le=262144,
    )


class SftConfig(Group):
    """Supervised fine-tuning, used by jobs of kind `sft`."""

    batch_size: int = option(
        64, title=_("Batch size"), help=_("Conversations in one step."), unit=_("rows"), ge=1, le=4096
    )
    max_length: int = option(
        512,
        title=_("Row tokens at most"),
        help=_("Longer conversations are left out and counted."),
        unit=_("tokens"),
        ge=16,
        le=262144,
    )
    packing: bool = option(
        False,
        title=_("Pack rows"),
        help=_(
            "Short conversations of a micro batch share rows of this many tokens, so that less is padding. They do not "
            "see each other, and the loss is the same."
        ),
    )
    held_out_share: float = option(
        0.0,
        title=_("Held-out share"),
        help=_(
            "Part of the conversations that is not trained on, for the loss on them; 0 holds nothing out. Equal "
            "questions stay together."
        ),
        unit=_("share"),
        ge=0,
        le=0.5,
    )
    held_out_every: int = option(
        10,
        title=_("Held-out loss every"),
        help=_(
            "Steps between measurements of the held-out loss; it is also measured before the first step and after "
            "the last."
        ),
        unit=_("steps"),
        ge=1,
        le=1_000_000,
    )
