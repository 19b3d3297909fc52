"""How the model learns from what was played or shown."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from training.config.option import Group, option
from training.config.rewards import RewardsConfig
from training.words import OptionError, _, sentence

# Options that several policy gradients have in common.

SamplerCorrection = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "off"]
Credit = Literal["rollout", "turns"]
EPSILON: Any = option(0.2, title=_("Clip ε"), help=_("Clipping range of the policy ratio."), gt=0, lt=1)
ENTROPY: Any = option(
    0.0,
    title=_("Entropy weight"),
    help=_("Rewards a policy for staying undecided; 0 is off."),
    ge=0,
    le=1,
)
ITERATIONS: Any = option(
    1, title=_("Iterations per batch"), help=_("Optimiser passes over each batch (μ)."), ge=1, le=16
)
MASK_TRUNCATED: Any = option(
    False, title=_("Mask truncated"), help=_("Exclude rollouts that were cut off from the loss.")
)
SAMPLER_CORRECTION: Any = option(
    "token_truncate",
    title=_("Sampler correction"),
    help=_(
        "If the sampler computes differently from the trainer (vLLM, bfloat16), the loss weighs each token, or each "
        "rollout, by the ratio of the two probabilities. A ratio above the limit counts as the limit, or its token "
        "or rollout is left out."
    ),
    choices={
        "token_truncate": _("tokens, at most the limit"),
        "token_mask": _("tokens, none above the limit"),
        "sequence_truncate": _("rollouts, at most the limit"),
        "sequence_mask": _("rollouts, none above the limit"),
        "off": _("none"),
    },
)
SAMPLER_RATIO_MAX: Any = option(
    3.0,
    title=_("Sampler ratio at most"),
    help=_("Limit of the ratio between the trainer's probability and the sampler's."),
    gt=1,
    le=1000,
)
CREDIT: Any = option(
    "rollout",
    title=_("Credit to"),
    help=_(
        "What a turn is credited with. By turns, what the environment paid before a turn is taken off its reward, "
        "and the turn is compared with the rollouts of the group that reached it. This is biased where mostly good "
        "or mostly bad rollouts get that far. Where the environment pays only at the end, nothing is taken off."
    ),
    choices={
        "rollout": _("the whole rollout: one advantage for all its turns"),
        "turns": _("each turn: what the environment paid before it is not its own"),
    },
)
CREDIT_WEIGHT: Any = option(
    1.0,
    title=_("Credit by turns"),
    help=_(
        "With credit to turns: how much of the reward from before a turn is taken off; near 0 is the rollout's credit."
    ),
    gt=0,
    le=1,
)
CREDIT_DISCOUNT: Any = option(
    1.0,
    title=_("Credit for later turns"),
    help=_(
        "With credit to turns: the share that a turn's advantage keeps of what the environment pays one turn later. "
        "1 keeps all; 0 keeps nothing, for turns that do not depend on one another. What comes with the last answer "
        "always counts."
    ),
    ge=0,
    le=1,
)
PAID_AT: Any = option(
    "rollout",
    title=_("Credit to"),
    help=_(
        "Where the reward is placed. By turns, what the environment paid with the answer to a turn is placed at the "
        "turn's last token, and the rest at the rollout's; values then learn what is still to come."
    ),
    choices={
        "rollout": _("the end of the rollout"),
        "turns": _("the turn whose answer the environment paid it with"),
    },
)


AdvantageScale = Literal["group", "batch", "none", "leave_one_out", "values"]
"""The estimator of advantages from rewards; the last two are RLOO's and PPO's, which no option of GRPO chooses."""
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
        basic=True,
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
        basic=True,
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
        basic=True,
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
        basic=True,
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


# Learning with a value head.

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
        basic=True,
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


# What credit to turns cannot be had with; each is refused by name before a run.

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
